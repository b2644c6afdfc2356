import type { AppResponse, PromptFunnel, PromptFunnelGroup } from "../../api/types";
import { axisEnd } from "../../lib/campaign-results";
import { clock } from "../../lib/clock";
import { percent, share } from "../../lib/format";
import {
  boundWords,
  comparedVariants,
  comparisonWords,
  funnelQuery,
  funnelRows,
  groupName,
  isBare,
  optInSteps,
  refusals,
  shareWords,
  SPLITS,
  type OptInStep,
} from "../../lib/opt-in";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { Card } from "../../ui/card";
import { Export, whole } from "../../ui/export";
import { Marked } from "../../ui/marked";
import { Count } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { Intervals } from "../campaigns/intervals";
import { loadFunnel } from "./load";

/** Steps of visitors from the prompt to a subscription, by group. */
export function OptInFunnel({ app }: { app: AppResponse }) {
  const { filters, change } = useFilters();
  const query = funnelQuery(filters, clock.now());
  const funnel = useResource(
    `opt-in ${app.id} ${Object.values(query).join(" ")}`,
    (stop) => loadFunnel(app.id, query, stop),
    { everyS: 300 },
  );
  const known = funnel.known.value?.value;
  const choose = (name: string) => (event: Event) =>
    change({ [name]: (event.currentTarget as HTMLInputElement).value || undefined }, true);
  return (
    <Card
      title="Opt-in funnel"
      aside={<Export name={`${app.slug}-opt-in-${query.by}`} page={whole(known && funnelRows(known))} />}
    >
      <div class="filters" role="group" aria-label="Filters">
        <label>
          Split by{" "}
          <select id="funnel-by" value={query.by} onChange={choose("by")}>
            {SPLITS.map(([split, words]) => (
              <option key={split} value={split}>
                {words}
              </option>
            ))}
          </select>
        </label>
        <label>
          From <input type="date" id="funnel-since" value={filters.since ?? query.since} onChange={choose("since")} />
        </label>
        <label>
          To <input type="date" id="funnel-until" value={filters.until ?? query.until} onChange={choose("until")} />
        </label>
      </div>
      <Shown of={funnel} what="the opt-in funnel" isEmpty={isBare} empty={<NothingReported />}>
        {(funnel) => <Figures funnel={funnel} />}
      </Shown>
    </Card>
  );
}

function NothingReported() {
  return (
    <p>
      No steps were reported in these days. Figures appear when a page of yours shows{" "}
      <code>&lt;bellwire-prompt&gt;</code> to visitors: their browsers report each step, without cookies.
    </p>
  );
}

function Figures({ funnel }: { funnel: PromptFunnel }) {
  const variants = comparedVariants(funnel);
  const words = comparisonWords(variants);
  return (
    <>
      {words && (
        <p class="verdict" id="funnel-verdict">
          <Marked text={words} />
        </p>
      )}
      {words && (
        <Intervals
          of={variants.map(({ name, value, low, high }) => ({ name, mark: value, from: low, to: high }))}
          axis={[0, axisEnd(variants.map(({ high }) => ({ to: high })))]}
          write={shareWords}
        >
          Mark: subscribed of shown. Bar: 95 % confidence interval. If the bars of two variants overlap, the difference
          may be chance.
        </Intervals>
      )}
      <StepTable funnel={funnel} />
      <RefusalTable funnel={funnel} />
    </>
  );
}

const GROUPS = Object.fromEntries(SPLITS) as Record<string, string>;
const id = ({ value }: PromptFunnelGroup) => value ?? "";
const nameColumn = (by: PromptFunnel["by"]) => ({
  head: GROUPS[by] ?? by,
  cell: ({ value }: PromptFunnelGroup) => <strong class="group-name">{groupName(by, value)}</strong>,
});

function StepTable({ funnel: { by, groups } }: { funnel: PromptFunnel }) {
  const most = Math.max(...groups.map(({ shown }) => shown));
  const [first] = groups;
  if (!first) return null;
  return (
    <>
      <Table
        caption="Steps to a subscription"
        rows={groups}
        id={id}
        look={() => "stacked steps"}
        columns={[
          nameColumn(by),
          ...optInSteps(first).map(({ word }, n) => ({
            head: word,
            isNumber: true,
            cell: (group: PromptFunnelGroup) => <StepCell step={optInSteps(group)[n]} most={most} />,
          })),
          {
            head: "Subscribed of shown",
            isNumber: true,
            cell: ({ granted_share: share }: PromptFunnelGroup) =>
              share ? (
                <>
                  {shareWords(share.value)} <div class="fine">{boundWords(share)}</div>
                </>
              ) : (
                "–"
              ),
          },
        ]}
      />
      <p class="fine">
        Percentages are shares of the step before; bars have their length. After 7 and 30 days: still subscribed, of
        those who subscribed at least that long ago. Subscribed of shown: with its 95 % confidence interval. Days are in
        UTC.
      </p>
    </>
  );
}

/** Number of a step and its share of the step before. The first step is compared with the largest group. */
function StepCell({ step, most }: { step: OptInStep | undefined; most: number }) {
  if (!step) return null;
  const { n, of = most, of: before, isOfOthers } = step;
  // Visitors who had given the permission earlier skip a step.
  const isShare = before !== undefined && before >= n;
  return (
    <>
      <Count n={n} />{" "}
      {isShare && <span class="fine">{isOfOthers || before === 0 ? share(n, before) : percent(n / before)}</span>}
      <div class="bar" aria-hidden="true">
        <span class="known" style={{ width: `${of === 0 ? 0 : Math.min(100, (n / of) * 100)}%` }} />
      </div>
    </>
  );
}

function RefusalTable({ funnel: { by, groups } }: { funnel: PromptFunnel }) {
  const [first] = groups;
  if (!first) return null;
  return (
    <>
      <h3>Refusals and guides</h3>
      <Table
        caption="Refusals and guides"
        rows={groups}
        id={id}
        look={() => "stacked"}
        columns={[
          nameColumn(by),
          ...refusals(first).map(({ word }, n) => ({
            head: word,
            isNumber: true,
            cell: (group: PromptFunnelGroup) => <Count n={refusals(group)[n]?.n ?? 0} />,
          })),
        ]}
      />
    </>
  );
}
