import { useId, useState } from "preact/hooks";
import type { AppResponse, PolicyPreviewRequest, Simulation } from "../../api/types";
import { duration, count } from "../../lib/format";
import { figures, SCENARIOS, SCENARIO_WORDS, verdict, type Scenario } from "../../lib/policies";
import { useFilters } from "../../lib/url";
import { useAction } from "../../ui/action";
import { Badge } from "../../ui/badge";
import { Card } from "../../ui/card";
import { Refused } from "../../ui/shown";
import { Table } from "../../ui/table";
import { simulate } from "./load";

type Load = Simulation["report"]["load"];

/** A policy is tried against a push service in trouble. Nothing is sent. */
export function Trial({ app, body, canRun }: { app: AppResponse; body: PolicyPreviewRequest; canRun: boolean }) {
  const { filters, change } = useFilters();
  const scenario = SCENARIOS.find((known) => known === filters.scenario) ?? "outage";
  const [found, setFound] = useState<{ of: string; simulation: Simulation }>();
  const { run, isBusy, problem } = useAction(async () => {
    const simulation = await simulate(app.id, scenario, body);
    setFound({ of: JSON.stringify(body), simulation });
  });
  const isOld = found !== undefined && (found.of !== JSON.stringify(body) || found.simulation.scenario !== scenario);
  return (
    <Card title="Simulation" class="trial">
      <div class="row">
        <label>
          <span class="fine">Scenario</span>{" "}
          <select
            id="scenario"
            value={scenario}
            onChange={(event) => change({ scenario: event.currentTarget.value as Scenario }, true)}
          >
            {SCENARIOS.map((name) => (
              <option key={name} value={name}>
                {SCENARIO_WORDS[name]}
              </option>
            ))}
          </select>
        </label>
        <button type="button" id="try-policy" disabled={isBusy || !canRun} onClick={() => run()}>
          {isBusy ? "Simulating…" : "Simulate"}
        </button>
        <span class="fine">10,000 simulated deliveries in one lane, with the server’s own code. Nothing is sent.</span>
      </div>
      <Refused problem={problem} />
      {found && (
        <div class={isOld ? "dimmed" : ""} id="trial" aria-busy={isBusy}>
          {isOld && <p class="stale">Result of another policy or scenario. Simulate again.</p>}
          <Found simulation={found.simulation} />
        </div>
      )}
    </Card>
  );
}

function Found({ simulation }: { simulation: Simulation }) {
  const { report, today, outages } = simulation;
  const { words, isGood } = verdict(simulation);
  const loads = [report.load, ...(today ? [today.load] : [])];
  const most = Math.max(1, ...loads.flatMap(({ posts_per_s }) => posts_per_s));
  const lasts = Math.max(...loads.map(({ bucket_s, posts_per_s }) => bucket_s * posts_per_s.length));
  return (
    <>
      <p class="verdict">
        <Badge tone={isGood ? "accepted" : "lost"}>{words}</Badge>
      </p>
      <div class="loads">
        <LoadFigure
          title={today ? "With this policy" : "Current policy"}
          load={report.load}
          most={most}
          lasts={lasts}
          outages={outages}
        />
        {today && <LoadFigure title="Current policy" load={today.load} most={most} lasts={lasts} outages={outages} />}
      </div>
      <Table
        caption="Results"
        rows={figures(simulation)}
        id={({ name }) => name}
        columns={[
          { head: "Figure", cell: ({ name }) => name },
          { head: today ? "With this policy" : "Current policy", isNumber: true, cell: ({ tried }) => tried },
          ...(today
            ? [{ head: "Current policy", isNumber: true, cell: ({ today }: { today: string | undefined }) => today }]
            : []),
        ]}
      />
    </>
  );
}

const HEIGHT = 100;

interface LoadProps {
  title: string;
  load: Load;
  /** POSTs in a second that the whole height stands for, and seconds for the whole width. */
  most: number;
  lasts: number;
  outages: Simulation["outages"];
}

/** POSTs a second over time: those that were accepted, and on top of them those in vain. Hatched: the gateway is down. */
function LoadFigure({ title, load, most, lasts, outages }: LoadProps) {
  const id = useId().replaceAll(":", "");
  const y = (n: number) => ((n / most) * HEIGHT).toFixed(2);
  const bars = (top: (n: number) => number, bottom: (n: number) => number) =>
    load.posts_per_s
      .map((_, n) => {
        const [from, to] = [bottom(n), top(n)];
        return to <= from
          ? ""
          : `M${n * load.bucket_s} ${HEIGHT - Number(y(from))}V${HEIGHT - Number(y(to))}h${load.bucket_s}V${HEIGHT - Number(y(from))}z`;
      })
      .join("");
  const accepted = (n: number) => load.accepted_per_s[n] ?? 0;
  const posts = (n: number) => load.posts_per_s[n] ?? 0;
  return (
    <figure class="load">
      <figcaption>
        <strong>{title}</strong>{" "}
        <span class="fine">
          up to {count(Math.max(0, ...load.posts_per_s))} POSTs per second, over{" "}
          {duration(load.bucket_s * load.posts_per_s.length)}
        </span>
      </figcaption>
      <svg
        viewBox={`0 0 ${lasts} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}: the figures are in the table below`}
      >
        <defs>
          <pattern id={`down-${id}`} width={Math.max(1, lasts / 120)} height="4" patternUnits="userSpaceOnUse">
            <rect class="down" width={Math.max(1, lasts / 120)} height="1.2" />
          </pattern>
        </defs>
        {outages.map(({ from_s, until_s }) => (
          <rect
            key={from_s}
            x={from_s}
            y="0"
            width={Math.min(until_s ?? lasts, lasts) - from_s}
            height={HEIGHT}
            fill={`url(#down-${id})`}
          />
        ))}
        <path class="accepted" d={bars(accepted, () => 0)} />
        <path class="in-vain" d={bars(posts, accepted)} />
      </svg>
      <p class="span fine" aria-hidden="true">
        <span>0</span>
        <span>{duration(lasts)}</span>
      </p>
      <ul class="legend">
        <li>
          <span class="swatch" data-tone="accepted" aria-hidden="true" /> Accepted
        </li>
        <li>
          <span class="swatch" data-tone="retrying" aria-hidden="true" /> Failed
        </li>
        {outages.length > 0 && (
          <li>
            <span class="swatch" data-tone="cancelled" data-pattern="stripes" aria-hidden="true" /> The push service is
            down
          </li>
        )}
      </ul>
    </figure>
  );
}
