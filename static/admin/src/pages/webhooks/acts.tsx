import { useState } from "preact/hooks";
import type { AppResponse, WebhookResponse, WebhookDeliveryResponse } from "../../api/types";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { deletionWords, replayWords, trialWords } from "../../lib/webhooks";
import { useAction } from "../../ui/action";
import { Badge } from "../../ui/badge";
import { ShownOnce } from "../../ui/copy";
import { Dialog } from "../../ui/dialog";
import { useEdit } from "../../ui/edit";
import { Ask, Field, Form } from "../../ui/form";
import { Refused, Shown } from "../../ui/shown";
import { changeWebhook, loadRequest, loadWebhook, removeWebhook, replay, rotateSecret, test } from "./load";

export interface DialogProps {
  app: AppResponse;
  webhook: WebhookResponse;
  refresh: () => Promise<void>;
  onClose: () => void;
}

/** Sends `webhook.test`, and shows the response of the receiver. */
export function TestDialog({ app, webhook, refresh, onClose }: DialogProps) {
  const [sent, setSent] = useState<WebhookDeliveryResponse>();
  const { run, isBusy, problem } = useAction(async () => setSent(await test(app.id, webhook.id)));
  const close = () => {
    onClose();
    if (sent) void refresh();
  };
  return (
    <Dialog title={`Test ${webhook.name}`} onClose={close}>
      {sent ? (
        <Trial app={app} webhook={webhook} sent={sent} />
      ) : (
        <p>
          Sends the signed event <code>webhook.test</code> to the receiver, and shows the response here.
        </p>
      )}
      <Refused problem={problem} />
      <p class="row end">
        <button type="button" onClick={close}>
          {sent ? "Close" : "Cancel"}
        </button>
        <button type="button" class="primary" id="test-now" disabled={isBusy} onClick={() => run()}>
          {sent ? "Send again" : "Send"}
        </button>
      </p>
    </Dialog>
  );
}

/** Looked at every second until its receiver has answered, and then while it is tried again. */
function Trial({ app, webhook, sent }: { app: AppResponse; webhook: WebhookResponse; sent: WebhookDeliveryResponse }) {
  const story = useResource(`trial ${sent.id}`, (stop) => loadRequest(app.id, webhook.id, sent.id, stop), {
    everyS: 1,
  });
  return (
    <Shown of={story} what="the response">
      {(story) => {
        const said = trialWords(story);
        return (
          <p role="status" id="trial">
            {said ? (
              <>
                <Badge tone={said.tone}>{said.word}</Badge> {said.why}
              </>
            ) : (
              "Sending…"
            )}
          </p>
        );
      }}
    </Shown>
  );
}

const OVERLAPS: readonly [string, string][] = [
  ["0", "No overlap"],
  ["1", "One hour"],
  ["24", "One day"],
  ["168", "One week"],
];

export function RotateDialog({ app, webhook, refresh, onClose }: DialogProps) {
  const [secret, setSecret] = useState<string>();
  const close = () => {
    onClose();
    if (secret) void refresh();
  };
  return (
    <Dialog title={secret ? "New secret" : `New secret for ${webhook.name}?`} onClose={close}>
      {secret ? (
        <>
          <ShownOnce id="webhook-secret" what="secret" text={secret} />
          <p class="row end">
            <button type="button" onClick={close}>
              Done
            </button>
          </p>
        </>
      ) : (
        <Form
          button="Create secret"
          id="do-it"
          onLeave={onClose}
          work={async (written) =>
            setSecret((await rotateSecret(app.id, webhook.id, Number(written.text("overlap")))).secret ?? "")
          }
        >
          <p>Requests are signed with the new secret immediately.</p>
          <Field
            label="Keep the former secret for"
            hint="Gives your receiver time to switch. Choose no overlap if the secret has leaked."
          >
            {(tie) => (
              <select name="overlap" {...tie}>
                {OVERLAPS.map(([hours, words]) => (
                  <option key={hours} value={hours} selected={hours === "24"}>
                    {words}
                  </option>
                ))}
              </select>
            )}
          </Field>
          <p class="fine">The audit log records this with your name.</p>
        </Form>
      )}
    </Dialog>
  );
}

export function SwitchDialog({ app, webhook, refresh, onClose }: DialogProps) {
  const isOn = webhook.state === "active";
  const reload = async () => {
    await refresh();
    onClose();
  };
  const edit = useEdit({
    begun: webhook,
    load: (stop) => loadWebhook(app.id, webhook.id, stop),
    written: ({ state }) => ({ state }),
    reload,
    verb: "Do it anyway",
    isLive: true,
  });
  return (
    <Ask
      title={`${isOn ? "Disable" : "Enable"} ${webhook.name}?`}
      says={
        isOn
          ? "No events are sent. Waiting events are kept; new events are not sent later."
          : "Waiting and new events are sent. Events of the time in between are not sent."
      }
      button={isOn ? "Disable" : "Enable"}
      work={async () => {
        await edit.save((condition) => changeWebhook(app.id, webhook.id, { enabled: !isOn }, condition));
        await reload();
      }}
      onClose={onClose}
    />
  );
}

export function DeleteDialog({ app, webhook, refresh, onClose }: DialogProps) {
  const { go } = useFilters();
  const reload = async () => {
    await refresh();
    onClose();
  };
  const written = ({ name, url, events }: WebhookResponse) => ({ name, url, events });
  const edit = useEdit({
    begun: webhook,
    load: (stop) => loadWebhook(app.id, webhook.id, stop),
    written,
    reload,
    verb: "Delete anyway",
    isLive: true,
  });
  return (
    <Ask
      title={`Delete ${webhook.name}?`}
      says={<span id="consequence">{deletionWords(webhook)}</span>}
      button="Delete"
      isGrave
      work={async () => {
        await edit.save((condition) => removeWebhook(app.id, webhook.id, condition));
        go("/webhooks");
      }}
      onClose={onClose}
    />
  );
}

/** Makes all failed requests again. */
export function ReplayDialog({ app, webhook, refresh, onClose }: DialogProps) {
  return (
    <Ask
      title="Replay all failed requests?"
      says={<span id="consequence">{replayWords(webhook.failed)}</span>}
      button="Replay"
      work={async () => {
        await replay(app.id, webhook.id, { since: webhook.created_at });
        await refresh();
        onClose();
      }}
      onClose={onClose}
    />
  );
}
