import type { AppResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import { quarters, quarterWords } from "../../lib/conversions";
import { things } from "../../lib/format";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { Card } from "../../ui/card";
import { Export, whole } from "../../ui/export";
import { Marked } from "../../ui/marked";
import { Shown } from "../../ui/shown";
import { loadCaused } from "./load";

/** Conversions that all campaigns of an app caused in a quarter. Nothing is shown if none were compared lately. */
export function Caused({ app }: { app: AppResponse }) {
  const { filters, change } = useFilters();
  const chosen = filters.quarter;
  const result = useResource(`caused ${app.id} ${chosen ?? ""}`, (stop) => loadCaused(app.id, chosen, stop), {
    everyS: 600,
  });
  const known = result.known.value?.value;
  const hasResult = known ? known.conversions.length > 0 : result.problem.value !== undefined;
  if (!chosen && !hasResult) return null;
  const shown = chosen ?? known?.quarter;
  return (
    <Card
      title="Caused by campaigns"
      aside={
        <div class="row">
          <label>
            <span class="fine">Quarter</span>{" "}
            <select
              id="quarter"
              value={shown}
              onChange={(event) => change({ quarter: event.currentTarget.value }, true)}
            >
              {quarters(clock.shown.value, shown).map((quarter) => (
                <option key={quarter}>{quarter}</option>
              ))}
            </select>
          </label>
          <Export name={`${app.slug}-caused-${shown}`} page={whole(known?.conversions)} />
        </div>
      }
    >
      <Shown
        of={result}
        what="the results of the quarter"
        isEmpty={({ conversions }) => conversions.length === 0}
        empty={<p>No campaign with a holdout that began in this quarter has enough conversions.</p>}
      >
        {(result) => (
          <>
            <ul id="caused">
              {quarterWords(result).map(({ name, words }) => (
                <li key={name}>
                  <Marked text={words} />
                </li>
              ))}
            </ul>
            <p class="fine">
              From {things(result.campaigns, "campaign")} with a holdout. Ranges are 95 % confidence intervals.
            </p>
          </>
        )}
      </Shown>
    </Card>
  );
}
