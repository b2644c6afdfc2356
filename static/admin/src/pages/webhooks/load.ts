/** Requests of the webhook pages. */
import { api, told } from "../../api/client";
import type { Condition } from "../../api/edit";
import type {
  NewWebhook,
  WebhookResponse,
  WebhookChange,
  WebhookDeliveryResponse,
  WebhookDeliveryDetail,
} from "../../api/types";
import type { Filters } from "../../lib/url";

const at = (app: string, webhook: string) => ({ params: { path: { app, webhook } } });

export const loadWebhooks = async (app: string, signal: AbortSignal): Promise<WebhookResponse[]> =>
  (await told(api.GET("/v1/apps/{app}/webhooks", { params: { path: { app } }, signal }))).data;

export const loadWebhook = (app: string, webhook: string, signal: AbortSignal): Promise<WebhookResponse> =>
  told(api.GET("/v1/apps/{app}/webhooks/{webhook}", { ...at(app, webhook), signal }));

/** Creates a webhook; the response has the secret. A repeat under one key creates nothing new. */
export const makeWebhook = (app: string, body: NewWebhook, key: string): Promise<WebhookResponse> =>
  told(api.POST("/v1/apps/{app}/webhooks", { params: { path: { app }, header: { "Idempotency-Key": key } }, body }));

export const changeWebhook = (
  app: string,
  webhook: string,
  body: WebhookChange,
  header: Condition,
): Promise<WebhookResponse> =>
  told(api.PATCH("/v1/apps/{app}/webhooks/{webhook}", { params: { path: { app, webhook }, header }, body }));

export const removeWebhook = async (app: string, webhook: string, header: Condition): Promise<void> =>
  void (await told(api.DELETE("/v1/apps/{app}/webhooks/{webhook}", { params: { path: { app, webhook }, header } })));

/** Rotates the secret; the response has the new one. */
export const rotateSecret = (app: string, webhook: string, overlap_hours: number): Promise<WebhookResponse> =>
  told(api.POST("/v1/apps/{app}/webhooks/{webhook}/rotate-secret", { ...at(app, webhook), body: { overlap_hours } }));

export const test = (app: string, webhook: string): Promise<WebhookDeliveryResponse> =>
  told(api.POST("/v1/apps/{app}/webhooks/{webhook}/test", at(app, webhook)));

export interface RequestPage {
  requests: WebhookDeliveryResponse[];
  next: string | null | undefined;
}

export async function loadRequests(
  app: string,
  webhook: string,
  { state, after }: Filters,
  signal: AbortSignal,
  limit = 25,
): Promise<RequestPage> {
  const query = { state: state as WebhookDeliveryResponse["state"] | undefined, limit, iterator: after } as never;
  const { data, iterator } = await told(
    api.GET("/v1/apps/{app}/webhooks/{webhook}/deliveries", { params: { path: { app, webhook }, query }, signal }),
  );
  return { requests: data, next: iterator };
}

export const loadRequest = (
  app: string,
  webhook: string,
  webhook_delivery: string,
  signal: AbortSignal,
): Promise<WebhookDeliveryDetail> =>
  told(
    api.GET("/v1/apps/{app}/webhooks/{webhook}/deliveries/{webhook_delivery}", {
      params: { path: { app, webhook, webhook_delivery } },
      signal,
    }),
  );

/** Makes one failed request again, or all that were made since a time. Returns how many those are. */
export const replay = async (
  app: string,
  webhook: string,
  which: { webhook_delivery: string } | { since: string },
): Promise<number> =>
  (await told(api.POST("/v1/apps/{app}/webhooks/{webhook}/replay", { ...at(app, webhook), body: which }))).replayed;
