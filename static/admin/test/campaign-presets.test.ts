// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { LocationProvider } from "preact-iso";
import { useState } from "preact/hooks";
import { beforeEach, describe, expect, it } from "vitest";
import { BLANK, lacks, planOf, withVariant, type Draft } from "../src/lib/campaign-draft";
import { hasWork, presetChanges, presetOf, PRESETS } from "../src/lib/campaign-presets";
import { PresetsCard } from "../src/pages/campaigns/presets";

const filled = (id: string, draft: Draft = BLANK): Draft => ({ ...draft, ...presetChanges(presetOf(id)!, draft) });
const written = (title: string): Draft => ({ ...BLANK, message: { ...BLANK.message, title } });

describe("a preset", () => {
  it.each([
    ["welcome", { on: "subscribed", after: "1m", at_most: "once" }],
    ["cart", { on: "event:cart_added", after: "30m", unless: "event:bought", at_most: "once per 7d" }],
  ])("%s makes a complete plan", (id, schedule) => {
    const draft = filled(id);
    expect(lacks(draft)).toBeUndefined();
    const { name, content } = presetOf(id)!;
    expect(planOf(draft)).toEqual({
      slug: expect.stringMatching(/^[a-z-]+$/),
      name,
      message: { to: { all: true }, tier: "promotional", content },
      schedule,
    });
  });

  it("has an id of its own", () => {
    expect(new Set(PRESETS.map(({ id }) => id)).size).toBe(PRESETS.length);
    expect([presetOf("winback"), presetOf(undefined)]).toEqual([undefined, undefined]);
  });

  it("keeps audience, options and holdout", () => {
    const message = { ...BLANK.message, audience: "topic", topic: "news", urgency: "low", url: "/cart" } as const;
    const draft = filled("cart", { ...BLANK, message, narrowed: "stored", segment: "keen", holdout: "5" });
    expect(planOf(draft)).toMatchObject({
      message: { to: { topic: "news", segment: "keen" }, urgency: "low", content: { url: "/cart" } },
      holdout: 0.05,
    });
  });

  it("replaces variants and a template", () => {
    const draft = withVariant({ ...written("Hello"), isTested: true });
    const plan = planOf(
      filled("welcome", { ...draft, message: { ...draft.message, says: "template", template: "t" } }),
    );
    expect(plan).not.toHaveProperty("variants");
    expect(plan).not.toHaveProperty("test");
    expect(plan.message).not.toHaveProperty("template");
    expect(plan.message.content).toMatchObject({ title: "Welcome!" });
  });
});

describe("work in a draft", () => {
  it.each<[string, Draft, boolean]>([
    ["nothing", { ...BLANK, timezone: "Asia/Tokyo" }, false],
    ["an audience", { ...BLANK, narrowed: "stored", segment: "keen" }, false],
    ["a preset as it is", filled("welcome"), false],
    ["another preset in its place", filled("cart", filled("welcome")), false],
    ["a name", { ...BLANK, name: "Spring" }, true],
    ["a title", written("Hello"), true],
    ["a template", { ...BLANK, message: { ...BLANK.message, says: "template", template: "t" } }, true],
    ["variants", withVariant(BLANK), true],
    ["a schedule", { ...BLANK, when: "cron" }, true],
    ["a preset with another wait", { ...filled("cart"), trigger: { ...filled("cart").trigger, wait: "60" } }, true],
    ["a preset with another title", { ...filled("cart"), message: written("Hello").message }, true],
  ])("%s", (_, draft, expected) => expect(hasWork(draft)).toBe(expected));
});

describe("on the page", () => {
  let root: HTMLElement;
  let latest: Draft;
  beforeEach(() => {
    root = document.createElement("div");
    document.body.replaceChildren(root);
    history.replaceState(null, "", "/admin/campaigns/-new?app=shop");
  });

  function Page({ begin }: { begin: Draft }) {
    const [draft, setDraft] = useState(begin);
    latest = draft;
    return h(PresetsCard, { draft, change: (changes) => setDraft((draft) => ({ ...draft, ...changes })) });
  }
  const open = (begin: Draft) => act(() => render(h(LocationProvider, {}, h(Page, { begin })), root));
  const click = (selector: string) => act(() => root.querySelector<HTMLElement>(selector)!.click());

  it("fills an empty form without a question", async () => {
    await open(BLANK);
    await click("[data-preset=welcome]");
    expect(latest).toEqual(filled("welcome"));
    expect(root.querySelector("dialog")).toBeNull();
    expect(root.querySelector("[role=status]")!.textContent).toContain("Welcome after subscribing");
    await click("[data-preset=cart]");
    expect(latest.name).toBe("Abandoned cart");
  });

  it("asks before it replaces text", async () => {
    await open(written("Hello"));
    await click("[data-preset=cart]");
    expect(latest.message.title).toBe("Hello");
    expect(root.querySelector("dialog p")!.textContent).toContain("Abandoned cart reminder");
    await click("dialog .row button");
    expect([root.querySelector("dialog"), latest]).toEqual([null, written("Hello")]);
    await click("[data-preset=cart]");
    await click("#replace-draft");
    expect([root.querySelector("dialog"), latest]).toEqual([null, filled("cart", written("Hello"))]);
  });

  it("follows a link once", async () => {
    history.replaceState(null, "", "/admin/campaigns/-new?app=shop&preset=welcome");
    await open(BLANK);
    expect(latest).toEqual(filled("welcome"));
    expect(location.search).toBe("?app=shop");
  });

  it("asks on a link, too", async () => {
    history.replaceState(null, "", "/admin/campaigns/-new?app=shop&preset=cart");
    await open(written("Hello"));
    expect(latest.message.title).toBe("Hello");
    expect(root.querySelector("#replace-draft")).not.toBeNull();
  });
});
