/** Settings of the opt-in prompt and its variants, from and for a form. Pure. */
import type { Refusal } from "../api/problem";
import type { PromptSettings, PromptVariant } from "../api/types";
import { numberFault } from "./format";

type Texts = PromptSettings["texts"];

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

/** Forms of the prompt. */
export const LAYOUTS = [
  ["card", "Card in a corner"],
  ["bar", "Bar at the bottom"],
  ["dialog", "Dialog in front of the page"],
] as const;

/** Numbers of the form: name, label, smallest and largest value. */
export const CONDITIONS = [
  ["visits", "Visits", 1, 100],
  ["seconds", "Seconds on the page", 0, 3600],
  ["scroll_percent", "Scrolled, in percent of the page", 0, 100],
  ["share_percent", "Share of browsers, in percent", 0, 100],
  ["no_days", "Days of silence after a no", 1, 3650],
  ["not_now_days", "Days of silence after “not now”", 1, 365],
] as const;

interface Fields {
  text: (name: string) => string;
  lines: (name: string) => string[];
  has: (name: string) => boolean;
}

/** Settings of a form's fields. Variants, texts of other languages, and other texts of this one, stay. */
export function promptFrom(fields: Fields, known: PromptSettings, language: string): PromptSettings {
  const number = (name: string) => Number(fields.text(name));
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
    texts: TEXTS.reduce(
      (texts, [name]) => withText(texts, language, name, fields.text(`text_${name}`)),
      known.texts ?? {},
    ),
    variants: known.variants,
  };
}

/** Texts with another one. An empty text is removed. */
export function withText(texts: Texts, language: string, name: string, text: string): Texts {
  const { [language]: known, ...others } = texts;
  const { [name]: _, ...own } = known ?? {};
  if (text.trim()) own[name] = text;
  return Object.keys(own).length > 0 ? { ...others, [language]: own } : others;
}

/** Largest number of variants. */
export const VARIANTS_MAX = 5;

/** A variant as a form has it. */
export interface VariantDraft {
  name: string;
  weight: string;
  /** Null: the form of the prompt. */
  layout: PromptSettings["layout"] | null;
  texts: Texts;
}

export const variantDrafts = (variants: readonly PromptVariant[] | undefined): VariantDraft[] =>
  (variants ?? []).map(({ name, weight, layout, texts }) => ({
    name,
    weight: String(weight ?? 1),
    layout: layout ?? null,
    texts: texts ?? {},
  }));

export const variantsOf = (drafts: readonly VariantDraft[]): PromptVariant[] =>
  drafts.map(({ name, weight, layout, texts }) => ({
    name: name.trim(),
    weight: Number(weight),
    layout,
    texts: mapTexts(texts, (text) => text.trim()),
  }));

const mapTexts = (texts: Texts, change: (text: string) => string): Texts =>
  Object.fromEntries(
    Object.entries(texts).map(([language, own]) => [
      language,
      Object.fromEntries(Object.entries(own).map(([name, text]) => [name, change(text)])),
    ]),
  );

/** Variants with another one. The first addition makes two: a comparison needs both, and one of them is the prompt itself. */
export function withVariant(drafts: readonly VariantDraft[]): VariantDraft[] {
  const name = [..."abcde"].find((letter) => drafts.every((draft) => draft.name !== letter)) ?? "";
  const all = [...drafts, { name, weight: "1", layout: null, texts: {} }];
  return all.length === 1 ? withVariant(all) : all;
}

/** Faults of each variant that the page itself finds. */
export const variantFaults = (drafts: readonly VariantDraft[]) =>
  drafts.map(({ name, weight }, n) => ({
    name: nameFault(name.trim(), drafts, n),
    weight: numberFault(weight, 1, 1_000),
  }));

function nameFault(name: string, drafts: readonly VariantDraft[], n: number): string | undefined {
  if (!/^[\w.-]{1,64}$/.test(name)) return "must have 1 to 64 letters, digits, `_`, `-` or `.` and no others";
  return drafts.slice(0, n).some((earlier) => earlier.name.trim() === name)
    ? "must differ from the names of other variants"
    : undefined;
}

/** Settings that the preview shows: the prompt, or one of its variants. */
export function shownSettings(prompt: PromptSettings, variant: VariantDraft | undefined): PromptSettings {
  const texts = { ...prompt.texts };
  for (const [language, own] of Object.entries(variant?.texts ?? {})) texts[language] = { ...texts[language], ...own };
  return { ...prompt, layout: variant?.layout ?? prompt.layout, texts, variants: [] };
}

/** Fault of a member or of a part of it. */
export const faultAt = (problem: Pick<Refusal, "faults"> | undefined, pointer: string): string | undefined =>
  problem?.faults.find(({ where }) => `${where}/`.startsWith(`${pointer}/`))?.detail;

/** Language of the first text with a fault. */
export const faultyLanguage = ({ faults }: Pick<Refusal, "faults">): string | undefined =>
  faults.map(({ where }) => /^(?:\/variants\/\d+)?\/texts\/([^/]+)\//.exec(where)?.[1]).find(Boolean);

/** Members with a field, which shows their fault, while texts of this language are edited. */
export function promptFields(language: string): RegExp {
  const members = ["enabled", "layout", "topics(?:/.*)?", "event", ...CONDITIONS.map(([name]) => name)].join("|");
  const texts = `texts/${language}/(?:${TEXTS.map(([name]) => name).join("|")})`;
  return new RegExp(`^/(?:${members}|(?:variants/\\d+/)?${texts}|variants/\\d+/(?:name|weight|layout))$`);
}
