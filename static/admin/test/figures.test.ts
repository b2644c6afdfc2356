import { describe, expect, it } from "vitest";
import type { AlertResponse, ChartResponse, LaneResponse, MetricReading } from "../src/api/types";
import { firstCreation, funnel, perMinute, sentence, sliWords, throughput } from "../src/lib/figures";

const NOW = new Date("2027-01-15T08:00:00Z");

const lane = (number: number, gateway: LaneResponse["gateway"], more: object = {}): LaneResponse => ({
  lane: number,
  app: "app_shop",
  vapid_key_id: "vk_1",
  gateway,
  subscriptions: 10,
  trips_last_hour: 0,
  origins:
    Object.keys(more).length === 0 ? [] : [{ origin: "*", breaker: "closed", changed_at: NOW.toISOString(), ...more }],
});
const paused = { held_until: "2027-01-15T14:32:00Z", held_reason: "throttled" };
const nothing = { waiting: 0, waiting_or_more: false, oldest_waiting_s: null };
const alert = (detail: string, resolved_at: string | null = null) => ({ detail, resolved_at }) as AlertResponse;
const say = (known: Parameters<typeof sentence>[0]) => sentence(known, NOW, "UTC").words;

describe("the sentence", () => {
  it("says that all is well, and how fast", () => {
    expect(
      say({
        perMinute: 12_400,
        queue: nothing,
        lanes: [lane(1, "fcm")],
        alerts: [alert("old", "2027-01-01T00:00:00Z")],
      }),
    ).toBe("All well: 12,400 per minute, nothing is waiting.");
    expect(say({ perMinute: 0, queue: nothing })).toBe("All well: idle, nothing is waiting.");
    expect(say({ perMinute: 120, queue: { waiting: 1, waiting_or_more: false, oldest_waiting_s: 2 } })).toBe(
      "All well: 120 per minute, 1 waits.",
    );
    expect(say({})).toBe("All well: idle.");
  });

  it("names the app of a held lane", () => {
    const held = { held_until: "2027-01-15T14:32:00Z", held_reason: "operator" };
    const lanes = [lane(1, "apple", held)];
    const [shop, news] = [
      { id: "app_shop", name: "Shop" },
      { id: "app_news", name: "News" },
    ];
    expect(say({ lanes, apps: [shop, news] })).toBe("Shop: an operator holds Apple until 14:32.");
    expect(say({ lanes, apps: [shop] })).toBe("An operator holds Apple until 14:32.");
  });

  it("names held lanes first, with waiting deliveries", () => {
    const queue = { waiting: 8_120, waiting_or_more: false, oldest_waiting_s: 4_000 };
    const known = {
      perMinute: 100,
      queue,
      lanes: [lane(1, "fcm"), lane(2, "mozilla", paused)],
      alerts: [alert("a key is refused")],
    };
    expect(sentence(known, NOW, "UTC")).toEqual({
      tone: "retrying",
      words: "Mozilla asked for a pause until 14:32; 8,120 wait.",
      path: "/push-services/2",
    });
    const both = {
      ...known,
      lanes: [lane(1, "fcm", { breaker: "open" }), lane(2, "mozilla", paused), lane(3, "apple")],
    };
    expect(sentence(both, NOW, "UTC")).toEqual({
      tone: "lost",
      words: "2 push services have a problem (Google, Mozilla); 8,120 wait.",
      path: "/push-services",
    });
  });

  it("continues with alerts and delays", () => {
    expect(say({ alerts: [alert("A key is refused")] })).toBe("A key is refused.");
    expect(sentence({ alerts: [{ ...alert("shop is held"), kind: "runaway" }] }, NOW, "UTC").path).toBe("/frequency");
    expect(say({ alerts: [alert("A key is refused."), alert("b")] })).toBe(
      "2 alerts are open. The latest: A key is refused.",
    );
    expect(say({ queue: { waiting: 10_000, waiting_or_more: true, oldest_waiting_s: 420 } })).toBe(
      "Sending is late: ≥ 10,000 wait, the oldest for 7 min.",
    );
  });
});

