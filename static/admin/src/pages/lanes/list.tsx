import type { AppResponse, LaneResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import { percent } from "../../lib/format";
import { because, laneState, services, STATES, stateOf, STATE_WORDS, type Service } from "../../lib/lanes";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { GATEWAY_NAMES, gatewayName } from "../../lib/words";
import { useHere, useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Head } from "../../ui/card";
import { Export } from "../../ui/export";
import { Count } from "../../ui/numbers";
import { OneLine } from "../../ui/one-line";
import { Select } from "../../ui/select";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { Paging } from "../../ui/paging";
import { LastError } from "./last-error";
import { loadAttempts, loadLanes, type Attempts } from "./load";

/** List of push services with their apps, worst first. */
export default function Lanes() {
  const { apps, app } = useHere();
  const { filters, change, link } = useFilters();
  const server = useMay("viewer", null);
  const of = app ? [app.id] : server.may ? undefined : apps.map(({ id }) => id);
  const lanes = useResource(
    `lanes page ${app?.id ?? ""} ${filters.after ?? ""}`,
    (stop) => loadLanes(app?.id, filters.after, stop),
    { on: ["lane.held", "lane.released", "lane.breaker"] },
  );
  const attempts = useResource(`attempts by lane ${of?.join() ?? ""}`, (stop) => loadAttempts(of, stop), {
    on: ["outcomes"],
  });
  const fits = (lane: LaneResponse) =>
    (!filters.gateway || lane.gateway === filters.gateway) && (!filters.state || laneState(lane) === filters.state);
  return (
    <>
      <Head title="Push services" lead="State of each push service and of its apps.">
        <Export
          name="push-services"
          page={async (after, limit, stop) => {
            const { lanes, next } = await loadLanes(app?.id, after, stop, limit);
            return { rows: lanes.filter(fits), next };
          }}
        />
      </Head>
      <div class="filters" role="group" aria-label="Filters">
        <Select
          label="Push service"
          value={filters.gateway}
          choices={GATEWAY_NAMES.map((name) => [name, gatewayName(name)])}
          choose={(gateway) => change({ gateway })}
        />
        <Select
          label="State"
          value={filters.state}
          choices={STATES.map((state) => [state, STATE_WORDS[state].word])}
          choose={(state) => change({ state })}
        />
      </div>
      <Shown
        of={lanes}
        what="the push services"
        isEmpty={(page) => page.lanes.filter(fits).length === 0}
        empty={
          filters.gateway || filters.state || app ? (
            <p>
              No push service matches. <a href={link("/push-services")}>Show all</a>
            </p>
          ) : (
            <p>A push service appears with its first subscription.</p>
          )
        }
      >
        {(page) => (
          <>
            <ServiceTable lanes={page.lanes.filter(fits)} apps={apps} attempts={attempts.known.value?.value} />
            <Paging
              after={filters.after}
              sides={page}
              to={(after) => link("/push-services", { gateway: filters.gateway, state: filters.state, after })}
              older="More push services"
            />
          </>
        )}
      </Shown>
    </>
  );
}

/** A row: a push service, or one of its apps. */
interface Row {
  service: Service;
  /** Undefined: the sum of a service with several lanes. */
  lane: LaneResponse | undefined;
}

const rowsOf = (service: Service): Row[] => {
  const apps = service.lanes.map((lane) => ({ service, lane }));
  return apps.length === 1 ? apps : [{ service, lane: undefined }, ...apps];
};

function ServiceTable({
  lanes,
  apps,
  attempts,
}: {
  lanes: LaneResponse[];
  apps: readonly AppResponse[];
  attempts: Map<number, Attempts> | undefined;
}) {
  const { link } = useFilters();
  const appName = (lane: LaneResponse) => apps.find(({ id }) => id === lane.app)?.name ?? lane.app;
  const sum = ({ service, lane }: Row) => {
    const known = (lane ? [lane] : service.lanes).map(
      ({ lane }) => attempts?.get(lane) ?? { attempts: 0, errorRate: null },
    );
    const posts = known.reduce((sum, { attempts }) => sum + attempts, 0);
    return { posts, refused: known.reduce((sum, { attempts, errorRate }) => sum + attempts * (errorRate ?? 0), 0) };
  };
  return (
    <Table
      caption="Push services"
      rows={services(lanes).flatMap(rowsOf)}
      id={({ service, lane }) => lane?.lane ?? service.gateway}
      look={({ service, lane }) => (lane && service.lanes.length > 1 ? "stacked within" : "stacked")}
      columns={[
        {
          head: "Push service",
          cell: ({ service, lane }) =>
            !lane ? (
              <strong>{gatewayName(service.gateway)}</strong>
            ) : service.lanes.length > 1 ? (
              <>
                <a class="keep" href={link(`/push-services/${lane.lane}`)}>
                  {appName(lane)}
                </a>
                {service.lanes.some((other) => other !== lane && other.app === lane.app) && (
                  <>
                    <br />
                    <span class="fine keep">key …{lane.vapid_key_id.slice(-6)}</span>
                  </>
                )}
              </>
            ) : (
              <>
                <a href={link(`/push-services/${lane.lane}`)}>{gatewayName(lane.gateway)}</a>
                <br />
                <span class="fine">{appName(lane)}</span>
              </>
            ),
        },
        {
          head: "State",
          cell: ({ service, lane }) => {
            const { word, tone } = stateOf(lane ? [lane] : service.lanes);
            return (
              <>
                <Badge tone={tone}>{word}</Badge>
                {lane && laneState(lane) !== "flowing" && (
                  <OneLine text={because(lane, clock.shown.value, zone.value)} />
                )}
              </>
            );
          },
        },
        {
          head: "Subscriptions",
          isNumber: true,
          isExtra: true,
          cell: ({ service, lane }) => <Count n={(lane ?? service).subscriptions} />,
        },
        {
          head: "Sent, last hour",
          isNumber: true,
          isExtra: true,
          cell: (row) => (attempts ? <Count n={sum(row).posts} /> : "…"),
        },
        {
          head: "Failed",
          isNumber: true,
          cell: (row) => {
            const { posts, refused } = sum(row);
            return posts === 0 ? "–" : percent(refused / posts);
          },
        },
        {
          head: "Last error",
          isExtra: true,
          cell: ({ lane }) => lane && laneState(lane) !== "flowing" && <LastError error={lane.last_error} />,
        },
      ]}
    />
  );
}
