/** Texts and series of the overview. Pure. */
import type {
  AlertResponse,
  AppResponse,
  ChartResponse,
  FlowResponse,
  LaneResponse,
  MetricReading,
} from "../api/types";
import { atLeast, capital, clockTime, count, duration, percent, rate, things, type Zone } from "./format";
import { because, laneState } from "./lanes";
import { gatewayName, type Tone } from "./words";

/** Waiting deliveries: of one app, or of the whole server. */
export type Queue = Pick<FlowResponse, "waiting" | "waiting_or_more" | "oldest_waiting_s">;

/** Outcomes of deliveries, from the bottom of the chart to its top, with their style. */
export const OUTCOMES = ["accepted", "gone", "expired", "dead", "capped", "cancelled"] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** Pattern that distinguishes outcomes of one tone. */
export type Pattern = "solid" | "stripes" | "dots" | "crossed";
export const OUTCOME_LOOKS: Record<Outcome, { word: string; tone: Tone; pattern: Pattern }> = {
  accepted: { word: "Accepted", tone: "accepted", pattern: "solid" },
  gone: { word: "Gone", tone: "cancelled", pattern: "dots" },
  expired: { word: "Expired", tone: "lost", pattern: "stripes" },
  dead: { word: "Dead", tone: "lost", pattern: "solid" },
  capped: { word: "Capped", tone: "cancelled", pattern: "crossed" },
  cancelled: { word: "Cancelled", tone: "cancelled", pattern: "stripes" },
};

/** A number of a chart's point; what is absent or null is nothing. */
const metric = (metrics: object, name: string): number => Number((metrics as Record<string, unknown>)[name] ?? 0);

/** Columns of the chart: when each step begins, in seconds, and how many ended how. */
export interface Throughput {
  at: number[];
  ended: Record<Outcome, number[]>;
  /** Steps that may still grow. */
  unsettledFrom: number;
}

/** Points of a chart since the creation of what it shows, two at least, so that the chart fills its range. */
export function sinceCreation(chart: ChartResponse, created: Date | undefined): ChartResponse {
  if (!created) return chart;
  const last = chart.data.findLastIndex(
    ({ time_bucket }) => !time_bucket || Date.parse(time_bucket) <= created.getTime(),
  );
  const first = Math.min(last, chart.data.length - 2);
  return first > 0 ? { ...chart, data: chart.data.slice(first) } : chart;
}

/** Time of the first app's creation. */
export const firstCreation = (apps: readonly { created_at: string }[]): Date | undefined =>
  apps.length === 0 ? undefined : new Date(Math.min(...apps.map(({ created_at }) => Date.parse(created_at))));

export function throughput(whole: ChartResponse, created?: Date): Throughput {
  const chart = sinceCreation(whole, created);
  const columns = OUTCOMES.map(
    (outcome) => [outcome, chart.data.map((point) => metric(point.metrics, outcome))] as const,
  );
  return {
    at: chart.data.map((point) => Date.parse(point.time_bucket ?? chart.metadata.from) / 1_000),
    ended: Object.fromEntries(columns) as Record<Outcome, number[]>,
    unsettledFrom: Date.parse(chart.metadata.complete_until) / 1_000,
  };
}

/** Deliveries that ended in the last full step: what is a minute now. */
export function perMinute({ at, ended, unsettledFrom }: Throughput): number {
  const last = at.findLastIndex((start) => start + 60 <= unsettledFrom);
  return last < 0 ? 0 : OUTCOMES.reduce((sum, outcome) => sum + (ended[outcome][last] ?? 0), 0);
}

/** First sentence of the page. */
export interface Sentence {
  tone: Tone;
  words: string;
  /** The page that shows why. */
  path?: string;
}

/** A delivery that is due for longer than this, though nothing holds it, is late. */
const LATE_S = 300;

/** App of a lane, if there are several. */
export const appOf = <A extends { id: string }>({ app }: LaneResponse, apps: readonly A[] = []): A | undefined =>
  apps.length > 1 ? apps.find(({ id }) => id === app) : undefined;

