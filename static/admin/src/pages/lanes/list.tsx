import type { AppResponse, LaneResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import { endOf } from "../../lib/figures";
import { percent } from "../../lib/format";
import { because, laneState, STATES, STATE_WORDS, worstOrigin } from "../../lib/lanes";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { GATEWAY_NAMES, gatewayName } from "../../lib/words";
import { useHere, useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Head } from "../../ui/card";
import { Count } from "../../ui/numbers";
import { Select } from "../../ui/select";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { Paging } from "../../ui/paging";
import { LastWords } from "./last-words";
import { loadAttempts, loadLanes, type Attempts } from "./load";

/** List of lanes, worst first. */
export default function Lanes() {
  const { apps, app } = useHere();
  const { filters, change, link } = useFilters();
  const server = useMay("viewer", null);
  const of = app ? [app.id] : server.may ? undefined : apps.map(({ id }) => id);
  const lanes = useResource(`lanes page ${app?.id ?? ""} ${filters.after ?? ""}`, (stop) => loadLanes(app?.id, filters.after, stop), { on: ["lane.held", "lane.released", "lane.breaker"] });
  const attempts = useResource(`attempts by lane ${of?.join() ?? ""}`, (stop) => loadAttempts(of, stop), { on: ["outcomes"] });
  const fits = (lane: LaneResponse) => (!filters.gateway || lane.gateway === filters.gateway) && (!filters.state || laneState(lane) === filters.state);
  return (
    <>
      <Head title="Lanes" lead="Which gateway is ill? A lane is the way to one push service under one VAPID key." />
      <div class="filters" role="group" aria-label="Filters">
        <Select label="Gateway" value={filters.gateway} choices={GATEWAY_NAMES.map((name) => [name, gatewayName(name)])} choose={(gateway) => change({ gateway })} />
        <Select label="State" value={filters.state} choices={STATES.map((state) => [state, STATE_WORDS[state].word])} choose={(state) => change({ state })} />
      </div>
      <Shown
        of={lanes}
        what="the lanes"
        isEmpty={(page) => page.lanes.filter(fits).length === 0}
        empty={
          filters.gateway || filters.state || app ? (
            <p>
              No lane is like that. <a href={link("/lanes")}>Show all</a>
            </p>
          ) : (
            <p>Lanes come by themselves, with the first subscription of each push service.</p>
          )
        }
      >
        {(page) => (
          <>
            <LaneTable lanes={page.lanes.filter(fits)} apps={apps} attempts={attempts.known.value?.value} />
            <Paging after={filters.after} sides={page} to={(after) => link("/lanes", { gateway: filters.gateway, state: filters.state, after })} older="More lanes" />
          </>
        )}
      </Shown>
    </>
  );
}

const byGravity = (a: LaneResponse, b: LaneResponse) => STATES.indexOf(laneState(a)) - STATES.indexOf(laneState(b)) || b.subscriptions - a.subscriptions;

function LaneTable({ lanes, apps, attempts }: { lanes: LaneResponse[]; apps: readonly AppResponse[]; attempts: Map<number, Attempts> | undefined }) {
  const { link } = useFilters();
  return (
    <Table
      caption="Lanes"
      rows={[...lanes].sort(byGravity)}
      id={({ lane }) => lane}
      columns={[
        {
          head: "Lane",
          cell: (lane) => (
            <>
              <a href={link(`/lanes/${lane.lane}`)}>{gatewayName(lane.gateway)}</a>
              <br />
              <span class="fine keep">
                {apps.find(({ id }) => id === lane.app)?.name ?? lane.app}, lane {lane.lane}
              </span>
            </>
          ),
        },
        {
          head: "State",
          cell: (lane) => {
            const { word, tone } = STATE_WORDS[laneState(lane)];
            return (
              <>
                <Badge tone={tone}>{word}</Badge>
                <br />
                <span class="fine">{because(lane, clock.shown.value, zone.value)}</span>
              </>
            );
          },
        },
        { head: "Until", isExtra: true, cell: (lane) => endOf(worstOrigin(lane)?.held_until ?? worstOrigin(lane)?.open_until, clock.shown.value, zone.value) || "–" },
        { head: "Subscriptions", isNumber: true, isExtra: true, cell: ({ subscriptions }) => <Count n={subscriptions} /> },
        { head: "At a time", isNumber: true, isExtra: true, cell: ({ concurrency }) => (concurrency == null ? "–" : <Count n={concurrency} />) },
        { head: "POSTs, last hour", isNumber: true, isExtra: true, cell: ({ lane }) => (attempts ? <Count n={attempts.get(lane)?.attempts ?? 0} /> : "…") },
        {
          head: "Refused",
          isNumber: true,
          cell: ({ lane }) => {
            const rate = attempts?.get(lane)?.errorRate;
            return rate == null ? "–" : percent(rate);
          },
        },
        { head: "Breaker opened", isNumber: true, isExtra: true, cell: ({ trips_last_hour }) => (trips_last_hour === 0 ? "–" : `${trips_last_hour} ×`) },
        { head: "Last error", isExtra: true, cell: ({ last_error }) => <LastWords words={last_error} /> },
      ]}
    />
  );
}
