import { describe, expect, test } from "vitest";
import type { PolicyPreviewResponse, Simulation, Timetable } from "../src/api/types";
import {
  changes,
  figures,
  ladder,
  marks,
  placeOf,
  saysSomething,
  summary,
  toDraft,
  toPolicy,
  verdict,
  type Draft,
} from "../src/lib/policies";

const draft = (form: Draft["form"], values: Record<string, string>): Draft => ({ form, values, json: "{}" });

describe("a form", () => {
  test.each([
    [
      "guide",
      { "/maxAttempts": "5", "/jitterPercent": "0.2", "/baseDelayMs": " " },
      { maxAttempts: 5, jitterPercent: 0.2 },
    ],
    [
      "sns",
      { "/healthyRetryPolicy/numRetries": "50", "/throttlePolicy/maxReceivesPerSecond": "10" },
      { healthyRetryPolicy: { numRetries: 50 }, throttlePolicy: { maxReceivesPerSecond: 10 } },
    ],
    [
      "qstash",
      { "/retries": "3", "/retryDelay": "pow(2, retried) * 1000" },
      { retries: 3, retryDelay: "pow(2, retried) * 1000" },
    ],
    ["preset", { "/preset": "guide", "/circuitOpenMs": "30000" }, { preset: "guide", circuitOpenMs: 30_000 }],
    ["guide", { "/maxAttempts": "many" }, { maxAttempts: "many" }],
  ] as const)("stands for a policy: %s %j", (form, values, policy) => {
    expect(toPolicy(draft(form, values), "tier")).toEqual(policy);
  });

  test.each([
    [{ maxAttempts: 5, jitterPercent: 0.2 }, "guide"],
    [
      {
        healthyRetryPolicy: { numRetries: 3, backoffFunction: "geometric" },
        requestPolicy: { headerContentType: "text/plain" },
      },
      "sns",
    ],
    [{ retries: 3, retryDelay: "1000", circuitOpenMs: 1_000 }, "qstash"],
    [{ preset: "sns-aws-managed" }, "preset"],
    [{ circuitOpenMs: 5_000 }, "guide"],
    [{ retries: 3, throttlePolicy: { maxReceivesPerSecond: 1 } }, "json"],
    [{ somethingNew: 1 }, "json"],
  ] as const)("shows what is stored, and gives it back: %j", (policy, form) => {
    const shown = toDraft(policy, "tier");
    expect(shown.form).toBe(form);
    expect(toPolicy(shown, "tier")).toEqual(policy);
  });

  test("has fields of tiers and topics only there", () => {
    expect(toDraft({ disableSubscriptionOverrides: true }, "topic").values).toEqual({
      "/disableSubscriptionOverrides": "true",
    });
    expect(toDraft({ disableSubscriptionOverrides: true }, "tier").form).toBe("json");
    expect(toPolicy(draft("guide", { "/circuitOpenMs": "1" }), "subscription")).toEqual({});
  });

  test("says why a text is no policy", () => {
    expect(toPolicy({ ...draft("json", {}), json: '{"retries": 3' }, "tier")).toEqual(expect.any(String));
    expect(toPolicy({ ...draft("json", {}), json: "[1]" }, "tier")).toContain("object");
    expect(saysSomething("no JSON") || saysSomething({})).toBe(false);
    expect(saysSomething({ retries: 0 })).toBe(true);
  });
});

const table = (delays: readonly [n: number, delay: number][]): Timetable => {
  let [retry, elapsed] = [0, 0];
  const rows = delays.map(([n, delay_s]) => {
    const first = retry + 1;
    [retry, elapsed] = [retry + n, elapsed + n * delay_s];
    return {
      first,
      last: retry,
      phase: "backoff" as const,
      delay_s,
      shortest_s: delay_s * 0.8,
      longest_s: delay_s * 1.2,
      elapsed_s: elapsed,
    };
  });
  return {
    form: "guide",
    retries: retry,
    posts: retry + 1,
    window_s: elapsed,
    shortest_window_s: elapsed * 0.8,
    longest_window_s: elapsed * 1.2,
    rows,
  };
};

