import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { Kind } from "../../api/live";
import type { AlertResponse, AppResponse, ChartResponse, LaneResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import {
  firstCreation,
  funnel,
  OUTCOME_LOOKS,
  OUTCOMES,
  perMinute,
  sentence,
  throughput,
  type Queue,
} from "../../lib/figures";
import { ctrWords, STATE_LOOKS } from "../../lib/campaigns";
import { clockTime, count, percent, type Zone } from "../../lib/format";
import { zone } from "../../lib/preferences";
import {
  changeOf,
  pointsOf,
  RANGE_WORDS,
  RANGES,
  rangeFault,
  rangeOf,
  zoomOf,
  type TimeRange,
  type RangeId,
} from "../../lib/range";
import { useResource } from "../../lib/resource";
import { to, useFilters } from "../../lib/url";
import { Badge } from "../../ui/badge";
import { Card, Head } from "../../ui/card";
import { StackedBars, type Layer } from "../../ui/chart";
import { ChartTable } from "../../ui/chart-table";
import { useZoom, ZoomNote } from "../../ui/zoom";
import { Export, whole } from "../../ui/export";
import { Count, Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { ChooseApp } from "../../shell/choose-app";
import { useHere, useMay } from "../../shell/context";
import "../composer/composer.css";
import { Segments } from "../composer/fields";
import { DeadLetterList, LaneList, Latency, number, QueueFigures, ReliabilityTable } from "./cards";
import { FunnelFigure } from "./funnel";
import * as load from "./load";

const OF_SENDING: readonly Kind[] = [
  "outcomes",
  "message.progress",
  "message.done",
  "lane.held",
  "lane.released",
  "lane.breaker",
];

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
  const { filters } = useFilters();
  const id = app?.id;
  const of = app ? [app] : apps;
  const created = firstCreation(of);
  const range = () => rangeOf(filters, clock.now(), created);
  const about = `${id ?? "all"} ${range().id} ${filters.from ?? ""} ${filters.to ?? ""} ${filters.zoom ?? ""}`;
  const recent = useResource(`rate ${id ?? "all"}`, (stop) => load.loadRate(id, stop), { on: OF_SENDING, everyS: 30 });
  const chart = useResource(`throughput ${about}`, (stop) => load.loadThroughput(id, range(), stop), {
    on: OF_SENDING,
    everyS: 30,
  });
  const sums = useResource(`sums ${about}`, (stop) => load.loadSums(id, range(), stop), { on: ["message.done"] });
  const queue = useResource(`queue ${id ?? "all"}`, (stop) => load.loadQueue(id, stop), { on: OF_SENDING, everyS: 30 });
  const lanes = useResource(`lanes ${id ?? "all"}`, (stop) => load.loadLanes(id, stop), {
    on: ["lane.held", "lane.released", "lane.breaker"],
  });
  const alerts = useResource(`alerts ${id ?? "all"}`, (stop) => load.loadAlerts(id, stop), {
    on: ["alert.raised", "alert.resolved"],
  });
  const reliability = useResource(`reliability ${id ?? "all"}`, (stop) => load.loadReliability(id, stop));
  const dead = useResource(`dead ${of.map(({ id }) => id).join()}`, (stop) => load.loadDeadLetters(of, stop), {
    on: ["dead_letter.created"],
  });
  const campaigns = useResource(`campaigns ${of.map(({ id }) => id).join()}`, (stop) => load.loadCampaigns(of, stop), {
    on: ["message.done"],
  });
  const columns = recent.known.value && throughput(recent.known.value.value);
  return (
    <>
      <Head title="Overview">
        <RangePicker />
      </Head>
      <Sentence
        isKnown={columns !== undefined && queue.known.value !== undefined}
        perMinute={columns && perMinute(columns)}
        queue={queue.known.value?.value}
        lanes={lanes.known.value?.value}
        alerts={alerts.known.value?.value}
        apps={app ? undefined : apps}
        problem={(recent.problem.value ?? queue.problem.value)?.message}
      />
      <div class="grid">
        <Card
          title="Summary"
          class="wide"
          aside={
            <div class="row">
              <span class="fine">{spanWords(range(), zone.value)}</span>
              <Export name="summary" page={whole(sums.known.value && sumRows(range(), sums.known.value.value))} />
            </div>
          }
        >
          <Shown of={sums} what="the summary">
            {(sums) => <Summary {...sums} />}
          </Shown>
        </Card>
        <Card title="Throughput by outcome" class="wide" aside={<ZoomNote />}>
          <Shown
            of={chart}
            what="the throughput"
            isEmpty={(chart) => zoomOf(filters.zoom) === undefined && hasNoEnd(chart)}
            empty={<NothingSent />}
          >
            {(chart) => <Throughput chart={chart} created={created?.getTime()} />}
          </Shown>
        </Card>
        <div class="stack">
          <Card title="Queue" aside={<span class="fine">now</span>}>
            <Shown of={queue} what="the queue">
              {(queue) => <QueueFigures queue={queue} />}
            </Shown>
          </Card>
          <Card title="Time to acceptance">
            <Shown
              of={sums}
              what="delivery times"
              isEmpty={({ now }) => number(now, "latency_p50") == null}
              empty={
                <p>
                  No delivery was accepted in this time. The figures are the time from the send request to the
                  acceptance by the push service.
                </p>
              }
            >
              {(sums) => <Latency {...sums} />}
            </Shown>
          </Card>
        </div>
        <Card title="Push services" aside={<span class="fine">now</span>}>
          <Shown
            of={lanes}
            what="the push services"
            isEmpty={(lanes) => lanes.length === 0}
            empty={<p>A push service appears with its first subscription.</p>}
          >
            {(lanes) => <LaneList lanes={lanes} apps={of} />}
          </Shown>
        </Card>
        <Card title="Failed deliveries" aside={<span class="fine">now</span>}>
          <Shown of={dead} what="failed deliveries">
            {(found) => (
              <DeadLetterList
                groups={found.flatMap(({ groups }) => groups)}
                isOfOneApp={app !== undefined || apps.length === 1}
              />
            )}
          </Shown>
        </Card>
        <Card
          title="Recent campaigns"
          class="wide"
          aside={<Export name="recent-campaigns" page={whole(campaigns.known.value?.value.map(campaignRow))} />}
        >
          <Shown
            of={campaigns}
            what="campaigns"
            isEmpty={(campaigns) => campaigns.length === 0}
            empty={<p>No campaign was started yet.</p>}
          >
            {(campaigns) => <CampaignTable campaigns={campaigns} isOfOneApp={of.length === 1} />}
          </Shown>
        </Card>
        <Card title="Reactions" class="wide">
          <Shown
            of={sums}
            what="the reports of browsers"
            isEmpty={({ now }) => funnel(now).accepted === 0}
            empty={
              <p>
                No delivery was accepted in this time. Shown and clicked are counted as far as browsers report them.
              </p>
            }
          >
            {({ now }) => <FunnelFigure funnel={funnel(now)} />}
          </Shown>
        </Card>
        <Card
          title="Reliability"
          aside={<span class="fine">last hour, compared with the hour before</span>}
          class="wide"
        >
          <Shown of={reliability} what="reliability">
            {(read) => <ReliabilityTable {...read} />}
          </Shown>
        </Card>
      </div>
    </>
  );
}

/** Time range of the figures, which is part of the URL. */
function RangePicker() {
  const { filters, change } = useFilters();
  const id = RANGES.find((id) => id === filters.range) ?? "hour";
  const day = (ms: number) => new Date(ms).toISOString().slice(0, 10);
  const now = clock.now().getTime();
  const fault = rangeFault(filters, clock.now());
  const choose = (range: RangeId) => {
    const isCustom = range === "custom";
    change(
      {
        zoom: undefined,
        range: range === "hour" ? undefined : range,
        from: isCustom ? day(now - 6 * 86_400_000) : undefined,
        to: isCustom ? day(now) : undefined,
      },
      true,
    );
  };
  return (
    <div class="row" role="group" aria-label="Time range">
      <Segments
        legend="Time range"
        name="range"
        value={id}
        choices={RANGES.map((id) => [id, RANGE_WORDS[id]])}
        choose={choose}
      />
      {id === "custom" && (
        <>
          <label>
            <span class="fine">From</span>{" "}
            <input
              type="date"
              name="from"
              value={filters.from}
              max={filters.to}
              onChange={(event) => change({ from: event.currentTarget.value, zoom: undefined }, true)}
            />
          </label>
          <label>
            <span class="fine">to</span>{" "}
            <input
              type="date"
              name="to"
              value={filters.to}
              min={filters.from}
              max={day(now)}
              onChange={(event) => change({ to: event.currentTarget.value, zoom: undefined }, true)}
            />
          </label>
          {fault && (
            <p class="fault" role="alert">
              {fault}
            </p>
          )}
        </>
      )}
    </div>
  );
}

const spanWords = ({ since, until }: TimeRange, zone: Zone): string =>
  `${[since, until].map((at) => clockTime(new Date(at), clock.shown.value, zone)).join(" to ")}, compared with the previous period`;

/** Key figures of the range, with their change. */
function Summary({ now, before }: load.Sums) {
  const { link } = useFilters();
  const [won, lost] = [number(now, "subscriptions_won") ?? 0, number(now, "subscriptions_lost") ?? 0];
  const failed = (of: object) => (number(of, "dead") ?? 0) + (number(of, "expired") ?? 0);
  const counted = (title: string, of: (sums: object) => number) => (
    <Figure title={title} change={changeOf(of(now), of(before))}>
      <Count n={of(now)} />
    </Figure>
  );
  const rate = number(now, "click_rate");
  return (
    <dl class="figures summary">
      <Figure title="Active subscribers" change={`${count(won)} gained, ${count(lost)} lost`}>
        <a href={link("/subscribers")}>
          <Count n={number(now, "subscriptions_active") ?? 0} />
        </a>
      </Figure>
      {counted("Delivered to push services", (of) => number(of, "accepted") ?? 0)}
      {counted("Failed or expired", failed)}
      {counted("Shown", (of) => number(of, "displayed") ?? 0)}
      {counted("Clicked", (of) => number(of, "clicked") ?? 0)}
      <Figure title="CTR, of shown" change={pointsOf(rate, number(before, "click_rate"))}>
        {rate == null ? "–" : percent(rate)}
      </Figure>
    </dl>
  );
}

function Figure({
  title,
  change,
  children,
}: {
  title: string;
  change: string | undefined;
  children: ComponentChildren;
}) {
  return (
    <div>
      <dt>{title}</dt>
      <dd>
        <span class="large">{children}</span>
        <span class="fine change">{change ?? "no earlier data"}</span>
      </dd>
    </div>
  );
}

function CampaignTable({ campaigns, isOfOneApp }: { campaigns: load.RecentCampaign[]; isOfOneApp: boolean }) {
  return (
    <Table
      caption="Recent campaigns"
      rows={campaigns}
      id={({ campaign }) => campaign.id}
      columns={[
        {
          head: "Campaign",
          cell: ({ app, campaign }) => (
            <>
              <a href={to(`/campaigns/${campaign.slug}`, { app: app.slug })}>{campaign.name}</a>
              {!isOfOneApp && (
                <>
                  <br />
                  <span class="fine">{app.name}</span>
                </>
              )}
            </>
          ),
        },
        {
          head: "State",
          isExtra: true,
          cell: ({ campaign: { state } }) => <Badge tone={STATE_LOOKS[state].tone}>{STATE_LOOKS[state].word}</Badge>,
        },
        {
          head: "Started",
          isExtra: true,
          cell: ({ campaign }) => (campaign.started_at ? <Time at={campaign.started_at} /> : "–"),
        },
        {
          head: "Delivered",
          isNumber: true,
          cell: ({ campaign }) => (campaign.progress ? <Count n={campaign.progress.total.accepted} /> : "–"),
        },
        { head: "CTR, of accepted", isNumber: true, cell: ({ campaign }) => ctrWords(campaign.progress) },
      ]}
    />
  );
}

/** Rows of the exports: the range and the one before; each campaign. */
const sumRows = ({ since, until, before }: TimeRange, sums: load.Sums) => [
  { since, until, ...sums.now },
  { ...before, ...sums.before },
];
const campaignRow = ({ app, campaign: { id, slug, name, state, started_at, progress } }: load.RecentCampaign) => ({
  app: app.slug,
  id,
  slug,
  name,
  state,
  started_at,
  ...progress?.total,
  ctr: ctrWords(progress),
});

const hasNoEnd = (chart: ChartResponse) =>
  Object.values(throughput(chart).ended).every((values) => values.every((n) => n === 0));

interface SentenceProps {
  isKnown: boolean;
  perMinute: number | undefined;
  queue: Queue | undefined;
  lanes: LaneResponse[] | undefined;
  alerts: AlertResponse[] | undefined;
  apps: readonly AppResponse[] | undefined;
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
  const { at, ended } = useMemo(
    () => throughput(chart, created === undefined ? undefined : new Date(created)),
    [chart, created],
  );
  const layers = useMemo(
    () =>
      OUTCOMES.filter((outcome) => outcome === "accepted" || ended[outcome].some((n) => n > 0)).map(
        (outcome): Layer => ({ ...OUTCOME_LOOKS[outcome], values: ended[outcome] }),
      ),
    [ended],
  );
  const onZoom = useZoom();
  return (
    <>
      <StackedBars at={at} layers={layers} onZoom={onZoom} />
      <ChartTable
        caption="Throughput by outcome"
        file="throughput"
        head="Start"
        at={at}
        layers={layers}
        label={(start) => clockTime(start, clock.now(), zone.value)}
      />
    </>
  );
}
