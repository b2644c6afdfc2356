import { api, told } from "../../api/client";
import type {
  CalendarSettings,
  Diagnosis,
  ErasureResponse,
  FoundDelivery,
  Gateway,
  LaneResponse,
  SubscriptionResponse,
  TriggerEntry,
} from "../../api/types";
import { sinceCreation } from "../../lib/figures";
import { clock } from "../../lib/clock";
import { byGateway, byKey, growth, type Growth, type KeyAge, type Slice } from "../../lib/subscribers";
import { isId } from "../../lib/deliveries";
import type { Zoom } from "../../lib/range";
import type { Filters } from "../../lib/url";

const DAY_MS = 86_400_000;
/** Devices of one person that are shown. */
export const DEVICES_MAX = 50;

/** The last days, today included. */
export const lastDays = (days: number): Zoom => {
  const until = clock.now();
  return { since: new Date(until.getTime() - (days - 1) * DAY_MS), until };
};
const written = ({ since, until }: Zoom) => ({ since: since.toISOString(), until: until.toISOString() });

const chart = (app: string, query: object, signal: AbortSignal) =>
  told(api.GET("/v1/apps/{app}/metrics", { params: { path: { app }, query: query as never }, signal }));

export async function loadGrowth(app: string, created: Date, span: Zoom, signal: AbortSignal): Promise<Growth> {
  const daily = { ...written(span), step: "1d" };
  const [won, lost] = await Promise.all([
    chart(app, { ...daily, measures: ["subscriptions_won", "subscriptions_active"] }, signal),
    chart(app, { ...daily, measures: ["subscriptions_lost"], by: ["reason"] }, signal),
  ]);
  return growth(sinceCreation(won, created), lost);
}

export async function loadGateways(app: string, span: Zoom, signal: AbortSignal): Promise<Slice[]> {
  const query = {
    ...written(span),
    measures: ["subscriptions_active", "subscriptions_won", "subscriptions_lost"],
    by: ["gateway"],
  };
  return byGateway(await chart(app, query, signal));
}

export async function loadKeys(app: string, signal: AbortSignal): Promise<KeyAge[]> {
  const [keys, lanes] = await Promise.all([
    told(api.GET("/v1/apps/{app}/vapid-keys", { params: { path: { app }, query: { limit: 50 } }, signal })),
    told(api.GET("/v1/gateways", { params: { query: { limit: 250 } }, signal })),
  ]);
  return byKey(
    keys.data,
    lanes.data.filter((lane: LaneResponse) => lane.app === app),
  );
}

export interface SubscriptionPage {
  subscriptions: SubscriptionResponse[];
  next: string | null | undefined;
  previous: string | null | undefined;
}

export async function loadSubscriptions(
  app: string,
  { tag, topic, state, gateway, after }: Filters,
  signal: AbortSignal,
  limit = 50,
): Promise<SubscriptionPage> {
  const query = {
    tag,
    topic,
    state: state as SubscriptionResponse["state"] | undefined,
    gateway: gateway as Gateway | undefined,
    iterator: after,
    limit,
  };
  const { data, iterator, prev_iterator } = await told(
    api.GET("/v1/apps/{app}/subscriptions", { params: { path: { app }, query }, signal }),
  );
  return { subscriptions: data, next: iterator, previous: prev_iterator };
}

/** A person, or the one device that was named. */
export interface Person {
  user: string | undefined;
  devices: SubscriptionResponse[];
  /** Whether these are all devices of theirs. */
  isAll: boolean;
  calendar: CalendarSettings;
}

export async function loadPerson(
  app: string,
  who: { user?: string; subscription?: string },
  signal: AbortSignal,
): Promise<Person> {
  const [found, calendar] = await Promise.all([
    who.user !== undefined ? ofUser(app, who.user, signal) : one(app, who.subscription ?? "", signal),
    told(api.GET("/v1/apps/{app}/calendar", { params: { path: { app } }, signal })),
  ]);
  return { ...found, calendar };
}

async function ofUser(app: string, user: string, signal: AbortSignal) {
  const query = { user_id: user, limit: DEVICES_MAX };
  const { data, done } = await told(
    api.GET("/v1/apps/{app}/subscriptions", { params: { path: { app }, query }, signal }),
  );
  return { user, devices: data, isAll: done };
}

async function one(app: string, subscription: string, signal: AbortSignal) {
  const device = await told(
    api.GET("/v1/apps/{app}/subscriptions/{subscription}", { params: { path: { app, subscription } }, signal }),
  );
  return { user: device.user_id ?? undefined, devices: [device], isAll: !device.user_id };
}

/** The latest of what was sent to them, as far as one look goes. */
export async function loadLatest(
  app: string,
  who: { user?: string; subscription?: string },
  signal: AbortSignal,
): Promise<FoundDelivery[]> {
  const query = { user_id: who.user, subscription: who.subscription, limit: 8 };
  return (await told(api.GET("/v1/apps/{app}/deliveries", { params: { path: { app }, query }, signal }))).data;
}

/** Messages that a person waits for because of events, the next one first. */
export async function loadWaits(
  app: string,
  query: { user_id?: string; subscription?: string },
  signal: AbortSignal,
): Promise<TriggerEntry[]> {
  return (await told(api.GET("/v1/apps/{app}/trigger-entries", { params: { path: { app }, query }, signal }))).data;
}

export const loadDiagnosis = (app: string, code: string, signal: AbortSignal): Promise<Diagnosis> =>
  told(api.GET("/v1/apps/{app}/diagnoses/{code}", { params: { path: { app, code } }, signal }));

/** App of a subscription, among these apps. */
export async function findApp(
  apps: readonly { id: string; slug: string }[],
  subscription: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  if (!isId(subscription, "sub_")) return undefined;
  for (const { id, slug } of apps) {
    const { response } = await api.GET("/v1/apps/{app}/subscriptions/{subscription}", {
      params: { path: { app: id, subscription } },
      signal,
    });
    if (response.ok) return slug;
  }
  return undefined;
}

/** Sends one notification to one device, and returns the message’s id. */
export async function testPush(app: string, subscription: string, title: string, body: string): Promise<string> {
  const message = {
    to: { subscriptions: [subscription] },
    tier: "transactional" as const,
    ttl: 300,
    content: { title, body },
  };
  const sent = await told(api.POST("/v1/apps/{app}/messages", { params: { path: { app } }, body: message as never }));
  return (sent as { id: string }).id;
}

export const erase = (app: string, user: string): Promise<ErasureResponse> =>
  told(api.DELETE("/v1/apps/{app}/users/{user}", { params: { path: { app, user } } }));

export const loadErasure = (app: string, erasure: string, signal: AbortSignal): Promise<ErasureResponse> =>
  told(api.GET("/v1/apps/{app}/erasures/{erasure}", { params: { path: { app, erasure } }, signal }));
