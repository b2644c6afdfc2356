import { describe, expect, it } from "vitest";
import type { Cap, EngagementResponse, GatewayEngagement, GuardResponse } from "../src/api/types";
import {
  beforeWords,
  capDraft,
  capFaults,
  capOf,
  capsWords,
  limitWords,
  loads,
  NEW_CAP,
  rangeOf,
  releaseWords,
  sentence,
  shareWords,
} from "../src/lib/frequency";

const NOW = new Date("2026-11-22T14:10:00Z");
const GUARD: GuardResponse = {
  factor: null,
  floor: null,
  limit: 10_300,
  sent: { transactional: 20, other: 5_150 },
  held: [],
  held_at: null,
};

function at(
  gateway: GatewayEngagement["gateway"],
  level: GatewayEngagement["level"],
  displayed = 1_000,
  clicked = 50,
): GatewayEngagement {
  const period = {
    accepted: 2_000,
    receipts_asked: 2_000,
    displayed,
    clicked,
    closed: null,
    ignored: null,
    display_share: 0.5,
    click_share: 0.05,
    close_share: null,
    ignored_share: null,
  };
  return { gateway, level, now: period, before: period };
}

const engagement = (...gateways: GatewayEngagement[]): EngagementResponse => ({
  from: "2026-10-26T00:00:00Z",
  until: "2026-11-23T00:00:00Z",
  gateways,
});

describe("whether it is too much", () => {
  const says = (guard: Partial<GuardResponse>, ...gateways: GatewayEngagement[]) =>
    sentence({ ...GUARD, ...guard }, engagement(...gateways), 28, NOW, "UTC");

  it("shows the state before people's reactions", () => {
    const held = says({ held: ["promotional", "engagement"], held_at: "2026-11-22T14:02:00Z" }, at("fcm", "warning"));
    expect(held).toEqual({
      tone: "lost",
      words:
        "Promotional and engagement messages are on hold since 14:02: the app sent more than the guard allows for its size. They wait until an operator releases them.",
    });
    expect(says({ held: ["transactional"] }).words).toMatch(
      /^One-time codes and other transactional messages are on hold: /,
    );
  });

  it.each<[string, GatewayEngagement[], string, string]>([
    [
      "hardly anybody wants it",
      [at("fcm", "warning"), at("mozilla", "watch"), at("wns", "warning")],
      "lost",
      "in browsers of Google and Microsoft.",
    ],
    ["it turns", [at("fcm", "fine"), at("mozilla", "watch")], "retrying", "in browsers of Mozilla."],
    [
      "the state is unknown",
      [at("fcm", "unknown")],
      "cancelled",
      "Unknown: browsers reported too few displays in 28 days.",
    ],
    [
      "it is welcome",
      [at("fcm", "fine", 1_000, 50), at("mozilla", "fine", 3_000, 70), at("apple", "unknown", 9, 9)],
      "accepted",
      "Good: of 4,000 notifications shown in 28 days, 3 % were clicked.",
    ],
  ])("is what people make of it: %s", (_, gateways, tone, words) => {
    const said = says({}, ...gateways);
    expect([said.tone, said.words.endsWith(words) ? words : said.words]).toEqual([tone, words]);
  });
});

it("names the base of shares and unknown ones", () => {
  expect(shareWords(0.003, 1_000)).toEqual({ words: "0.3 %", of: "of 1,000" });
  expect([shareWords(null, 1_000), shareWords(undefined, 0)]).toEqual([
    { words: "–", of: undefined },
    { words: "–", of: undefined },
  ]);
  expect([beforeWords(0.12), beforeWords(null)]).toEqual(["12 % before", undefined]);
});

it("covers the selectable period", () => {
  expect([rangeOf("7"), rangeOf("8"), rangeOf(undefined)]).toEqual([7, 28, 28]);
});

describe("caps", () => {
  it.each<[Cap]>([
    [{ tiers: ["promotional", "engagement"], max: 2, window: "1d" }],
    [{ tiers: ["promotional"], max: 5, window: "12h" }],
    [{ tiers: ["engagement"], max: 50, window: "90s" }],
  ])("come back as they were: %j", (cap) => {
    expect(capOf(capDraft(cap))).toEqual(cap);
  });

  it("are shown in minutes if set in seconds", () => {
    expect(capOf(capDraft({ tiers: ["promotional"], max: 1, window: "3600s" })).window).toBe("60m");
  });

  it("have whole numbers within the server's bounds", () => {
    const cap = (max: string, window: string, unit: string) => capFaults({ tiers: "both", max, window, unit });
    expect(cap("2", "1", "d")).toEqual({ max: undefined, window: undefined });
    expect(cap("tw", "0", "h")).toEqual({
      max: "must be a whole number from 1 to 50",
      window: "must be a whole number from 1 to 720",
    });
    expect([cap("51", "31", "d"), cap("1", "60", "s").window]).toEqual([
      { max: "must be a whole number from 1 to 50", window: "must be a whole number from 1 to 30" },
      undefined,
    ]);
  });

  it("are said in sentences", () => {
    expect(capsWords([])).toEqual(["There are no caps: subscribers get every message sent to them."]);
    expect(capsWords([NEW_CAP, { tiers: "engagement", max: "1", window: "90", unit: "m" }])).toEqual([
      "A user gets at most 2 promotional and engagement messages together in 1 day.",
      "A user gets at most one engagement message in 1 h 30 min.",
    ]);
  });
});

describe("the guard", () => {
  it("shows sent messages against the limit", () => {
    expect(loads(GUARD).map(({ id, share, isHeld }) => [id, share, isHeld])).toEqual([
      ["other", 0.5, false],
      ["transactional", 20 / 10_300, false],
    ]);
    const held = loads({ ...GUARD, sent: { transactional: 0, other: 99_999 }, held: ["promotional", "engagement"] });
    expect([held[0]?.share, held[0]?.isHeld, held[1]?.isHeld]).toEqual([1, true, false]);
    expect(loads({ ...GUARD, limit: null })[0]?.share).toBeUndefined();
  });

  it("names the limit and its origin", () => {
    expect(limitWords(GUARD)).toMatch(/^Limit: 10,300 deliveries in 15 minutes \(the server’s default\)\./);
    expect(limitWords({ ...GUARD, floor: 5 })).toMatch(/\(set for this app\)\./);
    expect(limitWords({ ...GUARD, limit: null, factor: 0 })).toBe("The guard is disabled.");
  });

  it("names the effect of a release", () => {
    const held: GuardResponse = { ...GUARD, held: ["promotional", "engagement"] };
    const flow = { held: [], paused: false, waiting: 1_204, waiting_or_more: false };
    expect(releaseWords(held, flow)).toBe(
      "Promotional and engagement messages are sent again within a second: 1,204 deliveries wait. Cancel unwanted messages first. The count starts again at zero.",
    );
    expect(releaseWords(held, { ...flow, waiting: 10_000, waiting_or_more: true })).toMatch(
      /: more than 10,000 deliveries wait\./,
    );
    expect(releaseWords(held, undefined)).toBe(
      "Promotional and engagement messages are sent again within a second. Cancel unwanted messages first. The count starts again at zero.",
    );
  });
});
