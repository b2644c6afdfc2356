/** Progress of a message, as texts and parts. Pure. */
import type { MessageResponse, SendState, Tier, WithdrawalCounts } from "../api/types";
import { OUTCOMES, OUTCOME_LOOKS, type Funnel, type Outcome, type Pattern } from "./figures";
import { capital, clockTime, count, duration, rate, relative, things, type Zone } from "./format";
import type { Tone } from "./words";

export const STATES: readonly SendState[] = ["scheduled", "sending", "paused", "done", "cancelled"];
export const STATE_LOOKS: Record<SendState, { word: string; tone: Tone }> = {
  scheduled: { word: "Scheduled", tone: "waiting" },
  sending: { word: "Sending", tone: "waiting" },
  paused: { word: "Paused", tone: "retrying" },
  done: { word: "Done", tone: "accepted" },
  cancelled: { word: "Cancelled", tone: "cancelled" },
};

export const TIERS: readonly Tier[] = ["transactional", "promotional", "engagement"];
export const TIER_WORDS: Record<Tier, string> = {
  transactional: "Transactional",
  promotional: "Promotional",
  engagement: "Engagement",
};

/** `to`, as the API shows it. */
interface To {
  all?: boolean;
  topic?: string;
  users?: readonly (string | null)[];
  subscriptions?: readonly string[];
  segment?: string;
}

/** Audience of a message. */
export function audienceWords(to: MessageResponse["to"]): string {
  const { all, topic, users, subscriptions, segment } = to as To;
  if (segment !== undefined) return topic === undefined ? `Segment ${segment}` : `Segment ${segment} of topic ${topic}`;
  if (all) return "All subscribers";
  if (topic !== undefined) return `Topic ${topic}`;
  if (users)
    return users.length === 1 ? (users[0] == null ? "One user" : `User ${users[0]}`) : `${count(users.length)} users`;
  return subscriptions?.length === 1 ? "One subscription" : `${count(subscriptions?.length ?? 0)} subscriptions`;
}

/** Title of a message, or its audience if the title is not shown. */
export const titleWords = ({ title, to }: Pick<MessageResponse, "title" | "to">): string =>
  title ?? `To ${audienceWords(to).replace(/^[A-Z]/, (letter) => letter.toLowerCase())}`;

/** Row of the list: a message, or consecutive single sends of the same kind, the newest first. */
export interface MessageGroup {
  /** Id of the oldest message: it stays when a newer message joins the group. */
  id: string;
  messages: MessageResponse[];
}

/** Kind of a message to one user or subscription. Undefined: it has another audience. */
function singleKind({ to, tier, title, campaign, replay_of }: MessageResponse): string | undefined {
  const { users, subscriptions } = to as To;
  const kind = users?.length === 1 ? "user" : subscriptions?.length === 1 ? "subscription" : undefined;
  return kind && JSON.stringify([kind, tier, title, campaign, Boolean(replay_of)]);
}

export function grouped(messages: readonly MessageResponse[]): MessageGroup[] {
  const groups: MessageGroup[] = [];
  let kind: string | undefined;
  for (const message of messages) {
    const its = singleKind(message);
    const last = groups.at(-1);
    if (last && its !== undefined && its === kind) {
      last.messages.push(message);
      last.id = message.id;
    } else {
      groups.push({ id: message.id, messages: [message] });
    }
    kind = its;
  }
  return groups;
}

/** Order in which one state stands for a group: what is under way before what has ended. */
const STATE_ORDER: readonly SendState[] = ["sending", "paused", "scheduled", "done", "cancelled"];
export const stateOf = (messages: readonly MessageResponse[]): SendState =>
  STATE_ORDER.find((state) => messages.some((message) => message.state === state)) ?? "done";

/** Sums of messages. Null: no push of them requests receipts. */
export interface Sums {
  targeted: number;
  accepted: number;
  displayed: number | null;
  clicked: number | null;
  /** Clicked of those that may be clicked: accepted with a request for receipts. */
  ctr: number | null;
}

export function sumsOf(messages: readonly MessageResponse[]): Sums {
  const sum = (of: readonly MessageResponse[], n: (message: MessageResponse) => number | null | undefined) =>
    of.reduce((sum, message) => sum + (n(message) ?? 0), 0);
  const reported = messages.filter(({ progress }) => progress?.clicked != null);
  const ifReported = (name: "displayed" | "clicked") =>
    reported.length === 0 ? null : sum(reported, ({ progress }) => progress?.[name]);
  const [clicked, base] = [ifReported("clicked"), sum(reported, ({ progress }) => progress?.accepted)];
  return {
    targeted: sum(messages, ({ progress }) => progress?.targeted),
    accepted: sum(messages, ({ progress }) => progress?.accepted),
    displayed: ifReported("displayed"),
    clicked,
    ctr: clicked === null || base === 0 ? null : clicked / base,
  };
}

