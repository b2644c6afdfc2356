import { api, told } from "../../api/client";
import type { FlowResponse, LaneResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import type { Order } from "../../lib/lanes";

const HOUR_MS = 3_600_000;

export interface LanePage {
  lanes: LaneResponse[];
  /** Cursors of the previous and the next page. */
  next: string | null | undefined;
  previous: string | null | undefined;
}

/** Lanes of one app, or of all apps that the user may read. */
export async function loadLanes(
  app: string | undefined,
  after: string | undefined,
  signal: AbortSignal,
  limit = 100,
): Promise<LanePage> {
  const { data, iterator, prev_iterator } = await told(
    api.GET("/v1/gateways", { params: { query: { app, limit, iterator: after } }, signal }),
  );
  return { lanes: data, next: iterator, previous: prev_iterator };
}

export const loadLane = (lane: number, signal: AbortSignal): Promise<LaneResponse> =>
  told(api.GET("/v1/gateways/{lane}", { params: { path: { lane } }, signal }));

export const loadFlow = (lane: number, signal: AbortSignal): Promise<FlowResponse> =>
  told(api.GET("/v1/gateways/{lane}/flow", { params: { path: { lane } }, signal }));

/** Of the lanes' attempts within the last hour: how many, and which share was not taken. */
export interface Attempts {
  attempts: number;
  errorRate: number | null;
}

const lastHour = () => {
  const end = clock.now();
  return { since: new Date(end.getTime() - HOUR_MS).toISOString(), until: end.toISOString() };
};

/** Lanes of these apps. Undefined: of all apps at once, for users with access to the server. */
export async function loadAttempts(
  apps: readonly string[] | undefined,
  signal: AbortSignal,
): Promise<Map<number, Attempts>> {
  const query = { ...lastHour(), measures: ["attempts", "error_rate"], by: ["lane"] };
  const charts = apps
    ? await Promise.all(
        apps.map((app) => told(api.GET("/v1/apps/{app}/metrics", { params: { path: { app }, query }, signal }))),
      )
    : [await told(api.GET("/v1/metrics", { params: { query }, signal }))];
  return new Map(
    charts.flatMap(({ data }) =>
      data.map(({ dimensions, metrics }): [number, Attempts] => {
        const { attempts = 0, error_rate = null } = metrics as { attempts?: number; error_rate?: number | null };
        return [Number((dimensions as { lane?: number }).lane), { attempts, errorRate: error_rate }];
      }),
    ),
  );
}

/** Responses of attempts, by class. */
export async function loadAnswers(
  { app, lane }: Pick<LaneResponse, "app" | "lane">,
  signal: AbortSignal,
): Promise<{ status: string; n: number }[]> {
  const query = { ...lastHour(), measures: ["attempts"], by: ["status"], lane: [lane] };
  const { data } = await told(api.GET("/v1/apps/{app}/metrics", { params: { path: { app }, query }, signal }));
  const answers = data.map(({ dimensions, metrics }) => ({
    status: String((dimensions as { status?: string }).status),
    n: Number((metrics as { attempts?: number }).attempts ?? 0),
  }));
  return answers.filter(({ n }) => n > 0);
}

export interface OrderBody {
  seconds?: number;
  reason?: string;
}

/** Gives an order to all origins of a lane; it stands in the audit log. Returns how the lane is then. */
export function give(order: Order, lane: number, body: OrderBody): Promise<LaneResponse> {
  const to = { params: { path: { lane } }, body };
  switch (order) {
    case "hold":
      return told(api.POST("/v1/gateways/{lane}/hold", to));
    case "release":
      return told(api.POST("/v1/gateways/{lane}/release", to));
    case "open":
      return told(api.POST("/v1/gateways/{lane}/open", to));
    case "close":
      return told(api.POST("/v1/gateways/{lane}/close", to));
    case "probe":
      return told(api.POST("/v1/gateways/{lane}/probe", to));
  }
}

/** Restores subscriptions of a lane that were pruned within a time, or counts them. Returns their number. */
export async function restorePruned(
  { app, lane }: Pick<LaneResponse, "app" | "lane">,
  since: Date,
  until: Date,
  dryRun: boolean,
): Promise<number> {
  const body = { lane, since: since.toISOString(), until: until.toISOString(), dry_run: dryRun };
  let restored = 0;
  for (let more = true; more; ) {
    const done = await told(api.POST("/v1/apps/{app}/subscriptions/restore", { params: { path: { app } }, body }));
    restored += done.restored;
    more = done.more;
  }
  return restored;
}
