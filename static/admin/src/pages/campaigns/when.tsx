import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { paceWords, scheduleWords } from "../../lib/campaigns";
import { numberFaults, paceOf, planOf, type When } from "../../lib/campaign-draft";
import { clock } from "../../lib/clock";
import { cronFault } from "../../lib/cron";
import { zone } from "../../lib/preferences";
import {
  cronOf,
  recurrenceAfter,
  recurrenceOf,
  toggledDay,
  WEEKDAYS,
  WEEKLY,
  type Recurrence,
} from "../../lib/recurrence";
import { useResource } from "../../lib/resource";
import { lacksOfTrigger } from "../../lib/trigger";
import { Card } from "../../ui/card";
import "../../ui/form.css";
import { Marked } from "../../ui/marked";
import { Check, Choice, Field, Moment, Segments, Text, ZoneField } from "../composer/fields";
import type { PartProps } from "./composer";
import { loadCampaigns } from "./load";
import { TriggerFields } from "./trigger";

const WHEN_WORDS: Record<When, string> = {
  now: "When started",
  at: "Once",
  recipient: "Local time",
  cron: "Recurring",
  event: "When something happens",
  follow: "Follow-up",
};

/** Schedule, with a description beside the fields. */
export function WhenCard({ app, draft, change, problem }: PartProps) {
  const { when } = draft;
  const zoneField = (
    <ZoneField
      timezone={draft.timezone}
      change={(timezone) => change({ timezone })}
      fault={problem?.fault("/schedule/timezone")}
    />
  );
  const { followHours: fault } = numberFaults(draft);
  const isOpen =
    !fault &&
    (when !== "event" || lacksOfTrigger(draft.trigger) === undefined) &&
    ((when !== "at" && when !== "recipient") || draft.at !== "");
  return (
    <Card title="Schedule">
      <Segments
        legend="Schedule"
        name="when"
        value={when}
        choices={(Object.keys(WHEN_WORDS) as When[]).map((when) => [when, WHEN_WORDS[when]])}
        choose={(when) => change({ when })}
      />
      {(when === "at" || when === "recipient") && (
        <div class="pair">
          <Moment
            label={when === "at" ? "Time" : "Local time of each recipient"}
            name="at"
            value={draft.at}
            change={(at) => change({ at })}
            fault={problem?.fault("/schedule/at")}
          />
          {when === "at" ? (
            zoneField
          ) : (
            <Choice
              label="If the local time has passed at the start"
              name="past"
              value={draft.past}
              choices={[
                ["tomorrow", "Send the next day"],
                ["skip", "Do not send"],
              ]}
              choose={(past) => change({ past: past as "tomorrow" | "skip" })}
              fault={problem?.fault("/schedule/past")}
            />
          )}
        </div>
      )}
      {when === "cron" && (
        <RecurrenceFields
          cron={draft.cron}
          change={(cron) => change({ cron })}
          zoneField={zoneField}
          fault={problem?.fault("/schedule/cron")}
          check={cronFault(draft.cron)}
        />
      )}
      {when === "event" && <TriggerFields app={app} draft={draft} change={change} problem={problem} />}
      {(when === "at" || when === "cron" || when === "event") && (
        <Check name="own-hour" checked={draft.isOwnHour} change={(isOwnHour) => change({ isOwnHour })}>
          Send at the best hour of each subscriber, within 24 hours from then
        </Check>
      )}
      {problem?.fault("/schedule/hour") && <p class="fault">It {problem.fault("/schedule/hour")}.</p>}
      {when === "follow" && <FollowFields app={app} draft={draft} change={change} problem={problem} />}
      {isOpen && (when !== "follow" || draft.follows) && (
        <p id="when" aria-live="polite">
          <Marked text={scheduleWords(planOf(draft), clock.shown.value, zone.value).join(" ")} />
        </p>
      )}
      {problem?.fault("/schedule") && <p class="fault">It {problem.fault("/schedule")}.</p>}
    </Card>
  );
}

interface RecurrenceProps {
  cron: string;
  change: (cron: string) => void;
  zoneField: ComponentChildren;
  fault: string | undefined;
  check: string | undefined;
}

const FREQUENCY_WORDS = [
  ["daily", "Daily"],
  ["weekly", "Weekly"],
  ["monthly", "Monthly"],
  ["cron", "Cron expression"],
] as const;
const DAYS_OF_MONTH = Array.from({ length: 31 }, (_, n) => [String(n + 1), String(n + 1)] as const);