/** Counts of deliveries: from a list, or in more detail from the message. */
export interface Standing {
  state: SendState;
  ended: Record<Outcome, number>;
  /** Wait for another try. */
  retrying: number;
  /** Wait for their first, or are under way; in lists, those that wait for another too. */
  queued: number;
  /** Recipients that are still to be found, about. */
  unfound: number;
  /** Recipients that were not found before it was cancelled, about. */
  unbegun: number;
  expiresAt: Date;
  /** Scheduled send time, else the time of the acceptance. */
  dueAt: Date;
}

/** Counts of a group: the sums of its messages. */
export function standingOf(messages: readonly MessageResponse[]): Standing {
  const [first, ...others] = messages.map(standing);
  if (!first) throw new Error("a group has messages");
  const sum = (a: Standing, b: Standing): Standing => ({
    ...a,
    ended: Object.fromEntries(OUTCOMES.map((outcome) => [outcome, a.ended[outcome] + b.ended[outcome]])) as Record<
      Outcome,
      number
    >,
    retrying: a.retrying + b.retrying,
    queued: a.queued + b.queued,
    unfound: a.unfound + b.unfound,
    unbegun: a.unbegun + b.unbegun,
  });
  return { ...others.reduce(sum, first), state: stateOf(messages) };
}

export function standing(message: MessageResponse): Standing {
  const { state, counts, progress } = message;
  const known = counts ?? progress;
  const targeted = known?.targeted ?? 0;
  const toFind = Math.max(0, message.audience_estimate - targeted);
  const ended = Object.fromEntries(OUTCOMES.map((outcome) => [outcome, known?.[outcome] ?? 0])) as Record<
    Outcome,
    number
  >;
  return {
    state,
    ended,
    retrying: counts?.retrying ?? 0,
    queued: counts ? counts.queued + counts.dispatching : (progress?.waiting ?? 0),
    unfound: message.expanded ? 0 : toFind,
    unbegun: state === "cancelled" ? toFind : 0,
    expiresAt: new Date(message.expires_at),
    dueAt: new Date(message.accepted_at),
  };
}

export const endedOf = ({ ended }: Standing): number => OUTCOMES.reduce((sum, outcome) => sum + ended[outcome], 0);
export const waitingOf = ({ queued, retrying, unfound }: Standing): number => queued + retrying + unfound;
export const wholeOf = (it: Standing): number => endedOf(it) + waitingOf(it);

/** A part of the bar: how many deliveries stand alike. */
export interface Part {
  id: Outcome | "retrying" | "queued" | "unfound";
  word: string;
  tone: Tone;
  pattern: Pattern | "hatched";
  n: number;
}

/** Parts of the bar, in order: ended, waiting, and not found yet. */
export function parts(it: Standing): Part[] {
  const ended: Part[] = OUTCOMES.map((id) => ({ id, ...OUTCOME_LOOKS[id], n: it.ended[id] }));
  const waiting: Part[] = [
    { id: "retrying", word: "Retrying", tone: "retrying", pattern: "stripes", n: it.retrying },
    {
      id: "queued",
      word: it.state === "paused" ? "Paused" : "Waiting",
      tone: "waiting",
      pattern: "solid",
      n: it.queued,
    },
    { id: "unfound", word: "Not queued yet", tone: "cancelled", pattern: "hatched", n: it.unfound },
  ];
  return [...ended, ...waiting].filter(({ n }) => n > 0);
}

/** `12,000 of 50,000`, `12,000 of about 50,000`: the total is unknown while recipients are found. */
export function outOf(it: Standing): string {
  return `${count(endedOf(it))} of ${it.unfound > 0 ? "about " : ""}${count(wholeOf(it))}`;
}

/** Number of deliveries that had ended at a time. */
export interface Sample {
  atMs: number;
  ended: number;
}

/** A rate is measured over so long, at most and at least: what stands still is to be seen soon. */
const WINDOW_MS = 15_000;
const SHORTEST_MS = 1_500;

/** The samples of the last seconds and this one. The one before them stays: a rate needs a beginning. */
export function remember(samples: readonly Sample[], now: Sample): Sample[] {
  const last = samples.at(-1);
  if (last && (now.ended < last.ended || now.atMs <= last.atMs)) return now.atMs === last.atMs ? [...samples] : [now];
  const first = samples.findLastIndex(({ atMs }) => now.atMs - atMs >= WINDOW_MS);
  return [...samples.slice(Math.max(0, first)), now];
}

