import { useState } from "preact/hooks";
import { Refusal } from "../../api/problem";
import { browserWords } from "../../lib/browser";
import { clock } from "../../lib/clock";
import { relative, things } from "../../lib/format";
import { useResource } from "../../lib/resource";
import { signOut } from "../../session";
import { useHere } from "../../shell/context";
import { useAction } from "../../ui/action";
import { Card } from "../../ui/card";
import { Notice } from "../../ui/draft";
import { Ask, Field, Form } from "../../ui/form";
import { Time } from "../../ui/numbers";
import { Refused, Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import {
  addPasskey,
  askForPasskey,
  endOtherSessions,
  endSession,
  loadPasskeys,
  loadSessions,
  removePasskey,
  setPassword,
  type Passkey,
} from "./load";

/** Password, passkeys and sessions of the user. */
export function You() {
  const { session } = useHere();
  return (
    <>
      {session.teammate ? (
        <div class="grid halves">
          <Password />
          <Passkeys />
        </div>
      ) : (
        <Card title="Password and passkeys">
          <p>You are signed in with an operator’s key, which has no password or passkeys.</p>
        </Card>
      )}
      <Sessions />
    </>
  );
}

function Password() {
  const { session } = useHere();
  const [isSet, set] = useState(false);
  return (
    <Card title="Password">
      <p class="fine">Changing the password ends your other sessions.</p>
      <Form
        // Anew, with empty fields, once it is set.
        key={String(isSet)}
        button="Change password"
        id="change-password"
        work={async ({ exact }) => {
          await setPassword({
            current_password: exact("current_password") || null,
            new_password: exact("new_password"),
          });
          set(true);
        }}
      >
        <input
          class="hidden"
          type="email"
          name="email"
          autocomplete="username"
          defaultValue={session.email ?? ""}
          tabIndex={-1}
          aria-hidden="true"
          readOnly
        />
        <Field label="Current password" hint="Leave empty if you have no password and signed in by a link.">
          {(tie) => <input type="password" name="current_password" autocomplete="current-password" {...tie} />}
        </Field>
        <Field label="New password" hint="12 characters or more.">
          {(tie) => (
            <input type="password" name="new_password" autocomplete="new-password" required minLength={12} {...tie} />
          )}
        </Field>
      </Form>
      <Notice>{isSet && "Your password is changed, and your other sessions have ended."}</Notice>
    </Card>
  );
}

/** The browser asks for a finger, a face, a PIN or a key; what it makes is kept under that name. */
async function makePasskey(name: string): Promise<void> {
  const { options } = await askForPasskey();
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(
    options as unknown as PublicKeyCredentialCreationOptionsJSON,
  );
  const made = await navigator.credentials.create({ publicKey }).catch(() => null);
  if (!(made instanceof PublicKeyCredential)) {
    throw new Refusal(0, {
      code: "no_passkey",
      detail: "No passkey was created. Try again, and confirm when the browser asks.",
    });
  }
  await addPasskey(name, made.toJSON() as object);
}

function Passkeys() {
  const passkeys = useResource("passkeys", loadPasskeys);
  const [isAdding, add] = useState(false);
  const [removing, remove] = useState<Passkey>();
  const isAble = typeof PublicKeyCredential !== "undefined";
  return (
    <Card
      title="Passkeys"
      aside={
        isAble && (
          <button type="button" id="add-passkey" onClick={() => add(true)}>
            Add…
          </button>
        )
      }
    >
      <p class="fine">A second factor in addition to your password. Add two passkeys on different devices.</p>
      <Shown
        of={passkeys}
        what="your passkeys"
        isEmpty={(all) => all.length === 0}
        empty={<p>No passkeys: the password alone is sufficient.</p>}
      >
        {(all) => (
          <ul class="list lines">
            {all.map((passkey) => (
              <li key={passkey.id} data-row>
                <span>
                  {passkey.name}
                  <br />
                  <span class="fine">
                    added <Time at={passkey.created_at} />,{" "}
                    {passkey.last_used_at
                      ? `last used ${relative(new Date(passkey.last_used_at), clock.shown.value)}`
                      : "never used"}
                  </span>
                </span>
                <button type="button" class="plain" onClick={() => remove(passkey)}>
                  Remove…<span class="hidden"> {passkey.name}</span>
                </button>
              </li>
            ))}
          </ul>
        )}
      </Shown>
      {!isAble && (
        <p class="fine">This browser does not support passkeys at this address: they require HTTPS or localhost.</p>
      )}
      {isAdding && (
        <Ask
          title="Add a passkey"
          button="Continue"
          says="The browser asks where to store the passkey. From then on signing in requires the password and a passkey."
          work={async ({ text }) => {
            await makePasskey(text("name"));
            add(false);
            await passkeys.refresh();
          }}
          onClose={() => add(false)}
        >
          <Field label="Name" hint="For example: blue key, phone.">
            {(tie) => <input name="name" required maxLength={64} autocomplete="off" {...tie} />}
          </Field>
          <SignInAgain />
        </Ask>
      )}
      {removing && (
        <Ask
          title={`Remove “${removing.name}”?`}
          button="Remove"
          isGrave
          says={
            passkeys.known.value?.value.length === 1
              ? "This is your only passkey: the password alone is sufficient from then on."
              : "You can no longer sign in with this passkey."
          }
          work={async () => {
            await removePasskey(removing.id);
            remove(undefined);
            await passkeys.refresh();
          }}
          onClose={() => remove(undefined)}
        >
          <SignInAgain />
        </Ask>
      )}
    </Card>
  );
}

/** Adding and removing take a sign-in of late: who finds an open browser must not stay by a passkey of their own. */
const RECENT_MS = 600_000;

function SignInAgain() {
  const { session } = useHere();
  const { run, isBusy, problem } = useAction(signOut);
  if (clock.shown.value.getTime() - Date.parse(session.began_at) < RECENT_MS) return null;
  return (
    <div class="refused">
      <p>
        This requires a sign-in within the last ten minutes; yours was <Time at={session.began_at} />.{" "}
        <button type="button" class="plain" disabled={isBusy} onClick={() => run()}>
          Sign in again
        </button>
      </p>
      <Refused problem={problem} />
    </div>
  );
}

function Sessions() {
  const sessions = useResource("sessions", loadSessions);
  const [ended, tell] = useState("");
  const end = useAction(async (id: string | undefined) => {
    if (id) await endSession(id);
    const n = id ? 1 : (await endOtherSessions()).ended;
    tell(`${things(n, "session")} ended.`);
    await sessions.refresh();
  });
  return (
    <Card title="Sessions">
      <Shown of={sessions} what="your sessions">
        {(all) => (
          <>
            <Table
              caption="Sessions"
              rows={all}
              id={({ id }) => id}
              columns={[
                {
                  head: "Browser",
                  cell: ({ browser, is_this }) => (
                    <span title={browser ?? ""}>
                      {browserWords(browser)}
                      {is_this && <span class="soft"> (this session)</span>}
                    </span>
                  ),
                },
                { head: "IP address", isExtra: true, cell: ({ address }) => <code>{address ?? "–"}</code> },
                { head: "Last seen", cell: ({ seen_at }) => <Time at={seen_at} /> },
                { head: "Started", isExtra: true, cell: ({ began_at }) => <Time at={began_at} /> },
                { head: "Ends", isExtra: true, cell: ({ expires_at }) => <Time at={expires_at} /> },
                {
                  head: <span class="hidden">Actions</span>,
                  cell: ({ id, is_this, browser }) =>
                    !is_this && (
                      <button type="button" class="plain" disabled={end.isBusy} onClick={() => end.run(id)}>
                        End<span class="hidden"> session: {browserWords(browser)}</span>
                      </button>
                    ),
                },
              ]}
            />
            {all.length > 1 && (
              <p>
                <button type="button" id="end-others" disabled={end.isBusy} onClick={() => end.run(undefined)}>
                  {`End ${things(all.length - 1, "other session")}`}
                </button>
              </p>
            )}
          </>
        )}
      </Shown>
      <Refused problem={end.problem} />
      <Notice>{ended}</Notice>
    </Card>
  );
}
