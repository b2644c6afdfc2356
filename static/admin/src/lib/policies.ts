/** Delivery policies as a form has them, and what they come to in words. Pure. */
import type { Policy, PolicyLevel, PolicyPreviewResponse, RetrySpan, Simulation, Timetable } from "../api/types";
import { count, duration, percent, things } from "./format";
import { COMMON_FIELDS, FORM_FIELDS, type Field, type Written } from "./policy-fields";

/** Form of a policy: one of the three published forms, a preset, or JSON. */
export const FORMS = ["guide", "sns", "qstash", "preset", "json"] as const;
export type Form = (typeof FORMS)[number];
export const FORM_WORDS: Record<Form, { title: string; help: string }> = {
  guide: { title: "Web-push guide", help: "Delays that double up to a cap, with jitter." },
  sns: { title: "Amazon SNS", help: "Four phases and four growth functions; also a rate limit for each subscription." },
  qstash: { title: "QStash", help: "A number of retries, and their delay as an expression." },
  preset: { title: "Preset", help: "A named, published policy." },
  json: { title: "JSON", help: "The stored policy, in any of these formats." },
};

/** Values of the form. Empty fields keep their defaults. */
export interface Draft {
  form: Form;
  /** By the pointer of the member. */
  values: Record<string, string>;
  /** The text of the form `json`. */
  json: string;
}

/** The fields of a form at a place: its own, and those that only tiers or topics have. */
export const fieldsOf = (form: Form, place: PolicyLevel): readonly Field[] =>
  form === "json" ? [] : [...FORM_FIELDS[form], ...COMMON_FIELDS[place]];

const parts = (pointer: string) => pointer.split("/").slice(1);

function valueAt(policy: Policy, pointer: string): unknown {
  return parts(pointer).reduce<unknown>(
    (within, name) => (within && typeof within === "object" ? (within as Policy)[name] : undefined),
    policy,
  );
}

/** All members that a policy has, by their pointers; objects count by what is in them. */
function pointersOf(policy: Policy, above = ""): string[] {
  return Object.entries(policy).flatMap(([name, value]) => {
    const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
    return isObject && above === "" ? pointersOf(value as Policy, `/${name}`) : [`${above}/${name}`];
  });
}

/** A policy as its form shows it; as JSON if no form can show all of it. */
export function toDraft(policy: Policy | null, place: PolicyLevel): Draft {
  const json = JSON.stringify(policy ?? {}, null, 2);
  if (policy === null || Object.keys(policy).length === 0) return { form: "guide", values: {}, json };
  const pointers = pointersOf(policy);
  const own = (form: Form) =>
    (form === "json" ? [] : FORM_FIELDS[form]).some(({ pointer }) => pointers.includes(pointer));
  const shows = (form: Form) =>
    pointers.every((pointer) => fieldsOf(form, place).some((field) => field.pointer === pointer));
  const form = FORMS.find((form) => own(form) && shows(form)) ?? (shows("guide") ? "guide" : "json");
  const values = Object.fromEntries(
    fieldsOf(form, place).flatMap(({ pointer }): [string, string][] => {
      const value = valueAt(policy, pointer);
      return value === undefined || value === null ? [] : [[pointer, String(value)]];
    }),
  );
  return { form, values, json };
}

/** Value of a field for the request. Text that is not a number is sent unchanged: the server reports the error. */
function sent(kind: Written, text: string): unknown {
  if (kind === "switch") return text === "true";
  if (kind === "text" || kind === "choice") return text;
  const number = Number(text);
  return Number.isFinite(number) ? number : text;
}

/** The policy that a draft stands for. A string: why it stands for none. */
export function toPolicy(draft: Draft, place: PolicyLevel): Policy | string {
  if (draft.form === "json") return parsed(draft.json);
  const policy: Policy = {};
  for (const { pointer, kind } of fieldsOf(draft.form, place)) {
    const text = draft.values[pointer]?.trim() ?? "";
    if (text === "" || (kind === "switch" && text !== "true")) continue;
    const names = parts(pointer);
    const last = names.pop() ?? "";
    const within = names.reduce((within, name) => (within[name] ??= {}) as Policy, policy);
    within[last] = sent(kind, text);
  }
  return policy;
}

