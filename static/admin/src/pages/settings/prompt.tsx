import { useEffect, useRef, useState } from "preact/hooks";
import type { AppResponse } from "../../api/types";
import { useBegin } from "../../lib/begin";
import { LANGUAGES, promptFrom, TEXTS } from "../../lib/prompt";
import { useFilters } from "../../lib/url";
import { ChooseApp } from "../../shell/choose-app";
import { useHere, useMay } from "../../shell/context";
import { Card } from "../../ui/card";
import { Draft, Notice } from "../../ui/draft";
import { useEdit } from "../../ui/edit";
import { Field, Form, Written } from "../../ui/form";
import { loadPrompt, setPrompt, type PromptSettings } from "./load";

export function Prompt() {
  const { app, apps } = useHere();
  return app ? <PromptOf key={app.id} app={app} /> : <ChooseApp apps={apps} what="Each app has its own prompt." />;
}

function PromptOf({ app }: { app: AppResponse }) {
  const prompt = useBegin(app.id, (stop) => loadPrompt(app.id, stop));
  const [language, setLanguage] = useState("en");
  const [saved, setSaved] = useState(false);
  const { link } = useFilters();
  return (
    <Card title="Prompt for notifications">
      <p class="fine">
        Pages with <code>&lt;bellwire-prompt&gt;</code> ask visitors in your words before the browser asks. It appears
        once all conditions hold. To greet new subscribers, create the campaign{" "}
        <a id="welcome" href={link("/campaigns/-new", { preset: "welcome" })}>
          Welcome after subscribing
        </a>
        .
      </p>
      <Draft of={prompt} what="the prompt">
        {(known) => (
          <Edit
            app={app}
            known={known}
            reload={prompt.again}
            language={language}
            setLanguage={setLanguage}
            setSaved={setSaved}
          />
        )}
      </Draft>
      <Notice>{saved && "Saved."}</Notice>
    </Card>
  );
}

/** Numbers of the form: name, label, smallest and largest value. */
const CONDITIONS = [
  ["visits", "Visits", 1, 100],
  ["seconds", "Seconds on the page", 0, 3600],
  ["scroll_percent", "Scrolled, in percent of the page", 0, 100],
  ["share_percent", "Share of browsers, in percent", 0, 100],
  ["no_days", "Days of silence after a no", 1, 3650],
  ["not_now_days", "Days of silence after “not now”", 1, 365],
] as const;

interface EditProps {
  app: AppResponse;
  known: PromptSettings;
  reload: () => void;
  /** Language whose texts are edited. */
  language: string;
  setLanguage: (language: string) => void;
  setSaved: (saved: boolean) => void;
}

function Edit({ app, known, reload, language, setLanguage, setSaved }: EditProps) {
  const operator = useMay("operator", app.id);
  const [draft, setDraft] = useState(known);
  const edit = useEdit({ begun: known, load: (stop) => loadPrompt(app.id, stop), written: (it) => it, reload });
  const languages = [...new Set([...LANGUAGES, ...Object.keys(known.texts ?? {})])].sort();
  const read = (form: HTMLFormElement | null) => {
    setSaved(false);
    if (form) setDraft(promptFrom(new Written(new FormData(form)), draft, language));
  };
  return (
    <div class="prompt">
      <div onInput={(event) => read(event.currentTarget.querySelector("form"))}>
        <Form
          button="Save"
          id="change-prompt"
          isOff={!operator.may}
          work={async () => {
            await edit.save((condition) => setPrompt(app.id, draft, condition));
            setSaved(true);
            reload();
          }}
        >
          <label class="check">
            <input type="checkbox" name="enabled" defaultChecked={known.enabled} />
            <span>The prompt appears by itself</span>
          </label>
          <Field label="Form">
            {(tie) => (
              <select name="layout" defaultValue={known.layout} {...tie}>
                <option value="card">Card in a corner</option>
                <option value="bar">Bar at the bottom</option>
                <option value="dialog">Dialog in front of the page</option>
              </select>
            )}
          </Field>
          <Field label="Topics" hint="A yes subscribes to them.">
            {(tie) => <input name="topics" defaultValue={known.topics?.join(" ")} autocomplete="off" {...tie} />}
          </Field>
          {CONDITIONS.map(([name, label, least, most]) => (
            <Field key={name} label={label}>
              {(tie) => (
                <input
                  type="number"
                  name={name}
                  required
                  min={least}
                  max={most}
                  defaultValue={String(known[name])}
                  {...tie}
                />
              )}
            </Field>
          ))}
          <Field label="Event" hint="Name that your page passes to bellwire.suggest(). Empty: no event is needed.">
            {(tie) => (
              <input name="event" maxLength={64} defaultValue={known.event ?? ""} autocomplete="off" {...tie} />
            )}
          </Field>
          <Field label="Language of the texts below" hint="Empty texts are the built-in ones.">
            {(tie) => (
              <select
                value={language}
                onInput={(event) => (event.stopPropagation(), setLanguage(event.currentTarget.value))}
                {...tie}
              >
                {languages.map((tag) => (
                  <option key={tag}>{tag}</option>
                ))}
              </select>
            )}
          </Field>
          {TEXTS.map(([name, label]) => (
            <Field key={`${language} ${name}`} label={label}>
              {(tie) => (
                <input
                  name={`text_${name}`}
                  maxLength={300}
                  defaultValue={draft.texts?.[language]?.[name] ?? ""}
                  autocomplete="off"
                  {...tie}
                />
              )}
            </Field>
          ))}
        </Form>
        {!operator.may && <p class="fine">Your role does not allow changing the prompt. {operator.why}</p>}
      </div>
      <Preview settings={draft} language={language} />
    </div>
  );
}

type PromptElement = HTMLElement & { preview: (settings: PromptSettings) => Promise<void> };
/** Module of this server, which pages of sites load, too. */
const MODULE = "/sdk/ui.js";

/** The prompt as visitors see it. */
function Preview({ settings, language }: { settings: PromptSettings; language: string }) {
  const place = useRef<HTMLDivElement>(null);
  const [isLost, lose] = useState(false);
  const shown = JSON.stringify(settings);
  useEffect(() => {
    const show = async () => {
      const { define } = (await import(/* @vite-ignore */ MODULE)) as { define: () => void };
      define();
      await place.current?.querySelector<PromptElement>("bellwire-prompt")?.preview(settings);
    };
    show().catch(() => lose(true));
  }, [shown, language]);
  return (
    <section class="preview-of-prompt" aria-label="Preview">
      <div class="stage" ref={place} lang={language}>
        <bellwire-prompt />
      </div>
      {isLost && <p class="fine">The preview could not be loaded.</p>}
    </section>
  );
}

declare module "preact" {
  namespace JSX {
    interface IntrinsicElements {
      "bellwire-prompt": object;
    }
  }
}
