import { useState } from "preact/hooks";
import type { AppResponse } from "../../api/types";
import { slugFrom, snippets } from "../../lib/first-run";
import { useFilters } from "../../lib/url";
import { useHere, useMay } from "../../shell/context";
import { ShownOnce, Snippet } from "../../ui/copy";
import { Field, Form } from "../../ui/form";
import { makeApiKey, makeApp, type Scope } from "../settings/load";

/** The topic that a site begins with. */
const TOPIC = "news";
/** Scopes of a backend: send messages, read results, and assign browsers to users. */
const SCOPES: readonly Scope[] = ["send", "read", "subscribers"];

export function AppStep() {
  const { session, refreshApps } = useHere();
  const { go } = useFilters();
  const [name, setName] = useState("");
  const [slug, setSlug] = useState<string>();
  return (
    <Form
      button="Create"
      id="make-app"
      work={async ({ text, lines, has }) => {
        const origins = [...lines("origins"), ...(has("here") ? [location.origin] : [])];
        const made = await makeApp({
          slug: text("slug"),
          name: text("name"),
          origins: [...new Set(origins)],
          subject: text("subject"),
          topics: [TOPIC],
        });
        await refreshApps();
        go("/first-run", { app: made.slug });
      }}
    >
      <p>An app is one site with its keys, subscribers and messages.</p>
      <Field label="Name">
        {(tie) => (
          <input
            name="name"
            id="app-name"
            required
            maxLength={200}
            placeholder="Shop"
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
            autocomplete="off"
            {...tie}
          />
        )}
      </Field>
      <Field label="Slug" hint="For URLs and commands. It cannot be changed.">
        {(tie) => (
          <input
            name="slug"
            required
            pattern="[a-z0-9][a-z0-9\-]{0,62}"
            value={slug ?? slugFrom(name)}
            onInput={(event) => setSlug(event.currentTarget.value)}
            autocomplete="off"
            {...tie}
          />
        )}
      </Field>
      <Field
        label="Origin"
        hint="Such as https://shop.example.com or http://localhost:3000. Browsers on other origins are refused."
      >
        {(tie) => <input name="origins" id="app-origin" required placeholder="https://" autocomplete="off" {...tie} />}
      </Field>
      <Field label="Contact for push services" hint="mailto:… or https://…. Push services use it to report problems.">
        {(tie) => (
          <input
            name="subject"
            id="app-subject"
            required
            defaultValue={session.email ? `mailto:${session.email}` : ""}
            placeholder="mailto:"
            autocomplete="off"
            {...tie}
          />
        )}
      </Field>
      <label class="check">
        <input type="checkbox" name="here" defaultChecked />
        <span>
          Also allow the origin of this server
          <span class="fine">The fourth step subscribes this browser at {location.origin}.</span>
        </span>
      </label>
    </Form>
  );
}

interface KeyProps {
  app: AppResponse;
  isDone: boolean;
  /** Shown now and never again. */
  secret: string | undefined;
  onMade: (secret: string) => Promise<void>;
}

export function KeyStep({ app, isDone, secret, onMade }: KeyProps) {
  const { link } = useFilters();
  const admin = useMay("admin", app.id);
  if (secret)
    return <ShownOnce id="secret" what="Line for your backend’s environment" text={`BELLWIRE_KEY=${secret}`} />;
  if (isDone) {
    return (
      <p>
        A key with the scope send exists. <a href={link("/settings/keys")}>Keys</a>
      </p>
    );
  }
  if (!admin.may) return <p class="fine">Your role does not allow creating keys. {admin.why}</p>;
  return (
    <Form
      button="Create key"
      id="make-key"
      work={async () => onMade((await makeApiKey(app.id, { name: "backend", scopes: [...SCOPES] })).secret)}
    >
      <p>
        Your backend uses the key in each request. The key can send messages, read results and assign browsers to users
        of {app.name}. It is valid until it is revoked.
      </p>
    </Form>
  );
}

export function SiteStep({ app, isDone, onPasted }: { app: AppResponse; isDone: boolean; onPasted: () => void }) {
  const { worker, page, send } = snippets(location.origin, app.slug, TOPIC);
  return (
    <>
      <p>
        In <code>/service-worker.js</code> on your site, at the top:
      </p>
      <Snippet what="Lines for your service worker" text={worker} />
      <p>On your page:</p>
      <Snippet what="Button for your page" text={page} />
      <details>
        <summary>Request to send from your backend</summary>
        <Snippet what="Request that sends" text={send} />
      </details>
      {isDone ? (
        <p>A visitor has subscribed on your site.</p>
      ) : (
        <div class="row">
          <button type="button" class="primary" id="pasted" onClick={onPasted}>
            Continue
          </button>
          <span class="fine">You can do this later. The step is complete when the first visitor has subscribed.</span>
        </div>
      )}
    </>
  );
}
