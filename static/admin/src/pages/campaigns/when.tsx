import { useId } from "preact/hooks";
import { paceWords, scheduleWords } from "../../lib/campaigns";
import { planOf, type When } from "../../lib/campaign-draft";
import { clock } from "../../lib/clock";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { Card } from "../../ui/card";
import { Check, Choice, Field, Segments, Text } from "../composer/fields";
import type { PartProps } from "./composer";
import { loadCampaigns } from "./load";

const WHEN_WORDS: Record<When, string> = { now: "When started", at: "At a time", recipient: "By their own clocks", cron: "Again and again", follow: "After another" };

/** Schedule, with a description beside the fields. */
export function WhenCard({ app, draft, change, problem }: PartProps) {
  const { when } = draft;
  const zoneField = <ZoneField timezone={draft.timezone} change={(timezone) => change({ timezone })} fault={problem?.fault("/schedule/timezone")} />;
  const isOpen = (when !== "at" && when !== "recipient") || draft.at !== "";
  return (
    <Card title="When">
      <Segments legend="When" name="when" value={when} choices={(Object.keys(WHEN_WORDS) as When[]).map((when) => [when, WHEN_WORDS[when]])} choose={(when) => change({ when })} />
      {(when === "at" || when === "recipient") && (
        <div class="pair">
          <Moment label={when === "at" ? "Time" : "What their clocks show"} name="at" value={draft.at} change={(at) => change({ at })} fault={problem?.fault("/schedule/at")} />
          {when === "at" ? (
            zoneField
          ) : (
            <Choice
              label="Where that has passed when it is started"
              name="past"
              value={draft.past}
              choices={[
                ["tomorrow", "The next day, at that time"],
                ["skip", "They get nothing"],
              ]}
              choose={(past) => change({ past: past as "tomorrow" | "skip" })}
              fault={problem?.fault("/schedule/past")}
            />
          )}
        </div>
      )}
      {when === "cron" && (
        <div class="pair">
          <Text
            label="Cron expression"
            name="cron"
            value={draft.cron}
            change={(cron) => change({ cron })}
            max={200}
            hint="Minute, hour, day of the month, month, day of the week: 0 9 * * MON is every Monday at nine."
            fault={problem?.fault("/schedule/cron")}
          />
          {zoneField}
        </div>
      )}
      {(when === "at" || when === "cron") && (
        <Check name="own-hour" checked={draft.isOwnHour} change={(isOwnHour) => change({ isOwnHour })}>
          To each at the hour at which they click most, within 24 hours from then
        </Check>
      )}
      {problem?.fault("/schedule/hour") && <p class="fault">It {problem.fault("/schedule/hour")}.</p>}
      {when === "follow" && <FollowFields app={app} draft={draft} change={change} problem={problem} />}
      {isOpen && (when !== "follow" || draft.follows) && (
        <p id="when" aria-live="polite">
          {scheduleWords(planOf(draft), clock.shown.value, zone.value).join(" ")}
        </p>
      )}
      {problem?.fault("/schedule") && <p class="fault">It {problem.fault("/schedule")}.</p>}
    </Card>
  );
}

function FollowFields({ app, draft, change, problem }: PartProps) {
  const known = useResource(`campaigns to follow ${app.id}`, (stop) => loadCampaigns(app.id, {}, stop), { everyS: 300 });
  const slugs = new Set([...(draft.follows ? [draft.follows] : []), ...(known.known.value?.value.campaigns ?? []).map(({ slug }) => slug)]);
  return (
    <div class="pair">
      <Choice label="Campaign that it follows up" name="follows" value={draft.follows} choices={[["", "Choose one"], ...[...slugs].map((slug) => [slug, slug] as const)]} choose={(follows) => change({ follows })} fault={problem?.fault("/follows/campaign")} />
      <Choice
        label="For those who"
        name="did-not"
        value={draft.didNot}
        choices={[
          ["click", "did not click it"],
          ["display", "were not shown it"],
        ]}
        choose={(didNot) => change({ didNot: didNot as "click" | "display" })}
      />
      <Text label="Hours after its last run began" name="follow-hours" value={draft.followHours} change={(followHours) => change({ followHours })} max={6} fault={problem?.fault("/follows/after")} />
    </div>
  );
}

/** Send rate, holdout and end. */
export function LimitsCard({ draft, change, problem }: PartProps) {
  return (
    <Card title="Send rate and holdout">
      <div class="pair">
        <Choice
          label="Pace"
          name="pace"
          value={draft.pace}
          choices={[
            ["none", "As fast as it goes"],
            ["rate", "So many a minute"],
            ["spread", "Spread over a time"],
          ]}
          choose={(pace) => change({ pace: pace as typeof draft.pace })}
          hint={paceWords(planOf(draft))}
          fault={problem?.fault("/pace")}
        />
        {draft.pace === "rate" && <Text label="Recipients a minute" name="per-minute" value={draft.perMinute} change={(perMinute) => change({ perMinute })} max={7} fault={problem?.fault("/pace/per_minute")} />}
        {draft.pace === "spread" && <Text label="Minutes" name="spread-minutes" value={draft.spreadMinutes} change={(spreadMinutes) => change({ spreadMinutes })} max={5} fault={problem?.fault("/pace/spread_over")} />}
        <Text
          label="Holdout, in percent"
          name="holdout"
          value={draft.holdout}
          change={(holdout) => change({ holdout })}
          placeholder="none"
          max={5}
          hint="So many get nothing, up to 50, so that its effect can be measured."
          fault={problem?.fault("/holdout")}
        />
        <Moment label="Ends" name="expires" value={draft.expires} change={(expires) => change({ expires })} hint={`Nothing goes out from then on, by the clocks of ${draft.timezone}. Empty: never.`} fault={problem?.fault("/expires_at")} />
      </div>
    </Card>
  );
}

interface MomentProps {
  label: string;
  name: string;
  value: string;
  change: (value: string) => void;
  hint?: string;
  fault?: string | undefined;
}

function Moment({ label, name, value, change, hint, fault }: MomentProps) {
  return (
    <Field label={label} hint={hint} fault={fault}>
      {(described) => <input {...described} type="datetime-local" name={name} value={value} onInput={(event) => change(event.currentTarget.value)} />}
    </Field>
  );
}

function ZoneField({ timezone, change, fault }: { timezone: string; change: (timezone: string) => void; fault?: string | undefined }) {
  const id = useId();
  return (
    <Field label="Time zone" hint="Whose clocks it goes by." fault={fault}>
      {(described) => (
        <>
          <input {...described} name="timezone" list={id} maxLength={64} autocomplete="off" spellcheck={false} value={timezone} onInput={(event) => change(event.currentTarget.value)} />
          <datalist id={id}>
            {Intl.supportedValuesOf("timeZone").map((zone) => (
              <option key={zone} value={zone} />
            ))}
          </datalist>
        </>
      )}
    </Field>
  );
}
