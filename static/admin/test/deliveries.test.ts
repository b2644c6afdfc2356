import { describe, expect, it } from "vitest";
import type { ExplanationResponse, Sentence } from "../src/api/types";
import {
  aDevice,
  answer,
  chapters,
  consequenceOf,
  isId,
  lastWords,
  parts,
  person,
  quoted,
  report,
  shortId,
  spanWords,
  stateWords,
  toneOf,
} from "../src/lib/deliveries";

const NOW = new Date("2027-01-15T08:00:00Z");
const MESSAGE = "msg_01890000-0000-7000-8000-0000000a1b2c";
const DEVICE = "sub_01890000-0000-7000-8000-0000000d4e5f";

const told = (code: string, text: string, facts: object = {}, at: string | null = null): Sentence =>
  ({ code, text, facts, at }) as unknown as Sentence;

const RETRIED: ExplanationResponse = {
  message: MESSAGE,
  subscription: DEVICE,
  state: "retrying",
  now: NOW.toISOString(),
  story: [
    told("message_accepted", `Message ${MESSAGE} of tier promotional was accepted at 2027-01-15T07:00:00Z (1 h ago).`),
    told("addressed", "It is addressed to everybody."),
    told("policy_in_force", "By what is in force now, it is retried by the built-in policy."),
    told(
      "answered",
      "POST 1 left at 2027-01-15T07:00:01.250Z (59 min ago); fcm answered 503 after 100 ms, in its words “try later”: it could not cope.",
      {
        status: 503,
        words: "try later",
      },
    ),
    told("waits_for_retry", "It waits for retry 1 of 10, planned for 2027-01-15T08:10:00Z (in 10 min)."),
    told("next_post", "Next: it is POSTed at 2027-01-15T08:10:00Z (in 10 min)."),
  ],
};

describe("a search", () => {
  it("distinguishes ids from user names", () => {
    expect(person(` ${DEVICE} `)).toEqual({ subscription: DEVICE });
    expect(person("sub_7")).toEqual({ user_id: "sub_7" });
    expect(person("ann@example.com")).toEqual({ user_id: "ann@example.com" });
    expect([person(""), person("  "), person(undefined)]).toEqual([{}, {}, {}]);
    expect([isId(MESSAGE, "msg_"), isId(DEVICE, "msg_"), isId(`${MESSAGE}0`, "msg_")]).toEqual([true, false, false]);
  });
  it("offers spans of time as people call them", () => {
    expect([3_600, 86_400, 604_800].map(spanWords)).toEqual(["Last hour", "Last 24 hours", "Last 7 days"]);
  });
});

describe("a sentence", () => {
  it("splits into words, absolute times and ids", () => {
    expect(
      parts(`Message ${MESSAGE} went at 2027-01-15T07:00:00.250Z (1 h ago) to ${DEVICE}: 2027-01-16T00:00:00Z.`),
    ).toEqual([
      { kind: "text", text: "Message " },
      { kind: "message", text: MESSAGE },
      { kind: "text", text: " went at " },
      { kind: "time", at: new Date("2027-01-15T07:00:00.250Z") },
      { kind: "text", text: " to " },
      { kind: "subscription", text: DEVICE },
      { kind: "text", text: ": " },
      { kind: "time", at: new Date("2027-01-16T00:00:00Z") },
      { kind: "text", text: "." },
    ]);
  });
  it("keeps parentheses that are not a distance", () => {
    const [, time, rest] = parts("at 2027-01-15T07:00:00Z (5 min ago) (retries_exhausted): it had");
    expect([time, rest]).toEqual([
      { kind: "time", at: new Date("2027-01-15T07:00:00Z") },
      { kind: "text", text: " (retries_exhausted): it had" },
    ]);
  });
  it("gives the push service’s words apart", () => {
    expect(quoted(RETRIED.story[3] as Sentence)).toEqual({
      text: "POST 1 left at 2027-01-15T07:00:01.250Z (59 min ago); fcm answered 503 after 100 ms: it could not cope.",
      words: "try later",
    });
    expect(quoted(told("answered", "It took the push.", { words: null }))).toEqual({
      text: "It took the push.",
      words: undefined,
    });
  });
  it.each([
    ["answered", { status: 201 }, "accepted"],
    ["answered", { status: 410 }, "lost"],
    ["answered", { status: 429 }, "retrying"],
    ["not_answered", {}, "retrying"],
    ["ended_dead", {}, "lost"],
    ["ended_by_receipt", {}, "accepted"],
    ["ended_capped", {}, "cancelled"],
    ["message_accepted", {}, "waiting"],
  ])("%s %j is %s", (code, facts, tone) => expect(toneOf(told(code, "", facts))).toBe(tone));
});

