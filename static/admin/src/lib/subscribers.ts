/** The base of subscribers, and one of them, in words. Pure. */
import type {
  CalendarSettings,
  ChartResponse,
  LaneResponse,
  Muted,
  SubscriptionResponse,
  VapidKeyResponse,
} from "../api/types";
import { capital, count, percent, things } from "./format";
import type { Pattern } from "./figures";
import { gatewayName, type Tone } from "./words";

export const SUBSCRIPTION_STATES = [
  "active",
  "suspended",
  "gone",
  "unsubscribed",
  "replaced",
  "expired",
] as const satisfies readonly SubscriptionResponse["state"][];

const STATES: Record<SubscriptionResponse["state"], { word: string; tone: Tone; why: string }> = {
  active: { word: "Active", tone: "accepted", why: "The subscription receives messages." },
  suspended: {
    word: "Suspended",
    tone: "retrying",
    why: "The push service refused deliveries too often. The subscription is kept and becomes active at the browser’s next visit.",
  },
  gone: { word: "Gone", tone: "lost", why: "The push service reported that the subscription no longer exists." },
  unsubscribed: { word: "Unsubscribed", tone: "cancelled", why: "The subscriber or the site unsubscribed it." },
  replaced: { word: "Replaced", tone: "cancelled", why: "Another subscription of the same browser replaced it." },
  expired: { word: "Expired", tone: "cancelled", why: "The expiry time set by the browser passed." },
};

export const subscriptionWords = (state: SubscriptionResponse["state"]) =>
  STATES[state] ?? { word: state, tone: "cancelled", why: "" };

/** Note on a subscription that only transactional messages reach. Undefined: all messages reach it. */
export function mutedWords(
  muted: Muted | null | undefined,
  now: Date,
  write: (at: Date) => string,
): string | undefined {
  if (!muted) return undefined;
  if (muted.until == null) return "Only important messages, without an end.";
  const until = new Date(muted.until);
  return until > now ? `Only important messages until ${write(until)}.` : undefined;
}

/** Why subscriptions are lost, from the bottom of the chart to its top. */
export const LOSSES = ["gone", "unsubscribed", "suspended", "expired", "replaced", "deleted"] as const;
export type Loss = (typeof LOSSES)[number];

export const LOSS_LOOKS: Record<Loss, { word: string; tone: Tone; pattern: Pattern }> = {
  gone: { word: "Gone", tone: "lost", pattern: "solid" },
  unsubscribed: { word: "Unsubscribed", tone: "cancelled", pattern: "solid" },
  suspended: { word: "Suspended", tone: "retrying", pattern: "stripes" },
  expired: { word: "Expired", tone: "cancelled", pattern: "stripes" },
  replaced: { word: "Replaced", tone: "waiting", pattern: "dots" },
  deleted: { word: "Deleted with its app", tone: "cancelled", pattern: "crossed" },
};

const number = (of: object, name: string): number => Number((of as Record<string, unknown>)[name] ?? 0);
const named = (of: object, name: string): string => String((of as Record<string, unknown>)[name] ?? "");

/** Gained and lost subscriptions, day by day. */
export interface Growth {
  /** Start of each day, in seconds. */
  at: number[];
  won: number[];
  lost: Record<Loss, number[]>;
  /** Active ones at the end of the last day. */
  active: number;
}

/** `won` by day, and `lost` by day and cause: days without a loss may be missing there. */
export function growth(won: ChartResponse, lost: ChartResponse): Growth {
  const secondsOf = ({ time_bucket }: ChartResponse["data"][number]) =>
    Date.parse(time_bucket ?? won.metadata.from) / 1_000;
  const at = won.data.map(secondsOf);
  const column = (loss: Loss): number[] => {
    const of = lost.data.filter(({ dimensions }) => named(dimensions, "reason") === loss);
    return at.map((day) =>
      of
        .filter((point) => secondsOf(point) === day)
        .reduce((sum, { metrics }) => sum + number(metrics, "subscriptions_lost"), 0),
    );
  };
  return {
    at,
    won: won.data.map(({ metrics }) => number(metrics, "subscriptions_won")),
    lost: Object.fromEntries(LOSSES.map((loss) => [loss, column(loss)])) as Record<Loss, number[]>,
    active: number(won.data.at(-1)?.metrics ?? {}, "subscriptions_active"),
  };
}

/** Whether there is nothing to draw. An empty part of a range that was zoomed to is drawn, with the way back. */
export const isBare = ({ active, won, lost }: Growth, isZoomed: boolean): boolean =>
  !isZoomed && active === 0 && [won, ...LOSSES.map((loss) => lost[loss])].flat().every((n) => n === 0);

const sum = (numbers: readonly number[]): number => numbers.reduce((sum, n) => sum + n, 0);

/** Losing more than this share of the base for one cause within the range is worth a word. */
const MANY = 0.1;

