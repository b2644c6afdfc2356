import { useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import type { AppResponse, WebhookDeliveryDetail } from "../../api/types";
import { capital, things } from "../../lib/format";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { replayWords, requestWords, tryWords } from "../../lib/webhooks";
import { ChooseApp } from "../../shell/choose-app";
import { useHere, useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Card, Head } from "../../ui/card";
import { Ask } from "../../ui/form";
import { Time } from "../../ui/numbers";
import { OneLine } from "../../ui/one-line";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { loadRequest, replay } from "./load";

/** One request to a webhook's receiver, with each try and its content. */
export default function RequestPage() {
  const { params } = useRoute();
  const { app, apps } = useHere();
  const { link } = useFilters();
  const [webhook, id] = [params.webhook ?? "", params.request ?? ""];
  return (
    <>
      <p class="back">
        <a href={link(`/webhooks/${webhook}`)}>Webhook</a>
      </p>
      {app ? (
        <OfApp key={id} app={app} webhook={webhook} id={id} />
      ) : (
        <ChooseApp apps={apps} what="Each webhook belongs to an app." />
      )}
    </>
  );
}

function OfApp({ app, webhook, id }: { app: AppResponse; webhook: string; id: string }) {
  const story = useResource(`request ${id}`, (stop) => loadRequest(app.id, webhook, id, stop), { everyS: 10 });
  const admin = useMay("admin", app.id);
  const [isAsked, ask] = useState(false);
  return (
    <Shown of={story} what="this request">
      {(shown) => (
        <>
          <Head title="Request" lead={<code>{shown.id}</code>}>
            {shown.state === "failed" &&
              (admin.may ? (
                <button type="button" id="replay" onClick={() => ask(true)}>
                  Replay…
                </button>
              ) : (
                <p class="fine">Your role does not allow replaying requests. {admin.why}</p>
              ))}
          </Head>
          <p id="request-state" data-state={shown.state}>
            <Badge tone={requestWords(shown).tone}>{requestWords(shown).word}</Badge>{" "}
            {capital(things(shown.events, "event"))}, created <Time at={shown.created_at} />.{" "}
            {shown.due_at && (
              <>
                Next attempt <Time at={shown.due_at} />.
              </>
            )}
          </p>
          <Tries story={shown} />
          <Card title="Content">
            {shown.body ? (
              <pre tabIndex={0}>
                <code>{JSON.stringify(shown.body, null, 2)}</code>
              </pre>
            ) : (
              <p class="soft">The content of delivered requests is not kept.</p>
            )}
          </Card>
          {isAsked && (
            <Ask
              title="Replay this request?"
              says={replayWords(1)}
              button="Replay"
              work={async () => {
                await replay(app.id, webhook, { webhook_delivery: id });
                ask(false);
                await story.refresh();
              }}
              onClose={() => ask(false)}
            />
          )}
        </>
      )}
    </Shown>
  );
}

function Tries({ story: { recent_attempts, attempts } }: { story: WebhookDeliveryDetail }) {
  return (
    <Card
      title="Attempts"
      aside={recent_attempts.length < attempts && <span class="fine">the last {recent_attempts.length}</span>}
    >
      {recent_attempts.length === 0 ? (
        <p>No attempt yet.</p>
      ) : (
        <Table
          caption="Attempts"
          rows={recent_attempts}
          id={({ number, at }) => `${number} ${at}`}
          columns={[
            { head: "Attempt", cell: ({ number }) => (number === 0 ? "First" : `Retry ${number}`) },
            { head: "At", cell: ({ at }) => <Time at={at} absolute /> },
            { head: "Response", cell: (one) => <OneLine text={tryWords(one)} /> },
          ]}
        />
      )}
    </Card>
  );
}
