import { useState } from "preact/hooks";
import type { AppResponse } from "../../api/types";
import { useResource } from "../../lib/resource";
import { useMay } from "../../shell/context";
import { Card } from "../../ui/card";
import { ShownOnce } from "../../ui/copy";
import { Dialog } from "../../ui/dialog";
import { Export, whole } from "../../ui/export";
import { Ask, Field, Form, type Written } from "../../ui/form";
import { Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { loadIdentityKeys, makeIdentityKey, removeIdentityKey, type IdentityKey } from "./load";

/** Uses of a key: the API's algorithm and form. */
const KINDS: readonly [string, string][] = [
  ["HS256 jwt", "JWT with a secret (HS256)"],
  ["HS256 hmac", "HMAC of the user id"],
  ["ES256 jwt", "JWT with your private key (ES256)"],
];

const kindWords = ({ algorithm, form }: IdentityKey) =>
  KINDS.find(([kind]) => kind === `${algorithm} ${form}`)?.[1] ?? `${algorithm} ${form}`;

/** Keys with which the site's backend signs user tokens. */
export function IdentityKeys({ app }: { app: AppResponse }) {
  const keys = useResource(`identity keys ${app.id}`, (stop) => loadIdentityKeys(app.id, stop));
  const admin = useMay("admin", app.id);
  const [isMaking, make] = useState(false);
  const [removing, remove] = useState<IdentityKey>();
  return (
    <Card
      title="Identity keys"
      aside={
        <div class="row">
          <Export
            name={`${app.slug}-identity-keys`}
            page={whole(keys.known.value?.value.map(({ secret: _, ...key }) => key))}
          />
          {admin.may && (
            <button type="button" id="new-identity-key" onClick={() => make(true)}>
              New key…
            </button>
          )}
        </div>
      }
    >
      <p class="fine">Your backend signs user tokens with these keys, so that a browser can prove its user.</p>
      <Shown
        of={keys}
        what="the identity keys"
        isEmpty={(keys) => keys.length === 0}
        empty={<p>There are no identity keys: browsers are anonymous, unless your backend registers them.</p>}
      >
        {(keys) => (
          <Table
            caption="Identity keys"
            rows={keys}
            id={({ id }) => id}
            columns={[
              {
                head: "Key",
                cell: ({ name, id }) => (
                  <>
                    {name}
                    <br />
                    <code class="soft" title={id}>
                      …{id.slice(-6)}
                    </code>
                  </>
                ),
              },
              { head: "Signs", cell: kindWords },
              { head: "Created", isExtra: true, cell: ({ created_at }) => <Time at={created_at} /> },
              ...(admin.may
                ? [
                    {
                      head: <span class="hidden">Actions</span>,
                      cell: (key: IdentityKey) => (
                        <button type="button" class="plain" onClick={() => remove(key)}>
                          Delete…<span class="hidden"> {key.name}</span>
                        </button>
                      ),
                    },
                  ]
                : []),
            ]}
          />
        )}
      </Shown>
      {!admin.may && <p class="fine">Your role does not allow creating or deleting keys. {admin.why}</p>}
      {isMaking && <Make app={app} onClose={() => make(false)} onMade={keys.refresh} />}
      {removing && (
        <Ask
          title={`Delete “${removing.name}”?`}
          button="Delete"
          isGrave
          says="Tokens signed with this key become invalid immediately. Subscriptions keep their users. To rotate without interruption, create a new key, switch your backend, then delete this key."
          work={async () => {
            await removeIdentityKey(app.id, removing.id);
            remove(undefined);
            await keys.refresh();
          }}
          onClose={() => remove(undefined)}
        />
      )}
    </Card>
  );
}

function Make({ app, onClose, onMade }: { app: AppResponse; onClose: () => void; onMade: () => unknown }) {
  const [kind, setKind] = useState("HS256 jwt");
  const [made, setMade] = useState<IdentityKey>();
  const make = async (written: Written) => {
    const [algorithm, form] = kind.split(" ") as [IdentityKey["algorithm"], IdentityKey["form"]];
    const public_key = written.text("public_key");
    const key = await makeIdentityKey(app.id, {
      name: written.text("name"),
      algorithm,
      form,
      ...(public_key ? { public_key: public_key as never } : {}),
    });
    setMade(key);
    await onMade();
  };
  if (made) {
    return (
      <Dialog title={`Identity key “${made.name}” created`} onClose={onClose}>
        {made.secret ? (
          <ShownOnce id="secret" what="Secret" text={made.secret} />
        ) : (
          <p>Your backend has the private key; there is no secret to store.</p>
        )}
        <p class="row end">
          <button type="button" onClick={onClose}>
            Close
          </button>
        </p>
      </Dialog>
    );
  }
  return (
    <Dialog title="New identity key" onClose={onClose}>
      <Form button="Create" id="do-it" work={make} onLeave={onClose}>
        <p>Earlier keys stay valid until they are deleted.</p>
        <Field label="Name">
          {(tie) => <input name="name" required maxLength={200} placeholder="backend" autocomplete="off" {...tie} />}
        </Field>
        <Field label="Type">
          {(tie) => (
            <select value={kind} onChange={(event) => setKind(event.currentTarget.value)} {...tie}>
              {KINDS.map(([kind, words]) => (
                <option key={kind} value={kind}>
                  {words}
                </option>
              ))}
            </select>
          )}
        </Field>
        {kind.startsWith("ES256") && (
          <Field label="Public key" hint="PEM, curve P-256.">
            {(tie) => <textarea name="public_key" rows={4} required spellcheck={false} {...tie} />}
          </Field>
        )}
      </Form>
    </Dialog>
  );
}
