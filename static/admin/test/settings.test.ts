import { describe, expect, it } from "vitest";
import { actionWords, actorWords, detailWords } from "../src/lib/audit";
import { browserWords } from "../src/lib/browser";
import { nextStep, slugFrom, snippets, STEPS, type Progress } from "../src/lib/first-run";
import { calendarFrom, calendarWords } from "../src/lib/hours";
import { LANGUAGES, promptFrom, TEXTS } from "../src/lib/prompt";

describe("the audit log", () => {
  it("names actor and action as known", () => {
    const me = { teammate: "tm_me", api_key: null };
    const names = new Map([["tm_ann", "ann@example.com"]]);
    expect(
      ["tm_me", "tm_ann", "tm_0123456789", "ak_0123456789", "local", "nobody"].map((actor) =>
        actorWords(actor, me, names),
      ),
    ).toEqual([
      "you",
      "ann@example.com",
      "teammate …456789",
      "API key …456789",
      "the command line",
      "an unknown caller",
    ]);
    expect([actionWords("api_key.revoked"), actionWords("something.new")]).toEqual([
      "revoked an API key",
      "something.new",
    ]);
  });

  it("shows changed details in a line", () => {
    expect(
      detailWords({
        name: "x",
        expires_at: null,
        scopes: ["send", "read"],
        origins: [],
        roles: [{ role: "admin", app: null }],
      } as never),
    ).toBe("name: x; scopes: send, read; origins: none; roles: admin");
    expect(detailWords({} as never)).toBe("");
  });
});

describe("quiet hours", () => {
  const form = (fields: Record<string, string[]>) => ({
    text: (name: string) => fields[name]?.[0] ?? "",
    all: (name: string) => fields[name] ?? [],
    has: (name: string) => name in fields,
  });

  it("are what the form says, and in words", () => {
    const written = form({
      timezone: ["Europe/Berlin"],
      quiet: ["on"],
      quiet_from: ["22:00"],
      quiet_to: ["08:00"],
      from_0: ["10:00"],
      to_0: ["16:00"],
      days_0: ["mon", "tue"],
    });
    const calendar = calendarFrom(written, 1);
    expect(calendar).toEqual({
      timezone: "Europe/Berlin",
      quiet_hours: { from: "22:00", to: "08:00" },
      off_peak: [{ days: ["mon", "tue"], from: "10:00", to: "16:00" }],
    });
    expect(calendarWords(calendar)).toBe(
      "Promotional and engagement messages wait from 22:00 until 08:00, in each recipient’s time zone. Engagement messages are sent within 10:00 to 16:00 Mon, Tue, Europe/Berlin time. Recipients without a known time zone use Europe/Berlin.",
    );
    expect(calendarFrom(form({ timezone: ["UTC"] }), 0)).toEqual({ timezone: "UTC", quiet_hours: null, off_peak: [] });
    expect(calendarWords({ timezone: "UTC" })).toContain("There are no quiet hours.");
  });

  it("take all days, or none, for every day", () => {
    const days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    for (const chosen of [days, []])
      expect(
        calendarFrom(form({ timezone: ["UTC"], from_0: ["10:00"], to_0: ["16:00"], days_0: chosen }), 1).off_peak,
      ).toEqual([{ from: "10:00", to: "16:00" }]);
  });
});

