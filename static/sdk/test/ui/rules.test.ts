import { describe, expect, it } from "vitest";
import { wayOf } from "../../src/ui/device";
import { isDue, type PromptSettings, type Situation, type Variant, variantOf } from "../../src/ui/settings";
import { wording } from "../../src/ui/texts";

const SETTINGS: PromptSettings = {
  enabled: true,
  layout: "card",
  topics: [],
  visits: 2,
  seconds: 10,
  scroll_percent: 50,
  event: null,
  share_percent: 100,
  no_days: 90,
  not_now_days: 7,
  texts: {},
  variants: [],
};
const HERE: Situation = {
  now: 1_000,
  until: 0,
  visits: 2,
  seconds: 10,
  scrolled: 50,
  suggested: new Set(),
  luck: 0.5,
  isFirstStart: false,
};

describe("when the prompt is due", () => {
  it.each<[string, boolean, Partial<PromptSettings>, Partial<Situation>]>([
    ["all conditions hold", true, {}, {}],
    ["too few visits", false, {}, { visits: 1 }],
    ["too few seconds", false, {}, { seconds: 9.9 }],
    ["scrolled too little", false, {}, { scrolled: 49 }],
    ["the event is missing", false, { event: "order" }, { suggested: new Set(["cart"]) }],
    ["the event happened", true, { event: "order" }, { suggested: new Set(["order"]) }],
    ["within the share", true, { share_percent: 51 }, {}],
    ["beyond the share", false, { share_percent: 50 }, {}],
    ["a share of zero", false, { share_percent: 0 }, { luck: 0 }],
    ["an answer still counts", false, {}, { until: 1_001 }],
    ["an answer expired", true, {}, { until: 1_000 }],
    ["the first start from an icon", true, { event: "order", share_percent: 0 }, { visits: 1, isFirstStart: true }],
    ["an answer before that start", false, {}, { until: 1_001, isFirstStart: true }],
  ])("%s: %s", (_, due, settings, situation) => {
    expect(isDue({ ...SETTINGS, ...settings }, { ...HERE, ...situation })).toBe(due);
  });
});

describe("choice of the variant", () => {
  const variant = (name: string, weight: number): Variant => ({ name, weight, layout: null, texts: {} });
  const chosen = (variants: Variant[], draw: number) => variantOf({ ...SETTINGS, variants }, draw)?.name;
  const THREE = [variant("a", 1), variant("b", 2), variant("c", 1)];

  it.each([
    ["a", 0],
    ["a", 0.2499],
    ["b", 0.25],
    ["b", 0.7499],
    ["c", 0.75],
    ["c", 1 - 2 ** -53],
  ])("%s for %d", (name, draw) => {
    expect(chosen(THREE, draw)).toBe(name);
  });

  it("follows the weights", () => {
    const counts: Record<string, number> = {};
    for (let i = 0; i < 4_000; i++) counts[chosen(THREE, i / 4_000)!] = (counts[chosen(THREE, i / 4_000)!] ?? 0) + 1;
    expect(counts).toEqual({ a: 1_000, b: 2_000, c: 1_000 });
  });

  it("is none without variants", () => {
    expect(chosen([], 0.5)).toBeUndefined();
    const { variants: _, ...earlier } = SETTINGS;
    expect(variantOf(earlier as PromptSettings, 0.5)).toBeUndefined();
  });
});

const iphone = (os: string, rest: string) =>
  `Mozilla/5.0 (iPhone; CPU iPhone OS ${os} like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) ${rest}`;
const IPAD =
  "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/16.6 Safari/605.1.15";

describe("way to notifications", () => {
  it.each([
    ["install_share", iphone("17_5_1", "Version/17.5 Mobile/15E148 Safari/604.1")],
    ["install_more", iphone("18_6", "Version/26.0 Mobile/15E148 Safari/604.1")],
    ["install_share", iphone("26_0", "CriOS/140.0 Mobile/15E148 Safari/604.1")],
    ["install_share", IPAD],
    ["install_update", iphone("16_3", "Version/16.3 Mobile/15E148 Safari/604.1")],
    ["install_share", iphone("16_4", "Version/16.4 Mobile/15E148 Safari/604.1")],
    ["in_app", iphone("17_5", "Mobile/15E148 Instagram 300.0.0")],
    ["in_app", iphone("17_5", "Mobile/15E148")],
    ["in_app", iphone("17_5", "Mobile/15E148 Safari/604.1 [FBAN/FBIOS;FBAV/400.0]")],
  ])("%s for %s", (way, agent) => {
    expect(wayOf("not-installed", agent)).toBe(way);
  });

  it("depends on the state", () => {
    const android =
      "Mozilla/5.0 (Linux; Android 14; Pixel 8; wv) AppleWebKit/537.36 Version/4.0 Chrome/120.0 Mobile Safari/537.36";
    expect(wayOf("unsupported", android)).toBe("in_app");
    expect(wayOf("unsupported", "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/140.0")).toBeUndefined();
    expect(wayOf("unsupported", iphone("16_2", "Mobile/15E148"), true)).toBe("install_update");
    expect(wayOf("unsubscribed", android)).toBe("ask");
    for (const state of ["denied", "subscribed", "pending", "private-mode", "insecure"] as const)
      expect(wayOf(state, IPAD)).toBeUndefined();
  });
});

describe("choice of the language", () => {
  it.each([
    ["de", "de", "ltr", "Schließen"],
    ["pt-BR", "pt-BR", "ltr", "Fechar"],
    ["ar", "ar", "rtl", "إغلاق"],
    ["sv", "en", "ltr", "Close"],
  ])("%s", async (tag, lang, dir, close) => {
    expect(await wording(tag)).toMatchObject({ lang, dir, t: { close } });
  });

  it("replaces single texts, the last replacement first", async () => {
    const { t } = await wording("de-AT", { de: { title: "Server", close: "Zu" } }, { "de-AT": { title: "Seite" } });
    expect([t.title, t.close, t.later]).toEqual(["Seite", "Zu", "Nicht jetzt"]);
    expect(await wording("he", { he: { title: "?" } })).toMatchObject({
      lang: "he",
      dir: "rtl",
      t: { title: "?", close: "Close" },
    });
  });
});
