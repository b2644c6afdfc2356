import { useState } from "preact/hooks";
import type { AppResponse } from "../../api/types";
import { things } from "../../lib/format";
import { to, useFilters } from "../../lib/url";
import { useHere, useMay } from "../../shell/context";
import { Card } from "../../ui/card";
import { Notice } from "../../ui/draft";
import { useEdit } from "../../ui/edit";
import { Ask, Field, Form, type Written } from "../../ui/form";
import { Time } from "../../ui/numbers";
import { Table } from "../../ui/table";
import { changeApp, deleteApp, loadApp, makeApp, type AppChange, type Right } from "./load";

export function Apps() {
  const { app } = useHere();
  const { filters } = useFilters();
  // The only app there is needs no naming elsewhere, but here others are made.
  return app && filters.app ? <OneApp app={app} /> : <AllApps />;
}

function AllApps() {
  const { apps } = useHere();
  const [isOpen, open] = useState(false);
  const operator = useMay("operator", null);
  return (
    <Card
      title="Apps"
      aside={
        operator.may && (
          <button type="button" id="new-app" onClick={() => open(true)}>
            New app…
          </button>
        )
      }
    >
      {apps.length === 0 ? (
        <p>
          There is no app yet. <a href={to("/first-run")}>Create the first app</a>
        </p>
      ) : (
        <Table
          caption="Apps"
          rows={apps}
          id={({ id }) => id}
          columns={[
            {
              head: "App",
              cell: ({ slug, name }) => (
                <>
                  <a href={to("/settings/apps", { app: slug })}>{name}</a>
                  <br />
                  <code class="soft">{slug}</code>
                </>
              ),
            },
            { head: "Origins", cell: ({ origins }) => <Origins origins={origins} /> },
            { head: "Weight", isNumber: true, isExtra: true, cell: ({ weight }) => weight },
            { head: "Created", isExtra: true, cell: ({ created_at }) => <Time at={created_at} /> },
          ]}
        />
      )}
      {!operator.may && <p class="fine">Your role does not allow creating apps. {operator.why}</p>}
      {isOpen && <NewApp onClose={() => open(false)} />}
    </Card>
  );
}

function Origins({ origins }: { origins: readonly string[] }) {
  if (origins.length === 0) return <span class="fine">none: no browser can subscribe</span>;
  const [first, ...rest] = origins;
  return (
    <span title={origins.join("\n")}>
      <code>{first}</code>
      {rest.length > 0 && <span class="fine"> and {things(rest.length, "other")}</span>}
    </span>
  );
}

function NewApp({ onClose }: { onClose: () => void }) {
  const { refreshApps } = useHere();
  const { go } = useFilters();
  const make = async (written: Written) => {
    const made = await makeApp({
      slug: written.text("slug"),
      name: written.text("name"),
      origins: written.lines("origins"),
      subject: written.text("subject"),
      topics: written.lines("topics"),
    });
    await refreshApps();
    go("/settings/apps", { app: made.slug });
  };
  return (
    <Ask
      title="New app"
      button="Create"
      says="An app is one site with its keys, subscribers and messages. A VAPID key is created with it."
      work={make}
      onClose={onClose}
    >
      <Field label="Name">{(tie) => <input name="name" required maxLength={200} autocomplete="off" {...tie} />}</Field>
      <Field label="Slug" hint="For URLs and commands: lower-case letters, digits and hyphens. It cannot be changed.">
        {(tie) => <input name="slug" required pattern="[a-z0-9][a-z0-9\-]{0,62}" autocomplete="off" {...tie} />}
      </Field>
      <Field label="Origins" hint="One per line, such as https://shop.example.com">
        {(tie) => <textarea name="origins" rows={2} {...tie} />}
      </Field>
      <Field label="Contact for push services" hint="mailto:… or https://…. Push services use it to report problems.">
        {(tie) => <input name="subject" required placeholder="mailto:" autocomplete="off" {...tie} />}
      </Field>
      <Field label="First topics">
        {(tie) => <input name="topics" defaultValue="news" autocomplete="off" {...tie} />}
      </Field>
    </Ask>
  );
}

