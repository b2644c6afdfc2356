/** Requests of the overview: of one app, or of all. */
import { api, told } from "../../api/client";
import type {
  AppResponse,
  Campaign,
  ChartResponse,
  DeadLetterGroup,
  LaneResponse,
  ReliabilityResponse,
} from "../../api/types";
import { clock } from "../../lib/clock";
import { OUTCOMES, type Queue } from "../../lib/figures";
import type { TimeRange, TimeSpan } from "../../lib/range";
import { loadCampaign, loadPage } from "../campaigns/load";

const HOUR_MS = 3_600_000;

async function chart(
  app: string | undefined,
  query: Parameters<typeof all>[0],
  signal: AbortSignal,
): Promise<ChartResponse> {
  return app
    ? told(api.GET("/v1/apps/{app}/metrics", { params: { path: { app }, query }, signal }))
    : all(query, signal);
}

const all = (
  query: { since: string; until: string; measures: string[]; step?: string },
  signal: AbortSignal,
): Promise<ChartResponse> => told(api.GET("/v1/metrics", { params: { query }, signal }));

/** Outcomes of deliveries in each step of a range. */
export const loadThroughput = (app: string | undefined, { since, until, step }: TimeRange, signal: AbortSignal) =>
  chart(app, { since, until, step, measures: [...OUTCOMES] }, signal);

/** Minutes of the current rate. */
const RATE_MS = 5 * 60_000;

/** Outcomes of the last minutes, for the current rate. */
export function loadRate(app: string | undefined, signal: AbortSignal): Promise<ChartResponse> {
  const end = clock.now();
  return chart(
    app,
    {
      since: new Date(end.getTime() - RATE_MS).toISOString(),
      until: end.toISOString(),
      step: "1m",
      measures: [...OUTCOMES],
    },
    signal,
  );
}

const SUMS = [
  "accepted",
  "expired",
  "dead",
  "receipts_asked",
  "displayed",
  "clicked",
  "click_rate",
  "latency_p50",
  "latency_p90",
  "latency_p95",
  "latency_p99",
  "subscriptions_won",
  "subscriptions_lost",
  "subscriptions_active",
];

/** Sums of a range and of the range before. */
export interface Sums {
  now: object;
  before: object;
}

export async function loadSums(
  app: string | undefined,
  { since, until, before }: TimeRange,
  signal: AbortSignal,
): Promise<Sums> {
  const of = async (span: TimeSpan) => (await chart(app, { ...span, measures: SUMS }, signal)).data[0]?.metrics ?? {};
  const [now, earlier] = await Promise.all([of({ since, until }), of(before)]);
  return { now, before: earlier };
}

/** Campaigns on the overview, and apps whose campaigns are read. */
const CAMPAIGNS_MAX = 5;
const APPS_MAX = 5;

export interface RecentCampaign {
  app: AppResponse;
  campaign: Campaign;
}

/** The latest started campaigns, with their reports. */
export async function loadCampaigns(apps: readonly AppResponse[], signal: AbortSignal): Promise<RecentCampaign[]> {
  const lists = await Promise.all(
    apps
      .slice(0, APPS_MAX)
      .map(async (app) =>
        (await loadPage(app.id, { state: undefined, limit: 25, iterator: undefined }, signal)).campaigns.map(
          (campaign) => ({ app, campaign }),
        ),
      ),
  );
  const started = lists.flat().filter(({ campaign }) => campaign.runs > 0 && campaign.started_at);
  const latest = started
    .sort((a, b) => (b.campaign.started_at ?? "").localeCompare(a.campaign.started_at ?? ""))
    .slice(0, CAMPAIGNS_MAX);
  return Promise.all(
    latest.map(async ({ app, campaign }) => ({ app, campaign: await loadCampaign(app.id, campaign.id, signal) })),
  );
}

export const loadQueue = (app: string | undefined, signal: AbortSignal): Promise<Queue> =>
  app
    ? told(api.GET("/v1/apps/{app}/flow", { params: { path: { app } }, signal }))
    : told(api.GET("/v1/flow", { signal }));

/** The newest lanes, of one app or of all. */
export async function loadLanes(app: string | undefined, signal: AbortSignal): Promise<LaneResponse[]> {
  return (await told(api.GET("/v1/gateways", { params: { query: { app, limit: 250 } }, signal }))).data;
}

export const loadAlerts = async (app: string | undefined, signal: AbortSignal) => {
  const { data } = await told(api.GET("/v1/alerts", { params: { query: { limit: 50 } }, signal }));
  return data.filter((alert) => !alert.resolved_at && (!app || !alert.app || alert.app === app));
};

/** Open dead letters of these apps, by reason; apps are few. */
export async function loadDeadLetters(
  apps: readonly AppResponse[],
  signal: AbortSignal,
): Promise<{ app: AppResponse; groups: DeadLetterGroup[] }[]> {
  const query = { by: "reason", state: "open" } as const;
  return Promise.all(
    apps.map(async (app) => {
      const { data } = await told(
        api.GET("/v1/apps/{app}/dead-letters/groups", { params: { path: { app: app.id }, query }, signal }),
      );
      return { app, groups: data };
    }),
  );
}

/** Reliability of the last hour and of the hour before. */
export async function loadReliability(
  app: string | undefined,
  signal: AbortSignal,
): Promise<{ now: ReliabilityResponse; before: ReliabilityResponse }> {
  const until = new Date(clock.now().getTime() - HOUR_MS).toISOString();
  const ask = (query: { until?: string }) =>
    app
      ? told(api.GET("/v1/apps/{app}/metrics/reliability", { params: { path: { app }, query }, signal }))
      : told(api.GET("/v1/metrics/reliability", { params: { query }, signal }));
  const [now, before] = await Promise.all([ask({}), ask({ until })]);
  return { now, before };
}
