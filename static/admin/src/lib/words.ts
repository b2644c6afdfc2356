/** The server's names for things, as people call them. */
import type { Gateway } from "../api/types";

const GATEWAYS: Record<Gateway, string> = {
  fcm: "Google",
  mozilla: "Mozilla",
  wns: "Microsoft",
  apple: "Apple",
  other: "Others",
};

export const GATEWAY_NAMES: readonly string[] = Object.keys(GATEWAYS);

/** A push service by its company; a name that is new here stays as it is. */
export const gatewayName = (gateway: string): string => (GATEWAYS as Record<string, string>)[gateway] ?? gateway;

/** Name of a push service within a sentence. */
export const serviceName = (gateway: string): string =>
  gateway === "other" ? "another push service" : gatewayName(gateway);

/** Outcome with colour, shape and word: see `Badge`. */
export type Tone = "accepted" | "waiting" | "retrying" | "lost" | "cancelled";

interface Reason {
  title: string;
  /** Usual remedy. */
  help: string;
}

const REASONS: Record<string, Reason> = {
  bad_request: {
    title: "The push service rejected the request",
    help: "Read the error of one delivery. A replay sends the same request and fails again.",
  },
  unauthorized: {
    title: "The push service refused the VAPID key",
    help: "Check with bellwire doctor that browsers subscribed with this key, and that its contact is valid. Then replay.",
  },
  payload_too_large: {
    title: "The payload was too large",
    help: "Send a new message with less content or a compact form. A replay sends the same content.",
  },
  non_retryable: {
    title: "The push service forbade a retry",
    help: "Read the error. Discard the deliveries, unless the cause has been fixed.",
  },
  redirected: {
    title: "The push service redirected",
    help: "Bellwire does not follow redirects. Replay after the push service has stopped redirecting.",
  },
  http_4xx: {
    title: "The push service refused the request",
    help: "The HTTP status of each delivery names the reason. Replay after fixing it.",
  },
  endpoint_forbidden: {
    title: "The endpoint is not allowed",
    help: "The host is not a push service that the app allows. Discard, or allow other push services and replay.",
  },
  retries_exhausted: {
    title: "All retries failed",
    help: "Usually an outage longer than the policy. Replay after the push service is healthy; use a longer policy if this is frequent.",
  },
  lease_exhausted: {
    title: "The workers crashed five times",
    help: "An error of Bellwire or its machine: read the log. Replay one delivery first, then the others.",
  },
  tampered: {
    title: "The queue was changed manually",
    help: "Find out what writes to the database. Discard the deliveries, or replay those that are correct.",
  },
  replayed: {
    title: "A queue row was restored manually",
    help: "The delivery was sent before, so most of these can be discarded.",
  },
  unsealable: {
    title: "Encryption failed",
    help: "The keys of the subscription are invalid. The browser replaces them at its next visit; discard these.",
  },
  unrenderable: {
    title: "The template could not be rendered",
    help: "The error names the missing attribute or the invalid result. Set the attribute of the recipient, or send a new message with a default.",
  },
  too_long: {
    title: "The rendered template was too long",
    help: "Send a new message with a shorter template, or with a template that allows cutting the text.",
  },
  gone: {
    title: "The subscription is gone",
    help: "No action: the subscriber or the browser unsubscribed. A replay is impossible.",
  },
  expired: {
    title: "The time to live ended",
    help: "Use a longer TTL next time, or send when the push service is healthy. A replay is impossible.",
  },
};

export const REASON_NAMES: readonly string[] = Object.keys(REASONS);

/** Why deliveries died. */
export const reasonWords = (reason: string): Reason =>
  REASONS[reason] ?? { title: reason, help: "Read the error of one delivery." };
