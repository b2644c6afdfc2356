import { useMemo, useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import type { AppResponse, WebhookResponse } from "../../api/types";
import { actorWords } from "../../lib/audit";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { BLANK, bodyOf, draftOf, standing } from "../../lib/webhooks";
import { ChooseApp } from "../../shell/choose-app";
import { useHere, useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Card, Fact, Head } from "../../ui/card";
import { ShownOnce } from "../../ui/copy";
import { useDialog } from "../../ui/dialog";
import { useEdit } from "../../ui/edit";
import { Count, Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { DeleteDialog, ReplayDialog, RotateDialog, SwitchDialog, TestDialog, type DialogProps } from "./acts";
import { WebhookForm } from "./form";
import { changeWebhook, loadWebhook, makeWebhook } from "./load";
import { Requests } from "./requests";

/** Path of the form for a new webhook: no id begins with a hyphen. */
const NEW = "-new";

/** One webhook: its state, its event types, and the result of each request. */
export default function WebhookPage() {
  const { params } = useRoute();
  const { app, apps } = useHere();
  const { link } = useFilters();
  const id = params.webhook ?? "";
  return (
    <>
      <p class="back">
        <a href={link("/webhooks")}>Webhooks</a>
      </p>
      {!app ? (
        <>
          <Head title="Webhook" />
          <ChooseApp apps={apps} what="Each webhook belongs to an app." />
        </>
      ) : id === NEW ? (
        <New key={app.id} app={app} />
      ) : (
        <Existing key={`${app.id} ${id}`} app={app} id={id} />
      )}
    </>
  );
}

function New({ app }: { app: AppResponse }) {
  const admin = useMay("admin", app.id);
  const { go } = useFilters();
  const key = useMemo(() => crypto.randomUUID(), []);
  const [made, setMade] = useState<WebhookResponse>();
  if (!admin.may) {
    return (
      <>
        <Head title="New webhook" />
        <p class="refused">Your role does not allow creating webhooks. {admin.why}</p>
      </>
    );
  }
  return (
    <>
      <Head title={made ? `Webhook “${made.name}” created` : "New webhook"} lead="Events for your backend." />
      <Card title={made ? "Secret" : "Receiver and events"}>
        {made ? (
          <>
            <p>Your receiver verifies requests with this secret, with any library for Standard Webhooks.</p>
            <ShownOnce id="webhook-secret" what="secret" text={made.secret ?? ""} />
            <p>
              <button type="button" class="primary" id="have-it" onClick={() => go(`/webhooks/${made.id}`)}>
                Done
              </button>
            </p>
          </>
        ) : (
          <WebhookForm
            app={app}
            begin={BLANK}
            button="Create"
            save={async (draft) => setMade(await makeWebhook(app.id, bodyOf(draft), key))}
            onLeave={() => go("/webhooks")}
          />
        )}
      </Card>
    </>
  );
}

function Existing({ app, id }: { app: AppResponse; id: string }) {
  const webhook = useResource(`webhook ${id}`, (stop) => loadWebhook(app.id, id, stop), {
    on: ["alert.raised", "alert.resolved"],
    everyS: 15,
  });
  return (
    <Shown of={webhook} what="this webhook">
      {(shown) => <One app={app} webhook={shown} refresh={webhook.refresh} />}
    </Shown>
  );
}

type Asked = "edit" | "test" | "rotate" | "switch" | "delete" | "replay";

function One({ app, webhook, refresh }: { app: AppResponse; webhook: WebhookResponse; refresh: () => Promise<void> }) {
  const { open: asked, show: ask, close } = useDialog<Asked>();
  const [told, setTold] = useState(0);
  const { tone, word, why } = standing(webhook);
  const reload = async () => {
    await refresh();
    setTold(told + 1);
  };
  const dialog: DialogProps = { app, webhook, refresh: reload, onClose: close };
  return (
    <>
      <Head
        title={webhook.name}
        lead={
          <>
            <Badge tone={tone}>{word}</Badge> {why}
          </>
        }
      />
      <Acts app={app} webhook={webhook} isEdited={asked === "edit"} ask={ask} />
      {asked === "edit" ? (
        <Card title="Edit">
          <Change {...dialog} />
        </Card>
      ) : (
        <About webhook={webhook} />
      )}
      <Requests key={told} app={app} webhook={webhook} replay={() => ask("replay")} />
      {asked === "test" && <TestDialog {...dialog} />}
      {asked === "rotate" && <RotateDialog {...dialog} />}
      {asked === "switch" && <SwitchDialog {...dialog} />}
      {asked === "delete" && <DeleteDialog {...dialog} />}
      {asked === "replay" && <ReplayDialog {...dialog} />}
    </>
  );
}

function Acts({
  app,
  webhook,
  isEdited,
  ask,
}: {
  app: AppResponse;
  webhook: WebhookResponse;
  isEdited: boolean;
  ask: (asked: Asked) => void;
}) {
  const admin = useMay("admin", app.id);
  if (!admin.may)
    return <p class="fine">Your role does not allow testing, changing or deleting webhooks. {admin.why}</p>;
  if (isEdited) return null;
  const isOn = webhook.state === "active";
  return (
    <div class="row acts" role="group" aria-label="Actions">
      {isOn && (
        <button type="button" id="test" class="primary" onClick={() => ask("test")}>
          Test…
        </button>
      )}
      <button type="button" id="edit" onClick={() => ask("edit")}>
        Edit…
      </button>
      <button type="button" id="switch" class={isOn ? "" : "primary"} onClick={() => ask("switch")}>
        {isOn ? "Disable…" : "Enable…"}
      </button>
      <button type="button" id="rotate" onClick={() => ask("rotate")}>
        New secret…
      </button>
      <button type="button" id="delete" onClick={() => ask("delete")}>
        Delete…
      </button>
    </div>
  );
}

/** Settings of a webhook in the form. */
const written = ({ name, url, events, max_events, policy }: WebhookResponse): object => ({
  name,
  url,
  events,
  max_events,
  policy,
});

function Change({ app, webhook, refresh, onClose }: DialogProps) {
  const reload = async () => {
    await refresh();
    onClose();
  };
  // How many wait for it changes all the time.
  const edit = useEdit({
    begun: webhook,
    load: (stop) => loadWebhook(app.id, webhook.id, stop),
    written,
    reload,
    isLive: true,
  });
  const [begin] = useState(() => draftOf(webhook));
  const save = async (draft: typeof begin) => {
    await edit.save((condition) => changeWebhook(app.id, webhook.id, bodyOf(draft), condition));
    await reload();
  };
  return <WebhookForm app={app} begin={begin} button="Save" save={save} onLeave={onClose} />;
}

function About({ webhook }: { webhook: WebhookResponse }) {
  const { session } = useHere();
  const {
    url,
    events,
    max_events,
    policy,
    pending,
    failed,
    dropped_events,
    failing_since,
    open_until,
    former_secret_until,
    changed_at,
    created_by,
    changed_by,
  } = webhook;
  return (
    <Card
      title="State"
      aside={
        <span class="fine">
          changed <Time at={changed_at} />
        </span>
      }
    >
      <dl class="figures">
        <Figure title="Waiting" id="pending" n={pending} />
        <Figure title="Failed" id="failed" n={failed} />
        <Figure title="Events dropped" id="dropped" n={dropped_events} />
      </dl>
      <dl class="facts pairs">
        <Fact title="URL">
          <code>{url}</code>
        </Fact>
        <Fact title="Events">{events.join(", ")}</Fact>
        <Fact title="Requests">
          up to {max_events} events each; retries: {policy ? <code>{JSON.stringify(policy)}</code> : "50 in six hours"}
        </Fact>
        {failing_since && (
          <Fact title="Failing since">
            <Time at={failing_since} absolute />
            {open_until && (
              <>
                ; next attempt <Time at={open_until} absolute />
              </>
            )}
          </Fact>
        )}
        {former_secret_until && (
          <Fact title="Former secret valid until">
            <Time at={former_secret_until} absolute />
          </Fact>
        )}
        <Fact title="Created by">{actorWords(created_by, session)}</Fact>
        {changed_by && <Fact title="Last changed by">{actorWords(changed_by, session)}</Fact>}
      </dl>
    </Card>
  );
}

function Figure({ title, id, n }: { title: string; id: string; n: number }) {
  return (
    <div>
      <dt>{title}</dt>
      <dd class="large" id={id}>
        <Count n={n} />
      </dd>
    </div>
  );
}
