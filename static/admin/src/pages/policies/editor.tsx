import { useMemo, useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import type { AppResponse, Policy, PolicyResponse, Tier } from "../../api/types";
import { Refusal } from "../../api/problem";
import { useAsked } from "../../lib/asked";
import { useBegin } from "../../lib/begin";
import { capital, duration, count, things } from "../../lib/format";
import { formWords, placeWords, saysSomething, toDraft, toPolicy } from "../../lib/policies";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { useHere, useMay } from "../../shell/context";
import { ChooseApp } from "../../shell/choose-app";
import { Card, Head } from "../../ui/card";
import { useDialog } from "../../ui/dialog";
import { Draft } from "../../ui/draft";
import { useEdit } from "../../ui/edit";
import { Refused } from "../../ui/shown";
import { PolicyForm } from "./form";
import { about, begunOf, loadPlace, PLACES, preview, TIERS, type PlaceName } from "./load";
import { SaveDialog } from "./save";
import { TimetableFigure } from "./timetable";
import { Trial } from "./trial";
import "./policies.css";

/** Form of one policy, with its timetable. */
export default function PolicyPage() {
  const { params } = useRoute();
  const { app, apps } = useHere();
  const { link } = useFilters();
  const [place, name] = [params.place as PlaceName, params.name ?? ""];
  if (!(place in PLACES))
    return <Head title="Nothing here" lead="Policies are set for tiers, topics and subscriptions." />;
  return (
    <>
      <p class="back">
        <a href={link("/policies")}>Policies</a>
      </p>
      {app ? (
        <OfPlace key={`${app.id} ${place} ${name}`} app={app} place={place} name={name} />
      ) : (
        <ChooseApp apps={apps} what="Each policy belongs to an app." />
      )}
    </>
  );
}

interface Of {
  app: AppResponse;
  place: PlaceName;
  name: string;
}

function OfPlace({ app, place, name }: Of) {
  const { filters } = useFilters();
  const tier = place === "tiers" ? (name as Tier) : (TIERS.find((tier) => tier === filters.tier) ?? "promotional");
  const stored = useBegin(`${app.id} ${place} ${name}`, (stop) => loadPlace(app.id, place, name, stop));
  return (
    <>
      <Head
        title={titleOf(place, name)}
        lead={place === "subscriptions" ? <code>{name}</code> : "Retries after failures."}
      />
      <Draft of={stored} what="this policy">
        {(view) => <Editor app={app} place={place} name={name} tier={tier} view={view} onChanged={stored.again} />}
      </Draft>
    </>
  );
}

function titleOf(place: PlaceName, name: string): string {
  if (place === "tiers") return `Tier ${name}`;
  return place === "topics" ? `Topic ${name}` : "A subscription";
}

interface EditorProps extends Of {
  tier: Tier;
  view: PolicyResponse;
  onChanged: () => unknown;
}

function Editor({ app, place, name, tier, view, onChanged }: EditorProps) {
  const { change } = useFilters();
  const stored = (view.policy ?? null) as Policy | null;
  const [draft, setDraft] = useState(() => toDraft(stored, PLACES[place]));
  const { open: dialog, show, close } = useDialog<"save" | "remove">();
  const policy = useMemo(() => toPolicy(draft, PLACES[place]), [draft, place]);
  const tried = saysSomething(policy) && typeof policy !== "string" ? policy : undefined;
  const body = about(place, name, tier, tried, stored !== null);
  const previewed = useAsked(body, (body, stop) => preview(app.id, body, stop));
  const before = useResource(
    `holds ${app.id} ${place} ${name} ${tier}`,
    (stop) => preview(app.id, about(place, name, tier, undefined, stored !== null), stop),
    { everyS: 600 },
  );
  // A text that is no JSON never reaches the server.
  const problem =
    typeof policy === "string"
      ? new Refusal(422, { detail: `The policy is invalid: ${policy}` })
      : previewed.isOld
        ? undefined
        : previewed.problem;
  const reload = async () => {
    close();
    await Promise.all([onChanged(), before.refresh()]);
  };
  const edit = useEdit({
    begun: begunOf(view),
    load: (stop) => loadPlace(app.id, place, name, stop),
    written: ({ policy }) => ({ policy }),
    reload,
  });
  const isNew = JSON.stringify(tried ?? null) !== JSON.stringify(stored);
  const { shown } = previewed;
  return (
    <>
      {place !== "tiers" && (
        <label class="filters">
          <span class="fine">Preview for a message of the tier</span>
          <select id="seen-tier" value={tier} onChange={(event) => change({ tier: event.currentTarget.value }, true)}>
            {TIERS.map((tier) => (
              <option key={tier}>{tier}</option>
            ))}
          </select>
        </label>
      )}
      {view.backlog && (
        <p>
          {capital(things(view.backlog.waiting, "delivery waits", "deliveries wait"))}
          {view.backlog.throttled > 0 && `, of which ${count(view.backlog.throttled)} by the rate limit`}
          {view.backlog.oldest_s != null && `; the oldest is ${duration(view.backlog.oldest_s)} late`}.
        </p>
      )}
      <div class="beside">
        <Card title={stored ? `Set: ${formWords(stored)}` : "No policy is set"}>
          <PolicyForm draft={draft} place={PLACES[place]} problem={problem} change={setDraft} />
          <Acts
            app={app}
            canSave={isNew && tried !== undefined && problem === undefined && !previewed.isOld}
            isNew={isNew}
            isSet={stored !== null}
            says={tried !== undefined}
            onSave={() => show("save")}
            onRemove={() => show("remove")}
            onUndo={() => setDraft(toDraft(stored, PLACES[place]))}
          />
        </Card>
        <Card
          title={isNew ? "Effective policy after saving" : "Effective policy"}
          aside={shown && <span class="fine">retries {placeWords(shown.set_by.retry)}</span>}
        >
          {shown ? (
            <div class={!previewed.isOld && !problem ? "" : "dimmed"} aria-busy={previewed.isOld} id="timetable">
              <TimetableFigure caption="Timetable of retries" table={shown.timetable} ttlS={shown.ttl_s} />
              {shown.when_throttled && (
                <details>
                  <summary>After throttling (429)</summary>
                  <TimetableFigure
                    caption="Timetable of retries after throttling"
                    table={shown.when_throttled}
                    ttlS={shown.ttl_s}
                  />
                </details>
              )}
              <Warnings preview={shown} />
            </div>
          ) : problem ? (
            <Refused problem={problem} />
          ) : (
            <p class="loading">Loading…</p>
          )}
        </Card>
      </div>
      <Trial app={app} body={body} canRun={problem === undefined && !previewed.isOld} />
      {dialog && (
        <SaveDialog
          app={app}
          place={place}
          name={name}
          policy={dialog === "save" ? (tried ?? null) : null}
          before={before.known.value?.value}
          after={dialog === "save" ? shown : undefined}
          onClose={close}
          onSaved={reload}
          edit={edit}
        />
      )}
    </>
  );
}

function Warnings({
  preview: { warnings = [] },
}: {
  preview: { warnings?: { pointer?: string | null; detail: string }[] };
}) {
  if (warnings.length === 0) return null;
  return (
    <ul class="warnings">
      {warnings.map(({ pointer, detail }) => (
        <li key={`${pointer} ${detail}`} class="fine">
          {pointer && <code>{pointer.replace(/^\/policy/, "")}</code>} {detail}
        </li>
      ))}
    </ul>
  );
}

interface ActsProps {
  app: AppResponse;
  canSave: boolean;
  isNew: boolean;
  isSet: boolean;
  says: boolean;
  onSave: () => void;
  onRemove: () => void;
  onUndo: () => void;
}

function Acts({ app, canSave, isNew, isSet, says, onSave, onRemove, onUndo }: ActsProps) {
  const operator = useMay("operator", app.id);
  if (!operator.may)
    return <p class="fine">Your role allows simulating policies, but not saving them. {operator.why}</p>;
  return (
    <>
      <div class="row" role="group" aria-label="Actions">
        <button type="button" id="save-policy" class="primary" disabled={!canSave} onClick={onSave}>
          Save…
        </button>
        {isNew && (isSet || says) && (
          <button type="button" onClick={onUndo}>
            Discard changes
          </button>
        )}
        {isSet && (
          <button type="button" id="remove-policy" onClick={onRemove}>
            Remove…
          </button>
        )}
      </div>
      {!says && (
        <p class="fine">
          {isSet ? "An empty policy has no effect: remove the policy instead." : "Empty fields keep the defaults."}
        </p>
      )}
    </>
  );
}
