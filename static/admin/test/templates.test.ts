import { describe, expect, it } from "vitest";
import type { CampaignPlan, Template, TemplatePreview } from "../src/api/types";
import {
  ANYBODY,
  BLANK,
  draftOf,
  inLanguage,
  LANGUAGES_MAX,
  names,
  pointerOf,
  shownTo,
  templateOf,
  trialWords,
  untaken,
  usesWords,
  whomOf,
  withLanguage,
  withoutLanguage,
  type Draft,
} from "../src/lib/templates";

describe("a template that is written", () => {
  it.each<[Template]>([
    [{ content: { title: "Hello {{ attributes.name }}" }, too_long: "dead" }],
    [
      {
        content: {
          title: "Hello",
          body: "x",
          actions: [{ action: "go", title: "{{ data.what }}" }],
          data: { a: 1 } as never,
        },
        compact: { title: "H" },
        locales: {
          de: { content: { title: "Hallo", url: "/{{ data.n }}" }, compact: { title: "h" } },
          "pt-BR": { content: { title: "Oi" } },
        },
        too_long: { cut: "body" },
      },
    ],
  ])("comes back as it was: %j", (template) => {
    expect(templateOf(draftOf(template))).toEqual(template);
  });

  it("adds and removes a language", () => {
    const own: Draft = draftOf({ content: { title: "Hello" } });
    const two = withLanguage(own, "de");
    expect(two.languages.map(({ locale, said }) => [locale, said.title])).toEqual([
      ["", "Hello"],
      ["de", "Hello"],
    ]);
    expect(withoutLanguage(two, 1)).toEqual(own);
  });

  it("suggests the tag of a named language", () => {
    expect(["Deutsch", "German", "français"].map((name) => untaken(BLANK, name))).toEqual([
      "is not a known language tag: write de for Deutsch",
      "is not a known language tag: write de for German",
      "is not a known language tag: write fr for français",
    ]);
    expect(["de", "pt-BR", "zh-Hant-TW", "gsw"].map((tag) => untaken(BLANK, tag))).toEqual(Array(4).fill(undefined));
    expect(untaken(BLANK, "xx")).toBe("is not a known language tag: write a tag such as de or pt-BR");
  });

  it("accepts each valid language once", () => {
    const de = withLanguage(BLANK, "de");
    expect([untaken(de, "fr"), untaken(de, "DE"), untaken(de, "not a tag")]).toEqual([
      undefined,
      "exists already",
      "is not a known language tag: write a tag such as de or pt-BR",
    ]);
    const full = Array.from({ length: LANGUAGES_MAX }, (_, n) => `x-${n}`).reduce(withLanguage, BLANK);
    expect(untaken(full, "fr")).toBe("is one too many: a template has at most 50");
  });

  it("knows where its languages stand", () => {
    expect([pointerOf(""), pointerOf("de")]).toEqual(["/content", "/locales/de/content"]);
  });
});

describe("whom it is tried on", () => {
  it("is one recipient or given data", () => {
    expect(whomOf(ANYBODY)).toEqual({ recipient: { attributes: {} } });
    expect(whomOf({ ...ANYBODY, locale: " de ", attributes: '{"name": "Ann"}' })).toEqual({
      recipient: { locale: "de", attributes: { name: "Ann" } },
    });
    expect(whomOf({ ...ANYBODY, kind: "user", id: " 42 " })).toEqual({ user: "42" });
    expect(whomOf({ ...ANYBODY, kind: "subscription", id: "sub_1" })).toEqual({ subscription: "sub_1" });
  });

  it("is no recipient while data are invalid", () => {
    expect([whomOf({ ...ANYBODY, attributes: "{" }), whomOf({ ...ANYBODY, attributes: "[1]" })]).toEqual([
      undefined,
      undefined,
    ]);
  });
});

it("finds what comes of it by language", () => {
  const part = (locale: string | null) => ({ locale, content: { title: locale ?? "own" }, octets: 1, faults: [] });
  const preview: TemplatePreview = { locale: "de", variants: [part(null), part("de")] };
  expect([
    inLanguage(preview, "")?.content?.title,
    inLanguage(preview, "fr"),
    shownTo(preview)?.content?.title,
    shownTo({ ...preview, locale: null })?.content?.title,
  ]).toEqual(["own", undefined, "de", "own"]);
});

it.each([
  [{ checked: 0 }, "cancelled", "The audience is empty."],
  [{ checked: 1 }, "accepted", "The template renders for the one recipient."],
  [{ checked: 1_200 }, "accepted", "The template renders for all of 1,200 recipients."],
  [
    { checked: 90_000, done: false },
    "retrying",
    "The template renders for all of the 90,000 recipients checked in ten seconds.",
  ],
  [
    { checked: 1_200, unrenderable: 3 },
    "lost",
    "Of 1,200 recipients, 3 would get no message: 3 lack a value or have an invalid value.",
  ],
  [
    { checked: 1_200, unrenderable: 3, too_long: 1 },
    "lost",
    "Of 1,200 recipients, 4 would get no message: 3 lack a value or have an invalid value, for 1 the result is too long.",
  ],
])("reports the trial on all: %j", (told, tone, words) => {
  expect(trialWords({ unrenderable: 0, too_long: 0, done: true, failures: [], ...told })).toEqual({ tone, words });
});

describe("what uses it", () => {
  const to = { all: true };
  it.each<[CampaignPlan, boolean]>([
    [{ slug: "a", message: { to, template: "welcome" } }, true],
    [{ slug: "a", message: { to, template: "other" } }, false],
    [{ slug: "a", message: { to, content: { title: "welcome" } } }, false],
    [
      {
        slug: "a",
        message: { to, content: { title: "T" } },
        variants: [{ name: "b", message: { template: "welcome" } as never }],
      },
      true,
    ],
  ])("is told by the plan %j", (plan, is) => {
    expect(names(plan, "welcome")).toBe(is);
  });

  const campaign = (name: string, state: "draft" | "sending") => ({ name, state });
  it.each([
    [{ by: [], looked: 4, of: 4 }, "No open campaign uses the template. Sent messages keep their content."],
    [
      { by: [], looked: 60, of: 90 },
      "No open campaign uses the template (the newest 60 of 90 were checked). Sent messages keep their content.",
    ],
    [
      { by: [campaign("Spring", "sending")], looked: 4, of: 4 },
      "One open campaign uses the template: Spring. Started campaigns have a copy and continue as planned. Sent messages keep their content.",
    ],
    [
      { by: [campaign("Spring", "draft"), campaign("Autumn", "draft")], looked: 4, of: 4 },
      "2 open campaigns use the template: Spring and Autumn. Drafts can be started, but neither changed nor tested until they use another template. Sent messages keep their content.",
    ],
  ])("is said before it is deleted: %j", (uses, words) => {
    expect(usesWords(uses)).toBe(words);
  });
});
