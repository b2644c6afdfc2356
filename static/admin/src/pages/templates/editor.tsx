import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { AppResponse, TemplateResponse, TemplatePreview } from "../../api/types";
import { useAsked, type Asked } from "../../lib/asked";
import { content, objectOf } from "../../lib/draft";
import { languageWords } from "../../lib/format";
import {
  ANYBODY,
  inLanguage,
  pointerOf,
  templateOf,
  untaken,
  whomOf,
  withLanguage,
  withoutLanguage,
  type Draft,
  type PreviewRecipient,
} from "../../lib/templates";
import { useAction } from "../../ui/action";
import { Card } from "../../ui/card";
import { useEdit } from "../../ui/edit";
import { Refused } from "../../ui/shown";
import "../composer/composer.css";
import { ContentFields } from "../composer/content";
import { Check, Choice, Segments, Text } from "../composer/fields";
import { Meter } from "../composer/meter";
import { Previews } from "../composer/previews";
import { ClearDialog } from "../composer/send";
import { AudienceCard } from "./audience";
import { loadTemplate, preview, putTemplate, written } from "./load";
import "./templates.css";

interface Props {
  app: AppResponse;
  name: string;
  /** Stored template at the start of the edit. Undefined: a new one. */
  stored?: TemplateResponse;
  draft: Draft;
  change: (changes: Partial<Draft>) => void;
  button: string;
  onSaved: () => void;
  /** Begins again with what is stored. */
  reload: () => void;
  /** Nothing was changed yet. */
  isSame?: boolean;
  /** Key of the draft in this tab's storage. */
  clear?: () => void;
  children?: ComponentChildren;
}

/** Editor of a template, with a rendered preview. */
export function Editor({
  app,
  name,
  stored,
  draft,
  change,
  button,
  onSaved,
  reload,
  isSame = false,
  clear,
  children,
}: Props) {
  const [wanted, choose] = useState(0);
  const n = Math.min(wanted, draft.languages.length - 1);
  const [recipient, setRecipient] = useState(ANYBODY);
  const [data, tell] = useState("");
  const [isAsked, ask] = useState(false);
  const template = templateOf(draft);
  const isTitled = draft.languages.every(({ said }) => said.title.trim() !== "");
  const [whom, told] = [whomOf(recipient), objectOf(data)];
  const question = isTitled && whom && told ? { template, data: told as Record<string, never>, ...whom } : undefined;
  const filled = useAsked(question, (body, stop) => preview(app.id, body, stop));
  const body = JSON.stringify([name, template]);
  const [saved, setSaved] = useState("");
  const edit = useEdit({ begun: stored, load: (stop) => loadTemplate(app.id, name, stop), written, reload }, name);
  const { run, isBusy, problem } = useAction(async () => {
    setSaved(body);
    await edit.save((condition) => putTemplate(app.id, name, template, condition));
    onSaved();
  });
  const language = draft.languages[n];
  if (!language) return null;
  const { locale, said } = language;
  const shown = question && !filled.problem && filled.shown ? inLanguage(filled.shown, locale) : undefined;
  const place = `/template${pointerOf(locale)}`;
  const faultAt = (pointer: string) =>
    filled.problem?.fault(pointer) ?? shown?.faults.find((fault) => fault.pointer === pointer)?.detail;
  const lacking = name === "" ? "Enter a name." : isTitled ? undefined : "Enter a title in each language.";
  return (
    <div class="composer">
      <div class="draft">
        {children}
        <Card title="Content">
          <Languages draft={draft} change={change} chosen={n} choose={choose} />
          <ContentFields
            key={locale}
            app={app}
            draft={said}
            change={(changes) =>
              change({
                languages: draft.languages.map((one, at) =>
                  at === n ? { ...one, said: { ...one.said, ...changes } } : one,
                ),
              })
            }
            fault={(member) => faultAt(`${place}/${member}`)}
            isTemplate
          />
          {language.compact && (
            <p class="fine">
              The template has a compact form for push services with a lower limit. It is editable through the API only
              and stays unchanged.
            </p>
          )}
          {shown?.octets != null ? (
            <Meter used={shown.octets} />
          ) : (
            <p class="soft">The size is shown when the template renders.</p>
          )}
          <Check name="cuts" checked={draft.cuts} change={(cuts) => change({ cuts })}>
            Cut a text that is too long (otherwise affected recipients get no message)
          </Check>
          <p class="fine">
            Texts can use attributes of the recipient, {code("{{ attributes.name }}")}, and data of the message,{" "}
            {code("{{ data.what }}")}. An undefined value is an error without a default:{" "}
            {code("{{ attributes.name | default('there') }}")}.
          </p>
        </Card>
        <TryCard
          recipient={recipient}
          change={(changes) => setRecipient({ ...recipient, ...changes })}
          data={data}
          tell={tell}
          filled={filled}
          chosen={locale}
          look={(locale) => choose(draft.languages.findIndex((one) => one.locale === locale))}
        />
        {told && isTitled && <AudienceCard app={app} body={{ template, data: told as Record<string, never> }} />}
        <Card title="Save">
          {lacking ? <p class="soft">{lacking}</p> : <Refused problem={saved === body ? problem : undefined} />}
          {!lacking && (filled.problem || (shown && !shown.content)) && (
            <p class="fine">
              The template does not render with this data. You can save it: a message may have more data.
            </p>
          )}
          <p class="row">
            <button
              type="button"
              class="primary"
              id="save-template"
              disabled={Boolean(lacking) || isBusy || isSame}
              onClick={() => run()}
            >
              {button}
            </button>
            {clear && (
              <button type="button" id="clear" onClick={() => ask(true)}>
                Discard…
              </button>
            )}
            <span class="fine">Saving sends nothing. Messages and campaigns use the template by its name.</span>
          </p>
          {clear && isAsked && <ClearDialog clear={clear} onClose={() => ask(false)} />}
        </Card>
      </div>
      <Previews said={shown?.content ?? content(said)} site={app.origins[0]} name={app.name} />
    </div>
  );
}

