/** Engagement and frequency protection of an app, as texts. Pure. */
import type { Cap, EngagementResponse, GatewayEngagement, FlowResponse, GuardResponse, Tier } from "../api/types";
import { capital, clockTime, count, duration, numberFault, percent, things, type Zone } from "./format";
import { gatewayName, type Tone } from "./words";

export const LEVELS: Record<GatewayEngagement["level"], { word: string; tone: Tone }> = {
  fine: { word: "Good", tone: "accepted" },
  watch: { word: "Watch", tone: "retrying" },
  warning: { word: "Too frequent", tone: "lost" },
  unknown: { word: "Unknown", tone: "cancelled" },
};

/** Period of the figures, in days. */
export const RANGES = [7, 28, 90] as const;
export const rangeOf = (days: string | undefined): number => RANGES.find((range) => String(range) === days) ?? 28;

const list = (items: readonly string[]) => new Intl.ListFormat("en").format(items);

/** State of engagement in one sentence. A held app comes before the figures. */
export function sentence(
  guard: GuardResponse,
  { gateways }: EngagementResponse,
  days: number,
  now: Date,
  zone: Zone,
): { tone: Tone; words: string } {
  if (guard.held.length > 0) return { tone: "lost", words: held(guard, now, zone) };
  const at = (level: GatewayEngagement["level"]) =>
    list(gateways.filter((one) => one.level === level).map(({ gateway }) => gatewayName(gateway)));
  if (at("warning"))
    return {
      tone: "lost",
      words: `Too frequent: few subscribers click or most dismiss the notifications, in browsers of ${at("warning")}.`,
    };
  if (at("watch"))
    return {
      tone: "retrying",
      words: `Possibly too frequent: fewer subscribers click or more dismiss the notifications, in browsers of ${at("watch")}.`,
    };
  const told = gateways.filter(({ level }) => level === "fine").map(({ now }) => now);
  if (told.length === 0)
    return { tone: "cancelled", words: `Unknown: browsers reported too few displays in ${things(days, "day")}.` };
  const sum = (of: "displayed" | "clicked") => told.reduce((sum, period) => sum + period[of], 0);
  return {
    tone: "accepted",
    words: `Good: of ${count(sum("displayed"))} notifications shown in ${things(days, "day")}, ${percent(sum("clicked") / sum("displayed"))} were clicked.`,
  };
}

const TIER_WORDS: Record<Tier, string> = {
  transactional: "One-time codes and other transactional messages",
  promotional: "promotional",
  engagement: "engagement",
};

function heldWords(held: readonly Tier[]): string {
  const others = held.filter((tier) => tier !== "transactional").map((tier) => TIER_WORDS[tier]);
  const parts = [
    ...(held.includes("transactional") ? [TIER_WORDS.transactional] : []),
    ...(others.length > 0 ? [`${list(others)} messages`] : []),
  ];
  return capital(list(parts));
}

function held({ held, held_at }: GuardResponse, now: Date, zone: Zone): string {
  const since = held_at ? ` since ${clockTime(new Date(held_at), now, zone)}` : "";
  return `${heldWords(held)} are on hold${since}: the app sent more than the guard allows for its size. They wait until an operator releases them.`;
}

/** A share with its denominator; unreported values are unknown, not zero. */
export function shareWords(share: number | null | undefined, of: number): { words: string; of: string | undefined } {
  return share == null ? { words: "–", of: undefined } : { words: percent(share), of: `of ${count(of)}` };
}

/** The same in as many days before. */
export const beforeWords = (share: number | null | undefined): string | undefined =>
  share == null ? undefined : `${percent(share)} before`;

export const UNITS = [
  ["d", "days"],
  ["h", "hours"],
  ["m", "minutes"],
] as const;

export const CAP_TIERS = [
  ["both", "Both together"],
  ["promotional", "Promotional"],
  ["engagement", "Engagement"],
] as const;

