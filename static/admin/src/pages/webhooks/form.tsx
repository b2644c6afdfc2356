import { useState } from "preact/hooks";
import type { AppResponse } from "../../api/types";
import type { Refusal } from "../../api/problem";
import { useResource } from "../../lib/resource";
import { EVENTS, OWN, toggled, type Draft } from "../../lib/webhooks";
import { useAction } from "../../ui/action";
import { Refused } from "../../ui/shown";
import "../composer/composer.css";
import { Choice, Text } from "../composer/fields";
import { loadPresets } from "../policies/load";

interface Props {
  app: AppResponse;
  begin: Draft;
  button: string;
  save: (draft: Draft) => Promise<unknown>;
  onLeave: () => void;
}

/** Members with a field, which shows their fault. */
const FIELDS = ["/name", "/url", "/max_events", "/policy"];

/** Form of a webhook. */
export function WebhookForm({ app, begin, button, save, onLeave }: Props) {
  const [draft, setDraft] = useState(begin);
  const change = (changes: Partial<Draft>) => setDraft({ ...draft, ...changes });
  const { run, isBusy, problem } = useAction(async () => void (await save(draft)));
  const isLacking = draft.name.trim() === "" || draft.url.trim() === "" || draft.events.length === 0;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (!isLacking) void run();
  };
  return (
    <form class="form labelled" onSubmit={submit}>
      <Text
        label="Name"
        name="webhook-name"
        value={draft.name}
        change={(name) => change({ name })}
        max={200}
        placeholder="CRM"
        fault={problem?.fault("/name")}
      />
      <Text
        label="URL of the receiver"
        name="webhook-url"
        value={draft.url}
        change={(url) => change({ url })}
        max={2_000}
        placeholder="https://hooks.example.com/bellwire"
        hint="HTTPS, with a public address."
        fault={problem?.fault("/url")}
      />
      {EVENTS.map(([legend, events]) => (
        <fieldset class="choices" key={legend}>
          <legend>{legend}</legend>
          {events.map(([event, words]) => (
            <label key={event} title={event}>
              <input
                type="checkbox"
                name="events"
                value={event}
                checked={draft.events.includes(event)}
                onChange={() => change({ events: toggled(draft.events, event) })}
              />{" "}
              {words}
            </label>
          ))}
        </fieldset>
      ))}
      <div class="pair">
        <Text
          label="Maximum events per request"
          name="max-events"
          value={draft.maxEvents}
          change={(maxEvents) => change({ maxEvents })}
          max={3}
          hint="1 to 500."
          fault={problem?.fault("/max_events")}
        />
        <PolicyField app={app} draft={draft} change={change} fault={problem?.fault("/policy")} />
      </div>
      <Refused problem={problem && unsaid(problem)} />
      <p class="row">
        <button type="submit" class="primary" id="save-webhook" disabled={isBusy || isLacking}>
          {button}
        </button>
        <button type="button" onClick={onLeave}>
          Cancel
        </button>
        {draft.events.length === 0 && <span class="soft">Choose at least one event.</span>}
      </p>
    </form>
  );
}

/** Shows a problem, unless all of its faults are shown at fields. */
function unsaid(problem: Refusal): Refusal | undefined {
  return problem.faults.length > 0 && problem.faults.every(({ where }) => FIELDS.includes(where)) ? undefined : problem;
}

function PolicyField({
  app,
  draft,
  change,
  fault,
}: {
  app: AppResponse;
  draft: Draft;
  change: (changes: Partial<Draft>) => void;
  fault: string | undefined;
}) {
  const presets = useResource(`presets ${app.id}`, (stop) => loadPresets(app.id, stop), { everyS: 3_600 });
  const names = new Set([
    ...(draft.preset && draft.preset !== OWN ? [draft.preset] : []),
    ...(presets.known.value?.value ?? []).map(({ name }) => name),
  ]);
  const choices = [
    ["", "Default: 50 retries in six hours"],
    ...(draft.own ? [[OWN, "Custom policy (unchanged)"]] : []),
    ...[...names].map((name) => [name, name]),
  ] as [string, string][];
  return (
    <Choice
      label="Retry policy"
      name="webhook-policy"
      value={draft.preset}
      choices={choices}
      choose={(preset) => change({ preset })}
      fault={fault}
    />
  );
}
