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
import { Export, whole } from "../../ui/export";
import { Ask, Field, Form } from "../../ui/form";
import { Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import {
  changeTeammate,
  invite,
  loadTeam,
  removeTeammate,
  resetPasskeys,
  resetTeammate,
  unlinkTeammate,
  type Grant,
  type Invited,
  type Teammate,
} from "./load";

const ROLE_WORDS: Record<Grant["role"], string> = {
  viewer: "Viewer: reads everything except secrets",
  sender: "Sender: also sends, stops and resends messages",
  operator: "Operator: also changes settings and holds push services",
  admin: "Admin: also keys and exports; for all apps, also the team",
};

/** Teammates and their roles. */
export function Team() {
  const { session } = useHere();
  if (!session.may_change_team) {
    return (
      <Card title="Team">
        <p>
          {session.teammate
            ? "The team is visible to admins for all apps."
            : "You are signed in with an operator’s key, which cannot manage the team. Sign in as an admin for all apps."}
        </p>
        <p class="fine">
          On the server: <code>bellwire admin list</code>
        </p>
      </Card>
    );
  }
  return <Members />;
}

type Doing =
  | { what: "invite" }
  | { what: "roles" | "disable" | "enable" | "reset" | "passkeys" | "unlink" | "remove"; to: Teammate };

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
  const appName = (id: string | null | undefined) =>
    id ? (apps.find((app) => app.id === id)?.name ?? id) : "all apps";
  return (
    <Card
      title="Team"
      aside={
        <div class="row">
          <Export name="team" page={whole(team.known.value?.value)} />
          <button type="button" id="invite" onClick={() => begin({ what: "invite" })}>
            Invite…
          </button>
        </div>
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
                head: "Teammate",
                cell: ({ id, email }) => (
                  <>
                    {email}
                    {id === session.teammate && <span class="soft"> (you)</span>}
                  </>
                ),
              },
              {
                head: "Roles",
                cell: ({ roles }) =>
                  roles.length === 0 ? (
                    <span class="fine">none</span>
                  ) : (
                    roles.map(({ role, app }) => `${role} (${appName(app)})`).join("; ")
                  ),
              },
              { head: "State", cell: (teammate) => <State of={teammate} /> },
              { head: "Sign-in", isExtra: true, cell: (teammate) => <span class="fine">{ways(teammate)}</span> },
              { head: "Invited", isExtra: true, cell: ({ created_at }) => <Time at={created_at} /> },
              {
                head: <span class="hidden">Actions</span>,
                cell: (teammate) => <Acts of={teammate} isMe={teammate.id === session.teammate} begin={begin} />,
              },
            ]}
          />
        )}
      </Shown>
      {doing?.what === "invite" && <Invite onClose={end} onInvited={done} />}
      {doing?.what === "roles" && <Roles of={doing.to} onClose={end} onChanged={done} />}
      {doing && "to" in doing && doing.what !== "roles" && (
        <Act doing={doing.what} to={doing.to} onClose={end} onDone={done} />
      )}
      {invited && <Link of={invited} onClose={() => tell(undefined)} />}
    </Card>
  );
}

function ways({ has_password, passkeys, oidc_linked_at }: Teammate): string {
  const found = [
    has_password && "password",
    passkeys > 0 && things(passkeys, "passkey"),
    oidc_linked_at && "provider",
  ].filter(Boolean);
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
            link expires <Time at={of.link_expires_at} />
          </span>
        </>
      )}
    </>
  );
}

