import { useState } from "preact/hooks";
import type { AppResponse, MessageRequest } from "../../api/types";
import { BODY_MAX, BUTTONS_MAX, content, lengthFault, TITLE_MAX, type Button, type Draft } from "../../lib/draft";
import { octets } from "../../lib/octets";
import { things } from "../../lib/format";
import { characters } from "../../lib/platforms";
import type { Suggested } from "../../lib/recent";
import { useResource } from "../../lib/resource";
import { PAUSE_MS, useAsked } from "../../lib/asked";
import { linkWords } from "../../lib/link-check";
import { Badge } from "../../ui/badge";
import { Card } from "../../ui/card";
import { loadRecent } from "../messages/load";
import { Check, Segments, Text } from "./fields";
import { checkLink } from "./load";
import { Meter } from "./meter";
import { faultAt, type PartProps } from "./parts";
import { TemplateFields, type Sight } from "./template";

const SAYS = [
  ["text", "Text"],
  ["template", "Template"],
] as const;

/** Content: a text or a stored template. `to`: the audience. */
export function ContentCard({
  app,
  draft,
  change,
  check,
  sight,
  to,
}: PartProps & { sight: Sight; to: MessageRequest["to"] }) {
  const site = app.origins[0];
  return (
    <Card title="Content">
      <Segments legend="Content" name="says" value={draft.says} choices={SAYS} choose={(says) => change({ says })} />
      {draft.says === "template" ? (
        <TemplateFields app={app} draft={draft} change={change} check={check} sight={sight} to={to} />
      ) : (
        <>
          <ContentFields
            app={app}
            draft={draft}
            change={change}
            fault={(member) => faultAt(check, `/content/${member}`)}
          />
          <Meter used={octets(content(draft), site)} />
        </>
      )}
    </Card>
  );
}

interface FieldsProps {
  app: AppResponse;
  draft: Draft;
  change: (changes: Partial<Draft>) => void;
  /** Fault of a member of the content. */
  fault: (member: string) => string | undefined;
  /** Texts are templates, which are longer than what comes of them. */
  isTemplate?: boolean;
}

/** Checks the link after typing stops. Shows nothing of an incomplete link. */
function LinkCheck({ app, url }: { app: AppResponse; url: string }) {
  const isLink =
    /^https:\/\/[^/]+\.[^/]+/i.test(url) || (url.startsWith("/") && app.origins[0]?.startsWith("https:") === true);
  const { shown, problem, isOld } = useAsked(
    isLink ? url : undefined,
    (url, stop) => checkLink(app.id, url, stop),
    PAUSE_MS,
  );
  if (!isLink) return null;
  const { tone, words } = isOld
    ? { tone: "waiting" as const, words: "Checking the link…" }
    : problem || !shown
      ? { tone: "cancelled" as const, words: `Not checked: ${problem?.message ?? "no answer"}` }
      : linkWords(shown);
  return (
    <p class="fine" id="link-check" role="status">
      <Badge tone={tone}>Link</Badge> {words}
    </p>
  );
}

const lengthOf = (text: string): string | undefined =>
  text === "" ? undefined : things(characters(text), "character");

/** Most characters of a template's text: the server counts 4,096 octets. */
const TEMPLATE_TEXT_MAX = 4_096;

