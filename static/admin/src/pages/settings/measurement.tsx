import { useState } from "preact/hooks";
import type { Refusal } from "../../api/problem";
import type { AppResponse, MeasurementSettings } from "../../api/types";
import { useBegin } from "../../lib/begin";
import { entryFault, parameterFault, parametersFault } from "../../lib/link-parameters";
import {
  isMeasured,
  lacksOfMeasurement,
  MEASUREMENT_FIELDS,
  measurementDraft,
  measurementOf,
  type MeasurementDraft,
} from "../../lib/measurement";
import { useMay } from "../../shell/context";
import { OfApp } from "../../shell/of-app";
import { useAction } from "../../ui/action";
import { Card } from "../../ui/card";
import { Draft, Notice } from "../../ui/draft";
import { useEdit } from "../../ui/edit";
import { Ask } from "../../ui/form";
import { RefusedFields } from "../../ui/shown";
import "../composer/composer.css";
import { Check, Choice, Text } from "../composer/fields";
import { loadMeasurement, removeMeasurement, setMeasurement } from "./load";

export function Measurement() {
  return <OfApp what="Each app has its own measurement.">{(app) => <MeasurementOf key={app.id} app={app} />}</OfApp>;
}

function MeasurementOf({ app }: { app: AppResponse }) {
  const settings = useBegin(app.id, (stop) => loadMeasurement(app.id, stop));
  const [done, setDone] = useState("");
  return (
    <Card title="Measurement">
      <p class="fine">
        Your pages and your backend report conversions, such as orders. Bellwire attributes them to campaigns, and
        compares the people who were to get a campaign with its holdout. Only conversions of subscribers are stored; no
        cookie is set, and no third party gets data. Conversions are erased together with the person.
      </p>
      <div onInput={() => setDone("")}>
        <Draft of={settings} what="the measurement">
          {(known) => <Edit app={app} known={known} again={settings.again} setDone={setDone} />}
        </Draft>
      </div>
      <Notice>{done}</Notice>
    </Card>
  );
}

interface EditProps {
  app: AppResponse;
  known: MeasurementSettings;
  again: () => void;
  /** Shows what was done. */
  setDone: (done: string) => void;
}

function Edit({ app, known, again, setDone }: EditProps) {
  const operator = useMay("operator", app.id);
  const [draft, setDraft] = useState(() => measurementDraft(known));
  const [isAsked, ask] = useState(false);
  const reload = () => {
    ask(false);
    again();
  };
  const edit = useEdit({ begun: known, load: (stop) => loadMeasurement(app.id, stop), written: (it) => it, reload });
  const { run, isBusy, problem } = useAction(async () => {
    await edit.save((condition) => setMeasurement(app.id, measurementOf(draft), condition));
    setDone("Saved.");
    reload();
  });
  const change = (changes: Partial<MeasurementDraft>) => setDraft((draft) => ({ ...draft, ...changes }));
  const lacking = lacksOfMeasurement(draft);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (!lacking) void run();
  };
  return (
    <>
      <form class="form labelled" onSubmit={submit}>
        <fieldset class="plain-set" disabled={!operator.may}>
          <Counting draft={draft} change={change} problem={problem} />
          <Tags draft={draft} change={change} problem={problem} />
        </fieldset>
        <RefusedFields problem={problem} at={MEASUREMENT_FIELDS} />
        {operator.may ? (
          <p class="row">
            <button type="submit" class="primary" id="save-measurement" disabled={isBusy || Boolean(lacking)}>
              Save
            </button>
            {isMeasured(known) && (
              <button type="button" class="grave" id="remove-measurement" onClick={() => ask(true)}>
                Remove…
              </button>
            )}
            {lacking && <span class="soft">{lacking}</span>}
          </p>
        ) : (
          <p class="fine">Your role does not allow changing the measurement. {operator.why}</p>
        )}
      </form>
      {isAsked && (
        <Ask
          title="Remove the measurement?"
          button="Remove"
          isGrave
          says="New conversions are attributed to no campaign, and links stay as they are. Final results are kept."
          work={async () => {
            await edit.save((condition) => removeMeasurement(app.id, condition));
            setDone("Removed.");
            reload();
          }}
          onClose={() => ask(false)}
        />
      )}
    </>
  );
}

interface PartProps {
  draft: MeasurementDraft;
  change: (changes: Partial<MeasurementDraft>) => void;
  problem: Refusal | undefined;
}

/** Rules by which conversions count. */
function Counting({ draft, change, problem }: PartProps) {
  return (
    <>
      <Text
        label="Window"
        name="window"
        value={draft.window}
        change={(window) => change({ window })}
        placeholder="7d"
        max={20}
        hint="Time in which conversions count, from 1h to 30d. Empty: nothing is measured. Results of earlier campaigns keep theirs."
        fault={problem?.fault("/window")}
      />
      <Choice
        label="The window begins with"
        name="after"
        value={draft.after}
        choices={[
          ["clicked", "the click on a notification"],
          ["displayed", "the display of a notification"],
        ]}
        choose={(after) => change({ after: after as MeasurementDraft["after"] })}
        fault={problem?.fault("/after")}
      />
      <Choice
        label="If several campaigns reached the person, a conversion counts for"
        name="attribution"
        value={draft.attribution}
        choices={[
          ["last", "the last one before the conversion"],
          ["first", "the first one within the window"],
        ]}
        choose={(attribution) => change({ attribution: attribution as MeasurementDraft["attribution"] })}
        fault={problem?.fault("/attribution")}
      />
    </>
  );
}

/** Parameters for your own web statistics. */
function Tags({ draft, change, problem }: PartProps) {
  return (
    <>
      <Check name="tagged" checked={draft.isTagged} change={(isTagged) => change({ isTagged })}>
        Add parameters to clicked links, for your own web statistics
      </Check>
      {draft.isTagged && (
        <>
          <Text
            label="Hosts whose links get them"
            name="hosts"
            value={draft.hosts}
            change={(hosts) => change({ hosts })}
            placeholder="shop.example"
            rows={2}
            hint="One per line; *.shop.example for all subdomains. Links to other hosts stay as they are."
            fault={entryFault(problem, "/link_tags/hosts", draft.hosts)}
          />
          <Text
            label="Parameters"
            name="parameters"
            value={draft.parameters}
            change={(parameters) => change({ parameters })}
            rows={4}
            hint="name=value, one per line, at most 20. {campaign} is the slug of the campaign, {variant} the name of the variant. Parameters that a link has already stay."
            fault={parameterFault(problem, "/link_tags/parameters", draft.parameters)}
            check={parametersFault(draft.parameters)}
          />
        </>
      )}
    </>
  );
}
