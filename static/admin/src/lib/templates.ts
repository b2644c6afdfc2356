/** A template that is being written, what comes of it, and what uses it. Pure. */
import type {
  Campaign,
  CampaignPlan,
  Notification,
  Template,
  TemplateCheck,
  TemplatePreview,
  TemplatePreviewRequest,
} from "../api/types";
import { BLANK as BLANK_MESSAGE, content, like, objectOf, type Draft as MessageDraft } from "./draft";
import { capital, count, things } from "./format";
import type { Tone } from "./words";

/** Content in one language. */
export interface Language {
  /** A BCP 47 tag; empty: for everybody in whose language there is none. */
  locale: string;
  /** Of this, the content alone. */
  said: MessageDraft;
  /** Compact content, sent if a push service refuses the size; only programs write it. */
  compact?: Notification;
}

export interface Draft {
  /** The first is for everybody in whose language there is none. */
  languages: readonly Language[];
  /** Whether a long text is cut; otherwise affected recipients get no message. */
  cuts: boolean;
}

export const BLANK: Draft = { languages: [{ locale: "", said: BLANK_MESSAGE }], cuts: false };

/** As many as the server takes, beside the first. */
export const LANGUAGES_MAX = 50;

const partOf = ({ said, compact }: Language) => ({ content: content(said), ...(compact ? { compact } : {}) });

export function templateOf({
  languages: [own = { locale: "", said: BLANK_MESSAGE }, ...others],
  cuts,
}: Draft): Template {
  return {
    ...partOf(own),
    ...(others.length > 0
      ? { locales: Object.fromEntries(others.map((language) => [language.locale, partOf(language)])) }
      : {}),
    too_long: cuts ? { cut: "body" } : "dead",
  };
}

export function draftOf({ content, compact, locales = {}, too_long }: Template): Draft {
  const language = (locale: string, part: { content: Notification; compact?: Notification | null }): Language => ({
    locale,
    said: like(part.content),
    ...(part.compact ? { compact: part.compact } : {}),
  });
  return {
    languages: [
      language("", { content, compact: compact ?? null }),
      ...Object.entries(locales).map(([locale, part]) => language(locale, part)),
    ],
    cuts: typeof too_long === "object" && too_long !== null,
  };
}

const namesIn = (language: string) => new Intl.DisplayNames(language, { type: "language", fallback: "none" });
const ENGLISH = namesIn("en");
/** Shortest name of a language: Ewe has three letters, and few others less than four. */
const MIN_NAME = 4;

/** Why no language of that tag can be added; undefined: it can. */
export function untaken({ languages }: Draft, locale: string): string | undefined {
  if (languages.some((language) => language.locale.toLowerCase() === locale.toLowerCase())) return "exists already";
  if (languages.length > LANGUAGES_MAX) return `is one too many: a template has at most ${LANGUAGES_MAX}`;
  try {
    const { language } = new Intl.Locale(locale);
    if (ENGLISH.of(language)) return undefined;
  } catch {
    // No language tag.
  }
  const tag = tagOf(locale);
  return `is not a known language tag: write ${tag ? `${tag} for ${locale}` : "a tag such as de or pt-BR"}`;
}

/** Tag of a language by its English name or its name in the language itself. */
function tagOf(name: string): string | undefined {
  if (name.length < MIN_NAME) return undefined; // a tag that is being typed
  const letters = [..."abcdefghijklmnopqrstuvwxyz"];
  const isNamed = (tag: string, names: Intl.DisplayNames) => names.of(tag)?.toLowerCase() === name.toLowerCase();
  return letters
    .flatMap((first) => letters.map((second) => first + second))
    .find((tag) => isNamed(tag, ENGLISH) || isNamed(tag, namesIn(tag)));
}

/** Adds a language, with a copy of the first one as the text to translate. */
export const withLanguage = (draft: Draft, locale: string): Draft => ({
  ...draft,
  languages: [...draft.languages, { locale, said: draft.languages[0]?.said ?? BLANK_MESSAGE }],
});

