import { useState } from "preact/hooks";
import { BUTTONS_MAX, content, type Button } from "../../lib/draft";
import { fullCount } from "../../lib/format";
import { CONTENT_MAX, meterWords, octets } from "../../lib/octets";
import { Card } from "../../ui/card";
import { Check, Text } from "./fields";
import { faultAt, type PartProps } from "./parts";

/** What it says. */
export function ContentCard({ app, draft, change, check }: PartProps) {
  const fault = (member: string) => faultAt(check, `/content/${member}`);
  const site = app.origins[0];
  // It stays as somebody left it while they write.
  const [isOpen] = useState(() => Boolean(draft.icon || draft.image || draft.badge || draft.tag || draft.requireInteraction || draft.silent));
  return (
    <Card title="What it says">
      <Text label="Title" name="title" value={draft.title} change={(title) => change({ title })} max={200} fault={fault("title")} />
      <Text label="Text" name="body" rows={3} value={draft.body} change={(body) => change({ body })} max={2_000} fault={fault("body")} />
      <Text
        label="Where a click leads"
        name="url"
        value={draft.url}
        change={(url) => change({ url })}
        placeholder={site ? `${site}/` : "/"}
        hint={`https:, or a path on ${site ?? "the site"}. Empty: its first page.`}
        fault={fault("url")}
      />
      <Buttons draft={draft} change={change} check={check} />
      <details class="more" open={isOpen}>
        <summary>Pictures, and how it behaves</summary>
        <div class="pair">
          <Text label="Icon" name="icon" value={draft.icon} change={(icon) => change({ icon })} placeholder="/icon.png" hint="A small square beside the text." fault={fault("icon")} />
          <Text label="Picture" name="image" value={draft.image} change={(image) => change({ image })} placeholder="https://…" hint="Large; not everywhere." fault={fault("image")} />
          <Text label="Badge" name="badge" value={draft.badge} change={(badge) => change({ badge })} placeholder="/badge.png" hint="One colour, for Android’s status bar." fault={fault("badge")} />
          <Text label="Tag" name="tag" value={draft.tag} change={(tag) => change({ tag })} max={200} hint="It replaces one that is shown with the same tag." fault={fault("tag")} />
        </div>
        <Check name="require_interaction" checked={draft.requireInteraction} change={(requireInteraction) => change({ requireInteraction })}>
          Stays until somebody reacts
        </Check>
        <Check name="silent" checked={draft.silent} change={(silent) => change({ silent })}>
          Neither sound nor vibration
        </Check>
      </details>
      <Unwritten draft={draft} change={change} />
      <Meter used={octets(content(draft), site)} />
    </Card>
  );
}

function Buttons({ draft, change, check }: Omit<PartProps, "app">) {
  const { actions } = draft;
  const replace = (n: number, changes: Partial<Button>) => change({ actions: actions.map((button, at) => (at === n ? { ...button, ...changes } : button)) });
  return (
    <div class="buttons">
      {actions.map(({ title, url }, n) => (
        <div class="pair" key={n} role="group" aria-label={`Button ${n + 1}`}>
          <Text label={`Button ${n + 1}`} name={`button-${n}`} value={title} change={(title) => replace(n, { title })} max={100} fault={title ? faultAt(check, `/content/actions/${n}/title`) : undefined} />
          <Text
            label="leads to"
            name={`button-url-${n}`}
            value={url}
            change={(url) => replace(n, { url })}
            placeholder="as the notification"
            fault={faultAt(check, `/content/actions/${n}/url`)}
          />
          <button type="button" class="plain" onClick={() => change({ actions: actions.filter((_, at) => at !== n) })}>
            Remove<span class="hidden"> button {n + 1}</span>
          </button>
        </div>
      ))}
      {actions.length < BUTTONS_MAX && (
        <button type="button" class="plain" id="add-button" onClick={() => change({ actions: [...actions, { title: "", url: "" }] })}>
          Add a button
        </button>
      )}
    </div>
  );
}

/** How full a push is. */
function Meter({ used }: { used: number }) {
  const { tone, words } = meterWords(used);
  return (
    <div class="meter" id="meter">
      <p class="row">
        <span>
          <strong class="number">{fullCount(used)}</strong> <span class="soft">of {fullCount(CONTENT_MAX)} octets</span>
        </span>
        <span class="fine" data-tone={tone}>
          {words}
        </span>
      </p>
      <div class="bar" aria-hidden="true">
        <span class="fill" data-tone={tone} style={{ width: `${Math.min(100, (used / CONTENT_MAX) * 100)}%` }} />
      </div>
    </div>
  );
}

/** Says what was taken over from another message that nobody can see or change here. */
function Unwritten({ draft: { more }, change }: Pick<PartProps, "draft" | "change">) {
  const names = Object.keys(more);
  if (names.length === 0) return null;
  return (
    <p class="fine" id="taken-over">
      Taken over as it was, since only programs write it: <code>{names.join(", ")}</code>.{" "}
      <button type="button" class="plain" onClick={() => change({ more: {} })}>
        Leave it out
      </button>
    </p>
  );
}
