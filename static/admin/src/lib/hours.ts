/** Send times of messages, as texts and from a form. Pure. */
import type { components } from "../api/schema";

type Calendar = components["schemas"]["CalendarSettings"];
type Day = components["schemas"]["WeekDay"];

export const DAYS: readonly [Day, string][] = [
  ["mon", "Mon"],
  ["tue", "Tue"],
  ["wed", "Wed"],
  ["thu", "Thu"],
  ["fri", "Fri"],
  ["sat", "Sat"],
  ["sun", "Sun"],
];

interface Fields {
  text: (name: string) => string;
  all: (name: string) => string[];
  has: (name: string) => boolean;
}

/** Calendar of a form's fields. All days of a window, or no day, mean every day. */
export function calendarFrom(fields: Fields, windows: number): Calendar {
  return {
    timezone: fields.text("timezone"),
    quiet_hours: fields.has("quiet") ? { from: fields.text("quiet_from"), to: fields.text("quiet_to") } : null,
    off_peak: Array.from({ length: windows }, (_, n) => {
      const days = fields.all(`days_${n}`) as Day[];
      const hours = { from: fields.text(`from_${n}`), to: fields.text(`to_${n}`) };
      return days.length === 0 || days.length === DAYS.length ? hours : { days, ...hours };
    }),
  };
}

/** Description of a calendar. */
export function calendarWords({ timezone, quiet_hours, off_peak = [] }: Calendar): string {
  const quiet = quiet_hours
    ? `Promotional and engagement messages wait from ${quiet_hours.from} until ${quiet_hours.to}, in each recipient’s time zone.`
    : "There are no quiet hours.";
  const windows = off_peak.map(
    ({ days, from, to }) =>
      `${from} to ${to} ${days ? days.map((day) => DAYS.find(([name]) => name === day)?.[1]).join(", ") : "every day"}`,
  );
  const within =
    windows.length > 0
      ? `Engagement messages are sent within ${windows.join("; ")}, ${timezone} time.`
      : "Engagement messages are sent at any other time.";
  return `${quiet} ${within} Recipients without a known time zone use ${timezone}.`;
}