function parsed(text: string): Policy | string {
  try {
    const value: unknown = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? (value as Policy) : "must be an object: { … }";
  } catch (thrown) {
    return thrown instanceof Error ? thrown.message : "is no JSON";
  }
}

/** Whether a policy has any members. */
export const saysSomething = (policy: Policy | string): boolean =>
  typeof policy !== "string" && Object.keys(policy).length > 0;

/** The form of a policy that is set, in words. */
export function formWords(policy: Policy): string {
  const { preset } = policy;
  if (typeof preset === "string") return `preset ${preset}`;
  return FORM_WORDS[toDraft(policy, "tier").form].title;
}

/** `8 retries within 2 min 3 s`. */
export function summary({ retries, window_s, cut_short: cut }: Timetable): string {
  const end = cut?.by === "ttl" ? "the time to live ends first" : "the guide’s limit of 24 hours ends first";
  const allowed = cut ? ` (${cut.retries_allowed} are allowed: ${end})` : "";
  if (retries === 0) return `No retries${allowed}`;
  return `${things(retries, "retry", "retries")}${window_s === 0 ? ", immediately" : ` within ${duration(window_s)}`}${allowed}`;
}

const PLACE_WORDS: Record<string, string> = {
  default: "built in",
  tier: "set for the tier",
  topic: "set for the topic",
  subscription: "set for the subscription",
  message: "set by the message",
};
/** Level that a member of a policy comes from. */
export const placeWords = (place: string): string => PLACE_WORDS[place] ?? place;

/** One line of a drawn timetable: a retry, or several that are equally far apart. Seconds from the first failure. */
export interface Rung {
  label: string;
  /** The wait before it. */
  wait: string;
  first: number;
  last: number;
  earliest: number;
  latest: number;
  /** Whether the time to live is over by then. */
  isTooLate: boolean;
}

/** Number of lines of a timetable; those between the first and the last ones are omitted. */
const RUNGS_MAX = 16;

/** A timetable, line by line. `left` is how many lines were left out, before the last one. */
export function ladder(table: Timetable, ttlS: number): { rungs: Rung[]; left: number } {
  let [earliest, latest] = [0, 0];
  const rungs = table.rows.map((row): Rung => {
    const n = row.last - row.first + 1;
    const first = row.elapsed_s - (n - 1) * row.delay_s;
    const begin = earliest + row.shortest_s;
    [earliest, latest] = [earliest + n * row.shortest_s, latest + n * row.longest_s];
    return {
      label: labelOf(row),
      wait: waitOf(row),
      first,
      last: row.elapsed_s,
      earliest: begin,
      latest,
      isTooLate: first >= ttlS,
    };
  });
  if (rungs.length <= RUNGS_MAX) return { rungs, left: 0 };
  return { rungs: [...rungs.slice(0, RUNGS_MAX - 1), ...rungs.slice(-1)], left: rungs.length - RUNGS_MAX };
}

const labelOf = ({ first, last }: RetrySpan) => (first === last ? String(first) : `${count(first)}–${count(last)}`);

function waitOf({ shortest_s, delay_s, longest_s }: RetrySpan): string {
  if (longest_s === 0) return "immediately";
  return longest_s - shortest_s < 0.01 * delay_s
    ? duration(delay_s)
    : `${duration(shortest_s)} – ${duration(longest_s)}`;
}

/** Times that stand on the axis of a timetable. */
const MARKS: readonly [number, string][] = [
  [1, "1 s"],
  [10, "10 s"],
  [60, "1 min"],
  [600, "10 min"],
  [3_600, "1 h"],
  [21_600, "6 h"],
  [86_400, "1 day"],
  [604_800, "1 week"],
];

/** Position of a time on an axis up to `end`, from 0 to 1: the first seconds have as much room as the last hours. */
export const placeOf = (seconds: number, end: number): number =>
  Math.min(1, Math.log1p(seconds) / Math.log1p(Math.max(end, 1)));

/** The marks of an axis up to `end`, at least so far apart, and none at its very end. */
export function marks(end: number, apart = 0.1): { at: number; words: string }[] {
  const kept: { at: number; words: string }[] = [];
  for (const [seconds, words] of MARKS) {
    const at = placeOf(seconds, end);
    const before = kept.at(-1);
    if (seconds <= end && at <= 0.97 && (!before || at - before.at > apart)) kept.push({ at, words });
  }
  return kept;
}

