/** Numbers and spans of time as people read them. Everything here is pure: what the time is, is handed in. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A count in full: `12,400`. */
export const count = (n: number): string => whole.format(n);

const short = new Intl.NumberFormat("en", { notation: "compact" });

/** A count on an axis: in full up to 99,999, then `124K`. */
export const axisCount = (n: number): string => (Math.abs(n) < 100_000 ? count(n) : short.format(n));

/** A rate: by the second below 100 a minute, else by the minute. */
export function rate(perMinute: number): string {
  if (perMinute >= 100) return `${count(Math.round(perMinute))} per minute`;
  const perSecond = perMinute / 60;
  const digits = perSecond >= 0.1 ? 1 : 2;
  return `${Number(perSecond.toFixed(digits))} per second`;
}

/** A share with its denominator: `62 % of 1,204`. What is not all is never shown as 100 %, and what is something never as 0 %. */
export function share(part: number, of: number): string {
  return of === 0 ? "none of 0" : `${percent(part / of)} of ${count(of)}`;
}

/** A share alone, where its denominator is visible. */
export function percent(ratio: number): string {
  const percents = ratio * 100;
  if (percents > 0 && percents < 0.1) return "< 0.1 %";
  if (percents < 100 && percents > 99.9) return "> 99.9 %";
  const digits = percents !== 100 && (percents < 10 || percents > 99) ? 1 : 0;
  return `${Number(percents.toFixed(digits))} %`;
}

const signed = new Intl.NumberFormat("en", { maximumFractionDigits: 1, signDisplay: "exceptZero" });

/** A relative difference: `+14.2 %`, `−3 %`. */
export const difference = (ratio: number): string => `${signed.format(ratio * 100).replace("-", "−")} %`;

const estimated = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });

/** An estimate: a whole number, from 1,000 on with two significant digits. */
export const estimate = (n: number): string =>
  (Math.abs(n) < 1_000 ? count(n) : estimated.format(n)).replace(/^-0$/, "0").replace("-", "−");

/** An amount of money, with decimals below 1,000: `49.90 EUR`. */
export function amount(value: number, currency: string): string {
  if (Math.abs(value) >= 1_000) return `${count(value)} ${currency}`;
  if (Math.abs(value) < 1) return `${estimated.format(value)} ${currency}`;
  const { maximumFractionDigits } = new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions();
  return `${value.toFixed(maximumFractionDigits)} ${currency}`;
}

/** A span of time, in its two largest units: `40 ms`, `4.2 s`, `1 min 20 s`, `2 h`, `3 days 4 h`. */
export function duration(seconds: number): string {
  if (seconds < 0.9995) return `${Math.max(0, Math.round(seconds * 1_000))} ms`;
  if (seconds < 9.95) return `${Number(seconds.toFixed(1))} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3_600) return two(Math.floor(s / 60), "min", s % 60, "s");
  const min = Math.round(s / 60);
  if (min < 1_440) return two(Math.floor(min / 60), "h", min % 60, "min");
  const h = Math.round(s / 3_600);
  const days = Math.floor(h / 24);
  return two(days, days === 1 ? "day" : "days", h % 24, "h");
}

const two = (a: number, unitA: string, b: number, unitB: string) =>
  b === 0 ? `${a} ${unitA}` : `${a} ${unitA} ${b} ${unitB}`;

/** `one delivery`, `2,040 deliveries`. */
export function things(n: number, one: string, many = `${one}s`): string {
  return n === 1 ? `one ${one}` : `${n === 0 ? "no" : count(n)} ${many}`;
}

/** Fault of a text that is not a whole number within bounds. */
export const numberFault = (text: string, least: number, most: number): string | undefined =>
  /^\d+$/.test(text.trim()) && Number(text) >= least && Number(text) <= most
    ? undefined
    : `must be a whole number from ${count(least)} to ${count(most)}`;

/** The same for a number with decimals. */
export const decimalFault = (text: string, least: number, most: number): string | undefined =>
  text.trim() !== "" && Number(text) >= least && Number(text) <= most
    ? undefined
    : `must be a number from ${Number(least.toFixed(2))} to ${most}`;

/** Summary of faults that are shown at their fields. */
export const attentionWords = (fields: number): string =>
  fields === 1 ? "One field needs attention." : `${count(fields)} fields need attention.`;

/** Digits alone: a number may be typed as it is written here, or without its commas. */
export const digits = (text: string): string => text.replace(/[\s,.’']/g, "");

/** Name of a language; an unknown tag stays unchanged. */
export function languageWords(tag: string): string {
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(tag) ?? tag;
  } catch {
    return tag; // the browser's own text
  }
}

/** Fault as a sentence: of a member, or of a position within a text. */
export function faultWords(detail: string): string {
  if (detail.startsWith("/")) return `In ${detail.slice(1)}.`;
  return /^(line \d|its )/.test(detail) ? `${capital(detail)}.` : `It ${detail}.`;
}

/** With a capital, to begin a sentence. */
export const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** A count that may be more than was counted: `≥ 10,000`. */
export const atLeast = (n: number, orMore: boolean): string => (orMore ? `≥ ${count(n)}` : count(n));

/** The zone in which times are shown. */
export type Zone = "UTC" | "local";

const timeZone = (zone: Zone) => (zone === "UTC" ? { timeZone: "UTC" } : {});

/** A time of day, with the day if it is another one than `now`'s: `14:32`, `23 Nov 14:32`, `3 Jan 2027 14:32`. */
export function clockTime(at: Date, now: Date, zone: Zone): string {
  const day = (time: Date) => time.toLocaleDateString("en-GB", timeZone(zone));
  const time = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...timeZone(zone) });
  if (day(at) === day(now)) return time;
  const sameYear = day(at).slice(-4) === day(now).slice(-4);
  const date = at.toLocaleDateString("en-GB", {
    day: "numeric",
    month: "short",
    ...(sameYear ? {} : { year: "numeric" }),
    ...timeZone(zone),
  });
  return `${date} ${time}`;
}

/** A time of day to the second, with the day if it is another one than `now`'s: `14:32:07`, `23 Nov 14:32:07`. */
export function secondsTime(at: Date, now: Date, zone: Zone): string {
  const seconds = at.toLocaleTimeString("en-GB", { second: "2-digit", ...timeZone(zone) }).padStart(2, "0");
  return `${clockTime(at, now, zone)}:${seconds}`;
}

/** A day of figures, which are kept by UTC's days: `24 Oct`. */
export const dayOf = (at: Date): string =>
  at.toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** A time with everything: day, seconds and zone. */
export function fullTime(at: Date, zone: Zone): string {
  return at.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "long", ...timeZone(zone) });
}

/** Relative time: `just now`, `3 min ago`, `in 2 h`. */
export function relative(at: Date, now: Date): string {
  const seconds = (at.getTime() - now.getTime()) / 1_000;
  const distance = Math.abs(seconds);
  if (distance < 10) return "just now";
  const span = distance < 60 ? `${Math.round(distance)} s` : largest(distance);
  return seconds < 0 ? `${span} ago` : `in ${span}`;
}

function largest(seconds: number): string {
  const [first, unit] = duration(seconds).split(" ");
  return `${first} ${unit}`;
}
