/** Times of sending and of retries, as texts. Pure. */
import type { CalendarSettings, Tier, Timetable } from "../api/types";
import { duration, things } from "./format";

const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"] as const;
const DAY_WORDS: Record<(typeof DAYS)[number], string> = {
  mon: "Mon",
  tue: "Tue",
  wed: "Wed",
  thu: "Thu",
  fri: "Fri",
  sat: "Sat",
  sun: "Sun",
};
const DAY_MIN = 1_440;

/** A time of day and week somewhere. */
export interface LocalTime {
  /** 0: Monday. */
  day: number;
  /** Minutes since midnight. */
  minute: number;
}

export function localTime(now: Date, zone: string): LocalTime {
  const told = new Intl.DateTimeFormat("en-GB", {
    timeZone: zone,
    weekday: "short",
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
  }).formatToParts(now);
  const part = (type: string) => told.find((part) => part.type === type)?.value ?? "";
  return {
    day: DAYS.indexOf(part("weekday").toLowerCase() as (typeof DAYS)[number]),
    minute: Number(part("hour")) * 60 + Number(part("minute")),
  };
}

const minutes = (time: string): number => Number(time.slice(0, 2)) * 60 + Number(time.slice(3, 5));
export const clockOf = (minute: number): string =>
  [Math.floor(minute / 60), minute % 60].map((n) => String(n).padStart(2, "0")).join(":");

type Span = { from: string; to: string };

/** Time until the end of such a span; 0: outside of it. */
export function untilEnd({ from, to }: Span, minute: number): number {
  const [start, end] = [minutes(from), minutes(to)];
  const within = start < end ? minute >= start && minute < end : minute >= start || minute < end;
  return within ? (end - minute + DAY_MIN) % DAY_MIN : 0;
}

const lengthOf = ({ from, to }: Span): number => (minutes(to) - minutes(from) + DAY_MIN) % DAY_MIN || DAY_MIN;

/** Time until a window opens; 0: open. Undefined: it never opens. */
export function untilOpen(windows: NonNullable<CalendarSettings["off_peak"]>, now: LocalTime): number | undefined {
  const waits = windows.flatMap((window) => {
    const days = window.days?.length ? window.days : DAYS;
    return days.flatMap((day) => {
      const week = 7 * DAY_MIN;
      const start = DAYS.indexOf(day) * DAY_MIN + minutes(window.from);
      const since = (now.day * DAY_MIN + now.minute - start + week) % week;
      return since < lengthOf(window) ? 0 : week - since;
    });
  });
  return waits.length > 0 ? Math.min(...waits) : undefined;
}

const quietWords = ({ from, to }: Span): string =>
  `Quiet hours are ${from} to ${to} in each recipient’s time zone; deliveries wait until ${to}.`;

/** Effect of quiet hours and off-peak windows on a scheduled message. */
export function laterWords(tier: Tier, { timezone, quiet_hours, off_peak = [] }: CalendarSettings): string[] {
  if (tier === "transactional") return [];
  const windows =
    tier === "engagement" && off_peak.length > 0
      ? [`Only within off-peak windows, ${timezone} time: ${off_peak.map(windowWords).join("; ")}.`]
      : [];
  return [...windows, ...(quiet_hours ? [quietWords(quiet_hours)] : [])];
}

/** Time of sending, as sentences. */
export function whenWords(
  tier: Tier,
  { timezone, quiet_hours, off_peak = [] }: CalendarSettings,
  ttlS: number,
  now: Date,
): string[] {
  if (tier === "transactional") return ["Sent immediately, at any hour."];
  const local = localTime(now, timezone);
  const said: string[] = [];
  if (tier === "engagement" && off_peak.length > 0) {
    const wait = untilOpen(off_peak, local) ?? 0;
    said.push(`Only within off-peak windows, ${timezone} time: ${off_peak.map(windowWords).join("; ")}.`);
    said.push(wait === 0 ? "A window is open now." : `The next window opens in ${duration(wait * 60)}.`);
  } else {
    said.push(quiet_hours ? "Sent immediately, except in quiet hours." : "Sent immediately.");
  }
  if (quiet_hours) {
    const wait = untilEnd(quiet_hours, local.minute);
    said.push(quietWords(quiet_hours));
    const there = `In ${timezone}, the default time zone, it is ${clockOf(local.minute)}`;
    said.push(wait > 0 ? `${there}: deliveries wait for ${duration(wait * 60)}.` : `${there}: no quiet hours now.`);
    if (ttlS < lengthOf(quiet_hours) * 60)
      said.push(
        `The time to live of ${duration(ttlS)} is shorter than the quiet hours: subscribers at the start of their quiet hours do not get the message.`,
      );
  }
  return said;
}

function windowWords({ days, from, to }: NonNullable<CalendarSettings["off_peak"]>[number]): string {
  const on = days?.length ? days.map((day) => DAY_WORDS[day]).join(", ") : "daily";
  return `${on} ${from} to ${to}`;
}

/** Behaviour after a failed push, in a sentence. */
export function retryWords({ retries, window_s, rows }: Timetable): string {
  const [first] = rows;
  if (retries === 0 || !first) return "Failed pushes are not retried.";
  const soon = first.delay_s === 0 ? "immediately" : `after ${duration(first.delay_s)}`;
  if (retries === 1) return `Failed pushes are retried once, ${soon}.`;
  return `Failed pushes are retried up to ${things(retries, "time")}, first ${soon}, last after ${duration(window_s)}.`;
}

/** Default time to live and urgency of the tiers, from the server. */
export const TIER_DEFAULTS: Record<Tier, { ttlS: number; urgency: string }> = {
  transactional: { ttlS: 600, urgency: "high" },
  promotional: { ttlS: 86_400, urgency: "normal" },
  engagement: { ttlS: 259_200, urgency: "low" },
};
