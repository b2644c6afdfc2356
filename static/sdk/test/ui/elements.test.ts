// @vitest-environment happy-dom
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Client, Result, Status } from "../../src/api";
import type { PromptSettings } from "../../src/ui/settings";

const UNSUBSCRIBED: Status = { state: "unsubscribed", permission: "default" };
const SUBSCRIBED: Status = {
  state: "subscribed",
  id: "sub_1",
  topics: ["news", "hidden"],
  tags: ["vip"],
  userId: "ann",
  muted: null,
};
const PROMPT: PromptSettings = {
  enabled: true,
  layout: "card",
  topics: ["news"],
  visits: 1,
  seconds: 0,
  scroll_percent: 0,
  event: null,
  share_percent: 100,
  no_days: 90,
  not_now_days: 7,
  texts: { en: { title: "Hear of new arrivals?" } },
};
const TOPICS = [
  { name: "news", title: "News", description: "Once a week", texts: { de: { title: "Neuigkeiten" } } },
  { name: "offers", title: "Offers", texts: {} },
];
const DAY_MS = 86_400_000;

/** Page of one browser. A further page of the same browser shares its storage. */
async function page({
  status = UNSUBSCRIBED,
  prompt = {},
  lang = "en",
  result = { ok: true, status: SUBSCRIBED } as Result,
  now = 1e12,
} = {}) {
  vi.resetModules();
  document.body.replaceChildren();
  document.documentElement.lang = lang;
  const { clock } = await import("../../src/shared/clock");
  const planned: { ms: number; work: () => void }[] = [];
  const time = { now };
  clock.now = () => time.now;
  const waits: number[] = [];
  clock.wait = (ms) => (waits.push(ms), new Promise((resolve) => setTimeout(resolve)));
  clock.later = (ms, work) => (planned.push({ ms, work }), () => {});
  const json = async () => ({ application_server_key: "k", prompt: { ...PROMPT, ...prompt }, topics: TOPICS });
  vi.stubGlobal(
    "fetch",
    vi.fn(async () => ({ ok: true, json })),
  );
  let current = status;
  const listeners = new Set<(status: Status) => void>();
  const answer = () => vi.fn(async (): Promise<Result> => result);
  const client = {
    options: { app: "shop", server: "https://push.example" },
    ready: Promise.resolve(status),
    status: async () => current,
    subscribe: answer(),
    unsubscribe: answer(),
    setTopics: answer(),
    credentials: vi.fn(async (): Promise<{ id: string; token: string } | null> => ({ id: "sub_1", token: "secret" })),
    on: (event: string, listener: any) => (
      event === "change" && listeners.add(listener), () => listeners.delete(listener)
    ),
  };
  const change = (status: Status) => ((current = status), listeners.forEach((listener) => listener(status)));
  const { ui } = await import("../../src/ui");
  // A document defines each element once, but each page has modules of its own.
  const define = vi.spyOn(customElements, "define").mockImplementation(() => {});
  const bellwire = ui(client as unknown as Client);
  define.mockRestore();
  const parts = {
    prompt: (await import("../../src/ui/prompt")).Prompt,
    bell: (await import("../../src/ui/bell")).Bell,
    preferences: (await import("../../src/ui/preferences")).Preferences,
  };
  const names = { prompt: "", bell: "", preferences: "" };
  for (const name of Object.keys(parts) as (keyof typeof parts)[])
    customElements.define((names[name] = `x-${name}-${++serial}`), parts[name]);
  const add = async (name: keyof typeof parts) => {
    const element = document.createElement(names[name]) as HTMLElement & {
      client: unknown;
      show(): Promise<boolean>;
      preview(settings: object): Promise<void>;
    };
    document.body.append(element);
    await settle();
    return element;
  };
  return { client, bellwire, change, add, planned, waits, time };
}
let serial = 0;

