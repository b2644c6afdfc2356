import { useState } from "preact/hooks";
import type { AppResponse, DryRun } from "../../api/types";
import { things } from "../../lib/format";
import {
  AUDIENCES,
  isAddressed,
  maySunset,
  sunsetOf,
  sunsetWords,
  type AudienceKind,
  type Draft,
} from "../../lib/draft";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { Card } from "../../ui/card";
import { loadTopics } from "../messages/load";
import { loadSegments } from "../segments/load";
import { Choice, Segments, Text } from "./fields";
import { faultAt, type PartProps } from "./parts";
import { Reach } from "./reach";

const WORDS: Record<AudienceKind, string> = {
  all: "All subscribers",
  topic: "Topic",
  segment: "Segment",
  users: "Users",
  subscriptions: "Subscriptions",
};

/** Audience, with its size. */
export function AudienceCard({ app, draft, change, check }: PartProps) {
  return (
    <Card title="Audience">
      <Segments
        legend="Audience"
        name="audience"
        value={draft.audience}
        choices={AUDIENCES.map((kind) => [kind, WORDS[kind]])}
        choose={(audience) => change({ audience })}
      />
      {draft.audience === "topic" && (
        <TopicField
          app={app}
          topic={draft.topic}
          choose={(topic) => change({ topic })}
          fault={faultAt(check, "/to/topic")}
        />
      )}
      {draft.audience === "segment" && (
        <SegmentField
          app={app}
          segment={draft.segment}
          choose={(segment) => change({ segment })}
          fault={faultAt(check, "/to/segment")}
        />
      )}
      {draft.audience === "users" && (
        <Text
          label="User ids of your site"
          name="users"
          rows={2}
          value={draft.users}
          change={(users) => change({ users })}
          hint="Separated by commas or lines, at most 1,000. Each user gets the message on all browsers."
          fault={faultAt(check, "/to/users")}
        />
      )}
      {draft.audience === "subscriptions" && (
        <Text
          label="Subscriptions"
          name="subscriptions"
          rows={2}
          value={draft.subscriptions}
          change={(subscriptions) => change({ subscriptions })}
          placeholder="sub_…"
          hint="Separated by commas or lines, at most 1,000."
          fault={faultAt(check, "/to/subscriptions") ?? faultAt(check, "/to/subscriptions/0")}
        />
      )}
      <SunsetFields draft={draft} change={change} fault={(pointer) => faultAt(check, pointer)} />
      {isAddressed(draft) ? (
        <Reach check={check} about={about} />
      ) : (
        <p class="soft reach">Choose an audience to see its size.</p>
      )}
    </Card>
  );
}

interface TopicProps {
  app: AppResponse;
  /** By default `topic`. */
  name?: string;
  topic: string;
  choose: (topic: string) => void;
  fault: string | undefined;
}

export function TopicField({ app, name = "topic", topic, choose, fault }: TopicProps) {
  const topics = useResource(`topics ${app.id}`, (stop) => loadTopics(app.id, stop), { everyS: 300 });
  const names = new Set([...(topic ? [topic] : []), ...(topics.known.value?.value ?? [])]);
  if (topics.known.value && names.size === 0)
    return <p class="soft">This app has no topics yet. A topic is created when a subscription joins it.</p>;
  return (
    <Choice
      label="Topic"
      name={name}
      value={topic}
      choices={[["", "Choose one"], ...[...names].map((name) => [name, name] as const)]}
      choose={choose}
      fault={fault}
    />
  );
}

interface SegmentProps {
  app: AppResponse;
  segment: string;
  choose: (segment: string) => void;
  fault: string | undefined;
}

/** Choice of a stored segment, with its conditions. */
export function SegmentField({ app, segment, choose, fault }: SegmentProps) {
  const { link } = useFilters();
  const stored = useResource(`segments ${app.id} all`, (stop) => loadSegments(app.id, undefined, stop, 250), {
    everyS: 300,
  });
  const known = stored.known.value?.value.segments ?? [];
  const chosen = known.find(({ name }) => name === segment);
  if (stored.known.value && known.length === 0 && !segment) {
    return (
      <p class="soft">
        This app has no segments yet. <a href={link("/segments/-new")}>Create one</a>
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

interface SunsetProps {
  draft: Draft;
  change: (changes: Partial<Draft>) => void;
  fault: (pointer: string) => string | undefined;
}

export function SunsetFields({ draft, change, fault }: SunsetProps) {
  const { link } = useFilters();
  const [isOpen] = useState(() => sunsetOf(draft) !== undefined);
  if (!maySunset(draft)) return null;
  const rule = sunsetOf(draft);
  return (
    <details class="more" id="sunset" open={isOpen}>
      <summary>Exclude inactive subscribers (sunset)</summary>
      <div class="pair">
        <Text
          label="Messages shown without a click"
          name="unclicked"
          value={draft.unclicked}
          change={(unclicked) => change({ unclicked })}
          max={3}
          placeholder="10"
          hint="1 to 100."
          fault={fault("/sunset/unclicked")}
        />
        <Text
          label="Period without a click"
          name="unclicked-for"
          value={draft.unclickedFor}
          change={(unclickedFor) => change({ unclickedFor })}
          max={5}
          placeholder="60d"
          hint="In hours or days, 1h to 365d."
          fault={fault("/sunset/unclicked_for")}
        />
        <Text
          label="Keep new subscribers for"
          name="welcome"
          value={draft.welcome}
          change={(welcome) => change({ welcome })}
          max={5}
          placeholder="30d"
          fault={fault("/sunset/welcome")}
        />
      </div>
      <p class="fine" id="sunset-words" aria-live="polite">
        {rule ? sunsetWords(rule) : "All given conditions must apply."} A <a href={link("/segments/-new")}>segment</a>{" "}
        shows their number: <code>unclicked &gt;= 10</code>.
      </p>
    </details>
  );
}

const AN_ESTIMATE = " The count may change before sending. One person may have several subscriptions.";

/** Reasons for changes of the count. */
const about = ({ unreachable }: DryRun): string =>
  unreachable > 0 ? ` ${things(unreachable, "listed recipient")} cannot be reached: no active browser.` : AN_ESTIMATE;
