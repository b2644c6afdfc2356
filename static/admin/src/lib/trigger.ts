/** Campaigns that events trigger: fields of the form, sentences and the funnel. Pure. */
import type { CampaignSchedule, TriggerCounts } from "../api/types";
import { capital, count, numberFault, share, things } from "./format";
import type { Funnel } from "./figures";
import { withdrawAdvice } from "./messages";

export const CAUSES = ["subscribed", "joined", "event"] as const;
export type Cause = (typeof CAUSES)[number];

/** Units of a span, by their letter. */
export const UNITS = [
  ["s", "seconds", 1],
  ["m", "minutes", 60],
  ["h", "hours", 3_600],
  ["d", "days", 86_400],
] as const;
export type Unit = (typeof UNITS)[number][0];

/** Trigger as it was written: texts, some of them empty. */
export interface TriggerDraft {
  cause: Cause;
  topic: string;
  event: string;
  /** Condition on the properties of the event. */
  condition: string;
  wait: string;
  waitUnit: Unit;
  /** Names of events, separated by commas. */
  unless: string;
  limit: "none" | "once" | "per";
  limitSpan: string;
  limitUnit: Unit;
}

export const BLANK_TRIGGER: TriggerDraft = {
  cause: "event",
  topic: "",
  event: "",
  condition: "",
  wait: "30",
  waitUnit: "m",
  unless: "",
  limit: "none",
  limitSpan: "7",
  limitUnit: "d",
};

const WAIT_MAX_DAYS = 90;
const LIMIT_MAX_DAYS = 365;
export const UNLESS_MAX = 5;
const EVENT_NAME = /^[A-Za-z0-9_.-]{1,64}$/;
const NAME_RULE = "must be 1 to 64 letters, digits, `_`, `-` or `.`";

const lengthOf = (unit: Unit): number => UNITS.find(([letter]) => letter === unit)?.[2] ?? 1;
const namesIn = (text: string): string[] =>
  text
    .split(/[,\s]+/)
    .map((name) => name.replace(/^event:/, ""))
    .filter(Boolean);

type TriggerField = "event" | "wait" | "unless" | "limitSpan";

/** Faults that the form itself finds, by field. Empty names are missing, not faulty. */
export function triggerFaults(draft: TriggerDraft): Partial<Record<TriggerField, string>> {
  const { cause, event, wait, waitUnit, unless, limit, limitSpan, limitUnit } = draft;
  const names = namesIn(unless);
  const spanFault = (text: string, unit: Unit, leastS: number, days: number) =>
    numberFault(text, Math.ceil(leastS / lengthOf(unit)), Math.floor((days * 86_400) / lengthOf(unit)));
  const found: [TriggerField, string | undefined][] = [
    ["event", cause === "event" && event.trim() && !EVENT_NAME.test(event.trim()) ? NAME_RULE : undefined],
    ["wait", spanFault(wait, waitUnit, 0, WAIT_MAX_DAYS)],
    [
      "unless",
      names.length > UNLESS_MAX
        ? `must have at most ${UNLESS_MAX} events`
        : names.every((name) => EVENT_NAME.test(name))
          ? undefined
          : `must have names of events; each ${NAME_RULE}`,
    ],
    ["limitSpan", limit === "per" ? spanFault(limitSpan, limitUnit, 60, LIMIT_MAX_DAYS) : undefined],
  ];
  return Object.fromEntries(found.filter(([, fault]) => fault));
}

/** Missing or invalid part of a trigger. Undefined: complete as far as the page can check. */
export function lacksOfTrigger(draft: TriggerDraft): string | undefined {
  if (draft.cause === "joined" && !draft.topic) return "Choose the topic that starts the campaign.";
  if (draft.cause === "event" && !draft.event.trim()) return "Enter the event that starts the campaign.";
  return Object.keys(triggerFaults(draft)).length > 0 ? "Correct the fields of the trigger." : undefined;
}

