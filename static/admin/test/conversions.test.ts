import { describe, expect, it } from "vitest";
import type { AppResult, CampaignResult, ConversionResult, LiftResult } from "../src/api/types";
import {
  causedWords,
  groupRows,
  groupWords,
  liftAxis,
  liftBars,
  liftLines,
  quarterBefore,
  quarterOf,
  quarters,
  quarterWords,
  resultRows,
} from "../src/lib/conversions";
import { csvOf } from "../src/lib/export";

const lift = (more: Partial<LiftResult> = {}): LiftResult => ({
  effect: "more",
  relative: { low: 0.142, value: 0.17, high: 0.198 },
  additional: { low: 1_012, value: 1_260, high: 1_498, standard_error: 121 },
  people_needed: null,
  values: [
    {
      currency: "EUR",
      effect: "more",
      additional: { low: 18_910, value: 26_000, high: 33_860, standard_error: 3_700 },
    },
  ],
  ...more,
});
const conversion = (more: Partial<ConversionResult> = {}): ConversionResult => ({
  name: "order",
  attributed: { conversions: 900, people: 850, values: [{ currency: "EUR", value: 44_910.5, per_delivery: 0.45 }] },
  groups: [
    { group: "", converted: 8_000, conversions: 8_700, rate: 0.08 },
    { group: "control", converted: 700, conversions: 740, rate: 0.07 },
  ],
  lift: lift(),
  ...more,
});
const result = (more: Partial<CampaignResult> = {}): CampaignResult => ({
  began_at: "2026-12-01T09:00:00Z",
  closes_at: "2026-12-08T09:00:00Z",
  is_final: false,
  summary: "14.2 to 19.8 % more `order`, so far.",
  accepted: 100_000,
  unsubscribed: 12,
  groups: [
    { group: "", people: 100_000 },
    { group: "control", people: 10_000 },
  ],
  conversions: [conversion()],
  ...more,
});

describe("groups", () => {
  it("have names and their number of people", () => {
    expect(groupRows(result())).toEqual([
      { name: "order", group: "", people: 100_000, converted: 8_000, rate: 0.08 },
      { name: "order", group: "control", people: 10_000, converted: 700, rate: 0.07 },
    ]);
    expect(["", "control", "after_test", "B"].map(groupWords)).toEqual([
      "Campaign",
      "Control group",
      "After the test",
      "B",
    ]);
  });

  it("are no rows without a comparison", () => {
    expect(groupRows(result({ groups: [], conversions: [conversion({ groups: [], lift: null })] }))).toEqual([]);
  });
});

describe("an effect", () => {
  it("is a bar on an axis around 0", () => {
    const bars = liftBars([
      conversion(),
      conversion({ name: "sign_up", lift: lift({ relative: { low: -0.32, value: -0.1, high: 0.12 } }) }),
      conversion({ name: "visit", lift: lift({ relative: null }) }),
      conversion({ name: "call", lift: null }),
    ]);
    expect(bars).toEqual([
      { name: "order", mark: 0.17, from: 0.142, to: 0.198 },
      { name: "sign_up", mark: -0.1, from: -0.32, to: 0.12 },
    ]);
    expect([liftAxis(bars), liftAxis([])]).toEqual([0.5, 0.01]);
  });

  it("is an interval of conversions and money", () => {
    expect(liftLines(lift())).toEqual(["1,000 to 1,500 more conversions", "19,000 to 34,000 EUR more"]);
  });

  it("may be chance if the interval includes 0", () => {
    expect(causedWords({ low: -20.4, value: 55, high: 130 })).toBe("−20 to 130, may be chance");
    expect(causedWords({ low: -1_340, value: -900, high: -460 }, "EUR")).toBe("−1,300 to −460 EUR");
  });

  it("states how many people are missing", () => {
    const needed = "A difference of 10 % needs about 12,000 more people to be seen.";
    expect(liftLines(lift({ effect: "too_few", additional: null, relative: null, people_needed: 12_000 }))).toEqual([
      "Too few conversions to compare.",
      needed,
    ]);
    const none = lift({
      effect: "none",
      additional: { low: -5, value: 1, high: 7 },
      values: [],
      people_needed: 12_000,
    });
    expect(liftLines(none)).toEqual(["−5 to 7 more conversions, may be chance", needed]);
  });
});

