import type { AttemptResponse } from "../../api/types";
import { duration } from "../../lib/format";
import { Time } from "../../ui/numbers";
import { OneLine } from "../../ui/one-line";
import { Table } from "../../ui/table";
import type { Known } from "./load";

/** Raw data of the explanation. */
export function RawFacts({ known: { delivery, explanation } }: { known: Known }) {
  return (
    <details class="card raw" id="raw">
      <summary>Raw data: attempts, receipts, history</summary>
      {delivery && delivery.attempts.length > 0 && <Attempts attempts={delivery.attempts} />}
      {delivery && delivery.receipts.length > 0 && (
        <Table
          caption="Receipts"
          rows={delivery.receipts}
          id={({ kind }) => kind}
          columns={[
            { head: "Reported", cell: ({ kind }) => kind },
            { head: "When", cell: ({ at }) => <Time at={at} absolute /> },
            { head: "Button", cell: ({ action }) => action ?? "–" },
          ]}
        />
      )}
      <pre>
        <code>
          {JSON.stringify(
            {
              message: explanation.message,
              subscription: explanation.subscription,
              state: explanation.state,
              story: explanation.story.map(({ at, code, facts }) => ({ at, code, facts })),
            },
            null,
            2,
          )}
        </code>
      </pre>
    </details>
  );
}

function Attempts({ attempts }: { attempts: AttemptResponse[] }) {
  return (
    <Table
      caption="Attempts"
      rows={attempts}
      id={({ attempt }) => attempt}
      columns={[
        { head: "Attempt", cell: ({ attempt }) => attempt + 1 },
        { head: "When", cell: ({ at }) => <Time at={at} absolute /> },
        { head: "Outcome", cell: ({ ending }) => <code>{ending}</code> },
        { head: "Status", cell: ({ status }) => (status == null ? "–" : <code>{status}</code>) },
        { head: "Took", isNumber: true, cell: ({ took_ms }) => (took_ms == null ? "–" : duration(took_ms / 1_000)) },
        { head: "Response text", isExtra: true, cell: ({ reason }) => <OneLine text={reason || "–"} /> },
      ]}
    />
  );
}