export const withoutLanguage = (draft: Draft, n: number): Draft => ({
  ...draft,
  languages: draft.languages.filter((_, at) => at !== n),
});

/** Pointer to a language's content in the template. */
export const pointerOf = (locale: string): string => (locale === "" ? "/content" : `/locales/${locale}/content`);

/** Recipient of the preview. */
export interface PreviewRecipient {
  kind: "anybody" | "user" | "subscription";
  /** Of a user or a subscription. */
  id: string;
  /** Data of a preview without a user: a language tag, and attributes in JSON. */
  locale: string;
  attributes: string;
}

export const ANYBODY: PreviewRecipient = { kind: "anybody", id: "", locale: "", attributes: "" };

/** The same as members of a preview. Undefined: there is something that cannot be read. */
export function whomOf({
  kind,
  id,
  locale,
  attributes,
}: PreviewRecipient): Partial<TemplatePreviewRequest> | undefined {
  if (kind !== "anybody" && id.trim()) return { [kind]: id.trim() };
  const known = objectOf(attributes);
  if (!known) return undefined;
  return {
    recipient: { ...(locale.trim() ? { locale: locale.trim() } : {}), attributes: known as Record<string, never> },
  };
}

/** Rendered content in a language. Undefined: not rendered yet. */
export const inLanguage = ({ variants }: TemplatePreview, locale: string) =>
  variants.find((variant) => (variant.locale ?? "") === locale);

/** Rendered content for the recipient. */
export const shownTo = (preview: TemplatePreview) => inLanguage(preview, preview.locale ?? "");

/** Result of rendering for an audience. */
export function trialWords({ checked, unrenderable, too_long, done }: TemplateCheck): { tone: Tone; words: string } {
  const failed = unrenderable + too_long;
  const whole = done ? `${count(checked)} recipients` : `the ${count(checked)} recipients checked in ten seconds`;
  if (checked === 0) return { tone: "cancelled", words: "The audience is empty." };
  if (failed === 0)
    return {
      tone: done ? "accepted" : "retrying",
      words:
        checked === 1 && done
          ? "The template renders for the one recipient."
          : `The template renders for all of ${whole}.`,
    };
  const why = [
    unrenderable > 0 && `${count(unrenderable)} lack a value or have an invalid value`,
    too_long > 0 && `for ${count(too_long)} the result is too long`,
  ]
    .filter(Boolean)
    .join(", ");
  return { tone: "lost", words: `Of ${whole}, ${count(failed)} would get no message: ${why}.` };
}

/** Whether a plan names a stored template. */
export function names({ message, variants = [] }: CampaignPlan, template: string): boolean {
  return [message, ...variants.map(({ message }) => message as Partial<CampaignPlan["message"]>)].some(
    (message) => message.template === template,
  );
}

/** Campaigns that are not over, and whose plans name a template. */
export interface Uses {
  by: readonly Pick<Campaign, "name" | "state">[];
  /** Number of checked recipients, and of all. */
  looked: number;
  of: number;
}

/** Effect of a deletion on messages and campaigns with the template. */
export function usesWords({ by, looked, of }: Uses): string {
  const drafts = by.filter(({ state }) => state === "draft").length;
  const started = by.length - drafts;
  const among = looked < of ? ` (the newest ${count(looked)} of ${count(of)} were checked)` : "";
  const found =
    by.length === 0
      ? `No open campaign uses the template${among}.`
      : `${capital(things(by.length, "open campaign"))} ${by.length === 1 ? "uses" : "use"} the template${among}: ${new Intl.ListFormat("en").format(by.slice(0, 5).map(({ name }) => name))}${by.length > 5 ? " and so on" : ""}.`;
  const copies = started > 0 ? ` Started campaigns have a copy and continue as planned.` : "";
  const lost =
    drafts > 0
      ? ` ${drafts === 1 ? "The draft" : "Drafts"} can be started, but neither changed nor tested until ${drafts === 1 ? "it uses" : "they use"} another template.`
      : "";
  return `${found}${copies}${lost} Sent messages keep their content.`;
}
