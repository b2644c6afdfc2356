import { describe, expect, it } from "vitest";
import type { CampaignResult, ConversionResult, LiftResult } from "../src/api/types";
import { causedWords, groupRows, groupWords, liftAxis, liftBars, liftLines, resultRows } from "../src/lib/conversions";
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

  it("is an interval of conversions and of each currency", () => {
    expect(liftLines(lift())).toEqual(["1,000 to 1,500", "19,000 to 34,000 EUR"]);
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
    expect(liftLines(none)).toEqual(["−5 to 7, may be chance", needed]);
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
