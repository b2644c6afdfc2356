/** Settings of the opt-in prompt, from a form. Pure. */
import type { components } from "../api/schema";

type PromptSettings = components["schemas"]["PromptSettings"];

/** Texts of the prompt that the form edits, with their labels. All others are set by the API. */
export const TEXTS = [
  ["title", "Title"],
  ["body", "Text"],
  ["accept", "Yes"],
  ["later", "Not now"],
  ["no", "No"],
] as const;

/** Languages with built-in texts. */
export const LANGUAGES = ["ar", "de", "en", "es", "fr", "it", "ja", "nl", "pl", "pt", "tr", "zh"];

interface Fields {
  text: (name: string) => string;
  lines: (name: string) => string[];
  has: (name: string) => boolean;
}

/** Settings of a form's fields. Texts of other languages, and other texts of this one, stay. */
export function promptFrom(fields: Fields, known: PromptSettings, language: string): PromptSettings {
  const number = (name: string) => Number(fields.text(name));
  const own = { ...known.texts?.[language] };
  for (const [name] of TEXTS) {
    const text = fields.text(`text_${name}`);
    if (text) own[name] = text;
    else delete own[name];
  }
  const { [language]: _, ...others } = known.texts ?? {};
  return {
    enabled: fields.has("enabled"),
    layout: fields.text("layout") as PromptSettings["layout"],
    topics: fields.lines("topics"),
    visits: number("visits"),
    seconds: number("seconds"),
    scroll_percent: number("scroll_percent"),
    event: fields.text("event") || null,
    share_percent: number("share_percent"),
    no_days: number("no_days"),
    not_now_days: number("not_now_days"),
    texts: Object.keys(own).length > 0 ? { ...others, [language]: own } : others,
  };
}
