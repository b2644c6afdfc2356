import type { AppResponse } from "../../api/types";
import {
  byDay,
  CONFLICT_HOURS,
  conflictsOf,
  dayKey,
  monthOf,
  monthWords,
  occasions,
  otherMonth,
  scheduled,
  weeksOf,
  type Conflict,
  type Day,
  type Entry,
  type Occasion,
} from "../../lib/calendar";
import { clock } from "../../lib/clock";
import { capital, clockTime, things } from "../../lib/format";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { useMay } from "../../shell/context";
import { OfApp } from "../../shell/of-app";
import { Head } from "../../ui/card";
import { Shown } from "../../ui/shown";
import { CALENDAR_MAX, loadCalendar, MOVES, PLANS_MAX } from "../campaigns/load";
import { loadMessages } from "../messages/load";
import "./calendar.css";

const WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const IS_WORDS: Record<Entry["is"], string> = { was: "sent", due: "due", planned: "draft, not started" };
/** A month and the days around it that are shown with it. */
const AROUND_MS = 8 * 86_400_000;
const MONTH_MS = 31 * 86_400_000;
/** Scheduled messages that are shown. */
const MESSAGES_MAX = 250;

/** Calendar of an app: campaigns and scheduled messages. */
export default function Calendar() {
  return (
    <>
      <Head title="Calendar" lead="Campaigns and scheduled messages by day, with conflicts." />
      <OfApp what="Each campaign belongs to an app.">{(app) => <SendCalendar key={app.id} app={app} />}</OfApp>
    </>
  );
}

async function load(app: string, maySeePlans: boolean, stop: AbortSignal) {
  const [campaigns, { messages }] = await Promise.all([
    loadCalendar(app, maySeePlans, stop),
    loadMessages(app, { state: "scheduled" }, stop, MESSAGES_MAX),
  ]);
  return { campaigns, messages };
}

function SendCalendar({ app }: { app: AppResponse }) {
  const { filters, link } = useFilters();
  const sender = useMay("sender", app.id);
  const now = clock.shown.value;
  const month = monthOf(filters.month, now, zone.value);
  const known = useResource(`calendar of sends ${app.id}`, (stop) => load(app.id, sender.may, stop), {
    on: MOVES,
    everyS: 60,
  });
  const to = (month: string) => link("/calendar", { month });
  return (
    <>
      <div class="month">
        <h2 id="month" aria-live="polite">
          {monthWords(month)}
        </h2>
        <p class="row">
          <a class="button" href={to(otherMonth(month, -1))}>
            <span aria-hidden="true">‹</span>
            <span class="hidden">{monthWords(otherMonth(month, -1))}</span>
          </a>
          <a class="button" href={link("/calendar")}>
            Today
          </a>
          <a class="button" href={to(otherMonth(month, 1))}>
            <span aria-hidden="true">›</span>
            <span class="hidden">{monthWords(otherMonth(month, 1))}</span>
          </a>
        </p>
      </div>
      <Shown of={known} what="the calendar">
        {({ campaigns, messages }) => {
          const first = Date.parse(`${month}-01T00:00Z`);
          const [from, until] = [new Date(first - AROUND_MS), new Date(first + MONTH_MS + AROUND_MS)];
          const found = [
            ...campaigns.flatMap(([campaign, plan]) => occasions(campaign, plan, from, until, now, zone.value)),
            ...scheduled(messages).filter(({ at }) => at >= from && at < until),
          ];
          const conflicts = conflictsOf(found);
          return (
            <>
              <Conflicts conflicts={conflicts} />
              <Month
                month={month}
                days={byDay(found, zone.value)}
                today={dayKey(now, zone.value)}
                conflicts={conflicts}
              />
            </>
          );
        }}
      </Shown>
      <p class="fine">
        {known.known.value?.value.campaigns.length === CALENDAR_MAX && `Shows the newest ${CALENDAR_MAX} campaigns. `}
        {(known.known.value?.value.campaigns.length ?? 0) > PLANS_MAX &&
          `Conflicts and later runs are those of the newest ${PLANS_MAX} campaigns. `}
        Times are in {zone.value === "UTC" ? "UTC" : "the time zone of this computer"}. Shaded: sent; framed: due;
        dashed: draft; ▲: conflict.
        {!sender.may && " Conflicts of campaigns and runs after the next one are visible to the role sender."}
      </p>
    </>
  );
}

