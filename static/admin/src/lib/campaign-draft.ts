/** A campaign that is being written, and what it is as a plan. Pure. */
import type { CampaignHour, CampaignPlan, MessageContentResponse, MessageRequest, MessageResponse } from "../api/types";
import { TIERS } from "./messages";
import { cronFault, instantIn } from "./cron";
import {
  BLANK as BLANK_MESSAGE,
  isAddressed,
  like,
  message,
  recipients,
  said,
  sunsetDraft,
  unsaid,
  type Draft as MessageDraft,
} from "./draft";
import { decimalFault, numberFault } from "./format";
import { parametersFault, parametersOf, parametersText } from "./link-parameters";
import { isZone } from "./time-zone";
import { BLANK_TRIGGER, lacksOfTrigger, triggerDraft, triggerSchedule, type TriggerDraft } from "./trigger";

export const WHENS = ["now", "at", "recipient", "cron", "event", "follow"] as const;
export type When = (typeof WHENS)[number];

/** One variant of the content. */
export interface Variant {
  name: string;
  weight: string;
  /** Draft of the content; only content members are used. */
  said: MessageDraft;
  /** Members of its message that there is no field for. */
  more: Record<string, unknown>;
  /** Whether each gets it at their own hour; empty: as the campaign has it. */
  hour: "" | CampaignHour;
}

/** All of it as it was written: texts, some of them empty. */
export interface Draft {
  name: string;
  slug: string;
  /** Audience, delivery options, and the content of a campaign without variants. */
  message: MessageDraft;
  /** Members of the message that there is no field for. */
  more: Record<string, unknown>;
  narrowed: "no" | "stored" | "own";
  /** The name of a stored segment. */
  segment: string;
  expression: string;
  when: When;
  /** As `<input type="datetime-local">` has it. */
  at: string;
  timezone: string;
  past: "tomorrow" | "skip";
  cron: string;
  /** Whether each gets it at their own hour, within a day from when it is due. */
  isOwnHour: boolean;
  trigger: TriggerDraft;
  follows: string;
  didNot: "click" | "display";
  followHours: string;
  pace: "none" | "rate" | "spread";
  perMinute: string;
  spreadMinutes: string;
  variants: readonly Variant[];
  isTested: boolean;
  /** In percent. */
  share: string;
  testHours: string;
  /** In percent. */
  confidence: string;
  otherwise: "first" | "stop";
  decideBy: "clicks" | "conversions";
  /** Kind of conversion that decides the test. */
  conversion: string;
  /** `name=value`, one on each line. */
  linkParameters: string;
  /** In percent. */
  holdout: string;
  /** By the clocks of `timezone`. */
  expires: string;
}

export const BLANK: Draft = {
  name: "",
  slug: "",
  message: BLANK_MESSAGE,
  more: {},
  narrowed: "no",
  segment: "",
  expression: "",
  when: "now",
  at: "",
  timezone: "UTC",
  past: "tomorrow",
  cron: "0 9 * * MON",
  isOwnHour: false,
  trigger: BLANK_TRIGGER,
  follows: "",
  didNot: "click",
  followHours: "72",
  pace: "none",
  perMinute: "1000",
  spreadMinutes: "60",
  variants: [],
  isTested: false,
  share: "20",
  testHours: "4",
  confidence: "95",
  otherwise: "first",
  decideBy: "clicks",
  conversion: "",
  linkParameters: "",
  holdout: "",
  expires: "",
};

export const VARIANTS_MAX = 10;

/** Slug derived from a name. */
export function slugOf(name: string): string {
  const plain = name.normalize("NFKD").replace(/\p{M}/gu, "").replace(/ß/g, "ss").toLowerCase();
  return plain
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 64)
    .replace(/-+$/, "");
}

/** One more variant: the first two begin with what was written already. */
export function withVariant(draft: Draft): Draft {
  const names = ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J"].filter(
    (name) => !draft.variants.some((variant) => variant.name === name),
  );
  const begin = (n: number): Variant => ({
    name: names[n] ?? "",
    weight: "1",
    said: draft.variants.at(-1)?.said ?? draft.message,
    more: {},
    hour: "",
  });
  return { ...draft, variants: draft.variants.length === 0 ? [begin(0), begin(1)] : [...draft.variants, begin(0)] };
}

/** Removes a variant. If one remains, it becomes the content of the campaign. */
export function withoutVariant(draft: Draft, n: number): Draft {
  const variants = draft.variants.filter((_, at) => at !== n);
  const [only] = variants;
  if (variants.length > 1 || !only) return { ...draft, variants };
  return { ...draft, variants: [], isTested: false, message: saying(draft.message, only.said) };
}

