/** Results of a campaign: an export row, and comparisons of runs and variants as texts and intervals. Pure. */
import type {
  Campaign,
  CampaignProgress,
  CampaignRunFigures,
  CampaignRunResponse,
  CampaignVariantResponse,
  WithdrawalCounts,
} from "../api/types";
import { receipts } from "./campaigns";
import { clockTime, percent, type Zone } from "./format";
import type { Tone } from "./words";

/** Row of an export: results of all runs. */
export const resultRow = (campaign: Campaign, progress: CampaignProgress) => ({
  id: campaign.id,
  slug: campaign.slug,
  name: campaign.name,
  state: campaign.state,
  started_at: campaign.started_at,
  ...progress.total,
  reactions: receipts(progress),
  withdrawal: progress.withdrawal ? withdrawalRow(progress.withdrawal) : null,
});

/** Without `removal`, which is null in the sum over a campaign. */
const withdrawalRow = ({ at, ended_at, removed, prevented, missed, unknown }: WithdrawalCounts) => ({
  at,
  ended_at,
  removed,
  prevented,
  missed,
  unknown,
});

/** Change of a run's click rate from the previous run: percentage points, with a note if chance explains it. */
export function changeWords(before: CampaignRunFigures["before"]): string {
  if (before?.click_rate == null || before.higher == null) return "–";
  const points = `${before.click_rate < 0 ? "−" : "+"}${Math.abs(before.click_rate * 100).toFixed(1)} points`;
  return before.higher < 0.95 && before.higher > 0.05 ? `${points}, may be chance` : points;
}

/** Winner, in a sentence. Undefined: there was no test. */
export function winnerWords(
  { winner, confidence, decide_at }: CampaignRunResponse,
  now: Date,
  zone: Zone,
): string | undefined {
  if (decide_at) return `A/B test until ${clockTime(new Date(decide_at), now, zone)}.`;
  if (winner) return `Winner: ${winner}${confidence == null ? "" : `, with a probability of ${percent(confidence)}`}.`;
  return confidence == null
    ? undefined
    : `No winner: the best variant had a probability of ${percent(confidence)} only.`;
}

/** A variant's click rate and the bounds of its 95 % interval, as shares of the axis that all variants are drawn on. */
export interface Interval {
  name: string;
  weight: number;
  accepted: number;
  clicked: number;
  rate: number;
  from: number;
  to: number;
}

/** Variants of which something is known. */
export function intervals(variants: readonly CampaignVariantResponse[]): Interval[] {
  return variants.flatMap(({ name, weight, counts, reports }) => {
    const { click_rate: rate, click_rate_from: from, click_rate_to: to, clicked } = reports ?? {};
    if (rate == null || from == null || to == null) return [];
    return [{ name, weight, accepted: counts.accepted, clicked: clicked ?? 0, rate, from: Math.min(from, rate), to }];
  });
}

/** Upper end of an axis that contains all values: a round share. */
export const axisEnd = (of: readonly Pick<Interval, "to">[]): number =>
  Math.min(1, roundUp(Math.max(0.01, ...of.map(({ to }) => to))));

/** Next round number: 1, 2 or 5 times a power of ten. */
export function roundUp(most: number): number {
  const step = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5].map((factor) => factor * step).find((end) => end >= most - 1e-9) ?? 10 * step;
}

/** Badge above the interpretation. While a test runs and once it has decided, the run's own result is shown instead. */
export function verdictBadge(isClear: boolean, run: Pick<CampaignRunResponse, "winner" | "decide_at"> | undefined) {
  if (run?.decide_at) return "Test is running";
  if (run?.winner) return undefined;
  return isClear ? "Ahead" : "No winner";
}

/** Interpretation of the intervals. No clear winner is a result too. */
export function verdict(of: readonly Interval[]): { tone: Tone; words: string } | undefined {
  const [best, ...others] = of.toSorted((a, b) => b.rate - a.rate);
  const [second] = others;
  if (!best || !second) return undefined;
  if (of.every(({ clicked }) => clicked === 0)) return { tone: "cancelled", words: "No clicks so far." };
  if (others.every(({ to }) => best.from > to))
    return { tone: "accepted", words: `${best.name} has the highest CTR: the intervals do not overlap.` };
  return {
    tone: "cancelled",
    words: `The intervals of ${best.name} and ${second.name} overlap, so the difference may be chance.`,
  };
}
