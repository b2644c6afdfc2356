/** Conversions that campaigns caused, as texts, intervals and rows of a file. Pure. */
import type {
  AppResult,
  CampaignResult,
  CausedConversions,
  ConversionResult,
  Interval,
  LiftResult,
} from "../api/types";
import { roundUp } from "./campaign-results";
import { count, estimate } from "./format";

/** Name of a group of people. A campaign without variants has a group without a name beside its control group. */
export function groupWords(group: string): string {
  if (group === "control") return "Control group";
  if (group === "after_test") return "After the test";
  return group || "Campaign";
}

/** Conversions of one kind in one group. */
export interface GroupRow {
  name: string;
  group: string;
  people: number;
  converted: number;
  rate: number | null | undefined;
}

/** Rows of the groups, by kind of conversion. */
export function groupRows({ groups, conversions }: Pick<CampaignResult, "groups" | "conversions">): GroupRow[] {
  const people = new Map(groups.map(({ group, people }) => [group, people]));
  return conversions.flatMap(({ name, groups }) =>
    groups.map(({ group, converted, rate }) => ({ name, group, people: people.get(group) ?? 0, converted, rate })),
  );
}

/** A relative difference with the bounds of its interval. */
export interface LiftBar {
  name: string;
  mark: number;
  from: number;
  to: number;
}

/** Relative differences from the control group that are known. */
export function liftBars(conversions: readonly ConversionResult[]): LiftBar[] {
  return conversions.flatMap(({ name, lift }) => {
    const relative = lift?.relative;
    return relative ? [{ name, mark: relative.value, from: relative.low, to: relative.high }] : [];
  });
}

/** End of an axis with 0 in its middle that contains all intervals. */
export const liftAxis = (bars: readonly LiftBar[]): number =>
  roundUp(Math.max(0.01, ...bars.flatMap(({ from, to }) => [Math.abs(from), Math.abs(to)])));

/** Interval of an additional number: `80 to 130`. */
export function causedWords({ low, high }: Interval, unit = ""): string {
  const chance = low <= 0 && high >= 0 ? ", may be chance" : "";
  return `${estimate(low)} to ${estimate(high)}${unit && ` ${unit}`}${chance}`;
}

/** Conversions and values that a campaign caused, one on each line. */
export function liftLines({ additional, effect, people_needed, values }: LiftResult): string[] {
  const needed = people_needed
    ? [`A difference of 10 % needs about ${count(people_needed)} more people to be seen.`]
    : [];
  if (effect === "too_few" || !additional) return ["Too few conversions to compare.", ...needed];
  const money = values.flatMap(({ currency, additional }) =>
    additional ? [causedWords(additional, `${currency} more`)] : [],
  );
  return [causedWords(additional, "more conversions"), ...money, ...needed];
}

/** Rows of a file: one for each period and kind of conversion. Groups and currencies become columns by their names. */
export function resultRows(results: readonly CampaignResult[]): object[] {
  return results.flatMap(({ groups, conversions, ...period }): object[] => {
    if (conversions.length === 0) return [period];
    const people = new Map(groups.map(({ group, people }) => [group, people]));
    return conversions.map(({ name, attributed, lift, groups }) => ({
      ...period,
      conversion: name,
      attributed: attributed.conversions,
      attributed_people: attributed.people,
      value: Object.fromEntries(
        attributed.values.map(({ currency, value, per_delivery }) => [currency, { sum: value, per_delivery }]),
      ),
      effect: lift?.effect,
      relative: lift?.relative,
      additional: lift?.additional,
      additional_value: Object.fromEntries((lift?.values ?? []).map((it) => [it.currency, it.additional])),
      people_needed: lift?.people_needed,
      group: Object.fromEntries(
        groups.map(({ group, ...counts }) => [group || "campaign", { people: people.get(group), ...counts }]),
      ),
    }));
  });
}

/** Calendar quarter in UTC: `2026-Q4`. */
export const quarterOf = (at: Date): string => `${at.getUTCFullYear()}-Q${Math.floor(at.getUTCMonth() / 3) + 1}`;

/** Quarter before another one. */
export function quarterBefore(quarter: string): string {
  const [year = 0, n = 1] = quarter.split("-Q").map(Number);
  return n > 1 ? `${year}-Q${n - 1}` : `${year - 1}-Q4`;
}

/** Quarters that can be chosen. */
const QUARTERS = 8;

/** The quarter of a time and those before it, with a chosen one that is older. */
export function quarters(now: Date, chosen: string | undefined): string[] {
  const all = [quarterOf(now)];
  while (all.length < QUARTERS) all.push(quarterBefore(all.at(-1) ?? ""));
  return chosen && !all.includes(chosen) ? [...all, chosen] : all;
}

/** Effect of all campaigns on each kind of conversion, as sentences. */
export function quarterWords({ quarter, is_final, conversions }: AppResult): { name: string; words: string }[] {
  const names = [...new Set(conversions.map(({ name }) => name))];
  const end = ` in ${quarter}${is_final ? "." : ", so far."}`;
  return names.map((name) => {
    const all = conversions.filter((it) => it.name === name);
    const effects = all.flatMap(effectWords);
    const of = all.some(({ currency, additional }) => currency == null && isClear(additional)) ? "" : ` by \`${name}\``;
    return effects.length === 0
      ? { name, words: `No measurable effect of campaigns on \`${name}\`${end}` }
      : { name, words: `Campaigns caused ${effects.join(" and ")}${of}${end}` };
  });
}

const isClear = ({ low, high }: Interval): boolean => low > 0 || high < 0;

/** Caused conversions or value. Empty: the effect may be chance. */
function effectWords({ name, currency, additional }: CausedConversions): string[] {
  if (!isClear(additional)) return [];
  const isLess = additional.high < 0;
  const [low, high] = isLess ? [-additional.high, -additional.low] : [additional.low, additional.high];
  const span = `${estimate(low)} to ${estimate(high)}`;
  if (currency) return [`${span} ${currency}${isLess ? " less" : ""}`];
  return [`${span} ${isLess ? "fewer " : ""}conversions of \`${name}\``];
}
