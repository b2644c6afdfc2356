import type { AppResponse, TemplateResponse } from "../../api/types";
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
import { loadTemplates } from "./load";

/** List of templates, newest first. */
export default function Templates() {
  const { app, apps } = useHere();
  return (
    <>
      <Head title="Templates" lead="Personal content, reused in messages and campaigns.">
        {app && (
          <div class="row">
            <Export
              name={`${app.slug}-templates`}
              page={async (after, limit, stop) => {
                const { templates, next } = await loadTemplates(app.id, after, stop, limit);
                return { rows: templates, next };
              }}
            />
            <Write app={app} />
          </div>
        )}
      </Head>
      {app ? <OfApp key={app.id} app={app} /> : <ChooseApp apps={apps} what="Each template belongs to an app." />}
    </>
  );
}

function Write({ app }: { app: AppResponse }) {
  const { go, link } = useFilters();
  const sender = useMay("sender", app.id);
  useKey("n", sender.may ? () => go("/templates/-new") : undefined);
  if (!sender.may) return <p class="fine">Your role does not allow writing templates. {sender.why}</p>;
  return (
    <a class="button primary" id="new-template" href={link("/templates/-new")}>
      New template <kbd>n</kbd>
    </a>
  );
}

function OfApp({ app }: { app: AppResponse }) {
  const { filters, link } = useFilters();
  const page = useResource(`templates ${app.id} ${filters.after}`, (stop) =>
    loadTemplates(app.id, filters.after, stop),
  );
  return (
    <>
      <Shown of={page} what="templates" isEmpty={({ templates }) => templates.length === 0} empty={<None app={app} />}>
        {({ templates }) => <TemplateTable templates={templates} />}
      </Shown>
      <Paging after={filters.after} sides={page.known.value?.value} to={(after) => link("/templates", { after })} />
    </>
  );
}

function None({ app }: { app: AppResponse }) {
  const { link } = useFilters();
  const sender = useMay("sender", app.id);
  return (
    <>
      <p>There is no template yet. A template is a notification with personal content:</p>
      <pre>
        <code>{'Hello {{ attributes.name | default("there") }}, {{ data.what }} is on its way'}</code>
      </pre>
      <p>
        A template renders attributes of the recipient and data of the message, in the recipient’s language. Messages
        and campaigns can use it instead of a text.
      </p>
      {sender.may && (
        <p>
          <a href={link("/templates/-new")}>Create the first template</a>. The preview is updated while you write.
        </p>
      )}
      <p>Or create it from a file:</p>
      <pre>
        <code>{`bellwire template put welcome --app ${app.slug} --file welcome.json`}</code>
      </pre>
    </>
  );
}

function TemplateTable({ templates }: { templates: TemplateResponse[] }) {
  const { link } = useFilters();
  return (
    <Table
      caption="Templates"
      rows={templates}
      id={({ name }) => name}
      columns={[
        { head: "Template", cell: ({ name }) => <a href={link(`/templates/${name}`)}>{name}</a> },
        { head: "Changed", cell: ({ changed_at }) => <Time at={changed_at} /> },
        { head: "Created", isExtra: true, cell: ({ created_at }) => <Time at={created_at} /> },
      ]}
    />
  );
}
