/** Times of a cron expression of five fields, for its usual forms. The server supports more. Pure. */

/** The values of each field, in their order: minute, hour, day of the month, month, day of the week (0: Sunday). */
export interface Cron {
  minutes: readonly number[];
  hours: readonly number[];
  days: readonly number[];
  months: readonly number[];
  weekdays: readonly number[];
  /** Whether the days of the month, and of the week, are named: named both, either will do. */
  namesDays: boolean;
  namesWeekdays: boolean;
}

const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/** Parsed expression. Undefined: invalid, or a form that only the server supports. */
export function readCron(expression: string): Cron | undefined {
  const [minute, hour, day, month, weekday, ...more] = expression.trim().toLowerCase().split(/\s+/);
  if (
    minute === undefined ||
    hour === undefined ||
    day === undefined ||
    month === undefined ||
    weekday === undefined ||
    more.length > 0
  )
    return undefined;
  const minutes = values(minute, 0, 59);
  const hours = values(hour, 0, 23);
  const days = values(day, 1, 31);
  const months = values(month, 1, 12, MONTHS, 1);
  const weekdays = values(weekday, 0, 7, WEEKDAYS, 0);
  if (!minutes || !hours || !days || !months || !weekdays) return undefined;
  const week = [...new Set(weekdays.map((day) => day % 7))].sort((a, b) => a - b);
  return {
    minutes,
    hours,
    days,
    months,
    weekdays: week,
    namesDays: !day.startsWith("*"),
    namesWeekdays: !weekday.startsWith("*"),
  };
}

/** Fields in their order, with their ranges. Months and days of the week also have names. */
const FIELDS: readonly (readonly [string, number, number])[] = [
  ["minute", 0, 59],
  ["hour", 0, 23],
  ["day of the month", 1, 31],
  ["month", 1, 12],
  ["day of the week", 0, 7],
];

/** Error of the first field that is out of its range. Undefined: none was found, though only the server reads every form. */
export function cronFault(expression: string): string | undefined {
  const fields = expression.trim().split(/\s+/);
  if (fields.length !== FIELDS.length)
    return "must have five fields: minute, hour, day of the month, month and day of the week";
  for (const [n, [name, least, most]] of FIELDS.entries()) {
    const field = fields[n] ?? "";
    if (/^[\d*/,-]+$/.test(field) && !values(field, least, most))
      return `has the ${name} ${field}; allowed are ${least} to ${most}, * for all, lists such as ${least},${least + 1} and ranges such as ${least}-${most}`;
  }
  return undefined;
}

function values(
  field: string,
  least: number,
  most: number,
  names: readonly string[] = [],
  first = 0,
): number[] | undefined {
  const found = new Set<number>();
  for (const part of field.split(",")) {
    const parts = /^(\*|[a-z]{3}|\d{1,2})(?:-([a-z]{3}|\d{1,2}))?(?:\/(\d{1,2}))?$/.exec(part);
    if (!parts) return undefined;
    const [, from = "", to, step] = parts;
    const number = (word: string) =>
      names.includes(word) ? names.indexOf(word) + first : /^\d+$/.test(word) ? Number(word) : Number.NaN;
    const start = from === "*" ? least : number(from);
    const end = to !== undefined ? number(to) : from === "*" || step !== undefined ? most : start;
    const by = step === undefined ? 1 : Number(step);
    if (!(start >= least && end <= most && start <= end && by >= 1) || (from === "*" && to !== undefined))
      return undefined;
    for (let value = start; value <= end; value += by) found.add(value);
  }
  return [...found].sort((a, b) => a - b);
}

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

const formatters = new Map<string, Intl.DateTimeFormat>();

function formatter(zone: string): Intl.DateTimeFormat {
  const known = formatters.get(zone);
  if (known) return known;
  const numeric = "numeric" as const;
  const made = new Intl.DateTimeFormat("en-GB", {
    timeZone: zone,
    hourCycle: "h23",
    year: numeric,
    month: numeric,
    day: numeric,
    hour: numeric,
    minute: numeric,
    second: numeric,
  });
  formatters.set(zone, made);
  return made;
}

/** Offset of a zone from UTC at a moment, in milliseconds. Undefined: unknown zone. */
function offsetMs(zone: string, at: number): number | undefined {
  try {
    const parts = formatter(zone).formatToParts(at);
    const part = (type: string) => Number(parts.find((part) => part.type === type)?.value);
    return (
      Date.UTC(part("year"), part("month") - 1, part("day"), part("hour"), part("minute"), part("second")) -
      Math.floor(at / 1_000) * 1_000
    );
  } catch {
    return undefined;
  }
}

/** Moment of a local time in a zone. A skipped time gives the end of the gap, a repeated time the first occurrence. */
export function instantIn(zone: string, local: number): Date | undefined {
  const before = offsetMs(zone, local - DAY_MS);
  const after = offsetMs(zone, local + DAY_MS);
  if (before === undefined || after === undefined) return undefined;
  const shows = (offset: number) => offsetMs(zone, local - offset) === offset;
  if (shows(before)) return new Date(local - before);
  if (shows(after)) return new Date(local - after);
  // In the gap: by the clock of before it is later than its end, so the end is looked for.
  let [low, high] = [local - Math.max(before, after), local - Math.min(before, after)];
  while (high - low > MINUTE_MS) {
    const middle = low + Math.floor((high - low) / 2 / MINUTE_MS) * MINUTE_MS;
    if (offsetMs(zone, middle) === before) low = middle;
    else high = middle;
  }
  return new Date(high);
}

/** As far ahead as is looked: leap days come every eight years at the latest. */
const DAYS_MAX = 8 * 366;

/** The next times after a moment, as many as asked for, and none after `until`. Undefined: that cannot be known here. */
export function nextTimes(
  expression: string,
  zone: string,
  after: Date,
  many: number,
  until = Infinity,
): Date[] | undefined {
  const cron = readCron(expression);
  const offset = offsetMs(zone, after.getTime());
  if (!cron || offset === undefined) return undefined;
  const midnight = Math.floor((after.getTime() + offset) / DAY_MS) * DAY_MS;
  const found: Date[] = [];
  for (let n = 0; n < DAYS_MAX && found.length < many; n += 1) {
    const start = midnight + n * DAY_MS;
    if (start - 2 * DAY_MS > until) break;
    if (!isDay(cron, new Date(start))) continue;
    for (const hour of cron.hours) {
      for (const minute of cron.minutes) {
        if (found.length >= many) break;
        const at = instantIn(zone, start + hour * 3_600_000 + minute * MINUTE_MS);
        const last = found.at(-1);
        // Several that fall into one gap are one.
        if (at && at > after && at.getTime() <= until && at.getTime() !== last?.getTime()) found.push(at);
      }
    }
  }
  return found;
}

function isDay({ days, months, weekdays, namesDays, namesWeekdays }: Cron, day: Date): boolean {
  if (!months.includes(day.getUTCMonth() + 1)) return false;
  const ofMonth = days.includes(day.getUTCDate());
  const ofWeek = weekdays.includes(day.getUTCDay());
  return namesDays && namesWeekdays ? ofMonth || ofWeek : ofMonth && ofWeek;
}