/** Deliveries that end a minute; undefined: too little was seen to tell. */
export function pace(samples: readonly Sample[]): number | undefined {
  const [first, last] = [samples[0], samples.at(-1)];
  if (!first || !last || last.atMs - first.atMs < SHORTEST_MS) return undefined;
  return ((last.ended - first.ended) / (last.atMs - first.atMs)) * 60_000;
}

/** A time that is only guessed, in one unit or two. */
function about(seconds: number): string {
  if (seconds < 60) return "less than a minute";
  return `about ${duration(seconds < 3_600 ? Math.ceil(seconds / 60) * 60 : Math.ceil(seconds / 900) * 900)}`;
}

/** First sentence of the page. */
export interface Going {
  tone: Tone;
  words: string;
  /** The page that may show why. */
  path?: string;
}

/** Losing a larger share than this is what one has to know first. */
const ALARMING = 0.1;
/** Minimum share per minute that counts as progress. */
const STILL = 0.5;

/** Progress in one sentence. */
export function going(it: Standing, perMinute: number | undefined, now: Date, zone: Zone): Going {
  const ends = clockTime(it.expiresAt, now, zone);
  const waiting = waitingOf(it);
  switch (it.state) {
    case "done":
      return finished(it);
    case "cancelled":
      if (waiting > 0)
        return { tone: "cancelled", words: `Being cancelled: ${things(waiting, "delivery", "deliveries")} left.` };
      return stopped(it);
    case "paused":
      return {
        tone: "retrying",
        words: `Paused: ${outOf(it)} done, the others wait. The time to live ends at ${ends}.`,
      };
    case "scheduled":
      return {
        tone: "waiting",
        words:
          it.dueAt > now
            ? `Scheduled for ${clockTime(it.dueAt, now, zone)}, ${relative(it.dueAt, now)}.`
            : "Scheduled: no delivery is due yet.",
      };
    case "sending":
      return underWay(it, perMinute, now, ends);
  }
}

function underWay(it: Standing, perMinute: number | undefined, now: Date, ends: string): Going {
  const waiting = waitingOf(it);
  const isStill = perMinute !== undefined && perMinute < STILL;
  if (it.retrying > 0 && it.retrying === waiting && (isStill || perMinute === undefined)) {
    return {
      tone: "retrying",
      words: `${outOf(it)} done; ${things(waiting, "delivery", "deliveries")} ${waiting === 1 ? "waits" : "wait"} for a retry.`,
      path: "/push-services",
    };
  }
  if (perMinute === undefined) return { tone: "waiting", words: `Sending: ${outOf(it)} done.` };
  if (isStill)
    return {
      tone: "retrying",
      words: `Stalled: ${outOf(it)} done, no progress at the moment.`,
      path: "/push-services",
    };
  const seconds = (waiting / perMinute) * 60;
  if (seconds * 1_000 > it.expiresAt.getTime() - now.getTime()) {
    return {
      tone: "retrying",
      words: `Sending: ${outOf(it)} done, ${rate(perMinute)}. At this rate the time to live ends first, at ${ends}.`,
    };
  }
  return { tone: "waiting", words: `Sending: ${outOf(it)} done, ${rate(perMinute)}, ${about(seconds)} left.` };
}

function stopped(it: Standing): Going {
  const before = endedOf(it) - it.ended.cancelled;
  const never = it.unbegun > 0 ? `, and about ${count(it.unbegun)} were never queued` : "";
  return {
    tone: "cancelled",
    words: `Cancelled: ${count(before)} had ended, ${count(it.ended.cancelled)} were stopped${never}.`,
  };
}

function finished(it: Standing): Going {
  const whole = wholeOf(it);
  if (whole === 0) return { tone: "cancelled", words: "The audience was empty." };
  const { accepted, dead, expired } = it.ended;
  if (accepted === whole)
    return {
      tone: "accepted",
      words: whole === 1 ? "Done: the push service accepted it." : `Done: all ${count(whole)} were accepted.`,
    };
  const others = OUTCOMES.filter((outcome) => outcome !== "accepted" && it.ended[outcome] > 0);
  const rest = others
    .map((outcome) => `${count(it.ended[outcome])} ${OUTCOME_LOOKS[outcome].word.toLowerCase()}`)
    .join(", ");
  return {
    tone: (dead + expired) / whole > ALARMING ? "lost" : "accepted",
    words: `Done: ${count(accepted)} of ${count(whole)} accepted; ${rest}.`,
  };
}

