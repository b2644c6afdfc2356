// Client for backends. The types of `schema.d.ts` come from the description of the API; this file has what the description cannot express.
import { createHmac, randomUUID, timingSafeEqual } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import createFetchClient, { type FetchResponse, type MaybeOptionalInit } from "openapi-fetch";
import type { HttpMethod, MediaType, PathsWithMethod, RequiredKeysOf } from "openapi-typescript-helpers";
import type { components, paths } from "./schema.js";

export type { components, operations, paths } from "./schema.js";
/** Schemas of the API by name: `Schemas["MessageRequest"]`. */
export type Schemas = components["schemas"];

export interface ClientOptions {
  /** Address of the server, without a path. */
  url: string;
  /** API key with the scopes of the calls. */
  key: string;
  /** Maximum number of requests for one call; default 4. */
  attempts?: number;
  /** Maximum time for one call with its retries; default 30,000. */
  timeoutMs?: number;
  /** Maximum time for one request; default 10,000. A stream has to begin in it. */
  attemptTimeoutMs?: number;
  /** Replaces the global `fetch`, for instance by one with a proxy. */
  fetch?: typeof globalThis.fetch;
}

type Init<I> = RequiredKeysOf<I> extends never ? [I?] : [I];
type Success<R> = Extract<R, { data: unknown }>;
type Call<M extends HttpMethod> = <
  P extends PathsWithMethod<paths, M>,
  I extends MaybeOptionalInit<paths[P], M & keyof paths[P]>,
>(
  path: P,
  ...init: Init<I>
) => Promise<Success<FetchResponse<paths[P][M & keyof paths[P]] & {}, I, MediaType>>>;

/** Typed calls. Each one returns `{ data, response }`, or throws a `ProblemError` or the network's error. */
export interface Client {
  GET: Call<"get">;
  PUT: Call<"put">;
  POST: Call<"post">;
  PATCH: Call<"patch">;
  DELETE: Call<"delete">;
}

/** Creates a client. Calls are retried after network errors, 429 and 5xx; each POST keeps one `Idempotency-Key` in all attempts. */
export function createClient(options: ClientOptions): Client {
  const { url, key, attempts = 4, timeoutMs = 30_000, attemptTimeoutMs = 10_000, fetch = globalThis.fetch } = options;
  async function retry(request: Request): Promise<Response> {
    if (request.method === "POST" && !request.headers.has("Idempotency-Key"))
      request.headers.set("Idempotency-Key", randomUUID());
    const deadline = performance.now() + timeoutMs;
    for (let attempt = 1; ; attempt++) {
      const remaining = deadline - performance.now();
      let failure: unknown;
      let wait = Math.random() * Math.min(8_000, 250 * 2 ** attempt); // milliseconds
      try {
        const response = await fetchOnce(fetch, request.clone(), Math.min(attemptTimeoutMs, remaining));
        if (response.ok) return response;
        failure = await ProblemError.from(response);
        const after = response.headers.get("Retry-After");
        // A 409 with Retry-After: the first request with this Idempotency-Key has not finished.
        if (response.status < 500 && response.status !== 429 && !(response.status === 409 && after)) throw failure;
        if (after && /^\d+$/.test(after)) wait = Number(after) * 1000;
      } catch (error) {
        if (error === failure || request.signal.aborted) throw error;
        failure = error;
      }
      if (attempt >= attempts || performance.now() + wait >= deadline) throw failure;
      await delay(wait, undefined, { signal: request.signal });
    }
  }
  const headers = { Authorization: `Bearer ${key}` };
  return createFetchClient<paths>({ baseUrl: url, headers, redirect: "manual", fetch: retry }) as unknown as Client;
}

/** Sends one request and reads its JSON, so that an interrupted response is retried. Other bodies remain streams without a timeout. */
async function fetchOnce(fetch: typeof globalThis.fetch, request: Request, timeoutMs: number): Promise<Response> {
  const timeout = new AbortController();
  const timer = setTimeout(
    () => timeout.abort(new DOMException(`no response within ${Math.round(timeoutMs)} ms`, "TimeoutError")),
    timeoutMs,
  );
  try {
    const response = await fetch(request, { signal: AbortSignal.any([request.signal, timeout.signal]) });
    if (response.ok && !/\bjson\b/.test(response.headers.get("Content-Type") ?? "")) return response;
    const body = await response.arrayBuffer();
    return new Response(body.byteLength ? body : null, response);
  } finally {
    clearTimeout(timer);
  }
}

