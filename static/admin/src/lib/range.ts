/** Time range of figures, with its steps and the previous range of the same length. Pure. */
import { count, percent } from "./format";
import type { Filters } from "./url";

export const RANGES = ["hour", "day", "week", "month", "custom"] as const;
export type RangeId = (typeof RANGES)[number];
export const RANGE_WORDS: Record<RangeId, string> = {
  hour: "Hour",
  day: "Day",
  week: "Week",
  month: "Month",
  custom: "Custom",
};

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
const LENGTHS: Record<Exclude<RangeId, "custom">, number> = {
  hour: HOUR_MS,
  day: DAY_MS,
  week: 7 * DAY_MS,
  month: 30 * DAY_MS,
};

/** Longest custom range in days. */
export const DAYS_MAX = 366;

export interface TimeSpan {
  since: string;
  until: string;
}

export interface TimeRange extends TimeSpan {
  id: RangeId;
  /** Length of a step of charts. */
  step: string;
  before: TimeSpan;
}

/** Lengths up to which a step is used: each chart has at most about 120 steps, but 366 days. */
const STEPS: readonly (readonly [number, string])[] = [
  [2 * HOUR_MS, "1m"],
  [8 * HOUR_MS, "5m"],
  [2 * DAY_MS, "1h"],
  [15 * DAY_MS, "6h"],
  [Infinity, "1d"],
];

/** Part of a range that a chart was zoomed to, in the URL: `2027-01-15T08:05Z_2027-01-15T08:20Z`. */
const ZOOM = /^(\d{4}-\d\d-\d\dT\d\d:\d\dZ)_(\d{4}-\d\d-\d\dT\d\d:\d\dZ)$/;

export interface Zoom {
  since: Date;
  until: Date;
}

/** The zoom of the URL. Undefined: none, or an invalid one. */
export function zoomOf(text: string | undefined): Zoom | undefined {
  const [, from, to] = ZOOM.exec(text ?? "") ?? [];
  const [since, until] = [Date.parse(from ?? ""), Date.parse(to ?? "")];
  return since < until && until - since <= DAYS_MAX * DAY_MS
    ? { since: new Date(since), until: new Date(until) }
    : undefined;
}

/** Days that a zoom touches, in UTC. */
export const daysOf = ({ since, until }: Zoom): number =>
  Math.ceil(until.getTime() / DAY_MS) - Math.floor(since.getTime() / DAY_MS);

const minute = (time: Date): string => `${time.toISOString().slice(0, 16)}Z`;
export const zoomText = ({ since, until }: Zoom): string => `${minute(since)}_${minute(until)}`;

/** First and last bar of a chart that a span touches. Each bar reaches half a step to both sides of its time, in seconds. */
export function barsWithin(
  at: readonly number[],
  step: number,
  from: number,
  to: number,
): [number, number] | undefined {
  const touched = at.map((_, n) => n).filter((n) => (at[n] ?? 0) + step / 2 > from && (at[n] ?? 0) - step / 2 < to);
  const [first, last] = [touched[0], touched.at(-1)];
  return first === undefined || last === undefined ? undefined : [first, last];
}

const spanOf = (since: number, until: number): TimeSpan => ({
  since: new Date(since).toISOString(),
  until: new Date(until).toISOString(),
});

const stepOf = (length: number): string => STEPS.find(([most]) => length <= most)?.[1] ?? "1d";

/** TimeRange of the URL. It begins with the creation of the app, so that charts fill it. */
export function rangeOf({ range, from, to, zoom }: Filters, now: Date, created?: Date): TimeRange {
  const id = RANGES.find((id) => id === range) ?? "hour";
  // To the minute, so that equal requests have equal URLs.
  const present = Math.ceil(now.getTime() / MINUTE_MS) * MINUTE_MS;
  const zoomed = zoomOf(zoom);
  if (zoomed && zoomed.since.getTime() < present) {
    const [since, until] = [zoomed.since.getTime(), Math.min(zoomed.until.getTime(), present)];
    return { id, ...spanOf(since, until), step: stepOf(until - since), before: spanOf(since - (until - since), since) };
  }
  const [first, last] = [Date.parse(`${from}T00:00Z`), Date.parse(`${to}T00:00Z`) + DAY_MS];
  const isCustom = id === "custom" && first < last && first < present;
  const until = isCustom ? Math.min(last, present) : present;
  const length = isCustom ? Math.min(until - first, DAYS_MAX * DAY_MS) : LENGTHS[id === "custom" ? "day" : id];
  const nominal = until - length;
  const since = Math.max(
    nominal,
    Math.min(created ? Math.floor(created.getTime() / MINUTE_MS) * MINUTE_MS : nominal, until - MINUTE_MS),
  );
  return { id, ...spanOf(since, until), step: stepOf(until - since), before: spanOf(nominal - length, nominal) };
}

/** Fault of a custom range, for which the last day is shown instead. */
export function rangeFault({ range, from = "", to = "" }: Filters, now: Date): string | undefined {
  if (range !== "custom") return undefined;
  const instead = "The last 24 hours are shown instead.";
  const [first, last] = [Date.parse(`${from}T00:00Z`), Date.parse(`${to}T00:00Z`)];
  if (Number.isNaN(first) || Number.isNaN(last)) return `Enter both dates. ${instead}`;
  if (first > last) return `The first day, ${from}, is after the last day, ${to}. ${instead}`;
  return first > now.getTime() ? `The first day, ${from}, is in the future. ${instead}` : undefined;
}

/** Change from the previous range: `+12 %`, `new`, `no change`. Undefined: nothing to compare. */
export function changeOf(now: number | null | undefined, before: number | null | undefined): string | undefined {
  if (now == null || before == null || (now === 0 && before === 0)) return undefined;
  if (before === 0) return "none before";
  if (now === before) return "no change";
  return `${now > before ? "+" : "−"}${percent(Math.abs(now - before) / before)}, ${count(before)} before`;
}

/** Change of a share in percentage points. Undefined: nothing to compare. */
export function pointsOf(now: number | null | undefined, before: number | null | undefined): string | undefined {
  if (now == null || before == null) return undefined;
  const points = (now - before) * 100;
  return Math.abs(points) < 0.05
    ? "no change"
    : `${points > 0 ? "+" : "−"}${Math.abs(points).toFixed(1)} points, ${percent(before)} before`;
}
