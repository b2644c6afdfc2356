import { api, told } from "../../api/client";
import { Refusal } from "../../api/problem";
import type { components } from "../../api/schema";
import type { AppResponse } from "../../api/types";
import { keyState } from "../../lib/attention";
import { clock } from "../../lib/clock";
import type { Progress } from "../../lib/first-run";
import { loadApiKeys } from "../settings/load";

type Message = components["schemas"]["MessageResponse"];
type Counts = components["schemas"]["MessageCounts"];

/** Progress of the first run, with its objects. */
export interface Known {
  done: Progress;
  /** This browser's subscription, if it is active. */
  browser: string | undefined;
  /** The latest message to it. */
  message: { id: string; counts: Counts | null } | undefined;
}

const of = (app: string) => ({ path: { app } });

export async function loadProgress(app: AppResponse, signal: AbortSignal): Promise<Known> {
  const [keys, others, browser] = await Promise.all([
    loadApiKeys(app.id, signal),
    loadActive(app.id, signal),
    loadBrowser(app, signal),
  ]);
  const message = browser ? await loadMessage(app.id, browser, signal) : undefined;
  const isSender = (key: (typeof keys)[number]) =>
    key.scopes.includes("send") && !["revoked", "expired"].includes(keyState(key, clock.now()));
  return {
    done: {
      app: true,
      key: keys.some(isSender),
      site: others.some((id) => id !== browser),
      browser: browser !== undefined,
      sent: (message?.counts?.displayed ?? 0) > 0,
    },
    browser,
    message,
  };
}

async function loadActive(app: string, signal: AbortSignal): Promise<string[]> {
  const query = { state: "active", limit: 2 } as const;
  return (await told(api.GET("/v1/apps/{app}/subscriptions", { params: { ...of(app), query }, signal }))).data.map(
    ({ id }) => id,
  );
}

/** Note of the subscribing page. */
export function tried(app: AppResponse): string | null {
  try {
    return localStorage.getItem(`bellwire.tried.${app.slug}`);
  } catch {
    return null; // storage is blocked, and with it web push
  }
}

async function loadBrowser(app: AppResponse, signal: AbortSignal): Promise<string | undefined> {
  const subscription = tried(app);
  if (!subscription) return undefined;
  try {
    const found = await told(
      api.GET("/v1/apps/{app}/subscriptions/{subscription}", {
        params: { path: { app: app.id, subscription } },
        signal,
      }),
    );
    return found.state === "active" ? found.id : undefined;
  } catch (thrown) {
    // It was noted down for another server at this address, or is long gone.
    if (thrown instanceof Refusal && [400, 404].includes(thrown.status)) return undefined;
    throw thrown;
  }
}

async function loadMessage(app: string, browser: string, signal: AbortSignal): Promise<Known["message"]> {
  const { data } = await told(
    api.GET("/v1/apps/{app}/messages", { params: { ...of(app), query: { limit: 20 } }, signal }),
  );
  const isToIt = ({ to }: Message) => ((to as { subscriptions?: string[] }).subscriptions ?? []).includes(browser);
  const id = data.find(isToIt)?.id;
  if (!id) return undefined;
  const { counts = null } = await told(
    api.GET("/v1/apps/{app}/messages/{message}", { params: { path: { app, message: id } }, signal }),
  );
  return { id, counts };
}

export const letIn = (app: AppResponse, origin: string) =>
  told(api.PATCH("/v1/apps/{app}", { params: of(app.id), body: { add_origins: [origin] } }));

/** Options of the test: the user is at the screen. */
const TTL_S = 300;

export const sendTo = (app: AppResponse, browser: string, content: { title: string; body: string }) => {
  const body = { to: { subscriptions: [browser] }, tier: "transactional", ttl: TTL_S, content };
  return told(api.POST("/v1/apps/{app}/messages", { params: of(app.id), body: body as never }));
};
