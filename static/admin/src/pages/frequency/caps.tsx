import { useState } from "preact/hooks";
import { Refusal } from "../../api/problem";
import type { AppResponse } from "../../api/types";
import { useBegin } from "../../lib/begin";
import {
  CAP_TIERS,
  CAPS_MAX,
  capDraft,
  capFaults,
  capOf,
  capsWords,
  NEW_CAP,
  UNITS,
  type CapDraft,
} from "../../lib/frequency";
import { attentionWords } from "../../lib/format";
import { useMay } from "../../shell/context";
import { Card } from "../../ui/card";
import { Draft, Notice } from "../../ui/draft";
import { useEdit } from "../../ui/edit";
import { Ask, Form } from "../../ui/form";
import { Choice, Text } from "../composer/fields";
import { loadCaps, setCaps, type Caps } from "./load";

/** Frequency caps of an app. */
export function CapsCard({ app }: { app: AppResponse }) {
  const caps = useBegin(app.id, (stop) => loadCaps(app.id, stop));
  const [saved, setSaved] = useState(false);
  return (
    <Card title="Frequency caps">
      <p class="fine">
        Maximum number of messages to one person in a sliding window, over all browsers. Transactional messages have no
        caps.
      </p>
      <div onInput={() => setSaved(false)}>
        <Draft of={caps} what="the caps">
          {(known) => <Edit app={app} known={known} again={caps.again} setSaved={setSaved} />}
        </Draft>
      </div>
      <Notice>{saved && "Saved."}</Notice>
    </Card>
  );
}

function Edit({
  app,
  known,
  again,
  setSaved,
}: {
  app: AppResponse;
  known: Caps;
  again: () => void;
  setSaved: (saved: boolean) => void;
}) {
  const operator = useMay("operator", app.id);
  const [begin] = useState(() => known.caps.map(capDraft));
  const [caps, write] = useState<readonly CapDraft[]>(begin);
  const [isAsked, ask] = useState(false);
  const reload = () => {
    ask(false);
    again();
  };
  const edit = useEdit({
    begun: known,
    load: (stop) => loadCaps(app.id, stop),
    written: ({ caps }) => ({ caps }),
    reload,
  });
  const put = (n: number, changes: Partial<CapDraft>) =>
    write(caps.map((cap, at) => (at === n ? { ...cap, ...changes } : cap)));
  return (
    <>
      <ul class="bullets" id="caps">
        {capsWords(begin).map((words) => (
          <li key={words}>{words}</li>
        ))}
      </ul>
      {!operator.may ? (
        <p class="fine">Your role does not allow changing caps. {operator.why}</p>
      ) : (
        <Form
          button="Review the change…"
          id="change-caps"
          work={async () => {
            setSaved(false);
            const faults = caps.flatMap((cap) => Object.values(capFaults(cap)).filter(Boolean));
            if (faults.length > 0) throw new Refusal(400, { detail: attentionWords(faults.length) });
            ask(true);
          }}
        >
          {caps.map((cap, n) => (
            <Row
              key={n}
              n={n}
              cap={cap}
              change={(changes) => put(n, changes)}
              remove={() => write(caps.filter((_, at) => at !== n))}
            />
          ))}
          <p>
            <button
              type="button"
              id="add-cap"
              disabled={caps.length >= CAPS_MAX}
              onClick={() => write([...caps, NEW_CAP])}
            >
              Add a cap
            </button>
          </p>
        </Form>
      )}
      {isAsked && (
        <Ask
          title="Change the caps?"
          button="Save"
          says={
            <span id="consequence">
              {capsWords(caps).join(" ")} The change takes effect within a minute, also for waiting deliveries.
              Deliveries above a cap end as capped and are not sent later.
            </span>
          }
          work={async () => {
            await edit.save((condition) => setCaps(app.id, caps.map(capOf), condition));
            setSaved(true);
            reload();
          }}
          onClose={() => ask(false)}
        />
      )}
    </>
  );
}

function Row({
  n,
  cap,
  change,
  remove,
}: {
  n: number;
  cap: CapDraft;
  change: (changes: Partial<CapDraft>) => void;
  remove: () => void;
}) {
  const faults = capFaults(cap);
  const units = UNITS.some(([unit]) => unit === cap.unit) ? UNITS : [...UNITS, [cap.unit, "seconds"] as const];
  return (
    <div class="cap" role="group" aria-label={`Cap ${n + 1}`}>
      <Text
        label="At most"
        name={`cap-max-${n}`}
        value={cap.max}
        change={(max) => change({ max })}
        max={2}
        check={faults.max}
      />
      <Choice
        label="messages"
        name={`cap-tiers-${n}`}
        value={cap.tiers}
        choices={CAP_TIERS}
        choose={(tiers) => change({ tiers: tiers as CapDraft["tiers"] })}
      />
      <Text
        label="within"
        name={`cap-window-${n}`}
        value={cap.window}
        change={(window) => change({ window })}
        max={5}
        check={faults.window}
      />
      <Choice
        label="Unit"
        name={`cap-unit-${n}`}
        value={cap.unit}
        choices={units}
        choose={(unit) => change({ unit })}
      />
      <button type="button" class="plain" onClick={remove}>
        Remove<span class="hidden"> cap {n + 1}</span>
      </button>
    </div>
  );
}
