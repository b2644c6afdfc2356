/** Calendar of sends: occasions by day, and conflicts between them. Pure. */
import type { Campaign, CampaignPlan, MessageResponse } from "../api/types";
import { momentOf, STATE_LOOKS, valid } from "./campaigns";
import { nextTimes } from "./cron";
import type { Zone } from "./format";
import { STATE_LOOKS as MESSAGE_LOOKS, titleWords } from "./messages";
import type { Tone } from "./words";

/** Audience of a send without named recipients. Both absent: all subscribers. */
export interface Audience {
  topic?: string | undefined;
  segment?: string | undefined;
}

/** A campaign or message at one time. */
export interface Occasion {
  id: string;
  name: string;
  path: string;
  state: { word: string; tone: Tone };
  at: Date;
  /** `was`: it began then. `due`: it will. `planned`: it would, if the draft were started. */
  is: "was" | "due" | "planned";
  /** By each recipient's own clock: on that day somewhere. */
  isLocal: boolean;
  /** Undefined: unknown, or named recipients. */
  audience: Audience | undefined;
}

/** Maximum occasions per campaign. */
const OCCASIONS_MAX = 800;

/** Audience of `to`, as the API shows it. */
function audienceOf(to: unknown): Audience | undefined {
  const { all, topic, segment } = (to ?? {}) as Audience & { all?: boolean };
  return all || topic !== undefined || segment !== undefined ? { topic, segment } : undefined;
}

/** Times of a campaign between two moments. Without its plan, only the next time is known. Local times of recipients are placed as clocks in `zone` show them. */
export function occasions(
  campaign: Campaign,
  plan: CampaignPlan | undefined,
  from: Date,
  until: Date,
  now: Date,
  zone: Zone,
): Occasion[] {
  const { id, slug, name, state, started_at, changed_at, next_at, runs } = campaign;
  const isOver = state === "done" || state === "cancelled";
  const is = (at: Date): Occasion["is"] => (state === "draft" ? "planned" : at <= now ? "was" : "due");
  const about = {
    id,
    name,
    path: `/campaigns/${slug}`,
    state: STATE_LOOKS[state],
    audience: plan && audienceOf(plan.message.to),
  };
  const within = (times: readonly Date[], isLocal = false) =>
    times.filter((at) => at >= from && at < until).map((at) => ({ ...about, at, is: is(at), isLocal }));
  const schedule = plan?.schedule;
  if (schedule?.cron) {
    const begin = Math.max(from.getTime() - 1, Date.parse(started_at ?? "") || now.getTime());
    const end = Math.min(until.getTime() - 1, isOver ? Date.parse(changed_at) : Infinity);
    const times = nextTimes(schedule.cron, schedule.timezone ?? "", new Date(begin), OCCASIONS_MAX, end);
    if (times) return within(times);
  } else if (schedule?.at && (state !== "cancelled" || runs > 0)) {
    const isLocal = schedule.timezone === "recipient";
    const at = isLocal
      ? valid(new Date(`${schedule.at.slice(0, 16)}${zone === "UTC" ? "Z" : ""}`))
      : momentOf(schedule);
    if (at) return within([at], isLocal);
  }
  const times: Date[] = [];
  if (runs > 0 && started_at) times.push(new Date(started_at));
  if (next_at && !schedule?.on && (state === "scheduled" || state === "paused")) times.push(new Date(next_at));
  return within(times);
}

/** A scheduled message. Those of campaigns are shown as their campaigns. */
export const scheduled = (messages: readonly MessageResponse[]): Occasion[] =>
  messages
    .filter(({ campaign }) => !campaign)
    .map((message) => ({
      id: message.id,
      name: titleWords(message),
      path: `/messages/${message.id}`,
      state: MESSAGE_LOOKS[message.state],
      at: new Date(message.accepted_at),
      is: "due",
      isLocal: false,
      audience: audienceOf(message.to),
    }));

/** Sends to one audience within this time are a conflict. */
export const CONFLICT_HOURS = 3;

/** Two sends that reach the same people within hours. */
export interface Conflict {
  first: Occasion;
  second: Occasion;
}

const includes = (a: Audience, b: Audience): boolean =>
  (a.topic === undefined || a.topic === b.topic) && (a.segment === undefined || a.segment === b.segment);
const overlaps = (a: Audience, b: Audience): boolean => includes(a, b) || includes(b, a);

/** Conflicts among sends to come: equal audiences, or one that contains the other, within hours. Repeats of one campaign are none. */
export function conflictsOf(all: readonly Occasion[]): Conflict[] {
  const due = all
    .filter(({ is, audience }) => is !== "was" && audience)
    .toSorted((a, b) => a.at.getTime() - b.at.getTime());
  return due.flatMap((first, n) => {
    const end = first.at.getTime() + CONFLICT_HOURS * 3_600_000;
    const near: Conflict[] = [];
    for (const second of due.slice(n + 1)) {
      if (second.at.getTime() >= end) break;
      if (second.id !== first.id && first.audience && second.audience && overlaps(first.audience, second.audience))
        near.push({ first, second });
    }
    return near;
  });
}

/** A day of a month's calendar. */
export interface Day {
  /** `2026-11-22`. */
  key: string;
  number: number;
  isOfMonth: boolean;
}

/** Month, such as `2026-11`; an invalid text gives the current month. */
export function monthOf(text: string | undefined, now: Date, zone: Zone): string {
  return text && /^\d{4}-(?:0[1-9]|1[0-2])$/.test(text) ? text : dayKey(now, zone).slice(0, 7);
}

export function dayKey(at: Date, zone: Zone): string {
  return at.toLocaleDateString("sv-SE", zone === "UTC" ? { timeZone: "UTC" } : {});
}

/** So many months later, or earlier. */
export function otherMonth(month: string, by: number): string {
  const at = new Date(Date.UTC(Number(month.slice(0, 4)), Number(month.slice(5)) - 1 + by, 1));
  return at.toISOString().slice(0, 7);
}

export const monthWords = (month: string): string =>
  new Date(`${month}-01T00:00Z`).toLocaleDateString("en-GB", { month: "long", year: "numeric", timeZone: "UTC" });

/** Whole weeks, from Monday, that a month lies in. */
export function weeksOf(month: string): Day[][] {
  const first = Date.parse(`${month}-01T00:00Z`);
  const start = first - ((new Date(first).getUTCDay() + 6) % 7) * 86_400_000;
  const weeks: Day[][] = [];
  for (let week = 0; week < 6; week += 1) {
    const days = Array.from({ length: 7 }, (_, n): Day => {
      const day = new Date(start + (week * 7 + n) * 86_400_000);
      const key = day.toISOString().slice(0, 10);
      return { key, number: day.getUTCDate(), isOfMonth: key.startsWith(month) };
    });
    if (days.some(({ isOfMonth }) => isOfMonth)) weeks.push(days);
  }
  return weeks;
}

/** One line of a day: a send, and when; several times on one day are one line. */
export interface Entry extends Occasion {
  times: number;
}

/** Events of each day, in order of time. */
export function byDay(all: readonly Occasion[], zone: Zone): Map<string, Entry[]> {
  const days = new Map<string, Entry[]>();
  for (const occasion of all.toSorted((a, b) => a.at.getTime() - b.at.getTime())) {
    const key = dayKey(occasion.at, zone);
    const entries = days.get(key) ?? [];
    const same = entries.find(({ id }) => id === occasion.id);
    if (same) same.times += 1;
    else entries.push({ ...occasion, times: 1 });
    days.set(key, entries);
  }
  return days;
}