/** Takes the content of another draft and keeps audience and delivery options. */
function saying(draft: MessageDraft, said: MessageDraft): MessageDraft {
  const {
    audience,
    topic,
    users,
    subscriptions,
    tier,
    ttl,
    urgency,
    collapseKey,
    policy,
    unclicked,
    unclickedFor,
    welcome,
  } = draft;
  return {
    ...said,
    audience,
    topic,
    users,
    subscriptions,
    tier,
    ttl,
    urgency,
    collapseKey,
    policy,
    unclicked,
    unclickedFor,
    welcome,
  };
}

/** Content of the variant with this number; without variants, the content for all. */
export const saidBy = (draft: Draft, n: number): MessageDraft =>
  saying(draft.message, draft.variants[n]?.said ?? draft.message);

/** Message draft with the content of that variant. */
export function messageOf(draft: Draft, n = 0): MessageRequest {
  const saying = message(saidBy(draft, n));
  const segment = draft.narrowed === "stored" ? draft.segment : draft.narrowed === "own" ? draft.expression.trim() : "";
  return { ...draft.more, ...saying, to: { ...recipients(draft.message), ...(segment ? { segment } : {}) } };
}

/** Whether a winner is chosen. Triggers send to one person after the other, so no test ends. */
const hasTest = ({ isTested, variants, when }: Draft): boolean => isTested && variants.length > 1 && when !== "event";

/** Send rate in use. A trigger has no run to spread. */
export const paceOf = ({ pace, when }: Draft): Draft["pace"] => (pace === "spread" && when === "event" ? "none" : pace);

type NumberField = "perMinute" | "spreadMinutes" | "followHours" | "holdout" | "share" | "testHours" | "confidence";

/** Faults of the numbers in use, by field. A text that is no number would reach the server as null, which means no value. */
export function numberFaults(draft: Draft): Partial<Record<NumberField, string>> {
  const hours = (text: string) => decimalFault(text, 1 / 60, 672);
  const isTested = hasTest(draft);
  const pace = paceOf(draft);
  const found: [NumberField, string | undefined][] = [
    ["perMinute", pace === "rate" ? numberFault(draft.perMinute, 1, 1_000_000) : undefined],
    ["spreadMinutes", pace === "spread" ? decimalFault(draft.spreadMinutes, 1, 40_320) : undefined],
    ["followHours", draft.when === "follow" ? hours(draft.followHours) : undefined],
    ["holdout", draft.holdout.trim() ? decimalFault(draft.holdout, 0, 50) : undefined],
    ["share", isTested ? decimalFault(draft.share, 0.01, 50) : undefined],
    ["testHours", isTested ? hours(draft.testHours) : undefined],
    ["confidence", isTested ? decimalFault(draft.confidence, 80, 99.9) : undefined],
  ];
  return Object.fromEntries(found.filter(([, fault]) => fault));
}

/** Missing or invalid part before the draft can be saved. Undefined: complete as far as the page can check. */
export function lacks(draft: Draft): string | undefined {
  if (draft.name.trim() === "" && draft.slug.trim() === "") return "Enter a name.";
  if (!isAddressed(draft.message)) return "Choose a topic.";
  if (draft.narrowed === "stored" && !draft.segment) return "Choose a segment.";
  if (draft.narrowed === "own" && !draft.expression.trim()) return "Enter the conditions of the segment.";
  const silent = draft.variants.find(({ said }) => unsaid(said));
  if (silent) return `Variant ${silent.name}: ${unsaid(silent.said)}`;
  const lacking = draft.variants.length === 0 ? unsaid(draft.message) : undefined;
  if (lacking) return lacking;
  if ((draft.when === "at" || draft.when === "recipient") && !draft.at) return "Enter the time.";
  if ((draft.when === "at" || draft.when === "cron") && !isZone(draft.timezone.trim())) return "Correct the time zone.";
  if (draft.when === "cron" && cronFault(draft.cron)) return "Correct the cron expression.";
  if (Object.keys(numberFaults(draft)).length > 0) return "Correct the numbers that are out of range.";
  if (hasTest(draft) && draft.decideBy === "conversions" && !draft.conversion.trim())
    return "Enter the kind of conversion that decides the A/B test.";
  if (parametersFault(draft.linkParameters)) return "Correct the link parameters.";
  if (draft.when === "event") return lacksOfTrigger(draft.trigger);
  if (draft.when === "follow" && !draft.follows) return "Choose the campaign to follow up.";
  return undefined;
}

const share = (percents: string): number => Math.round(Number(percents) * 100) / 10_000;

