/** Recurring schedules as form fields. A cron expression that no field can show is for experts. Pure. */
import { readCron } from "./cron";

export type Frequency = "daily" | "weekly" | "monthly";

export interface Recurrence {
  frequency: Frequency;
  /** Time of day in the time zone of the schedule, as `HH:MM`. */
  time: string;
  /** Days of a weekly schedule, at least one; 0 is Sunday. */
  weekdays: readonly number[];
  /** Day of a monthly schedule, 1 to 31; months without this day are skipped. */
  day: number;
}

/** Weekdays in the order of the form, with their names in cron expressions. */
export const WEEKDAYS: readonly (readonly [number, string, string])[] = [
  [1, "MON", "Monday"],
  [2, "TUE", "Tuesday"],
  [3, "WED", "Wednesday"],
  [4, "THU", "Thursday"],
  [5, "FRI", "Friday"],
  [6, "SAT", "Saturday"],
  [0, "SUN", "Sunday"],
];

/** Initial fields of a new recurring schedule. */
export const WEEKLY: Recurrence = { frequency: "weekly", time: "09:00", weekdays: [1], day: 1 };

/** Fields of a cron expression. Undefined: the form cannot show it. */
export function recurrenceOf(cron: string): Recurrence | undefined {
  const read = readCron(cron);
  const [minute, hour] = [read?.minutes ?? [], read?.hours ?? []];
  const [first, ...others] = read?.days ?? [];
  if (
    !read ||
    minute.length !== 1 ||
    hour.length !== 1 ||
    read.months.length !== 12 ||
    (read.namesDays && read.namesWeekdays)
  )
    return undefined;
  const time = [hour[0], minute[0]].map((n) => String(n).padStart(2, "0")).join(":");
  const isEveryDay = read.days.length === 31;
  if (read.weekdays.length === 7 && isEveryDay) return { ...WEEKLY, frequency: "daily", time };
  if (isEveryDay) return { ...WEEKLY, frequency: "weekly", time, weekdays: read.weekdays };
  if (read.weekdays.length < 7 || first === undefined || others.length > 0) return undefined;
  return { ...WEEKLY, frequency: "monthly", time, day: first };
}

/** Cron expression of the fields. */
export function cronOf({ frequency, time, weekdays, day }: Recurrence): string {
  const clock = `${Number(time.slice(3, 5))} ${Number(time.slice(0, 2))}`;
  if (frequency === "daily") return `${clock} * * *`;
  if (frequency === "monthly") return `${clock} ${day} * *`;
  const names = WEEKDAYS.filter(([weekday]) => weekdays.includes(weekday)).map(([, name]) => name);
  return `${clock} * * ${names.join(",")}`;
}

/** Fields of a cron expression, with the earlier choices that the expression cannot express: days of other frequencies. */
export function recurrenceAfter(before: Recurrence, cron: string): Recurrence | undefined {
  const now = recurrenceOf(cron);
  return (
    now && {
      ...now,
      weekdays: now.frequency === "weekly" ? now.weekdays : before.weekdays,
      day: now.frequency === "monthly" ? now.day : before.day,
    }
  );
}

/** The days with or without one; the last remaining day stays. */
export function toggledDay(weekdays: readonly number[], day: number): readonly number[] {
  const others = weekdays.filter((one) => one !== day);
  if (others.length < weekdays.length) return others.length > 0 ? others : weekdays;
  return [...weekdays, day];
}

const list = (items: readonly string[]) => new Intl.ListFormat("en").format(items);

/** `every Monday and Thursday at 09:00`. Undefined: the form cannot show the expression. */
export function recurrenceWords(cron: string): string | undefined {
  const it = recurrenceOf(cron);
  if (!it) return undefined;
  const { frequency, time, weekdays, day } = it;
  if (frequency === "daily") return `every day at ${time}`;
  if (frequency === "monthly")
    return `on day ${day} of each month at ${time}${day > 28 ? "; months without this day are skipped" : ""}`;
  return `every ${list(WEEKDAYS.filter(([weekday]) => weekdays.includes(weekday)).map(([, , name]) => name))} at ${time}`;
}
