/** State, progress and possible actions of a campaign, as texts and parts. Pure. */
import type { Campaign, CampaignPlan, CampaignProgress, CampaignSchedule, CampaignStanding } from "../api/types";
import { OUTCOMES, OUTCOME_LOOKS, type Funnel, type Outcome } from "./figures";
import { capital, clockTime, count, duration, percent, rate, relative, things, type Zone } from "./format";
import { endedWords, type Going, type Part } from "./messages";
import { nextTimes } from "./cron";
import { recurrenceWords } from "./recurrence";
import { triggerConsequence, triggerProgress, triggerSentence } from "./trigger";
import { serviceName, type Tone } from "./words";

export const STATES = ["draft", "scheduled", "sending", "paused", "done", "cancelled"] as const;
export type CampaignState = (typeof STATES)[number];
export const STATE_LOOKS: Record<CampaignState, { word: string; tone: Tone }> = {
  draft: { word: "Draft", tone: "cancelled" },
  scheduled: { word: "Scheduled", tone: "waiting" },
  sending: { word: "Sending", tone: "waiting" },
  paused: { word: "Paused", tone: "retrying" },
  done: { word: "Done", tone: "accepted" },
  cancelled: { word: "Cancelled", tone: "cancelled" },
};

/** Counts of deliveries of all runs. */
export interface Standing {
  state: CampaignState;
  ended: Record<Outcome, number>;
  waiting: number;
  /** Recipients that are still to be found, about. */
  unfound: number;
  /** Messages of started runs that are not created yet: after a test, or for later zones. Their number of recipients is unknown. */
  toMake: number;
}

export function standing(
  { state }: Pick<Campaign, "state">,
  { total, audience_estimate, expanded, messages_to_make }: CampaignStanding,
): Standing {
  const ended = Object.fromEntries(OUTCOMES.map((outcome) => [outcome, total[outcome]])) as Record<Outcome, number>;
  const isOver = state === "done" || state === "cancelled";
  return {
    state,
    ended,
    waiting: total.waiting,
    unfound: expanded || isOver ? 0 : Math.max(0, audience_estimate - total.targeted),
    toMake: isOver ? 0 : messages_to_make,
  };
}

export const endedOf = ({ ended }: Standing): number => OUTCOMES.reduce((sum, outcome) => sum + ended[outcome], 0);
export const waitingOf = ({ waiting, unfound }: Standing): number => waiting + unfound;
export const wholeOf = (it: Standing): number => endedOf(it) + waitingOf(it);

/** Parts of the bar, in order. */
export function parts(it: Standing): Part[] {
  const ended: Part[] = OUTCOMES.map((id) => ({ id, ...OUTCOME_LOOKS[id], n: it.ended[id] }));
  const waiting: Part[] = [
    {
      id: "queued",
      word: it.state === "paused" ? "Paused" : "Waiting",
      tone: "waiting",
      pattern: "solid",
      n: it.waiting,
    },
    { id: "unfound", word: "Not queued yet", tone: "cancelled", pattern: "hatched", n: it.unfound },
  ];
  return [...ended, ...waiting].filter(({ n }) => n > 0);
}

/** `12 k of about 50 k`: the total is unknown while recipients are found or messages are created. */
export function outOf(it: Standing): string {
  return `${count(endedOf(it))} of ${it.unfound > 0 || it.toMake > 0 ? "about " : ""}${count(wholeOf(it))}`;
}

/** Progress in a few words, beside a bar. */
export function brief(it: Standing): string {
  const whole = wholeOf(it);
  if (whole === 0) return it.state === "done" ? "no recipients" : "not sent yet";
  if (it.state === "done")
    return it.ended.accepted === whole
      ? `all ${count(whole)} accepted`
      : `${count(it.ended.accepted)} of ${count(whole)} accepted`;
  return `${outOf(it)} done`;
}

/** Losing a larger share than this is what one has to know first. */
const ALARMING = 0.1;

/** Minimum share per minute that counts as progress. */
const STILL = 0.5;

/**
 * Time of the first run of a plan. Undefined: unknown, or different for each recipient. Until the scheduler has read a started
 * campaign, its `next_at` is only the time of that read.
 */
