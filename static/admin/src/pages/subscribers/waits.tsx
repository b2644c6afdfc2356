import type { AppResponse, TriggerEntry } from "../../api/types";
import { useResource } from "../../lib/resource";
import { entryWords } from "../../lib/trigger";
import { useFilters } from "../../lib/url";
import { Card } from "../../ui/card";
import { Marked } from "../../ui/marked";
import { Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { loadWaits } from "./load";

interface Props {
  app: AppResponse;
  who: { user?: string; subscription?: string };
}

/** Messages that a person waits for because of events. Hidden without any. */
export function Waits({ app, who }: Props) {
  const waits = useResource(
    `waits ${app.id} ${who.user ?? who.subscription}`,
    (stop) => loadWaits(app.id, { user_id: who.user, subscription: who.subscription }, stop),
    {
      everyS: 15,
    },
  );
  if (!waits.problem.value && !waits.known.value?.value.length) return null;
  return (
    <Card title="Waits for">
      <Shown of={waits} what="the messages that wait">
        {(entries) => <Entries entries={entries} />}
      </Shown>
    </Card>
  );
}

export function Entries({ entries }: { entries: TriggerEntry[] }) {
  const { link } = useFilters();
  return (
    <Table
      caption="Waits for"
      rows={entries}
      id={({ campaign, caused_at }) => `${campaign} ${caused_at}`}
      columns={[
        { head: "Campaign", cell: ({ slug }) => <a href={link(`/campaigns/${slug}`)}>{slug}</a> },
        { head: "Due", cell: ({ due_at }) => <Time at={due_at} absolute /> },
        {
          head: "Because of",
          cell: ({ cause, caused_at }) => (
            <>
              <Marked text={entryWords(cause)} />{" "}
              <span class="fine">
                <Time at={caused_at} />
              </span>
            </>
          ),
        },
      ]}
    />
  );
}