const RIGHTS: readonly [Right, string][] = [
  ["create_topics", "create topics"],
  ["set_tags", "set tags"],
  ["set_attributes", "set attributes"],
  ["track_events", "report events"],
  ["report_conversions", "report conversions"],
];

function OneApp({ app }: { app: AppResponse }) {
  const { refreshApps } = useHere();
  const { link } = useFilters();
  const operator = useMay("operator", app.id);
  const ofServer = useMay("operator", null);
  const [change, propose] = useState<AppChange>();
  const [saved, setSaved] = useState(false);
  const reload = async () => {
    await refreshApps();
    propose(undefined);
  };
  const settings = JSON.stringify(settingsOf(app));
  // It comes from a list, without a tag.
  const edit = useEdit(
    { begun: app, load: (stop) => loadApp(app.id, stop), written: settingsOf, reload, isLive: true },
    settings,
  );
  const read = async (written: Written) => {
    setSaved(false);
    propose(proposed(app, written, ofServer.may));
  };
  return (
    <>
      <p class="back">
        <a href={to("/settings/apps")}>All apps</a>
      </p>
      <Card title={app.name} aside={<code class="soft">{app.slug}</code>}>
        <Form key={settings} button="Review the change…" id="change-app" isOff={!operator.may} work={read}>
          <Field label="Name">
            {(tie) => (
              <input name="name" required maxLength={200} defaultValue={app.name} autocomplete="off" {...tie} />
            )}
          </Field>
          <Field
            label="Origins"
            hint="One per line. Browsers on other origins are refused, including earlier subscribers."
          >
            {(tie) => (
              <textarea
                name="origins"
                rows={Math.max(2, app.origins.length)}
                defaultValue={app.origins.join("\n")}
                {...tie}
              />
            )}
          </Field>
          <fieldset class="choices">
            <legend>Browsers can join open topics, and also</legend>
            {RIGHTS.map(([right, words]) => (
              <label key={right}>
                <input
                  type="checkbox"
                  name="browsers_may"
                  value={right}
                  defaultChecked={app.browsers_may.includes(right)}
                />{" "}
                {words}
              </label>
            ))}
          </fieldset>
          <Field label="Maximum retries" hint="Limit and default of policies in QStash format.">
            {(tie) => (
              <input
                type="number"
                name="max_retries"
                min={0}
                max={1000}
                defaultValue={String(app.max_retries)}
                {...tie}
              />
            )}
          </Field>
          <Field
            label="Weight"
            hint={
              ofServer.may
                ? "Share of the throughput, relative to other apps, while several apps have waiting deliveries."
                : `Share of the throughput. ${ofServer.why}`
            }
          >
            {(tie) => (
              <input
                type="number"
                name="weight"
                min={1}
                max={100}
                defaultValue={String(app.weight)}
                disabled={!ofServer.may}
                {...tie}
              />
            )}
          </Field>
          <label class="check">
            <input
              type="checkbox"
              name="allow_other_gateways"
              defaultChecked={app.allow_other_gateways}
              disabled={!ofServer.may && !app.allow_other_gateways}
            />
            <span>
              Allow unknown push services
              <span class="fine">The server then connects to any host that a browser names.</span>
            </span>
          </label>
        </Form>
        <Notice>{saved && "Saved."}</Notice>
        {!operator.may && <p class="fine">Your role does not allow changing the app. {operator.why}</p>}
      </Card>
      <Card title="Delete the app">
        <p>Deletes the app with its subscriptions, messages, dead letters, settings and keys. This cannot be undone.</p>
        {ofServer.may ? <Delete app={app} /> : <p class="fine">{ofServer.why}</p>}
      </Card>
      {change && (
        <Ask
          title={`Change ${app.name}?`}
          button="Save"
          says={<Consequences change={change} />}
          work={async () => {
            if (Object.keys(change).length > 0) await edit.save((condition) => changeApp(app.id, change, condition));
            await reload();
            setSaved(true);
          }}
          onClose={() => propose(undefined)}
        />
      )}
      <p>
        <a href={link("/first-run")}>Snippets for the site</a>
      </p>
    </>
  );
}

