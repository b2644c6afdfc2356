import { fullCount, things } from "../../lib/format";
import { AUDIENCES, isAddressed, type AudienceKind } from "../../lib/draft";
import { useResource } from "../../lib/resource";
import { Card } from "../../ui/card";
import { loadTopics } from "../messages/load";
import { Choice, Segments, Text } from "./fields";
import { faultAt, type PartProps } from "./parts";

const WORDS: Record<AudienceKind, string> = { all: "Everybody", topic: "A topic", users: "Users", subscriptions: "Subscriptions" };

/** Whom it is for, and how many that is. */
export function AudienceCard({ app, draft, change, check }: PartProps) {
  return (
    <Card title="Who gets it">
      <Segments legend="Who gets it" name="audience" value={draft.audience} choices={AUDIENCES.map((kind) => [kind, WORDS[kind]])} choose={(audience) => change({ audience })} />
      {draft.audience === "topic" && <TopicField app={app} draft={draft} change={change} check={check} />}
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
      {isAddressed(draft) ? <Reach check={check} /> : <p class="soft reach">Say who, and see how many that is.</p>}
    </Card>
  );
}

function TopicField({ app, draft, change, check }: PartProps) {
  const topics = useResource(`topics ${app.id}`, (stop) => loadTopics(app.id, stop), { everyS: 300 });
  const names = new Set([...(draft.topic ? [draft.topic] : []), ...(topics.known.value?.value ?? [])]);
  if (topics.known.value && names.size === 0) return <p class="soft">This app has no topic yet. Browsers and servers make them by naming them for a subscription.</p>;
  const choices = [["", "Choose one"], ...[...names].map((name) => [name, name] as const)] as const;
  return <Choice label="Topic" name="topic" value={draft.topic} choices={choices} choose={(topic) => change({ topic })} fault={faultAt(check, "/to/topic")} />;
}

/** How many would get it, as far as that is known before. */
function Reach({ check: { counted, problem, isOld } }: Pick<PartProps, "check">) {
  if (!counted) {
    const isFaulty = problem?.faults.some(({ where }) => where.startsWith("/to"));
    return <p class="soft reach">{!problem ? "Counting…" : isFaulty ? "Nobody yet: see above." : "How many get it is counted once the rest is right."}</p>;
  }
  const { audience_estimate: n, unreachable } = counted;
  return (
    <p class="reach" id="reach" data-old={isOld || undefined}>
      <strong class="large">{fullCount(n)}</strong> active {n === 1 ? "subscription" : "subscriptions"}, as counted now.
      <span class="fine">
        {unreachable > 0
          ? ` ${things(unreachable, "named one")} cannot be reached: no browser of theirs is active.`
          : " An estimate: whoever comes or goes before it is their turn is counted then. Several may belong to one person."}
      </span>
    </p>
  );
}
