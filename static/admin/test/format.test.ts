import { describe, expect, it } from "vitest";
import {
  amount,
  atLeast,
  axisCount,
  clockTime,
  count,
  dayOf,
  difference,
  duration,
  estimate,
  faultWords,
  fullTime,
  percent,
  rate,
  relative,
  secondsTime,
  share,
  things,
} from "../src/lib/format";

describe("numbers", () => {
  it.each([
    [0, "0"],
    [9_999, "9,999"],
    [10_000, "10,000"],
    [12_400, "12,400"],
    [12_449, "12,449"],
    [999_400, "999,400"],
    [1_240_000, "1,240,000"],
    [-12_400, "-12,400"],
  ])("%d is counted as %s", (n, text) => expect(count(n)).toBe(text));

  it("are differences with a sign", () => {
    expect([0.142, -0.03, 0, 1.2, -0.000_1].map(difference)).toEqual(["+14.2 %", "−3 %", "0 %", "+120 %", "0 %"]);
  });

  it("are estimates with two digits", () => {
    expect([1_498, 33_860, 999, -1_340, 7.6, -0.4].map(estimate)).toEqual([
      "1,500",
      "34,000",
      "999",
      "−1,300",
      "8",
      "0",
    ]);
  });

  it("are amounts in the decimals of their currency", () => {
    expect([amount(49.9, "EUR"), amount(0.012_3, "EUR"), amount(0, "EUR")]).toEqual([
      "49.90 EUR",
      "0.012 EUR",
      "0 EUR",
    ]);
    expect([amount(44_910.5, "USD"), amount(980, "JPY")]).toEqual(["44,911 USD", "980 JPY"]);
  });

  it("are short on axes", () => {
    expect([99_999, 124_000, 2_500_000].map(axisCount)).toEqual(["99,999", "124K", "2.5M"]);
  });

  it("may be lower bounds", () => {
    expect([atLeast(10_000, true), atLeast(17, false)]).toEqual(["≥ 10,000", "17"]);
    expect([things(0, "lane"), things(1, "lane"), things(2, "delivery", "deliveries")]).toEqual([
      "no lanes",
      "one lane",
      "2 deliveries",
    ]);
  });

  it.each([
    [0, "0 per second"],
    [1, "0.02 per second"],
    [90, "1.5 per second"],
    [100, "100 per minute"],
    [12_400, "12,400 per minute"],
  ])("%d a minute is a rate of %s", (perMinute, text) => expect(rate(perMinute)).toBe(text));

  it("are 0 or 100 % only if exact", () => {
    expect(share(62, 100)).toBe("62 % of 100");
    expect(share(0, 0)).toBe("none of 0");
    expect([0, 0.000_4, 0.012, 0.5, 0.9995, 1].map(percent)).toEqual([
      "0 %",
      "< 0.1 %",
      "1.2 %",
      "50 %",
      "> 99.9 %",
      "100 %",
    ]);
  });
});

describe("times", () => {
  it.each([
    [0, "0 ms"],
    [0.04, "40 ms"],
    [0.9999, "1 s"],
    [4.23, "4.2 s"],
    [9.99, "10 s"],
    [59.6, "1 min"],
    [80, "1 min 20 s"],
    [3_600, "1 h"],
    [7_499, "2 h 5 min"],
    [86_400, "1 day"],
    [273_600, "3 days 4 h"],
  ])("%d seconds last %s", (seconds, text) => expect(duration(seconds)).toBe(text));

  const now = new Date("2027-01-15T08:00:00Z");
  it.each([
    ["2027-01-15T07:59:58Z", "just now"],
    ["2027-01-15T07:59:15Z", "45 s ago"],
    ["2027-01-15T07:30:20Z", "29 min ago"],
    ["2027-01-15T10:05:00Z", "in 2 h"],
    ["2027-01-12T08:00:00Z", "3 days ago"],
  ])("%s is %s", (at, text) => expect(relative(new Date(at), now)).toBe(text));

  it("name the day if it is another one", () => {
    const shown = (at: string) => clockTime(new Date(at), now, "UTC");
    expect(["2027-01-15T14:32:00Z", "2027-01-16T14:32:00Z", "2026-11-23T04:05:00Z"].map(shown)).toEqual([
      "14:32",
      "16 Jan 14:32",
      "23 Nov 2026 04:05",
    ]);
    expect(fullTime(now, "UTC")).toContain("08:00:00 UTC");
  });
});

describe("moments and days", () => {
  const now = new Date("2027-01-15T12:00:00Z");
  it("have seconds or a day when needed", () => {
    expect(secondsTime(new Date("2027-01-15T08:03:07.900Z"), now, "UTC")).toBe("08:03:07");
    expect(secondsTime(new Date("2027-01-16T08:03:47Z"), now, "UTC")).toBe("16 Jan 08:03:47");
  });
  it("are in UTC for daily figures", () => expect(dayOf(new Date("2027-01-15T00:00:00Z"))).toBe("15 Jan"));
});

it("formats a fault as a sentence", () => {
  expect(
    [
      "must be 1 to 500",
      "its host is not on the public internet",
      "line 1, column 3: expected a value",
      "/title is missing",
    ].map(faultWords),
  ).toEqual([
    "It must be 1 to 500.",
    "Its host is not on the public internet.",
    "Line 1, column 3: expected a value.",
    "In title is missing.",
  ]);
});