/** Lets all waiting promises and imports of texts settle. */
async function settle(): Promise<void> {
  for (let round = 0; round < 3; round++) {
    await vi.dynamicImportSettled();
    await new Promise((resolve) => setTimeout(resolve));
  }
}
const find = <E extends HTMLElement = HTMLElement>(element: HTMLElement, selector: string) =>
  element.shadowRoot!.querySelector<E>(selector);
const text = (element: HTMLElement, selector: string) => find(element, selector)?.textContent;
const click = async (element: HTMLElement, selector: string) => (find(element, selector)!.click(), settle());
const stored = () => JSON.parse(localStorage.getItem("bellwire shop")!);

beforeEach(() => {
  localStorage.clear();
  delete (navigator as any).standalone;
});

describe("each element", () => {
  it.each(["prompt", "bell", "preferences"] as const)("draws for its newer client only: %s", async (name) => {
    const { add, client } = await page({ status: name === "prompt" ? UNSUBSCRIBED : SUBSCRIBED });
    const respond: Record<string, () => void> = {};
    vi.stubGlobal("fetch", (url: string) => {
      const [, app] = /apps\/(\w+)/.exec(url)!;
      const texts = { en: { title: app, bell: app, preferences: app } };
      return new Promise(
        (resolve) =>
          (respond[app!] = () =>
            resolve({ ok: true, json: async () => ({ prompt: { ...PROMPT, texts }, topics: [] }) })),
      );
    });
    const element = await add(name);
    for (const app of ["slow", "quick"]) element.client = { ...client, options: { ...client.options, app } };
    for (const app of ["quick", "slow"]) {
      respond[app]!();
      await settle();
    }
    expect(name === "bell" ? find(element, ".bell")!.getAttribute("aria-label") : text(element, "h2")).toMatch(
      /^quick/,
    );
  });
});

