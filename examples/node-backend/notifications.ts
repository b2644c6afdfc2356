// What a backend does with Bellwire: says who somebody is, sends, and hears what became of it.
import { createHmac, randomUUID } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import createClient from "openapi-fetch";
import { Webhook } from "standardwebhooks";
import type { paths } from "./client.js";
import { env } from "./env.js";

const APP = "shop";
const TRIES = 3;

const client = createClient<paths>({
  baseUrl: env("PUSH_SERVER", "http://localhost:8787"),
  headers: { Authorization: `Bearer ${env("BELLWIRE_KEY")}` },
});
const identitySecret = env("IDENTITY_SECRET");
const webhook = new Webhook(env("WEBHOOK_SECRET"));

/** Proof of a user's identity, for a browser in which the user has logged in. It counts until the identity key is deleted. */
export const userToken = (userId: string): string => createHmac("sha256", identitySecret).update(userId).digest("hex");

/** Sends a one-time code to all of a user's browsers. Returns the message's id. */
export async function sendCode(userId: string, code: string): Promise<string> {
  // A request whose answer got lost is made again under the same key, so that nobody gets two pushes.
  const headers = { "Idempotency-Key": randomUUID() };
  for (let attempt = 1; ; attempt++) {
    const { data, error, response } = await client
      .POST("/v1/apps/{app}/messages", {
        params: { path: { app: APP } },
        headers,
        body: {
          to: { users: [userId] },
          tier: "transactional", // never waits behind a campaign
          ttl: 300, // seconds; later the code is of no use
          content: { title: `Your code is ${code}`, body: "It is valid for five minutes." },
        },
        signal: AbortSignal.timeout(10_000),
      })
      .catch((failure: unknown) => ({ data: undefined, error: { detail: String(failure) }, response: undefined }));
    if (data && "id" in data) return data.id;
    // Whatever the request itself is blamed for will not be better the next time.
    const isFinal = response && response.status < 500 && response.status !== 429;
    if (isFinal || attempt === TRIES) throw new Error(`the code was not sent: ${error?.detail}`);
    await sleep(500 * attempt);
  }
}

export interface PushEvent {
  type: string;
  data: { user_id?: string | null; message?: string };
}

/** The events of a webhook's request. Throws if it was not signed with our secret within the last minutes. */
export const verified = (body: Buffer, headers: IncomingHttpHeaders): PushEvent[] =>
  webhook.verify(body, headers as Record<string, string>) as PushEvent[];
