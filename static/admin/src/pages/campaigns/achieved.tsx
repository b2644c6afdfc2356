import type { AppResponse, Campaign, CampaignResult, ConversionResult } from "../../api/types";
import { groupRows, groupWords, liftAxis, liftBars, liftLines, resultRows } from "../../lib/conversions";
import { clock } from "../../lib/clock";
import { amount, clockTime, difference, percent } from "../../lib/format";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { Card, Fact } from "../../ui/card";
import { Export, whole } from "../../ui/export";
import { Marked } from "../../ui/marked";
import { Count, Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { Intervals } from "./intervals";
import { loadResults } from "./load";

/** Conversions of a campaign, and how many of them it caused. Nothing is shown if nothing was measured. */
export function Achieved({ app, campaign }: { app: AppResponse; campaign: Campaign }) {
  const results = useResource(`achieved ${campaign.id}`, (stop) => loadResults(app.id, campaign.id, stop));
  const known = results.known.value?.value;
  if (known ? known.length === 0 : !results.problem.value) return null;
  return (
    <Card
      title="Achieved"
      aside={known && <Export name={`${campaign.slug}-achieved`} page={whole(resultRows(known))} />}
    >
      <Shown of={results} what="conversions">
        {([latest, ...earlier]) => (
          <>
            {latest && (
              <>
                <p class="verdict" id="achieved">
                  <Marked text={latest.summary} />
                </p>
                <Period result={latest} />
              </>
            )}
            {earlier.length > 0 && (
              <div id="earlier-periods">
                {earlier.map((result) => (
                  <Earlier key={result.began_at} result={result} />
                ))}
              </div>
            )}
          </>
        )}
      </Shown>
    </Card>
  );
}

function Earlier({ result }: { result: CampaignResult }) {
  const times = [result.began_at, result.closes_at].map((at) => clockTime(new Date(at), clock.shown.value, zone.value));
  return (
    <details data-period={result.began_at}>
      <summary>Earlier period: {times.join(" to ")}</summary>
      <p>
        <Marked text={result.summary} />
      </p>
      <Period result={result} />
    </details>
  );
}

function Period({ result }: { result: CampaignResult }) {
  const { is_final, began_at, closes_at, accepted, unsubscribed, conversions } = result;
  const bars = liftBars(conversions);
  const end = liftAxis(bars);
  const rows = groupRows(result);
  return (
    <>
      <p class="fine">
        Since <Time at={began_at} absolute />.{" "}
        {is_final ? "Final: conversions counted" : "Not final: conversions count"} until{" "}
        <Time at={closes_at} absolute />.
      </p>
      <dl class="figures">
        <Fact title="Accepted deliveries">
          <Count n={accepted} />
        </Fact>
        <Fact title="Unsubscribed in this time, for any reason">
          <Count n={unsubscribed} />
        </Fact>
      </dl>
      {bars.length > 0 && (
        <Intervals of={bars} axis={[-end, end]} write={difference}>
          Mark: difference in conversions per person from the control group. Bar: 95 % confidence interval
          {is_final ? "." : ", wider until the result is final."} If it includes 0 %, the difference may be chance.
        </Intervals>
      )}
      {conversions.length > 0 && <Kinds conversions={conversions} />}
      {rows.length > 0 && (
        <Table
          caption="Conversions by group"
          rows={rows}
          id={({ name, group }) => `${name} ${group}`}
          columns={[
            { head: "Conversion", cell: ({ name }) => <code>{name}</code> },
            { head: "Group", cell: ({ group }) => groupWords(group) },
            { head: "People", isNumber: true, cell: ({ people }) => <Count n={people} /> },
            { head: "Converted", isNumber: true, cell: ({ converted }) => <Count n={converted} /> },
            { head: "Rate", isNumber: true, cell: ({ rate }) => (rate == null ? "–" : percent(rate)) },
          ]}
        />
      )}
    </>
  );
}

function Kinds({ conversions }: { conversions: readonly ConversionResult[] }) {
  const isCompared = conversions.some(({ lift }) => lift);
  return (
    <Table
      caption="Conversions by kind"
      rows={conversions}
      id={({ name }) => name}
      look={() => "stacked"}
      columns={[
        { head: "Conversion", cell: ({ name }) => <code>{name}</code> },
        { head: "Attributed", isNumber: true, cell: ({ attributed }) => <Count n={attributed.conversions} /> },
        { head: "People", isNumber: true, cell: ({ attributed }) => <Count n={attributed.people} /> },
        {
          head: "Value",
          isNumber: true,
          cell: ({ attributed: { values } }) => (
            <Lines of={values.map(({ value, currency }) => amount(value, currency))} />
          ),
        },
        {
          head: "Per delivery",
          isNumber: true,
          cell: ({ attributed: { values } }) => (
            <Lines
              of={values.flatMap(({ per_delivery, currency }) =>
                per_delivery == null ? [] : [amount(per_delivery, currency)],
              )}
            />
          ),
        },
        ...(isCompared
          ? [
              {
                head: "Caused by the campaign",
                cell: ({ lift }: ConversionResult) => <Lines of={lift ? liftLines(lift) : []} />,
              },
            ]
          : []),
      ]}
    />
  );
}

function Lines({ of }: { of: readonly string[] }) {
  if (of.length === 0) return <>–</>;
  return (
    <>
      {of.map((line) => (
        <div key={line}>{line}</div>
      ))}
    </>
  );
}
