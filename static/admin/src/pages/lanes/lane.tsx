import { useRoute } from "preact-iso";
import type { FlowResponse, LaneResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import { endOf } from "../../lib/figures";
import { count, duration, things } from "../../lib/format";
import {
  because,
  laneState,
  ORDERS,
  ORDER_WORDS,
  originsOf,
  originState,
  sensible,
  STATE_WORDS,
  type Order,
} from "../../lib/lanes";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { gatewayName } from "../../lib/words";
import { useHere, useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Card, Head } from "../../ui/card";
import { useDialog } from "../../ui/dialog";
import { Count, Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { LastError } from "./last-error";
import { loadAnswers, loadFlow, loadLane } from "./load";
import { OrderDialog } from "./order";
import { RestoreDialog } from "./restore";

/** One push service of one app: its state, the reason, and the actions. */
export default function LanePage() {
  const { params } = useRoute();
  const { link } = useFilters();
  const number = Number(params.lane);
  const lane = useResource(`lane ${number}`, (stop) => loadLane(number, stop), {
    on: ["lane.held", "lane.released", "lane.breaker"],
    everyS: 15,
  });
  const flow = useResource(`flow ${number}`, (stop) => loadFlow(number, stop), {
    on: ["outcomes", "lane.held", "lane.released"],
    everyS: 15,
  });
  const refresh = () => Promise.all([lane.refresh(), flow.refresh()]);
  return (
    <>
      <p class="back">
        <a href={link("/push-services")}>Push services</a>
      </p>
      <Shown of={lane} what={`push service ${params.lane}`}>
        {(shown) => (
          <>
            <State lane={shown} />
            <Orders lane={shown} flow={flow.known.value?.value} onGiven={refresh} />
            <Restore lane={shown} onDone={refresh} />
            <div class="grid halves">
              <Card title="Waiting">
                <Shown of={flow} what="waiting deliveries">
                  {(flow) => <FlowFigures flow={flow} lane={shown} />}
                </Shown>
              </Card>
              <AnswersCard lane={shown} />
              <Card title="Origins" class="wide">
                <Origins lane={shown} />
              </Card>
            </div>
          </>
        )}
      </Shown>
    </>
  );
}

function State({ lane }: { lane: LaneResponse }) {
  const { apps } = useHere();
  const { word, tone } = STATE_WORDS[laneState(lane)];
  return (
    <>
      <Head
        title={`${gatewayName(lane.gateway)}, ${apps.find(({ id }) => id === lane.app)?.name ?? lane.app}`}
        lead={`${things(lane.subscriptions, "active subscription")} · VAPID key ${lane.vapid_key_id} · lane ${lane.lane} in the API`}
      />
      <p class="verdict" id="lane-state">
        <Badge tone={tone}>{word}</Badge>
        {laneState(lane) !== "flowing" && <span> {because(lane, clock.shown.value, zone.value)}.</span>}
      </p>
    </>
  );
}

function Orders({
  lane,
  flow,
  onGiven,
}: {
  lane: LaneResponse;
  flow: FlowResponse | undefined;
  onGiven: () => unknown;
}) {
  const { open: order, show, close } = useDialog<Order>();
  const operator = useMay("operator", null);
  if (!operator.may) return <p class="fine">{operator.why}</p>;
  const [first] = sensible(laneState(lane));
  return (
    <>
      <div class="row" role="group" aria-label="Actions">
        {ORDERS.filter((order) => sensible(laneState(lane)).includes(order)).map((order) => (
          <button
            key={order}
            type="button"
            id={order}
            class={order === first && laneState(lane) !== "flowing" ? "primary" : ""}
            onClick={() => show(order)}
          >
            {ORDER_WORDS[order].title}…
          </button>
        ))}
      </div>
      {order && (
        <OrderDialog
          order={order}
          lane={lane}
          flow={flow}
          onClose={close}
          onGiven={() => {
            close();
            void onGiven();
          }}
        />
      )}
    </>
  );
}

function Restore({ lane, onDone }: { lane: LaneResponse; onDone: () => unknown }) {
  const { open, show, close } = useDialog<"restore">();
  const operator = useMay("operator", lane.app);
  if (!operator.may) return null;
  return (
    <>
      <p class="row">
        <button type="button" id="restore" onClick={() => show("restore")}>
          Restore pruned subscriptions…
        </button>
      </p>
      {open && <RestoreDialog lane={lane} onClose={close} onDone={onDone} />}
    </>
  );
}

function AnswersCard({ lane }: { lane: LaneResponse }) {
  const answers = useResource(`answers ${lane.lane}`, (stop) => loadAnswers(lane, stop));
  return (
    <Card title="Responses" aside={<span class="fine">last hour</span>}>
      <Shown
        of={answers}
        what="the responses"
        isEmpty={(answers) => answers.length === 0}
        empty={<p>No requests in the last hour.</p>}
      >
        {(answers) => <Answers answers={answers} />}
      </Shown>
      {lane.last_error && (
        <dl class="figures">
          <div>
            <dt>Last error</dt>
            <dd>
              <LastError error={lane.last_error} />
            </dd>
          </div>
        </dl>
      )}
    </Card>
  );
}

function FlowFigures({ flow, lane: { concurrency, trips_last_hour } }: { flow: FlowResponse; lane: LaneResponse }) {
  const limits = [
    flow.paused ? "paused by flow control" : "",
    flow.rate == null ? "" : `${count(flow.rate)} in ${duration(flow.period ?? 1)}`,
    flow.parallelism == null ? "" : `${count(flow.parallelism)} at a time`,
  ].filter(Boolean);
  return (
    <dl class="figures">
      <div>
        <dt>Due now</dt>
        <dd class="large">
          <Count n={flow.waiting} orMore={flow.waiting_or_more} />
        </dd>
      </div>
      <div>
        <dt>Oldest waiting for</dt>
        <dd>{flow.oldest_waiting_s == null ? "–" : duration(flow.oldest_waiting_s)}</dd>
      </div>
      <div>
        <dt>Concurrent requests</dt>
        <dd>
          {concurrency == null ? (
            "no recent requests"
          ) : (
            <>
              up to <Count n={concurrency} />
            </>
          )}
        </dd>
      </div>
      <div>
        <dt>Flow control</dt>
        <dd>{limits.join("; ") || "none"}</dd>
      </div>
      <div>
        <dt>Breaker opened, last hour</dt>
        <dd>{trips_last_hour === 0 ? "never" : `${trips_last_hour} ×`}</dd>
      </div>
    </dl>
  );
}

const ANSWER_WORDS: Record<string, string> = {
  "2xx": "Accepted",
  "3xx": "Redirected",
  gone: "The subscription is gone",
  "429": "Asked to slow down",
  "4xx": "Refused",
  "5xx": "The push service failed",
  none: "No response",
};

function Answers({ answers }: { answers: { status: string; n: number }[] }) {
  return (
    <Table
      caption="Responses"
      rows={answers}
      id={({ status }) => status}
      columns={[
        { head: "Response", cell: ({ status }) => ANSWER_WORDS[status] ?? status },
        { head: "Status", cell: ({ status }) => <code>{status}</code> },
        { head: "POSTs", isNumber: true, cell: ({ n }) => <Count n={n} /> },
      ]}
    />
  );
}

const REASON_WORDS: Record<string, string> = {
  throttled: "requested by the push service",
  operator: "an operator",
  key_refused: "the push service refuses the VAPID key",
  mass_gone: "many subscriptions reported gone",
};

function Origins({ lane }: { lane: LaneResponse }) {
  if (lane.origins.length === 0) return <p>No hold and no open breaker.</p>;
  return (
    <Table
      caption="Origins"
      rows={originsOf(lane)}
      id={({ origin, breaker_of }) => `${origin} ${breaker_of ?? ""}`}
      look={() => "stacked"}
      columns={[
        { head: "Origin", cell: ({ origin }) => (origin === "*" ? "All origins" : <code>{origin}</code>) },
        {
          head: "State",
          cell: (origin) => {
            const { word, tone } = STATE_WORDS[originState(origin)];
            return <Badge tone={tone}>{word}</Badge>;
          },
        },
        {
          head: "Until",
          isNumber: true,
          cell: (origin) => endOf(origin.held_until ?? origin.open_until, clock.shown.value, zone.value) || "–",
        },
        {
          head: "Reason",
          cell: ({ held_reason, held_note }) =>
            [held_reason && (REASON_WORDS[held_reason] ?? held_reason), held_note].filter(Boolean).join(": ") || "–",
        },
        { head: "Changed", isExtra: true, cell: ({ changed_at }) => <Time at={changed_at} /> },
      ]}
    />
  );
}
