import { describe, expect, it } from "vitest";
import type { CalendarSettings, ChartResponse, LaneResponse, VapidKeyResponse } from "../src/api/types";
import {
  byGateway,
  byKey,
  erasureWords,
  growth,
  health,
  isBare,
  mutedWords,
  quiet,
  rangeOf,
  timeIn,
  whatErasureTakes,
  type Growth,
} from "../src/lib/subscribers";

const NOW = new Date("2027-01-15T21:30:00Z");
const DAYS = ["2027-01-13T00:00:00Z", "2027-01-14T00:00:00Z", "2027-01-15T00:00:00Z"];

const chart = (data: object[]): ChartResponse =>
  ({ data, metadata: { from: DAYS[0], complete_until: NOW.toISOString() } }) as unknown as ChartResponse;
const won = chart(
  DAYS.map((time_bucket, n) => ({
    time_bucket,
    dimensions: {},
    metrics: { subscriptions_won: n, subscriptions_active: 100 + n },
  })),
);
const lost = chart([
  { time_bucket: DAYS[2], dimensions: { reason: "gone" }, metrics: { subscriptions_lost: 2 } },
  { time_bucket: DAYS[0], dimensions: { reason: "replaced" }, metrics: { subscriptions_lost: 1 } },
]);

const grown = (won: number, lost: Partial<Growth["lost"]>, active: number): Growth => ({
  at: [0],
  won: [won],
  lost: { gone: [0], unsubscribed: [0], suspended: [0], expired: [0], replaced: [0], deleted: [0], ...lost },
  active,
});

describe("growth", () => {
  it("has a column per day without gaps", () => {
    const found = growth(won, lost);
    expect(found.at).toEqual(DAYS.map((day) => Date.parse(day) / 1_000));
    expect([found.won, found.lost.gone, found.lost.replaced, found.lost.expired]).toEqual([
      [0, 1, 2],
      [0, 0, 2],
      [1, 0, 0],
      [0, 0, 0],
    ]);
    expect(found.active).toBe(102);
  });
  it.each([
    [
      grown(30, { gone: [10] }, 1_020),
      "accepted",
      "1,020 active subscriptions, +20 within 30 days: 30 gained, 10 lost.",
    ],
    [grown(0, {}, 5), "waiting", "5 active subscriptions; none gained or lost within 30 days."],
    [grown(3, { gone: [8] }, 995), "retrying", "995 active subscriptions, −5 within 30 days: 3 gained, 8 lost."],
    [grown(9, { replaced: [4] }, 105), "accepted", "105 active subscriptions, +5 within 30 days: 5 gained, 0 lost."],
    [
      grown(0, { gone: [40] }, 60),
      "lost",
      "60 active subscriptions, −40 within 30 days: 0 gained, 40 lost. 40 % were lost for one reason: gone.",
    ],
  ])("is told in one sentence", (of, tone, words) => expect(health(of, 30)).toEqual({ tone, words }));
  it("is drawn for an empty zoomed part", () => {
    expect([
      isBare(grown(0, {}, 0), false),
      isBare(grown(0, {}, 0), true),
      isBare(grown(0, { gone: [1] }, 0), false),
    ]).toEqual([true, false, false]);
  });
  it("is requested in the available ranges", () => {
    expect([rangeOf("90"), rangeOf(undefined), rangeOf("31")]).toEqual([90, 30, 30]);
  });
});

describe("the base", () => {
  it("is listed by push service, largest first", () => {
    const point = (gateway: string, active: number) => ({
      dimensions: { gateway },
      metrics: { subscriptions_active: active, subscriptions_won: 0, subscriptions_lost: 0 },
    });
    expect(
      byGateway(chart([point("mozilla", 2), point("apple", 0), point("fcm", 7)])).map(({ title, active }) => [
        title,
        active,
      ]),
    ).toEqual([
      ["Google", 7],
      ["Mozilla", 2],
    ]);
  });
  it("is listed by key, active one first", () => {
    const key = (id: string, state: string, created_at: string) => ({ id, state, created_at }) as VapidKeyResponse;
    const lane = (vapid_key_id: string, subscriptions: number) => ({ vapid_key_id, subscriptions }) as LaneResponse;
    const keys = [
      key("vk_1", "retired", "2025-01-01"),
      key("vk_3", "active", "2024-01-01"),
      key("vk_2", "retired", "2026-01-01"),
    ];
    const found = byKey(keys, [lane("vk_3", 5), lane("vk_1", 2), lane("vk_3", 1)]);
    expect(found.map(({ key, active }) => [key.id, active])).toEqual([
      ["vk_3", 6],
      ["vk_2", 0],
      ["vk_1", 2],
    ]);
  });
});

describe("quiet hours", () => {
  const calendar = (from: string, to: string): CalendarSettings =>
    ({ timezone: "Europe/Vienna", quiet_hours: { from, to }, off_peak: [] }) as CalendarSettings;
  it("follow the person's zone over midnight", () => {
    expect(quiet(calendar("22:00", "08:00"), undefined, NOW)).toBe(
      "Quiet from 22:00 to 08:00 in Europe/Vienna (the app’s default: no browser reported one). It is 22:30 there. Promotional and engagement messages wait now.",
    );
    expect(quiet(calendar("22:00", "08:00"), "America/New_York", NOW)).toBe(
      "Quiet from 22:00 to 08:00 in America/New_York (reported by the browser). It is 16:30 there.",
    );
    expect(quiet(calendar("16:00", "17:00"), "America/New_York", NOW)).toContain("wait now");
  });
  it("may be absent, with an unknown zone", () => {
    expect(quiet({ timezone: "UTC", quiet_hours: null, off_peak: [] }, "Mars/Olympus", NOW)).toBe(
      "No quiet hours. Time zone: Mars/Olympus (reported by the browser).",
    );
    expect(timeIn("Mars/Olympus", NOW)).toBeUndefined();
  });
});

describe("an erasure", () => {
  it("says what will go, and to how many", () => {
    const [devices] = whatErasureTakes([{ state: "active" }, { state: "gone" }], true);
    expect(devices).toBe(
      "2 devices (one of them still subscribed): endpoints, keys, tags, attributes, topics, language and time zone.",
    );
    expect(whatErasureTakes([{ state: "gone" }], false)[0]).toMatch(/^More than one device \(none of them/);
  });
  it("says how far it has come", () => {
    expect(erasureWords({ subscriptions: 2, messages: 1, completed_at: null })).toMatch(
      /^In progress: .*2 devices deleted, and removed from one message/,
    );
    expect(erasureWords({ subscriptions: 1, messages: 0, completed_at: NOW.toISOString() })).toMatch(
      /^Done\. One device .*No record names this person now\.$/,
    );
  });
});

it("names the end of a mute", () => {
  const words = (muted: Parameters<typeof mutedWords>[0]) => mutedWords(muted, NOW, (at) => at.toISOString());
  expect([null, undefined, { until: null }, {}].map(words)).toEqual([
    undefined,
    undefined,
    "Only important messages, without an end.",
    "Only important messages, without an end.",
  ]);
  expect(words({ until: "2027-01-20T10:00:00Z" })).toBe("Only important messages until 2027-01-20T10:00:00.000Z.");
  expect(words({ until: "2027-01-15T21:30:00Z" })).toBeUndefined();
});