/** The whole as a plan. */
export function planOf(draft: Draft): CampaignPlan {
  const hour = draft.isOwnHour ? { hour: "best" as const } : {};
  const { variants, when, at, timezone, past, cron } = draft;
  const pace = paceOf(draft);
  const expires = draft.expires ? instantIn(timezone, Date.parse(`${draft.expires}Z`)) : undefined;
  const slug = draft.slug.trim() || slugOf(draft.name);
  // Each variant brings all that it says: what one template is told is not for the text of another.
  const { data, ...alike } = messageOf(draft);
  return {
    slug,
    ...(draft.name.trim() ? { name: draft.name.trim() } : {}),
    message: variants.length > 1 || data === undefined ? alike : { ...alike, data },
    ...(variants.length > 1
      ? {
          variants: variants.map(({ name, weight, said: its, more, hour }) => ({
            name,
            weight: Number(weight),
            ...(hour ? { hour } : {}),
            message: { ...more, ...said(its) } as never,
          })),
        }
      : {}),
    ...(when === "at" ? { schedule: { at, timezone, ...hour } } : {}),
    ...(when === "recipient" ? { schedule: { at, timezone: "recipient", past } } : {}),
    ...(when === "cron" ? { schedule: { cron: cron.trim(), timezone, ...hour } } : {}),
    ...(when === "event" ? { schedule: { ...triggerSchedule(draft.trigger), ...hour } } : {}),
    ...(when === "follow"
      ? {
          follows: {
            campaign: draft.follows,
            did_not: draft.didNot,
            after: Math.round(Number(draft.followHours) * 3_600),
          },
        }
      : {}),
    ...(pace === "rate" ? { pace: { per_minute: Number(draft.perMinute) } } : {}),
    ...(pace === "spread" ? { pace: { spread_over: Math.round(Number(draft.spreadMinutes) * 60) } } : {}),
    ...(hasTest(draft)
      ? {
          test: {
            share: share(draft.share),
            after: Math.round(Number(draft.testHours) * 3_600),
            confidence: share(draft.confidence),
            otherwise: draft.otherwise,
            ...(draft.decideBy === "conversions" ? { by: draft.conversion.trim() } : {}),
          },
        }
      : {}),
    ...(draft.holdout.trim() ? { holdout: share(draft.holdout) } : {}),
    ...(expires ? { expires_at: expires.toISOString() } : {}),
    ...(draft.linkParameters.trim() ? { link_parameters: parametersOf(draft.linkParameters) } : {}),
  };
}

const SEGMENT_NAME = /^[a-z0-9][a-z0-9-]{0,63}$/;

/** Members of a message with content that the form can edit. */
const SAYING = ["content", "template", "data"] as const;
/** Members that a variant's content replaces. */
const GIVING_WAY = new Set(["content", "compact", "payload", "envelope", "template"]);

type Members = Partial<MessageRequest>;

/** A message with what is otherwise in a variant. */
function over(message: Members, variant: Members): Members {
  const says = "content" in variant || "payload" in variant || "template" in variant;
  return {
    ...(says ? Object.fromEntries(Object.entries(message).filter(([name]) => !GIVING_WAY.has(name))) : message),
    ...variant,
  };
}

/** Draft with content, audience and options of a sent message. Undefined: the content is not available or not editable. */
export function fromMessage(
  { to, tier, ttl, urgency }: Pick<MessageResponse, "to" | "tier" | "ttl" | "urgency">,
  { content }: Pick<MessageContentResponse, "content">,
  zone: string,
): Draft | undefined {
  if (!content) return undefined;
  const { topic, segment } = to as { topic?: string; segment?: string };
  const isStored = segment !== undefined && SEGMENT_NAME.test(segment);
  return {
    ...BLANK,
    name: content.title.slice(0, 200),
    timezone: zone,
    message: {
      ...like(content),
      audience: topic ? "topic" : "all",
      topic: topic ?? "",
      tier,
      ttl: String(ttl),
      urgency,
    },
    narrowed: segment === undefined ? "no" : isStored ? "stored" : "own",
    segment: isStored ? segment : "",
    expression: segment === undefined || isStored ? "" : segment,
  };
}

/** Content of a message as a draft. Undefined: it has content that only programs write. */
function saidIn({ content, template, data, payload }: Members): MessageDraft | undefined {
  if (payload != null) return undefined;
  if (content) return like(content);
  if (typeof template !== "string") return undefined;
  return {
    ...BLANK_MESSAGE,
    says: "template",
    template,
    data: data && Object.keys(data).length > 0 ? JSON.stringify(data, null, 2) : "",
  };
}

