/** Webhooks and their requests in words, and a webhook that is being written. Pure. */
import type { NewWebhook, WebhookResponse, EventType, WebhookDeliveryResponse, WebhookAttempt } from "../api/types";
import { capital, duration, count, things } from "./format";
import type { Tone } from "./words";

export interface Standing {
  tone: Tone;
  word: string;
  /** Meaning and remedy; empty: none needed. */
  why: string;
}

const DISABLED: Record<string, Standing> = {
  asked: {
    tone: "cancelled",
    word: "Disabled",
    why: "A user disabled it. New events are not sent later; waiting events are sent after the webhook is enabled.",
  },
  gone: {
    tone: "lost",
    word: "Gone",
    why: "The receiver responded 410 Gone, so the webhook was disabled. Correct the URL, or delete the webhook.",
  },
  failing: {
    tone: "lost",
    word: "Failed",
    why: "The receiver returned errors for five days, so the webhook was disabled. Fix the receiver, enable the webhook, and replay failed requests.",
  },
};

/** Whether a webhook works. */
export function standing({
  state,
  disabled_why,
  breaker,
  failing_since,
  dropped_events,
}: Pick<WebhookResponse, "state" | "disabled_why" | "breaker" | "failing_since" | "dropped_events">): Standing {
  if (state === "disabled")
    return DISABLED[disabled_why ?? "asked"] ?? { tone: "cancelled", word: "Disabled", why: "" };
  if (breaker !== "closed")
    return {
      tone: "retrying",
      word: "Backing off",
      why: "The receiver failed repeatedly, so requests pause. The pause uses up no retries.",
    };
  if (failing_since)
    return {
      tone: "retrying",
      word: "Failing",
      why: "The latest requests failed. Each request is retried by its policy.",
    };
  if (dropped_events > 0)
    return {
      tone: "retrying",
      word: "Enabled",
      why: `${capital(things(dropped_events, "event"))} ${dropped_events === 1 ? "was" : "were"} dropped because too many requests were waiting.`,
    };
  return { tone: "accepted", word: "Enabled", why: "" };
}

/** State of a request. */
export function requestWords({ state, attempts }: Pick<WebhookDeliveryResponse, "state" | "attempts">): {
  tone: Tone;
  word: string;
} {
  if (state === "delivered") return { tone: "accepted", word: "Accepted" };
  if (state === "failed") return { tone: "lost", word: "Failed" };
  return attempts > 0 ? { tone: "retrying", word: "Retrying" } : { tone: "waiting", word: "Waiting" };
}

export const REQUEST_STATES = ["pending", "delivered", "failed"] as const;
export const REQUEST_STATE_WORDS: Record<(typeof REQUEST_STATES)[number], string> = {
  pending: "Waiting",
  delivered: "Accepted",
  failed: "Failed",
};

/** Why there is no answer, by the server's name for it. */
const FAILURES: Record<string, string> = {
  resolve: "the host has no address, or DNS did not respond",
  invalid_host: "the host name is invalid",
  forbidden: "the address is not public",
  connect: "the receiver refused the connection",
  proxy: "this server’s proxy refused the connection",
  tls: "the certificate is invalid, or the receiver does not use TLS",
  reset: "the connection broke",
  deadline: "timeout",
};

/** Result of one try. */
export function tryWords({
  http_status,
  took_ms,
  reason,
}: Pick<WebhookAttempt, "http_status" | "took_ms" | "reason">): string {
  const after = duration(took_ms / 1_000);
  if (http_status == null) return `No response${reason ? `: ${FAILURES[reason] ?? reason}` : ""}, after ${after}.`;
  return `The receiver responded ${http_status} after ${after}${reason ? `: ${reason}` : "."}`;
}

/** Whether the receiver accepts requests, by the test request. Undefined: not tested yet. */
export function trialWords({
  state,
  recent_attempts,
}: Pick<WebhookDeliveryResponse, "state"> & { recent_attempts: readonly WebhookAttempt[] }): Standing | undefined {
  const last = recent_attempts.at(-1);
  if (!last) return undefined;
  if (state === "delivered") return { tone: "accepted", word: "Test passed", why: tryWords(last) };
  return {
    tone: "lost",
    word: "Test failed",
    why: `${tryWords(last)}${state === "pending" ? " The request is retried." : ""}`,
  };
}

