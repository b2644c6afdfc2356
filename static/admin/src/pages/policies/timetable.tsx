import type { Timetable } from "../../api/types";
import { count, duration } from "../../lib/format";
import { ladder, marks, placeOf, summary, type Rung } from "../../lib/policies";

const percents = (share: number) => `${(share * 100).toFixed(2)}%`;

interface Props {
  caption: string;
  table: Timetable;
  /** Time in seconds after which the delivery expires, even with retries left. */
  ttlS: number;
  /** Without explanations. */
  brief?: boolean;
}

/** Times of retries: a line for each, on an axis whose first seconds have as much room as its last hours. */
export function TimetableFigure({ caption, table, ttlS, brief = false }: Props) {
  const { rungs, left } = ladder(table, ttlS);
  const end = Math.max(table.longest_window_s, 1) * 1.08;
  return (
    <div class={brief ? "timetable brief" : "timetable"}>
      <p>
        <strong>{summary(table)}</strong>
        {!brief && table.longest_window_s - table.shortest_window_s > 1 && (
          <span class="fine">
            {" "}
            {duration(table.shortest_window_s)} to {duration(table.longest_window_s)} with jitter
          </span>
        )}
      </p>
      <table>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            <th scope="col" class="right">
              Retry
            </th>
            {!brief && <th scope="col">Delay</th>}
            <th scope="col" class="right">
              After
            </th>
            <th scope="col" class="axis">
              <span class="hidden">Time of the retry</span>
              <span class="marks" aria-hidden="true">
                {marks(end, brief ? 0.2 : 0.1).map(({ at, words }) => (
                  <span key={words} style={{ left: percents(at) }}>
                    {words}
                  </span>
                ))}
              </span>
            </th>
          </tr>
        </thead>
        <tbody>
          <tr>
            <td class="right">–</td>
            {!brief && <td>first POST</td>}
            <td class="right">0 s</td>
            <td class="axis">
              <Line end={end} ttlS={ttlS} />
            </td>
          </tr>
          {rungs.map((rung, n) => (
            <tr key={rung.label} class={rung.isTooLate ? "too-late" : ""}>
              <td class="right">{rung.label}</td>
              {!brief && (
                <td>
                  {rung.wait}
                  {left > 0 && n === rungs.length - 1 && ` (${count(left)} lines are omitted)`}
                </td>
              )}
              <td class="right">{rung.last === 0 ? "0 s" : duration(rung.last)}</td>
              <td class="axis">
                <Line rung={rung} end={end} ttlS={ttlS} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {!brief && <Explanation table={table} ttlS={ttlS} />}
    </div>
  );
}

function Explanation({ table, ttlS }: { table: Timetable; ttlS: number }) {
  return (
    <p class="fine">
      Dots: nominal times; bars: range with jitter.{" "}
      {table.window_s > ttlS
        ? `The time to live ends after ${duration(ttlS)}: later retries are not made.`
        : `The time to live, ${duration(ttlS)}, is longer.`}{" "}
      Pauses that a push service requests and open breakers add time and use up no retry.
    </p>
  );
}

function Line({ rung, end, ttlS }: { rung?: Rung; end: number; ttlS: number }) {
  const at = (seconds: number) => percents(placeOf(seconds, end));
  return (
    <svg width="100%" height="18" aria-hidden="true">
      {marks(end).map(({ at, words }) => (
        <line key={words} class="mark" x1={percents(at)} x2={percents(at)} y1="0" y2="18" />
      ))}
      {ttlS < end && <line class="ttl" x1={at(ttlS)} x2={at(ttlS)} y1="0" y2="18" />}
      {rung ? (
        <>
          <line class="range" x1={at(rung.earliest)} x2={at(rung.latest)} y1="9" y2="9" />
          {rung.first !== rung.last && <circle class="retry" cx={at(rung.first)} cy="9" r="3.5" />}
          <circle class="retry" cx={at(rung.last)} cy="9" r="4" />
        </>
      ) : (
        <rect class="post" x="0" y="5" width="8" height="8" />
      )}
    </svg>
  );
}
