import { useState } from "preact/hooks";
import { Refusal } from "../../api/problem";
import type { AppResponse, PromptSettings } from "../../api/types";
import { useBegin } from "../../lib/begin";
import {
  CONDITIONS,
  faultAt,
  faultyLanguage,
  LANGUAGES,
  LAYOUTS,
  promptFields,
  promptFrom,
  shownSettings,
  TEXTS,
  variantDrafts,
  variantFaults,
  variantsOf,
} from "../../lib/prompt";
import { useFilters } from "../../lib/url";
import { useMay } from "../../shell/context";
import { OfApp } from "../../shell/of-app";
import { useAction } from "../../ui/action";
import { Card } from "../../ui/card";
import { Draft, Notice } from "../../ui/draft";
import { useEdit } from "../../ui/edit";
import { Written } from "../../ui/form";
import { RefusedFields } from "../../ui/shown";
import "../composer/composer.css";
import { Field } from "../composer/fields";
import { loadPrompt, setPrompt } from "./load";
import { OptInFunnel } from "./opt-in-funnel";
import { Preview } from "./prompt-preview";
import { Variants } from "./prompt-variants";

export function Prompt() {
  return (
    <OfApp what="Each app has its own prompt.">
      {(app) => (
        <>
          <PromptOf key={app.id} app={app} />
          <OptInFunnel app={app} />
        </>
      )}
    </OfApp>
  );
}

/** Part of the settings that is edited and shown. */
interface View {
  /** Language whose texts are edited. */
  language: string;
  /** Position of the variant in the preview. Undefined: the prompt. */
  variant: number | undefined;
}

function PromptOf({ app }: { app: AppResponse }) {
  const prompt = useBegin(app.id, (stop) => loadPrompt(app.id, stop));
  const [view, setView] = useState<View>({ language: "en", variant: undefined });
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
            view={view}
            show={(changes) => setView((view) => ({ ...view, ...changes }))}
            setSaved={setSaved}
          />
        )}
      </Draft>
      <Notice>{saved && "Saved."}</Notice>
    </Card>
  );
}

interface EditProps {
  app: AppResponse;
  known: PromptSettings;
  reload: () => void;
  view: View;
  show: (changes: Partial<View>) => void;
  setSaved: (saved: boolean) => void;
}

function Edit({ app, known, reload, view: { language, variant }, show, setSaved }: EditProps) {
  const operator = useMay("operator", app.id);
  const [draft, setDraft] = useState(known);
  const [variants, setVariants] = useState(() => variantDrafts(known.variants));
  const edit = useEdit({ begun: known, load: (stop) => loadPrompt(app.id, stop), written: (it) => it, reload });
  const { run, isBusy, problem } = useAction(async () => {
    try {
      const body = { ...draft, variants: variantsOf(variants) };
      await edit.save((condition) => setPrompt(app.id, body, condition));
    } catch (thrown) {
      const faulty = thrown instanceof Refusal && faultyLanguage(thrown);
      if (faulty) show({ language: faulty });
      throw thrown;
    }
    setSaved(true);
    reload();
  });
  const isLacking = variantFaults(variants).some(({ name, weight }) => name || weight);
  const change = (event: InputEvent) => {
    setSaved(false);
    const fields = new Written(new FormData(event.currentTarget as HTMLFormElement));
    setDraft((draft) => promptFrom(fields, draft, language));
  };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (!isLacking) void run();
  };
  // The preview shows what is being edited.
  const follow = (event: FocusEvent) => {
    const field = event.target as HTMLInputElement;
    const group = field.closest<HTMLElement>("[data-variant]");
    if (group) show({ variant: Number(group.dataset.variant) });
    else if (/^(?:layout|text_)/.test(field.name)) show({ variant: undefined });
  };
  return (
    <div class="prompt">
      <form class="form labelled" onInput={change} onSubmit={submit} onFocusIn={follow}>
        <fieldset class="plain-set" disabled={!operator.may}>
          <Conditions known={known} problem={problem} />
          <PromptTexts draft={draft} language={language} choose={(language) => show({ language })} problem={problem} />
          <Variants
            prompt={draft}
            variants={variants}
            change={(variants) => (setSaved(false), setVariants(variants))}
            language={language}
            problem={problem}
          />
        </fieldset>
        <RefusedFields problem={problem} at={promptFields(language)} />
        {operator.may ? (
          <p class="row">
            <button type="submit" class="primary" id="change-prompt" disabled={isBusy || isLacking}>
              Save
            </button>
            {isLacking && <span class="soft">Correct the variants.</span>}
          </p>
        ) : (
          <p class="fine">Your role does not allow changing the prompt. {operator.why}</p>
        )}
      </form>
      <Preview
        settings={shownSettings(draft, variants[variant ?? -1])}
        language={language}
        names={variants.map(({ name }, n) => name || `Variant ${n + 1}`)}
        chosen={variant}
        choose={(variant) => show({ variant })}
      />
    </div>
  );
}

/** Form of the prompt, and when it appears. */
function Conditions({ known, problem }: { known: PromptSettings; problem: Refusal | undefined }) {
  return (
    <>
      <label class="check">
        <input type="checkbox" name="enabled" defaultChecked={known.enabled} />
        <span>The prompt appears by itself</span>
      </label>
      <Field label="Form" fault={problem?.fault("/layout")}>
        {(described) => (
          <select {...described} name="layout" defaultValue={known.layout}>
            {LAYOUTS.map(([layout, words]) => (
              <option key={layout} value={layout}>
                {words}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label="Topics" hint="A yes subscribes to them." fault={faultAt(problem, "/topics")}>
        {(described) => (
          <input {...described} name="topics" defaultValue={known.topics?.join(" ")} autocomplete="off" />
        )}
      </Field>
      {CONDITIONS.map(([name, label, least, most]) => (
        <Field key={name} label={label} fault={problem?.fault(`/${name}`)}>
          {(described) => (
            <input
              {...described}
              type="number"
              name={name}
              required
              min={least}
              max={most}
              defaultValue={String(known[name])}
            />
          )}
        </Field>
      ))}
      <Field
        label="Event"
        hint="Name that your page passes to bellwire.suggest(). Empty: no event is needed."
        fault={problem?.fault("/event")}
      >
        {(described) => (
          <input {...described} name="event" maxLength={64} defaultValue={known.event ?? ""} autocomplete="off" />
        )}
      </Field>
    </>
  );
}

interface TextsProps {
  draft: PromptSettings;
  language: string;
  choose: (language: string) => void;
  problem: Refusal | undefined;
}

function PromptTexts({ draft, language, choose, problem }: TextsProps) {
  const languages = [...new Set([...LANGUAGES, language, ...Object.keys(draft.texts)])].sort();
  return (
    <>
      <Field label="Language of the texts below" hint="Empty texts are the built-in ones.">
        {(described) => (
          <select
            {...described}
            value={language}
            onInput={(event) => (event.stopPropagation(), choose(event.currentTarget.value))}
          >
            {languages.map((tag) => (
              <option key={tag}>{tag}</option>
            ))}
          </select>
        )}
      </Field>
      {TEXTS.map(([name, label]) => (
        <Field key={`${language} ${name}`} label={label} fault={problem?.fault(`/texts/${language}/${name}`)}>
          {(described) => (
            <input
              {...described}
              name={`text_${name}`}
              maxLength={300}
              defaultValue={draft.texts[language]?.[name] ?? ""}
              autocomplete="off"
            />
          )}
        </Field>
      ))}
    </>
  );
}
