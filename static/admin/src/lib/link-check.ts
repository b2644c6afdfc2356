/** Result of a link check, in words. Pure. */
import type { LinkCheckResponse } from "../api/types";
import type { Tone } from "./words";

/** Reasons why there was no response. */
const FAILURES: Readonly<Record<string, string>> = {
  resolve: "its host was not found",
  invalid_host: "its host was not found",
  forbidden: "the server may not connect to its host",
  connect: "its host accepts no connection",
  proxy: "the server’s proxy provided no connection",
  tls: "its certificate is not valid, or the TLS handshake failed",
  reset: "its host closed the connection",
  protocol: "its host does not speak HTTP correctly",
  deadline: "its host did not respond in time",
};

/** Tone and text of a result. */
export function linkWords({ status, failure, url }: LinkCheckResponse): { tone: Tone; words: string } {
  if (status == null)
    return {
      tone: "retrying",
      words: `The link could not be checked: ${FAILURES[failure ?? ""] ?? "there was no response"}.`,
    };
  if (status < 300) return { tone: "accepted", words: `The page responds with ${status}.` };
  if (failure) return { tone: "retrying", words: `No response in time after a redirect to ${url}.` };
  if (status < 400)
    return {
      tone: "retrying",
      words: `The link redirects too often, or to a server that cannot be checked. Last page: ${url}.`,
    };
  if (status === 404 || status === 410) return { tone: "lost", words: `The page does not exist: ${status}.` };
  return {
    tone: "retrying",
    words: `The page responds with ${status}${status === 401 || status === 403 ? ": it may require a login" : ""}.`,
  };
}
