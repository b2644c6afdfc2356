/** One delivery and its story, in words. Pure. */
import type { DeliveryState, ExplanationResponse, FoundDelivery, Sentence } from "../api/types";
import { clockTime, duration, relative, things, type Zone } from "./format";
import { gatewayName, type Tone } from "./words";

export const DELIVERY_STATES = [
  "queued",
  "dispatching",
  "retrying",
  "accepted",
  "gone",
  "expired",
  "dead",
  "cancelled",
  "capped",
] as const satisfies readonly DeliveryState[];

const STATES: Record<DeliveryState | "none", { word: string; tone: Tone }> = {
  queued: { word: "Queued", tone: "waiting" },
  dispatching: { word: "Being sent", tone: "waiting" },
  retrying: { word: "Retrying", tone: "retrying" },
  accepted: { word: "Accepted", tone: "accepted" },
  gone: { word: "Gone", tone: "lost" },
  expired: { word: "Expired", tone: "lost" },
  dead: { word: "Dead", tone: "lost" },
  cancelled: { word: "Cancelled", tone: "cancelled" },
  capped: { word: "Capped", tone: "cancelled" },
  none: { word: "No delivery", tone: "cancelled" },
};

/** Text of a delivery state; an unknown state keeps its name. */
export const stateWords = (state: string): { word: string; tone: Tone } =>
  STATES[state as DeliveryState] ?? { word: state, tone: "cancelled" };

export const TIERS = ["transactional", "promotional", "engagement"] as const;

const UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}";

/** Whether a text is an id with this prefix. A site may give its users any names, even `sub_7`. */
export const isId = (text: string, prefix: "msg_" | "sub_"): boolean => new RegExp(`^${prefix}${UUID}$`).test(text);

/** Meaning of the input: a subscription by its id, else a user by the site's name. */
export function person(who: string | undefined): { subscription?: string; user_id?: string } {
  const text = who?.trim();
  if (!text) return {};
  return isId(text, "sub_") ? { subscription: text } : { user_id: text };
}

/** End of an id, which differs between neighbours; its beginning is the time. */
export const shortId = (id: string): string => `${id.slice(0, id.indexOf("_") + 1)}…${id.slice(-6)}`;

/** A device, by its push service: `Mozilla device`. */
export const deviceWords = (gateway: string): string =>
  gateway === "other" ? "device of another push service" : `${gatewayName(gateway)} device`;

/** The same with its article; undefined: its subscription was deleted. */
export function aDevice(gateway: string | undefined): string {
  if (gateway === undefined) return "a device that was deleted";
  const device = deviceWords(gateway);
  return `${/^[AEIOU]/.test(device) ? "an" : "a"} ${device}`;
}

/** Parts of a sentence: times are shown in the chosen zone, and ids are links. */
export type Part = { kind: "text" | "message" | "subscription"; text: string } | { kind: "time"; at: Date };

