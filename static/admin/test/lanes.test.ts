import { describe, expect, it } from "vitest";
import type { LaneResponse, GatewayOrigin } from "../src/api/types";
import {
  because,
  consequence,
  laneState,
  ORDERS,
  restoreWords,
  sensible,
  services,
  stateOf,
  worstOrigin,
  originsOf,
} from "../src/lib/lanes";

const NOW = new Date("2027-01-15T08:00:00Z");

const origin = (more: Partial<GatewayOrigin> = {}): GatewayOrigin => ({
  origin: "https://push.example",
  breaker: "closed",
  breaker_of: null,
  changed_at: NOW.toISOString(),
  held_note: null,
  held_reason: null,
  held_until: null,
  open_s: null,
  open_until: null,
  payload_max: null,
  prober: null,
  ...more,
});

const lane = (...origins: GatewayOrigin[]): LaneResponse => ({
  lane: 3,
  app: "app_shop",
  vapid_key_id: "vk_1",
  gateway: "mozilla",
  subscriptions: 1_204,
  trips_last_hour: 0,
  origins,
});

const held = (reason: string, note: string | null = null) =>
  origin({ held_until: "2027-01-15T14:32:00Z", held_reason: reason, held_note: note });

describe("a lane", () => {
  it("is as its worst origin", () => {
    expect(laneState(lane())).toBe("flowing");
    expect(laneState(lane(origin(), origin({ breaker: "half_open" })))).toBe("probing");
    expect(laneState(lane(origin({ breaker: "half_open" }), origin({ breaker: "open" })))).toBe("open");
    expect(laneState(lane(origin({ breaker: "open" }), held("throttled")))).toBe("held");
    const longest = origin({ held_until: "2027-01-16T00:00:00Z", held_reason: "throttled" });
    expect(worstOrigin(lane(held("throttled"), longest))).toBe(longest);
  });

  it.each([
    [lane(), "Mozilla accepts deliveries"],
    [lane(held("throttled")), "Mozilla asked for a pause until 14:32"],
    [
      lane(held("operator", "their status page is red")),
      "An operator holds Mozilla until 14:32: their status page is red",
    ],
    [
      lane(held("mass_gone")),
      "Mozilla suddenly reports many subscriptions as gone; on hold until 14:32, none is pruned yet",
    ],
    [lane(held("key_refused")), "Mozilla refuses the VAPID key; on hold until 14:32"],
    [
      lane(origin({ breaker: "open", open_until: "2027-01-15T08:01:00Z" })),
      "Mozilla kept failing; nothing is sent until 08:01, then one probe",
    ],
    [lane(origin({ breaker: "half_open" })), "Mozilla is being probed; sending resumes after the first success"],
  ])("says why it stands so", (lane, words) => expect(because(lane, NOW, "UTC")).toBe(words));

  it("is healthy, or names its worst state", () => {
    expect(stateOf([lane(), lane()])).toEqual({ word: "Healthy", tone: "accepted" });
    expect(stateOf([lane(), lane(held("throttled"))])).toEqual({ word: "Held for 1 of 2", tone: "retrying" });
    expect(stateOf([lane(held("throttled"))]).word).toBe("Held");
  });

  it("groups apps by push service, worst first", () => {
    const google: LaneResponse = { ...lane(), lane: 4, gateway: "fcm", subscriptions: 9 };
    const grouped = services([google, { ...lane(), lane: 5 }, lane(held("throttled"))]);
    expect(
      grouped.map(({ gateway, lanes, subscriptions }) => [gateway, lanes.map(({ lane }) => lane), subscriptions]),
    ).toEqual([
      ["mozilla", [3, 5], 2_408],
      ["fcm", [4], 9],
    ]);
  });

  it("offers what would change something", () => {
    expect([sensible("held")[0], sensible("open")[0], sensible("flowing")]).toEqual([
      "release",
      "close",
      ["hold", "open", "probe"],
    ]);
  });
});

describe("a restore", () => {
  it.each([
    [1, undefined, "one subscription would be active again."],
    [1_204, undefined, "1,204 subscriptions would be active again."],
    [1, 1, "one subscription is active again."],
    [1_204, 1_200, "1,200 subscriptions are active again."],
  ])("says how many", (found, restored, words) => expect(restoreWords(found, restored)).toBe(words));
});

describe("an order", () => {
  it("names its effect and number", () => {
    const words = consequence("hold", lane(), { waiting: 8_120, waiting_or_more: false });
    expect(words).toContain("Nothing is sent to Mozilla");
    expect(words).toContain("8,120 deliveries wait there now.");
    expect(words).toContain("1,204 active subscriptions");
    expect(consequence("release", lane(), { waiting: 1, waiting_or_more: false })).toContain(
      "One delivery waits there now.",
    );
    expect(consequence("close", lane(), { waiting: 10_000, waiting_or_more: true })).toContain(
      "≥ 10,000 deliveries wait there now.",
    );
  });

  it("admits unknown numbers", () => {
    for (const order of ORDERS) expect(consequence(order, lane(), undefined)).toContain("unknown at the moment");
  });
});

it("lists a hold of all origins once", () => {
  const held = { held_until: "2027-01-15T09:00:00Z", held_reason: "operator" } as const;
  const all = origin({ ...held, origin: "*" });
  const [same, other, broken] = [
    origin(held),
    origin({ held_until: "2027-01-15T10:00:00Z", held_reason: "throttled" }),
    origin({ ...held, breaker: "open" }),
  ];
  expect(originsOf(lane(all, same, other, broken))).toEqual([all, other, broken]);
  expect(originsOf(lane(same))).toEqual([same]);
});
