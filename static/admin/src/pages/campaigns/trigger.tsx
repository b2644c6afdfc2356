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
import { FunnelSteps } from "../../ui/funnel";
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
      <SpanFields
        word="Wait"
        name="wait"
        value={[trigger.wait, trigger.waitUnit]}
        change={([wait, waitUnit]) => change({ wait, waitUnit })}
        hint="0: immediately. Up to 90 days."
        fault={problem?.fault("/schedule/after")}
        check={faults.wait}
      />
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
        <SpanFields
          word="Period"
          name="limit-span"
          value={[trigger.limitSpan, trigger.limitUnit]}
          change={([limitSpan, limitUnit]) => change({ limitSpan, limitUnit })}
          hint="Up to 365 days."
          fault={problem?.fault("/schedule/at_most")}
          check={faults.limitSpan}
        />
      )}
    </>
  );
}

interface SpanProps {
  word: string;
  name: string;
  /** Number as written, and its unit. */
  value: readonly [string, Unit];
  change: (value: readonly [string, Unit]) => void;
  hint: string;
  fault: string | undefined;
  check: string | undefined;
}

/** Length of time: a number and its unit. */
function SpanFields({ word, name, value: [n, unit], change, hint, fault, check }: SpanProps) {
  return (
    <div class="pair">
      <Text
        label={word}
        name={name}
        value={n}
        change={(n) => change([n, unit])}
        max={8}
        hint={hint}
        fault={fault}
        check={check}
      />
      <Choice
        label={`Unit of the ${word.toLowerCase()}`}
        name={`${name}-unit`}
        value={unit}
        choices={UNIT_WORDS}
        choose={(unit) => change([n, unit as Unit])}
      />
    </div>
  );
}

/** Funnel from events to clicks. */
export function TriggerCard({ trigger, progress }: { trigger: TriggerCounts; progress: CampaignProgress }) {
  return (
    <Card title="From event to click">
      <FunnelSteps
        id="trigger"
        steps={triggerSteps(trigger, receipts(progress), progress.total.capped)}
        whole={trigger.entered}
      />
    </Card>
  );
}
