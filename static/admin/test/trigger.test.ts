// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { LocationProvider } from "preact-iso";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { Refusal } from "../src/api/problem";
import type { AppResponse, CampaignProgress, CampaignSchedule, TriggerCounts } from "../src/api/types";
import { BLANK, draftOf, lacks, numberFaults, planOf, withVariant, type Draft } from "../src/lib/campaign-draft";
import { consequence, going, scheduleWords, startWords } from "../src/lib/campaigns";
import {
  BLANK_TRIGGER,
  entryWords,
  lacksOfTrigger,
  triggerDraft,
  triggerFaults,
  triggerSchedule,
  triggerSentence,
  triggerSteps,
  waitsForEvents,
  type TriggerDraft,
} from "../src/lib/trigger";
import { TriggerCard, TriggerFields } from "../src/pages/campaigns/trigger";
import { Entries } from "../src/pages/subscribers/waits";

const trigger = (more: Partial<TriggerDraft> = {}): TriggerDraft => ({
  ...BLANK_TRIGGER,
  event: "cart_added",
  ...more,
});
const counts = (more: Partial<TriggerCounts> = {}): TriggerCounts => ({
  entered: 0,
  waiting: 0,
  cancelled: 0,
  limited: 0,
  held_out: 0,
  excluded: 0,
  expired: 0,
  sent: 0,
  ...more,
});
const NOW = new Date("2027-01-15T08:00:00Z");
const MESSAGE = { to: { all: true }, tier: "promotional", content: { title: "Your cart" } } as const;

describe("a trigger in words", () => {
  it.each<[CampaignSchedule, string]>([
    [
      { on: "event:cart_added", after: "30m", unless: "event:bought", at_most: "once per 7d" },
      "30 minutes after `cart_added`, unless `bought`; at most once a week.",
    ],
    [{ on: "subscribed", at_most: "once" }, "Immediately after a browser subscribes; once per person."],
    [{ on: "joined:news", after: "1d" }, "One day after a browser joins the topic `news`."],
    [
      { on: "event:cart_added", where: "total >= 50", after: "1h", at_most: "once per 1h" },
      "One hour after `cart_added` with `total >= 50`; at most once an hour.",
    ],
    [
      { on: "event:a", after: "0m", unless: ["event:b", "event:c"], at_most: "once per 1d" },
      "Immediately after `a`, unless `b` or `c`; at most once a day.",
    ],
    [{ on: "event:a", unless: ["event:b", "event:c", "event:d"] }, "Immediately after `a`, unless `b`, `c`, or `d`."],
    [
      { on: "subscribed", after: "60m", at_most: "once per 168h" },
      "One hour after a browser subscribes; at most once a week.",
    ],
    [{ on: "event:a", after: "90s", at_most: "once per 14d" }, "90 seconds after `a`; at most once in 14 days."],
  ])("reads as a sentence: %j", (schedule, expected) => {
    expect(triggerSentence(schedule)).toBe(expected);
  });

  it("explains the best hour", () => {
    const words = scheduleWords({ schedule: { on: "subscribed", after: "2d", hour: "best" } }, NOW, "UTC");
    expect(words).toEqual(["2 days after a browser subscribes.", expect.stringContaining("best hour")]);
  });

  it.each([
    ["event:cart_added", "Event `cart_added`"],
    ["subscribed", "Subscribed"],
    ["joined:news", "Joined the topic `news`"],
    ["sent:cmp_1", "Message of the followed campaign"],
  ])("names the cause %s", (cause, expected) => {
    expect(entryWords(cause)).toBe(expected);
  });
});

