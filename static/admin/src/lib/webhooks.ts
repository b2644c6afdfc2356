/** Webhooks and their requests in words, and a webhook that is being written. Pure. */
import type { NewWebhook, WebhookResponse, EventType, WebhookDeliveryResponse, WebhookAttempt } from "../api/types";
import { capital, duration, fullCount, things } from "./format";
import type { Tone } from "./words";

export interface Standing {
  tone: Tone;
  word: string;
  /** Meaning and remedy; empty: none needed. */
  why: string;
}

const DISABLED: Record<string, Standing> = {
  asked: { tone: "cancelled", word: "Off", why: "A user disabled it. Events of this time are not sent later; waiting ones are sent once it is enabled." },
  gone: { tone: "lost", word: "Gone", why: "Its receiver answered 410, so it was turned off. Mend the address, or delete it." },
  failing: { tone: "lost", word: "Gave up", why: "Its receiver took nothing for five days, so it was turned off. Mend the receiver, turn it on, and replay what failed." },
};

/** Whether a webhook works. */
export function standing({ state, disabled_why, breaker, failing_since, dropped_events }: Pick<WebhookResponse, "state" | "disabled_why" | "breaker" | "failing_since" | "dropped_events">): Standing {
  if (state === "disabled") return DISABLED[disabled_why ?? "asked"] ?? { tone: "cancelled", word: "Off", why: "" };
  if (breaker !== "closed") return { tone: "retrying", word: "Waits", why: "Its receiver fails again and again, so it is left alone for a while. No retries are used up by that." };
  if (failing_since) return { tone: "retrying", word: "Fails", why: "Its receiver has taken nothing of late. Each request is tried again by its policy." };
  if (dropped_events > 0) return { tone: "retrying", word: "On", why: `${capital(things(dropped_events, "event"))} ${dropped_events === 1 ? "was" : "were"} dropped since too many requests waited.` };
  return { tone: "accepted", word: "On", why: "" };
}

/** State of a request. */
export function requestWords({ state, attempts }: Pick<WebhookDeliveryResponse, "state" | "attempts">): { tone: Tone; word: string } {
  if (state === "delivered") return { tone: "accepted", word: "Accepted" };
  if (state === "failed") return { tone: "lost", word: "Failed" };
  return attempts > 0 ? { tone: "retrying", word: "Tried again" } : { tone: "waiting", word: "Waiting" };
}

export const REQUEST_STATES = ["pending", "delivered", "failed"] as const;
export const REQUEST_STATE_WORDS: Record<(typeof REQUEST_STATES)[number], string> = { pending: "Waiting", delivered: "Accepted", failed: "Failed" };

/** Why there is no answer, by the server's name for it. */
const FAILURES: Record<string, string> = {
  resolve: "its host has no address, or DNS did not respond",
  invalid_host: "there is no such host",
  forbidden: "its address is not public",
  connect: "it refused the connection",
  proxy: "this server's own proxy lets no connection through",
  tls: "its certificate is not valid, or it does not speak TLS",
  reset: "the connection broke",
  deadline: "it took too long",
};

/** Result of one try. */
export function tryWords({ http_status, took_ms, reason }: Pick<WebhookAttempt, "http_status" | "took_ms" | "reason">): string {
  const after = duration(took_ms / 1_000);
  if (http_status == null) return `There was no answer${reason ? `: ${FAILURES[reason] ?? reason}` : ""}, after ${after}.`;
  return `The receiver answered ${http_status} after ${after}${reason ? `: ${reason}` : "."}`;
}

/** Whether the receiver accepts requests, by the test request. Undefined: not tested yet. */
export function trialWords({ state, tries }: Pick<WebhookDeliveryResponse, "state"> & { tries: readonly WebhookAttempt[] }): Standing | undefined {
  const last = tries.at(-1);
  if (!last) return undefined;
  if (state === "delivered") return { tone: "accepted", word: "It works", why: tryWords(last) };
  return { tone: "lost", word: "It does not work yet", why: `${tryWords(last)}${state === "pending" ? " It is tried again." : ""}` };
}

/** Effect of a replay. */
export const replayWords = (n: number): string => `${capital(things(n, "request"))} that failed ${n === 1 ? "is" : "are"} made again, with all ${n === 1 ? "its" : "their"} retries. Each keeps its id, so that a receiver that had taken one drops the repeat.`;

/** Data that the deletion of a webhook removes. */
export function deletionWords({ pending, failed }: Pick<WebhookResponse, "pending" | "failed">): string {
  const lost = pending + failed;
  const what = lost === 0 ? "Nothing waits for it." : `${fullCount(pending)} waiting and ${fullCount(failed)} failed requests go with it.`;
  return `Its receiver gets no further events. ${what} There is no way back.`;
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
    "How deliveries end",
    [
      ["delivery.accepted", "taken by the push service"],
      ["delivery.gone", "the subscription is gone"],
      ["delivery.expired", "expired"],
      ["delivery.dead", "failed for good"],
      ["delivery.cancelled", "cancelled"],
      ["delivery.capped", "held back by a cap"],
    ],
  ],
  [
    "What people do",
    [
      ["delivery.displayed", "it was shown"],
      ["delivery.clicked", "it was clicked"],
      ["delivery.closed", "it was closed"],
    ],
  ],
  [
    "Campaigns and messages",
    [
      ["campaign.state", "a campaign’s state"],
      ["message.done", "a message is done"],
      ["message.paused", "paused"],
      ["message.resumed", "resumed"],
      ["message.cancelled", "cancelled"],
    ],
  ],
  [
    "Subscriptions",
    [
      ["subscription.created", "a new or restored subscription"],
      ["subscription.changed", "its user, tags or attributes"],
      ["subscription.ended", "unsubscribed, expired or gone"],
    ],
  ],
  [
    "Problems",
    [
      ["dead_letter.created", "a first dead letter"],
      ["sla.missed", "a tier was late"],
    ],
  ],
  [
    "Alerts of the server (operators)",
    [
      ["server.alert.raised", "raised"],
      ["server.alert.resolved", "resolved"],
    ],
  ],
  [
    "Alerts of the app",
    [
      ["alert.raised", "raised"],
      ["alert.resolved", "resolved"],
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
  /** A policy that there is no field for: it stays. */
  own: object | undefined;
}

export const BLANK: Draft = { name: "", url: "", events: ["delivery.gone", "delivery.dead", "delivery.clicked", "campaign.state"], maxEvents: "100", preset: "", own: undefined };

/** Stands among the presets for a policy that there is no field for. */
export const OWN = "-own";

export function draftOf({ name, url, events, max_events, policy }: WebhookResponse): Draft {
  const { preset } = (policy ?? {}) as { preset?: unknown };
  const isPreset = typeof preset === "string" && Object.keys(policy ?? {}).length === 1;
  return { name, url, events, maxEvents: String(max_events), preset: isPreset ? preset : policy ? OWN : "", own: policy && !isPreset ? policy : undefined };
}

/** The whole as a request. */
export function bodyOf({ name, url, events, maxEvents, preset, own }: Draft): NewWebhook {
  const policy = preset === OWN ? own : preset ? { preset } : null;
  return { name: name.trim(), url: url.trim(), events: [...events], max_events: Number(maxEvents), policy: (policy ?? null) as never };
}

/** With an event, or without it, in the order in which they are shown. */
export function toggled(events: readonly EventType[], event: EventType): EventType[] {
  const all = EVENTS.flatMap(([, group]) => group.map(([name]) => name));
  return all.filter((name) => (name === event ? !events.includes(name) : events.includes(name)));
}
