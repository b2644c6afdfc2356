import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { api, told } from "../api/client";
import type { LinkAccount, SignInMethods } from "../api/types";
import { BASE } from "../lib/url";
import { signIn, type SignIn } from "../session";
import { useAction } from "../ui/action";
import { Refused } from "../ui/shown";

/** Read once, and taken out of the address, which histories keep. */
function takeToken(): string {
  const token = decodeURIComponent(location.hash.slice(1));
  if (token) history.replaceState(null, "", location.pathname);
  return token;
}

function DoorFrame({ title, children }: { title: string; children: ComponentChildren }) {
  useEffect(() => {
    document.title = `${title} · Bellwire`;
  }, [title]);
  return (
    <main class="door">
      <p class="brand">
        <img src="/admin/icon.svg" alt="" width="36" height="36" /> Bellwire
      </p>
      <h1>{title}</h1>
      {children}
    </main>
  );
}

interface FieldProps {
  label: string;
  name: string;
  type: "email" | "password";
  autocomplete: "username" | "current-password" | "new-password" | "off";
  hint?: string;
  minLength?: number;
}

function Field({ label, name, type, autocomplete, hint, minLength }: FieldProps) {
  const input = {
    name,
    id: name,
    autocomplete,
    required: true,
    minLength,
    "aria-describedby": hint ? `${name}-hint` : undefined,
  };
  return (
    <label class="field">
      <span>{label}</span>
      {type === "email" ? <input type="email" {...input} /> : <input type="password" {...input} />}
      {hint && (
        <span class="fine" id={`${name}-hint`}>
          {hint}
        </span>
      )}
    </label>
  );
}

/** A form that signs in with what is written in it. */
function Way({
  button,
  id,
  read,
  children,
}: {
  button: string;
  id: string;
  read: (written: (name: string) => string) => SignIn;
  children: ComponentChildren;
}) {
  const { run, isBusy, problem } = useAction(signIn);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    void run(read((name) => String(form.get(name) ?? "")));
  };
  return (
    <form class="way" onSubmit={submit}>
      {children}
      <Refused problem={problem} />
      <button type="submit" class="primary" id={id} disabled={isBusy}>
        {isBusy ? "Please wait…" : button}
      </button>
    </form>
  );
}

/** Reason of a refused sign-in at the provider, by the code in the address. */
const REFUSED: Record<string, string> = {
  attempt: "This sign-in was started in another browser or more than ten minutes ago. Try again.",
  declined: "The sign-in at your provider was cancelled or refused.",
  busy: "Too many sign-ins at the moment. Try again shortly.",
  email: "Your provider has not verified your e-mail address.",
  domain: "Sign-in with this e-mail domain is not allowed.",
  unknown: "This e-mail address has no invitation. Ask the operator of this server.",
  removed: "You were removed from the team. Ask the operator of this server to invite you again.",
  disabled: "Your account is disabled. Ask the operator of this server.",
  other_account: "Your e-mail address is linked to another account at your provider. Ask the operator of this server.",
  passkeys_unavailable: "You have a passkey, but this server cannot request it. Ask the operator of this server.",
};

/** Read once, and taken out of the address. */
function takeWord(): string | null {
  const address = new URL(location.href);
  const word = address.searchParams.get("sign_in");
  if (word === null) return null;
  address.searchParams.delete("sign_in");
  history.replaceState(null, "", address);
  return word;
}

/** Second step after the provider's sign-in for users with a passkey. Some browsers show a passkey prompt only after a click. */
function Confirm() {
  const { run, isBusy, problem } = useAction(signIn);
  return (
    <>
      <p>Your provider signed you in. Confirm with your passkey.</p>
      <Refused problem={problem} />
      <p>
        <button type="button" class="primary" id="confirm" disabled={isBusy} onClick={() => void run({ oidc: true })}>
          {isBusy ? "Please wait…" : "Confirm with your passkey"}
        </button>
      </p>
    </>
  );
}

