import type { AppResponse, DeadLetterGroup, LaneResponse, ReliabilityResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import { appOf, sliWords, type Queue } from "../../lib/figures";
import { duration, things } from "../../lib/format";
import { because, laneState, STATE_WORDS } from "../../lib/lanes";
import { zone } from "../../lib/preferences";
import { useFilters } from "../../lib/url";
import { gatewayName, reasonWords } from "../../lib/words";
import { Badge } from "../../ui/badge";
import { Count, Time } from "../../ui/numbers";
import { Table } from "../../ui/table";
import type { Sums } from "./load";

/** A number of a chart's point. Undefined or null: unknown. */
export const number = (of: object, name: string) => (of as Record<string, number | null | undefined>)[name];

export function QueueFigures({ queue }: { queue: Queue }) {
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
export function LaneList({ lanes, apps }: { lanes: LaneResponse[]; apps: readonly AppResponse[] }) {
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
                <a href={link(`/push-services/${lane.lane}`)}>{gatewayName(lane.gateway)}</a> {appOf(lane, apps)?.name}{" "}
                <Badge tone={tone}>{word}</Badge>
                <br />
                <span class="fine">{because(lane, clock.shown.value, zone.value)}</span>
              </li>
            );
          })}
        </ul>
      )}
      <p>
        {ill.length === 0 && <Badge tone="accepted">All healthy</Badge>}{" "}
        <a href={link("/push-services")}>{things(new Set(lanes.map(({ gateway }) => gateway)).size, "push service")}</a>
      </p>
    </>
  );
}

export function DeadLetterList({ groups, isOfOneApp }: { groups: DeadLetterGroup[]; isOfOneApp: boolean }) {
  const { link } = useFilters();
  const byReason = new Map<string, { n: number; newest: string }>();
  for (const { key, count, newest } of groups) {
    const before = byReason.get(key ?? "");
    byReason.set(key ?? "", {
      n: (before?.n ?? 0) + count,
      newest: before && before.newest > newest ? before.newest : newest,
    });
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

export function Latency({ now, before }: Sums) {
  return (
    <dl class="figures">
      {PERCENTILES.map(([name, words]) => {
        const [seconds, earlier] = [number(now, name), number(before, name)];
        return (
          <div key={name}>
            <dt>{words} within</dt>
            <dd>
              {seconds == null ? "–" : duration(seconds)}{" "}
              {earlier != null && <span class="fine">{duration(earlier)} before</span>}
            </dd>
          </div>
        );
      })}
    </dl>
  );
}

const TRENDS = { better: "↗ better", worse: "↘ worse", steady: "→ steady" } as const;

export function ReliabilityTable({ now, before }: { now: ReliabilityResponse; before: ReliabilityResponse }) {
  const rows = now.all.slis.map((reading) =>
    sliWords(
      reading,
      before.all.slis.find(({ sli }) => sli === reading.sli),
    ),
  );
  return (
    <Table
      caption="Reliability"
      rows={rows}
      id={({ title }) => title}
      look={() => "stacked"}
      columns={[
        { head: "Figure", cell: ({ title, samples }) => <span title={samples}>{title}</span> },
        { head: "Now", isNumber: true, cell: ({ value }) => value },
        { head: "Target", isNumber: true, isExtra: true, cell: ({ target }) => target },
        { head: "State", cell: ({ tone, verdict }) => <Badge tone={tone}>{verdict}</Badge> },
        {
          head: "Trend",
          isExtra: true,
          cell: ({ trend }) => (trend ? TRENDS[trend] : <span class="fine">no earlier data</span>),
        },
        { head: "Samples", isExtra: true, cell: ({ samples }) => <span class="fine">{samples}</span> },
      ]}
    />
  );
}
