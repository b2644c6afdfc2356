import type { AppResponse, Export } from "../../api/types";
import { useResource } from "../../lib/resource";
import { EXPORT_STANDINGS, exportPath } from "../../lib/transfers";
import { useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Card } from "../../ui/card";
import { Count, Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import "../messages/messages.css";
import { loadExports } from "./load";

/** Exports of an app or of its subscriptions, and the recent exports. */
export function TakeOut({ app }: { app: AppResponse }) {
  const admin = useMay("admin", app.id);
  return (
    <Card title="Export">
      {admin.may ? <Files app={app} /> : <p class="fine">Your role does not allow exports. {admin.why}</p>}
      <Exports app={app} />
    </Card>
  );
}

const FILES = [
  ["all", "Everything", "ndjson"],
  ["ndjson", "Subscriptions", "ndjson"],
  ["csv", "Subscriptions as CSV", "csv"],
] as const;

function Files({ app }: { app: AppResponse }) {
  return (
    <>
      <p>
        “Everything” has the app with its settings, keys and subscriptions. <code>bellwire import</code> creates the
        same app on another server.
      </p>
      <p class="warning">
        The files hold secrets: with private keys and endpoints, their owner can send to your subscribers. Store them
        like keys. The audit log records the export.
      </p>
      <p class="row">
        {FILES.map(([what, words, ending]) => (
          <a
            key={what}
            class="button"
            data-take={what}
            href={exportPath(app.id, what)}
            download={`${app.slug}${what === "all" ? "" : "-subscriptions"}.${ending}`}
          >
            {words}
          </a>
        ))}
      </p>
      <p class="fine">
        A complete NDJSON file ends with a line of the type <code>end</code>.
      </p>
    </>
  );
}

function Exports({ app }: { app: AppResponse }) {
  const exports = useResource(`exports ${app.id}`, (stop) => loadExports(app.id, stop), { everyS: 10 });
  return (
    <Shown
      of={exports}
      what="recent exports"
      isEmpty={(exports) => exports.length === 0}
      empty={<p>No exports yet.</p>}
    >
      {(exports) => <ExportTable exports={exports} />}
    </Shown>
  );
}

function ExportTable({ exports }: { exports: Export[] }) {
  return (
    <Table
      caption="Exports"
      rows={exports}
      id={({ id }) => id}
      columns={[
        { head: "Started", cell: ({ started_at }) => <Time at={started_at} absolute /> },
        {
          head: "State",
          cell: ({ state }) => <Badge tone={EXPORT_STANDINGS[state].tone}>{EXPORT_STANDINGS[state].word}</Badge>,
        },
        { head: "Lines", isNumber: true, cell: ({ lines }) => <Count n={lines} /> },
        { head: "By", isExtra: true, cell: ({ by }) => <code>{by}</code> },
      ]}
    />
  );
}