/** Reports of browsers. Null: unknown, since the pushes have no receipt token. */
export function receipts({ counts }: MessageResponse): Funnel | null {
  if (!counts || counts.displayed == null) return null;
  const { accepted, displayed } = counts;
  return {
    accepted,
    asked: accepted,
    displayed,
    clicked: counts.clicked ?? 0,
    unknowable: 0,
    silent: Math.max(0, accepted - displayed),
  };
}

export const STEERINGS = ["pause", "resume", "cancel", "withdraw"] as const;
export type Steering = (typeof STEERINGS)[number];

export const STEERING_WORDS: Record<Steering, string> = {
  pause: "Pause",
  resume: "Resume",
  cancel: "Cancel",
  withdraw: "Withdraw",
};

/** Possible actions of a message. */
export function steerings({ state, withdrawn_at }: Pick<MessageResponse, "state" | "withdrawn_at">): Steering[] {
  const withdraw: Steering[] = withdrawn_at ? [] : ["withdraw"];
  if (state === "sending" || state === "scheduled") return ["pause", "cancel", ...withdraw];
  return state === "paused" ? ["resume", "cancel", ...withdraw] : withdraw;
}

/** Time after acceptance in which a withdrawal needs no confirmation. */
const UNDO_MS = 60_000;

/** Whether the message was sent so recently that a withdrawal is called undo. */
export const isUndo = ({ accepted_at }: Pick<MessageResponse, "accepted_at">, now: Date): boolean =>
  Math.abs(now.getTime() - Date.parse(accepted_at)) < UNDO_MS;

/** Progress of a message's withdrawal, with what browsers reported, in a sentence. */
export const withdrawalWords = (of: WithdrawalCounts): string =>
  reportedWords(of) ??
  (of.removal ? "Withdrawn. The removal is being sent." : "Withdrawn. No browser has the message.");

/**
 * Progress of the withdrawal of a campaign's messages. Their sum names no removal, so counts of zero do not show whether browsers
 * have messages.
 */
export const campaignWithdrawalWords = (of: WithdrawalCounts): string =>
  reportedWords(of) ?? "Withdrawn. No browser has reported so far.";

/** Undefined: the withdrawal has ended, and all counts are zero. */
function reportedWords({ ended_at, removed, prevented, missed, unknown }: WithdrawalCounts): string | undefined {
  if (!ended_at) return "Withdrawn. Pushes on their way end first.";
  const parts = [
    [removed, "closed"],
    [prevented, "never shown"],
    [missed, "clicked or closed before"],
    [unknown, "without a report so far"],
  ] as const;
  const told = parts.filter(([n]) => n > 0).map(([n, words]) => `${count(n)} ${words}`);
  return told.length > 0 ? `Withdrawn from browsers: ${told.join(", ")}.` : undefined;
}

/** Notice before notifications are sent. */
export const SENT_WORDS =
  "Sent notifications can be withdrawn, which removes them from browsers. Recipients may have seen them before.";

/** Advice of a cancellation, which leaves sent notifications in browsers. */
export const withdrawAdvice = (what: "message" | "campaign"): string =>
  `To remove sent notifications from browsers too, withdraw the ${what} instead.`;

/** Sentences about ended deliveries, after a space. Empty: no delivery has ended. */
export const endedWords = (ended: number, what: "message" | "campaign"): string =>
  ended === 0
    ? ""
    : ` ${capital(things(ended, "delivery", "deliveries"))} ${ended === 1 ? "has" : "have"} ended already. ${withdrawAdvice(what)}`;

/** Effect of an action, with counts. */
export function consequence(steering: Steering, it: Standing, now: Date, zone: Zone): string {
  const waiting = waitingOf(it);
  const many = `${it.unfound > 0 ? "about " : ""}${things(waiting, "delivery", "deliveries")}`;
  switch (steering) {
    case "pause":
      return `This would pause ${many} that ${waiting === 1 ? "waits" : "wait"} now. No new request starts after one second; requests in flight complete. The time to live continues to run and ends at ${clockTime(it.expiresAt, now, zone)}.`;
    case "resume":
      return `This would resume ${many}, within a second.`;
    case "withdraw":
      return `This would cancel ${many} that ${waiting === 1 ? "waits" : "wait"}, and remove the message from ${things(it.ended.accepted, "browser")} that may have it. Devices that are offline get the removal within four weeks.`;
    case "cancel":
      return `This would cancel ${many} that ${waiting === 1 ? "has" : "have"} not been sent yet.${endedWords(endedOf(it), "message")}`;
  }
}