describe("a story", () => {
  it("has past, present, future and lasting facts", () => {
    const { about, past, present, next } = chapters(RETRIED.story);
    const codes = (sentences: Sentence[]) => sentences.map(({ code }) => code);
    expect([about, past, present, next].map(codes)).toEqual([
      ["addressed", "policy_in_force"],
      ["message_accepted", "answered"],
      ["waits_for_retry"],
      ["next_post"],
    ]);
    expect(codes(chapters([told("not_answered", ""), told("not_targeted", "")]).past)).toEqual(["not_answered"]);
  });
  it("explains waiting or ending", () => {
    expect(answer(RETRIED)?.code).toBe("waits_for_retry");
    const ended = [
      ...RETRIED.story.slice(0, 4),
      told("ended_dead", "It ended as dead."),
      told("next_nothing", "Next: nothing."),
    ];
    expect(answer({ state: "dead", story: ended })?.code).toBe("ended_dead");
    expect(
      answer({ state: "none", story: [told("message_accepted", ""), told("not_targeted", "It was not for it.")] })
        ?.code,
    ).toBe("not_targeted");
    expect(answer({ state: "none", story: [] })).toBeUndefined();
  });
  it("is a complete report for a ticket", () => {
    const text = report(RETRIED, { app: "Shop (shop)", person: "ann", gateway: "fcm", lane: 3 });
    expect(text.split("\n").slice(0, 6)).toEqual([
      `Delivery of ${MESSAGE} to ${DEVICE}`,
      "App: Shop (shop) · Person: ann · Push service: Google · Lane: 3",
      "State at 2027-01-15T08:00:00.000Z: retrying (retrying)",
      "",
      "History",
      `- Message ${MESSAGE} of tier promotional was accepted at 2027-01-15T07:00:00Z (1 h ago).`,
    ]);
    expect(text).toContain("in its words “try later”");
    expect(text.indexOf("Current state")).toBeLessThan(text.indexOf("Next step"));
    expect(
      report({ ...RETRIED, story: [] }, { app: "Shop", person: undefined, gateway: undefined, lane: undefined }),
    ).not.toContain("History");
  });
});

describe("a row", () => {
  it.each([
    ["queued", "2027-01-15T09:00:00Z", undefined, "due 09:00"],
    ["queued", null, undefined, "its message is paused"],
    ["retrying", "2027-01-15T09:00:00Z", { status: 503, reason: "overloaded" }, "due 09:00; 503 overloaded"],
    ["accepted", null, { status: 201, took_ms: 40 }, "accepted in 40 ms"],
    ["dead", null, { status: 400, reason: "" }, "400"],
    ["cancelled", null, { status: null, reason: "unsubscribed" }, "unsubscribed"],
  ])("%s says its last words", (state, due_at, last_attempt, words) => {
    expect(lastWords({ state, due_at, last_attempt } as never, NOW, "UTC")).toBe(words);
  });
  it("has a label and colour for each state", () => {
    expect([stateWords("none").word, stateWords("dead").tone, stateWords("sleeping")]).toEqual([
      "No delivery",
      "lost",
      { word: "sleeping", tone: "cancelled" },
    ]);
    expect(shortId(DEVICE)).toBe("sub_…0d4e5f");
  });
});

describe("what may be done", () => {
  it("names the planned time and the single delivery", () => {
    expect(consequenceOf("retry", { gateway: "fcm", due_at: "2027-01-15T08:10:00Z" }, NOW, "UTC")).toContain(
      "now instead of 08:10 (in 10 min), for this one Google device",
    );
    expect(consequenceOf("retry", { due_at: "2027-01-15T07:00:00Z" }, NOW, "UTC")).toContain("it is due already");
    expect([aDevice("apple"), aDevice("fcm"), aDevice("other"), aDevice(undefined)]).toEqual([
      "an Apple device",
      "a Google device",
      "a device of another push service",
      "a device that was deleted",
    ]);
    expect(consequenceOf("cancel", { gateway: "mozilla" }, NOW, "UTC")).toMatch(
      /this one Mozilla device.*other recipients are not affected.*cannot be undone/,
    );
  });
});
