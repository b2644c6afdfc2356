import { describe, expect, it } from "vitest";
import type { CalendarSettings, Timetable } from "../src/api/types";
import { laterWords, localTime, retryWords, untilEnd, untilOpen, whenWords } from "../src/lib/timing";

const NOW = new Date("2027-01-15T22:30:00Z"); // a Friday; 23:30 in Berlin
const calendar = (more: Partial<CalendarSettings> = {}): CalendarSettings => ({
  timezone: "Europe/Berlin",
  quiet_hours: null,
  off_peak: [],
  ...more,
});

describe("the time somewhere", () => {
  it("is that of the zone", () => {
    expect(localTime(NOW, "Europe/Berlin")).toEqual({ day: 4, minute: 23 * 60 + 30 });
    expect(localTime(NOW, "Asia/Kolkata")).toEqual({ day: 5, minute: 4 * 60 });
  });

  it.each([
    ["22:00", "08:00", "23:30", 510],
    ["22:00", "08:00", "07:59", 1],
    ["22:00", "08:00", "08:00", 0],
    ["12:00", "14:00", "13:00", 60],
    ["12:00", "14:00", "14:00", 0],
  ])("%s to %s, at %s: %d min left", (from, to, at, expected) => {
    const [h, min] = at.split(":").map(Number);
    expect(untilEnd({ from, to }, (h ?? 0) * 60 + (min ?? 0))).toBe(expected);
  });

  it("is in a window or before one", () => {
    const at = (day: number, hour: number) => ({ day, minute: hour * 60 });
    const weekdays = [{ days: ["mon", "fri"] as ("mon" | "fri")[], from: "10:00", to: "12:00" }];
    expect(untilOpen(weekdays, at(4, 11))).toBe(0);
    expect(untilOpen(weekdays, at(4, 12))).toBe((2 * 24 + 22) * 60);
    expect(untilOpen([{ from: "23:00", to: "02:00" }], at(0, 1))).toBe(0);
    expect(untilOpen([{ from: "23:00", to: "02:00" }], at(6, 22))).toBe(60);
    expect(untilOpen([], at(0, 0))).toBeUndefined();
  });
});

describe("when it goes out", () => {
  const quiet = calendar({ quiet_hours: { from: "22:00", to: "08:00" } });

  it("waits for quiet hours also when scheduled", () => {
    expect(laterWords("promotional", quiet)).toEqual([
      "Quiet hours are 22:00 to 08:00 in each recipient’s time zone; deliveries wait until 08:00.",
    ]);
    expect(laterWords("engagement", calendar({ off_peak: [{ days: ["sat"], from: "10:00", to: "12:00" }] }))).toEqual([
      "Only within off-peak windows, Europe/Berlin time: Sat 10:00 to 12:00.",
    ]);
    expect([laterWords("transactional", quiet), laterWords("promotional", calendar())]).toEqual([[], []]);
  });

  it("is at once for one-time codes", () => {
    expect(whenWords("transactional", quiet, 600, NOW)).toEqual(["Sent immediately, at any hour."]);
  });

  it("is at once where nobody set quiet hours", () => {
    expect(whenWords("promotional", calendar(), 86_400, NOW)).toEqual(["Sent immediately."]);
    expect(whenWords("engagement", calendar(), 86_400, NOW)).toEqual(["Sent immediately."]);
  });

  it("is after quiet hours of each recipient", () => {
    const said = whenWords("promotional", quiet, 86_400, NOW).join(" ");
    expect(said).toContain(
      "Quiet hours are 22:00 to 08:00 in each recipient’s time zone; deliveries wait until 08:00.",
    );
    expect(said).toContain("it is 23:30: deliveries wait for 8 h 30 min.");
    expect(said).not.toContain("time to live");
  });

  it("is never if TTL ends in quiet hours", () => {
    expect(whenWords("promotional", quiet, 3_600, NOW).join(" ")).toContain("The time to live of 1 h is shorter");
  });

  it("is in an off-peak window for engagement", () => {
    const off_peak = [{ days: ["sat"] as "sat"[], from: "10:00", to: "12:00" }];
    const said = whenWords("engagement", calendar({ off_peak }), 259_200, NOW).join(" ");
    expect(said).toContain("Sat 10:00 to 12:00");
    expect(said).toContain("The next window opens in 10 h 30 min.");
    expect(whenWords("promotional", calendar({ off_peak }), 86_400, NOW)).toEqual(["Sent immediately."]);
  });
});

describe("retries", () => {
  const timetable = (retries: number, delay_s: number, window_s: number): Timetable => ({
    form: "guide",
    retries,
    posts: retries + 1,
    window_s,
    shortest_window_s: window_s,
    longest_window_s: window_s,
    rows: retries
      ? [
          {
            first: 1,
            last: retries,
            phase: "backoff",
            delay_s,
            shortest_s: delay_s,
            longest_s: delay_s,
            elapsed_s: window_s,
          },
        ]
      : [],
  });

  it("are told in a sentence", () => {
    expect(retryWords(timetable(0, 0, 0))).toBe("Failed pushes are not retried.");
    expect(retryWords(timetable(1, 0, 0))).toBe("Failed pushes are retried once, immediately.");
    expect(retryWords(timetable(10, 2, 1_620))).toBe(
      "Failed pushes are retried up to 10 times, first after 2 s, last after 27 min.",
    );
  });
});
