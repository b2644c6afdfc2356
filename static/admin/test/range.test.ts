import { describe, expect, it } from "vitest";
import { barsWithin, changeOf, daysOf, pointsOf, rangeFault, rangeOf, zoomOf, zoomText } from "../src/lib/range";

const NOW = new Date("2027-01-15T08:00:20Z");
const at = (time: string) => `2027-01-${time}.000Z`;

describe("a range", () => {
  it.each([
    [{}, at("15T07:01:00"), "1m", at("15T06:01:00")],
    [{ range: "day" }, at("14T08:01:00"), "1h", at("13T08:01:00")],
    [{ range: "week" }, at("08T08:01:00"), "6h", at("01T08:01:00")],
    [{ range: "month" }, "2026-12-16T08:01:00.000Z", "1d", "2026-11-16T08:01:00.000Z"],
    [{ range: "nonsense" }, at("15T07:01:00"), "1m", at("15T06:01:00")],
  ])("of %o begins in time", (filters, since, step, before) => {
    const range = rangeOf(filters, NOW);
    expect([range.since, range.until, range.step]).toEqual([since, at("15T08:01:00"), step]);
    expect(range.before).toEqual({ since: before, until: since });
  });

  it("has custom days", () => {
    const range = rangeOf({ range: "custom", from: "2027-01-04", to: "2027-01-05" }, NOW);
    expect(range).toMatchObject({
      id: "custom",
      since: at("04T00:00:00"),
      until: at("06T00:00:00"),
      step: "1h",
      before: { since: at("02T00:00:00"), until: at("04T00:00:00") },
    });
    expect(rangeOf({ range: "custom", from: "2027-01-15", to: "2027-02-01" }, NOW).until).toBe(at("15T08:01:00"));
    expect(rangeOf({ range: "custom", from: "2027-01-05", to: "2027-01-04" }, NOW).since).toBe(at("14T08:01:00"));
    expect(rangeOf({ range: "custom" }, NOW).since).toBe(at("14T08:01:00"));
  });

  it("begins with the creation of the app", () => {
    const young = rangeOf({ range: "month" }, NOW, new Date("2027-01-15T07:51:30Z"));
    expect([young.since, young.step]).toEqual([at("15T07:51:00"), "1m"]);
    expect(young.before.until).toBe("2026-12-16T08:01:00.000Z");
    expect(rangeOf({}, NOW, new Date("2027-01-15T08:00:50Z")).since).toBe(at("15T08:00:00"));
    expect(rangeOf({}, NOW, new Date("2026-01-01T00:00:00Z")).since).toBe(at("15T07:01:00"));
  });
});

describe("a comparison", () => {
  it.each([
    [112, 100, "+12 %, 100 before"],
    [50, 2_000, "−98 %, 2,000 before"],
    [5, 0, "none before"],
    [5, 5, "no change"],
    [0, 0, undefined],
    [null, 5, undefined],
  ])("of %s with %s", (now, before, words) => expect(changeOf(now, before)).toBe(words));

  it("of shares is in points", () => {
    expect(pointsOf(0.052, 0.041)).toBe("+1.1 points, 4.1 % before");
    expect(pointsOf(0.03, 0.05)).toBe("−2.0 points, 5 % before");
    expect([pointsOf(0.03, 0.03), pointsOf(null, 0.5)]).toEqual(["no change", undefined]);
  });
});

describe("a zoom", () => {
  const zoom = "2027-01-15T07:05Z_2027-01-15T07:20Z";

  it("survives the URL", () => {
    expect(zoomText(zoomOf(zoom)!)).toBe(zoom);
    expect(
      [
        "",
        undefined,
        "x_y",
        "2027-01-15T07:20Z_2027-01-15T07:05Z",
        "2020-01-15T07:20Z_2027-01-15T07:05Z",
        `${zoom}x`,
      ].map(zoomOf),
    ).toEqual(Array(6).fill(undefined));
  });

  it("narrows the range and the comparison", () => {
    const range = rangeOf({ range: "week", zoom }, NOW);
    expect(range).toEqual({
      id: "week",
      since: at("15T07:05:00"),
      until: at("15T07:20:00"),
      step: "1m",
      before: { since: at("15T06:50:00"), until: at("15T07:05:00") },
    });
    expect(rangeOf({ zoom: "2027-01-15T07:05Z_2027-01-15T09:00Z" }, NOW).until).toBe(at("15T08:01:00"));
    expect(rangeOf({ zoom: "2027-01-16T07:05Z_2027-01-16T09:00Z" }, NOW).since).toBe(at("15T07:01:00"));
  });

  it("counts its days", () => {
    expect([daysOf(zoomOf(zoom)!), daysOf(zoomOf("2027-01-14T00:00Z_2027-01-16T00:00Z")!)]).toEqual([1, 2]);
  });

  it("chooses the bars that a drag touches", () => {
    const at = [0, 60, 120, 180];
    expect([
      barsWithin(at, 60, 40, 130),
      barsWithin(at, 60, -100, 10),
      barsWithin(at, 60, 300, 400),
      barsWithin([], 60, 0, 1),
    ]).toEqual([[1, 2], [0, 0], undefined, undefined]);
  });
});

it("names both dates of a reversed custom range", () => {
  const now = new Date("2027-01-15T08:00:00Z");
  const fault = (from: string, to: string, range = "custom") => rangeFault({ range, from, to }, now);
  expect(fault("2027-01-12", "2027-01-03")).toBe(
    "The first day, 2027-01-12, is after the last day, 2027-01-03. The last 24 hours are shown instead.",
  );
  expect(fault("2027-01-16", "2027-01-17")).toMatch(/^The first day, 2027-01-16, is in the future\./);
  expect(fault("", "2027-01-03")).toMatch(/^Enter both dates\./);
  expect([fault("2027-01-03", "2027-01-03"), fault("2027-01-12", "2027-01-03", "week")]).toEqual([
    undefined,
    undefined,
  ]);
});
