import { useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import type { AppResponse, DeadLetterDetail, Policy } from "../../api/types";
import { adviceOf } from "../../lib/dead-letters";
import { duration } from "../../lib/format";
import { formWords } from "../../lib/policies";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { gatewayName, reasonWords, type Tone } from "../../lib/words";
import { ChooseApp } from "../../shell/choose-app";
import { useHere, useMay } from "../../shell/context";
import { useAction } from "../../ui/action";
import { Badge } from "../../ui/badge";
import { Card, Head } from "../../ui/card";
import { Dialog } from "../../ui/dialog";
import { Time } from "../../ui/numbers";
import { OneLine } from "../../ui/one-line";
import { Refused, Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { handleOne, loadLetter, type Handling } from "./load";

/** One dead letter: error, attempts, content and actions. */
export default function DeadLetterPage() {
  const { params } = useRoute();
  const { app, apps } = useHere();
  const { link } = useFilters();
  const id = params.letter ?? "";
  return (
    <>
      <p class="back">
        <a href={link("/dead-letters")}>Failed deliveries</a>
      </p>
      {app ? (
        <Letter key={id} app={app} id={id} />
      ) : (
        <ChooseApp apps={apps} what="Each failed delivery belongs to an app." />
      )}
    </>
  );
}

const STATES: Record<DeadLetterDetail["state"], { word: string; tone: Tone }> = {
  open: { word: "Open", tone: "lost" },
  replayed: { word: "Replayed", tone: "accepted" },
  discarded: { word: "Discarded", tone: "cancelled" },
  closed: { word: "Closed: cannot be replayed", tone: "cancelled" },
};

function Letter({ app, id }: { app: AppResponse; id: string }) {
  // Each read of the content is recorded in the audit log: it is requested once.
  const letter = useResource(`letter ${app.id} ${id}`, (stop) => loadLetter(app.id, id, stop), { everyS: 86_400 });
  return (
    <Shown of={letter} what="this dead letter">
      {(opened) => <Opened app={app} opened={opened} onHandled={letter.refresh} />}
    </Shown>
  );
}

function Opened({ app, opened, onHandled }: { app: AppResponse; opened: DeadLetterDetail; onHandled: () => unknown }) {
  const { link } = useFilters();
  const { title } = reasonWords(opened.reason);
  const { word, tone } = STATES[opened.state];
  return (
    <>
      <Head title={title} />
      <p id="advice">{adviceOf(opened)}</p>
      <p class="verdict" id="letter-state">
        <Badge tone={tone}>{word}</Badge>{" "}
        <span>
          {gatewayName(opened.gateway)} · died <Time at={opened.at} />
          {opened.settled_at && (
            <>
              {" "}
              · settled <Time at={opened.settled_at} />
            </>
          )}
        </span>
      </p>
      {opened.state === "open" && <Acts app={app} id={opened.id} onHandled={onHandled} />}
      <div class="grid halves">
        <Card title="Last error">
          <p>
            {opened.status != null && <code>{opened.status}</code>}{" "}
            {opened.detail ?? (opened.status == null ? "No response." : "The push service gave no reason.")}
          </p>
        </Card>
        <Card title="Delivery">
          <ul class="list">
            <li data-row>
              <a id="story" href={link(`/deliveries/${app.slug}/${opened.message}/${opened.subscription}`)}>
                History of this delivery
              </a>
            </li>
            <li data-row>
              Message <a href={link(`/messages/${opened.message}`)}>{opened.message}</a>
            </li>
            <li data-row>
              To <a href={link(`/subscribers/${opened.subscription}`)}>{opened.subscription}</a>
            </li>
            <li>Tier {opened.tier}</li>
            {opened.replay && (
              <li data-row>
                Replayed by <a href={link(`/messages/${opened.replay}`)}>{opened.replay}</a>
              </li>
            )}
          </ul>
        </Card>
        <Card title="Attempts" class="wide">
          <History history={opened.history} />
        </Card>
        <Content opened={opened} />
        {opened.policy && (
          <Card title="Policy in force" aside={<span class="fine">{formWords(opened.policy as Policy)}</span>}>
            <pre tabIndex={0}>
              <code>{JSON.stringify(opened.policy, null, 2)}</code>
            </pre>
          </Card>
        )}
      </div>
    </>
  );
}

function History({ history }: { history: DeadLetterDetail["history"] }) {
  if (history.length === 0) return <p>The log of the attempts has been deleted.</p>;
  return (
    <Table
      caption="Attempts"
      rows={history}
      id={({ attempt, at }) => `${attempt} ${at}`}
      columns={[
        { head: "Attempt", cell: ({ attempt }) => (attempt === 0 ? "First POST" : `Retry ${attempt}`) },
        { head: "At", cell: ({ at }) => <Time at={at} absolute /> },
        {
          head: "Response",
          cell: ({ status, reason }) => (
            <OneLine text={[status, reason].filter((word) => word != null).join(" ") || "none"} />
          ),
        },
        {
          head: "Took",
          isNumber: true,
          isExtra: true,
          cell: ({ took_ms }) => (took_ms == null ? "–" : duration(took_ms / 1_000)),
        },
      ]}
    />
  );
}

function Content({ opened: { content, content_state, dropped } }: { opened: DeadLetterDetail }) {
  return (
    <Card title="Content">
      {content_state === "withheld" && <p>The content is visible to admins of this app only.</p>}
      {content_state === "deleted" && <p>The content has been deleted.</p>}
      {content_state === "shown" && (
        <pre tabIndex={0}>
          <code>{JSON.stringify(content, null, 2)}</code>
        </pre>
      )}
      {dropped && <p class="fine">Left out because the payload was too large: {dropped.join(", ")}.</p>}
    </Card>
  );
}

const DOES: Record<Handling, { title: string; words: string }> = {
  replay: {
    title: "Replay",
    words:
      "Sends a new message to this subscription. A browser that has shown the notification drops the duplicate. Fix the cause before replaying.",
  },
  discard: {
    title: "Discard",
    words: "The dead letter stays in the archive until its retention ends, but can no longer be replayed.",
  },
};

function Acts({ app, id, onHandled }: { app: AppResponse; id: string; onHandled: () => unknown }) {
  const sender = useMay("sender", app.id);
  const [handling, choose] = useState<Handling>();
  const { run, isBusy, problem } = useAction(async (handling: Handling) => {
    await handleOne(handling, app.id, id);
    choose(undefined);
    await onHandled();
  });
  if (!sender.may)
    return <p class="fine">Your role does not allow replaying or discarding dead letters. {sender.why}</p>;
  return (
    <>
      <div class="row" role="group" aria-label="Actions">
        {(["replay", "discard"] as const).map((handling) => (
          <button key={handling} type="button" data-do={handling} onClick={() => choose(handling)}>
            {DOES[handling].title}…
          </button>
        ))}
      </div>
      {handling && (
        <Dialog title={`${DOES[handling].title} this dead letter?`} onClose={() => choose(undefined)}>
          <p>{DOES[handling].words}</p>
          <Refused problem={problem} />
          <p class="row end">
            <button type="button" onClick={() => choose(undefined)}>
              Cancel
            </button>
            <button type="button" class="primary" id="handle-one" disabled={isBusy} onClick={() => run(handling)}>
              {DOES[handling].title}
            </button>
          </p>
        </Dialog>
      )}
    </>
  );
}
