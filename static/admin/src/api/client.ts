import createClient from "openapi-fetch";
import { clock } from "../lib/clock";
import { keepTag } from "./edit";
import { Refusal } from "./problem";
import type { paths } from "./schema";
import type { Problem } from "./types";

/** Called when a response shows that the session has ended. Set once, by `session.ts`. */
let onSignedOut: () => void = () => {};
export const whenSignedOut = (tell: () => void): void => void (onSignedOut = tell);

/** The API's routes, by method and path, typed from its own description. */
export const api = createClient<paths>({
  baseUrl: location.origin,
  // `measures=a&measures=b`: lists repeat their name, and what is absent is left out.
  querySerializer: (query) => {
    const written = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      for (const one of [value].flat()) if (one !== undefined && one !== null) written.append(name, String(one));
    }
    return written.toString();
  },
});

api.use({
  onResponse({ request, response }) {
    clock.follow(response.headers.get("date"));
    const signsIn = request.method === "POST" && new URL(request.url).pathname === "/v1/session";
    if (response.status === 401 && !signsIn) onSignedOut();
  },
});

/** Returns the body of a response. Throws a `Refusal` for a problem, and the error of `fetch` without a response. */
export async function told<T>(asked: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await asked;
  if (response.ok) {
    keepTag(data, response.headers);
    return data as T;
  }
  const body = error && typeof error === "object" ? (error as Partial<Problem>) : undefined;
  throw new Refusal(response.status, body, response.headers);
}
