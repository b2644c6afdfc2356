import type { AppResponse, Import } from "../../api/types";
import { clock } from "../../lib/clock";
import { shortId } from "../../lib/deliveries";
import { useResource, type Resource } from "../../lib/resource";
import { importStanding } from "../../lib/transfers";
import { useFilters } from "../../lib/url";
import { OfApp } from "../../shell/of-app";
import { Badge } from "../../ui/badge";
import { Card, Head } from "../../ui/card";
import { Export, whole } from "../../ui/export";
import { Count, Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { BringIn } from "./bring-in";
import { TakeOut } from "./take-out";
import { loadImport, loadImports } from "./load";
import { Report } from "./report";
import "./transfers.css";

export default function Transfers() {
  return (
    <>
      <Head title="Import & export" lead="Files of subscriptions." />
      <OfApp what="Each import belongs to an app.">{(app) => <OfOneApp key={app.id} app={app} />}</OfApp>
    </>
  );
}

function OfOneApp({ app }: { app: AppResponse }) {
  const { filters } = useFilters();
  const imports = useResource(`imports ${app.id}`, (stop) => loadImports(app.id, stop), { everyS: 15 });
  const named = imports.known.value?.value.find(({ id }) => id === filters.import);
  return (
    <>
      {filters.import && <OneImport key={filters.import} app={app} id={filters.import} />}
      <BringIn app={app} open={named?.finished_at ? undefined : filters.import} onDone={imports.refresh} />
      <Imports imports={imports} />
      <TakeOut app={app} />
    </>
  );
}

function Imports({ imports }: { imports: Resource<Import[]> }) {
  const { link } = useFilters();
  return (
    <Card title="Recent imports" aside={<Export name="imports" page={whole(imports.known.value?.value)} />}>
      <Shown of={imports} what="imports" isEmpty={(imports) => imports.length === 0} empty={<p>No imports yet.</p>}>
        {(imports) => (
          <Table
            caption="Imports"
            rows={imports}
            id={({ id }) => id}
            columns={[
              {
                head: "Started",
                cell: ({ id, created_at }) => (
                  <>
                    <a href={link("/transfers", { import: id })}>
                      <Time at={created_at} absolute />
                    </a>
                    <br />
                    <span class="fine keep">{shortId(id)}</span>
                  </>
                ),
              },
              { head: "State", cell: (one) => <Standing of={one} /> },
              { head: "Lines", isNumber: true, cell: ({ lines }) => <Count n={lines} /> },
              { head: "New", isNumber: true, isExtra: true, cell: ({ added }) => <Count n={added} /> },
              { head: "Known", isNumber: true, isExtra: true, cell: ({ known }) => <Count n={known} /> },
              { head: "Invalid", isNumber: true, cell: ({ refused }) => <Count n={refused} /> },
            ]}
          />
        )}
      </Shown>
    </Card>
  );
}

function Standing({ of }: { of: Import }) {
  const { tone, word } = importStanding(of, clock.shown.value);
  return <Badge tone={tone}>{word}</Badge>;
}

/** Import named in the address: its result, and how to resume it. */
function OneImport({ app, id }: { app: AppResponse; id: string }) {
  const { link } = useFilters();
  const found = useResource(`import ${id}`, (stop) => loadImport(app.id, id, stop), { everyS: 5 });
  return (
    <Card
      title="Import"
      aside={
        <span class="fine">
          <code>{id}</code> · <a href={link("/transfers")}>Close</a>
        </span>
      }
    >
      <Shown of={found} what="this import">
        {(shown) => (
          <>
            <p>
              <Standing of={shown} /> started <Time at={shown.created_at} />, {shown.format}
            </p>
            <Report of={shown} />
            {!shown.finished_at && (
              <p class="fine">
                To resume an interrupted import, choose the same file below: finished lines are skipped.
              </p>
            )}
          </>
        )}
      </Shown>
    </Card>
  );
}
