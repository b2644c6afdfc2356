import { useState } from "preact/hooks";
import { TEAMMATE_STATES, teammateState } from "../../lib/attention";
import { clock } from "../../lib/clock";
import { things } from "../../lib/format";
import { ROLES } from "../../lib/roles";
import { useResource } from "../../lib/resource";
import { useHere } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Card } from "../../ui/card";
import { ShownOnce } from "../../ui/copy";
import { Dialog } from "../../ui/dialog";
import { Ask, Field, Form } from "../../ui/form";
import { Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { changeTeammate, invite, loadTeam, removeTeammate, resetPasskeys, resetTeammate, unlinkTeammate, type Grant, type Invited, type Teammate } from "./load";

const ROLE_WORDS: Record<Grant["role"], string> = {
  viewer: "Viewer: sees everything but secrets",
  sender: "Sender: also sends, stops and repeats",
  operator: "Operator: also steers and changes settings",
  admin: "Admin: also keys, exports and, for all apps, the team",
};

/** Teammates and their roles. */
export function Team() {
  const { session } = useHere();
  if (!session.may_change_team) {
    return (
      <Card title="Team">
        <p>
          {session.teammate
            ? "The team is shown to admins for all apps, who invite people and change what they may do."
            : "You are signed in with an operator’s key, which does not reach the team: whom it let in would outlive it. Sign in as an admin for all apps."}
        </p>
        <p class="fine">
          On the server itself: <code>bellwire admin list</code>
        </p>
      </Card>
    );
  }
  return <Members />;
}

type Doing = { what: "invite" } | { what: "roles" | "shut out" | "let in" | "reset" | "passkeys" | "unlink" | "remove"; to: Teammate };

function Members() {
  const { session, apps } = useHere();
  const team = useResource("team", (stop) => loadTeam(stop));
  const [doing, begin] = useState<Doing>();
  const [invited, tell] = useState<Invited>();
  const end = () => begin(undefined);
  const done = async (made?: Invited) => {
    end();
    tell(made);
    await team.refresh();
  };
  const appName = (id: string | null | undefined) => (id ? (apps.find((app) => app.id === id)?.name ?? id) : "all apps");
  return (
    <Card
      title="Team"
      aside={
        <button type="button" id="invite" onClick={() => begin({ what: "invite" })}>
          Invite…
        </button>
      }
    >
      <Shown of={team} what="the team">
        {(team) => (
          <Table
            caption="Team"
            rows={team}
            id={({ id }) => id}
            look={() => "stacked"}
            columns={[
              {
                head: "Who",
                cell: ({ id, email }) => (
                  <>
                    {email}
                    {id === session.teammate && <span class="soft"> (you)</span>}
                  </>
                ),
              },
              { head: "May", cell: ({ roles }) => (roles.length === 0 ? <span class="fine">nothing</span> : roles.map(({ role, app }) => `${role} of ${appName(app)}`).join("; ")) },
              { head: "State", cell: (teammate) => <State of={teammate} /> },
              { head: "Signs in by", isExtra: true, cell: (teammate) => <span class="fine">{ways(teammate)}</span> },
              { head: "Invited", isExtra: true, cell: ({ created_at }) => <Time at={created_at} /> },
              {
                head: <span class="hidden">Act</span>,
                cell: (teammate) => <Acts of={teammate} isMe={teammate.id === session.teammate} begin={begin} />,
              },
            ]}
          />
        )}
      </Shown>
      {doing?.what === "invite" && <Invite onClose={end} onInvited={done} />}
      {doing?.what === "roles" && <Roles of={doing.to} onClose={end} onChanged={done} />}
      {doing && "to" in doing && doing.what !== "roles" && <Act doing={doing.what} to={doing.to} onClose={end} onDone={done} />}
      {invited && <Link of={invited} onClose={() => tell(undefined)} />}
    </Card>
  );
}

function ways({ has_password, passkeys, oidc_linked_at }: Teammate): string {
  const found = [has_password && "password", passkeys > 0 && things(passkeys, "passkey"), oidc_linked_at && "your provider"].filter(Boolean);
  return found.join(", ") || "one-time link";
}

function State({ of }: { of: Teammate }) {
  const state = teammateState(of, clock.shown.value);
  const { word, tone } = TEAMMATE_STATES[state];
  return (
    <>
      <Badge tone={tone}>{word}</Badge>
      {state === "invited" && of.link_expires_at && (
        <>
          <br />
          <span class="fine">
            link ends <Time at={of.link_expires_at} />
          </span>
        </>
      )}
    </>
  );
}

function Acts({ of, isMe, begin }: { of: Teammate; isMe: boolean; begin: (doing: Doing) => void }) {
  const acts: [Exclude<Doing["what"], "invite">, string][] = [
    ["roles", "Change roles…"],
    ["reset", "New link…"],
    ...(of.passkeys > 0 ? [["passkeys", "Reset passkeys…"] as [Exclude<Doing["what"], "invite">, string]] : []),
    ...(of.oidc_linked_at ? [["unlink", "Unlink account…"] as [Exclude<Doing["what"], "invite">, string]] : []),
    of.disabled_at ? ["let in", "Let in again…"] : ["shut out", "Shut out…"],
    ["remove", "Remove…"],
  ];
  if (isMe) return <span class="fine">see You</span>;
  return (
    <details class="acts" onKeyDown={(event) => event.key === "Escape" && event.currentTarget.removeAttribute("open")}>
      <summary>
        Change<span class="hidden"> {of.email}</span>
      </summary>
      <ul>
        {acts.map(([what, words]) => (
          <li key={what}>
            <button type="button" class="plain" onClick={() => begin({ what, to: of })}>
              {words}
            </button>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** Roles to choose: one for all apps, or one on each of some. */
function RoleFields({ given }: { given: Teammate["roles"] }) {
  const { apps } = useHere();
  const [isForAll, setForAll] = useState(given.length === 0 || given.some(({ app }) => app == null));
  const roleOn = (app: string | null) => given.find((grant) => (grant.app ?? null) === app)?.role;
  return (
    <>
      <fieldset class="choices">
        <legend>Where</legend>
        <label>
          <input type="radio" name="where" value="all" checked={isForAll} onChange={() => setForAll(true)} /> all apps and the server
        </label>
        <label>
          <input type="radio" name="where" value="some" checked={!isForAll} onChange={() => setForAll(false)} /> single apps
        </label>
      </fieldset>
      {isForAll ? (
        <Field label="Role">
          {(tie) => (
            <select name="role" key="all" {...tie}>
              {ROLES.map((role) => (
                <option key={role} value={role} selected={role === (roleOn(null) ?? "viewer")}>
                  {ROLE_WORDS[role]}
                </option>
              ))}
            </select>
          )}
        </Field>
      ) : (
        apps.map(({ id, name }) => (
          <Field key={id} label={name}>
            {(tie) => (
              <select name={`role_${id}`} {...tie}>
                <option value="">Nothing</option>
                {ROLES.map((role) => (
                  <option key={role} value={role} selected={role === roleOn(id)}>
                    {ROLE_WORDS[role]}
                  </option>
                ))}
              </select>
            )}
          </Field>
        ))
      )}
    </>
  );
}

function useGrants() {
  const { apps } = useHere();
  return (text: (name: string) => string): Grant[] => {
    if (text("where") === "all") return [{ role: text("role") as Grant["role"] }];
    return apps.flatMap(({ id }) => {
      const role = text(`role_${id}`) as Grant["role"] | "";
      return role ? [{ role, app: id }] : [];
    });
  };
}

function Invite({ onClose, onInvited }: { onClose: () => void; onInvited: (made: Invited) => unknown }) {
  const read = useGrants();
  return (
    <Dialog title="Invite somebody" onClose={onClose}>
      <Form button="Make the link" id="do-it" work={async ({ text }) => onInvited(await invite(text("email"), read(text)))} onLeave={onClose}>
        <p>It makes a link that works once, within three days. Nothing is mailed: send it as you would send a password.</p>
        <Field label="E-mail">{(tie) => <input type="email" name="email" required autocomplete="off" {...tie} />}</Field>
        <RoleFields given={[]} />
      </Form>
    </Dialog>
  );
}

function Roles({ of, onClose, onChanged }: { of: Teammate; onClose: () => void; onChanged: () => unknown }) {
  const read = useGrants();
  return (
    <Ask
      title={`What ${of.email} may do`}
      button="Change it"
      says="It holds from the next request on, in all browsers where they are signed in."
      work={async ({ text }) => {
        await changeTeammate(of.id, { roles: read(text) });
        await onChanged();
      }}
      onClose={onClose}
    >
      <RoleFields given={of.roles} />
    </Ask>
  );
}

type Act = Exclude<Doing["what"], "invite" | "roles">;

const ACTS: Record<Act, { title: (email: string) => string; says: string; button: string; isGrave: boolean; work: (id: string) => Promise<Invited | unknown> }> = {
  "shut out": {
    title: (email) => `Shut ${email} out?`,
    says: "All their sessions end at once, and they cannot sign in, not even through a provider. API keys that they made stay valid, since servers run on them. You can let them in again.",
    button: "Shut them out",
    isGrave: true,
    work: (id) => changeTeammate(id, { disabled: true }),
  },
  "let in": { title: (email) => `Let ${email} in again?`, says: "They can sign in as before, with the roles that they have.", button: "Let them in", isGrave: false, work: (id) => changeTeammate(id, { disabled: false }) },
  reset: {
    title: (email) => `A new link for ${email}?`,
    says: "Their password is forgotten, all their sessions end, and a new one-time link takes the place of any before. Passkeys stay: the link asks for one, too.",
    button: "Make a new link",
    isGrave: false,
    work: (id) => resetTeammate(id),
  },
  passkeys: {
    title: (email) => `Reset the passkeys of ${email}?`,
    says: "For a lost device: all passkeys are deleted, and all sessions end, since the device may be in other hands. The password stays, and is enough from then on.",
    button: "Reset them",
    isGrave: true,
    work: (id) => resetPasskeys(id),
  },
  unlink: {
    title: (email) => `Unlink the account of ${email}?`,
    says: "All their sessions end. The next account at your provider that comes with their address is linked in its place. If another person has that address now, disable the account first.",
    button: "Unlink it",
    isGrave: true,
    work: (id) => unlinkTeammate(id),
  },
  remove: {
    title: (email) => `Remove ${email}?`,
    says: "They are gone for good, with password and passkeys; all their sessions end. They return by invitation only. The audit log keeps their id, and API keys that they made stay valid.",
    button: "Remove them for good",
    isGrave: true,
    work: (id) => removeTeammate(id),
  },
};

function Act({ doing, to, onClose, onDone }: { doing: Act; to: Teammate; onClose: () => void; onDone: (made?: Invited) => unknown }) {
  const { title, says, button, isGrave, work } = ACTS[doing];
  return (
    <Ask
      title={title(to.email)}
      says={says}
      button={button}
      isGrave={isGrave}
      work={async () => {
        const made = await work(to.id);
        await onDone(doing === "reset" ? (made as Invited) : undefined);
      }}
      onClose={onClose}
    />
  );
}

function Link({ of, onClose }: { of: Invited; onClose: () => void }) {
  return (
    <Dialog title={`The link for ${of.email}`} onClose={onClose}>
      <ShownOnce id="link" what="One-time link" text={location.origin + of.link.path} />
      <p>
        It works once, and ends <Time at={of.link.expires_at} />.
      </p>
      <p class="row end">
        <button type="button" onClick={onClose}>
          I have it
        </button>
      </p>
    </Dialog>
  );
}
