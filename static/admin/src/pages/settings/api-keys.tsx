import { useState } from "preact/hooks";
import type { AppResponse } from "../../api/types";
import { KEY_STATES, keyState } from "../../lib/attention";
import { actorWords } from "../../lib/audit";
import { clock } from "../../lib/clock";
import { things } from "../../lib/format";
import { useResource } from "../../lib/resource";
import { SCOPES } from "../../lib/scopes";
import { useFilters } from "../../lib/url";
import { useHere, useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Card } from "../../ui/card";
import { ShownOnce } from "../../ui/copy";
import { Dialog } from "../../ui/dialog";
import { Export, whole } from "../../ui/export";
import { Ask, Field, Form, type Written } from "../../ui/form";
import { Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { loadApiKeys, makeApiKey, revokeApiKey, type ApiKey, type CreatedApiKey, type Scope } from "./load";

/** API keys of the app's servers. */
export function ApiKeys({ app }: { app: AppResponse }) {
  const { filters, change } = useFilters();
  const keys = useResource(`api keys ${app.id}`, (stop) => loadApiKeys(app.id, stop));
  const admin = useMay("admin", app.id);
  const [isMaking, make] = useState(false);
  const [revoking, revoke] = useState<ApiKey>();
  const showsAll = filters.revoked === "shown";
  const isShown = (key: ApiKey) => showsAll || !["revoked", "expired"].includes(keyState(key, clock.shown.value));
  return (
    <Card
      title="API keys"
      aside={
        <div class="row">
          <Export name={`${app.slug}-api-keys`} page={whole(keys.known.value?.value)} />
          {admin.may && (
            <button type="button" id="new-api-key" onClick={() => make(true)}>
              New key…
            </button>
          )}
        </div>
      }
    >
      <p class="fine">Credentials of your servers. Each has the permissions of its scopes, for this app only.</p>
      <Shown
        of={keys}
        what="the API keys"
        isEmpty={(keys) => keys.length === 0}
        empty={<p>There is no API key yet. Your backend needs a key with the scope send.</p>}
      >
        {(keys) => (
          <>
            <KeyTable keys={keys.filter(isShown)} onRevoke={admin.may ? revoke : undefined} />
            {keys.some((key) => showsAll || !isShown(key)) && (
              <p>
                <button
                  type="button"
                  class="plain"
                  onClick={() => change({ revoked: showsAll ? undefined : "shown" }, true)}
                >
                  {showsAll
                    ? "Show valid keys only"
                    : `Show ${things(keys.filter((key) => !isShown(key)).length, "revoked or expired key")}`}
                </button>
              </p>
            )}
          </>
        )}
      </Shown>
      {!admin.may && <p class="fine">Your role does not allow creating or revoking keys. {admin.why}</p>}
      {isMaking && <MakeKey app={app} onClose={() => make(false)} onMade={keys.refresh} />}
      {revoking && (
        <Revoke
          app={app}
          of={revoking}
          made={
            keys.known.value?.value.filter(({ created_by, revoked_at }) => created_by === revoking.id && !revoked_at)
              .length ?? 0
          }
          onClose={() => revoke(undefined)}
          onRevoked={async () => {
            revoke(undefined);
            await keys.refresh();
          }}
        />
      )}
    </Card>
  );
}

function KeyTable({ keys, onRevoke }: { keys: ApiKey[]; onRevoke: ((key: ApiKey) => void) | undefined }) {
  const { session } = useHere();
  if (keys.length === 0) return <p>No key is valid.</p>;
  return (
    <Table
      caption="API keys"
      rows={keys}
      id={({ id }) => id}
      look={() => "stacked"}
      columns={[
        {
          head: "Key",
          cell: ({ name, hint }) => (
            <>
              {name}
              <br />
              <code class="soft">{hint}…</code>
            </>
          ),
        },
        {
          head: "State",
          cell: (key) => {
            const { word, tone } = KEY_STATES[keyState(key, clock.shown.value)];
            const end = key.revoked_at ?? key.expires_at;
            return (
              <>
                <Badge tone={tone}>{word}</Badge>
                {end && (
                  <>
                    <br />
                    <span class="fine">
                      {key.revoked_at ? "" : "expires "}
                      <Time at={end} />
                    </span>
                  </>
                )}
              </>
            );
          },
        },
        {
          head: "Scopes",
          isExtra: true,
          cell: ({ scopes }) => <span class="fine">{scopes.length === SCOPES.length ? "all" : scopes.join(", ")}</span>,
        },
        {
          head: "Last used",
          isExtra: true,
          cell: ({ last_used_on }) => (last_used_on ? <Day on={last_used_on} /> : <span class="fine">never</span>),
        },
        {
          head: "Created",
          isExtra: true,
          cell: ({ created_at, created_by }) => (
            <>
              <Time at={created_at} />
              <br />
              <span class="fine">{actorWords(created_by, session)}</span>
            </>
          ),
        },
        ...(onRevoke
          ? [
              {
                head: <span class="hidden">Actions</span>,
                cell: (key: ApiKey) =>
                  !key.revoked_at && (
                    <button type="button" class="plain" onClick={() => onRevoke(key)}>
                      Revoke…<span class="hidden"> {key.name}</span>
                    </button>
                  ),
              },
            ]
          : []),
      ]}
    />
  );
}

/** A day, which is all that is kept. */
function Day({ on }: { on: string }) {
  const days = Math.floor((clock.shown.value.getTime() - Date.parse(on)) / 86_400_000);
  return <time dateTime={on}>{days <= 0 ? "today" : days === 1 ? "yesterday" : `${days} days ago`}</time>;
}

const LASTS: readonly [string, string][] = [
  ["", "No expiry"],
  ["30", "30 days"],
  ["90", "90 days"],
  ["365", "One year"],
];

function MakeKey({ app, onClose, onMade }: { app: AppResponse; onClose: () => void; onMade: () => unknown }) {
  const [made, setMade] = useState<CreatedApiKey>();
  const make = async (written: Written) => {
    const days = Number(written.text("days"));
    const expires_at = days ? new Date(clock.now().getTime() + days * 86_400_000).toISOString() : null;
    setMade(
      await makeApiKey(app.id, { name: written.text("name"), scopes: written.all("scopes") as Scope[], expires_at }),
    );
    await onMade();
  };
  return (
    <Dialog title={made ? `API key “${made.name}” created` : "New API key"} onClose={onClose}>
      {made ? (
        <>
          <ShownOnce id="secret" what="API key" text={made.secret} />
          <p class="row end">
            <button type="button" onClick={onClose}>
              Done
            </button>
          </p>
        </>
      ) : (
        <Form button="Create" id="do-it" work={make} onLeave={onClose}>
          <Field label="Name" hint="The program that will use it.">
            {(tie) => (
              <input name="name" required maxLength={200} placeholder="the shop’s server" autocomplete="off" {...tie} />
            )}
          </Field>
          <fieldset class="choices column">
            <legend>Scopes</legend>
            {SCOPES.map(([scope, words]) => (
              <label key={scope}>
                <input
                  type="checkbox"
                  name="scopes"
                  value={scope}
                  defaultChecked={scope === "send" || scope === "read"}
                />{" "}
                <span>{words}</span> <code class="soft">{scope}</code>
              </label>
            ))}
          </fieldset>
          <Field label="Expires after">
            {(tie) => (
              <select name="days" {...tie}>
                {LASTS.map(([days, words]) => (
                  <option key={days} value={days}>
                    {words}
                  </option>
                ))}
              </select>
            )}
          </Field>
        </Form>
      )}
    </Dialog>
  );
}

function Revoke({
  app,
  of,
  made,
  onClose,
  onRevoked,
}: {
  app: AppResponse;
  of: ApiKey;
  made: number;
  onClose: () => void;
  onRevoked: () => unknown;
}) {
  const rests = of.last_used_on ? `Last used on ${of.last_used_on}.` : "No use is recorded.";
  const children =
    made > 0 ? ` The key created ${things(made, "key")} that ${made === 1 ? "is" : "are"} still valid.` : "";
  return (
    <Ask
      title={`Revoke “${of.name}”?`}
      button="Revoke"
      isGrave
      says={`Within a second every request with ${of.hint}… to ${app.name} is refused. This cannot be undone. ${rests}${children}`}
      work={async (written) => {
        await revokeApiKey(app.id, of.id, written.has("keep"));
        await onRevoked();
      }}
      onClose={onClose}
    >
      <label class="check">
        <input type="checkbox" name="keep" />
        <span>
          Keep the keys that it created
          <span class="fine">
            Otherwise the API keys and identity keys that this key created are revoked, too: a thief may have created
            some.
          </span>
        </span>
      </label>
    </Ask>
  );
}