describe("a trigger in the form", () => {
  it.each<[CampaignSchedule]>([
    [{ on: "subscribed" }],
    [{ on: "joined:news", after: "2h", at_most: "once" }],
    [{ on: "event:cart_added", where: "total >= 50", after: "30m", unless: "event:bought", at_most: "once per 7d" }],
    [{ on: "event:a", after: "45s", unless: ["event:b", "event:c"], hour: "best" }],
  ])("comes back as it was: %j", (schedule) => {
    const plan = { slug: "a", message: MESSAGE, schedule };
    const draft = draftOf(plan, "UTC");
    expect(draft?.when).toBe("event");
    expect(draft && planOf(draft)).toEqual(plan);
  });

  it("reads names with and without prefix", () => {
    const { unless } = triggerSchedule(trigger({ unless: " event:bought,ordered  paid " }));
    expect(unless).toEqual(["event:bought", "event:ordered", "event:paid"]);
  });

  it("leaves out hidden fields", () => {
    const hidden = trigger({ cause: "subscribed", condition: "total > 1", wait: "0", limit: "none" });
    expect(triggerSchedule(hidden)).toEqual({ on: "subscribed" });
    expect(triggerDraft(null)).toEqual(BLANK_TRIGGER);
  });

  it("omits a test winner and a spread rate", () => {
    const message = { ...BLANK.message, title: "Your cart" };
    const written: Draft = {
      ...BLANK,
      name: "Cart",
      message,
      pace: "spread",
      spreadMinutes: "",
      isTested: true,
      share: "",
    };
    const draft = withVariant({ ...written, when: "event", trigger: trigger() });
    expect([numberFaults(draft), lacks(draft)]).toEqual([{}, undefined]);
    expect(planOf(draft)).toMatchObject({ schedule: { on: "event:cart_added", after: "30m" } });
    expect(Object.keys(planOf(draft))).not.toEqual(expect.arrayContaining(["pace"]));
    expect(Object.keys(planOf(draft))).not.toEqual(expect.arrayContaining(["test"]));
  });

  it("says what is lacking", () => {
    expect(lacksOfTrigger(trigger({ event: " " }))).toBe("Enter the event that starts the campaign.");
    expect(lacksOfTrigger(trigger({ cause: "joined" }))).toBe("Choose the topic that starts the campaign.");
    expect(lacksOfTrigger(trigger({ wait: "soon" }))).toBe("Correct the fields of the trigger.");
    expect(lacksOfTrigger(trigger())).toBeUndefined();
  });

  it.each<[Partial<TriggerDraft>, object]>([
    [{ event: "cart added" }, { event: "must be 1 to 64 letters, digits, `_`, `-` or `.`" }],
    [{ wait: "91", waitUnit: "d" }, { wait: "must be a whole number from 0 to 90" }],
    [{ unless: "a,b,c,d,e,f" }, { unless: "must have at most 5 events" }],
    [{ unless: "häm" }, { unless: expect.stringContaining("letters") }],
    [{ limit: "per", limitSpan: "59", limitUnit: "s" }, { limitSpan: "must be a whole number from 60 to 31,536,000" }],
    [{ limit: "per", limitSpan: "1", limitUnit: "m" }, {}],
    [{ limit: "once", limitSpan: "x" }, {}],
  ])("finds faults of %j", (more, faults) => {
    expect(triggerFaults(trigger(more))).toEqual(faults);
  });
});

describe("progress of a trigger", () => {
  const running = { state: "sending", runs: 0, changed_at: NOW.toISOString() } as never as Parameters<typeof going>[0];
  const withCounts = (trigger: TriggerCounts, more: object = {}) =>
    ({ ...running, ...more, progress: { total: {}, held: [], runs: [], variants: [], trigger } }) as never;

  it("is one sentence", () => {
    const words = (trigger: TriggerCounts, more = {}) => going(withCounts(trigger, more), undefined, NOW, "UTC").words;
    expect(words(counts())).toBe("Waiting for events: no event let a person enter yet.");
    expect(words(counts({ entered: 1, waiting: 1 }))).toBe("Waiting for events: 1 entered, 1 waits, 0 sent.");
    expect(words(counts({ entered: 1_400, waiting: 12, sent: 1_200 }))).toBe(
      "Waiting for events: 1,400 entered, 12 wait, 1,200 sent.",
    );
    expect(words(counts({ entered: 3, sent: 3 }), { state: "done" })).toBe("Done: 3 entered, 0 wait, 3 sent.");
  });

  it("names who waits before an action", () => {
    const of = withCounts(counts({ entered: 2, waiting: 2 }));
    expect(consequence("cancel", of)).toBe("This would end the wait of 2 people. Events let no more people enter.");
    expect(consequence("cancel", withCounts(counts({ entered: 2, waiting: 1, sent: 1 })))).toContain(
      "withdraw the campaign instead",
    );
    expect(consequence("pause", of)).toMatch(/^2 wait now\./);
    expect(consequence("resume", of)).toContain("fell due during the pause");
  });

  it("is counted for each person at the start", () => {
    const plan = { slug: "a", message: { to: { all: true } }, schedule: { on: "subscribed" } };
    const [audience] = startWords(plan, { audience_estimate: 25, audience_margin: 0 }, NOW, "UTC");
    expect(audience).toContain("each person is checked again when their message is due");
  });

  it("is recognised in a list", () => {
    expect(waitsForEvents({ state: "sending", runs: 0 })).toBe(true);
    expect(waitsForEvents({ state: "sending", runs: 1 })).toBe(false);
    expect(waitsForEvents({ state: "paused", runs: 0 })).toBe(false);
  });

  it("adds up from entered to sent", () => {
    const all = counts({
      entered: 10,
      waiting: 1,
      cancelled: 2,
      limited: 4,
      held_out: 1,
      excluded: 1,
      expired: 1,
      sent: 4,
    });
    const funnel = { accepted: 5, asked: 4, displayed: 3, clicked: 1, unknowable: 1, silent: 1 };
    const steps = triggerSteps(all, funnel);
    expect(steps.map(({ word, n }) => `${word} ${n}`)).toEqual([
      "Entered 10",
      "Waiting 1",
      "Cancelled 2",
      "Holdout 1",
      "Left out 1",
      "Too late 1",
      "Sent 4",
      "Shown 3",
      "Clicked 1",
    ]);
    expect(steps[0]?.about).toBe("4 other events let no person enter, because of the limit.");
    expect([steps[6]?.share, steps[7]?.share]).toEqual(["40 % of 10", "75 % of 4"]);
    expect(triggerSteps(counts(), null).map(({ word }) => word)).toEqual(["Entered", "Waiting", "Sent"]);
    expect(triggerSteps(counts(), null, 3).at(-1)).toMatchObject({ word: "Capped", n: 3 });
  });
});

