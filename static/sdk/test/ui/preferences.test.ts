// @vitest-environment happy-dom
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Status } from "../../src/api";
import { click, find, page, settle, SUBSCRIBED, text } from "./support";

beforeEach(() => {
  localStorage.clear();
});

describe("the preferences", () => {
  it("show topics in the page's language and order", async () => {
    const { add } = await page({ status: SUBSCRIBED, lang: "de" });
    const preferences = await add("preferences");
    const boxes = [...preferences.shadowRoot!.querySelectorAll<HTMLInputElement>(".topics input")];
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
    expect(
      [...preferences.shadowRoot!.querySelectorAll<HTMLInputElement>(".topics input")].every(
        ({ disabled }) => disabled,
      ),
    ).toBe(true);
    change({ state: "unsubscribed" } as Status);
    await click(preferences, ".on");
    expect(client.subscribe).toHaveBeenCalledExactlyOnceWith({ topics: [], consentSource: "Notification settings" });
  });

  it("tick no topic before the consent", async () => {
    const { add } = await page();
    const boxes = [...(await add("preferences")).shadowRoot!.querySelectorAll<HTMLInputElement>(".topics input")];
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
    const checked = () =>
      [...preferences.shadowRoot!.querySelectorAll<HTMLInputElement>(".topics input")].map(({ checked }) => checked);
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

describe("the mute in the preferences", () => {
  const WEEK_MS = 604_800_000;
  const UNTIL = "2026-12-06T10:00:00Z";
  const box = (element: HTMLElement) => find<HTMLInputElement>(element, ".important input")!;
  const muted = async (muted: { until: string | null } | null, lang = "en") => {
    const given = await page({ status: { ...SUBSCRIBED, muted }, lang });
    return { ...given, preferences: await given.add("preferences") };
  };

  it("has no end by the checkbox", async () => {
    const { preferences, client, change } = await muted(null);
    expect([box(preferences).checked, find(preferences, ".paused")!.hidden]).toEqual([false, true]);
    await click(preferences, ".important input");
    expect(client.setMuted).toHaveBeenLastCalledWith({});
    change({ ...SUBSCRIBED, muted: { until: null } });
    expect([box(preferences).checked, find(preferences, ".pause")!.hidden]).toEqual([true, true]);
    await click(preferences, ".important input");
    expect(client.setMuted).toHaveBeenLastCalledWith(null);
    expect(text(preferences, "[role=status]")).toBe("Saved.");
    expect(client.setTopics).not.toHaveBeenCalled();
  });

  it("pauses for a week, and resumes", async () => {
    const { preferences, client, change, time } = await muted(null);
    expect(text(preferences, ".pause")).toBe("Pause for a week");
    await click(preferences, ".pause");
    expect(client.setMuted).toHaveBeenLastCalledWith({ until: new Date(time.now + WEEK_MS) });
    change({ ...SUBSCRIBED, muted: { until: UNTIL } });
    expect([text(preferences, ".pause"), box(preferences).checked]).toEqual(["Resume", false]);
    await click(preferences, ".pause");
    expect(client.setMuted).toHaveBeenLastCalledWith(null);
    change(SUBSCRIBED);
    expect([text(preferences, ".pause"), find(preferences, ".paused")!.hidden]).toEqual(["Pause for a week", true]);
  });

  it("shows the state after a refusal", async () => {
    const { preferences, client } = await muted(null);
    client.setMuted.mockResolvedValue({
      ok: false,
      status: SUBSCRIBED,
      reason: "refused",
      message: "",
      retrying: false,
    });
    await click(preferences, ".important input");
    expect([box(preferences).checked, find(preferences, ".pause")!.hidden]).toEqual([false, false]);
    expect(text(preferences, "[role=status]")).toBe("That did not work. Please try again.");
  });

  it.each([
    ["en", "Paused until Sunday, December 6, 2026."],
    ["de", "Pausiert bis Sonntag, 6. Dezember 2026."],
  ])("names the end of a pause: %s", async (lang, words) => {
    const { preferences } = await muted({ until: UNTIL }, lang);
    expect(find(preferences, ".paused")!.hidden).toBe(false);
    expect(text(preferences, ".paused")).toMatch(words);
  });

  it("accepts a language with an underscore", async () => {
    const { add } = await page({
      status: { ...SUBSCRIBED, muted: { until: UNTIL } },
      lang: "pt_BR",
      prompt: { texts: { pt_BR: { paused: "Pausado até {date}" } } },
    });
    expect(text(await add("preferences"), ".paused")).toBe("Pausado até domingo, 6 de dezembro de 2026");
  });

  it("waits while the subscription is pending", async () => {
    const { preferences, change } = await muted(null);
    change({ state: "pending" });
    expect([box(preferences).disabled, find<HTMLButtonElement>(preferences, ".pause")!.disabled]).toEqual([true, true]);
    change(SUBSCRIBED);
    expect([box(preferences).disabled, find<HTMLButtonElement>(preferences, ".pause")!.disabled]).toEqual([
      false,
      false,
    ]);
  });

  it("is for subscribers only", async () => {
    const { add } = await page();
    const preferences = await add("preferences");
    expect([find(preferences, ".important"), find(preferences, ".pause")]).toEqual([null, null]);
  });
});

describe("content that is loaded on demand", () => {
  const FORM = "../../src/ui/preferences_form";
  /** Makes downloads of the content fail until `repair`. */
  function breakDownload(): () => void {
    vi.spyOn(console, "error").mockImplementation(() => {});
    vi.doMock(FORM, () => {
      throw new TypeError("Failed to fetch dynamically imported module");
    });
    return () => {
      vi.doUnmock(FORM);
      vi.resetModules();
    };
  }

  it("is loaded with the first preferences", async () => {
    const { add } = await page({ status: SUBSCRIBED });
    let loads = 0;
    vi.doMock(FORM, async (original) => (loads++, original()));
    await add("prompt");
    const bell = await add("bell");
    expect(loads).toBe(0);
    await click(bell, ".bell");
    expect(loads).toBe(1);
    const [preferences] = find(bell, "dialog")!.children as unknown as HTMLElement[];
    await vi.waitFor(() => expect(find(preferences!, ".off")).not.toBeNull());
    vi.doUnmock(FORM);
  });

  it("leaves preferences empty until it is there", async () => {
    const { add } = await page({ status: SUBSCRIBED });
    const repair = breakDownload();
    const preferences = await add("preferences");
    expect([find(preferences, "section"), text(preferences, "[role=status]")]).toEqual([null, ""]);
    repair();
    preferences.remove();
    document.body.append(preferences);
    await vi.waitFor(() => expect(find(preferences, ".off")).not.toBeNull());
  });

  it("is explained in the bell, which tries again", async () => {
    const { add } = await page({ status: SUBSCRIBED });
    const repair = breakDownload();
    const bell = await add("bell");
    await click(bell, ".bell");
    const [preferences] = find(bell, "dialog")!.children as unknown as HTMLElement[];
    expect(text(preferences!, "[role=status]")).toBe("That did not work. Please try again.");
    await click(bell, ".close");
    repair();
    await click(bell, ".bell");
    await vi.waitFor(() => expect(find(preferences!, ".off")).not.toBeNull());
    expect(text(preferences!, "[role=status]")).toBe("");
  });
});
