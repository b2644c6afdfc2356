import type { AppResponse, EngagementResponse, GatewayEngagement } from "../../api/types";
import { clock } from "../../lib/clock";
import { dayOf } from "../../lib/format";
import { beforeWords, LEVELS, RANGES, rangeOf, sentence, shareWords } from "../../lib/frequency";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { gatewayName } from "../../lib/words";
import { OfApp } from "../../shell/of-app";
import { Badge } from "../../ui/badge";
import { Card, Head } from "../../ui/card";
import { Count } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import "../composer/composer.css";
import { Segments } from "../composer/fields";
import { CapsCard } from "./caps";
import "./frequency.css";
import { GuardCard } from "./guard";
import { loadEngagement, loadGuard } from "./load";

/** Engagement, frequency caps and the runaway guard of an app. */
export default function Frequency() {
  return (
    <>
      <Head title="Frequency" lead="Engagement, frequency caps and the runaway guard." />
      <OfApp what="Each app has its own caps and guard.">{(app) => <Of key={app.id} app={app} />}</OfApp>
    </>
  );
}

function Of({ app }: { app: AppResponse }) {
  const { filters, change } = useFilters();
  const days = rangeOf(filters.days);
  const guard = useResource(`guard ${app.id}`, (stop) => loadGuard(app.id, stop), {
    on: ["alert.raised", "alert.resolved"],
    everyS: 15,
  });
  const engagement = useResource(`engagement ${app.id} ${days}`, (stop) => loadEngagement(app.id, days, stop), {
    everyS: 300,
  });
  const [known, told] = [guard.known.value?.value, engagement.known.value?.value];
  const isLost = guard.problem.value ?? engagement.problem.value;
  const said =
    known && told
      ? sentence(known, told, days, clock.shown.value, zone.value)
      : { tone: "waiting", words: isLost ? "The state is not available at the moment." : "Loading…" };
  return (
    <>
      <p class="sentence" id="too-much" data-tone={said.tone} aria-live="polite">
        {said.words}
      </p>
      <Card
        title="Engagement"
        aside={
          <Segments
            legend="Period"
            name="days"
            value={String(days)}
            choices={RANGES.map((range) => [String(range), `${range} days`])}
            choose={(days) => change({ days }, true)}
          />
        }
      >
        <Shown
          of={engagement}
          what="engagement"
          isEmpty={({ gateways }) => gateways.length === 0}
          empty={
            <p>
              Nothing was sent within {2 * days} days. Notifications that browsers report as shown, clicked or dismissed
              are counted here.
            </p>
          }
        >
          {(engagement) => <Welcome engagement={engagement} />}
        </Shown>
      </Card>
      <div class="grid halves">
        <CapsCard key={app.id} app={app} />
        <GuardCard app={app} guard={guard} />
      </div>
    </>
  );
}

function Welcome({ engagement: { from, gateways } }: { engagement: EngagementResponse }) {
  const share = (of: "click_share" | "close_share" | "ignored_share") => (row: GatewayEngagement) => (
    <Share share={row.now[of]} of={row.now.displayed} before={row.before[of]} />
  );
  return (
    <>
      <Table
        caption="By push service"
        rows={gateways}
        id={({ gateway }) => gateway}
        columns={[
          {
            head: "Push service",
            cell: ({ gateway, level }) => (
              <>
                {gatewayName(gateway)}
                <br />
                <Badge tone={LEVELS[level].tone}>{LEVELS[level].word}</Badge>
              </>
            ),
          },
          { head: "Accepted", isNumber: true, isExtra: true, cell: ({ now }) => <Count n={now.accepted} /> },
          {
            head: "Shown",
            isNumber: true,
            cell: ({ now, before }) => (
              <Share share={now.display_share} of={now.receipts_asked} before={before.display_share} />
            ),
          },
          { head: "Clicked", isNumber: true, cell: share("click_share") },
          { head: "Dismissed", isNumber: true, isExtra: true, cell: share("close_share") },
          { head: "Ignored", isNumber: true, isExtra: true, cell: share("ignored_share") },
        ]}
      />
      <p class="fine">
        Since {dayOf(new Date(from))} (UTC days); “before” is the previous period of the same length. Shown is a share
        of deliveries with receipt; the others are shares of shown. Less than 0.5 % clicked or more than 70 % dismissed
        counts as too frequent. These are rules of thumb: browsers publish no limits. Fewer than 500 shown are not
        rated.
      </p>
    </>
  );
}

/** A share, of how many, and what it was before. */
function Share({
  share,
  of,
  before,
}: {
  share: number | null | undefined;
  of: number;
  before: number | null | undefined;
}) {
  const told = shareWords(share, of);
  const was = beforeWords(before);
  return (
    <>
      {told.of ? <strong class="number">{told.words}</strong> : <span class="soft">{told.words}</span>}
      {told.of && <span class="fine number share-of"> {told.of}</span>}
      {(told.of || was) && <span class="fine number was">{was ?? "–"}</span>}
    </>
  );
}
