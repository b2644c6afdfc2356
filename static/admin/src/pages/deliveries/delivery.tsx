import { useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import type { AppResponse, Sentence } from "../../api/types";
import {
  aDevice,
  answer,
  chapters,
  isWaiting,
  shortId,
  stateWords,
  TURN_WORDS,
  type Subject,
  type Turn,
} from "../../lib/deliveries";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { gatewayName } from "../../lib/words";
import { useMay } from "../../shell/context";
import { OfNamedApp } from "../../shell/of-app";
import { Badge } from "../../ui/badge";
import { Card, Head } from "../../ui/card";
import { useDialog } from "../../ui/dialog";
import { Shown } from "../../ui/shown";
import { ReportDialog, TurnDialog } from "./act";
import { loadKnown, type Known } from "./load";
import { RawFacts } from "./raw";
import { Told, Timeline } from "./timeline";
import "../../ui/filters.css";
import "./deliveries.css";

/** One delivery: state with its reason, history, next step and actions. */
export default function DeliveryPage() {
  const { params } = useRoute();
  const [message = "", subscription = ""] = [params.message, params.subscription];
  return (
    <OfNamedApp name={params.app}>
      {(app) => <Story key={`${message} ${subscription}`} app={app} message={message} subscription={subscription} />}
    </OfNamedApp>
  );
}

function Story({ app, message, subscription }: { app: AppResponse; message: string; subscription: string }) {
  const { link } = useFilters();
  const [done, setDone] = useState("");
  const known = useResource(
    `delivery ${app.id} ${message} ${subscription}`,
    (stop) => loadKnown(app.id, message, subscription, stop),
    {
      on: [
        "message.progress",
        "message.done",
        "message.paused",
        "message.resumed",
        "message.cancelled",
        "lane.held",
        "lane.released",
        "lane.breaker",
      ],
      everyS: 15,
    },
  );
  return (
    <>
      <p class="back">
        <a href={link("/deliveries", { app: app.slug, message })}>All deliveries of this message</a>
      </p>
      <Shown of={known} what="this delivery">
        {(shown) => (
          <>
            <Title known={shown} />
            <Verdict known={shown} />
            <Turns
              app={app}
              known={shown}
              onDone={(turn) => {
                setDone(TURN_WORDS[turn].done);
                void known.refresh();
              }}
            />
            {done && (
              <p role="status" id="done" class="fine">
                {done}
              </p>
            )}
            <div class="grid story">
              <Card title="History">
                <Timeline story={shown.explanation.story} />
              </Card>
              <About app={app} known={shown} />
            </div>
            <RawFacts known={shown} />
          </>
        )}
      </Shown>
    </>
  );
}

/** Name of the recipient for people. */
const personOf = ({ found, subscription }: Known) => found?.user_id ?? subscription?.user_id ?? undefined;
const gatewayOf = ({ found, subscription }: Known) => found?.gateway ?? subscription?.gateway;

function Title({ known }: { known: Known }) {
  const device = aDevice(gatewayOf(known));
  const whom = personOf(known);
  const { message } = known.explanation;
  return (
    <Head
      title={whom ? `Delivery to ${whom}` : `Delivery to ${device}`}
      lead={`Message ${shortId(message)} to ${whom ? device : shortId(known.explanation.subscription)}`}
    />
  );
}

function Verdict({ known: { explanation } }: { known: Known }) {
  const { word, tone } = stateWords(explanation.state);
  const why: Sentence | undefined = answer(explanation);
  return (
    <p class="verdict" id="delivery-state" data-state={explanation.state}>
      <Badge tone={tone}>{word}</Badge> <span>{why && <Told sentence={why} />}</span>
    </p>
  );
}

function Turns({ app, known, onDone }: { app: AppResponse; known: Known; onDone: (turn: Turn) => void }) {
  const { link } = useFilters();
  const { open, show, close } = useDialog<Turn | "report">();
  const sender = useMay("sender", app.id);
  const { explanation, found } = known;
  const waits = isWaiting(explanation.state);
  const subject: Subject = {
    app: `${app.name} (${app.slug})`,
    person: personOf(known),
    gateway: gatewayOf(known),
    lane: found?.lane ?? undefined,
  };
  return (
    <>
      <div class="row" role="group" aria-label="Actions">
        {waits && sender.may && (
          <>
            <button type="button" id="retry" class="primary" onClick={() => show("retry")}>
              Retry now…
            </button>
            <button type="button" id="cancel" onClick={() => show("cancel")}>
              Cancel…
            </button>
          </>
        )}
        <button type="button" id="report" onClick={() => show("report")}>
          Copy as a report…
        </button>
        {explanation.state === "dead" && (
          <a href={link("/dead-letters", { app: app.slug })}>Replay from the failed deliveries</a>
        )}
      </div>
      {waits && !sender.may && (
        <p class="fine">Your role does not allow retrying or cancelling deliveries. {sender.why}</p>
      )}
      {open === "report" && <ReportDialog explanation={explanation} subject={subject} onClose={close} />}
      {(open === "retry" || open === "cancel") && (
        <TurnDialog
          turn={open}
          app={app}
          known={known}
          onClose={close}
          onTaken={() => {
            close();
            onDone(open);
          }}
        />
      )}
    </>
  );
}

function About({ app, known }: { app: AppResponse; known: Known }) {
  const { link } = useFilters();
  const { explanation, found } = known;
  const [person, gateway] = [personOf(known), gatewayOf(known)];
  return (
    <Card title="Details">
      <dl class="facts">
        <div>
          <dt>Message</dt>
          <dd>
            <a href={link(`/messages/${explanation.message}`)}>{found?.title ?? shortId(explanation.message)}</a>
            {found && <span class="soft"> {found.tier}</span>}
          </dd>
        </div>
        <div>
          <dt>Person</dt>
          <dd>
            {person ? (
              <a href={link(`/subscribers/${app.slug}/users/${encodeURIComponent(person)}`)}>{person}</a>
            ) : (
              "anonymous"
            )}
          </dd>
        </div>
        <div>
          <dt>Device</dt>
          <dd>
            <a href={link(`/subscribers/${app.slug}/subscriptions/${explanation.subscription}`)}>
              {shortId(explanation.subscription)}
            </a>
            {known.subscription && <span class="soft"> {known.subscription.state}</span>}
          </dd>
        </div>
        <div>
          <dt>Push service</dt>
          <dd>
            {found?.lane != null && gateway ? (
              <a href={link(`/push-services/${found.lane}`)}>{gatewayName(gateway)}</a>
            ) : gateway ? (
              gatewayName(gateway)
            ) : (
              "unknown"
            )}
          </dd>
        </div>
      </dl>
      {chapters(explanation.story).about.map((sentence) => (
        <p key={sentence.code} class="fine">
          <Told sentence={sentence} />
        </p>
      ))}
    </Card>
  );
}