describe("on the page", () => {
  let root: HTMLElement;
  beforeEach(() => {
    root = document.createElement("div");
    document.body.replaceChildren(root);
    history.replaceState(null, "", "/");
  });

  it("every field has a label and its fault", async () => {
    const pointers = ["on", "where", "after", "unless", "at_most"];
    const errors = pointers.map((name) => ({ pointer: `/schedule/${name}`, detail: `is a bad ${name}` }));
    const problem = new Refusal(422, { detail: "bad", errors } as never);
    const draft: Draft = { ...BLANK, when: "event", trigger: trigger({ limit: "per" }) };
    const app = { id: "app_1" } as AppResponse;
    await act(() => render(h(TriggerFields, { app, draft, change: () => {}, problem }), root));
    const fields = [...root.querySelectorAll<HTMLInputElement>("input, select")];
    expect(fields.map(({ name }) => name)).toEqual([
      ...["cause", "event", "condition", "wait", "wait-unit", "unless", "limit", "limit-span", "limit-span-unit"],
    ]);
    for (const { id, name } of fields) expect(root.querySelector(`label[for="${id}"]`)?.textContent, name).toBeTruthy();
    const faultOf = (name: string) => {
      const about = root.querySelector(`[name=${name}]`)?.getAttribute("aria-describedby");
      return about && document.getElementById(about)?.textContent;
    };
    expect(["event", "condition", "wait", "unless", "limit-span"].map(faultOf)).toEqual(
      pointers.map((name) => `It is a bad ${name}.`),
    );
  });

  it("a change keeps the other fields", async () => {
    const change = vi.fn();
    const draft: Draft = { ...BLANK, when: "event", trigger: trigger({ unless: "bought" }) };
    await act(() => render(h(TriggerFields, { app: {} as AppResponse, draft, change, problem: undefined }), root));
    const input = root.querySelector<HTMLInputElement>("[name=wait]");
    if (input) input.value = "2";
    await act(() => void input?.dispatchEvent(new Event("input", { bubbles: true })));
    expect(change).toHaveBeenCalledWith({ trigger: trigger({ unless: "bought", wait: "2" }) });
  });

  it("the funnel names steps and numbers", async () => {
    const progress = { total: { accepted: 0 }, variants: [] } as never as CampaignProgress;
    await act(() => render(h(TriggerCard, { trigger: counts({ entered: 2, waiting: 1, sent: 1 }), progress }), root));
    const texts = [...root.querySelectorAll("#trigger li")].map((step) => step.textContent);
    expect(texts).toEqual(["Entered 2 ", "Waiting 1 50 % of 2", "Sent 1 50 % of 2"]);
  });

  it("entries link to their campaigns", async () => {
    const entry = { campaign: "cmp_1", slug: "reminder", cause: "event:cart_added" };
    const entries = [{ ...entry, due_at: "2027-01-15T08:30:00Z", caused_at: "2027-01-15T08:00:00Z" }];
    await act(() => render(h(LocationProvider, {}, h(Entries, { entries })), root));
    expect(root.querySelector("a")?.getAttribute("href")).toContain("/campaigns/reminder");
    expect(root.querySelector("tbody")?.textContent).toContain("Event cart_added");
  });
});
