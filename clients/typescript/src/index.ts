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
  /** Address of the server, without a path. */ url: string;
  /** API key with the scopes of the calls. */ key: string;
  /** Maximum number of requests for one call; default 4. */ attempts?: number;
  /** Maximum time for one call with its retries; default 30,000. */ timeoutMs?: number;
  /** Maximum time for one request; default 10,000. A stream has to begin in it. */ attemptTimeoutMs?: number;
  /** Replaces the global `fetch`, for instance by one with a proxy. */ fetch?: typeof globalThis.fetch;
}

type Call<M extends HttpMethod> = <
  P extends PathsWithMethod<paths, M>,
  I extends MaybeOptionalInit<paths[P], M & keyof paths[P]>,
>(
  path: P,
  ...init: RequiredKeysOf<I> extends never ? [I?] : [I]
) => Promise<Extract<FetchResponse<paths[P][M & keyof paths[P]] & {}, I, MediaType>, { data: unknown }>>;

/** Typed calls. Each one returns `{ data, response }`, or throws a `ProblemError` or the network's error. */
export type Client = { [M in "get" | "put" | "post" | "patch" | "delete" as Uppercase<M>]: Call<M> };

/** Creates a client. Calls are retried after network errors, 429 and 5xx; each POST keeps one `Idempotency-Key` in all attempts. */
export function createClient(options: ClientOptions): Client {
  const { url, key, attempts = 4, timeoutMs = 30_000, attemptTimeoutMs = 10_000, fetch = globalThis.fetch } = options;
  async function retry(request: Request): Promise<Response> {
    if (request.method === "POST" && !request.headers.has("Idempotency-Key"))
      request.headers.set("Idempotency-Key", randomUUID());
    const deadline = performance.now() + timeoutMs;
    for (let attempt = 1; ; attempt++) {
      try {
        return await fetchOnce(fetch, request.clone(), Math.min(attemptTimeoutMs, deadline - performance.now()));
      } catch (error) {
        const { status, retryAfter: after } = error instanceof ProblemError ? error : { status: 503, retryAfter: "" };
        const wait = /^\d+$/.test(after) ? Number(after) * 1000 : Math.random() * Math.min(8_000, 250 * 2 ** attempt);
        // A 409 with Retry-After: the first request with this Idempotency-Key has not finished.
        const isTransient = status === 429 || status >= 500 || (status === 409 && after);
        const isLast = attempt >= attempts || performance.now() + wait >= deadline;
        if (!isTransient || isLast || request.signal.aborted) throw error;
        await delay(wait, undefined, { signal: request.signal });
      }
    }
  }
  const headers = { Authorization: `Bearer ${key}` };
  return createFetchClient<paths>({ baseUrl: url, headers, redirect: "manual", fetch: retry }) as unknown as Client;
}

/** Sends one request and reads its JSON, so that an interrupted response is retried. Other bodies remain streams without a timeout. */
async function fetchOnce(fetch: typeof globalThis.fetch, request: Request, timeoutMs: number): Promise<Response> {
  const timeout = new AbortController();
  const error = new DOMException(`no response within ${Math.round(timeoutMs)} ms`, "TimeoutError");
  const timer = setTimeout(() => timeout.abort(error), timeoutMs);
  try {
    const response = await fetch(request, { signal: AbortSignal.any([request.signal, timeout.signal]) });
    if (!response.ok) throw new ProblemError(response, await response.text());
    if (!response.body || !/\bjson\b/.test(response.headers.get("Content-Type") ?? "")) return response;
    return new Response(await response.arrayBuffer(), response);
  } finally {
    clearTimeout(timer);
  }
}

/** An error response (RFC 9457). `code` is stable; it is `unexpected_response` if something between client and server answered. */
export class ProblemError extends Error {
  override readonly name = "ProblemError";
  constructor({ status, statusText, headers }: Response, body: string) {
    const isProblem = headers.get("Content-Type")?.startsWith("application/problem+json");
    const problem: Partial<Schemas["Problem"]> = isProblem ? JSON.parse(body) : {};
    const { code = "unexpected_response", title = statusText, detail = body.slice(0, 200), errors = [] } = problem;
    super(`${status} ${code}: ${detail}`);
    const [requestId, retryAfter] = [problem.request_id ?? undefined, headers.get("Retry-After") ?? ""];
    Object.assign(this, { status, code, title, detail, errors, requestId, retryAfter });
  }
}
export interface ProblemError extends Readonly<Record<"code" | "title" | "detail" | "retryAfter", string>> {
  readonly status: number;
  readonly errors: readonly Schemas["FieldError"][];
  readonly requestId: string | undefined;
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

/** Reads the events after a cursor line by line. `cursor` of the last event continues the stream; "0" begins with the oldest event. */
export async function* streamEvents(client: Client, app: string, after = "0"): AsyncGenerator<Schemas["EventLine"]> {
  const params = { path: { app }, query: { after } };
  const { data } = await client.GET("/v1/apps/{app}/events", { params, parseAs: "stream" });
  let rest = "";
  for await (const chunk of data?.pipeThrough(new TextDecoderStream()) ?? []) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) yield JSON.parse(line);
  }
}

/** Signs a user token, a JWT with HS256. It is valid for `expiresInS` seconds: one hour by default, at most 7 days. */
export function signUserToken(userId: string, secret: string, options: { expiresInS?: number; app?: string } = {}) {
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const claims = { sub: userId, exp: Math.floor(Date.now() / 1000) + (options.expiresInS ?? 3600), aud: options.app };
  const content = `${encode({ alg: "HS256", typ: "JWT" })}.${encode(claims)}`;
  return `${content}.${createHmac("sha256", secret).update(content).digest("base64url")}`;
}

/** Signs a user token with an identity key of the form `hmac`. It is valid until that key is deleted. */
export const signUserHmac = (userId: string, secret: string) =>
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
export function verifyWebhook(body: string | Uint8Array, headers: WebhookHeaders, secret: string, toleranceS = 300) {
  const all = headers instanceof Headers ? [...headers] : Object.entries(headers);
  const header = (name: string) => String(all.find(([given]) => given.toLowerCase() === name)?.[1] ?? "");
  const [id, timestamp] = [header("webhook-id"), header("webhook-timestamp")];
  const age = Math.abs(Date.now() / 1000 - Number(timestamp || NaN));
  if (!(age <= toleranceS)) throw new WebhookVerificationError("webhook-timestamp is missing, too old or too new");
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  if (key.length === 0) throw new WebhookVerificationError("the secret is empty");
  const expected = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest();
  const signatures = header("webhook-signature").split(" ");
  const given = signatures.map((signature) => Buffer.from(signature.replace(/^v1,/, ""), "base64"));
  if (!given.some((one) => one.length === expected.length && timingSafeEqual(one, expected)))
    throw new WebhookVerificationError("no signature in webhook-signature matches");
  return JSON.parse(Buffer.from(body).toString()) as WebhookEvent[];
}