/** The provider of one's own, if this server has one. */
function Provider() {
  const [provider, setProvider] = useState<SignInMethods["oidc"]>();
  const [word] = useState(takeWord);
  useEffect(() => {
    // Without an answer the other ways are there all the same.
    told(api.GET("/v1/session/methods")).then(
      ({ oidc }) => setProvider(oidc),
      () => undefined,
    );
  }, []);
  return (
    <>
      {word === "passkey" && <Confirm />}
      {word !== null && word !== "passkey" && (
        <p role="alert" class="refused">
          {REFUSED[word] ?? "The response of your provider was invalid. The server’s log has the reason."}
        </p>
      )}
      {provider && (
        <p>
          <a href={provider.path} id="provider" target="_self">
            Sign in with {provider.label}
          </a>
        </p>
      )}
    </>
  );
}

/** Sign-in form at any address: afterwards the user stays at that address. */
export function SignInPage() {
  const [byKey, setByKey] = useState(false);
  return (
    <DoorFrame title="Sign in">
      <Provider />
      {byKey ? (
        <Way key="key" id="sign-in" button="Sign in" read={(written) => ({ api_key: written("api_key").trim() })}>
          <Field
            label="Operator’s key"
            name="api_key"
            type="password"
            autocomplete="off"
            hint="bw_…, as bellwire key create printed it. The session acts as that key."
          />
        </Way>
      ) : (
        <Way
          key="password"
          id="sign-in"
          button="Sign in"
          read={(written) => ({ email: written("email").trim(), password: written("password") })}
        >
          <Field label="E-mail" name="email" type="email" autocomplete="username" />
          <Field label="Password" name="password" type="password" autocomplete="current-password" />
        </Way>
      )}
      <p>
        <button type="button" class="plain" id="other-way" onClick={() => setByKey(!byKey)}>
          {byKey ? "With e-mail and password" : "With an operator’s key"}
        </button>
      </p>
      <p class="fine">
        No password yet, or forgotten? The operator of this server can create a one-time link:{" "}
        <code>bellwire admin invite</code> or <code>bellwire admin reset</code>.
      </p>
    </DoorFrame>
  );
}

/** Page of a one-time link: sets a password and signs in. */
export function Invitation() {
  const { route } = useLocation();
  const [token] = useState(takeToken);
  const [account, setAccount] = useState<LinkAccount>();
  useEffect(() => {
    // A refused link shows its reason when the password is set.
    if (token.startsWith("bwl_"))
      told(api.POST("/v1/session/link", { body: { link: token } })).then(setAccount, () => undefined);
  }, []);
  const { run, isBusy, problem } = useAction(async (body: SignIn) => {
    await signIn(body);
    route(`${BASE}/`, true);
  });
  if (!token.startsWith("bwl_")) {
    return (
      <DoorFrame title="Incomplete link">
        <p>The part after the # is missing. Copy the whole link, or ask for a new link.</p>
        <p>
          <a href={`${BASE}/`}>Sign in</a>
        </p>
      </DoorFrame>
    );
  }
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    void run({ link: token, new_password: String(form.get("new_password")) });
  };
  return (
    <DoorFrame title="Welcome">
      {account && (
        <p id="account">
          This link is for <strong>{account.email}</strong>
          {account.roles.length > 0 &&
            `, ${account.roles.map(({ role, app }) => `${role} ${app ? "of one app" : "of all apps"}`).join(", ")}`}
          .
        </p>
      )}
      <p>Choose a password. The link works once.</p>
      <form class="way" onSubmit={submit}>
        {/* Password managers store the password under this name. */}
        <input type="hidden" name="username" autocomplete="username" value={account?.email ?? ""} />
        <Field
          label="New password"
          name="new_password"
          type="password"
          autocomplete="new-password"
          minLength={12}
          hint="12 characters or more."
        />
        <Refused problem={problem} />
        {problem?.code === "sign_in_refused" && (
          <p class="fine">The link was used, replaced, or is older than three days. Ask for a new link.</p>
        )}
        <button type="submit" class="primary" id="set-password" disabled={isBusy}>
          {isBusy ? "Please wait…" : "Set password and sign in"}
        </button>
      </form>
    </DoorFrame>
  );
}