/** The whole state in one sentence, the worst first; what is not known (undefined) is not spoken of. */
export function sentence(
  known: {
    perMinute?: number;
    queue?: Queue;
    lanes?: readonly LaneResponse[];
    alerts?: readonly AlertResponse[];
    /** Apps, if the figures are of several. */
    apps?: readonly Pick<AppResponse, "id" | "name">[] | undefined;
  },
  now: Date,
  zone: Zone,
): Sentence {
  const { queue, lanes = [], alerts = [] } = known;
  const ill = lanes.filter((lane) => laneState(lane) === "held" || laneState(lane) === "open");
  const wait = waits(queue);
  const [first, ...others] = ill;
  if (first && others.length === 0)
    return {
      tone: toneOf(ill),
      words: `${because(first, now, zone, appOf(first, known.apps)?.name)}${wait ? `; ${wait}` : ""}.`,
      path: `/push-services/${first.lane}`,
    };
  if (first) {
    const names = [...new Set(ill.map((lane) => gatewayName(lane.gateway)))];
    return {
      tone: toneOf(ill),
      words: `${capital(things(names.length, "push service"))} ${names.length === 1 ? "has" : "have"} a problem (${names.join(", ")})${wait ? `; ${wait}` : ""}.`,
      path: "/push-services",
    };
  }
  const open = alerts.filter((alert) => !alert.resolved_at);
  if (open[0]) {
    const words =
      open.length === 1
        ? sentenceOf(open[0].detail)
        : `${things(open.length, "alert")} are open. The latest: ${sentenceOf(open[0].detail)}`;
    return { tone: "retrying", words, ...(open[0].kind === "runaway" ? { path: "/frequency" } : {}) };
  }
  const oldest = queue?.oldest_waiting_s ?? 0;
  if (oldest > LATE_S && queue)
    return {
      tone: "retrying",
      words: `Sending is late: ${wait}, the oldest for ${duration(oldest)}.`,
      path: "/push-services",
    };
  const speed = known.perMinute ? rate(known.perMinute) : "idle";
  return { tone: "accepted", words: `All well: ${speed}${queue ? `, ${wait || "nothing is waiting"}` : ""}.` };
}

const sentenceOf = (text: string) => (/[.!?]$/.test(text) ? text : `${text}.`);
const toneOf = (ill: readonly LaneResponse[]): Tone =>
  ill.some((lane) => laneState(lane) === "open") ? "lost" : "retrying";

function waits(queue: Queue | undefined): string {
  if (!queue || queue.waiting === 0) return "";
  return `${atLeast(queue.waiting, queue.waiting_or_more)} ${queue.waiting === 1 ? "waits" : "wait"}`;
}

/** Funnel from accepted to clicked. Unknown parts are shown separately. */
export interface Funnel {
  accepted: number;
  /** Accepted deliveries that can be reported on: the push carried a receipt token. */
  asked: number;
  displayed: number;
  clicked: number;
  /** Accepted, without any possible report. */
  unknowable: number;
  /** Accepted without a report so far: not shown, or shown by a browser that does not report. */
  silent: number;
}

export function funnel(metrics: object): Funnel {
  const accepted = metric(metrics, "accepted");
  // Receipts count when they come: right after midnight there may be more of them than of what was accepted since.
  const asked = Math.min(metric(metrics, "receipts_asked"), accepted);
  const displayed = metric(metrics, "displayed");
  return {
    accepted,
    asked,
    displayed,
    clicked: metric(metrics, "clicked"),
    unknowable: accepted - asked,
    silent: Math.max(0, asked - displayed),
  };
}

const SLI_WORDS: Record<MetricReading["sli"], { title: string; of: string }> = {
  first_retry_success: { title: "First retry succeeds", of: "deliveries that were retried" },
  second_retry_success: { title: "Second retry succeeds", of: "deliveries that were retried twice" },
  backoff_stretch: { title: "Delay of retries, against plan", of: "retries that were accepted" },
  ttl_expired_purges: { title: "Expired while waiting for a retry", of: "retries that were sent" },
  breaker_trips: { title: "Breakers opened, per lane", of: "openings" },
};

/** One of the rule book's five figures, in words. */
export interface SliWords {
  title: string;
  value: string;
  target: string;
  /** Against the hour before; undefined where there is nothing to compare. */
  trend: "better" | "worse" | "steady" | undefined;
  verdict: string;
  tone: Tone;
  samples: string;
}

/** A difference smaller than this share of the target is none. */
const STEADY = 0.05;

export function sliWords(reading: MetricReading, before: MetricReading | undefined): SliWords {
  const { title, of } = SLI_WORDS[reading.sli];
  const moreIsBetter = reading.target > reading.alert;
  const shown = (value: number) => {
    if (reading.sli === "backoff_stretch") return `${Number(value.toFixed(2))} ×`;
    return reading.sli === "breaker_trips" ? String(Number(value.toFixed(2))) : percent(value);
  };
  const verdicts: Record<MetricReading["state"], [string, Tone]> = {
    ok: ["On target", "accepted"],
    warn: ["Off target", "retrying"],
    alert: ["Alert", "lost"],
    unknown: ["Too few samples", "cancelled"],
  };
  const [verdict, tone] = verdicts[reading.state];
  return {
    title,
    value: reading.value == null ? "–" : shown(reading.value),
    target: `${moreIsBetter ? "more than" : "less than"} ${shown(reading.target)}`,
    trend: trend(reading, before, moreIsBetter),
    verdict,
    tone,
    samples: `${count(reading.samples)} ${of}`,
  };
}

function trend(now: MetricReading, before: MetricReading | undefined, moreIsBetter: boolean): SliWords["trend"] {
  if (now.value == null || before?.value == null) return undefined;
  const change = now.value - before.value;
  if (Math.abs(change) < STEADY * now.target) return "steady";
  return change > 0 === moreIsBetter ? "better" : "worse";
}

/** End of a hold, for a list. */
export const endOf = (time: string | null | undefined, now: Date, zone: Zone): string =>
  time ? clockTime(new Date(time), now, zone) : "";
