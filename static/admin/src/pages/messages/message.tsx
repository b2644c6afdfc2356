import { useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import type { AppResponse, MessageResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import { duration } from "../../lib/format";
import {
  audienceWords,
  endedOf,
  going,
  parts,
  receipts,
  standing,
  steerings,
  STEERING_WORDS,
  TIER_WORDS,
  titleWords,
  wholeOf,
  type Standing,
  type Steering,
  isUndo,
  withdrawalWords,
} from "../../lib/messages";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { useHere, useMay } from "../../shell/context";
import { useAction } from "../../ui/action";
import { Card, Head } from "../../ui/card";
import { useDialog } from "../../ui/dialog";
import { ChooseApp } from "../../shell/choose-app";
import { Time } from "../../ui/numbers";
import { PartsBar, PartsLegend } from "../../ui/parts";
import { Refused, Shown } from "../../ui/shown";
import { loadCampaign } from "../campaigns/load";
import { AgainDialog } from "./again";
import { loadMessage, MOVES, steer as steerMessage } from "./load";
import { usePace } from "./pace";
import { Reported } from "./reported";
import { SaidCard } from "./said";
import { SteerDialog } from "./steer";
import "./messages.css";

/** One message: how it is going, why, and what may be done. */
export default function MessagePage() {
  const { params } = useRoute();
  const { app, apps } = useHere();
  const id = params.message ?? "";
  if (!app) {
    return (
      <>
        <Head title="Message" lead={id} />
        <ChooseApp apps={apps} what="Each message belongs to an app." />
      </>
    );
  }
  return <OfApp key={`${app.id} ${id}`} app={app} id={id} />;
}

function OfApp({ app, id }: { app: AppResponse; id: string }) {
  const { link } = useFilters();
  const message = useResource(`message ${id}`, (stop) => loadMessage(app.id, id, stop), { on: MOVES, everyS: 5 });
  const perMinute = usePace(message, (shown) => (shown.state === "sending" ? endedOf(standing(shown)) : undefined));
  return (
    <>
      <p class="back">
        <a href={link("/messages")}>Messages</a>
      </p>
      <Shown of={message} what="this message">
        {(shown) => <One app={app} message={shown} perMinute={perMinute} refresh={message.refresh} />}
      </Shown>
    </>
  );
}

interface Props {
  app: AppResponse;
  message: MessageResponse;
  perMinute: number | undefined;
  refresh: () => unknown;
}

function One({ app, message, perMinute, refresh }: Props) {
  const { link } = useFilters();
  const it = standing(message);
  const sentence = going(it, perMinute, clock.shown.value, zone.value);
  return (
    <>
      <Head
        title={titleWords(message)}
        lead={
          <>
            {message.title && `${audienceWords(message.to)}, `}
            {message.title ? TIER_WORDS[message.tier].toLowerCase() : TIER_WORDS[message.tier]},{" "}
            {it.dueAt > clock.shown.value ? "scheduled" : "sent"} <Time at={message.accepted_at} />
          </>
        }
      />
      <p class="sentence" id="going" data-tone={sentence.tone} aria-live="polite">
        {sentence.path ? <a href={link(sentence.path)}>{sentence.words}</a> : sentence.words}
      </p>
      {message.counts?.withdrawal && (
        <p id="withdrawal" class="sentence">
          {withdrawalWords(message.counts.withdrawal)}
        </p>
      )}
      <Acts app={app} message={message} it={it} refresh={refresh} />
      <div class="grid halves">
        <Card title="Deliveries" class="wide" aside={<Ways message={message} />}>
          <Deliveries it={it} />
        </Card>
        <Card title="Reactions">
          <Reported funnel={receipts(message)} />
        </Card>
        <SaidCard app={app} message={message} />
        <Card title="Details" class="wide">
          <Facts app={app} message={message} />
        </Card>
      </div>
    </>
  );
}

function Deliveries({ it }: { it: Standing }) {
  const all = parts(it);
  if (wholeOf(it) === 0) return <p class="soft">No active subscription matched the audience.</p>;
  return (
    <>
      <PartsBar parts={all} />
      <PartsLegend parts={all} isAbout={it.unfound > 0} />
    </>
  );
}

function Ways({ message }: { message: MessageResponse }) {
  const { link } = useFilters();
  return (
    <p class="row fine">
      <a href={link("/deliveries", { message: message.id })}>All deliveries</a>
      {(message.counts?.dead ?? 0) > 0 && (
        <a href={link("/dead-letters", { message: message.id })}>Failed deliveries</a>
      )}
    </p>
  );
}

function Facts({ app, message }: { app: AppResponse; message: MessageResponse }) {
  const { link } = useFilters();
  const { id, campaign, replay_of, ttl, expires_at, urgency, topic_header, policy } = message;
  return (
    <dl class="facts">
      <dt>Id</dt>
      <dd>
        <code>{id}</code>
      </dd>
      {campaign && (
        <>
          <dt>Campaign</dt>
          <dd>
            <OfCampaign app={app} id={campaign} />
          </dd>
        </>
      )}
      {replay_of && (
        <>
          <dt>Resends</dt>
          <dd>
            <a href={link(`/messages/${replay_of}`)}>{replay_of}</a>
          </dd>
        </>
      )}
      <dt>Time to live</dt>
      <dd>
        {ttl === 0 ? "None: only browsers that are online" : duration(ttl)}, until <Time at={expires_at} absolute />
      </dd>
      <dt>Urgency</dt>
      <dd>{urgency}</dd>
      <dt>Collapse key</dt>
      <dd>
        {topic_header ? (
          <>
            hashed to <code>{topic_header}</code>
          </>
        ) : (
          "None"
        )}
      </dd>
      <dt>Policy</dt>
      <dd>
        {policy ? (
          <details>
            <summary>Set by the message</summary>
            <pre>
              <code>{JSON.stringify(policy, null, 2)}</code>
            </pre>
          </details>
        ) : (
          <>
            Default of <a href={link("/policies")}>tier and topic</a>
          </>
        )}
      </dd>
    </dl>
  );
}

/** The campaign that made it, by its name once that is known. */
function OfCampaign({ app, id }: { app: AppResponse; id: string }) {
  const { link } = useFilters();
  const campaign = useResource(`campaign ${app.id} ${id}`, (stop) => loadCampaign(app.id, id, stop), { everyS: 3_600 });
  if (campaign.problem.value?.status === 404) return <>Deleted campaign</>;
  return (
    <a id="campaign" href={link(`/campaigns/${id}`)}>
      {campaign.known.value?.value.name ?? id}
    </a>
  );
}

/** Possible actions, or the role that has permission. */
function Acts({
  app,
  message,
  it,
  refresh,
}: {
  app: AppResponse;
  message: MessageResponse;
  it: Standing;
  refresh: () => unknown;
}) {
  const { open: steering, show: steer, close } = useDialog<Steering>();
  const [isAgain, again] = useState(false);
  const sender = useMay("sender", app.id);
  const possible = steerings(message);
  const isRecent = isUndo(message, clock.shown.value);
  const undo = useAction(async () => {
    await steerMessage("withdraw", app.id, message.id);
    await refresh();
  });
  const died = (message.counts?.dead ?? 0) > 0;
  if (possible.length === 0 && !died) return null;
  if (!sender.may) return <p class="fine">Your role does not allow stopping or resending messages. {sender.why}</p>;
  return (
    <>
      <div class="row" role="group" aria-label="Actions">
        {possible.map((steering) => (
          <button
            key={steering}
            type="button"
            id={steering}
            class={steering === "resume" ? "primary" : ""}
            disabled={undo.isBusy}
            onClick={() => (steering === "withdraw" && isRecent ? void undo.run() : steer(steering))}
          >
            {steering === "withdraw" && isRecent ? "Undo" : `${STEERING_WORDS[steering]}…`}
          </button>
        ))}
        {died && (
          <button type="button" id="again" onClick={() => again(true)}>
            Resend to failed recipients…
          </button>
        )}
      </div>
      <Refused problem={undo.problem} />
      {steering && (
        <SteerDialog app={app} message={message} steering={steering} it={it} onClose={close} onSteered={refresh} />
      )}
      {isAgain && <AgainDialog app={app} message={message} onClose={() => again(false)} onSent={refresh} />}
    </>
  );
}
