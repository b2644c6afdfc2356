import type { AppView, DryRun } from "../../api/types";
import { things } from "../../lib/format";
import { AUDIENCES, isAddressed, type AudienceKind } from "../../lib/draft";
import { useResource } from "../../lib/resource";
import { Card } from "../../ui/card";
import { loadTopics } from "../messages/load";
import { Choice, Segments, Text } from "./fields";
import { faultAt, type PartProps } from "./parts";
import { Reach } from "./reach";

const WORDS: Record<AudienceKind, string> = { all: "Everybody", topic: "A topic", users: "Users", subscriptions: "Subscriptions" };

/** Whom it is for, and how many that is. */
export function AudienceCard({ app, draft, change, check }: PartProps) {
  return (
    <Card title="Who gets it">
      <Segments legend="Who gets it" name="audience" value={draft.audience} choices={AUDIENCES.map((kind) => [kind, WORDS[kind]])} choose={(audience) => change({ audience })} />
      {draft.audience === "topic" && <TopicField app={app} topic={draft.topic} choose={(topic) => change({ topic })} fault={faultAt(check, "/to/topic")} />}
      {draft.audience === "users" && (
        <Text
          label="Their ids, as your site has them"
          name="users"
          rows={2}
          value={draft.users}
          change={(users) => change({ users })}
          hint="Separated by commas or lines, 1,000 at most. All browsers of each get it."
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
          hint="Separated by commas or lines, 1,000 at most."
          fault={faultAt(check, "/to/subscriptions") ?? faultAt(check, "/to/subscriptions/0")}
        />
      )}
      {isAddressed(draft) ? <Reach check={check} about={about} /> : <p class="soft reach">Say who, and see how many that is.</p>}
    </Card>
  );
}

interface TopicProps {
  app: AppView;
  topic: string;
  choose: (topic: string) => void;
  fault: string | undefined;
}

export function TopicField({ app, topic, choose, fault }: TopicProps) {
  const topics = useResource(`topics ${app.id}`, (stop) => loadTopics(app.id, stop), { everyS: 300 });
  const names = new Set([...(topic ? [topic] : []), ...(topics.known.value?.value ?? [])]);
  if (topics.known.value && names.size === 0) return <p class="soft">This app has no topic yet. Browsers and servers make them by naming them for a subscription.</p>;
  return <Choice label="Topic" name="topic" value={topic} choices={[["", "Choose one"], ...[...names].map((name) => [name, name] as const)]} choose={choose} fault={fault} />;
}

const AN_ESTIMATE = " An estimate: whoever comes or goes before it is their turn is counted then. Several may belong to one person.";

/** What may still change how many get it. */
const about = ({ unreachable }: DryRun): string => (unreachable > 0 ? ` ${things(unreachable, "named one")} cannot be reached: no browser of theirs is active.` : AN_ESTIMATE);
