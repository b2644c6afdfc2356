/** The server's names for things, as people call them. */
import type { Gateway } from "../api/types";

const GATEWAYS: Record<Gateway, string> = { fcm: "Google", mozilla: "Mozilla", wns: "Microsoft", apple: "Apple", other: "Others" };

export const GATEWAY_NAMES: readonly string[] = Object.keys(GATEWAYS);

/** A push service by its company; a name that is new here stays as it is. */
export const gatewayName = (gateway: string): string => (GATEWAYS as Record<string, string>)[gateway] ?? gateway;

/** Outcome with colour, shape and word: see `Badge`. */
export type Tone = "accepted" | "waiting" | "retrying" | "lost" | "cancelled";

interface Reason {
  title: string;
  /** Usual remedy. */
  help: string;
}

const REASONS: Record<string, Reason> = {
  bad_request: { title: "The gateway found the request wrong", help: "Look at its words in one of them. Replaying the same will fail the same way." },
  unauthorized: { title: "The gateway refused the VAPID key", help: "Check that the key is the one that browsers subscribed with, and its subject (bellwire doctor). Then replay." },
  payload_too_large: { title: "The payload was too large", help: "Send again with less content or a compact form; a replay sends the same bytes." },
  non_retryable: { title: "The gateway forbade another try", help: "Read its error. Discard them unless the gateway reports a change." },
  redirected: { title: "The gateway redirected", help: "Redirects are never followed. Tell the gateway's operator; replay when it answers by itself again." },
  http_4xx: { title: "The gateway refused it", help: "The status of each has the reason. Replay once it is fixed." },
  endpoint_forbidden: { title: "The endpoint may not be talked to", help: "Its host is no push service that the app lets in. Discard, or let other gateways in and replay." },
  retries_exhausted: { title: "Every retry failed", help: "Usually an outage that outlasted the policy. Replay once the lane flows; lengthen the policy if it happens often." },
  lease_exhausted: { title: "The workers crashed, five times", help: "A fault of Bellwire or its machine: read the log. Replay one first, then the others." },
  tampered: { title: "The queue was changed by hand", help: "Find out who writes to the database. Discard, or replay what you know to be right." },
  replayed: { title: "A queue row was put back by hand", help: "It was sent before, so most of these can be discarded." },
  unsealable: { title: "It could not be encrypted", help: "The subscription's keys are wrong. The browser mends it with its next visit; discard these." },
  unrenderable: { title: "The template could not be rendered", help: "The letter names the missing attribute or the invalid result. Give the recipient the attribute, or send again with a default." },
  too_long: { title: "The template came out too long", help: "Send again with a shorter template, or one that lets its body be cut." },
  gone: { title: "The subscription is gone", help: "Nothing to do: the person unsubscribed or the browser did. There is no way back." },
  expired: { title: "Its time to live ended first", help: "Give it a longer TTL next time, or send it when the lane flows. There is no way back." },
};

export const REASON_NAMES: readonly string[] = Object.keys(REASONS);

/** Why deliveries died. */
export const reasonWords = (reason: string): Reason =>
  REASONS[reason] ?? { title: reason, help: "Look at one of them for the gateway's own words." };