/** Settings of an app in the form. */
const settingsOf = ({
  name,
  origins,
  browsers_may,
  max_retries,
  weight,
  allow_other_gateways,
}: AppResponse): object => ({ name, origins, browsers_may, max_retries, weight, allow_other_gateways });

/** Differences from the stored settings. */
function proposed(app: AppResponse, written: Written, mayAll: boolean): AppChange {
  const change: AppChange = {};
  const name = written.text("name");
  if (name !== app.name) change.name = name;
  const origins = written.lines("origins");
  const added = origins.filter((origin) => !app.origins.includes(origin));
  const removed = app.origins.filter((origin) => !origins.includes(origin));
  if (added.length > 0) change.add_origins = added;
  if (removed.length > 0) change.remove_origins = removed;
  const rights = written.all("browsers_may") as Right[];
  if (String(rights) !== String(RIGHTS.map(([right]) => right).filter((right) => app.browsers_may.includes(right))))
    change.browsers_may = rights;
  const retries = Number(written.text("max_retries"));
  if (retries !== app.max_retries) change.max_retries = retries;
  const weight = Number(written.text("weight"));
  if (mayAll && weight !== app.weight) change.weight = weight;
  const allows = written.has("allow_other_gateways");
  // A box that cannot be changed is in no form.
  if (allows !== app.allow_other_gateways && (mayAll || !allows)) change.allow_other_gateways = allows;
  return change;
}

function Consequences({ change }: { change: AppChange }) {
  const lines = [
    change.name && `The name becomes “${change.name}”.`,
    ...(change.add_origins ?? []).map((origin) => `Pages of ${origin} can subscribe browsers.`),
    ...(change.remove_origins ?? []).map(
      (origin) => `Pages of ${origin} are refused. Browsers that subscribed there still get messages.`,
    ),
    change.browsers_may &&
      `Browsers can ${
        RIGHTS.filter(([right]) => change.browsers_may?.includes(right))
          .map(([, words]) => words)
          .join(", ") || "only join open topics"
      }.`,
    change.max_retries != null && `Policies have at most ${things(change.max_retries, "retry", "retries")}.`,
    change.weight != null && `The weight becomes ${change.weight} within a minute.`,
    change.allow_other_gateways === true && "The server connects to any host that a browser of this app names.",
    change.allow_other_gateways === false && "New subscriptions at unknown push services are refused.",
  ].filter((line) => typeof line === "string" && line !== "") as string[];
  if (lines.length === 0) return <>No changes.</>;
  return (
    <ul class="bullets">
      {lines.map((line) => (
        <li key={line}>{line}</li>
      ))}
    </ul>
  );
}

function Delete({ app }: { app: AppResponse }) {
  const { refreshApps } = useHere();
  const { go } = useFilters();
  const [isOpen, open] = useState(false);
  return (
    <div>
      <button type="button" class="grave" onClick={() => open(true)}>
        Delete {app.name}…
      </button>
      {isOpen && (
        <Ask
          title={`Delete ${app.name}?`}
          button={`Delete ${app.name}`}
          isGrave
          says="Sending stops immediately, and the API keys are revoked. The data is deleted within minutes or hours."
          work={async (written) => {
            await deleteApp(app.id, written.text("confirm"));
            await refreshApps();
            go("/settings/apps", { app: undefined });
          }}
          onClose={() => open(false)}
        >
          <Field label={`Type the slug ${app.slug} to confirm`}>
            {(tie) => <input name="confirm" required autocomplete="off" {...tie} />}
          </Field>
        </Ask>
      )}
    </div>
  );
}