describe("the prompt", () => {
  it("is announced by an earlier region", async () => {
    const { add, waits } = await page({ prompt: { enabled: false } });
    const prompt = await add("prompt");
    const region = find(prompt, "[aria-live=polite]")!;
    expect(region.childElementCount).toBe(0);
    await prompt.show();
    expect(region.querySelector("section")).not.toBeNull();
    expect(waits).toEqual([100]);
  });

  it("shows the latest preview", async () => {
    const { add } = await page({ prompt: { enabled: false } });
    const prompt = await add("prompt");
    const done: ((title: string) => void)[] = [];
    Object.assign(prompt, {
      wording: () => new Promise((resolve) => done.push((title) => resolve({ lang: "en", dir: "ltr", t: { title } }))),
    });
    const previews = [prompt.preview({}), prompt.preview({})];
    done[1]!("second");
    done[0]!("first");
    await Promise.all(previews);
    expect(text(prompt, "h2")).toBe("second");
    expect(find(prompt, "[aria-live] section")).toBeNull();
  });

  it("asks the browser in the click on yes", async () => {
    const { add, client } = await page();
    const prompt = await add("prompt");
    const steps: string[] = [];
    document.body.addEventListener("bellwire", (event) => steps.push((event as CustomEvent).detail));
    expect(text(prompt, ".title")).toBe("Hear of new arrivals?");
    expect(client.subscribe).not.toHaveBeenCalled();
    find(prompt, ".accept")!.click();
    expect(client.subscribe).toHaveBeenCalledExactlyOnceWith({
      topics: ["news"],
      consentSource: "Hear of new arrivals?",
    });
    expect(find(prompt, "section")).toBeNull();
    expect(steps).toEqual(["accepted"]);
  });

  it.each([
    ["no", 90],
    ["later", 7],
  ])("waits after %s for %s days", async (answer, days) => {
    const { add, time } = await page();
    const prompt = await add("prompt");
    await click(prompt, `.${answer}`);
    expect(find(prompt, "section")).toBeNull();
    expect(stored().until - time.now).toBe(days * DAY_MS);
    expect(document.cookie).toBe("");
    const shown = async (now: number) => find(await (await page({ now })).add("prompt"), "section") !== null;
    expect(await shown(time.now + days * DAY_MS - 1)).toBe(false);
    expect(await shown(time.now + days * DAY_MS)).toBe(true);
  });

  it("waits after a closed question of the browser", async () => {
    const { add, time } = await page({
      result: { ok: false, status: UNSUBSCRIBED, reason: "dismissed", message: "", retrying: false },
    });
    await click(await add("prompt"), ".accept");
    expect(stored().until - time.now).toBe(7 * DAY_MS);
  });

  it.each<[string, Status, object]>([
    ["denied", { state: "denied" }, {}],
    ["subscribed", SUBSCRIBED, {}],
    ["pending", { state: "pending" }, {}],
    ["turned off", UNSUBSCRIBED, { enabled: false }],
  ])("stays away: %s", async (_, status, prompt) => {
    const { add } = await page({ status, prompt });
    expect(find(await add("prompt"), "section")).toBeNull();
  });

  it("is shown on demand, but never to subscribers", async () => {
    const { add, change } = await page({ prompt: { enabled: false } });
    const prompt = await add("prompt");
    expect(await prompt.show()).toBe(true);
    expect(await prompt.show()).toBe(false);
    change(SUBSCRIBED);
    expect(find(prompt, "section")).toBeNull();
    expect(await prompt.show()).toBe(false);
  });

  it("appears at the event that it waits for", async () => {
    const { add, bellwire } = await page({ prompt: { event: "order" } });
    const prompt = await add("prompt");
    bellwire.suggest("cart");
    await settle();
    expect(find(prompt, "section")).toBeNull();
    bellwire.suggest("order");
    await settle();
    expect(find(prompt, "section")).not.toBeNull();
  });

  it("appears once its seconds are over", async () => {
    const { add, planned, time } = await page({ prompt: { seconds: 30 } });
    const prompt = await add("prompt");
    expect(find(prompt, "section")).toBeNull();
    const { ms, work } = planned.at(-1)!;
    expect(ms).toBe(30_000);
    time.now += ms;
    work();
    await settle();
    expect(find(prompt, "section")).not.toBeNull();
  });

  it("counts visits, not pages", async () => {
    const visit = async (now: number) =>
      find(await (await page({ prompt: { visits: 2 }, now })).add("prompt"), "section") !== null;
    expect([await visit(1e12), await visit(1e12 + 60_000), await visit(1e12 + 7_200_000)]).toEqual([
      false,
      false,
      true,
    ]);
  });

  it("keeps its share stable per browser", async () => {
    await page();
    const { luck } = stored();
    await page();
    expect(stored().luck).toBe(luck);
    const share = async (share_percent: number) =>
      find(await (await page({ prompt: { share_percent } })).add("prompt"), "section") !== null;
    expect([await share(Math.floor(luck * 100)), await share(Math.floor(luck * 100) + 1)]).toEqual([false, true]);
  });

  it("continues after the first start from an icon", async () => {
    (navigator as any).standalone = true;
    const { add } = await page({ prompt: { visits: 5, event: "order" } });
    expect(find(await add("prompt"), ".accept")).not.toBeNull();
  });

  it("returns the focus to where it was", async () => {
    const { add } = await page({ prompt: { enabled: false } });
    const prompt = await add("prompt");
    const field = document.body.appendChild(document.createElement("input"));
    field.focus();
    await prompt.show();
    expect(document.activeElement).toBe(field);
    find(prompt, ".later")!.focus();
    find(prompt, ".later")!.dispatchEvent(
      new KeyboardEvent("keydown", { key: "Escape", bubbles: true, composed: true }),
    );
    expect(find(prompt, "section")).toBeNull();
    expect(document.activeElement).toBe(field);
  });
});

