// @vitest-environment happy-dom
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Status } from "../../src/api";
import { countListeners } from "../page/listeners";
import { click, DAY_MS, find, page, PROMPT, settle, stored, SUBSCRIBED, text, UNSUBSCRIBED } from "./support";

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

describe("the language of an element", () => {
  const titleIn = async (langs: string[], outside: string) => {
    const { add } = await page({ prompt: { enabled: false, texts: {} }, lang: outside });
    const prompt = await add("prompt");
    const [host, inner] = [document.createElement("div"), document.createElement("div")];
    [host, inner].forEach((element, n) => langs[n] && element.setAttribute("lang", langs[n]));
    document.body.append(host);
    host.attachShadow({ mode: "closed" }).append(inner);
    inner.attachShadow({ mode: "open" }).append(prompt);
    await prompt.show();
    return find(prompt, "section")!.lang;
  };

  it.each([
    ["the page's", [], "de", "de"],
    ["that of the outer host", ["fr"], "de", "fr"],
    ["that of the inner host", ["fr", "es"], "de", "es"],
    ["the browser's", [], "", "en-US"],
  ])("is, in a shadow tree, %s", async (_, langs, outside, lang) => {
    vi.spyOn(navigator, "language", "get").mockReturnValue("en-US");
    expect(await titleIn(langs, outside)).toBe(lang);
  });
});

describe("an element that is removed and added again", () => {
  it.each(["prompt", "bell", "preferences"] as const)("leaves no listener: %s", async (name) => {
    const { add, listeners } = await page({ status: name === "prompt" ? UNSUBSCRIBED : SUBSCRIBED });
    const globals = countListeners();
    const before = listeners.size;
    const element = await add(name);
    const during = [listeners.size, globals()];
    expect(during[0]).toBeGreaterThan(before);
    if (name !== "preferences") expect(during[1]).toBeGreaterThan(0);
    for (let round = 0; round < 3; round++) {
      element.remove();
      expect([listeners.size, globals()]).toEqual([before, 0]);
      document.body.append(element);
      await settle();
      expect([listeners.size, globals()]).toEqual(during);
    }
  });

  it("keeps its style", async () => {
    const { add } = await page({ status: SUBSCRIBED });
    const preferences = await add("preferences");
    const sheets = () => preferences.shadowRoot!.adoptedStyleSheets.length;
    expect(sheets()).toBe(2);
    preferences.remove();
    document.body.append(preferences);
    await settle();
    expect(sheets()).toBe(2);
  });
});

describe("the prompt", () => {
  it.each(["later", "no", "accept"])("stops listening once it is closed: %s", async (answer) => {
    const { add, listeners } = await page({ prompt: { enabled: false } });
    const prompt = await add("prompt");
    const before = listeners.size;
    for (let round = 0; round < 3; round++) {
      expect(await prompt.show()).toBe(true);
      expect(listeners.size).toBe(before + 1);
      await click(prompt, `.${answer}`);
      expect(listeners.size).toBe(before);
    }
    await prompt.show();
    await prompt.preview({});
    expect(listeners.size).toBe(before);
  });

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

  it("keeps its variant stable per browser", async () => {
    const variants = ["first", "second"].map((name) => ({
      name,
      weight: 1,
      layout: null,
      texts: { en: { title: name } },
    }));
    const title = async () => text(await (await page({ prompt: { variants } })).add("prompt"), ".title");
    const first = await title();
    const { draw, luck } = stored();
    expect(first).toBe(draw < 0.5 ? "first" : "second");
    expect([await title(), await title(), stored().draw]).toEqual([first, first, draw]);
    expect(draw).not.toBe(luck);
    localStorage.setItem("bellwire shop", JSON.stringify({ ...stored(), draw: draw < 0.5 ? 0.9 : 0.1 }));
    expect(await title()).not.toBe(first);
  });

  it("gives records of earlier versions a variant", async () => {
    await page();
    const { draw: _, ...earlier } = stored();
    localStorage.setItem("bellwire shop", JSON.stringify(earlier));
    await page();
    const { draw } = stored();
    expect(draw).toBeGreaterThanOrEqual(0);
    expect(stored()).toMatchObject({ luck: earlier.luck, draw });
    await page();
    expect(stored().draw).toBe(draw);
  });

  it("prefers the texts of its variant", async () => {
    const variants = [{ name: "only", weight: 1, layout: null, texts: { en: { body: "Once a week." } } }];
    const { add } = await page({ prompt: { variants, layout: "bar" } });
    const prompt = await add("prompt");
    expect([text(prompt, ".title"), text(prompt, ".body")]).toEqual(["Hear of new arrivals?", "Once a week."]);
    expect(find(prompt, "section")!.className).toBe("bar");
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
