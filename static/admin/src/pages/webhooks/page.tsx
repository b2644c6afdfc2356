import type { AppResponse, WebhookResponse } from "../../api/types";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { hostOf, standing } from "../../lib/webhooks";
import { ChooseApp } from "../../shell/choose-app";
import { useHere, useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Head } from "../../ui/card";
import { Export } from "../../ui/export";
import { useKey } from "../../ui/key";
import { Count } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import "../messages/messages.css";
import { loadWebhooks } from "./load";

export default function Webhooks() {
  const { app, apps } = useHere();
  return (
    <>
      <Head title="Webhooks" lead="Events for your backend.">
        {app && (
          <div class="row">
            <Export
              name={`${app.slug}-webhooks`}
              page={async (_, __, stop) => ({ rows: await loadWebhooks(app.id, stop), next: undefined })}
            />
            <Make app={app} />
          </div>
        )}
      </Head>
      {app ? <OfApp key={app.id} app={app} /> : <ChooseApp apps={apps} what="Each webhook belongs to an app." />}
    </>
  );
}

function Make({ app }: { app: AppResponse }) {
  const { go, link } = useFilters();
  const admin = useMay("admin", app.id);
  useKey("n", admin.may ? () => go("/webhooks/-new") : undefined);
  if (!admin.may) return <p class="fine">Your role does not allow creating webhooks. {admin.why}</p>;
  return (
    <a class="button primary" id="new-webhook" href={link("/webhooks/-new")}>
      New webhook <kbd>n</kbd>
    </a>
  );
}

function OfApp({ app }: { app: AppResponse }) {
  const webhooks = useResource(`webhooks ${app.id}`, (stop) => loadWebhooks(app.id, stop), {
    on: ["alert.raised", "alert.resolved"],
    everyS: 30,
  });
  return (
    <Shown of={webhooks} what="webhooks" isEmpty={(webhooks) => webhooks.length === 0} empty={<None app={app} />}>
      {(webhooks) => <WebhookTable webhooks={webhooks} />}
    </Shown>
  );
}

function None({ app }: { app: AppResponse }) {
  return (
    <>
      <p>
        There is no webhook yet. A webhook sends events about deliveries, clicks and campaigns to your backend: signed
        requests with retries.
      </p>
      <p>With the command line:</p>
      <pre>
        <code>{`bellwire webhook create --app ${app.slug} --name CRM --url https://hooks.example.com/bellwire --event delivery.gone,delivery.clicked`}</code>
      </pre>
    </>
  );
}

function WebhookTable({ webhooks }: { webhooks: WebhookResponse[] }) {
  const { link } = useFilters();
  return (
    <Table
      caption="Webhooks"
      rows={webhooks}
      id={({ id }) => id}
      look={() => "stacked"}
      columns={[
        {
          head: "Webhook",
          cell: ({ id, name, url }) => (
            <>
              <a href={link(`/webhooks/${id}`)}>{name}</a>
              <br />
              <span class="fine">{hostOf(url)}</span>
            </>
          ),
        },
        { head: "State", cell: (webhook) => <Badge tone={standing(webhook).tone}>{standing(webhook).word}</Badge> },
        { head: "Waiting", isNumber: true, cell: ({ pending }) => <Count n={pending} /> },
        { head: "Failed", isNumber: true, cell: ({ failed }) => <Count n={failed} /> },
        { head: "Event types", isNumber: true, isExtra: true, cell: ({ events }) => events.length },
      ]}
    />
  );
}
