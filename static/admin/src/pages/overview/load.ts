/** Requests of the overview: of one app, or of all. */
import { api, told } from "../../api/client";
import type { AppResponse, ChartResponse, DeadLetterGroup, LaneResponse, ReliabilityResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import { OUTCOMES, type Queue } from "../../lib/figures";

const HOUR_MS = 3_600_000;

const range = (hours: number) => {
  const end = clock.now();
  return { since: new Date(end.getTime() - hours * HOUR_MS).toISOString(), until: end.toISOString() };
};

async function chart(app: string | undefined, query: Parameters<typeof all>[0], signal: AbortSignal): Promise<ChartResponse> {
  return app ? told(api.GET("/v1/apps/{app}/metrics", { params: { path: { app }, query }, signal })) : all(query, signal);
}

const all = (query: { since: string; until: string; measures: string[]; step?: string }, signal: AbortSignal): Promise<ChartResponse> =>
  told(api.GET("/v1/metrics", { params: { query }, signal }));

/** Outcomes of deliveries in each minute of the last hour. */
export const loadThroughput = (app: string | undefined, signal: AbortSignal) =>
  chart(app, { ...range(1), step: "1m", measures: [...OUTCOMES] }, signal);

/** Delivery times of the last hour: sums, not steps. */
export const loadLatency = (app: string | undefined, signal: AbortSignal) =>
  chart(app, { ...range(1), measures: ["latency_p50", "latency_p90", "latency_p95", "latency_p99", "accepted"] }, signal);

/** Receipts of a day's deliveries. */
export const loadFunnel = (app: string | undefined, signal: AbortSignal) =>
  chart(app, { ...range(24), measures: ["accepted", "receipts_asked", "displayed", "clicked"] }, signal);

export const loadQueue = (app: string | undefined, signal: AbortSignal): Promise<Queue> =>
  app ? told(api.GET("/v1/apps/{app}/flow", { params: { path: { app } }, signal })) : told(api.GET("/v1/flow", { signal }));

/** The newest lanes, of one app or of all. */
export async function loadLanes(app: string | undefined, signal: AbortSignal): Promise<LaneResponse[]> {
  return (await told(api.GET("/v1/gateways", { params: { query: { app, limit: 250 } }, signal }))).data;
}

export const loadAlerts = async (app: string | undefined, signal: AbortSignal) => {
  const { data } = await told(api.GET("/v1/alerts", { params: { query: { limit: 50 } }, signal }));
  return data.filter((alert) => !alert.resolved_at && (!app || !alert.app || alert.app === app));
};

/** Open dead letters of these apps, by reason; apps are few. */
export async function loadDeadLetters(apps: readonly AppResponse[], signal: AbortSignal): Promise<{ app: AppResponse; groups: DeadLetterGroup[] }[]> {
  const query = { by: "reason", state: "open" } as const;
  return Promise.all(
    apps.map(async (app) => {
      const { data } = await told(api.GET("/v1/apps/{app}/dead-letters/groups", { params: { path: { app: app.id }, query }, signal }));
      return { app, groups: data };
    }),
  );
}

/** The last hour, and the one before it to compare with. */
export async function loadReliability(app: string | undefined, signal: AbortSignal): Promise<{ now: ReliabilityResponse; before: ReliabilityResponse }> {
  const until = new Date(clock.now().getTime() - HOUR_MS).toISOString();
  const ask = (query: { until?: string }) =>
    app
      ? told(api.GET("/v1/apps/{app}/metrics/reliability", { params: { path: { app }, query }, signal }))
      : told(api.GET("/v1/metrics/reliability", { params: { query }, signal }));
  const [now, before] = await Promise.all([ask({}), ask({ until })]);
  return { now, before };
}
