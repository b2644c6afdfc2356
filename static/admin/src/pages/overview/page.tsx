import { useMemo } from "preact/hooks";
import type { Kind } from "../../api/live";
import type { AlertResponse, ChartResponse, DeadLetterGroup, LaneResponse, ReliabilityResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import { firstCreation, funnel, OUTCOME_LOOKS, OUTCOMES, perMinute, sentence, sliWords, throughput, type Queue } from "../../lib/figures";
import { clockTime, duration, fullCount, things } from "../../lib/format";
import { because, laneState, STATE_WORDS } from "../../lib/lanes";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { gatewayName, reasonWords } from "../../lib/words";
import { Badge } from "../../ui/badge";
import { Card, Head } from "../../ui/card";
import { StackedBars, type Layer } from "../../ui/chart";
import { Count, Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { ChooseApp } from "../../shell/choose-app";
import { useHere, useMay } from "../../shell/context";
import { FunnelFigure } from "./funnel";
import * as load from "./load";

const OF_SENDING: readonly Kind[] = ["outcomes", "message.progress", "message.done", "lane.held", "lane.released", "lane.breaker"];

export default function Overview() {
  const { apps, app } = useHere();
  const server = useMay("viewer", null);
  if (app || server.may) return <Figures />;
  return (
    <>
      <Head title="Overview" />
      <ChooseApp apps={apps} what="The figures of all apps require a role for all apps." />
    </>
  );
}

function Figures() {
  const { apps, app } = useHere();
  const id = app?.id;
  const about = id ?? "all";
  const chart = useResource(`throughput ${about}`, (stop) => load.loadThroughput(id, stop), { on: OF_SENDING, everyS: 30 });
  const queue = useResource(`queue ${about}`, (stop) => load.loadQueue(id, stop), { on: OF_SENDING, everyS: 30 });
  const lanes = useResource(`lanes ${about}`, (stop) => load.loadLanes(id, stop), { on: ["lane.held", "lane.released", "lane.breaker"] });
  const alerts = useResource(`alerts ${about}`, (stop) => load.loadAlerts(id, stop), { on: ["alert.raised", "alert.resolved"] });
  const latency = useResource(`latency ${about}`, (stop) => load.loadLatency(id, stop));
  const reliability = useResource(`reliability ${about}`, (stop) => load.loadReliability(id, stop));
  const sums = useResource(`funnel ${about}`, (stop) => load.loadFunnel(id, stop));
  const of = app ? [app] : apps;
  const dead = useResource(`dead ${of.map(({ id }) => id).join()}`, (stop) => load.loadDeadLetters(of, stop), { on: ["dead_letter.created"] });

  const columns = chart.known.value && throughput(chart.known.value.value);
  return (
    <>
      <Head title="Overview" />
      <Sentence
        isKnown={columns !== undefined && queue.known.value !== undefined}
        perMinute={columns && perMinute(columns)}
        queue={queue.known.value?.value}
        lanes={lanes.known.value?.value}
        alerts={alerts.known.value?.value}
        problem={(chart.problem.value ?? queue.problem.value)?.message}
      />
      <div class="grid">
        <Card title="Throughput by outcome" class="wide">
          <Shown of={chart} what="the last hour" isEmpty={hasNoEnd} empty={<NothingSent />}>
            {(chart) => <Throughput chart={chart} created={firstCreation(of)?.getTime()} />}
          </Shown>
        </Card>
        <div class="stack">
          <Card title="Queue">
            <Shown of={queue} what="the queue">
              {(queue) => <QueueFigures queue={queue} />}
            </Shown>
          </Card>
          <Card title="Time to acceptance" aside={<span class="fine">last hour</span>}>
            <Shown of={latency} what="delivery times" isEmpty={hasNoLatency} empty={<p>No delivery was accepted in this time. The figures are the time from the send request to the acceptance by the push service.</p>}>
              {(chart) => <Latency chart={chart} />}
            </Shown>
          </Card>
        </div>
        <Card title="Push services">
          <Shown of={lanes} what="the push services" isEmpty={(lanes) => lanes.length === 0} empty={<p>A push service appears with its first subscription.</p>}>
            {(lanes) => <LaneList lanes={lanes} />}
          </Shown>
        </Card>
        <Card title="Failed deliveries">
          <Shown of={dead} what="failed deliveries">
            {(found) => <DeadLetterList groups={found.flatMap(({ groups }) => groups)} isOfOneApp={app !== undefined || apps.length === 1} />}
          </Shown>
        </Card>
        <Card title="Reactions" aside={<span class="fine">last 24 hours</span>} class="wide">
          <Shown
            of={sums}
            what="the reports of browsers"
            isEmpty={(chart) => funnel(sumsOf(chart)).accepted === 0}
            empty={<p>No delivery was accepted in this time. Shown and clicked are counted as far as browsers report them.</p>}
          >
            {(chart) => <FunnelFigure funnel={funnel(sumsOf(chart))} />}
          </Shown>
        </Card>
        <Card title="Reliability" aside={<span class="fine">last hour, against the one before</span>} class="wide">
          <Shown of={reliability} what="reliability">
            {(read) => <ReliabilityTable {...read} />}
          </Shown>
        </Card>
      </div>
    </>
  );
}

/** The only point of a chart without steps. */
const sumsOf = (chart: ChartResponse): object => chart.data[0]?.metrics ?? {};
const number = (of: object, name: string) => (of as Record<string, number | null | undefined>)[name];
const hasNoEnd = (chart: ChartResponse) => Object.values(throughput(chart).ended).every((values) => values.every((n) => n === 0));
const hasNoLatency = (chart: ChartResponse) => number(sumsOf(chart), "latency_p50") == null;

interface SentenceProps {
  isKnown: boolean;
  perMinute: number | undefined;
  queue: Queue | undefined;
  lanes: LaneResponse[] | undefined;
  alerts: AlertResponse[] | undefined;
  problem: string | undefined;
}

/** Readable from two metres. */
function Sentence({ isKnown, problem, ...known }: SentenceProps) {
  const { link } = useFilters();
  if (!isKnown) return <p class="sentence">{problem ? `The state is not available. ${problem}` : "Loading…"}</p>;
  const { tone, words, path } = sentence(known, clock.shown.value, zone.value);
  return (
    <p class="sentence" id="sentence" data-tone={tone} aria-live="polite">
      {path ? <a href={link(path)}>{words}</a> : words}
    </p>
  );
}

function NothingSent() {
  return (
    <div>
      <p>No delivery ended in this time. Send a message with:</p>
      <pre>
        <code>bellwire send --app shop --topic news --title "Hello"</code>
      </pre>
    </div>
  );
}

function Throughput({ chart, created }: { chart: ChartResponse; created: number | undefined }) {
  const { at, ended } = useMemo(() => throughput(chart, created === undefined ? undefined : new Date(created)), [chart, created]);
  const layers = useMemo(
    () => OUTCOMES.filter((outcome) => outcome === "accepted" || ended[outcome].some((n) => n > 0)).map((outcome): Layer => ({ ...OUTCOME_LOOKS[outcome], values: ended[outcome] })),
    [ended],
  );
  const rows = at.map((start, n) => ({ start, n })).filter(({ n }) => layers.some(({ values }) => (values[n] ?? 0) > 0));
  return (
    <>
      <StackedBars at={at} layers={layers} />
      <details>
        <summary>As a table</summary>
        <Table
          caption="Deliveries that ended, by the minute"
          rows={rows}
          id={({ start }) => start}
          columns={[
            { head: "Minute", cell: ({ start }) => clockTime(new Date(start * 1_000), clock.now(), zone.value) },
            ...layers.map(({ word, values }) => ({ head: word, isNumber: true, cell: ({ n }: { n: number }) => fullCount(values[n] ?? 0) })),
          ]}
        />
      </details>
    </>
  );
}

function QueueFigures({ queue }: { queue: Queue }) {
  return (
    <dl class="figures">
      <div>
        <dt>Due now</dt>
        <dd class="large">
          <Count n={queue.waiting} orMore={queue.waiting_or_more} />
        </dd>
      </div>
      <div>
        <dt>Oldest waiting for</dt>
        <dd class="large">{queue.oldest_waiting_s == null ? "–" : duration(queue.oldest_waiting_s)}</dd>
      </div>
    </dl>
  );
}

/** List of push services in trouble. Healthy ones are counted. */
function LaneList({ lanes }: { lanes: LaneResponse[] }) {
  const { link } = useFilters();
  const ill = lanes.filter((lane) => laneState(lane) !== "flowing");
  const shown = ill.slice(0, 5);
  return (
    <>
      {shown.length > 0 && (
        <ul class="list">
          {shown.map((lane) => {
            const { word, tone } = STATE_WORDS[laneState(lane)];
            return (
              <li key={lane.lane} data-row>
                <a href={link(`/push-services/${lane.lane}`)}>{gatewayName(lane.gateway)}</a> <Badge tone={tone}>{word}</Badge>
                <br />
                <span class="fine">{because(lane, clock.shown.value, zone.value)}</span>
              </li>
            );
          })}
        </ul>
      )}
      <p>
        {ill.length === 0 && <Badge tone="accepted">All healthy</Badge>} <a href={link("/push-services")}>{things(new Set(lanes.map(({ gateway }) => gateway)).size, "push service")}</a>
      </p>
    </>
  );
}

function DeadLetterList({ groups, isOfOneApp }: { groups: DeadLetterGroup[]; isOfOneApp: boolean }) {
  const { link } = useFilters();
  const byReason = new Map<string, { n: number; newest: string }>();
  for (const { key, count, newest } of groups) {
    const before = byReason.get(key ?? "");
    byReason.set(key ?? "", { n: (before?.n ?? 0) + count, newest: before && before.newest > newest ? before.newest : newest });
  }
  const sorted = [...byReason].sort(([, a], [, b]) => b.n - a.n);
  const sum = sorted.reduce((sum, [, { n }]) => sum + n, 0);
  if (sum === 0) return <Badge tone="accepted">No open failures</Badge>;
  return (
    <>
      <p class="large">
        <Count n={sum} />
      </p>
      <ul class="list">
        {sorted.slice(0, 4).map(([reason, { n, newest }]) => (
          <li key={reason} data-row>
            <a href={link("/dead-letters", { reason: isOfOneApp ? reason : undefined })}>{reasonWords(reason).title}</a>
            <br />
            <span class="fine">
              <Count n={n} />, the latest <Time at={newest} />
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

const PERCENTILES = [
  ["latency_p50", "Half"],
  ["latency_p90", "90 %"],
  ["latency_p95", "95 %"],
  ["latency_p99", "99 %"],
] as const;

function Latency({ chart }: { chart: ChartResponse }) {
  const sums = sumsOf(chart);
  return (
    <dl class="figures">
      {PERCENTILES.map(([name, words]) => {
        const seconds = number(sums, name);
        return (
          <div key={name}>
            <dt>{words} within</dt>
            <dd>{seconds == null ? "–" : duration(seconds)}</dd>
          </div>
        );
      })}
    </dl>
  );
}

const TRENDS = { better: "↗ better", worse: "↘ worse", steady: "→ steady" } as const;

function ReliabilityTable({ now, before }: { now: ReliabilityResponse; before: ReliabilityResponse }) {
  const rows = now.all.slis.map((reading) => sliWords(reading, before.all.slis.find(({ sli }) => sli === reading.sli)));
  return (
    <Table
      caption="Reliability"
      rows={rows}
      id={({ title }) => title}
      columns={[
        { head: "Figure", cell: ({ title, samples }) => <span title={samples}>{title}</span> },
        { head: "Now", isNumber: true, cell: ({ value }) => value },
        { head: "Target", isNumber: true, isExtra: true, cell: ({ target }) => target },
        { head: "State", cell: ({ tone, verdict }) => <Badge tone={tone}>{verdict}</Badge> },
        { head: "Trend", isExtra: true, cell: ({ trend }) => (trend ? TRENDS[trend] : <span class="fine">no earlier data</span>) },
        { head: "Samples", isExtra: true, cell: ({ samples }) => <span class="fine">{samples}</span> },
      ]}
    />
  );
}
