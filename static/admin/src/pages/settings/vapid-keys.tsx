import { useState } from "preact/hooks";
import type { AppResponse } from "../../api/types";
import { rotation } from "../../lib/attention";
import { capital, things } from "../../lib/format";
import { useResource } from "../../lib/resource";
import { useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Card } from "../../ui/card";
import { ShownOnce } from "../../ui/copy";
import { Dialog } from "../../ui/dialog";
import { Ask, Field, Form, type Written } from "../../ui/form";
import { Count, Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { Progress } from "./attention";
import { changeVapidKey, exportVapidKey, loadVapidKeys, makeVapidKey, type VapidKeyResponse } from "./load";

type Doing = { what: "make" } | { what: "import" } | { what: "contact" | "export"; key: VapidKeyResponse };

/** VAPID keys, which sign pushes. */
export function VapidKeys({ app }: { app: AppResponse }) {
  const keys = useResource(`vapid keys ${app.id}`, (stop) => loadVapidKeys(app.id, stop), { everyS: 30 });
  const admin = useMay("admin", app.id);
  const [doing, begin] = useState<Doing>();
  const end = () => begin(undefined);
  const after = async () => {
    end();
    await keys.refresh();
  };
  return (
    <Card
      title="VAPID keys"
      aside={
        admin.may && (
          <span class="row">
            <button type="button" id="new-vapid-key" onClick={() => begin({ what: "make" })}>
              New key…
            </button>
            <button type="button" onClick={() => begin({ what: "import" })}>
              Import…
            </button>
          </span>
        )
      }
    >
      <p class="fine">
        Keys that sign pushes. New subscriptions use the active key; a retired key continues to sign for its
        subscriptions.
      </p>
      <Shown of={keys} what="the VAPID keys">
        {(keys) => <VapidTable app={app} keys={keys} mayAct={admin.may} begin={begin} />}
      </Shown>
      {!admin.may && <p class="fine">Your role does not allow creating, changing or exporting keys. {admin.why}</p>}
      {doing?.what === "make" && <Make app={app} keys={keys.known.value?.value ?? []} onClose={end} onMade={after} />}
      {doing?.what === "import" && <Import app={app} onClose={end} onMade={after} />}
      {doing?.what === "contact" && <Contact app={app} of={doing.key} onClose={end} onChanged={after} />}
      {doing?.what === "export" && <Export app={app} of={doing.key} onClose={end} />}
    </Card>
  );
}

function VapidTable({
  app,
  keys,
  mayAct,
  begin,
}: {
  app: AppResponse;
  keys: VapidKeyResponse[];
  mayAct: boolean;
  begin: (doing: Doing) => void;
}) {
  const under = rotation(keys);
  return (
    <>
      {under && <Progress rotation={under} what={app.name} />}
      <Table
        caption="VAPID keys"
        rows={keys}
        id={({ id }) => id}
        look={() => "stacked"}
        columns={[
          {
            head: "Key",
            cell: ({ public_key, id }) => (
              <span class="keep" title={`${public_key}\n${id}`}>
                <code>{public_key.slice(0, 8)}…</code>
              </span>
            ),
          },
          { head: "State", cell: (key) => <VapidState of={key} /> },
          { head: "Subscriptions", isNumber: true, cell: ({ subscriptions }) => <Count n={subscriptions ?? 0} /> },
          { head: "Contact", isExtra: true, cell: ({ subject }) => <code>{subject}</code> },
          { head: "Created", isExtra: true, cell: ({ created_at }) => <Time at={created_at} /> },
          ...(mayAct
            ? [
                {
                  head: <span class="hidden">Actions</span>,
                  cell: (key: VapidKeyResponse) => (
                    <span class="row tight">
                      <button type="button" class="plain" onClick={() => begin({ what: "contact", key })}>
                        Contact…
                      </button>
                      <button type="button" class="plain" onClick={() => begin({ what: "export", key })}>
                        Export…
                      </button>
                    </span>
                  ),
                },
              ]
            : []),
        ]}
      />
    </>
  );
}

function VapidState({ of: { state, subscriptions, retired_at } }: { of: VapidKeyResponse }) {
  if (state === "active") return <Badge tone="accepted">Active</Badge>;
  return (
    <>
      <Badge tone={subscriptions ? "waiting" : "cancelled"}>{subscriptions ? "Retiring" : "Retired"}</Badge>{" "}
      {retired_at && (
        <span class="fine">
          <Time at={retired_at} />
        </span>
      )}
    </>
  );
}

interface MakeProps {
  app: AppResponse;
  onClose: () => void;
  onMade: () => unknown;
}

function Make({ app, keys, onClose, onMade }: MakeProps & { keys: VapidKeyResponse[] }) {
  const all = keys.reduce((sum, { subscriptions }) => sum + (subscriptions ?? 0), 0);
  const active = keys.find(({ state }) => state === "active");
  return (
    <Ask
      title="Create a VAPID key?"
      button="Create key and retire the active key"
      says={`New subscriptions use the new key immediately. ${capital(things(all, "subscription"))} keep their key until the SDK moves them at the browser’s next visit. No message is lost. A retired key cannot become active again.`}
      work={async (written) => {
        const subject = written.text("subject");
        await makeVapidKey(app.id, subject ? { subject } : {});
        await onMade();
      }}
      onClose={onClose}
    >
      <Field label="Contact for push services">
        {(tie) => <input name="subject" defaultValue={active?.subject} autocomplete="off" {...tie} />}
      </Field>
    </Ask>
  );
}

function Import({ app, onClose, onMade }: MakeProps) {
  const bring = async (written: Written) => {
    const public_key = written.text("public_key");
    await makeVapidKey(app.id, {
      private_key: written.text("private_key"),
      state: written.text("state") as VapidKeyResponse["state"],
      ...(public_key ? { public_key } : {}),
    });
    await onMade();
  };
  return (
    <Ask
      title="Import a VAPID key"
      button="Import"
      says="For subscriptions from another sender: they work only with the key that they were created with."
      work={bring}
      onClose={onClose}
    >
      <Field label="Private key" hint="PEM, a JWK, or base64 of its 32 bytes.">
        {(tie) => <textarea name="private_key" rows={4} required spellcheck={false} autocomplete="off" {...tie} />}
      </Field>
      <Field label="Public key" hint="Base64. Optional, to check that the keys belong together.">
        {(tie) => <input name="public_key" autocomplete="off" {...tie} />}
      </Field>
      <Field label="Used for">
        {(tie) => (
          <select name="state" {...tie}>
            <option value="retired">Imported subscriptions only</option>
            <option value="active">Imported and new subscriptions; the active key retires</option>
          </select>
        )}
      </Field>
    </Ask>
  );
}

function Contact({
  app,
  of,
  onClose,
  onChanged,
}: {
  app: AppResponse;
  of: VapidKeyResponse;
  onClose: () => void;
  onChanged: () => unknown;
}) {
  return (
    <Ask
      title="Contact for push services"
      button="Save"
      says="The contact is part of the token of each push. Push services refuse invalid contacts: use an address that is read."
      work={async (written) => {
        await changeVapidKey(app.id, of.id, written.text("subject"));
        await onChanged();
      }}
      onClose={onClose}
    >
      <Field label="Contact" hint="mailto:… or https://…">
        {(tie) => <input name="subject" required defaultValue={of.subject} autocomplete="off" {...tie} />}
      </Field>
    </Ask>
  );
}

function Export({ app, of, onClose }: { app: AppResponse; of: VapidKeyResponse; onClose: () => void }) {
  const [pair, setPair] = useState<{ private_key: string; private_key_pem: string }>();
  return (
    <Dialog title="Export the private key" onClose={onClose}>
      {pair ? (
        <>
          <ShownOnce id="private-key" what="Private key" text={pair.private_key_pem.trim()} />
          <details>
            <summary>Raw key, base64url</summary>
            <ShownOnce id="private-key-raw" what="Private key, base64url" text={pair.private_key} />
          </details>
          <p class="row end">
            <button type="button" onClick={onClose}>
              Done
            </button>
          </p>
        </>
      ) : (
        <Form
          button="Export"
          id="do-it"
          isGrave
          work={async () => setPair(await exportVapidKey(app.id, of.id))}
          onLeave={onClose}
        >
          <p>
            With this key and the endpoints, its owner can send to {things(of.subscriptions ?? 0, "subscription")} of{" "}
            {app.name}. Export it only to move to another server, and store it like a password. The audit log records
            this export.
          </p>
        </Form>
      )}
    </Dialog>
  );
}
