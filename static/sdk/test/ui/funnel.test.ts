// @vitest-environment happy-dom
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Result, Status } from "../../src/api";
import { click, find, page, settle, stored, SUBSCRIBED, text, UNSUBSCRIBED } from "./support";

const refused = (reason: "denied" | "dismissed" | "push-service"): Result => ({
  ok: false,
  status: UNSUBSCRIBED,
  reason,
  message: "",
  retrying: false,
});
const PENDING: Status = { state: "pending" };
const OFFLINE: Result = { ok: false, status: PENDING, reason: "offline", message: "", retrying: true };
const HOUR_MS = 3_600_000;
const VARIANTS = [{ name: "short", weight: 1, layout: "bar", texts: { en: { title: "News?" } } }];
const IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Version/17.5 Mobile/15E148 Safari/604.1";

beforeEach(() => {
  localStorage.clear();
  history.replaceState(null, "", "/");
});

describe("steps of the prompt", () => {
  it("are reported without anything about the visitor", async () => {
    history.replaceState(null, "", "/cart?user=ann#top");
    const { add, posts } = await page();
    await add("prompt");
    const [[url, init]] = posts() as [[string, RequestInit]];
    expect(url).toBe("https://push.example/v1/apps/shop/prompt/steps");
    expect(init).toEqual({
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ steps: ["shown"], layout: "card", page: "/cart" }),
      credentials: "omit",
      referrerPolicy: "origin",
      keepalive: true,
    });
    expect(document.cookie).toBe("");
  });

  it("have a page of at most 200 characters", async () => {
    history.replaceState(null, "", "/a".repeat(150));
    const { add, reports } = await page();
    await add("prompt");
    expect(reports()).toMatchObject([{ page: "/a".repeat(100) }]);
  });

  it.each([
    ["/users/ann@example.com/orders/17", "/users/*/orders/*"],
    ["/caf%C3%A9/Über/x", "/*/*/x"],
    [`/${"a".repeat(24)}/${"a".repeat(25)}/`, `/${"a".repeat(24)}/*/`],
    ["//new-in/a_b/index.html/~ann", "//new-in/a_b/index.html/~ann"],
    ["/reset/eyJhbGciOiJIUzI1NiJ9.e30/9", "/reset/*/*"],
    ["/", "/"],
  ])("replace variable parts of the path: %s", async (path, generic) => {
    const { pathname } = new URL(`https://shop.example${path}`);
    vi.spyOn(location, "pathname", "get").mockReturnValue(pathname);
    const { add, posts } = await page();
    await add("prompt");
    await add("preferences").then((preferences) => click(preferences, ".on"));
    const pages = posts().map(([, { body }]) => JSON.parse(body as string).page);
    expect(pages).toEqual([generic, generic, generic]);
  });

  it.each([
    ["/checkout", "/checkout"],
    ["checkout", "/checkout"],
    ["/order/17?user=ann", "/order/*"],
    ["", "/"],
  ])("have the page that the element names: %s", async (name, named) => {
    history.replaceState(null, "", "/kasse");
    const { add, reports } = await page({ prompt: { enabled: false } });
    for (const kind of ["prompt", "preferences"] as const) {
      const element = await add(kind);
      element.setAttribute("page", name);
      if (kind === "prompt") await element.show();
      else await click(element, ".on");
    }
    expect(reports().map(({ page }) => page)).toEqual([named, named, named]);
  });

  it("have the page that the bell names", async () => {
    const { add, reports } = await page({ prompt: { enabled: false } });
    const bell = await add("bell");
    bell.setAttribute("page", "/header");
    await click(bell, ".bell");
    const preferences = bell.shadowRoot!.querySelector<HTMLElement>("dialog")!.firstElementChild as HTMLElement;
    await click(preferences, ".on");
    expect(reports()).toMatchObject([{ page: "/header" }, { page: "/header" }]);
  });

  it.each(["accept", "later", "no"])("have page and form of `shown`: %s", async (answer) => {
    history.replaceState(null, "", "/cart");
    const first = await page({ prompt: { variants: VARIANTS } });
    await first.add("prompt");
    history.replaceState(null, "", "/help");
    const { add, reports } = await page({ prompt: { layout: "dialog" } });
    const prompt = await add("prompt");
    expect(find(prompt, "dialog")).not.toBeNull();
    await click(prompt, `.${answer}`);
    const where = { layout: "bar", variant: "short", page: "/cart" };
    expect(first.reports()).toEqual([{ steps: ["shown"], ...where }]);
    expect(reports()[0]).toEqual({ steps: answer === "accept" ? ["accepted", "asked"] : [answer], ...where });
    expect(reports().at(-1)).toMatchObject(where);
  });

  it("have another page in the next visit", async () => {
    history.replaceState(null, "", "/cart");
    await (await page()).add("prompt");
    history.replaceState(null, "", "/help");
    const { add, reports } = await page({ now: 1e12 + HOUR_MS });
    await click(await add("prompt"), ".later");
    expect(reports()).toMatchObject([
      { steps: ["shown"], page: "/help" },
      { steps: ["later"], page: "/help" },
    ]);
  });

  it("have their page in records of earlier versions", async () => {
    await (await page()).add("prompt");
    const { question: _, asked: __, ...earlier } = stored();
    localStorage.setItem("bellwire shop", JSON.stringify(earlier));
    history.replaceState(null, "", "/help");
    const { add, reports } = await page();
    await click(await add("prompt"), ".later");
    expect(reports()).toEqual([{ steps: ["later"], layout: "card", page: "/help" }]);
  });

  it("are turned off by the site", async () => {
    const { add, bellwire, reports, client } = await page({ options: { reports: false } });
    const { kitOf } = await import("../../src/ui/kit");
    kitOf(bellwire); // by a later `ui()` without options, as of the components for React and Vue
    await click(await add("prompt"), ".accept");
    await click(await add("preferences"), ".on");
    expect(client.subscribe).toHaveBeenCalledTimes(2);
    expect(reports()).toEqual([]);
  });

  it.each<[string, Result, object[]]>([
    ["granted", { ok: true, status: SUBSCRIBED }, [{ steps: ["granted"], subscription: "sub_1" }]],
    ["denied", refused("denied"), [{ steps: ["denied"] }]],
    ["dismissed", refused("dismissed"), [{ steps: ["dismissed"] }]],
    ["without an outcome", refused("push-service"), []],
  ])("follow a yes: %s", async (_, result, outcome) => {
    const { add, reports } = await page({ result });
    const prompt = await add("prompt");
    find(prompt, ".accept")!.click();
    const shown = { steps: ["shown"], layout: "card", page: "/" };
    const asked = { steps: ["accepted", "asked"], layout: "card", page: "/" };
    expect(reports()).toEqual([shown, asked]); // still in the click
    await settle();
    expect(reports()).toEqual([shown, asked, ...outcome.map((step) => ({ ...step, layout: "card", page: "/" }))]);
  });

  it("leave out a question that is not due", async () => {
    const { add, reports } = await page({ permission: "granted" });
    await click(await add("prompt"), ".accept");
    expect(reports().map(({ steps }) => steps)).toEqual([["shown"], ["accepted"], ["granted"]]);
  });

  it.each(["later", "no"])("include the answer: %s", async (answer) => {
    const { add, reports } = await page();
    await click(await add("prompt"), `.${answer}`);
    expect(reports().map(({ steps }) => steps)).toEqual([["shown"], [answer]]);
  });

  it("are a guide, whose end is no answer", async () => {
    vi.spyOn(navigator, "userAgent", "get").mockReturnValue(IPHONE);
    const { add, reports } = await page({ status: { state: "not-installed" } as Status });
    const prompt = await add("prompt");
    expect(find(prompt, ".guide")).not.toBeNull();
    await click(prompt, ".later");
    expect(reports()).toEqual([{ steps: ["guided"], layout: "card", page: "/" }]);
  });

  it("name variant and layout", async () => {
    const { add, reports } = await page({ prompt: { variants: VARIANTS } });
    const prompt = await add("prompt");
    expect([text(prompt, ".title"), find(prompt, "section")!.className]).toEqual(["News?", "bar"]);
    await click(prompt, ".accept");
    const where = { layout: "bar", variant: "short", page: "/" };
    expect(reports()).toEqual([
      { steps: ["shown"], ...where },
      { steps: ["accepted", "asked"], ...where },
      { steps: ["granted"], ...where, subscription: "sub_1" },
    ]);
  });

  it("name the layout of the element", async () => {
    const { add, reports } = await page({ prompt: { enabled: false, variants: VARIANTS } });
    const prompt = await add("prompt");
    prompt.setAttribute("layout", "dialog");
    await prompt.show();
    expect(find(prompt, "dialog")).not.toBeNull();
    expect(reports()).toMatchObject([{ steps: ["shown"], layout: "dialog", variant: "short" }]);
  });

  it("are none while the prompt stays away", async () => {
    const { add, reports } = await page({ status: SUBSCRIBED });
    expect(await (await add("prompt")).show()).toBe(false);
    expect(reports()).toEqual([]);
  });

  it("are not reported by a preview", async () => {
    const { add, reports, client } = await page({ prompt: { enabled: false } });
    const prompt = await add("prompt");
    for (const way of ["ask", "install_share"]) {
      await prompt.preview({ variants: VARIANTS, texts: { en: { title: "Base?", install_title: "Base?" } } }, way);
      expect(text(prompt, ".title")).toBe("Base?");
      for (const button of prompt.shadowRoot!.querySelectorAll("button")) button.click();
    }
    await settle();
    expect(reports()).toEqual([]);
    expect(client.subscribe).not.toHaveBeenCalled();
  });

  it("may fail", async () => {
    const { add, client } = await page();
    const error = vi.spyOn(console, "error");
    const prompt = await add("prompt");
    vi.stubGlobal("fetch", () => Promise.reject(new TypeError("network")));
    await click(prompt, ".accept");
    expect(client.subscribe).toHaveBeenCalledOnce();
    expect(find(prompt, "section")).toBeNull();
    expect(error).not.toHaveBeenCalled();
  });
});