/** Conflicts that are listed. */
const LISTED_MAX = 5;

function Conflicts({ conflicts }: { conflicts: readonly Conflict[] }) {
  const { link } = useFilters();
  if (conflicts.length === 0) return null;
  const name = ({ name, path }: Occasion) => <a href={link(path)}>{name}</a>;
  return (
    <section aria-labelledby="conflicts">
      <h2 id="conflicts">{capital(things(conflicts.length, "conflict"))}</h2>
      <ul class="conflicts">
        {conflicts.slice(0, LISTED_MAX).map(({ first, second }) => (
          <li key={`${first.id} ${second.id} ${first.at.getTime()}`}>
            {name(first)} at {clockTime(first.at, clock.shown.value, zone.value)} and {name(second)} at{" "}
            {clockTime(second.at, clock.shown.value, zone.value)} reach the same audience within {CONFLICT_HOURS} hours.
          </li>
        ))}
      </ul>
      {conflicts.length > LISTED_MAX && <p class="fine">The others are marked in the calendar.</p>}
    </section>
  );
}

function Month({
  month,
  days,
  today,
  conflicts,
}: {
  month: string;
  days: Map<string, Entry[]>;
  today: string;
  conflicts: readonly Conflict[];
}) {
  const inConflict = new Set(
    conflicts.flatMap(({ first, second }) => [first, second]).map(({ id, at }) => `${id} ${dayKey(at, zone.value)}`),
  );
  const weeks = weeksOf(month);
  const isBare = weeks.flat().every(({ key, isOfMonth }) => !isOfMonth || !days.has(key));
  return (
    <>
      <table class="calendar" aria-labelledby="month">
        <thead>
          <tr>
            {WEEKDAYS.map((day) => (
              <th key={day} scope="col">
                <span aria-hidden="true">{day.slice(0, 3)}</span>
                <span class="hidden">{day}</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {weeks.map((week) => (
            <tr key={week[0]?.key}>
              {week.map((day) => (
                <Cell
                  key={day.key}
                  day={day}
                  entries={days.get(day.key) ?? []}
                  isToday={day.key === today}
                  inConflict={inConflict}
                />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {isBare && <p class="soft">No campaigns or scheduled messages in this month.</p>}
    </>
  );
}

function Cell({
  day: { key, number, isOfMonth },
  entries,
  isToday,
  inConflict,
}: {
  day: Day;
  entries: readonly Entry[];
  isToday: boolean;
  inConflict: ReadonlySet<string>;
}) {
  const words = new Date(`${key}T00:00Z`).toLocaleDateString("en-GB", {
    weekday: "short",
    day: "numeric",
    month: "short",
    timeZone: "UTC",
  });
  return (
    <td
      data-other={isOfMonth ? undefined : ""}
      data-bare={entries.length === 0 ? "" : undefined}
      aria-current={isToday ? "date" : undefined}
    >
      <p class="day">
        <span class="short" aria-hidden="true">
          {number}
        </span>
        <span class="long">{words}</span>
      </p>
      {entries.length > 0 && (
        <ul>
          {entries.map((entry) => (
            <Line key={entry.id} entry={entry} isInConflict={inConflict.has(`${entry.id} ${key}`)} />
          ))}
        </ul>
      )}
    </td>
  );
}

function Line({
  entry: { name, path, state, at, is, isLocal, times },
  isInConflict,
}: {
  entry: Entry;
  isInConflict: boolean;
}) {
  const { link } = useFilters();
  const time = clockTime(at, at, zone.value);
  const about = `${capital(IS_WORDS[is])}, ${time}${isLocal ? " in each recipient’s time zone" : ""}${times > 1 ? `, ${times} times that day` : ""}. ${state.word}.${isInConflict ? " Conflict with another send." : ""}`;
  return (
    <li data-row>
      <a
        class="entry"
        href={link(path)}
        data-is={is}
        data-tone={state.tone}
        data-conflict={isInConflict ? "" : undefined}
        title={`${name}: ${about}`}
      >
        <span class="number">{time}</span> {name}
        {times > 1 && <span class="number"> ×{times}</span>}
        <span class="hidden">. {about}</span>
      </a>
    </li>
  );
}
