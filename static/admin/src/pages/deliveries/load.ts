import { api, told } from "../../api/client";
import { refusal } from "../../api/problem";
import type {
  DeliveryResponse,
  DeliveryState,
  ExplanationResponse,
  FoundDelivery,
  FoundDeliveries,
  LaneResponse,
  SubscriptionResponse,
} from "../../api/types";
import { clock } from "../../lib/clock";
import { isId, person, type Turn } from "../../lib/deliveries";
import type { Filters } from "../../lib/url";

const DAY_MS = 86_400_000;
/** Maximum number of devices of one person. */
export const DEVICES_MAX = 20;

/** Undefined where the object does not exist or was deleted. */
async function orNothing<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (thrown) {
    if (refusal(thrown).status === 404) return undefined;
    throw thrown;
  }
}

/** Requests of a search. */
function queryOf({ who, message, state, tier, lane, within, day, after }: Filters, limit: number) {
  const whom = { ...person(who), message };
  const narrowed = {
    state: state as DeliveryState | undefined,
    tier: tier as "transactional" | undefined,
    lane: lane ? Number(lane) : undefined,
    limit,
    iterator: after,
  };
  if (message) return { ...whom, ...narrowed };
  // To the minute, lest every look be another one.
  const since = within
    ? new Date(Math.floor(clock.now().getTime() / 60_000) * 60_000 - Number(within) * 1_000).toISOString()
    : undefined;
  const until = day && !Number.isNaN(Date.parse(day)) ? new Date(Date.parse(day) + DAY_MS).toISOString() : undefined;
  return { ...whom, ...narrowed, since, until };
}

export const loadFound = (app: string, filters: Filters, signal: AbortSignal, limit = 50): Promise<FoundDeliveries> =>
  told(api.GET("/v1/apps/{app}/deliveries", { params: { path: { app }, query: queryOf(filters, limit) }, signal }));

/** A person's devices, the newest first; the one device if that is what was named. */
export async function loadDevices(app: string, who: string, signal: AbortSignal): Promise<SubscriptionResponse[]> {
  if (isId(who, "sub_")) {
    const one = await loadSubscription(app, who, signal);
    return one ? [one] : [];
  }
  const query = { user_id: who, limit: DEVICES_MAX };
  return (await told(api.GET("/v1/apps/{app}/subscriptions", { params: { path: { app }, query }, signal }))).data;
}

const loadSubscription = (
  app: string,
  subscription: string,
  signal: AbortSignal,
): Promise<SubscriptionResponse | undefined> =>
  orNothing(
    told(api.GET("/v1/apps/{app}/subscriptions/{subscription}", { params: { path: { app, subscription } }, signal })),
  );

/** An app's lanes, to choose from. */
export async function loadLanes(app: string, signal: AbortSignal): Promise<LaneResponse[]> {
  const { data } = await told(api.GET("/v1/gateways", { params: { query: { limit: 250 } }, signal }));
  return data.filter((lane) => lane.app === app);
}

/** Everything that is known of one delivery. */
export interface Known {
  explanation: ExplanationResponse;
  /** With attempts and receipts. Undefined: there is no delivery, and the explanation has the reason. */
  delivery: DeliveryResponse | undefined;
  found: FoundDelivery | undefined;
  /** Undefined: it was deleted. */
  subscription: SubscriptionResponse | undefined;
}

export async function loadKnown(
  app: string,
  message: string,
  subscription: string,
  signal: AbortSignal,
): Promise<Known> {
  const to = { params: { path: { app, message, subscription } }, signal };
  const query = { message, subscription };
  const [explanation, delivery, found, device] = await Promise.all([
    told(api.GET("/v1/apps/{app}/messages/{message}/deliveries/{subscription}/explain", to)),
    orNothing(told(api.GET("/v1/apps/{app}/messages/{message}/deliveries/{subscription}", to))),
    told(api.GET("/v1/apps/{app}/deliveries", { params: { path: { app }, query }, signal })),
    loadSubscription(app, subscription, signal),
  ]);
  return { explanation, delivery, found: found.data[0], subscription: device };
}

/** Makes it due now, or calls it off. */
export function take(turn: Turn, app: string, message: string, subscription: string): Promise<DeliveryResponse> {
  const to = { params: { path: { app, message, subscription } } };
  return turn === "retry"
    ? told(api.POST("/v1/apps/{app}/messages/{message}/deliveries/{subscription}/retry", to))
    : told(api.POST("/v1/apps/{app}/messages/{message}/deliveries/{subscription}/cancel", to));
}
