import type { Draft as MessageDraft } from "../../lib/draft";
import { isAddressed } from "../../lib/draft";
import { Card } from "../../ui/card";
import { SegmentField, SunsetFields, TopicField } from "../composer/audience";
import { Segments } from "../composer/fields";
import type { Check } from "../composer/load";
import { Reach } from "../composer/reach";
import { SegmentEditor } from "../segments/editor";
import type { PartProps } from "./composer";

const NARROWED = [
  ["no", "No filter"],
  ["stored", "Segment"],
  ["own", "Conditions"],
] as const;

const COMES_AND_GOES = " Counted again when the campaign is due. One person may have several subscriptions.";
const DECIDED_THEN = " The segment is evaluated when each delivery is created.";

/** Audience, with its size. */
export function AudienceCard({
  app,
  draft,
  change,
  check,
  changeMessage,
}: PartProps & { check: Check; changeMessage: (changes: Partial<MessageDraft>) => void }) {
  const { message, narrowed } = draft;
  const fault = check.isOld ? undefined : check.problem?.fault("/to/segment");
  return (
    <Card title="Audience">
      <div class="row">
        <Segments
          legend="Audience"
          name="audience"
          value={message.audience === "topic" ? "topic" : "all"}
          choices={[
            ["all", "All subscribers"],
            ["topic", "Topic"],
          ]}
          choose={(audience) => changeMessage({ audience })}
        />
        <Segments
          legend="Filter"
          name="narrowed"
          value={narrowed}
          choices={NARROWED}
          choose={(narrowed) => change({ narrowed })}
        />
      </div>
      {message.audience === "topic" && (
        <TopicField
          app={app}
          topic={message.topic}
          choose={(topic) => changeMessage({ topic })}
          fault={check.problem?.fault("/to/topic")}
        />
      )}
      {narrowed === "stored" && (
        <SegmentField app={app} segment={draft.segment} choose={(segment) => change({ segment })} fault={fault} />
      )}
      {narrowed === "own" && (
        <SegmentEditor
          app={app}
          text={draft.expression}
          change={(expression) => change({ expression })}
          fault={draft.expression ? fault : undefined}
        />
      )}
      <SunsetFields
        draft={message}
        change={changeMessage}
        fault={(pointer) => (check.isOld ? undefined : check.problem?.fault(pointer))}
      />
      {isAddressed(message) ? (
        <Reach check={check} about={() => (narrowed === "no" ? COMES_AND_GOES : DECIDED_THEN)} />
      ) : (
        <p class="soft reach">Choose a topic to see its size.</p>
      )}
    </Card>
  );
}
