import { useState } from "preact/hooks";
import type { AppResponse, Campaign, CampaignLocaleReports, CampaignProgress } from "../../api/types";
import { axisEnd, changeWords, intervals, verdict, verdictBadge, winnerWords } from "../../lib/campaign-results";
import { clock } from "../../lib/clock";
import { count, languageWords, percent, things } from "../../lib/format";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { gatewayName } from "../../lib/words";
import { Badge } from "../../ui/badge";
import { Count, Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { Intervals } from "./intervals";
import { loadLocales, loadRuns, MOVES } from "./load";

/** Comparison of variants, as far as known. */
export function Variants({ progress: { variants, runs } }: { progress: CampaignProgress }) {
  const known = intervals(variants);
  const said = verdict(known);
  const [last] = runs;
  const decided = last && !last.decide_at && winnerWords(last, clock.shown.value, zone.value);
  const badge = said && verdictBadge(said.tone === "accepted", last);
  return (
    <>
      {said ? (
        <p id="verdict">
          {badge && <Badge tone={last?.decide_at ? "waiting" : said.tone}>{badge}</Badge>} {said.words}
        </p>
      ) : (
        <p class="soft">
          {variants.some(({ reports }) => reports)
            ? "No delivery was accepted yet."
            : "Pushes without a receipt token cannot be compared."}
        </p>
      )}
      {decided && <p id="winner">Result of the A/B test: {decided}</p>}
      {known.length > 0 && (
        <Intervals
          of={known.map(({ name, rate, from, to, accepted, clicked }) => ({
            name,
            mark: rate,
            from,
            to,
            about: `${count(clicked)} of ${count(accepted)} clicked`,
          }))}
          axis={[0, axisEnd(known)]}
          write={percent}
        >
          Mark: CTR, clicks divided by accepted deliveries. Bar: 95 % confidence interval.
        </Intervals>
      )}
      <Table
        caption="By variant"
        rows={variants}
        id={({ name }) => name}
        columns={[
          { head: "Variant", cell: ({ name }) => name || "Only variant" },
          { head: "Weight", isNumber: true, isExtra: true, cell: ({ weight }) => weight },
          { head: "Deliveries", isNumber: true, cell: ({ counts }) => <Count n={counts.targeted} /> },
          { head: "Accepted", isNumber: true, cell: ({ counts }) => <Count n={counts.accepted} /> },
          {
            head: "Shown",
            isNumber: true,
            isExtra: true,
            cell: ({ reports }) => (reports ? <Count n={reports.displayed} /> : "unknown"),
          },
          {
            head: "Clicked",
            isNumber: true,
            cell: ({ reports }) => (reports ? <Count n={reports.clicked} /> : "unknown"),
          },
        ]}
      />
    </>
  );
}

export function Gateways({ progress: { gateways } }: { progress: CampaignProgress }) {
  if (gateways.length === 0) return <p class="soft">No recipients yet.</p>;
  return (
    <>
      <Table
        caption="By push service"
        rows={gateways}
        id={({ gateway }) => gateway}
        columns={[
          { head: "Push service", cell: ({ gateway }) => gatewayName(gateway) },
          { head: "Accepted", isNumber: true, cell: ({ counts }) => <Count n={counts.accepted} /> },
          { head: "Waiting", isNumber: true, cell: ({ counts }) => <Count n={counts.waiting} /> },
          {
            head: "Lost",
            isNumber: true,
            cell: ({ counts }) => <Count n={counts.gone + counts.expired + counts.dead} />,
          },
        ]}
      />
      {gateways.some(({ reports }) => !reports) && (
        <p class="fine">Apple’s browsers report neither shown nor clicked.</p>
      )}
    </>
  );
}

/** Results of each run, newest first, beside the previous run. */
export function Runs({ app, campaign }: { app: AppResponse; campaign: Campaign }) {
  const runs = useResource(`runs ${campaign.id}`, (stop) => loadRuns(app.id, campaign.id, stop), {
    on: MOVES,
    everyS: 5,
  });
  const now = clock.shown.value;
  return (
    <Shown of={runs} what="runs" isEmpty={(rows) => rows.length === 0} empty={<p class="soft">No run has started.</p>}>
      {(rows) => (
        <>
          <Table
            caption="Runs"
            rows={rows}
            id={({ run }) => run}
            columns={[
              { head: "Run", cell: ({ run }) => run },
              { head: "Time", cell: ({ at }) => <Time at={at} absolute /> },
              { head: "Accepted", isNumber: true, cell: ({ total }) => <Count n={total.accepted} /> },
              {
                head: "CTR, of accepted",
                isNumber: true,
                cell: ({ reports }) => (reports?.click_rate == null ? "unknown" : percent(reports.click_rate)),
              },
              {
                head: "Change from previous run",
                isNumber: true,
                isExtra: true,
                cell: ({ before }) => changeWords(before),
              },
              { head: "Winner", cell: (run) => winnerWords(run, now, zone.value) ?? <span class="soft">no test</span> },
            ]}
          />
          {campaign.runs > rows.length && (
            <p class="fine">
              The last {things(rows.length, "run")} of {count(campaign.runs)}.
            </p>
          )}
        </>
      )}
    </Shown>
  );
}

/** Every delivery is looked at for this, so it is asked for. */
export function Locales({ app, campaign }: { app: AppResponse; campaign: Campaign }) {
  const [isAsked, ask] = useState(false);
  if (isAsked) return <AskedLocales app={app} campaign={campaign} />;
  return (
    <>
      <p class="soft">Counting reads every delivery: a million take seconds.</p>
      <p>
        <button type="button" id="by-locale" onClick={() => ask(true)}>
          Count by language
        </button>
      </p>
    </>
  );
}

function AskedLocales({ app, campaign }: { app: AppResponse; campaign: Campaign }) {
  const locales = useResource(`locales ${campaign.id}`, (stop) => loadLocales(app.id, campaign.id, stop), {
    everyS: 3_600,
  });
  return (
    <Shown of={locales} what="languages" isEmpty={(rows) => rows.length === 0} empty={<p>There is no delivery yet.</p>}>
      {(rows) => (
        <Table
          caption="By language"
          rows={rows}
          id={({ locale }) => locale ?? ""}
          columns={[
            { head: "Language", cell: ({ locale }) => <Language locale={locale} /> },
            { head: "Accepted", isNumber: true, cell: ({ accepted }) => <Count n={accepted} /> },
            { head: "Shown", isNumber: true, cell: ({ displayed }) => <Count n={displayed} /> },
            { head: "Clicked", isNumber: true, cell: ({ clicked }) => <Count n={clicked} /> },
          ]}
        />
      )}
    </Shown>
  );
}

function Language({ locale }: Pick<CampaignLocaleReports, "locale">) {
  if (!locale) return <span class="soft">unknown</span>;
  const words = languageWords(locale);
  return (
    <>
      {words !== locale && `${words} `}
      <code class="soft">{locale}</code>
    </>
  );
}