export function ContentFields({ app, draft, change, fault, isTemplate = false }: FieldsProps) {
  const site = app.origins[0];
  // It keeps the user's choice during the edit.
  const [isOpen] = useState(() =>
    Boolean(draft.icon || draft.image || draft.badge || draft.tag || draft.requireInteraction || draft.silent),
  );
  const [isAsked, ask] = useState(false);
  const recent = useResource(
    `recent links ${app.id} ${isAsked}`,
    async (stop) => (isAsked ? loadRecent(app.id, stop) : undefined),
    { everyS: 3_600 },
  ).known.value?.value;
  const suggest = (of: Suggested) => ({ suggestions: recent?.[of], onFocus: () => ask(true) });
  const most = (max: number) => (isTemplate ? TEMPLATE_TEXT_MAX : max);
  return (
    <>
      <Text
        label="Title"
        name="title"
        value={draft.title}
        change={(title) => change({ title })}
        hint={lengthOf(draft.title)}
        check={isTemplate ? undefined : lengthFault(draft.title, TITLE_MAX)}
        fault={fault("title")}
      />
      <Text
        label="Text"
        name="body"
        rows={3}
        value={draft.body}
        change={(body) => change({ body })}
        hint={lengthOf(draft.body)}
        check={isTemplate ? undefined : lengthFault(draft.body, BODY_MAX)}
        fault={fault("body")}
      />
      <Text
        label="Link"
        name="url"
        value={draft.url}
        change={(url) => change({ url })}
        {...suggest("url")}
        placeholder={site ? `${site}/` : "/"}
        hint={`https:, or a path on ${site ?? "the site"}. Empty: the home page.`}
        fault={fault("url")}
      />
      {!isTemplate && <LinkCheck app={app} url={draft.url.trim()} />}
      <Buttons draft={draft} change={change} fault={fault} most={most} />
      <details class="more" open={isOpen}>
        <summary>Images and behavior</summary>
        <div class="pair">
          <Text
            label="Icon"
            name="icon"
            value={draft.icon}
            change={(icon) => change({ icon })}
            {...suggest("icon")}
            placeholder="/icon.png"
            hint="Small square next to the text."
            fault={fault("icon")}
          />
          <Text
            label="Image"
            name="image"
            value={draft.image}
            change={(image) => change({ image })}
            {...suggest("image")}
            placeholder="https://…"
            hint="Large; not shown on all platforms."
            fault={fault("image")}
          />
          <Text
            label="Badge"
            name="badge"
            value={draft.badge}
            change={(badge) => change({ badge })}
            {...suggest("badge")}
            placeholder="/badge.png"
            hint="Monochrome, for Android’s status bar."
            fault={fault("badge")}
          />
          <Text
            label="Tag"
            name="tag"
            value={draft.tag}
            change={(tag) => change({ tag })}
            max={most(200)}
            hint="Replaces a visible notification with the same tag."
            fault={fault("tag")}
          />
        </div>
        <Check
          name="require_interaction"
          checked={draft.requireInteraction}
          change={(requireInteraction) => change({ requireInteraction })}
        >
          Stay until dismissed
        </Check>
        <Check name="silent" checked={draft.silent} change={(silent) => change({ silent })}>
          Silent: no sound or vibration
        </Check>
      </details>
      <Unwritten draft={draft} change={change} />
    </>
  );
}

function Buttons({
  draft,
  change,
  fault,
  most,
}: Omit<FieldsProps, "app" | "isTemplate"> & { most: (max: number) => number }) {
  const { actions } = draft;
  const replace = (n: number, changes: Partial<Button>) =>
    change({ actions: actions.map((button, at) => (at === n ? { ...button, ...changes } : button)) });
  return (
    <div class="buttons">
      {actions.map(({ title, url }, n) => (
        <div class="pair" key={n} role="group" aria-label={`Button ${n + 1}`}>
          <Text
            label={`Button ${n + 1}`}
            name={`button-${n}`}
            value={title}
            change={(title) => replace(n, { title })}
            max={most(100)}
            fault={title ? fault(`actions/${n}/title`) : undefined}
          />
          <Text
            label="Link of the button"
            name={`button-url-${n}`}
            value={url}
            change={(url) => replace(n, { url })}
            placeholder="same as the notification"
            fault={fault(`actions/${n}/url`)}
          />
          <button type="button" class="plain" onClick={() => change({ actions: actions.filter((_, at) => at !== n) })}>
            Remove<span class="hidden"> button {n + 1}</span>
          </button>
        </div>
      ))}
      {actions.length < BUTTONS_MAX && (
        <button
          type="button"
          class="plain"
          id="add-button"
          onClick={() => change({ actions: [...actions, { title: "", url: "" }] })}
        >
          Add a button
        </button>
      )}
    </div>
  );
}

/** Shows members copied from another message that have no field here. */
function Unwritten({ draft: { more }, change }: Pick<FieldsProps, "draft" | "change">) {
  const names = Object.keys(more);
  if (names.length === 0) return null;
  return (
    <p class="fine" id="taken-over">
      Kept from the copied message; editable through the API only: <code>{names.join(", ")}</code>.{" "}
      <button type="button" class="plain" onClick={() => change({ more: {} })}>
        Remove
      </button>
    </p>
  );
}