/** A cap as it is written. */
export interface CapDraft {
  tiers: (typeof CAP_TIERS)[number][0];
  max: string;
  window: string;
  unit: string;
}

export const CAPS_MAX = 12;
export const NEW_CAP: CapDraft = { tiers: "both", max: "2", window: "1", unit: "d" };

export function capDraft({ tiers = [], max, window }: Cap): CapDraft {
  const [only] = tiers;
  const [, n = "", unit = "d"] = /^(\d+)([smhd])$/.exec(window) ?? [];
  const isAlone = tiers.length === 1 && (only === "promotional" || only === "engagement");
  // Seconds are for programs: they are shown in minutes where they are whole.
  const isWhole = unit === "s" && Number(n) % 60 === 0;
  return {
    tiers: isAlone ? only : "both",
    max: String(max),
    window: isWhole ? String(Number(n) / 60) : n,
    unit: isWhole ? "m" : unit,
  };
}

export function capOf({ tiers, max, window, unit }: CapDraft): Cap {
  return {
    tiers: tiers === "both" ? ["promotional", "engagement"] : [tiers],
    max: Number(max),
    window: `${window.trim()}${unit}`,
  };
}

const UNIT_S: Record<string, number> = { s: 1, m: 60, h: 3_600, d: 86_400 };

const WINDOW_MAX_S = 30 * 86_400;
const MESSAGES_MAX = 50;

/** Faults of a cap, by field. */
export function capFaults({ max, window, unit }: CapDraft): { max: string | undefined; window: string | undefined } {
  const unitS = UNIT_S[unit] ?? 1;
  return {
    max: numberFault(max, 1, MESSAGES_MAX),
    window: numberFault(window, Math.ceil(60 / unitS), Math.floor(WINDOW_MAX_S / unitS)),
  };
}

/** Caps, one sentence each. */
export function capsWords(caps: readonly CapDraft[]): string[] {
  if (caps.length === 0) return ["There are no caps: subscribers get every message sent to them."];
  return caps.map(({ tiers, max, window, unit }) => {
    const many = Number(max) === 1 ? "one" : max;
    const kind =
      tiers === "both"
        ? "promotional and engagement messages together"
        : `${tiers} ${many === "one" ? "message" : "messages"}`;
    return `A user gets at most ${many} ${kind} in ${duration(Number(window) * (UNIT_S[unit] ?? 1))}.`;
  });
}

/** Number of recent deliveries against the limit. */
export interface Load {
  id: "other" | "transactional";
  word: string;
  sent: number;
  /** Of the limit; undefined: there is none. */
  share: number | undefined;
  isHeld: boolean;
}

export function loads({ sent, limit, held }: GuardResponse): Load[] {
  const share = (n: number) => (limit ? Math.min(1, n / limit) : undefined);
  return [
    {
      id: "other",
      word: "Promotional and engagement",
      sent: sent.other,
      share: share(sent.other),
      isHeld: held.some((tier) => tier !== "transactional"),
    },
    {
      id: "transactional",
      word: "Transactional",
      sent: sent.transactional,
      share: share(sent.transactional),
      isHeld: held.includes("transactional"),
    },
  ];
}

/** Limit of the guard. */
export function limitWords({ limit, factor, floor }: GuardResponse): string {
  if (limit == null) return "The guard is disabled.";
  const set = factor == null && floor == null ? "the server’s default" : "set for this app";
  return `Limit: ${count(limit)} deliveries in 15 minutes (${set}). An app above the limit is put on hold. Transactional messages are counted and held separately.`;
}

/** Effect of a release, with counts. */
export function releaseWords({ held }: GuardResponse, flow: FlowResponse | undefined): string {
  const waiting =
    flow &&
    `: ${flow.waiting_or_more ? "more than " : ""}${things(flow.waiting, "delivery waits", "deliveries wait")}. Cancel unwanted messages first`;
  return `${heldWords(held)} are sent again within a second${waiting ?? ". Cancel unwanted messages first"}. The count starts again at zero.`;
}