const code = (text: string) => <code>{text}</code>;

interface LanguagesProps {
  draft: Draft;
  change: (changes: Partial<Draft>) => void;
  chosen: number;
  choose: (n: number) => void;
}

const wordsOf = (locale: string): string => `${languageWords(locale)} (${locale})`;

/** Languages: tabs, a button for another one, and their selection rule. */
function Languages({ draft, change, chosen, choose }: LanguagesProps) {
  const [locale, write] = useState("");
  const { languages } = draft;
  const fault = locale.trim() === "" ? undefined : untaken(draft, locale.trim());
  const add = () => {
    change(withLanguage(draft, locale.trim()));
    choose(languages.length);
    write("");
  };
  const current = languages[chosen]?.locale ?? "";
  return (
    <>
      {languages.length > 1 && (
        <Segments
          legend="Language"
          name="language"
          value={String(chosen)}
          choices={languages.map(({ locale }, n) => [String(n), locale ? wordsOf(locale) : "Default"])}
          choose={(n) => choose(Number(n))}
        />
      )}
      <div class="add-language">
        <Text
          label="Add a language"
          name="add-language"
          value={locale}
          change={write}
          max={35}
          placeholder="de, pt-BR"
          check={fault}
        />
        <button type="button" id="add-language" disabled={locale.trim() === "" || fault !== undefined} onClick={add}>
          Add
        </button>
      </div>
      <p class="fine" role="status">
        {languages.length === 1
          ? "All recipients get the same language."
          : "A browser with de-AT gets de-AT, else de, else the default."}
      </p>
      {current && (
        <p>
          <button
            type="button"
            class="plain"
            id="remove-language"
            onClick={() => {
              change(withoutLanguage(draft, chosen));
              choose(0);
            }}
          >
            Remove {wordsOf(current)}
          </button>
        </p>
      )}
    </>
  );
}

const KINDS = [
  ["anybody", "Sample recipient"],
  ["user", "User"],
  ["subscription", "Subscription"],
] as const;

interface TryProps {
  recipient: PreviewRecipient;
  change: (changes: Partial<PreviewRecipient>) => void;
  data: string;
  tell: (data: string) => void;
  filled: Asked<TemplatePreview>;
  /** The language that is written. */
  chosen: string;
  look: (locale: string) => void;
}

/** User and data of the preview. */
function TryCard({ recipient, change, data, tell, filled: { shown, problem, isOld }, chosen, look }: TryProps) {
  const { kind, id, locale, attributes } = recipient;
  const given = shown?.locale ?? "";
  return (
    <Card title="Preview recipient">
      <div class="pair">
        <Choice
          label="Recipient"
          name="whom"
          value={kind}
          choices={KINDS}
          choose={(kind) => change({ kind: kind as PreviewRecipient["kind"] })}
        />
        {kind === "anybody" ? (
          <Text
            label="Language"
            name="whom-locale"
            value={locale}
            change={(locale) => change({ locale })}
            max={35}
            placeholder="de-AT"
            fault={problem?.fault("/recipient/locale")}
          />
        ) : (
          <Text
            label="Id"
            name="whom-id"
            value={id}
            change={(id) => change({ id })}
            max={255}
            placeholder={kind === "user" ? "user id of your site" : "sub_…"}
            fault={problem?.fault(`/${kind}`)}
          />
        )}
      </div>
      {kind === "anybody" && (
        <Text
          label="Attributes (JSON)"
          name="attributes"
          rows={2}
          value={attributes}
          change={(attributes) => change({ attributes })}
          max={8_192}
          placeholder={'{"name": "Ann"}'}
          fault={objectOf(attributes) ? problem?.fault("/recipient") : "must be a JSON object"}
        />
      )}
      <Text
        label="Template data (JSON)"
        name="data"
        rows={2}
        value={data}
        change={tell}
        max={8_192}
        placeholder={'{"what": "parcel"}'}
        fault={
          objectOf(data)
            ? problem?.faults.find(({ where }) => where.startsWith("/data"))?.detail
            : "must be a JSON object"
        }
      />
      {shown && !problem && (
        <p id="given" data-old={isOld || undefined}>
          Language of this recipient: {given ? wordsOf(given) : "default"}.{" "}
          {given !== chosen && (
            <button type="button" class="plain" onClick={() => look(given)}>
              Show it
            </button>
          )}
        </p>
      )}
    </Card>
  );
}
