import type { AppResponse, Campaign, CampaignStanding } from "../../api/types";
import { brief, isStarting, parts, standing, STATES, STATE_LOOKS } from "../../lib/campaigns";
import { clock } from "../../lib/clock";
import { TIER_WORDS } from "../../lib/messages";
import { useResource } from "../../lib/resource";
import { waitsForEvents } from "../../lib/trigger";
import { useFilters, type Filters } from "../../lib/url";
import { ChooseApp } from "../../shell/choose-app";
import { useHere, useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Head } from "../../ui/card";
import { Export } from "../../ui/export";
import { useKey } from "../../ui/key";
import { Count, Time } from "../../ui/numbers";
import { PartsBar } from "../../ui/parts";
import { Select } from "../../ui/select";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { Paging } from "../../ui/paging";
import "../messages/messages.css";
import "./campaigns.css";
import { Caused } from "./caused";
import { loadCampaigns, loadPage, MOVES } from "./load";

/** List of campaigns, newest first. */
export default function Campaigns() {
  const { app, apps } = useHere();
  const { filters, link } = useFilters();
  return (
    <>
      <Head title="Campaigns" lead="Scheduled and recurring messages, A/B tests and results.">
        {app && (
          <div class="row">
            <Export
              name={`${app.slug}-campaigns`}
              page={async (iterator, limit, stop) => {
                const { campaigns, next } = await loadPage(
                  app.id,
                  { state: filters.state as Campaign["state"] | undefined, limit, iterator },
                  stop,
                );
                return { rows: campaigns, next };
              }}
            />
            <a class="button" id="as-calendar" href={link("/calendar")}>
              Calendar
            </a>
            <Write app={app} />
          </div>
        )}
      </Head>
      {!app ? <ChooseApp apps={apps} what="Each campaign belongs to an app." /> : <List key={app.id} app={app} />}
    </>
  );
}

function Write({ app }: { app: AppResponse }) {
  const { go, link } = useFilters();
  const sender = useMay("sender", app.id);
  useKey("n", sender.may ? () => go("/campaigns/-new") : undefined);
  if (!sender.may) return <p class="fine">Your role does not allow writing campaigns. {sender.why}</p>;
  return (
    <a class="button primary" id="new-campaign" href={link("/campaigns/-new")}>
      New campaign <kbd>n</kbd>
    </a>
  );
}

function List({ app }: { app: AppResponse }) {
  const { filters, change, link } = useFilters();
  const { state, after, quarter } = filters;
  const page = useResource(
    `campaigns ${app.id} ${[state, after].join(" ")}`,
    (stop) => loadCampaigns(app.id, filters, stop),
    { on: MOVES, everyS: 10 },
  );
  const narrow = (filter: Filters) => change({ ...filter, after: undefined });
  return (
    <>
      <Caused app={app} />
      <div class="filters" role="group" aria-label="Filters">
        <Select
          label="State"
          value={state}
          choices={STATES.map((state) => [state, STATE_LOOKS[state].word])}
          choose={(state) => narrow({ state })}
        />
      </div>
      <Shown of={page} what="campaigns" isEmpty={({ campaigns }) => campaigns.length === 0} empty={<None app={app} />}>
        {({ campaigns }) => <CampaignTable campaigns={campaigns} />}
      </Shown>
      <Paging
        after={after}
        sides={page.known.value?.value}
        to={(after) => link("/campaigns", { state, after, quarter })}
      />
    </>
  );
}

/** Empty state: no match, or no campaigns with an introduction. */
function None({ app }: { app: AppResponse }) {
  const { filters, link } = useFilters();
  const sender = useMay("sender", app.id);
  if (filters.state || filters.after) {
    return (
      <p>
        No {filters.after ? "older " : ""}campaign matches. <a href={link("/campaigns")}>Show all</a>
      </p>
    );
  }
  return (
    <>
      <p>There is no campaign yet. A campaign has:</p>
      <ul class="bullets">
        <li>a schedule: once, recurring, at the same local time for each recipient, or because of events;</li>
        <li>a send rate, to limit the visitors of your site;</li>
        <li>an A/B test of several variants on a part of the audience;</li>
        <li>a holdout that gets nothing, to measure the effect.</li>
      </ul>
      {sender.may && (
        <p>
          <a href={link("/campaigns/-new")}>Create the first campaign</a>. It is a draft until you start it.
        </p>
      )}
      <p>Or create it from a file:</p>
      <pre>
        <code>{`bellwire campaign create spring.json --app ${app.slug}`}</code>
      </pre>
    </>
  );
}

function CampaignTable({ campaigns }: { campaigns: Campaign[] }) {
  const { link } = useFilters();
  return (
    <Table
      caption="Campaigns"
      rows={campaigns}
      id={({ id }) => id}
      look={() => "stacked"}
      columns={[
        {
          head: "Campaign",
          cell: (campaign) => (
            <>
              <a href={link(`/campaigns/${campaign.slug}`)}>{campaign.name}</a>
              <br />
              <span class="fine">{campaign.slug}</span>
              <div class="if-narrow fine">
                <Next campaign={campaign} isBrief />
              </div>
            </>
          ),
        },
        { head: "State", cell: ({ state }) => <Badge tone={STATE_LOOKS[state].tone}>{STATE_LOOKS[state].word}</Badge> },
        { head: "Next", isExtra: true, cell: (campaign) => <Next campaign={campaign} /> },
        {
          head: "Deliveries",
          cell: (campaign) =>
            campaign.standing ? <Progress campaign={campaign} of={campaign.standing} /> : <span class="soft">–</span>,
        },
        { head: "Runs", isNumber: true, isExtra: true, cell: ({ runs }) => <Count n={runs} /> },
        { head: "Tier", isExtra: true, cell: ({ tier }) => TIER_WORDS[tier] },
      ]}
    />
  );
}

/** Interval of reloads while a campaign is sent. */
const SOON_MS = 60_000;

function Next({ campaign, isBrief = false }: { campaign: Campaign; isBrief?: boolean }) {
  const { state, next_at, changed_at } = campaign;
  const isSoon = !next_at || Date.parse(next_at) - clock.shown.value.getTime() < SOON_MS;
  if (waitsForEvents(campaign)) return <span class="soft keep">by events</span>;
  if (state === "sending" && isSoon) return <span class="soft">sending</span>;
  if (isStarting(campaign, clock.shown.value)) return <span class="soft keep">in a moment</span>;
  if (next_at && (state === "scheduled" || state === "sending")) {
    return isBrief ? (
      <>
        next <Time at={next_at} />
      </>
    ) : (
      <>
        <Time at={next_at} absolute />
        <br />
        <span class="fine keep">
          <Time at={next_at} />
        </span>
      </>
    );
  }
  if (state === "paused") return <span class="soft keep">when resumed</span>;
  if (state === "draft") return <span class="soft keep">when started</span>;
  if (state === "scheduled") return <span class="soft keep">in a moment</span>;
  return (
    <span class="fine keep">
      ended <Time at={changed_at} />
    </span>
  );
}

function Progress({ campaign, of }: { campaign: Campaign; of: CampaignStanding }) {
  const it = standing(campaign, of);
  return (
    <div class="going in-list">
      <PartsBar parts={parts(it)} slim />
      <span class="fine">{brief(it)}</span>
    </div>
  );
}
