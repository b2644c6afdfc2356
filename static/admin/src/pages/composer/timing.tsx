import { useState } from "preact/hooks";
import type { CalendarSettings, PolicyPreviewResponse, Tier, Timetable } from "../../api/types";
import { clock } from "../../lib/clock";
import { message } from "../../lib/draft";
import { scheduleWords } from "../../lib/campaigns";
import { duration } from "../../lib/format";
import { TIERS } from "../../lib/messages";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { laterWords, retryWords, TIER_DEFAULTS, whenWords } from "../../lib/timing";
import { useFilters } from "../../lib/url";
import { Card } from "../../ui/card";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { Choice, Moment, Segments, Text, ZoneField } from "./fields";
import { loadCalendar, loadPresets, loadTimetable, ownZone } from "./load";
import { faultAt, type PartProps } from "./parts";

const TIER_CHOICES: Record<Tier, { word: string; for: string }> = {
  transactional: { word: "Transactional", for: "One-time codes and payments: at any hour, before all other messages." },
  promotional: { word: "Promotional", for: "Campaigns and announcements: outside quiet hours." },
  engagement: { word: "Engagement", for: "Reminders and digests: at low load, in off-peak windows." },
};
const TTLS = [600, 3_600, 21_600, 86_400, 259_200, 604_800, 2_419_200];
const URGENCIES = ["very-low", "low", "normal", "high"];
const PRESET_WORDS: Record<string, string> = { "": "Default of tier and topic" };

const WHENS = [
  ["now", "Send now"],
  ["later", "Send later"],
] as const;

function timeWords({ tier, ttl, isLater, sendAt, timezone }: PartProps["draft"], calendar: CalendarSettings): string[] {
  const now = clock.shown.value;
  if (isLater)
    return sendAt
      ? [...scheduleWords({ schedule: { at: sendAt, timezone } }, now, zone.value), ...laterWords(tier, calendar)]
      : ["Choose a send time."];
  return whenWords(tier, calendar, Number(ttl || TIER_DEFAULTS[tier].ttlS), now);
}

/** Delivery options and time. `isPlanned`: the time is set elsewhere. */
export function TimingCard({ app, draft, change, check, isPlanned = false }: PartProps & { isPlanned?: boolean }) {
  const { link } = useFilters();
  const defaults = TIER_DEFAULTS[draft.tier];
  const [isOpen] = useState(() => Boolean(draft.ttl || draft.urgency || draft.collapseKey || draft.policy));
  const calendar = useResource(`calendar ${app.id}`, (stop) => loadCalendar(app.id, stop), { everyS: 300 });
  const presets = useResource(`presets ${app.id}`, (stop) => loadPresets(app.id, stop), { everyS: 3_600 });
  const names = ["", ...(presets.known.value?.value ?? []).map(({ name }) => name)];
  const topic = draft.audience === "topic" ? draft.topic : "";
  const { policy } = message(draft);
  const timetable = useResource(
    `timetable ${app.id} ${draft.tier} ${topic} ${draft.policy}`,
    (stop) => loadTimetable(app.id, draft.tier, topic, policy, stop),
    {
      everyS: 3_600,
    },
  );
  return (
    <Card title={isPlanned ? "Delivery options" : "Schedule and delivery options"}>
      <Segments
        legend="Tier"
        name="tier"
        value={draft.tier}
        choices={TIERS.map((tier) => [tier, TIER_CHOICES[tier].word])}
        choose={(tier) => change({ tier })}
      />
      <p class="fine">{TIER_CHOICES[draft.tier].for}</p>
      {!isPlanned && (
        <>
          <Segments
            legend="Schedule"
            name="later"
            value={draft.isLater ? "later" : "now"}
            choices={WHENS}
            choose={(when) => change({ isLater: when === "later", timezone: draft.timezone || ownZone() })}
          />
          {draft.isLater && (
            <div class="pair">
              <Moment
                label="Send time"
                name="send-at"
                value={draft.sendAt}
                change={(sendAt) => change({ sendAt })}
                hint="At most 90 days ahead."
                fault={faultAt(check, "/send_at")}
              />
              <ZoneField
                timezone={draft.timezone}
                change={(timezone) => change({ timezone })}
                fault={faultAt(check, "/timezone")}
              />
            </div>
          )}
          <Shown of={calendar} what="the send time">
            {(calendar) => <p id="when">{timeWords(draft, calendar).join(" ")}</p>}
          </Shown>
        </>
      )}
      <Shown of={timetable} what="the timetable">
        {(preview) => <Retries preview={preview} />}
      </Shown>
      <details class="more" open={isOpen}>
        <summary>Time to live, urgency, policy</summary>
        <div class="pair">
          <Choice
            label="Time to live"
            name="ttl"
            value={draft.ttl}
            choices={[
              ["", `${duration(defaults.ttlS)} (default of the tier)`],
              ...TTLS.map((ttl) => [String(ttl), duration(ttl)] as const),
            ]}
            choose={(ttl) => change({ ttl })}
            hint="A browser that is offline for longer does not get the message."
            fault={faultAt(check, "/ttl")}
          />
          <Choice
            label="Urgency"
            name="urgency"
            value={draft.urgency}
            choices={[
              ["", `${defaults.urgency} (default of the tier)`],
              ...URGENCIES.map((urgency) => [urgency, urgency] as const),
            ]}
            choose={(urgency) => change({ urgency })}
            hint="Low urgency waits until the phone is charging or active."
            fault={faultAt(check, "/urgency")}
          />
          <Text
            label="Collapse key"
            name="collapse_key"
            value={draft.collapseKey}
            change={(collapseKey) => change({ collapseKey })}
            max={200}
            hint="An offline browser gets only the latest message with this key."
            fault={faultAt(check, "/collapse_key")}
          />
          <Choice
            label="Policy"
            name="policy"
            value={draft.policy}
            choices={names.map((name) => [name, PRESET_WORDS[name] ?? name] as const)}
            choose={(policy) => change({ policy })}
            hint={
              <>
                Retries after failures: see <a href={link("/policies")}>Policies</a>.
              </>
            }
            fault={faultAt(check, "/policy")}
          />
        </div>
      </details>
    </Card>
  );
}

function Retries({ preview: { timetable, when_throttled, set_by } }: { preview: PolicyPreviewResponse }) {
  const by = set_by.retry === "default" ? "Server default." : `Set by the ${set_by.retry}.`;
  return (
    <>
      <p>
        {retryWords(timetable)} <span class="fine">{by}</span>
      </p>
      {timetable.retries > 0 && (
        <details>
          <summary>Timetable</summary>
          <Rows caption="Retries after failures" timetable={timetable} />
          {when_throttled && (
            <Rows caption="Retries after the push service asked to slow down" timetable={when_throttled} />
          )}
        </details>
      )}
    </>
  );
}

function Rows({ caption, timetable }: { caption: string; timetable: Timetable }) {
  return (
    <>
      <p class="fine">{caption}</p>
      <Table
        caption={caption}
        rows={timetable.rows}
        id={({ first }) => first}
        columns={[
          { head: "Retry", cell: ({ first, last }) => (first === last ? first : `${first} to ${last}`) },
          { head: "After", isNumber: true, cell: ({ delay_s }) => duration(delay_s) },
          {
            head: "With jitter",
            isNumber: true,
            cell: ({ shortest_s, longest_s }) => `${duration(shortest_s)} to ${duration(longest_s)}`,
          },
          { head: "Total", isNumber: true, cell: ({ elapsed_s }) => duration(elapsed_s) },
        ]}
      />
    </>
  );
}
