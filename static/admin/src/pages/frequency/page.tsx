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

/** Is it too much for them? What people make of it, and what keeps them from getting more than they bear. */
export default function Frequency() {
  return (
    <>
      <Head title="Frequency" lead="Is it too much for them? What people make of it, and what keeps a mistake from becoming a flood." />
      <OfApp what="Each app has caps and a guard of its own.">{(app) => <Of key={app.id} app={app} />}</OfApp>
    </>
  );
}

function Of({ app }: { app: AppResponse }) {
  const { filters, change } = useFilters();
  const days = rangeOf(filters.days);
  const guard = useResource(`guard ${app.id}`, (stop) => loadGuard(app.id, stop), { on: ["alert.raised", "alert.resolved"], everyS: 15 });
  const engagement = useResource(`engagement ${app.id} ${days}`, (stop) => loadEngagement(app.id, days, stop), { everyS: 300 });
  const [known, told] = [guard.known.value?.value, engagement.known.value?.value];
  const isLost = guard.problem.value ?? engagement.problem.value;
  const said = known && told ? sentence(known, told, days, clock.shown.value, zone.value) : { tone: "waiting", words: isLost ? "The state is not available right now." : "Looking…" };
  return (
    <>
      <p class="sentence" id="too-much" data-tone={said.tone} aria-live="polite">
        {said.words}
      </p>
      <Card
        title="How welcome it is"
        aside={<Segments legend="How far back" name="days" value={String(days)} choices={RANGES.map((range) => [String(range), `${range} days`])} choose={(days) => change({ days }, true)} />}
      >
        <Shown of={engagement} what="what people make of it" isEmpty={({ gateways }) => gateways.length === 0} empty={<p>Nothing was sent within {2 * days} days. What browsers report of notifications is counted here: displayed, clicked, closed.</p>}>
          {(engagement) => <Welcome engagement={engagement} />}
        </Shown>
      </Card>
      <div class="grid halves">
        <CapsCard app={app} />
        <GuardCard app={app} guard={guard} />
      </div>
    </>
  );
}

function Welcome({ engagement: { from, gateways } }: { engagement: EngagementResponse }) {
  const share = (of: "click_share" | "close_share" | "ignored_share") => (row: GatewayEngagement) => <Share share={row.now[of]} of={row.now.displayed} before={row.before[of]} />;
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
          { head: "Displayed", isNumber: true, cell: ({ now, before }) => <Share share={now.display_share} of={now.receipts_asked} before={before.display_share} /> },
          { head: "Clicked", isNumber: true, cell: share("click_share") },
          { head: "Closed", isNumber: true, isExtra: true, cell: share("close_share") },
          { head: "Ignored", isNumber: true, isExtra: true, cell: share("ignored_share") },
        ]}
      />
      <p class="fine">
        Since {dayOf(new Date(from))}, in UTC’s days; “before” is as many days before those. Displayed is a share of what a report was asked for, the others are of what was displayed. Clicked by less than 0.5 %, or closed by more than 70 %, is unwelcome: rules of thumb, since no browser publishes its own. Fewer than 500 say nothing.
      </p>
    </>
  );
}

/** A share, of how many, and what it was before. */
function Share({ share, of, before }: { share: number | null | undefined; of: number; before: number | null | undefined }) {
  const told = shareWords(share, of);
  const was = beforeWords(before);
  return (
    <>
      {told.of ? <strong class="number">{told.words}</strong> : <span class="soft">{told.words}</span>}
      {told.of && <span class="fine number share-of"> {told.of}</span>}
      <span class="fine number was">{was ?? "–"}</span>
    </>
  );
}
