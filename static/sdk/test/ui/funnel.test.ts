// @vitest-environment happy-dom
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Result, Status } from "../../src/api";
import { click, find, page, settle, SUBSCRIBED, text, UNSUBSCRIBED } from "./support";

const refused = (reason: "denied" | "dismissed" | "offline", retrying = false): Result => ({
  ok: false,
  status: UNSUBSCRIBED,
  reason,
  message: "",
  retrying,
});
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
    history.replaceState(null, "", `/${"a".repeat(300)}`);
    const { add, reports } = await page();
    await add("prompt");
    expect(reports()).toMatchObject([{ page: `/${"a".repeat(199)}` }]);
  });

  it.each<[string, Result, object[]]>([
    ["granted", { ok: true, status: SUBSCRIBED }, [{ steps: ["granted"], subscription: "sub_1" }]],
    ["denied", refused("denied"), [{ steps: ["denied"] }]],
    ["dismissed", refused("dismissed"), [{ steps: ["dismissed"] }]],
    ["without an outcome", refused("offline", true), []],
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