describe("a timetable", () => {
  test("in one sentence", () => {
    expect(summary(table([]))).toBe("No retries");
    expect(summary(table([[1, 0]]))).toBe("one retry, immediately");
    expect(
      summary(
        table([
          [1, 1],
          [1, 2],
        ]),
      ),
    ).toBe("2 retries within 3 s");
  });

  test("has a range for each wait", () => {
    const { rungs, left } = ladder(
      table([
        [1, 0],
        [1, 10],
        [3, 20],
      ]),
      25,
    );
    expect(left).toBe(0);
    expect(rungs.map(({ label, wait, first, last, isTooLate }) => [label, wait, first, last, isTooLate])).toEqual([
      ["1", "immediately", 0, 0, false],
      ["2", "8 s – 12 s", 10, 10, false],
      ["3–5", "16 s – 24 s", 30, 70, true],
    ]);
    expect(rungs[2]).toMatchObject({ earliest: 24, latest: 84 });
  });

  test("omits lines in the middle", () => {
    const { rungs, left } = ladder(table(Array.from({ length: 100 }, (_, n) => [1, n + 1])), 1e9);
    expect([rungs.length, left, rungs.at(-1)?.label]).toEqual([16, 84, "100"]);
  });

  test("axis runs from seconds to days", () => {
    expect(placeOf(0, 100)).toBe(0);
    expect(placeOf(100, 100)).toBe(1);
    expect(placeOf(200, 100)).toBe(1);
    expect(marks(90_000).map(({ words }) => words)).toEqual(["1 s", "10 s", "1 min", "10 min", "1 h", "6 h"]);
    expect(marks(0.5)).toEqual([]);
  });
});

const preview = (delays: readonly [number, number][], policy: object = {}): PolicyPreviewResponse => ({
  tier: "promotional",
  ttl_s: 86_400,
  policy: policy as PolicyPreviewResponse["policy"],
  set_by: { retry: "default", throttle: "default", request: "default" },
  timetable: table(delays),
});

test("change shows values before and after", () => {
  const [before, fewer] = [preview([[8, 10]], { circuitOpenMs: 30_000 }), preview([[5, 10]], { circuitOpenMs: 5_000 })];
  const told = changes(before, fewer);
  expect(told[0]).toBe("5 retries within 50 s. Before: 8 retries within 1 min 20 s.");
  expect(told[1]).toContain("its next failure is final");
  expect(told[2]).toBe("First open period: 5000, before 30000.");
  expect(changes(fewer, before).join()).not.toContain("under way");
  expect(
    changes(
      preview([
        [1, 10],
        [1, 20],
      ]),
      preview([
        [1, 20],
        [1, 10],
      ]),
    ),
  ).toEqual(["2 retries within 30 s, as before, but with other delays."]);
  expect(changes(before, before)).toEqual(["The effective policy does not change."]);
});

const report = (more: Partial<Simulation["report"]>): Simulation["report"] => ({
  deliveries: 10_000,
  posts: 12_000,
  posts_per_delivery: 1.2,
  posts_in_vain: 2_000,
  accepted_at_once: 8_000,
  accepted_after_retry: 2_000,
  gone: 0,
  expired: 0,
  dead: {},
  to_acceptance: { p50_s: 0.05, p95_s: 30, p99_s: 61, max_s: 90 },
  peak_per_s: 300,
  peak_at_s: 91,
  recovery: null,
  breaker_trips: 2,
  holds: 0,
  deferrals: 10,
  load: { bucket_s: 1, posts_per_s: [], accepted_per_s: [] },
  ...more,
});

const simulation = (tried: Partial<Simulation["report"]>, today?: Partial<Simulation["report"]>): Simulation => ({
  scenario: "outage",
  tier: "promotional",
  ttl_s: 86_400,
  outages: [],
  report: report(tried),
  today: today ? report(today) : null,
});

test.each([
  [simulation({}), "None of 10,000 deliveries is lost.", true],
  [simulation({ expired: 30, dead: { retries_exhausted: 70 } }), "100 of 10,000 deliveries are lost (1 %).", false],
  [simulation({ expired: 30 }, {}), "30 of 10,000 deliveries are lost (0.3 %); with the current policy: none.", false],
  [
    simulation({ expired: 30 }, { expired: 200 }),
    "30 of 10,000 deliveries are lost (0.3 %); with the current policy: 200.",
    true,
  ],
  [
    simulation({ expired: 30 }, { dead: { retries_exhausted: 30 } }),
    "30 of 10,000 deliveries are lost (0.3 %); the same as with the current policy.",
    true,
  ],
])("trial is judged by its losses: %#", (found, words, isGood) => {
  expect(verdict(found)).toEqual({ words, isGood });
});

test("trial figures are next to current ones", () => {
  const shown = figures(simulation({ to_acceptance: null }, {}));
  const of = (name: string) => shown.find((figure) => figure.name === name);
  expect(of("Accepted on the first request")).toEqual({
    name: "Accepted on the first request",
    tried: "8,000 (80 %)",
    today: "8,000 (80 %)",
  });
  expect(of("99 % accepted within")).toMatchObject({ tried: "–", today: "1 min 1 s" });
  expect(figures(simulation({}))[0]?.today).toBeUndefined();
});
