import { useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import type { AppResponse, TemplateResponse } from "../../api/types";
import { useBegin } from "../../lib/begin";
import { slugOf } from "../../lib/campaign-draft";
import { languageWords } from "../../lib/format";
import { BLANK, draftOf } from "../../lib/templates";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { ChooseApp } from "../../shell/choose-app";
import { useHere, useMay } from "../../shell/context";
import { Card, Head } from "../../ui/card";
import { useEdit } from "../../ui/edit";
import { Ask } from "../../ui/form";
import { Time } from "../../ui/numbers";
import { Failed, Shown } from "../../ui/shown";
import { Text } from "../composer/fields";
import { useDraft } from "../composer/store";
import { Written } from "../messages/said";
import { usesWords } from "../../lib/templates";
import { Editor } from "./editor";
import { loadTemplate, loadUses, removeTemplate, written } from "./load";

/** Path of the form for a new template: no name begins with a hyphen. */
const NEW = "-new";

/** One template: its content by language, with a rendered preview. */
export default function TemplatePage() {
  const { params } = useRoute();
  const { app, apps } = useHere();
  const { link } = useFilters();
  const name = params.template ?? "";
  return (
    <>
      <p class="back">
        <a href={link("/templates")}>Templates</a>
      </p>
      {!app ? (
        <>
          <Head title="Template" lead={name} />
          <ChooseApp apps={apps} what="Each template belongs to an app." />
        </>
      ) : name === NEW ? (
        <New key={app.id} app={app} />
      ) : (
        <Existing key={`${app.id} ${name}`} app={app} name={name} />
      )}
    </>
  );
}

function New({ app }: { app: AppResponse }) {
  const sender = useMay("sender", app.id);
  return (
    <>
      <Head title="New template" lead="The preview is updated while you write." />
      {sender.may ? (
        <Write app={app} />
      ) : (
        <p class="refused">Your role does not allow writing templates. {sender.why}</p>
      )}
    </>
  );
}

/** It is kept in this tab until it is stored. */
function Write({ app }: { app: AppResponse }) {
  const { session } = useHere();
  const { go } = useFilters();
  const { draft, change, forget, clear } = useDraft(
    `bellwire.template.${app.id}`,
    session.email ?? "an operator’s key",
    { ...BLANK, name: "" },
  );
  const onSaved = () => {
    forget();
    go(`/templates/${draft.name}`);
  };
  // A hyphen at the end is the beginning of another word.
  const rename = (name: string) => change({ name: name === "" ? "" : slugOf(name) + (/[\s-]$/.test(name) ? "-" : "") });
  return (
    <Editor
      app={app}
      name={draft.name}
      draft={draft}
      change={change}
      button="Create"
      onSaved={onSaved}
      reload={onSaved}
      clear={clear}
    >
      <Card title="Name">
        <Text
          label="Name"
          name="template-name"
          value={draft.name}
          change={rename}
          max={64}
          placeholder="welcome"
          hint="Lower-case letters, digits and hyphens. Messages use this name."
        />
      </Card>
    </Editor>
  );
}

function Existing({ app, name }: { app: AppResponse; name: string }) {
  const { link } = useFilters();
  const sender = useMay("sender", app.id);
  const [isSaved, setSaved] = useState(false);
  const { begun, problem, edition, again } = useBegin(`${app.id} ${name}`, (stop) => loadTemplate(app.id, name, stop));
  if (problem) {
    return (
      <>
        <Head title={name} />
        <Failed problem={problem} what="this template" retry={again} />
      </>
    );
  }
  if (!begun) return <p class="loading">Loading the template…</p>;
  return (
    <>
      <Head
        title={name}
        lead={
          <>
            changed <Time at={begun.changed_at} /> · <code>{`"template": "${name}"`}</code>
          </>
        }
      >
        {sender.may && (
          <a class="button" id="send-template" href={link("/messages/new", { template: name })}>
            Send with this template
          </a>
        )}
        {sender.may && <Delete key={edition} app={app} stored={begun} reload={again} />}
      </Head>
      {sender.may ? (
        <>
          {isSaved && (
            <p role="status" id="saved">
              Saved. New messages use this version. Sent messages and started campaigns keep the earlier version.
            </p>
          )}
          <Change
            key={edition}
            app={app}
            stored={begun}
            onSaved={() => {
              setSaved(true);
              again();
            }}
            reload={() => {
              setSaved(false);
              again();
            }}
          />
        </>
      ) : (
        <>
          <p class="fine">Your role does not allow changing or deleting templates. {sender.why}</p>
          <Read stored={begun} />
        </>
      )}
    </>
  );
}

function Change({
  app,
  stored,
  onSaved,
  reload,
}: {
  app: AppResponse;
  stored: TemplateResponse;
  onSaved: () => void;
  reload: () => void;
}) {
  const [begin] = useState(() => (stored.template ? draftOf(stored.template) : BLANK));
  const [draft, setDraft] = useState(begin);
  return (
    <Editor
      app={app}
      name={stored.name}
      stored={stored}
      draft={draft}
      change={(changes) => setDraft((draft) => ({ ...draft, ...changes }))}
      button="Save"
      onSaved={onSaved}
      reload={reload}
      isSame={draft === begin}
    />
  );
}

/** Content of a template, for users without edit permission. */
function Read({ stored: { template } }: { stored: TemplateResponse }) {
  if (!template) return null;
  const languages = [["", template] as const, ...Object.entries(template.locales ?? {})];
  return (
    <div class="grid halves">
      {languages.map(([locale, { content }]) => (
        <Card
          key={locale}
          title={locale ? languageWords(locale) : "Default"}
          aside={locale && <code class="fine">{locale}</code>}
        >
          <Written content={content} />
        </Card>
      ))}
    </div>
  );
}

interface DeleteProps {
  app: AppResponse;
  stored: TemplateResponse;
  reload: () => void;
}

function Delete(props: DeleteProps) {
  const [isAsked, ask] = useState(false);
  return (
    <>
      <button type="button" id="delete" onClick={() => ask(true)}>
        Delete…
      </button>
      {isAsked && <DeleteDialog {...props} onClose={() => ask(false)} />}
    </>
  );
}

function DeleteDialog({ app, stored, reload, onClose }: DeleteProps & { onClose: () => void }) {
  const { go } = useFilters();
  const { name } = stored;
  const edit = useEdit({
    begun: stored,
    load: (stop) => loadTemplate(app.id, name, stop),
    written,
    reload,
    verb: "Delete anyway",
  });
  const uses = useResource(`uses ${app.id} ${name}`, (stop) => loadUses(app.id, name, stop), { everyS: 3_600 });
  return (
    <Ask
      title={`Delete ${name}?`}
      says={
        <span id="consequence">
          <Shown of={uses} what="campaigns with the template">
            {(uses) => usesWords(uses)}
          </Shown>
        </span>
      }
      button="Delete"
      isGrave
      work={async () => {
        await edit.save((condition) => removeTemplate(app.id, name, condition));
        go("/templates");
      }}
      onClose={onClose}
    />
  );
}
