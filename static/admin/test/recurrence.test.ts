import { describe, expect, it } from "vitest";
import { cronOf, recurrenceAfter, recurrenceOf, recurrenceWords, toggledDay, WEEKLY } from "../src/lib/recurrence";

describe("a recurrence", () => {
  it.each([
    ["0 9 * * *", "daily", "every day at 09:00"],
    ["5 18 * * MON", "weekly", "every Monday at 18:05"],
    ["0 9 * * MON,THU,SUN", "weekly", "every Monday, Thursday, and Sunday at 09:00"],
    ["30 7 1 * *", "monthly", "on day 1 of each month at 07:30"],
    ["30 7 31 * *", "monthly", "on day 31 of each month at 07:30; months without this day are skipped"],
  ])("shows %s in fields and words", (cron, frequency, words) => {
    const fields = recurrenceOf(cron);
    expect(fields?.frequency).toBe(frequency);
    expect(fields && cronOf(fields)).toBe(cron);
    expect(recurrenceWords(cron)).toBe(words);
  });

  it("reads other spellings of the same days", () => {
    expect(recurrenceOf("0 9 * * 1-5")).toMatchObject({ frequency: "weekly", weekdays: [1, 2, 3, 4, 5] });
    expect(recurrenceOf("0 9 * * 0-6")?.frequency).toBe("daily");
    expect(recurrenceOf("0 9 1-31 * *")?.frequency).toBe("daily");
  });

  it.each(["", "*/5 * * * *", "0 9,18 * * *", "0 9 1,15 * *", "0 9 1 jan *", "0 9 1 * MON", "0 9 L * *"])(
    "leaves %j to experts",
    (cron) => {
      expect([recurrenceOf(cron), recurrenceWords(cron)]).toEqual([undefined, undefined]);
    },
  );

  it("keeps the days of other frequencies", () => {
    const weekly = recurrenceAfter(WEEKLY, "0 9 * * TUE,FRI") ?? WEEKLY;
    const monthly = recurrenceAfter(weekly, cronOf({ ...weekly, frequency: "monthly", day: 15 })) ?? WEEKLY;
    expect(monthly).toMatchObject({ frequency: "monthly", day: 15, weekdays: [2, 5] });
    expect(cronOf({ ...monthly, frequency: "weekly" })).toBe("0 9 * * TUE,FRI");
    expect(recurrenceAfter(monthly, "0 9 * * *")).toMatchObject({ frequency: "daily", day: 15, weekdays: [2, 5] });
    expect(recurrenceAfter(monthly, "*/5 * * * *")).toBeUndefined();
  });

  it("keeps one weekday", () => {
    expect(toggledDay([1], 4)).toEqual([1, 4]);
    expect(toggledDay([1, 4], 1)).toEqual([4]);
    expect(toggledDay([4], 4)).toEqual([4]);
  });
});