describe("the preferences", () => {
  it("show topics in the page's language and order", async () => {
    const { add } = await page({ status: SUBSCRIBED, lang: "de" });
    const preferences = await add("preferences");
    const boxes = [...preferences.shadowRoot!.querySelectorAll("input")];
    expect(boxes.map(({ value, checked }) => [value, checked])).toEqual([
      ["news", true],
      ["offers", false],
    ]);
    expect(text(preferences, ".topics")).toBe("ThemenNeuigkeitenOffers");
    expect(find(preferences, "section")!.lang).toBe("de");
    expect(text(preferences, "dl")).toBe("Abonnementsub_1BenutzerannMerkmalevip");
  });

  it("keep topics that they do not show", async () => {
    const { add, client } = await page({ status: SUBSCRIBED });
    const preferences = await add("preferences");
    await click(preferences, "[value=offers]");
    expect(client.setTopics).toHaveBeenCalledExactlyOnceWith(["hidden", "news", "offers"]);
    expect(text(preferences, "[role=status]")).toBe("Saved.");
  });

  it("subscribe to the chosen topics, and unsubscribe", async () => {
    const { add, client, change } = await page();
    const preferences = await add("preferences");
    await click(preferences, "[value=offers]");
    expect(client.setTopics).not.toHaveBeenCalled();
    await click(preferences, ".on");
    expect(client.subscribe).toHaveBeenCalledExactlyOnceWith({
      topics: ["offers"],
      consentSource: "Notification settings",
    });
    change(SUBSCRIBED);
    await click(preferences, ".off");
    expect(client.unsubscribe).toHaveBeenCalledOnce();
  });

  it("forget the choices of the person before", async () => {
    const { add, client, change } = await page({ status: SUBSCRIBED });
    const preferences = await add("preferences");
    await click(preferences, "[value=offers]");
    change({ ...SUBSCRIBED, state: "pending" } as Status);
    expect(text(preferences, "dl")).toBe("");
    expect([...preferences.shadowRoot!.querySelectorAll("input")].every(({ disabled }) => disabled)).toBe(true);
    change({ state: "unsubscribed" } as Status);
    await click(preferences, ".on");
    expect(client.subscribe).toHaveBeenCalledExactlyOnceWith({ topics: [], consentSource: "Notification settings" });
  });

  it("tick no topic before the consent", async () => {
    const { add } = await page();
    const boxes = [...(await add("preferences")).shadowRoot!.querySelectorAll("input")];
    expect(boxes.map(({ checked }) => checked)).toEqual([false, false]);
  });

  it("announce a result where the status was before", async () => {
    const { add, client, change } = await page();
    const preferences = await add("preferences");
    const status = find(preferences, "[role=status]");
    client.subscribe.mockImplementation(async () => (change(SUBSCRIBED), { ok: true, status: SUBSCRIBED }));
    await click(preferences, ".on");
    expect(find(preferences, "[role=status]")).toBe(status);
    expect(status!.textContent).toBe("Saved.");
  });

  it("show the present state", async () => {
    const { add, change } = await page();
    change(SUBSCRIBED);
    expect(find(await add("preferences"), ".off")).not.toBeNull();
  });

  const download = async (respond: () => Promise<Response>, hasToken = true) => {
    const { add, client } = await page({ status: SUBSCRIBED });
    const preferences = await add("preferences");
    if (!hasToken) client.credentials.mockResolvedValue(null);
    const fetched = vi.fn((_url: string, _init: RequestInit) => respond());
    vi.stubGlobal("fetch", fetched);
    const contents: Promise<string>[] = [];
    vi.spyOn(URL, "createObjectURL").mockImplementation((blob) => (contents.push((blob as Blob).text()), "blob:data"));
    const files: string[] = [];
    vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(function (this: HTMLAnchorElement) {
      files.push(`${this.download} ${this.href}`);
    });
    await click(preferences, ".download");
    return { fetched, files, contents: await Promise.all(contents), status: text(preferences, "[role=status]") };
  };

  it("download what the server stores", async () => {
    const stored = { id: "sub_1", topics: ["news"], attributes: { plan: "pro" }, locale: "de", user_id: "ann" };
    const { fetched, files, contents, status } = await download(async () => Response.json(stored));
    expect(fetched.mock.calls).toEqual([
      [
        "https://push.example/v1/apps/shop/subscriptions/sub_1",
        { credentials: "omit", headers: { Authorization: "Bearer secret" } },
      ],
    ]);
    expect([files, status]).toEqual([["data.json blob:data"], "Saved."]);
    expect(contents.map((content) => JSON.parse(content))).toEqual([stored]);
  });

  it.each<[string, () => Promise<Response>, boolean]>([
    ["the server refuses", async () => Response.json({ code: "subscription_not_found" }, { status: 404 }), true],
    ["the network fails", () => Promise.reject(new TypeError("network")), true],
    ["the browser has no token", async () => Response.json({}), false],
  ])("download nothing if %s", async (_, respond, hasToken) => {
    const { fetched, files, status } = await download(respond, hasToken);
    expect([files, status]).toEqual([[], "That did not work. Please try again."]);
    expect(fetched).toHaveBeenCalledTimes(hasToken ? 1 : 0);
  });

  it("keep quick changes", async () => {
    const { add, client, change } = await page({ status: { ...SUBSCRIBED, topics: [] } });
    const preferences = await add("preferences");
    const responses: (() => void)[] = [];
    client.setTopics.mockImplementation(
      () => new Promise((resolve) => responses.push(() => resolve({ ok: true, status: SUBSCRIBED }))),
    );
    const checked = () => [...preferences.shadowRoot!.querySelectorAll("input")].map(({ checked }) => checked);
    await click(preferences, "[value=news]");
    await click(preferences, "[value=offers]");
    expect(client.setTopics).toHaveBeenLastCalledWith(["news", "offers"]);
    for (const topics of [["news"], ["news", "offers"]]) {
      change({ ...SUBSCRIBED, topics });
      responses.shift()!();
      await settle();
      expect(checked()).toEqual([true, true]);
    }
    change({ ...SUBSCRIBED, topics: [] });
    expect(checked()).toEqual([false, false]);
  });

  it.each<[Status["state"], RegExp]>([
    ["denied", /blocked/],
    ["unsupported", /no notifications/],
  ])("explain %s", async (state, words) => {
    const { add } = await page({ status: { state } as Status });
    const preferences = await add("preferences");
    expect(text(preferences, "section")).toMatch(words);
    expect(find(preferences, "button")).toBeNull();
  });
});