describe("a file of results", () => {
  it("has a row for each period and kind", () => {
    const rows = resultRows([
      result({ conversions: [conversion(), conversion({ name: "sign_up", lift: null })] }),
      result({ began_at: "2026-09-01T09:00:00Z", conversions: [], summary: "No conversions." }),
    ]);
    expect(rows.map((row) => (row as { conversion?: string }).conversion)).toEqual(["order", "sign_up", undefined]);
  });

  it("has a column for each currency and group", () => {
    const [head = "", row = ""] = csvOf(resultRows([result()])).split("\r\n");
    const names = head.split(",");
    expect(names).toEqual(
      expect.arrayContaining([
        "conversion",
        "attributed",
        "value.EUR.sum",
        "value.EUR.per_delivery",
        "relative.low",
        "additional.high",
        "additional_value.EUR.value",
        "group.campaign.people",
        "group.control.rate",
      ]),
    );
    expect(row).toContain("44910.5,0.45");
  });
});

describe("a quarter", () => {
  it("is one of UTC, with those before it", () => {
    expect(["2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z"].map((at) => quarterOf(new Date(at)))).toEqual([
      "2026-Q4",
      "2027-Q1",
    ]);
    expect([quarterBefore("2026-Q4"), quarterBefore("2026-Q1")]).toEqual(["2026-Q3", "2025-Q4"]);
    const now = new Date("2026-05-01T00:00:00Z");
    expect(quarters(now, undefined).slice(0, 3)).toEqual(["2026-Q2", "2026-Q1", "2025-Q4"]);
    expect([quarters(now, "2026-Q1").length, quarters(now, "2020-Q1").at(-1)]).toEqual([8, "2020-Q1"]);
  });

  const caused = (more: Partial<AppResult> = {}): AppResult => ({
    quarter: "2026-Q4",
    campaigns: 4,
    is_final: true,
    conversions: [
      { name: "order", currency: "EUR", additional: { low: 1_212, value: 1_800, high: 2_390 } },
      { name: "order", currency: null, additional: { low: 80, value: 105, high: 130 } },
      { name: "sign_up", currency: null, additional: { low: -12, value: 4, high: 20 } },
    ],
    ...more,
  });
  const words = (result: AppResult) => quarterWords(result).map(({ words }) => words);

  it("has a sentence for each kind of conversion", () => {
    expect(words(caused())).toEqual([
      "Campaigns caused 1,200 to 2,400 EUR and 80 to 130 conversions of `order` in 2026-Q4.",
      "No measurable effect of campaigns on `sign_up` in 2026-Q4.",
    ]);
    expect(words(caused({ is_final: false }))[1]).toBe(
      "No measurable effect of campaigns on `sign_up` in 2026-Q4, so far.",
    );
    expect(words(caused({ conversions: [] }))).toEqual([]);
  });

  it("names the kind if only value changed", () => {
    const conversions = [
      { name: "order", currency: "EUR", additional: { low: -2_390, value: -1_800, high: -1_212 } },
      { name: "order", currency: null, additional: { low: -5, value: 1, high: 7 } },
    ];
    expect(words(caused({ conversions }))).toEqual(["Campaigns caused 1,200 to 2,400 EUR less by `order` in 2026-Q4."]);
  });

  it("may have fewer conversions because of campaigns", () => {
    const conversions = [{ name: "order", additional: { low: -130, value: -105, high: -80 } }];
    expect(words(caused({ conversions }))).toEqual([
      "Campaigns caused 80 to 130 fewer conversions of `order` in 2026-Q4.",
    ]);
  });
});