/** Effect of a replay. */
export const replayWords = (n: number): string =>
  `${capital(things(n, "failed request"))} ${n === 1 ? "is" : "are"} sent again, with all retries. Each request keeps its id, so a receiver can drop duplicates.`;

/** Data that the deletion of a webhook removes. */
export function deletionWords({ pending, failed }: Pick<WebhookResponse, "pending" | "failed">): string {
  const lost = pending + failed;
  const what =
    lost === 0
      ? "No requests are waiting."
      : `${count(pending)} waiting and ${count(failed)} failed requests are deleted.`;
  return `The receiver gets no further events. ${what} This cannot be undone.`;
}

/** The host of an address alone: the rest of it may be a secret. */
export function hostOf(url: string): string {
  try {
    return new URL(url).host;
  } catch {
    return "";
  }
}

/** Event types of webhooks, by subject. */
export const EVENTS: readonly (readonly [string, readonly (readonly [EventType, string])[]])[] = [
  [
    "Outcome of deliveries",
    [
      ["delivery.accepted", "accepted by the push service"],
      ["delivery.gone", "subscription gone"],
      ["delivery.expired", "expired"],
      ["delivery.dead", "failed (dead)"],
      ["delivery.cancelled", "cancelled"],
      ["delivery.capped", "capped"],
    ],
  ],
  [
    "Reactions of subscribers",
    [
      ["delivery.displayed", "shown"],
      ["delivery.clicked", "clicked"],
      ["delivery.closed", "dismissed"],
      ["delivery.withdrawn", "withdrawn"],
    ],
  ],
  [
    "Campaigns and messages",
    [
      ["campaign.state", "campaign state changed"],
      ["campaign.result", "result of a campaign is final"],
      ["message.done", "message done"],
      ["message.paused", "message paused"],
      ["message.resumed", "message resumed"],
      ["message.cancelled", "message cancelled"],
    ],
  ],
  [
    "Subscriptions",
    [
      ["subscription.created", "created or restored"],
      ["subscription.changed", "user, tags or attributes changed"],
      ["subscription.ended", "unsubscribed, expired or gone"],
    ],
  ],
  [
    "Problems",
    [
      ["dead_letter.created", "first dead letter"],
      ["sla.missed", "SLA missed"],
    ],
  ],
  [
    "Alerts of the server (operators)",
    [
      ["server.alert.raised", "server alert raised"],
      ["server.alert.resolved", "server alert resolved"],
    ],
  ],
  [
    "Alerts of the app",
    [
      ["alert.raised", "alert raised"],
      ["alert.resolved", "alert resolved"],
    ],
  ],
];

/** A webhook in the form. */
export interface Draft {
  name: string;
  url: string;
  events: readonly EventType[];
  maxEvents: string;
  /** The name of a preset; empty: the default. */
  preset: string;
  /** Policy that the form cannot edit; saving keeps it. */
  own: object | undefined;
}

export const BLANK: Draft = {
  name: "",
  url: "",
  events: ["delivery.gone", "delivery.dead", "delivery.clicked", "campaign.state"],
  maxEvents: "100",
  preset: "",
  own: undefined,
};

/** Choice among the presets for a policy that the form cannot edit. */
export const OWN = "-own";

export function draftOf({ name, url, events, max_events, policy }: WebhookResponse): Draft {
  const { preset } = (policy ?? {}) as { preset?: unknown };
  const isPreset = typeof preset === "string" && Object.keys(policy ?? {}).length === 1;
  return {
    name,
    url,
    events,
    maxEvents: String(max_events),
    preset: isPreset ? preset : policy ? OWN : "",
    own: policy && !isPreset ? policy : undefined,
  };
}

/** The whole as a request. */
export function bodyOf({ name, url, events, maxEvents, preset, own }: Draft): NewWebhook {
  const policy = preset === OWN ? own : preset ? { preset } : null;
  return {
    name: name.trim(),
    url: url.trim(),
    events: [...events],
    max_events: Number(maxEvents),
    policy: (policy ?? null) as never,
  };
}

/** With an event, or without it, in the order in which they are shown. */
export function toggled(events: readonly EventType[], event: EventType): EventType[] {
  const all = EVENTS.flatMap(([, group]) => group.map(([name]) => name));
  return all.filter((name) => (name === event ? !events.includes(name) : events.includes(name)));
}
