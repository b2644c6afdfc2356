/** Funnel of the opt-in prompt as texts, steps and rows of a file. Pure. */
import type { PromptFunnel, PromptFunnelGroup, ShareInterval } from "../api/types";
import { capital, dayOf } from "./format";
import { LAYOUTS } from "./prompt";
import type { Filters } from "./url";

export type Split = PromptFunnel["by"];

/** Properties that split the funnel. */
export const SPLITS: readonly (readonly [Split, string])[] = [
  ["variant", "Variant"],
  ["layout", "Form"],
  ["page", "Page"],
  ["browser", "Browser"],
  ["day", "Day"],
];

/** Days of the default range. */
const DAYS = 30;
const DAY_MS = 86_400_000;

const isDay = (text: string | undefined): text is string =>
  /^20\d\d-\d\d-\d\d$/.test(text ?? "") && !Number.isNaN(Date.parse(text ?? ""));

/** Split and days of the URL; by default the last 30 days by variant. */
export function funnelQuery({ by, since, until }: Filters, now: Date): Pick<PromptFunnel, "since" | "until" | "by"> {
  const day = (time: number) => new Date(time).toISOString().slice(0, 10);
  const last = isDay(until) ? until : day(now.getTime());
  const first = isDay(since) ? since : day(Date.parse(last) - (DAYS - 1) * DAY_MS);
  const [from = first, to = last] = [first, last].sort();
  return { since: from, until: to, by: SPLITS.find(([split]) => split === by)?.[0] ?? "variant" };
}

/** Name of a group. */
export function groupName(by: Split, value: string | null | undefined): string {
  if (value == null) return { variant: "No variant", page: "Other pages" }[by as string] ?? "Unknown";
  if (by === "layout")
    return value === "preferences" ? "Preferences" : (LAYOUTS.find(([it]) => it === value)?.[1] ?? value);
  if (by === "browser") return capital(value);
  return by === "day" ? dayOf(new Date(value)) : value;
}

/** A step of the funnel, with the number that it is a share of. */
export interface OptInStep {
  word: string;
  n: number;
  of: number | undefined;
  /** Whether `of` is in no other column. */
  isOfOthers?: boolean;
}

/** Steps of a group. A subscriber counts for a period only once the period has passed. */
export const optInSteps = (group: PromptFunnelGroup): OptInStep[] => [
  { word: "Shown", n: group.shown, of: undefined },
  { word: "Accepted", n: group.accepted, of: group.shown },
  { word: "Browser asked", n: group.asked, of: group.accepted },
  { word: "Subscribed", n: group.granted, of: group.asked },
  { word: "After 7 days", n: group.kept_7_days, of: group.due_7_days, isOfOthers: true },
  { word: "After 30 days", n: group.kept_30_days, of: group.due_30_days, isOfOthers: true },
];

/** Refusals and guides of a group. */
export const refusals = (group: PromptFunnelGroup): { word: string; n: number }[] => [
  { word: "Not now", n: group.later },
  { word: "No", n: group.no },
  { word: "Denied in the browser", n: group.denied },
  { word: "Dismissed in the browser", n: group.dismissed },
  { word: "Guide shown", n: group.guided },
];

/** Whether no visitor got the prompt or a guide, and no step was reported. */
export const isBare = ({ groups }: PromptFunnel): boolean =>
  groups.every((group) => [...optInSteps(group), ...refusals(group)].every(({ n }) => n === 0));

/** A share with a decimal, without which small differences would be rounded away: `12.9 %`. */
export const shareWords = (share: number): string => `${(share * 100).toFixed(1)} %`;

/** Bounds of a share: `11.8 to 14.1 %`. */
export const boundWords = ({ low, high }: ShareInterval): string => `${(low * 100).toFixed(1)} to ${shareWords(high)}`;

export interface NamedShare extends ShareInterval {
  name: string;
}

/** Variants with a share of subscribers, the largest share first. */
export const comparedVariants = ({ by, groups }: PromptFunnel): NamedShare[] =>
  by === "variant"
    ? groups
        .flatMap(({ value, granted_share: share }) => (value != null && share ? [{ ...share, name: value }] : []))
        .sort((a, b) => b.value - a.value)
    : [];

/** Result of a comparison, largest share first. Undefined: nothing to compare. */
export function comparisonWords(variants: readonly NamedShare[]): string | undefined {
  if (variants.length < 2) return undefined;
  for (const [n, better] of variants.entries()) {
    const worse = variants.slice(n + 1).find(({ high }) => high < better.low);
    if (!worse) continue;
    const than = variants.length > 2 ? ` than \`${worse.name}\`` : "";
    return `\`${better.name}\` gets more subscribers${than}: ${boundWords(better)} instead of ${boundWords(worse)}.`;
  }
  return "No measurable difference between the variants yet.";
}

/** Rows of a file: one for each group, which has the name of the split. */
export const funnelRows = ({ since, until, by, groups }: PromptFunnel): object[] =>
  groups.map(({ value, granted_share: share, ...counts }) => ({
    since,
    until,
    [by]: value,
    ...counts,
    granted_share: { low: share?.low, value: share?.value, high: share?.high },
  }));