/** Effects of a change of policy, in sentences. */
export function changes(before: PolicyPreviewResponse, after: PolicyPreviewResponse): string[] {
  const said: string[] = [];
  const [was, is] = [summary(before.timetable), summary(after.timetable)];
  if (was !== is) said.push(`${is}. Before: ${was.toLowerCase()}.`);
  else if (JSON.stringify(before.timetable) !== JSON.stringify(after.timetable))
    said.push(`${is}, as before, but with other delays.`);
  if (after.timetable.retries < before.timetable.retries) {
    said.push("A waiting delivery with more retries already gets no further retry: its next failure is final.");
  }
  const figure = (of: PolicyPreviewResponse, name: string) => JSON.stringify((of.policy as Policy)[name] ?? null);
  for (const { pointer, label } of COMMON_FIELDS.tier) {
    const name = pointer.slice(1);
    if (figure(before, name) !== figure(after, name))
      said.push(`${label}: ${figure(after, name)}, before ${figure(before, name)}.`);
  }
  for (const name of ["throttlePolicy", "requestPolicy"]) {
    if (figure(before, name) !== figure(after, name))
      said.push(`${name} is ${figure(after, name)}, before ${figure(before, name)}.`);
  }
  return said.length > 0 ? said : ["The effective policy does not change."];
}

export const SCENARIOS = ["outage", "part", "herd", "throttled", "devices", "flaky", "slow", "calm"] as const;
export type Scenario = (typeof SCENARIOS)[number];
export const SCENARIO_WORDS: Record<Scenario, string> = {
  outage: "An outage: everything fails for a minute",
  part: "A part is down: one in 200 fails for ten minutes",
  herd: "A campaign into an outage of a minute",
  throttled: "Throttling: 429 beyond its capacity, then a pause",
  devices: "Throttled devices: 2 % answer 429 for half a minute",
  flaky: "A flaky gateway: five of a hundred fail",
  slow: "A slow gateway: answers take seconds",
  calm: "No failures",
};

type Report = Simulation["report"];
const dead = ({ dead }: Report) => Object.values(dead).reduce((sum, n) => sum + n, 0);
const lost = (report: Report) => dead(report) + report.expired;

/** Result of a simulation, in one sentence. */
export function verdict({ report, today }: Simulation): { words: string; isGood: boolean } {
  const n = lost(report);
  const all = count(report.deliveries);
  const what =
    n === 0
      ? `None of ${all} deliveries is lost`
      : `${count(n)} of ${all} deliveries are lost (${percent(n / report.deliveries)})`;
  if (!today) return { words: `${what}.`, isGood: n === 0 };
  const before = lost(today);
  const against =
    before === n
      ? "the same as with the current policy"
      : `with the current policy: ${before === 0 ? "none" : count(before)}`;
  return { words: `${what}; ${against}.`, isGood: n <= before };
}

/** One figure of a trial, under the policy that is tried and under the one of today. */
export interface Figure {
  name: string;
  tried: string;
  today: string | undefined;
}

/** The figures of a trial. */
export function figures({ report, today }: Simulation): Figure[] {
  const shares = (n: (of: Report) => number) => (of: Report) => `${count(n(of))} (${percent(n(of) / of.deliveries)})`;
  const after = (pick: (times: NonNullable<Report["to_acceptance"]>) => number) => (of: Report) =>
    of.to_acceptance ? duration(pick(of.to_acceptance)) : "–";
  const rows: [string, (of: Report) => string][] = [
    ["Accepted on the first request", shares((of) => of.accepted_at_once)],
    ["Accepted after a retry", shares((of) => of.accepted_after_retry)],
    ["Dead: all retries failed", shares(dead)],
    ["Expired", shares((of) => of.expired)],
    ["Half accepted within", after(({ p50_s }) => p50_s)],
    ["99 % accepted within", after(({ p99_s }) => p99_s)],
    ["Failed POSTs", (of) => count(of.posts_in_vain)],
    ["Maximum POSTs per second", (of) => count(of.peak_per_s)],
    ["Breaker opened", (of) => `${count(of.breaker_trips)} ×`],
  ];
  return rows.map(([name, cell]) => ({ name, tried: cell(report), today: today ? cell(today) : undefined }));
}
