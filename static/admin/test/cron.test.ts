import { describe, expect, it } from "vitest";
import { cronFault, instantIn, nextTimes, readCron } from "../src/lib/cron";

const times = (expression: string, zone: string, after: string, many = 1) =>
  nextTimes(expression, zone, new Date(after), many)?.map((at) => at.toISOString().replace(":00.000", ""));

describe("a cron expression", () => {
  it("runs at its times in its zone", () => {
    expect(times("0 9 * * MON", "Europe/Vienna", "2026-11-20T12:00:00Z", 2)).toEqual([
      "2026-11-23T08:00Z",
      "2026-11-30T08:00Z",
    ]);
    expect(times("*/20 8-9 * * *", "UTC", "2026-11-20T08:30:00Z", 3)).toEqual([
      "2026-11-20T08:40Z",
      "2026-11-20T09:00Z",
      "2026-11-20T09:20Z",
    ]);
    expect(times("0 0 29 2 *", "UTC", "2026-11-20T08:30:00Z")).toEqual(["2028-02-29T00:00Z"]);
    expect(times("30 18 * * 1-5", "Asia/Kolkata", "2026-11-20T13:00:00Z")).toEqual(["2026-11-23T13:00Z"]);
    expect(times("0 9 1,15 jan-mar sun", "UTC", "2027-01-01T00:00:00Z", 3)).toEqual([
      "2027-01-01T09:00Z",
      "2027-01-03T09:00Z",
      "2027-01-10T09:00Z",
    ]);
    expect(times("0 9 * * 7", "UTC", "2027-01-01T00:00:00Z")).toEqual(["2027-01-03T09:00Z"]);
  });

  it("names the field that is out of range", () => {
    expect(cronFault("0 25 * * *")).toMatch(/^has the hour 25; allowed are 0 to 23,/);
    expect(cronFault("60 9 * * *")).toMatch(/^has the minute 60; allowed are 0 to 59,/);
    expect(cronFault("0 9 1 1-13 *")).toMatch(/^has the month 1-13; allowed are 1 to 12,/);
    expect(cronFault("0 9 * *")).toMatch(/^must have five fields/);
    expect(["0 9 L * *", "0 9 * * MON#1", "*/5 9,18 1-15 jan *"].map(cronFault)).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });

  it("keeps its time of day when clocks change", () => {
    expect(times("0 9 * * *", "Europe/Vienna", "2027-03-27T08:00:00Z", 2)).toEqual([
      "2027-03-28T07:00Z",
      "2027-03-29T07:00Z",
    ]);
    expect(times("30 2 * * *", "Europe/Vienna", "2027-03-27T12:00:00Z")).toEqual(["2027-03-28T01:00Z"]);
    expect(times("30 2 * * *", "Europe/Vienna", "2026-10-24T12:00:00Z", 2)).toEqual([
      "2026-10-25T00:30Z",
      "2026-10-26T01:30Z",
    ]);
  });

  it("in an unknown form is not interpreted", () => {
    for (const text of [
      "",
      "* * * *",
      "60 * * * *",
      "0 9 * * *  *",
      "@daily",
      "0 9 L * *",
      "0 9 * * MON#1",
      "5-1 * * * *",
      "*/0 * * * *",
      "0 9 * foo *",
    ]) {
      expect(readCron(text), text).toBeUndefined();
    }
    expect(nextTimes("0 9 * * *", "Atlantis/Town", new Date(), 1)).toBeUndefined();
    expect(nextTimes("0 0 30 2 *", "UTC", new Date("2026-11-20T12:00:00Z"), 1)).toEqual([]);
  });

  it("ends where no more is asked for", () => {
    expect(
      nextTimes("0 9 * * *", "UTC", new Date("2026-11-20T12:00:00Z"), 99, Date.parse("2026-11-23T09:00:00Z")),
    ).toHaveLength(3);
  });
});

it("local time is a moment in its zone", () => {
  expect(instantIn("America/St_Johns", Date.UTC(2027, 0, 15, 9))?.toISOString()).toBe("2027-01-15T12:30:00.000Z");
  expect(instantIn("Nowhere", 0)).toBeUndefined();
});
