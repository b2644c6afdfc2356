import type en from "./texts/en.json";

export type Texts = Record<keyof typeof en, string>;
export type Overrides = Record<string, Partial<Texts>>;

// Each language is a file of its own, which only pages in this language load.
const ENGLISH = () => import("./texts/en.json");
const LANGUAGES: Record<string, () => Promise<{ default: Texts }>> = {
  en: ENGLISH,
  ar: () => import("./texts/ar.json"),
  de: () => import("./texts/de.json"),
  es: () => import("./texts/es.json"),
  fr: () => import("./texts/fr.json"),
  it: () => import("./texts/it.json"),
  ja: () => import("./texts/ja.json"),
  nl: () => import("./texts/nl.json"),
  pl: () => import("./texts/pl.json"),
  pt: () => import("./texts/pt.json"),
  tr: () => import("./texts/tr.json"),
  zh: () => import("./texts/zh.json"),
};

export interface Wording {
  lang: string;
  dir: "rtl" | "ltr";
  t: Texts;
}

/** Entry of a language tag: `pt-BR` is looked up before `pt`. */
export const inLanguage = <T>(of: Record<string, T>, tag: string): T | undefined =>
  of[tag] ?? of[tag.split("-")[0]!.toLowerCase()];

/** Returns the texts of a language, with the replaced ones. Falls back to English for other languages and failed downloads. */
export async function wording(tag: string, ...overrides: Overrides[]): Promise<Wording> {
  const known = await inLanguage(LANGUAGES, tag)?.().catch(() => undefined);
  const own = overrides.map((of) => inLanguage(of, tag));
  const lang = known || own.some(Boolean) ? tag : "en";
  const { default: built } = known ?? (await ENGLISH());
  return { lang, dir: /^(ar|he|fa|ur)\b/.test(lang) ? "rtl" : "ltr", t: Object.assign({}, built, ...own) };
}