/** Frequency, days and time of a recurring campaign, or its cron expression. */
function RecurrenceFields({ cron, change, zoneField, fault, check }: RecurrenceProps) {
  const fields = recurrenceOf(cron);
  const [isExpert, setExpert] = useState(fields === undefined);
  const chosen = isExpert || !fields ? "cron" : fields.frequency;
  const last = useRef(WEEKLY);
  const known = recurrenceAfter(last.current, cron) ?? last.current;
  last.current = known;
  const write = (changes: Partial<Recurrence>) => change(cronOf({ ...known, ...changes }));
  const choose = (frequency: (typeof FREQUENCY_WORDS)[number][0]) => {
    setExpert(frequency === "cron");
    if (frequency !== "cron") write({ frequency });
  };
  return (
    <>
      <Segments legend="Frequency" name="frequency" value={chosen} choices={FREQUENCY_WORDS} choose={choose} />
      {chosen === "weekly" && (
        <fieldset class="choices" id="weekdays">
          <legend>Days</legend>
          {WEEKDAYS.map(([day, , name]) => (
            <label key={day}>
              <input
                type="checkbox"
                name="weekday"
                value={String(day)}
                checked={known.weekdays.includes(day)}
                onChange={() => write({ weekdays: toggledDay(known.weekdays, day) })}
              />{" "}
              {name}
            </label>
          ))}
        </fieldset>
      )}
      <div class="pair">
        {chosen === "cron" ? (
          <Text
            label="Cron expression"
            name="cron"
            value={cron}
            change={change}
            max={200}
            hint="Minute, hour, day of month, month, day of week. 0 9 * * MON is every Monday at 09:00."
            fault={fault}
            check={check}
          />
        ) : (
          <>
            {chosen === "monthly" && (
              <Choice
                label="Day of the month"
                name="month-day"
                value={String(known.day)}
                choices={DAYS_OF_MONTH}
                choose={(day) => write({ day: Number(day) })}
                hint={known.day > 28 ? "Months without this day are skipped." : undefined}
              />
            )}
            <Field label="Time" fault={fault}>
              {(described) => (
                <input
                  {...described}
                  type="time"
                  name="recurrence-time"
                  required
                  value={known.time}
                  onInput={(event) => event.currentTarget.value && write({ time: event.currentTarget.value })}
                />
              )}
            </Field>
          </>
        )}
        {zoneField}
      </div>
    </>
  );
}

function FollowFields({ app, draft, change, problem }: PartProps) {
  const known = useResource(`campaigns to follow ${app.id}`, (stop) => loadCampaigns(app.id, {}, stop), {
    everyS: 300,
  });
  const slugs = new Set([
    ...(draft.follows ? [draft.follows] : []),
    ...(known.known.value?.value.campaigns ?? []).map(({ slug }) => slug),
  ]);
  return (
    <div class="pair">
      <Choice
        label="Follow up on"
        name="follows"
        value={draft.follows}
        choices={[["", "Choose one"], ...[...slugs].map((slug) => [slug, slug] as const)]}
        choose={(follows) => change({ follows })}
        fault={problem?.fault("/follows/campaign")}
      />
      <Choice
        label="Recipients who"
        name="did-not"
        value={draft.didNot}
        choices={[
          ["click", "did not click it"],
          ["display", "were not shown it"],
        ]}
        choose={(didNot) => change({ didNot: didNot as "click" | "display" })}
      />
      <Text
        label="Hours after the start of its last run"
        name="follow-hours"
        value={draft.followHours}
        change={(followHours) => change({ followHours })}
        max={6}
        fault={problem?.fault("/follows/after")}
        check={numberFaults(draft).followHours}
      />
    </div>
  );
}

const PACES = [
  ["none", "No limit"],
  ["rate", "Limit per minute"],
  ["spread", "Spread over a period"],
] as const;

/** Send rate, holdout and end. */
export function LimitsCard({ draft, change, problem }: PartProps) {
  const faults = numberFaults(draft);
  const pace = paceOf(draft);
  return (
    <Card title="Send rate and holdout">
      <div class="pair">
        <Choice
          label="Send rate"
          name="pace"
          value={pace}
          choices={PACES.filter(([choice]) => draft.when !== "event" || choice !== "spread")}
          choose={(pace) => change({ pace: pace as typeof draft.pace })}
          hint={pace === "none" || faults.perMinute || faults.spreadMinutes ? undefined : paceWords(planOf(draft))}
          fault={problem?.fault("/pace")}
        />
        {pace === "rate" && (
          <Text
            label="Recipients per minute"
            name="per-minute"
            value={draft.perMinute}
            change={(perMinute) => change({ perMinute })}
            max={7}
            fault={problem?.fault("/pace/per_minute")}
            check={faults.perMinute}
          />
        )}
        {pace === "spread" && (
          <Text
            label="Minutes"
            name="spread-minutes"
            value={draft.spreadMinutes}
            change={(spreadMinutes) => change({ spreadMinutes })}
            max={5}
            fault={problem?.fault("/pace/spread_over")}
            check={faults.spreadMinutes}
          />
        )}
        <Text
          label="Holdout (%)"
          name="holdout"
          value={draft.holdout}
          change={(holdout) => change({ holdout })}
          placeholder="none"
          max={5}
          hint="Share of the audience that gets nothing, up to 50, to measure the effect."
          fault={problem?.fault("/holdout")}
          check={faults.holdout}
        />
        <Moment
          label="Ends"
          name="expires"
          value={draft.expires}
          change={(expires) => change({ expires })}
          hint={`Nothing is sent after this time (${draft.timezone}). Empty: no end.`}
          fault={problem?.fault("/expires_at")}
        />
      </div>
    </Card>
  );
}
