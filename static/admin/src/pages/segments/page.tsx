import type { AppResponse, SegmentResponse } from "../../api/types";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { ChooseApp } from "../../shell/choose-app";
import { useHere, useMay } from "../../shell/context";
import { Head } from "../../ui/card";
import { Export } from "../../ui/export";
import { useKey } from "../../ui/key";
import { Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { Paging } from "../../ui/paging";
import "../messages/messages.css";
import { loadSegments } from "./load";
import "./segments.css";

/** List of segments, newest first. */
export default function Segments() {
  const { app, apps } = useHere();
  return (
    <>
      <Head title="Segments" lead="Subscriptions that match conditions, and their number.">
        {app && (
          <div class="row">
            <Export
              name={`${app.slug}-segments`}
              page={async (after, limit, stop) => {
                const { segments, next } = await loadSegments(app.id, after, stop, limit);
                return { rows: segments, next };
              }}
            />
            <Write app={app} />
          </div>
        )}
      </Head>
      {app ? <OfApp key={app.id} app={app} /> : <ChooseApp apps={apps} what="Each segment belongs to an app." />}
    </>
  );
}

function Write({ app }: { app: AppResponse }) {
  const { go, link } = useFilters();
  const sender = useMay("sender", app.id);
  useKey("n", sender.may ? () => go("/segments/-new") : undefined);
  if (!sender.may) return <p class="fine">Your role does not allow creating segments. {sender.why}</p>;
  return (
    <a class="button primary" id="new-segment" href={link("/segments/-new")}>
      New segment <kbd>n</kbd>
    </a>
  );
}

function OfApp({ app }: { app: AppResponse }) {
  const { filters, link } = useFilters();
  const page = useResource(`segments ${app.id} ${filters.after}`, (stop) => loadSegments(app.id, filters.after, stop));
  return (
    <>
      <Shown of={page} what="segments" isEmpty={({ segments }) => segments.length === 0} empty={<None app={app} />}>
        {({ segments }) => <SegmentTable segments={segments} />}
      </Shown>
      <Paging after={filters.after} sides={page.known.value?.value} to={(after) => link("/segments", { after })} />
    </>
  );
}

function None({ app }: { app: AppResponse }) {
  const { link } = useFilters();
  const sender = useMay("sender", app.id);
  return (
    <>
      <p>There is no segment yet. A segment is a named set of conditions on subscriptions:</p>
      <pre>
        <code>{'(plan = "pro" or tag("beta")) and last_seen < 30d and not clicked("spring")'}</code>
      </pre>
      <p>
        Conditions use tags, topics, attributes, languages, browsers and reactions. Messages and campaigns use a segment
        by its name. It is evaluated when each delivery is created.
      </p>
      {sender.may && (
        <p>
          <a href={link("/segments/-new")}>Create the first segment</a>. Its size is shown while you write.
        </p>
      )}
    </>
  );
}

function SegmentTable({ segments }: { segments: SegmentResponse[] }) {
  const { link } = useFilters();
  return (
    <Table
      caption="Segments"
      rows={segments}
      id={({ name }) => name}
      columns={[
        {
          head: "Segment",
          cell: ({ name, description }) => (
            <>
              <a href={link(`/segments/${name}`)}>{name}</a>
              {description && (
                <>
                  <br />
                  <span class="fine">{description}</span>
                </>
              )}
            </>
          ),
        },
        { head: "Conditions", cell: ({ expression }) => <code>{expression}</code> },
        { head: "Changed", isExtra: true, cell: ({ changed_at }) => <Time at={changed_at} /> },
      ]}
    />
  );
}