describe("the prompt", () => {
  const KNOWN = {
    enabled: false,
    layout: "card" as const,
    topics: [],
    visits: 1,
    seconds: 0,
    scroll_percent: 0,
    event: null,
    share_percent: 100,
    no_days: 90,
    not_now_days: 7,
    texts: { de: { title: "Neues?", bell: "Glocke" }, fr: { title: "Du nouveau ?" } },
    variants: [{ name: "a", weight: 1, layout: null, texts: {} }],
  };
  const form = (fields: Record<string, string>) => ({
    text: (name: string) => fields[name] ?? "",
    lines: (name: string) => (fields[name] ?? "").split(" ").filter(Boolean),
    has: (name: string) => name in fields,
  });
  const numbers = {
    visits: "2",
    seconds: "10",
    scroll_percent: "50",
    share_percent: "20",
    no_days: "365",
    not_now_days: "1",
  };

  it("is what the form says", () => {
    const written = promptFrom(
      form({
        ...numbers,
        enabled: "on",
        layout: "bar",
        topics: "news offers",
        event: "order",
        text_title: "Neues erfahren?",
      }),
      KNOWN,
      "de",
    );
    expect(written).toEqual({
      enabled: true,
      layout: "bar",
      topics: ["news", "offers"],
      visits: 2,
      seconds: 10,
      scroll_percent: 50,
      event: "order",
      share_percent: 20,
      no_days: 365,
      not_now_days: 1,
      texts: { de: { title: "Neues erfahren?", bell: "Glocke" }, fr: { title: "Du nouveau ?" } },
      variants: KNOWN.variants,
    });
  });

  it("keeps no empty texts", () => {
    const written = promptFrom(form({ ...numbers, layout: "card" }), KNOWN, "fr");
    expect([written.enabled, written.event, written.texts]).toEqual([false, null, { de: KNOWN.texts.de }]);
  });

  it("knows every built-in language", () => {
    const files = import.meta.glob<Record<string, string>>("../../sdk/src/ui/texts/*.json", { eager: true });
    expect(LANGUAGES).toEqual(
      Object.keys(files)
        .map((path) => path.slice(-7, -5))
        .sort(),
    );
    for (const texts of Object.values(files)) for (const [name] of TEXTS) expect(texts).toHaveProperty(name);
  });
});

describe("the first run", () => {
  const done = (...steps: (typeof STEPS)[number][]): Progress =>
    Object.fromEntries(STEPS.map((step) => [step, steps.includes(step)])) as never;
  const next = (progress: Progress, more = {}) => nextStep(progress, { hasPasted: false, mayMakeKeys: true, ...more });

  it("opens the first step that is not done", () => {
    expect([
      next(done()),
      next(done("app")),
      next(done("app", "key")),
      next(done("app", "key", "site")),
      next(done("app", "key", "site", "browser")),
    ]).toEqual(["app", "key", "site", "browser", "sent"]);
    expect(next(done(...STEPS))).toBeUndefined();
  });

  it("skips steps that visitor or role cannot complete", () => {
    expect(next(done("app", "key"), { hasPasted: true })).toBe("browser");
    expect([next(done("app", "key", "browser")), next(done("app", "key", "browser", "sent"))]).toEqual([
      "sent",
      undefined,
    ]);
    expect(next(done("app"), { mayMakeKeys: false })).toBe("site");
  });

  it("names server and app in what is pasted", () => {
    const { worker, page, send } = snippets("https://push.example.com", "shop", "news");
    expect(worker).toBe(
      'importScripts("https://push.example.com/sdk/service-worker.js");\nbellwire.appUrl = "https://push.example.com/v1/apps/shop";',
    );
    expect(page).toContain('init({ app: "shop" })');
    expect(send).toContain("https://push.example.com/v1/apps/shop/messages");
  });

  it("makes a short name of any name", () => {
    expect(["Shop", "Bücher & Co.", "  -Ä-  ", "本", "x".repeat(80)].map(slugFrom)).toEqual([
      "shop",
      "bucher-co",
      "a",
      "",
      "x".repeat(63),
    ]);
  });
});

it("tells browsers apart", () => {
  const agents = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36 Edg/130.0.0.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Mobile Safari/537.36",
    "curl/8.5.0",
    "something else",
    null,
  ];
  expect(agents.map(browserWords)).toEqual([
    "Firefox on Linux",
    "Edge on Windows",
    "Safari on iPhone",
    "Chrome on Android",
    "curl",
    "something else",
    "an unknown browser",
  ]);
});