/** Whether the base is healthy, in one sentence; browsers that merely changed their address are neither won nor lost. */
export function health(grown: Growth, days: number): { tone: Tone; words: string } {
  const replaced = sum(grown.lost.replaced);
  const won = Math.max(0, sum(grown.won) - replaced);
  const causes = LOSSES.filter((loss) => loss !== "replaced").map((loss) => ({ loss, n: sum(grown.lost[loss]) }));
  const lost = sum(causes.map(({ n }) => n));
  const within = `within ${things(days, "day")}`;
  const base = `${things(grown.active, "active subscription")}`;
  if (won === 0 && lost === 0) return { tone: "waiting", words: `${capital(base)}; none gained or lost ${within}.` };
  const net = won - lost;
  const change = net === 0 ? "no change" : `${net > 0 ? "+" : "−"}${count(Math.abs(net))}`;
  const before = grown.active - net;
  const worst = causes.toSorted((a, b) => b.n - a.n)[0];
  const isIll = worst !== undefined && worst.n > before * MANY && before > 0;
  const why = isIll
    ? ` ${percent(worst.n / before)} were lost for one reason: ${LOSS_LOOKS[worst.loss].word.toLowerCase()}.`
    : "";
  return {
    tone: isIll ? "lost" : net < 0 ? "retrying" : "accepted",
    words: `${capital(base)}, ${change} ${within}: ${count(won)} gained, ${count(lost)} lost.${why}`,
  };
}

/** A part of the base. */
export interface Slice {
  key: string;
  title: string;
  active: number;
  won: number;
  lost: number;
}

/** The base by push service, the largest first. */
export function byGateway(chart: ChartResponse): Slice[] {
  return chart.data
    .map(({ dimensions, metrics }) => {
      const key = named(dimensions, "gateway");
      const of = (name: string) => number(metrics, `subscriptions_${name}`);
      return { key, title: gatewayName(key), active: of("active"), won: of("won"), lost: of("lost") };
    })
    .filter(({ active, won, lost }) => active + won + lost > 0)
    .sort((a, b) => b.active - a.active);
}

/** A VAPID key, and the active subscriptions that were made with it. */
export interface KeyAge {
  key: VapidKeyResponse;
  active: number;
}

/** The base by the key that browsers subscribed with: the active key first, then by age. */
export function byKey(keys: readonly VapidKeyResponse[], lanes: readonly LaneResponse[]): KeyAge[] {
  const active = (id: string) =>
    sum(lanes.filter((lane) => lane.vapid_key_id === id).map(({ subscriptions }) => subscriptions));
  return keys
    .map((key) => ({ key, active: active(key.id) }))
    .sort(
      (a, b) =>
        Number(a.key.state !== "active") - Number(b.key.state !== "active") ||
        b.key.created_at.localeCompare(a.key.created_at),
    );
}

/** The time of day in a zone, as `HH:MM`; undefined where the zone is not known. */
export function timeIn(timezone: string, now: Date): string | undefined {
  try {
    return now.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: timezone });
  } catch {
    return undefined;
  }
}

/** Quiet hours of this person: in the zone of a device, else in that of the app. */
export function quiet({ quiet_hours, timezone }: CalendarSettings, own: string | null | undefined, now: Date): string {
  const where = own ?? timezone;
  const there = timeIn(where, now);
  const clock = there ? ` It is ${there} there.` : "";
  const zone = own ? `${where} (reported by the browser)` : `${where} (the app’s default: no browser reported one)`;
  if (!quiet_hours) return `No quiet hours. Time zone: ${zone}.${clock}`;
  const { from, to } = quiet_hours;
  const isQuiet = there !== undefined && (from <= to ? there >= from && there < to : there >= from || there < to);
  return `Quiet from ${from} to ${to} in ${zone}.${clock}${isQuiet ? " Promotional and engagement messages wait now." : ""}`;
}

/** Data that an erasure deletes. */
export function whatErasureTakes(devices: readonly Pick<SubscriptionResponse, "state">[], isAll: boolean): string[] {
  const active = devices.filter(({ state }) => state === "active" || state === "suspended").length;
  const n = `${isAll ? "" : "more than "}${things(devices.length, "device")}`;
  return [
    `${capital(n)} (${active === 0 ? "none" : active === 1 ? "one" : count(active)} of them still subscribed): endpoints, keys, tags, attributes, topics, language and time zone.`,
    "Waiting deliveries, which are cancelled, and open dead letters, which are discarded.",
    "References to the person in messages. Nothing is sent after the server has responded.",
  ];
}

/** Progress of an erasure. */
export function erasureWords({
  subscriptions,
  messages,
  completed_at,
}: {
  subscriptions: number;
  messages: number;
  completed_at?: string | null;
}): string {
  const so_far = `${capital(things(subscriptions, "device"))} deleted, and removed from ${things(messages, "message")}.`;
  return completed_at
    ? `Done. ${so_far} No record names this person now.`
    : `In progress: messages are being searched. ${so_far}`;
}

/** Period of the figures, in days. */
export const RANGES = [7, 30, 90, 365] as const;
export const rangeOf = (days: string | undefined): number => RANGES.find((range) => String(range) === days) ?? 30;
