/** Advice for one dead letter. Pure. */
import type { DeadLetterDetail } from "../api/types";
import { capital, things } from "./format";
import { serviceName, reasonWords } from "./words";

type Letter = Pick<DeadLetterDetail, "reason" | "state" | "status" | "detail" | "gateway" | "retries" | "subscription">;

/** Reasons that a push service gave in a response. The others were found by Bellwire. */
const ANSWERED = new Set([
  "bad_request",
  "unauthorized",
  "payload_too_large",
  "non_retryable",
  "redirected",
  "http_4xx",
  "retries_exhausted",
  "gone",
]);

/** Response that ended the delivery, in one sentence. */
function answer({ reason, status, detail, gateway, retries }: Letter): string {
  const words = detail?.trim().replace(/\s+/g, " ").replace(/\.$/, "");
  if (!ANSWERED.has(reason)) return words ? `The error of this delivery: “${words}”.` : "";
  const said = `${capital(serviceName(gateway))} ${status == null ? "did not respond" : `responded with ${status}`}`;
  return `${said}${words ? `: “${words}”` : ""}${retries > 0 ? `, after ${things(retries, "retry", "retries")}` : ""}.`;
}

/** Remedy for a single letter, by reason. */
const REMEDIES: Record<string, string> = {
  bad_request:
    "A replay sends the same request: discard this letter, and report the error if the site’s content is valid.",
  unauthorized:
    "The browser may have subscribed with another VAPID key. If bellwire doctor finds the key and its contact valid, replay this letter.",
  payload_too_large:
    "Send this recipient a new message with less content or a compact form; a replay sends the same content.",
  non_retryable: "Discard this letter, unless the cause named by the push service has been fixed.",
  redirected: "Replay this letter when the push service no longer redirects.",
  http_4xx: "Replay this letter after fixing what the status names.",
  endpoint_forbidden: "Discard this letter, or allow the push service of this subscription in the app and replay.",
  retries_exhausted: "Replay this letter when the push service is healthy.",
  lease_exhausted: "Read the log of the server at the time of death before replaying this letter.",
  unsealable:
    "The keys of this subscription are invalid: discard this letter. The browser replaces them at its next visit.",
  unrenderable: "Set the attribute of this recipient that the error names, and send a new message.",
  too_long: "Send this recipient a message from a shorter template, or from one that may be cut.",
};

const SETTLED: Partial<Record<Letter["state"], string>> = {
  replayed: "No action: this letter was replayed.",
  discarded: "No action: this letter was discarded.",
};

/** Advice that refers to this letter: its error, and what to do now. */
export function adviceOf(letter: Letter): string {
  const remedy = SETTLED[letter.state] ?? REMEDIES[letter.reason] ?? reasonWords(letter.reason).help;
  return [answer(letter), remedy].filter(Boolean).join(" ");
}