describe("a subscription that is complete later", () => {
  const GRANTED = { steps: ["granted"], layout: "card", page: "/cart", subscription: "sub_1" };

  /** Page on which the person said yes, without a subscription so far. */
  async function accepted(result = OFFLINE) {
    history.replaceState(null, "", "/cart");
    const first = await page({ result });
    await click(await first.add("prompt"), ".accept");
    expect(first.reports().map(({ steps }) => steps)).toEqual([["shown"], ["accepted", "asked"]]);
    history.replaceState(null, "", "/help");
    return first;
  }

  it("is reported once on the same page", async () => {
    const { change, reports } = await accepted();
    for (const status of [PENDING, SUBSCRIBED, SUBSCRIBED, UNSUBSCRIBED, SUBSCRIBED]) change(status);
    expect(reports().slice(2)).toEqual([GRANTED]);
  });

  it.each<[string, Status]>([
    ["at its start", SUBSCRIBED],
    ["after a change", PENDING],
  ])("is reported once on a later page: %s", async (_, status) => {
    await accepted();
    const later = await page({ status, now: 1e12 + 48 * HOUR_MS });
    await settle();
    for (const next of [SUBSCRIBED, SUBSCRIBED]) later.change(next);
    expect(later.reports()).toEqual([GRANTED]);
    const last = await page({ status: SUBSCRIBED });
    await settle();
    expect(last.reports()).toEqual([]);
  });

  it("is reported after its page was left", async () => {
    history.replaceState(null, "", "/cart");
    const first = await page();
    first.client.subscribe.mockReturnValue(new Promise(() => {}));
    await click(await first.add("prompt"), ".accept");
    const later = await page({ status: SUBSCRIBED });
    await settle();
    expect(later.reports()).toEqual([GRANTED]);
  });

  it("is reported once by several tabs", async () => {
    const first = await accepted();
    const second = await page({ status: PENDING });
    for (const tab of [first, second]) tab.change(SUBSCRIBED);
    expect([...first.reports().slice(2), ...second.reports()]).toEqual([GRANTED]);
  });

  const ENDS: [string, Status][] = [
    ["unsubscribed", UNSUBSCRIBED],
    ["blocked notifications", { state: "denied" }],
  ];

  it.each(ENDS)("is not reported once the person %s", async (_, status) => {
    const { change, reports } = await accepted();
    for (const next of [status, SUBSCRIBED]) change(next);
    expect(reports()).toHaveLength(2);
  });

  it.each(ENDS)("is not reported if the person %s meanwhile", async (_, status) => {
    await accepted();
    const later = await page({ status });
    await settle();
    later.change(SUBSCRIBED);
    expect(later.reports()).toEqual([]);
  });

  it("is not reported without a yes", async () => {
    const { change, reports, add } = await page({ prompt: { enabled: false } });
    await add("prompt");
    change(SUBSCRIBED);
    expect(reports()).toEqual([]);
  });
});

describe("steps of the preferences", () => {
  it.each<[string, Result, object]>([
    ["granted", { ok: true, status: SUBSCRIBED }, { steps: ["granted"], subscription: "sub_1" }],
    ["denied", refused("denied"), { steps: ["denied"] }],
    ["dismissed", refused("dismissed"), { steps: ["dismissed"] }],
  ])("begin with turning on: %s", async (_, result, outcome) => {
    const { add, reports } = await page({ result, prompt: { variants: VARIANTS } });
    const preferences = await add("preferences");
    expect(reports()).toEqual([]);
    await click(preferences, ".on");
    const where = { layout: "preferences", page: "/" };
    expect(reports()).toEqual([
      { steps: ["accepted", "asked"], ...where },
      { ...outcome, ...where },
    ]);
  });

  it("are none for other changes", async () => {
    const { add, reports } = await page({ status: SUBSCRIBED });
    const preferences = await add("preferences");
    for (const part of ["[value=offers]", ".important input", ".pause", ".off"]) await click(preferences, part);
    expect(reports()).toEqual([]);
  });
});
