import { useState } from "preact/hooks";
import type { AppResponse, GuardResponse } from "../../api/types";
import { count, percent } from "../../lib/format";
import { limitWords, loads, releaseWords } from "../../lib/frequency";
import { useResource, type Resource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Card } from "../../ui/card";
import { useEdit } from "../../ui/edit";
import { Ask, Field, Form, type Written } from "../../ui/form";
import { Shown } from "../../ui/shown";
import { loadFlow } from "../policies/load";
import { loadGuard, release, setGuard } from "./load";

interface Props {
  app: AppResponse;
  guard: Resource<GuardResponse>;
}

/** Runaway guard of an app, with its state. */
export function GuardCard({ app, guard }: Props) {
  const operator = useMay("operator", app.id);
  const [isAsked, ask] = useState(false);
  return (
    <Card title="Runaway guard">
      <Shown of={guard} what="the guard">
        {(known) => (
          <>
            <Loads guard={known} />
            {known.held.length > 0 && (
              <Held app={app} may={operator.may} why={operator.why} release={() => ask(true)} />
            )}
            <p class="fine">{limitWords(known)}</p>
            {operator.may && (
              <Edit key={`${known.factor} ${known.floor}`} app={app} known={known} refresh={guard.refresh} />
            )}
            {isAsked && <ReleaseDialog app={app} known={known} refresh={guard.refresh} onClose={() => ask(false)} />}
          </>
        )}
      </Shown>
    </Card>
  );
}

/** Number of recent deliveries, against the limit. */
function Loads({ guard }: { guard: GuardResponse }) {
  return (
    <ul class="loads">
      {loads(guard).map(({ id, word, sent, share, isHeld }) => (
        <li key={id} data-load={id}>
          <p class="row">
            <span>{word}</span>
            {isHeld ? (
              <Badge tone="lost">On hold</Badge>
            ) : (
              <Badge tone={guard.limit == null ? "cancelled" : "accepted"}>
                {guard.limit == null ? "Not guarded" : "Sending"}
              </Badge>
            )}
          </p>
          <div class="bar" aria-hidden="true">
            <span class="fill" data-tone={isHeld ? "lost" : "waiting"} style={{ width: `${(share ?? 0) * 100}%` }} />
          </div>
          <p class="fine number">
            {count(sent)} in 15 minutes
            {guard.limit != null &&
              share !== undefined &&
              `, ${sent > guard.limit ? "above" : `${percent(share)} of`} the limit of ${count(guard.limit)}`}
          </p>
        </li>
      ))}
    </ul>
  );
}

function Held({ app, may, why, release }: { app: AppResponse; may: boolean; why: string; release: () => void }) {
  const { link } = useFilters();
  return (
    <>
      <p>
        Check the <a href={link("/messages")}>messages</a> of {app.name}, and cancel unwanted ones. Then release the
        app.
      </p>
      {may ? (
        <p>
          <button type="button" id="release" class="primary" onClick={release}>
            Release…
          </button>
        </p>
      ) : (
        <p class="fine">Your role does not allow releasing the app. {why}</p>
      )}
    </>
  );
}

function ReleaseDialog({
  app,
  known,
  refresh,
  onClose,
}: {
  app: AppResponse;
  known: GuardResponse;
  refresh: () => Promise<void>;
  onClose: () => void;
}) {
  const flow = useResource(`flow ${app.id}`, (stop) => loadFlow(app.id, stop), { everyS: 10 });
  return (
    <Ask
      title={`Release ${app.name}?`}
      says={<span id="consequence">{releaseWords(known, flow.known.value?.value)}</span>}
      button="Release"
      work={async () => {
        await release(app.id);
        onClose();
        await refresh();
      }}
      onClose={onClose}
    />
  );
}

const numberOf = (text: string): number | null => (text === "" ? null : Number(text));

function Edit({ app, known, refresh }: { app: AppResponse; known: GuardResponse; refresh: () => Promise<void> }) {
  const [proposed, propose] = useState<{ factor: number | null; floor: number | null }>();
  const reload = async () => {
    propose(undefined);
    await refresh();
  };
  const edit = useEdit({
    begun: known,
    load: (stop) => loadGuard(app.id, stop),
    written: ({ factor, floor }) => ({ factor, floor }),
    reload,
    isLive: true,
  });
  const read = async (written: Written) =>
    propose({ factor: numberOf(written.text("factor")), floor: numberOf(written.text("floor")) });
  return (
    <details>
      <summary>Change the limit</summary>
      <Form button="Review the change…" id="change-guard" work={read}>
        <Field label="Deliveries for each active subscription" hint="0 disables the guard. Empty: server default.">
          {(tie) => (
            <input
              {...tie}
              name="factor"
              type="number"
              min={0}
              max={1_000}
              defaultValue={known.factor?.toString() ?? ""}
            />
          )}
        </Field>
        <Field label="Additional deliveries" hint="Empty: server default.">
          {(tie) => (
            <input
              {...tie}
              name="floor"
              type="number"
              min={0}
              max={1_000_000_000}
              defaultValue={known.floor?.toString() ?? ""}
            />
          )}
        </Field>
      </Form>
      {proposed && (
        <Ask
          title="Change the guard?"
          button="Save"
          says={
            proposed.factor === 0
              ? "The guard is disabled: all messages are sent. A held app stays held until it is released."
              : `Limit in 15 minutes: ${proposed.factor === null ? "the server default" : count(proposed.factor)} for each active subscription, plus ${proposed.floor === null ? "the server default" : count(proposed.floor)}. An app above the limit is put on hold. A held app stays on hold until it is released.`
          }
          work={async () => {
            await edit.save((condition) => setGuard(app.id, proposed, condition));
            await reload();
          }}
          onClose={() => propose(undefined)}
        />
      )}
    </details>
  );
}
