import type { Failure } from "../types";
import { clock } from "./clock";

/** Response. Status 0: the server is unreachable. */
export interface Answer {
  status: number;
  body?: any;
  /** Address of the request. */
  url: string;
  /** Pause that the server demands before a retry. */
  pauseMs?: number;
}

const TIMEOUT_MS = 10_000;
const PATIENCE_MS = 10_000;

/** Whether the same request may succeed later. */
export const transient = (status: number) => status === 0 || status === 408 || status === 429 || status >= 500;

/**
 * Sends a request, with a retry after a pause if that can succeed. Never rejects. A string is sent as `text/plain`, which
 * needs no preflight. Other values are sent as JSON.
 */
export async function call(method: string, url: string, body?: unknown, token?: string, tries = 3): Promise<Answer> {
  for (let tried = 1; ; tried++) {
    const answer = await attempt(method, url, body, token);
    const { pauseMs = 500 * 2 ** tried * clock.jitter() } = answer;
    if (!transient(answer.status) || tried >= tries || pauseMs > PATIENCE_MS) return answer;
    await clock.wait(pauseMs);
  }
}

async function attempt(method: string, url: string, body: unknown, token?: string): Promise<Answer> {
  try {
    const isJson = typeof body === "object";
    const headers: Record<string, string> = {};
    if (token) headers.Authorization = `Bearer ${token}`;
    if (body) headers["Content-Type"] = isJson ? "application/json" : "text/plain";
    const response = await fetch(url, {
      method,
      headers,
      body: isJson ? JSON.stringify(body) : (body as string | undefined),
      credentials: "omit",
      cache: "no-store",
      signal: AbortSignal.timeout?.(TIMEOUT_MS),
    });
    const after = parseInt(response.headers.get("Retry-After")!);
    return {
      status: response.status,
      body: await response.json().catch(() => undefined),
      url,
      pauseMs: after >= 0 ? after * 1000 : undefined,
    };
  } catch {
    return { status: 0, url };
  }
}

/** Failure for a response that is not a success. */
export function refusal({ status, body, url }: Answer): Failure {
  const retrying = transient(status);
  const message = `${url}: ${body?.detail ?? (status ? `HTTP ${status}` : "no answer; check network, server, CSP")}`;
  return { reason: retrying ? "offline" : "refused", message, code: body?.code, retrying };
}