/** Members of a message that there are fields for. */
const WRITTEN = new Set(["to", "tier", ...SAYING, "ttl", "urgency", "collapse_key", "policy", "sunset"]);
const others = (members: object): Record<string, unknown> =>
  Object.fromEntries(Object.entries(members).filter(([name, value]) => !WRITTEN.has(name) && value !== null));

/** A moment as clocks in a zone show it, as `<input type="datetime-local">` has it. */
function localIn(zone: string, at: Date): string {
  try {
    return at
      .toLocaleString("sv-SE", {
        timeZone: zone,
        year: "numeric",
        month: "2-digit",
        day: "2-digit",
        hour: "2-digit",
        minute: "2-digit",
      })
      .replace(" ", "T");
  } catch {
    return "";
  }
}

/** Draft of a stored plan. Undefined: it has content that only programs write, so the form cannot show it. */
export function draftOf(plan: CampaignPlan, zone: string): Draft | undefined {
  const { message: given, schedule, follows, pace, test, variants = [] } = plan;
  const policy = given.policy as { preset?: string } | null | undefined;
  const isPreset = !policy || (typeof policy.preset === "string" && Object.keys(policy).length === 1);
  const own = saidIn(given);
  const each = variants.flatMap(({ message }) => saidIn(over(given, message)) ?? []);
  if (!own || each.length < variants.length || variants.length === 1) return undefined;
  const { to } = given;
  const segment = to.segment ?? "";
  const isStored = SEGMENT_NAME.test(segment);
  const timezone = schedule?.timezone && schedule.timezone !== "recipient" ? schedule.timezone : zone;
  const hasOffset = /(?:Z|[+-]\d\d:\d\d)$/i.test(schedule?.at ?? "");
  return {
    ...BLANK,
    name: plan.name ?? "",
    slug: plan.slug,
    message: {
      ...own,
      audience: to.topic ? "topic" : "all",
      topic: to.topic ?? "",
      tier: typeof given.tier === "number" ? (TIERS[given.tier - 1] ?? "promotional") : (given.tier ?? "promotional"),
      ttl: given.ttl == null ? "" : String(given.ttl),
      urgency: given.urgency ?? "",
      collapseKey: given.collapse_key ?? "",
      policy: (isPreset && policy?.preset) || "",
      ...sunsetDraft(given.sunset),
    },
    more: { ...others(given), ...(isPreset ? {} : { policy }) },
    narrowed: segment ? (isStored ? "stored" : "own") : "no",
    segment: isStored ? segment : "",
    expression: isStored ? "" : segment,
    when: follows
      ? "follow"
      : schedule?.on
        ? "event"
        : schedule?.cron
          ? "cron"
          : schedule?.timezone === "recipient"
            ? "recipient"
            : schedule?.at
              ? "at"
              : "now",
    at: hasOffset ? localIn(timezone, new Date(schedule?.at ?? "")) : (schedule?.at ?? "").slice(0, 16),
    timezone,
    past: schedule?.past ?? "tomorrow",
    cron: schedule?.cron ?? BLANK.cron,
    isOwnHour: schedule?.hour === "best",
    trigger: triggerDraft(schedule),
    follows: follows?.campaign ?? "",
    didNot: follows?.did_not ?? "click",
    followHours: follows ? String(follows.after / 3_600) : BLANK.followHours,
    pace: pace?.per_minute ? "rate" : pace?.spread_over ? "spread" : "none",
    perMinute: pace?.per_minute ? String(pace.per_minute) : BLANK.perMinute,
    spreadMinutes: pace?.spread_over ? String(pace.spread_over / 60) : BLANK.spreadMinutes,
    variants: variants.map(({ name, weight, message, hour }, n) => ({
      name,
      hour: hour ?? "",
      weight: String(weight ?? 1),
      said: each[n] ?? own,
      more: Object.fromEntries(
        Object.entries(message).filter(([member]) => !SAYING.some((saying) => saying === member)),
      ),
    })),
    isTested: Boolean(test),
    ...(test
      ? {
          share: percents(test.share),
          testHours: String(test.after / 3_600),
          confidence: percents(test.confidence ?? 0.95),
          otherwise: test.otherwise ?? "first",
          decideBy: test.by ? "conversions" : "clicks",
          conversion: test.by ?? "",
        }
      : {}),
    linkParameters: parametersText(plan.link_parameters ?? {}),
    holdout: plan.holdout ? percents(plan.holdout) : "",
    expires: plan.expires_at ? localIn(timezone, new Date(plan.expires_at)) : "",
  };
}

const percents = (share: number): string => String(Number((share * 100).toFixed(2)));