export function firstRun({ schedule }: Pick<CampaignPlan, "schedule">, now: Date): Date | undefined {
  if (!schedule?.cron) return schedule ? momentOf(schedule) : undefined;
  return nextTimes(schedule.cron, schedule.timezone ?? "", now, 1)?.[0];
}

/** Whether the scheduler has not read the campaign since its start. */
export const isStarting = (
  { state, runs, next_at }: Pick<Campaign, "state" | "runs" | "next_at">,
  now: Date,
): boolean => state === "scheduled" && runs === 0 && !!next_at && Date.parse(next_at) - now.getTime() < STARTING_MS;
const STARTING_MS = 10_000;

/**
 * Progress in one sentence. `perMinute`: rate measured by the page, if the server has none. `planned`: first run of the plan, if
 * known.
 */
export function going(campaign: Campaign, perMinute: number | undefined, now: Date, zone: Zone, planned?: Date): Going {
  const { state, next_at, runs, progress } = campaign;
  const it = progress ? standing(campaign, progress) : undefined;
  const trigger = progress?.trigger;
  if (trigger && (state === "done" || (state === "sending" && progress.held.length === 0))) {
    const isOver = state === "done";
    return {
      tone: isOver ? "accepted" : "waiting",
      words: `${isOver ? "Done" : "Waiting for events"}: ${triggerProgress(trigger)}`,
    };
  }
  switch (state) {
    case "draft":
      return { tone: "cancelled", words: "Draft: nothing is sent until the campaign is started." };
    case "scheduled":
      if (!isStarting(campaign, now)) return { tone: "waiting", words: scheduled(next_at, runs, now, zone) };
      return {
        tone: "waiting",
        words: planned && planned > now ? scheduled(planned.toISOString(), runs, now, zone) : "Starting…",
      };
    case "paused":
      return {
        tone: "retrying",
        words:
          it && waitingOf(it) > 0
            ? `Paused: ${outOf(it)} done, the others wait.`
            : "Paused: nothing is sent until the campaign is resumed.",
      };
    case "cancelled":
      return {
        tone: "cancelled",
        words:
          it && wholeOf(it) > 0
            ? `Cancelled: ${count(endedOf(it) - it.ended.cancelled)} had ended, ${count(it.ended.cancelled)} were stopped.`
            : "Cancelled before anything was sent.",
      };
    case "done":
      return it ? finished(it) : { tone: "accepted", words: "Done." };
    case "sending":
      return it && progress
        ? underWay(it, progress, perMinute, next_at, now, zone)
        : { tone: "waiting", words: "Sending." };
  }
}

function scheduled(nextAt: string | null | undefined, runs: number, now: Date, zone: Zone): string {
  const before = runs > 0 ? `${things(runs, "run")} so far; the next run is due` : "Due";
  if (!nextAt) return runs > 0 ? `${things(runs, "run")} so far.` : "Scheduled.";
  const at = new Date(nextAt);
  return at <= now ? `${before} now.` : `${before} ${relative(at, now)}, ${clockTime(at, now, zone)}.`;
}

function underWay(
  it: Standing,
  progress: CampaignProgress,
  measured: number | undefined,
  nextAt: string | null | undefined,
  now: Date,
  zone: Zone,
): Going {
  const waiting = waitingOf(it);
  const tested = progress.runs.find(({ decide_at }) => decide_at);
  if (waiting === 0 && tested?.decide_at) {
    return {
      tone: "waiting",
      words: `The test was sent to ${count(endedOf(it))}; results are counted until ${clockTime(new Date(tested.decide_at), now, zone)}, then all others get the winner.`,
    };
  }
  if (waiting === 0 && it.toMake > 0) {
    const when = nextAt && new Date(nextAt) > now ? `, the next ${clockTime(new Date(nextAt), now, zone)}` : "";
    return {
      tone: "waiting",
      words: `Sending: ${count(endedOf(it))} done, ${things(it.toMake, "message")} to come${when}.`,
    };
  }
  if (wholeOf(it) === 0) return { tone: "waiting", words: "Sending: recipients are being determined." };
  const [hold] = progress.held;
  if (hold) {
    const when = hold.until ? `wait until ${clockTime(new Date(hold.until), now, zone)}` : "wait";
    return {
      tone: "retrying",
      words: `Sending: ${outOf(it)} done, the others ${when}: ${serviceName(hold.gateway)} is on hold.`,
      path: "/push-services",
    };
  }
  if (!progress.rate_per_second && measured !== undefined && measured < STILL) {
    return {
      tone: "retrying",
      words: `Stalled: ${outOf(it)} done, no progress at the moment.`,
      path: "/push-services",
    };
  }
  const perMinute = progress.rate_per_second ? progress.rate_per_second * 60 : measured;
  const speed = perMinute ? `, ${rate(perMinute)}` : "";
  const end = etaOf(progress, waiting, perMinute, now);
  return {
    tone: "waiting",
    words: `Sending: ${outOf(it)} done${speed}${end ? `, done at about ${clockTime(end, now, zone)}` : ""}.`,
  };
}