describe("the bell", () => {
  it("shows the latest of several states", async () => {
    const { add, client, change } = await page({ status: SUBSCRIBED });
    const bell = await add("bell");
    const answers: ((status: Status) => void)[] = [];
    client.status = () => new Promise((resolve) => answers.push(resolve));
    change(SUBSCRIBED);
    change(UNSUBSCRIBED);
    answers[1]!(UNSUBSCRIBED);
    await settle();
    answers[0]!(SUBSCRIBED);
    await settle();
    expect(find(bell, ".bell")!.getAttribute("aria-label")).toBe("Notifications, turned off");
  });

  it("counts unread notifications and opens the preferences", async () => {
    const shown = [
      { data: { bellwire: { id: "d1" } } },
      { data: { bellwire: { id: "d2", app: "https://push.example/v1/apps/blog" } } },
      { data: {} },
    ];
    const registration = { getNotifications: async () => shown };
    Object.defineProperty(navigator, "serviceWorker", {
      value: { getRegistrations: async () => [registration] },
      configurable: true,
    });
    const { add } = await page({ status: SUBSCRIBED });
    const bell = await add("bell");
    expect(find(bell, ".bell")!.getAttribute("aria-label")).toBe("Notifications, turned on, unread: 1");
    expect(text(bell, ".badge")).toBe("1");
    await click(bell, ".bell");
    expect(find<HTMLDialogElement>(bell, "dialog")!.open).toBe(true);
    expect(find(bell, ".bell")!.getAttribute("aria-label")).toBe("Notifications, turned on");
    expect(stored().read).toEqual(["d1"]);
  });
});
