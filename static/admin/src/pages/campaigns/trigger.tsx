import type { CampaignProgress, TriggerCounts } from "../../api/types";
import { receipts } from "../../lib/campaigns";
import {
  triggerFaults,
  triggerSteps,
  UNITS,
  UNLESS_MAX,
  type Cause,
  type TriggerDraft,
  type Unit,
} from "../../lib/trigger";
import { Card } from "../../ui/card";
import { Count } from "../../ui/numbers";
import { TopicField } from "../composer/audience";
import { Choice, Text } from "../composer/fields";
import type { PartProps } from "./composer";

const CAUSE_WORDS: readonly (readonly [Cause, string])[] = [
  ["subscribed", "A browser subscribes"],
  ["joined", "A browser joins a topic"],
  ["event", "Your site reports an event"],
];
const UNIT_WORDS = UNITS.map(([letter, words]) => [letter, words] as const);

/** Event that starts the campaign for a person, wait, and limits. */
export function TriggerFields({ app, draft, change: changeDraft, problem }: PartProps) {
  const { trigger } = draft;
  const { cause } = trigger;
  const change = (changes: Partial<TriggerDraft>) => changeDraft({ trigger: { ...trigger, ...changes } });
  const faults = triggerFaults(trigger);
  const onFault = problem?.fault("/schedule/on");
  return (
    <>
      <div class="pair">
        <Choice
          label="Event"
          name="cause"
          value={cause}
          choices={CAUSE_WORDS}
          choose={(cause) => change({ cause: cause as Cause })}
          fault={cause === "subscribed" ? onFault : undefined}
        />
        {cause === "joined" && (
          <TopicField
            app={app}
            name="cause-topic"
            topic={trigger.topic}
            choose={(topic) => change({ topic })}
            fault={onFault}
          />
        )}
        {cause === "event" && (
          <Text
            label="Name of the event"
            name="event"
            value={trigger.event}
            change={(event) => change({ event })}
            placeholder="cart_added"
            max={64}
            fault={onFault}
            check={faults.event}
          />
        )}
      </div>
      {cause === "event" && (
        <Text
          label="Condition"
          name="condition"
          value={trigger.condition}
          change={(condition) => change({ condition })}
          placeholder="any event with this name"
          max={4096}
          hint={
            <>
              On the properties of the event, in the language of segments, such as <code>total &gt;= 50</code>.
            </>
          }
          fault={problem?.fault("/schedule/where")}
        />
      )}
      <div class="pair">
        <Text
          label="Wait"
          name="wait"
          value={trigger.wait}
          change={(wait) => change({ wait })}
          max={7}
          hint="0: immediately. Up to 90 days."
          fault={problem?.fault("/schedule/after")}
          check={faults.wait}
        />
        <Choice
          label="Unit of the wait"
          name="wait-unit"
          value={trigger.waitUnit}
          choices={UNIT_WORDS}
          choose={(unit) => change({ waitUnit: unit as Unit })}
        />
      </div>
      <div class="pair">
        <Text
          label="Unless"
          name="unless"
          value={trigger.unless}
          change={(unless) => change({ unless })}
          placeholder="bought"
          max={400}
          hint={`Events that end the wait, separated by commas, up to ${UNLESS_MAX}.`}
          fault={problem?.fault("/schedule/unless")}
          check={faults.unless}
        />
        <Choice
          label="Messages to one person, at most"
          name="limit"
          value={trigger.limit}
          choices={[
            ["none", "No limit"],
            ["once", "Once"],
            ["per", "Once per period"],
          ]}
          choose={(limit) => change({ limit: limit as TriggerDraft["limit"] })}
          fault={trigger.limit === "per" ? undefined : problem?.fault("/schedule/at_most")}
        />
      </div>
      {trigger.limit === "per" && (
        <div class="pair">
          <Text
            label="Period"
            name="limit-span"
            value={trigger.limitSpan}
            change={(limitSpan) => change({ limitSpan })}
            max={8}
            hint="Up to 365 days."
            fault={problem?.fault("/schedule/at_most")}
            check={faults.limitSpan}
          />
          <Choice
            label="Unit of the period"
            name="limit-unit"
            value={trigger.limitUnit}
            choices={UNIT_WORDS}
            choose={(unit) => change({ limitUnit: unit as Unit })}
          />
        </div>
      )}
    </>
  );
}

/** Funnel from events to clicks. */
export function TriggerCard({ trigger, progress }: { trigger: TriggerCounts; progress: CampaignProgress }) {
  const steps = triggerSteps(trigger, receipts(progress));
  const width = (n: number) => ({
    width: `${trigger.entered === 0 ? 0 : Math.min(100, (n / trigger.entered) * 100)}%`,
  });
  return (
    <Card title="From event to click">
      <ol class="funnel" id="trigger">
        {steps.map(({ word, n, share, about }) => (
          <li key={word} data-step={word}>
            <p>
              {word}{" "}
              <strong>
                <Count n={n} />
              </strong>{" "}
              {share && <span class="fine">{share}</span>}
            </p>
            <div class="bar" aria-hidden="true">
              <span class="known" style={width(n)} />
            </div>
            {about && <p class="fine">{about}</p>}
          </li>
        ))}
      </ol>
    </Card>
  );
}