/** Estimated end of the last delivery: from the server, else from the measured rate. */
function etaOf({ eta }: CampaignProgress, waiting: number, perMinute: number | undefined, now: Date): Date | undefined {
  if (eta) return new Date(eta);
  return perMinute && perMinute > 0 ? new Date(now.getTime() + (waiting / perMinute) * 60_000) : undefined;
}

function finished(it: Standing): Going {
  const whole = wholeOf(it);
  if (whole === 0) return { tone: "cancelled", words: "Done: the audience was empty." };
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

/** Reports of browsers for all variants together. Null: unknown, since the pushes have no receipt token. */
export function receipts({ total, variants }: Pick<CampaignProgress, "total" | "variants">): Funnel | null {
  const reports = variants.flatMap(({ reports }) => reports ?? []);
  if (reports.length === 0) return null;
  const sum = (of: "may_report" | "displayed" | "clicked") => reports.reduce((sum, report) => sum + report[of], 0);
  const asked = Math.min(sum("may_report"), total.accepted);
  const displayed = sum("displayed");
  return {
    accepted: total.accepted,
    asked,
    displayed,
    clicked: sum("clicked"),
    unknowable: total.accepted - asked,
    silent: Math.max(0, asked - displayed),
  };
}

/** Click rate of all variants: clicked of accepted. `–`: no reports or no deliveries. */
export function ctrWords(progress: Pick<CampaignProgress, "variants"> | null | undefined): string {
  const reported = (progress?.variants ?? []).filter(({ reports }) => reports);
  const accepted = reported.reduce((sum, { counts }) => sum + counts.accepted, 0);
  return accepted === 0
    ? "–"
    : percent(reported.reduce((sum, { reports }) => sum + (reports?.clicked ?? 0), 0) / accepted);
}

export const ACTS = ["start", "pause", "resume", "cancel", "withdraw", "delete"] as const;
export type Act = (typeof ACTS)[number];
export const ACT_WORDS: Record<Act, string> = {
  start: "Start",
  pause: "Pause",
  resume: "Resume",
  cancel: "Cancel",
  withdraw: "Withdraw",
  delete: "Delete",
};

/** Possible actions on a campaign. */
export function actsOn({ state, progress }: Pick<Campaign, "state" | "progress">): readonly Act[] {
  const withdraw: Act[] = progress && progress.messages > 0 && !progress.withdrawal ? ["withdraw"] : [];
  switch (state) {
    case "draft":
      return ["start", "delete"];
    case "scheduled":
    case "sending":
      return ["pause", "cancel", ...withdraw];
    case "paused":
      return ["resume", "cancel", ...withdraw];
    case "done":
    case "cancelled":
      return [...withdraw, "delete"];
  }
}

/** Effect of an action, with counts. Starting has its own text. */
export function consequence(act: Exclude<Act, "start" | "withdraw">, campaign: Campaign): string {
  const it = campaign.progress ? standing(campaign, campaign.progress) : undefined;
  const trigger = campaign.progress?.trigger;
  if (trigger && act !== "delete") return triggerConsequence(act, trigger);
  const waiting = it ? waitingOf(it) : 0;
  const ended = it ? endedOf(it) : 0;
  const deliveries = `${it && it.unfound > 0 ? "about " : ""}${things(waiting, "delivery", "deliveries")}`;
  const toCome =
    it && it.toMake > 0
      ? ` ${capital(things(it.toMake, "message"))} of this run ${it.toMake === 1 ? "is" : "are"} not created yet.`
      : "";
  switch (act) {
    case "pause":
      return waiting > 0
        ? `This would pause ${deliveries} that ${waiting === 1 ? "waits" : "wait"} now. No new request starts after one second; requests in flight complete. Times to live continue to run.${toCome}`
        : `No delivery is waiting. Runs that fall due during the pause are sent after the campaign is resumed.${toCome}`;
    case "resume":
      return `${waiting > 0 ? `This would resume ${deliveries}, within a second.` : "This would resume the campaign."} A run that fell due during the pause is sent now; of several recurring runs, only the last one.${toCome}`;
    case "cancel":
      return `${
        waiting > 0
          ? `This would cancel ${deliveries} that ${waiting > 1 ? "have" : "has"} not been sent yet, and all future runs.`
          : `${ended > 0 ? "Every delivery was sent." : "Nothing was sent yet."} This would cancel all future runs.`
      }${endedWords(ended, "campaign")}${toCome}`;
    case "delete":
      return campaign.state === "draft"
        ? "No message was sent, so subscribers notice nothing. The content of the campaign is deleted."
        : `The plan and the results by variant are deleted. The messages of ${things(campaign.runs, "run")} and their ${things(ended, "delivery", "deliveries")} are kept.`;
  }
}

/** Effect of a withdrawal. */
export const withdrawWords = (accepted: number): string =>
  `This would cancel the campaign with all future runs, and remove its messages from ${things(accepted, "browser")} that may have them. Devices that are offline get the removal within four weeks.`;

/** Audience of a plan's message. */
export function audienceWords(to: CampaignPlan["message"]["to"]): string {
  const whole = to.topic ? `Topic ${to.topic}` : "All subscribers";
  return to.segment ? `${whole} in ${segmentWords(to.segment)}` : whole;
}

/** Segment, by name or by expression. */
export const segmentWords = (segment: string): string =>
  /^[a-z0-9-]{1,64}$/.test(segment) ? `the segment ${segment}` : `an inline segment: ${segment}`;

/** Effect of a start, with an approximate count. `counted`: number of current recipients. */
export function startWords(
  plan: CampaignPlan,
  counted: { audience_estimate: number; audience_margin: number },
  now: Date,
  zone: Zone,
): string[] {
  const { audience_estimate: n, audience_margin: margin } = counted;
  const many = `${things(n, "active subscription")}${margin > 0 ? ` ± ${count(margin)}` : ""}`;
  const held = plan.holdout ? ` Holdout: ${percent(plan.holdout)} of them get nothing, to measure the effect.` : "";
  const whom = plan.follows
    ? `Audience: those of ${many} who got the other campaign and did not react, counted at that time.`
    : `Audience: ${audienceWords(plan.message.to).replace(/^A/, "a").replace(/^T/, "t")}: ${many}, ${margin > 0 ? "estimated" : "counted"} just now${plan.schedule?.on ? "; each person is checked again when their message is due" : plan.schedule ? "; counted again when the campaign is due" : ""}.`;
  const test = testWords(plan);
  return [
    `${whom}${held}`,
    scheduleWords(plan, now, zone).join(" "),
    ...(test ? [test] : []),
    ...(plan.pace ? [paceWords(plan)] : []),
  ];
}

/** Times of a recurring schedule that are shown. */
const NEXT_SHOWN = 3;

/** Time of sending, as sentences. */
export function scheduleWords(
  { schedule, follows }: Pick<CampaignPlan, "schedule" | "follows">,
  now: Date,
  zone: Zone,
): string[] {
  if (follows) {
    const { campaign, did_not, after } = follows;
    return [
      `${duration(after)} after the last run of ${campaign} began, to those of its recipients who ${did_not === "click" ? "did not click it" : "were not shown it, as far as browsers report"}.`,
    ];
  }
  if (!schedule) return ["Immediately after the start."];
  const hours =
    schedule.hour === "best"
      ? [
          "From then on, each subscriber gets it within 24 hours at their best hour: the hour with most of their clicks. If the best hour is unknown, they get it immediately.",
        ]
      : [];
  if (schedule.on) return [triggerSentence(schedule), ...hours];
  if (schedule.cron) return [...cronWords(schedule.cron, schedule.timezone ?? "", now, zone), ...hours];
  if (schedule.timezone === "recipient") {
    const past =
      schedule.past === "skip"
        ? "Subscribers whose time has passed at the start get nothing."
        : "Subscribers whose time has passed at the start get it at that time of the next day.";
    return [`At ${localWords(schedule.at ?? "")} in each recipient’s time zone.`, past];
  }
  const at = momentOf(schedule);
  if (!at) return ["No time yet."];
  const here = clockTime(at, now, zone);
  if (!schedule.timezone) return [at < now ? `That was ${here}.` : `At ${here}, ${relative(at, now)}.`, ...hours];
  const there = `${localWords(schedule.at ?? "")} in ${schedule.timezone}`;
  return [at < now ? `${there}: that has passed.` : `${there}: ${relative(at, now)}, ${here} here.`, ...hours];
}

function cronWords(cron: string, timezone: string, now: Date, zone: Zone): string[] {
  const next = nextTimes(cron, timezone, now, NEXT_SHOWN);
  const again = `${capital(recurrenceWords(cron) ?? "recurring")}, ${timezone ? `${timezone} time` : "no time zone yet"}.`;
  if (next === undefined) return [again, "The next run is shown after saving."];
  if (next.length === 0) return [again, "The expression never matches a date."];
  return [
    again,
    `Next runs${zone === "UTC" ? "" : " (your time)"}: ${next.map((at) => clockTime(at, now, zone)).join(", ")}${next.length < NEXT_SHOWN ? "." : "…"}`,
  ];
}

/** A local time such as `2027-03-01T09:00` in words; what is none stays as it is. */
export function localWords(local: string): string {
  const at = new Date(`${local.slice(0, 16)}Z`);
  if (Number.isNaN(at.getTime())) return local;
  return at
    .toLocaleString("en-GB", {
      weekday: "short",
      day: "numeric",
      month: "short",
      year: "numeric",
      hour: "2-digit",
      minute: "2-digit",
      timeZone: "UTC",
    })
    .replaceAll(",", "");
}

/** The moment that a schedule names. Undefined: it names none, or that of each recipient's clock. */
export function momentOf({ at, timezone }: CampaignSchedule): Date | undefined {
  if (!at || timezone === "recipient") return undefined;
  const hasOffset = /(?:Z|[+-]\d\d:\d\d)$/i.test(at);
  if (hasOffset) return valid(new Date(at));
  if (!timezone) return undefined;
  const local = Date.parse(`${at}Z`);
  // A local time is one that a daily schedule would come at: the same rules for gaps hold.
  return Number.isNaN(local)
    ? undefined
    : nextTimes(
        `${Number(at.slice(14, 16))} ${Number(at.slice(11, 13))} ${Number(at.slice(8, 10))} ${Number(at.slice(5, 7))} *`,
        timezone,
        new Date(local - 2 * 86_400_000),
        1,
      )?.[0];
}

export const valid = (at: Date): Date | undefined => (Number.isNaN(at.getTime()) ? undefined : at);

export function paceWords({ pace }: Pick<CampaignPlan, "pace">): string {
  if (pace?.per_minute) return `At most ${count(pace.per_minute)} per minute.`;
  return pace?.spread_over ? `Spread over ${duration(pace.spread_over)}.` : "No limit.";
}

/** Description of the A/B test. Undefined: there is only one variant. */
export function testWords({ test, variants = [] }: Pick<CampaignPlan, "test" | "variants">): string | undefined {
  if (variants.length < 2) return undefined;
  if (!test) return `${things(variants.length, "variant")}, by weight, without a winner.`;
  const { share, after, confidence, otherwise, by } = test;
  const rest = otherwise === "stop" ? "nothing" : `variant ${variants[0]?.name ?? "1"}`;
  return `${capital(things(variants.length, "variant"))} go to ${percent(share)} first. After ${duration(after)} all others get the winner: the variant with a higher ${by ? `share of people with the conversion “${by}”` : "CTR"} than each other variant, with a probability of ${percent(confidence ?? 0.95)}. Without a winner they get ${rest}.`;
}