function Acts({ of, isMe, begin }: { of: Teammate; isMe: boolean; begin: (doing: Doing) => void }) {
  const acts: [Exclude<Doing["what"], "invite">, string][] = [
    ["roles", "Change roles…"],
    ["reset", "New sign-in link…"],
    ...(of.passkeys > 0 ? [["passkeys", "Reset passkeys…"] as [Exclude<Doing["what"], "invite">, string]] : []),
    ...(of.oidc_linked_at ? [["unlink", "Unlink account…"] as [Exclude<Doing["what"], "invite">, string]] : []),
    of.disabled_at ? ["enable", "Enable…"] : ["disable", "Disable…"],
    ["remove", "Remove…"],
  ];
  if (isMe) return <span class="fine">see Your account</span>;
  return (
    <details class="acts" onKeyDown={(event) => event.key === "Escape" && event.currentTarget.removeAttribute("open")}>
      <summary>
        Actions<span class="hidden"> for {of.email}</span>
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
        <legend>Scope</legend>
        <label>
          <input type="radio" name="where" value="all" checked={isForAll} onChange={() => setForAll(true)} /> all apps
          and the server
        </label>
        <label>
          <input type="radio" name="where" value="some" checked={!isForAll} onChange={() => setForAll(false)} /> single
          apps
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
                <option value="">No role</option>
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
    <Dialog title="Invite a teammate" onClose={onClose}>
      <Form
        button="Create link"
        id="do-it"
        work={async ({ text }) => onInvited(await invite(text("email"), read(text)))}
        onLeave={onClose}
      >
        <p>
          Creates a link that works once, within three days. Bellwire sends no e-mail: give the link to your teammate
          over a secure channel.
        </p>
        <Field label="E-mail">
          {(tie) => <input type="email" name="email" required autocomplete="off" {...tie} />}
        </Field>
        <RoleFields given={[]} />
      </Form>
    </Dialog>
  );
}

function Roles({ of, onClose, onChanged }: { of: Teammate; onClose: () => void; onChanged: () => unknown }) {
  const read = useGrants();
  return (
    <Ask
      title={`Roles of ${of.email}`}
      button="Save"
      says="The change takes effect at the next request, in all sessions."
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

const ACTS: Record<
  Act,
  {
    title: (email: string) => string;
    says: string;
    button: string;
    isGrave: boolean;
    work: (id: string) => Promise<Invited | unknown>;
  }
> = {
  disable: {
    title: (email) => `Disable ${email}?`,
    says: "All sessions end, and the teammate cannot sign in, also not through a provider. API keys that the teammate created stay valid. You can enable the account again.",
    button: "Disable",
    isGrave: true,
    work: (id) => changeTeammate(id, { disabled: true }),
  },
  enable: {
    title: (email) => `Enable ${email}?`,
    says: "The teammate can sign in again, with the same roles.",
    button: "Enable",
    isGrave: false,
    work: (id) => changeTeammate(id, { disabled: false }),
  },
  reset: {
    title: (email) => `New sign-in link for ${email}?`,
    says: "The password is deleted, all sessions end, and earlier links become invalid. Passkeys stay: the link requires a passkey, too.",
    button: "Create link",
    isGrave: false,
    work: (id) => resetTeammate(id),
  },
  passkeys: {
    title: (email) => `Reset the passkeys of ${email}?`,
    says: "For a lost device: all passkeys are deleted, and all sessions end. From then on the password alone is sufficient.",
    button: "Reset passkeys",
    isGrave: true,
    work: (id) => resetPasskeys(id),
  },
  unlink: {
    title: (email) => `Unlink the account of ${email}?`,
    says: "All sessions end. The next account at your provider with this e-mail address is linked instead. If another person has this address now, disable the account first.",
    button: "Unlink",
    isGrave: true,
    work: (id) => unlinkTeammate(id),
  },
  remove: {
    title: (email) => `Remove ${email}?`,
    says: "The account is deleted with password and passkeys, and all sessions end. A new invitation is needed to return. The audit log keeps the id, and API keys that the teammate created stay valid.",
    button: "Remove",
    isGrave: true,
    work: (id) => removeTeammate(id),
  },
};

function Act({
  doing,
  to,
  onClose,
  onDone,
}: {
  doing: Act;
  to: Teammate;
  onClose: () => void;
  onDone: (made?: Invited) => unknown;
}) {
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
    <Dialog title={`Link for ${of.email}`} onClose={onClose}>
      <ShownOnce id="link" what="One-time link" text={location.origin + of.link.path} />
      <p>
        The link works once, and expires <Time at={of.link.expires_at} />.
      </p>
      <p class="row end">
        <button type="button" onClick={onClose}>
          Done
        </button>
      </p>
    </Dialog>
  );
}