/** Schedule of a plan. */
export function triggerSchedule(draft: TriggerDraft): CampaignSchedule {
  const { cause, topic, event, condition, wait, waitUnit, limit, limitSpan, limitUnit } = draft;
  const [first, ...others] = namesIn(draft.unless).map((name) => `event:${name}`);
  return {
    on: cause === "subscribed" ? cause : cause === "joined" ? `joined:${topic}` : `event:${event.trim()}`,
    ...(cause === "event" && condition.trim() ? { where: condition.trim() } : {}),
    ...(Number(wait) > 0 ? { after: `${Number(wait)}${waitUnit}` } : {}),
    ...(first ? { unless: others.length > 0 ? [first, ...others] : first } : {}),
    ...(limit === "none" ? {} : { at_most: limit === "once" ? "once" : `once per ${Number(limitSpan)}${limitUnit}` }),
  };
}

const spanOf = (text: string | undefined): [string, Unit] | undefined => {
  const [, n, unit] = /^(\d+)([smhd])$/.exec(text ?? "") ?? [];
  return n && unit ? [String(Number(n)), unit as Unit] : undefined;
};

/** Cause and its name: `event:cart_added` is `["event", "cart_added"]`. */
function causeOf(on: string): [string, string] {
  const at = on.indexOf(":");
  return at < 0 ? [on, ""] : [on.slice(0, at), on.slice(at + 1)];
}

const eventsOf = ({ unless }: CampaignSchedule): string[] => [unless ?? []].flat().map((event) => causeOf(event)[1]);

/** Fields of a stored schedule. */
export function triggerDraft(schedule: CampaignSchedule | null | undefined): TriggerDraft {
  if (!schedule?.on) return BLANK_TRIGGER;
  const [cause, name] = causeOf(schedule.on);
  const [wait, waitUnit] = spanOf(schedule.after ?? undefined) ?? ["0", BLANK_TRIGGER.waitUnit];
  const per = spanOf(schedule.at_most?.replace(/^once per /, ""));
  return {
    ...BLANK_TRIGGER,
    cause: CAUSES.find((known) => known === cause) ?? "event",
    topic: cause === "joined" ? name : "",
    event: cause === "event" ? name : "",
    condition: schedule.where ?? "",
    wait,
    waitUnit,
    unless: eventsOf(schedule).join(", "),
    limit: per ? "per" : schedule.at_most ? "once" : "none",
    ...(per ? { limitSpan: per[0], limitUnit: per[1] } : {}),
  };
}

const anyOf = new Intl.ListFormat("en", { type: "disjunction" });
const SINGULAR: Record<Unit, string> = { s: "second", m: "minute", h: "hour", d: "day" };

/** Span in its largest unit without a remainder: `60m` is one hour. */
function largest(text: string | null | undefined): [number, Unit] | undefined {
  const span = spanOf(text ?? undefined);
  if (!span) return undefined;
  const seconds = Number(span[0]) * lengthOf(span[1]);
  const [unit, , length] = UNITS.findLast(([, , length]) => seconds % length === 0) ?? UNITS[0];
  return [seconds / length, unit];
}

/** `one hour`, `30 minutes`. */
const spanWords = ([n, unit]: [number, Unit]): string => things(n, SINGULAR[unit]);

/** `once a week`, `once an hour`, `once in 3 days`. */
function limitWords(atMost: string): string {
  const span = largest(atMost.replace(/^once per /, ""));
  if (!span) return "once per person";
  const [n, unit] = span;
  if (n === 7 && unit === "d") return "at most once a week";
  if (n === 1) return `at most once ${unit === "h" ? "an" : "a"} ${SINGULAR[unit]}`;
  return `at most once in ${spanWords(span)}`;
}

/** Cause within a sentence. Names are marked as code. */
function causeWords(on: string): string {
  const [cause, name] = causeOf(on);
  switch (cause) {
    case "subscribed":
      return "a browser subscribes";
    case "joined":
      return `a browser joins the topic \`${name}\``;
    default:
      return `\`${name}\``;
  }
}