/** The server formats a time as `2027-01-15T08:00:00Z (3 min ago)`. The page drops the part in brackets, which ages. */
const TIME = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z(?: \((?:in [^()]*|[^()]* ago|now)\))?`;

export function parts(text: string): Part[] {
  const found: Part[] = [];
  let end = 0;
  for (const match of text.matchAll(new RegExp(`${TIME}|(?:msg|sub)_${UUID}`, "g"))) {
    if (match.index > end) found.push({ kind: "text", text: text.slice(end, match.index) });
    const [what] = match;
    if (what.startsWith("msg_")) found.push({ kind: "message", text: what });
    else if (what.startsWith("sub_")) found.push({ kind: "subscription", text: what });
    else found.push({ kind: "time", at: new Date(what.replace(/ .*/, "")) });
    end = match.index + what.length;
  }
  if (end < text.length) found.push({ kind: "text", text: text.slice(end) });
  return found;
}

/** A sentence, and the push service's own words, which stand apart. */
export function quoted({ text, facts }: Sentence): { text: string; words: string | undefined } {
  const words = (facts as { words?: unknown }).words;
  if (typeof words !== "string" || !words) return { text, words: undefined };
  return { text: text.replace(`, in its words “${words}”`, ""), words };
}

/** Parts of a story: what holds of it all along, what was, what is, what will be. */
export interface Chapters {
  about: Sentence[];
  past: Sentence[];
  present: Sentence[];
  next: Sentence[];
}

const ABOUT: readonly string[] = [
  "addressed",
  "policy_in_force",
  "policy_when_it_died",
  "message_replays",
  "content_deleted",
];
const PRESENT =
  /^(waits_|held_by|lease_|not_|handed_on|will_end|lane_|breaker_|flow_|no_worker|history_deleted|attempts_elsewhere)/;

export function chapters(story: readonly Sentence[]): Chapters {
  const of: Chapters = { about: [], past: [], present: [], next: [] };
  for (const sentence of story) {
    const { code } = sentence;
    if (ABOUT.includes(code)) of.about.push(sentence);
    else if (code.startsWith("next_")) of.next.push(sentence);
    else if (PRESENT.test(code) && code !== "not_answered") of.present.push(sentence);
    else of.past.push(sentence);
  }
  return of;
}

/** Effect of a step on the delivery. */
export function toneOf({ code, facts }: Sentence): Tone {
  const ending = /^ended_(.*)$/.exec(code)?.[1];
  if (ending === "by_receipt" || code === "reported") return "accepted";
  if (ending) return stateWords(ending).tone;
  if (code === "answered") {
    const status = Number((facts as { status?: number }).status);
    return status >= 200 && status < 300 ? "accepted" : status === 404 || status === 410 ? "lost" : "retrying";
  }
  if (code === "not_answered") return "retrying";
  return "waiting";
}

/** The answer to why, in one sentence: how it ended, or what it waits for. */
export function answer({ state, story }: Pick<ExplanationResponse, "state" | "story">): Sentence | undefined {
  const { past, present, next } = chapters(story);
  const ended = past.findLast(({ code }) => code.startsWith("ended_"));
  if (ended && !isWaiting(state)) return ended;
  return present[0] ?? next[0] ?? past.at(-1);
}

/** Whether it may be hurried or called off. */
export const isWaiting = (state: string): boolean => state === "queued" || state === "retrying";

/** Last action, for a list: `taken in 40 ms`, `due 14:10; 503 overloaded`. */
export function lastWords(
  { state, due_at, last_attempt }: Pick<FoundDelivery, "state" | "due_at" | "last_attempt">,
  now: Date,
  zone: Zone,
): string {
  const due = due_at ? `due ${clockTime(new Date(due_at), now, zone)}` : "its message is paused";
  const { status, reason, took_ms } = last_attempt ?? {};
  const words = [status, reason].filter((word) => word != null && word !== "").join(" ");
  if (state === "queued") return due;
  if (state === "retrying") return words ? `${due}; ${words}` : due;
  if (state === "accepted" && took_ms != null) return `accepted in ${duration(took_ms / 1_000)}`;
  return words;
}

/** Something that may be done to a delivery that waits. */
export type Turn = "retry" | "cancel";

export const TURN_WORDS: Record<Turn, { title: string; done: string }> = {
  retry: { title: "Retry now", done: "The delivery is due now. A worker sends it as soon as its lane allows." },
  cancel: {
    title: "Cancel this delivery",
    done: "The delivery is cancelled: this message is not sent to this device.",
  },
};

/** Effect of an action, with counts. */
export function consequenceOf(
  turn: Turn,
  found: { gateway?: string | null; due_at?: string | null },
  now: Date,
  zone: Zone,
): string {
  const device = found.gateway ? `this one ${deviceWords(found.gateway)}` : "this one device";
  if (turn === "cancel") {
    return `This message is not sent to ${device}; the delivery ends as cancelled. Other devices of this person and other recipients are not affected. This cannot be undone.`;
  }
  const due =
    found.due_at && new Date(found.due_at) > now
      ? `instead of ${clockTime(new Date(found.due_at), now, zone)} (${relative(new Date(found.due_at), now)})`
      : "(it is due already)";
  return `The delivery becomes due now ${due}, for ${device}. This uses up no retry of its policy. While its lane is on hold or its breaker is open, the delivery waits.`;
}

/** Sender and subject of a report. */
export interface Subject {
  app: string;
  person: string | undefined;
  gateway: string | undefined;
  lane: number | undefined;
}

/** The whole story as plain text for a ticket: times in UTC, nothing shortened. */
export function report(
  { message, subscription, state, now, story }: ExplanationResponse,
  { app, person, gateway, lane }: Subject,
): string {
  const { about, past, present, next } = chapters(story);
  const lines = (title: string, sentences: readonly Sentence[]) =>
    sentences.length === 0 ? [] : ["", title, ...sentences.map(({ text }) => `- ${text}`)];
  const about_whom = [
    `App: ${app}`,
    person && `Person: ${person}`,
    gateway && `Push service: ${gatewayName(gateway)}`,
    lane !== undefined && `Lane: ${lane}`,
  ];
  return [
    `Delivery of ${message} to ${subscription}`,
    about_whom.filter(Boolean).join(" · "),
    `State at ${now}: ${stateWords(state).word.toLowerCase()} (${state})`,
    ...lines("History", past),
    ...lines("Current state", present),
    ...lines("Next step", next),
    ...lines("Details", about),
    "",
  ].join("\n");
}

/** Spans of time that a search can be narrowed to, in seconds. */
export const SPANS = [3_600, 86_400, 604_800, 2_592_000] as const;
export const spanWords = (seconds: number): string =>
  `Last ${seconds === 3_600 ? "hour" : seconds < 172_800 ? `${seconds / 3_600} hours` : things(seconds / 86_400, "day")}`;