const chart = (points: Record<string, number | null>[], complete_until: string): ChartResponse => ({
  data: points.map((metrics, minute) => ({
    time_bucket: new Date(Date.UTC(2027, 0, 15, 7, minute)).toISOString(),
    dimensions: {},
    metrics: metrics as ChartResponse["data"][number]["metrics"],
  })),
  metadata: {
    step: "1m",
    from: "2027-01-15T07:00:00Z",
    until: "2027-01-15T08:00:00Z",
    complete_until,
    row_count: points.length,
  },
});

describe("throughput", () => {
  const shown = throughput(
    chart([{ accepted: 5, dead: 1 }, { accepted: 7, gone: null }, { accepted: 2 }], "2027-01-15T07:02:00Z"),
  );

  it("has a column for each outcome, zeros included", () => {
    expect(shown.ended.accepted).toEqual([5, 7, 2]);
    expect([shown.ended.gone, shown.ended.dead]).toEqual([
      [0, 0, 0],
      [1, 0, 0],
    ]);
    expect(shown.at[1]! - shown.at[0]!).toBe(60);
  });

  it("begins with the creation of the app", () => {
    const whole = chart([{ accepted: 0 }, { accepted: 0 }, { accepted: 7 }, { accepted: 2 }], "2027-01-15T07:02:00Z");
    const created = (time: string) => throughput(whole, new Date(time)).ended.accepted;
    expect(created("2027-01-15T07:01:30Z")).toEqual([0, 7, 2]);
    expect(created("2027-01-15T07:03:30Z")).toEqual([7, 2]);
    expect(created("2026-01-15T07:03:30Z")).toEqual([0, 0, 7, 2]);
    expect(firstCreation([{ created_at: "2027-01-15T07:00:00Z" }, { created_at: "2026-01-15T07:00:00Z" }])).toEqual(
      new Date("2026-01-15T07:00:00Z"),
    );
  });

  it("reads the last complete minute", () => {
    expect(perMinute(shown)).toBe(7);
    expect(perMinute(throughput(chart([{ accepted: 5 }], "2027-01-15T07:00:30Z")))).toBe(0);
  });
});

describe("the funnel", () => {
  it("distinguishes unknown from unreported", () => {
    expect(funnel({ accepted: 100, receipts_asked: 80, displayed: 60, clicked: 12 })).toEqual({
      accepted: 100,
      asked: 80,
      displayed: 60,
      clicked: 12,
      unknowable: 20,
      silent: 20,
    });
  });

  it("is never negative despite late receipts", () => {
    expect(funnel({ accepted: 1, receipts_asked: 1, displayed: 5, clicked: 0 })).toMatchObject({
      unknowable: 0,
      silent: 0,
    });
    expect(funnel({})).toMatchObject({ accepted: 0, unknowable: 0, silent: 0 });
  });
});

describe("a reliability figure", () => {
  const reading = (value: number | null, more: Partial<MetricReading> = {}): MetricReading => ({
    sli: "first_retry_success",
    value,
    samples: 1_204,
    target: 0.85,
    alert: 0.6,
    state: "ok",
    ...more,
  });

  it("has value, target, verdict and trend", () => {
    expect(sliWords(reading(0.91), reading(0.7))).toEqual({
      title: "First retry succeeds",
      value: "91 %",
      target: "more than 85 %",
      trend: "better",
      verdict: "On target",
      tone: "accepted",
      samples: "1,204 deliveries that were retried",
    });
  });

  it("is better when lower, if lower is wanted", () => {
    const stretch = { sli: "backoff_stretch", target: 1.5, alert: 3 } as const;
    expect(sliWords(reading(1.2, stretch), reading(2.4, stretch))).toMatchObject({
      trend: "better",
      value: "1.2 ×",
      target: "less than 1.5 ×",
    });
    expect(sliWords(reading(2.4, stretch), reading(1.2, stretch)).trend).toBe("worse");
    expect(sliWords(reading(0.9), reading(0.89)).trend).toBe("steady");
  });

  it("says nothing of what was not measured", () => {
    expect(sliWords(reading(null, { state: "unknown", samples: 0 }), undefined)).toMatchObject({
      value: "–",
      trend: undefined,
      verdict: "Too few samples",
    });
  });
});