/** Trigger as one sentence: `30 minutes after cart_added, unless bought; at most once a week.` Names are marked as code. */
export function triggerSentence(schedule: CampaignSchedule): string {
  const { on, where, after, at_most } = schedule;
  const span = largest(after);
  const wait = span && span[0] > 0 ? spanWords(span) : "immediately";
  const events = eventsOf(schedule).map((name) => `\`${name}\``);
  return [
    `${capital(wait)} after ${causeWords(on ?? "")}`,
    where ? ` with \`${where}\`` : "",
    events.length > 0 ? `, unless ${anyOf.format(events)}` : "",
    at_most ? `; ${limitWords(at_most)}` : "",
    ".",
  ].join("");
}

/** Event because of which a person waits: `cart_added`, `Subscribed`, `Joined news`. */
export function entryWords(cause: string): string {
  const [kind, name] = causeOf(cause);
  switch (kind) {
    case "subscribed":
      return "Subscribed";
    case "joined":
      return `Joined the topic \`${name}\``;
    case "sent":
      return "Message of the followed campaign";
    default:
      return `Event \`${name}\``;
  }
}

/** `1 waits`, `12 wait`. */
const waitWords = (n: number): string => `${count(n)} ${n === 1 ? "waits" : "wait"}`;

/** Progress of a trigger in one sentence, after the word for its state. */
export const triggerProgress = ({ entered, waiting, sent }: TriggerCounts): string =>
  entered === 0
    ? "no event let a person enter yet."
    : `${count(entered)} entered, ${waitWords(waiting)}, ${count(sent)} sent.`;

/** Effect of an action on people who wait. */
export function triggerConsequence(act: "pause" | "resume" | "cancel", { waiting, sent }: TriggerCounts): string {
  const people = things(waiting, "person", "people");
  switch (act) {
    case "pause":
      return `${waiting > 0 ? `${capital(waitWords(waiting))} now. ` : ""}Events still let people enter. Messages that fall due during the pause are sent after the campaign is resumed, except those whose time to live has ended.`;
    case "resume":
      return "This would send the messages that fell due during the pause, except those whose time to live has ended.";
    case "cancel":
      return `This would end the wait of ${people}. Events let no more people enter.${sent > 0 ? ` ${withdrawAdvice("campaign")}` : ""}`;
  }
}

/** A step of the funnel. */
export interface TriggerStep {
  word: string;
  n: number;
  /** Share with its denominator. */
  share: string | undefined;
  /** Meaning of the number, or further counts. */
  about: string | undefined;
}

/** Steps from entering to clicks. Parts of those who entered are left out if they are zero. */
export function triggerSteps(trigger: TriggerCounts, funnel: Funnel | null, capped = 0): TriggerStep[] {
  const { entered, waiting, cancelled, limited, held_out, excluded, expired, sent } = trigger;
  const part = (word: string, n: number, about?: string): TriggerStep => ({ word, n, share: share(n, entered), about });
  const ended = [
    part("Cancelled", cancelled, "An event ended the wait, or the campaign ended."),
    part("Holdout", held_out, "Got nothing, to measure the effect."),
    part("Left out", excluded, "Not in the audience when the message was due, no active browser, or a reaction."),
    part("Too late", expired, "The time to live had ended, as after a pause."),
  ];
  const reported: TriggerStep[] = funnel
    ? [
        {
          word: "Shown",
          n: funnel.displayed,
          share: share(funnel.displayed, funnel.asked),
          about: "Of deliveries that can be reported.",
        },
        { word: "Clicked", n: funnel.clicked, share: share(funnel.clicked, funnel.displayed), about: undefined },
      ]
    : [];
  return [
    {
      word: "Entered",
      n: entered,
      share: undefined,
      about:
        limited > 0
          ? `${capital(things(limited, "other event"))} let no person enter, because of the limit.`
          : undefined,
    },
    part("Waiting", waiting),
    ...ended.filter(({ n }) => n > 0),
    part("Sent", sent),
    ...(capped > 0
      ? [
          {
            word: "Capped",
            n: capped,
            share: undefined,
            about: "Deliveries that a frequency cap or the recipient’s mute held back.",
          },
        ]
      : []),
    ...reported,
  ];
}

/** Whether a campaign in a list waits for events: it is running without runs. */
export const waitsForEvents = ({ state, runs }: { state: string; runs: number }): boolean =>
  state === "sending" && runs === 0;