/** An error response (RFC 9457). `code` is stable; it is `unexpected_response` if something between client and server answered. */
export class ProblemError extends Error {
  override readonly name = "ProblemError";
  constructor(
    readonly status: number,
    readonly code: string,
    readonly title: string,
    readonly detail: string,
    readonly errors: readonly Schemas["FieldError"][],
    readonly requestId: string | undefined,
  ) {
    super(`${status} ${code}: ${detail}`);
  }

  static async from(response: Response): Promise<ProblemError> {
    const text = await response.text();
    let problem: Partial<Schemas["Problem"]> = {};
    if (response.headers.get("Content-Type")?.startsWith("application/problem+json")) problem = JSON.parse(text);
    const {
      code = "unexpected_response",
      title = response.statusText,
      detail = text.slice(0, 200),
      errors = [],
      request_id,
    } = problem;
    return new ProblemError(response.status, code, title, detail, errors, request_id ?? undefined);
  }
}

/** Returns all rows of a list. `list` requests one page; its argument belongs into the query. */
export async function* paginate<Row>(
  list: (page: { iterator?: string }) => Promise<{ data: { data: Row[]; iterator?: string | null } }>,
): AsyncGenerator<Row, void, undefined> {
  for (let iterator: string | null | undefined, first = true; first || iterator; first = false) {
    const page: { data: Row[]; iterator?: string | null } = (await list(iterator ? { iterator } : {})).data;
    yield* page.data;
    iterator = page.iterator;
  }
}

/** Signs a user token, a JWT with HS256. It is valid for `expiresInS` seconds: one hour by default, at most 7 days. */
export function signUserToken(
  userId: string,
  secret: string,
  { expiresInS = 3600, app }: { expiresInS?: number; app?: string } = {},
): string {
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const claims = { sub: userId, exp: Math.floor(Date.now() / 1000) + expiresInS, aud: app };
  const content = `${encode({ alg: "HS256", typ: "JWT" })}.${encode(claims)}`;
  return `${content}.${createHmac("sha256", secret).update(content).digest("base64url")}`;
}

/** Signs a user token with an identity key of the form `hmac`. It is valid until that key is deleted. */
export const signUserHmac = (userId: string, secret: string): string =>
  createHmac("sha256", secret).update(userId).digest("hex");

/** An event of a webhook; `data` depends on `type`. */
export interface WebhookEvent extends Record<"id" | "timestamp", string> {
  type: Schemas["EventType"];
  data: Record<string, unknown> & { message?: string | null; user_id?: string | null };
}

export type WebhookHeaders = Headers | Record<string, string | string[] | undefined>;

/** The request is not signed with this secret, or its signature is too old. */
export class WebhookVerificationError extends Error {}

/** Verifies a webhook request and returns its events. `body` is the raw body; `toleranceS` is the maximum age of the signature. */
export function verifyWebhook(
  body: string | Uint8Array,
  headers: WebhookHeaders,
  secret: string,
  toleranceS = 300,
): WebhookEvent[] {
  const all = headers instanceof Headers ? [...headers] : Object.entries(headers);
  const header = (name: string) => String(all.find(([given]) => given.toLowerCase() === name)?.[1] ?? "");
  const [id, timestamp] = [header("webhook-id"), header("webhook-timestamp")];
  const age = Math.abs(Date.now() / 1000 - Number(timestamp || NaN));
  if (!(age <= toleranceS)) throw new WebhookVerificationError("webhook-timestamp is missing, too old or too new");
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  if (key.length === 0) throw new WebhookVerificationError("the secret is empty");
  const expected = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest();
  const given = header("webhook-signature")
    .split(" ")
    .map((text) => Buffer.from(text.replace(/^v1,/, ""), "base64"));
  if (!given.some((one) => one.length === 32 && timingSafeEqual(one, expected)))
    throw new WebhookVerificationError("no signature in webhook-signature matches");
  return JSON.parse(typeof body === "string" ? body : new TextDecoder().decode(body));
}
