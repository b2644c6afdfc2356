import type { Draft as MessageDraft } from "../../lib/draft";
import { isAddressed } from "../../lib/draft";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { Card } from "../../ui/card";
import { SunsetFields, TopicField } from "../composer/audience";
import { Choice, Segments } from "../composer/fields";
import type { Check } from "../composer/load";
import { Reach } from "../composer/reach";
import { SegmentEditor } from "../segments/editor";
import { loadSegments } from "../segments/load";
import type { PartProps } from "./composer";

const NARROWED = [
  ["no", "No filter"],
  ["stored", "Segment"],
  ["own", "Conditions"],
] as const;

const COMES_AND_GOES = " Counted again when the campaign is due. One person may have several subscriptions.";
const DECIDED_THEN = " The segment is evaluated when each delivery is created.";

/** Audience, with its size. */
export function AudienceCard({ app, draft, change, check, changeMessage }: PartProps & { check: Check; changeMessage: (changes: Partial<MessageDraft>) => void }) {
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
        <Segments legend="Filter" name="narrowed" value={narrowed} choices={NARROWED} choose={(narrowed) => change({ narrowed })} />
      </div>
      {message.audience === "topic" && <TopicField app={app} topic={message.topic} choose={(topic) => changeMessage({ topic })} fault={check.problem?.fault("/to/topic")} />}
      {narrowed === "stored" && <SegmentField app={app} segment={draft.segment} choose={(segment) => change({ segment })} fault={fault} />}
      {narrowed === "own" && <SegmentEditor app={app} text={draft.expression} change={(expression) => change({ expression })} fault={draft.expression ? fault : undefined} />}
      <SunsetFields draft={message} change={changeMessage} fault={(pointer) => (check.isOld ? undefined : check.problem?.fault(pointer))} />
      {isAddressed(message) ? <Reach check={check} about={() => (narrowed === "no" ? COMES_AND_GOES : DECIDED_THEN)} /> : <p class="soft reach">Choose a topic to see its size.</p>}
    </Card>
  );
}

function SegmentField({ app, segment, choose, fault }: { app: PartProps["app"]; segment: string; choose: (segment: string) => void; fault: string | undefined }) {
  const { link } = useFilters();
  const stored = useResource(`segments ${app.id} all`, (stop) => loadSegments(app.id, undefined, stop, 250), { everyS: 300 });
  const known = stored.known.value?.value.segments ?? [];
  const chosen = known.find(({ name }) => name === segment);
  if (stored.known.value && known.length === 0) {
    return (
      <p class="soft">
        This app has no segments yet. <a href={link("/segments/-new")}>Create one</a>, or enter conditions for this campaign only.
      </p>
    );
  }
  const names = new Set([...(segment ? [segment] : []), ...known.map(({ name }) => name)]);
  return (
    <Choice
      label="Segment"
      name="segment"
      value={segment}
      choices={[["", "Choose one"], ...[...names].map((name) => [name, name] as const)]}
      choose={choose}
      hint={
        chosen && (
          <>
            {chosen.description} <code>{chosen.expression}</code>
          </>
        )
      }
      fault={fault}
    />
  );
}
