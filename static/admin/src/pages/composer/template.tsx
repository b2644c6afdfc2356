import { useState } from "preact/hooks";
import type { MessageRequest, Notification, TemplatePreview } from "../../api/types";
import { useAsked, type Asked } from "../../lib/asked";
import { content, objectOf, said, type Draft } from "../../lib/draft";
import { faultWords, languageWords } from "../../lib/format";
import { shownTo } from "../../lib/templates";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { Marked } from "../../ui/marked";
import { Refused } from "../../ui/shown";
import { loadTemplates, preview } from "../templates/load";
import { AudienceTrial } from "../templates/trial";
import { Choice, Text } from "./fields";
import { Meter } from "./meter";
import { faultAt, type PartProps } from "./parts";

/** Preview of a draft: literal content, or a template rendered for a user. */
export interface Sight {
  said: Notification;
  /** Result of the template. */
  filled: Asked<TemplatePreview>;
  /** Id of the user of the preview; empty: an unknown user. */
  user: string;
  watch: (user: string) => void;
}

const NOTHING: Notification = { title: "" };

export function useSight(app: string, draft: Draft): Sight {
  const [user, watch] = useState("");
  const isTemplate = draft.says === "template";
  const { template, data } = said(draft);
  const isWhole = isTemplate && draft.template !== "" && objectOf(draft.data) !== undefined;
  const whom = user.trim() ? { user: user.trim() } : {};
  const filled = useAsked(
    isWhole && template ? { template, ...(data ? { data } : {}), ...whom } : undefined,
    (body, stop) => preview(app, body, stop),
  );
  const shown = isWhole && !filled.problem && filled.shown ? shownTo(filled.shown)?.content : undefined;
  return { said: isTemplate ? (shown ?? NOTHING) : content(draft), filled, user, watch };
}

interface Props extends PartProps {
  sight: Sight;
  to: MessageRequest["to"];
}

/** Stored template, and its data. */
export function TemplateFields({ app, draft, change, check, sight, to }: Props) {
  const { link } = useFilters();
  const stored = useResource(`templates ${app.id} all`, (stop) => loadTemplates(app.id, undefined, stop, 250), {
    everyS: 300,
  });
  const known = stored.known.value?.value.templates ?? [];
  if (stored.known.value && known.length === 0 && !draft.template) {
    return (
      <p class="soft">
        This app has no templates yet. <a href={link("/templates/-new")}>Create one</a>, or enter a text here.
      </p>
    );
  }
  const names = new Set([...(draft.template ? [draft.template] : []), ...known.map(({ name }) => name)]);
  const isObject = objectOf(draft.data) !== undefined;
  return (
    <>
      <Choice
        label="Template"
        name="template"
        value={draft.template}
        choices={[["", "Choose one"], ...[...names].map((name) => [name, name] as const)]}
        choose={(template) => change({ template })}
        hint={draft.template && <a href={link(`/templates/${draft.template}`)}>Show all languages, and edit</a>}
        fault={faultAt(check, "/template")}
      />
      <Text
        label="Template data (JSON)"
        name="data"
        rows={3}
        value={draft.data}
        change={(data) => change({ data })}
        max={8_192}
        placeholder={'{"city": "Linz"}'}
        hint="Available in the template as data."
        fault={
          isObject
            ? check.problem?.faults.find(({ where }) => where.startsWith("/data"))?.detail
            : "must be a JSON object"
        }
      />
      <Text
        label="Preview for user"
        name="drawn-for"
        value={sight.user}
        change={sight.watch}
        max={255}
        placeholder="anonymous"
        hint="User id of your site. Empty: an unknown user."
        fault={sight.filled.problem?.fault("/user")}
      />
      {draft.template && isObject && (
        <>
          <Seen sight={sight} />
          <AudienceTrial app={app} body={{ ...said(draft), template: draft.template, to }} />
        </>
      )}
    </>
  );
}

/** Rendered content for the user of the preview. */
function Seen({ sight: { filled } }: { sight: Sight }) {
  if (filled.problem) return filled.problem.fault("/user") ? null : <Refused problem={filled.problem} />;
  if (!filled.shown) return <p class="soft">Rendering…</p>;
  const shown = shownTo(filled.shown);
  const others = filled.shown.variants.length - 1;
  return (
    <div id="seen" data-old={filled.isOld || undefined}>
      <p class="fine">
        Language of this user: {shown?.locale ? languageWords(shown.locale) : "the template’s default"}
        {others > 0 && `; the template has ${others === 1 ? "one other" : `${others} others`}`}.
      </p>
      {shown?.faults.map(({ detail }) => (
        <p class="fault" key={detail}>
          Cannot render for this user. <Marked text={faultWords(detail)} />
        </p>
      ))}
      {shown?.octets != null && <Meter used={shown.octets} />}
    </div>
  );
}
