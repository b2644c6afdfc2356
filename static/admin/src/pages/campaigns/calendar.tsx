import type { AppResponse } from "../../api/types";
import { byDay, dayKey, monthOf, monthWords, occasions, otherMonth, STATE_LOOKS, weeksOf, type Day, type Entry } from "../../lib/campaigns";
import { clock } from "../../lib/clock";
import { capital, clockTime } from "../../lib/format";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { useMay } from "../../shell/context";
import { Shown } from "../../ui/shown";
import { CALENDAR_MAX, loadCalendar, MOVES } from "./load";

const WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const IS_WORDS: Record<Entry["is"], string> = { was: "sent", due: "due", planned: "draft, not started" };
/** A month and the days around it that are shown with it. */
const AROUND_MS = 8 * 86_400_000;
const MONTH_MS = 31 * 86_400_000;

/** Calendar of sent and planned campaigns in one month. */
export function CampaignCalendar({ app }: { app: AppResponse }) {
  const { filters, link } = useFilters();
  const sender = useMay("sender", app.id);
  const now = clock.shown.value;
  const month = monthOf(filters.month, now, zone.value);
  const known = useResource(`calendar of campaigns ${app.id}`, (stop) => loadCalendar(app.id, sender.may, stop), { on: MOVES, everyS: 60 });
  const to = (month: string) => link("/campaigns", { view: "calendar", month });
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
          <a class="button" href={link("/campaigns", { view: "calendar" })}>
            Today
          </a>
          <a class="button" href={to(otherMonth(month, 1))}>
            <span aria-hidden="true">›</span>
            <span class="hidden">{monthWords(otherMonth(month, 1))}</span>
          </a>
        </p>
      </div>
      <Shown of={known} what="the calendar">
        {(all) => {
          const first = Date.parse(`${month}-01T00:00Z`);
          const [from, until] = [new Date(first - AROUND_MS), new Date(first + MONTH_MS + AROUND_MS)];
          const found = all.flatMap(([campaign, plan]) => occasions(campaign, plan, from, until, now));
          return <Month month={month} days={byDay(found, zone.value)} today={dayKey(now, zone.value)} />;
        }}
      </Shown>
      <p class="fine">
        {known.known.value?.value.length === CALENDAR_MAX && `Shows the newest ${CALENDAR_MAX} campaigns. `}Times are in {zone.value === "UTC" ? "UTC" : "the time zone of this computer"}. Shaded: sent; framed: due; dashed: draft.
        {!sender.may && " Runs after the next one are visible to the role sender."}
      </p>
    </>
  );
}

function Month({ month, days, today }: { month: string; days: Map<string, Entry[]>; today: string }) {
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
                <Cell key={day.key} day={day} entries={days.get(day.key) ?? []} isToday={day.key === today} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {isBare && <p class="soft">No campaigns in this month.</p>}
    </>
  );
}

function Cell({ day: { key, number, isOfMonth }, entries, isToday }: { day: Day; entries: readonly Entry[]; isToday: boolean }) {
  const words = new Date(`${key}T00:00Z`).toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short", timeZone: "UTC" });
  return (
    <td data-other={isOfMonth ? undefined : ""} data-bare={entries.length === 0 ? "" : undefined} aria-current={isToday ? "date" : undefined}>
      <p class="day">
        <span class="short" aria-hidden="true">
          {number}
        </span>
        <span class="long">{words}</span>
      </p>
      {entries.length > 0 && (
        <ul>
          {entries.map((entry) => (
            <Line key={entry.campaign.id} entry={entry} />
          ))}
        </ul>
      )}
    </td>
  );
}

function Line({ entry: { campaign, at, is, isLocal, times } }: { entry: Entry }) {
  const { link } = useFilters();
  const time = clockTime(at, at, zone.value);
  const state = STATE_LOOKS[campaign.state];
  const about = `${capital(IS_WORDS[is])}, ${time}${isLocal ? " in each recipient’s time zone" : ""}${times > 1 ? `, ${times} times that day` : ""}. ${state.word}.`;
  return (
    <li data-row>
      <a class="entry" href={link(`/campaigns/${campaign.slug}`)} data-is={is} data-tone={state.tone} title={`${campaign.name}: ${about}`}>
        <span class="number">{time}</span> {campaign.name}
        {times > 1 && <span class="number"> ×{times}</span>}
        <span class="hidden">. {about}</span>
      </a>
    </li>
  );
}
