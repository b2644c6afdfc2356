// Notifications of the shop: user tokens, one-time codes, and the events of a webhook.
import type { IncomingHttpHeaders } from "node:http";
import { createClient, signUserHmac, verifyWebhook, type WebhookEvent } from "@bellwire/server";
import { env } from "./env.js";

const bellwire = createClient({ url: env("PUSH_SERVER", "http://localhost:8787"), key: env("BELLWIRE_KEY") });
const identitySecret = env("IDENTITY_SECRET");
const webhookSecret = env("WEBHOOK_SECRET");

/** Proves a user's identity, for a browser in which the user has logged in. It is valid until the identity key is deleted. */
export const userToken = (userId: string): string => signUserHmac(userId, identitySecret);

/** Sends a one-time code to all of a user's browsers, and returns the message's id. The client retries under one `Idempotency-Key`. */
export async function sendCode(userId: string, code: string): Promise<string> {
  const { data } = await bellwire.POST("/v1/apps/{app}/messages", {
    params: { path: { app: "shop" } },
    body: {
      to: { users: [userId] },
      tier: "transactional", // never waits behind a campaign
      ttl: 300, // seconds; later the code is of no use
      content: { title: `Your code is ${code}`, body: "It is valid for five minutes." },
    },
  });
  return "id" in data ? data.id : "";
}

/** Returns the events of a webhook request. Throws if the request is not signed with our secret, or was signed over five minutes ago. */
export const verified = (body: Buffer, headers: IncomingHttpHeaders): WebhookEvent[] => verifyWebhook(body, headers, webhookSecret);
