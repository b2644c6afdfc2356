import { useRoute } from "preact-iso";
import type { AppResponse, Campaign } from "../../api/types";
import { endedOf, firstRun, going, isStarting, parts, receipts, standing, wholeOf } from "../../lib/campaigns";
import { resultRow } from "../../lib/campaign-results";
import { clock } from "../../lib/clock";
import { percent } from "../../lib/format";
import { campaignWithdrawalWords, TIER_WORDS } from "../../lib/messages";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { ChooseApp } from "../../shell/choose-app";
import { useHere, useMay } from "../../shell/context";
import { Card, Head } from "../../ui/card";
import { Export, whole } from "../../ui/export";
import { Time } from "../../ui/numbers";
import { PartsBar, PartsLegend } from "../../ui/parts";
import { Shown } from "../../ui/shown";
import "../messages/messages.css";
import { usePace } from "../messages/pace";
import { Reported } from "../messages/reported";
import { Achieved } from "./achieved";
import { Acts } from "./acts";
import "./campaigns.css";
import { loadCampaign, loadLocales, loadPlan, loadRuns, MOVES } from "./load";
import { PlanCard } from "./plan";
import { TriggerCard } from "./trigger";
import { Gateways, Locales, Runs, Variants } from "./results";

/** One campaign: how it goes, what worked, and what may be done. */
export default function CampaignPage() {
  const { params } = useRoute();
  const { app, apps } = useHere();
  const named = params.campaign ?? "";
  if (!app) {
    return (
      <>
        <Head title="Campaign" lead={named} />
        <ChooseApp apps={apps} what="Each campaign belongs to an app." />
      </>
    );
  }
  return <OfApp key={`${app.id} ${named}`} app={app} named={named} />;
}

function OfApp({ app, named }: { app: AppResponse; named: string }) {
  const { link } = useFilters();
  const campaign = useResource(`campaign ${app.id} ${named}`, (stop) => loadCampaign(app.id, named, stop), {
    on: MOVES,
    everyS: 5,
  });
  // Small campaigns have no chart on the server.
  const perMinute = usePace(campaign, (shown) =>
    shown.state === "sending" && shown.progress ? endedOf(standing(shown, shown.progress)) : undefined,
  );
  return (
    <>
      <p class="back">
        <a href={link("/campaigns")}>Campaigns</a>
      </p>
      <Shown of={campaign} what="this campaign">
        {(shown) => <One app={app} campaign={shown} perMinute={perMinute} refresh={campaign.refresh} />}
      </Shown>
    </>
  );
}

interface Props {
  app: AppResponse;
  campaign: Campaign;
  perMinute: number | undefined;
  refresh: () => unknown;
}

function One({ app, campaign, perMinute, refresh }: Props) {
  const { link } = useFilters();
  const { name, slug, tier, created_at, started_at, runs, progress } = campaign;
  const sender = useMay("sender", app.id);
  const plan = useResource(
    `plan ${campaign.id} ${campaign.changed_at} ${sender.may}`,
    async (stop) => (sender.may ? loadPlan(app.id, campaign.id, stop) : undefined),
    { everyS: 3_600 },
  );
  const now = clock.shown.value;
  const written = plan.known.value?.value;
  const planned = written && isStarting(campaign, now) ? firstRun(written, now) : undefined;
  const sentence = going(campaign, perMinute, now, zone.value, planned);
  return (
    <>
      <Head
        title={name}
        lead={
          <>
            <code>{slug}</code> · {TIER_WORDS[tier]} ·{" "}
            {started_at ? (
              <>
                started <Time at={started_at} />
              </>
            ) : (
              <>
                created <Time at={created_at} />
              </>
            )}
          </>
        }
      />
      <p class="sentence" id="going" data-tone={sentence.tone} aria-live="polite">
        {sentence.path ? <a href={link(sentence.path)}>{sentence.words}</a> : sentence.words}
      </p>
      {campaign.progress?.withdrawal && (
        <p id="withdrawal" class="sentence">
          {campaignWithdrawalWords(campaign.progress.withdrawal)}
        </p>
      )}
      <Acts app={app} campaign={campaign} refresh={refresh} />
      {progress?.trigger && started_at && <TriggerCard trigger={progress.trigger} progress={progress} />}
      {started_at && <Achieved app={app} campaign={campaign} />}
      {progress && (runs > 0 || progress.messages > 0) && <Results app={app} campaign={campaign} progress={progress} />}
      <PlanCard app={app} campaign={campaign} plan={plan} />
    </>
  );
}

function Results({
  app,
  campaign,
  progress,
}: Pick<Props, "app" | "campaign"> & { progress: NonNullable<Campaign["progress"]> }) {
  const it = standing(campaign, progress);
  const all = parts(it);
  return (
    <div class="grid halves">
      <Card
        title={campaign.runs > 1 ? "Deliveries of all runs" : "Deliveries"}
        class="wide"
        aside={
          <div class="row">
            {progress.holdout > 0 && <span class="fine">Holdout: {percent(progress.holdout)} of the audience</span>}
            <Export name={`${campaign.slug}-results`} page={whole([resultRow(campaign, progress)])} />
          </div>
        }
      >
        {wholeOf(it) === 0 ? (
          <p class="soft">Nothing was sent yet.</p>
        ) : (
          <>
            <PartsBar parts={all} />
            <PartsLegend parts={all} isAbout={it.unfound > 0} />
          </>
        )}
      </Card>
      {progress.variants.length > 1 && (
        <Card
          title="A/B test"
          class="wide"
          aside={<Export name={`${campaign.slug}-variants`} page={whole(progress.variants)} />}
        >
          <Variants progress={progress} />
        </Card>
      )}
      <Card title="Reactions">
        <Reported funnel={receipts(progress)} why="unknown: Safari does not report" />
      </Card>
      <Card
        title="By push service"
        aside={<Export name={`${campaign.slug}-push-services`} page={whole(progress.gateways)} />}
      >
        <Gateways progress={progress} />
      </Card>
      {!progress.trigger && (
        <Card
          title="Runs"
          class="wide"
          aside={
            <Export
              name={`${campaign.slug}-runs`}
              page={async (_, __, stop) => ({ rows: await loadRuns(app.id, campaign.id, stop), next: undefined })}
            />
          }
        >
          <Runs app={app} campaign={campaign} />
        </Card>
      )}
      <Card
        title="By language"
        aside={
          <Export
            name={`${campaign.slug}-languages`}
            page={async (_, __, stop) => ({ rows: await loadLocales(app.id, campaign.id, stop), next: undefined })}
          />
        }
      >
        <Locales app={app} campaign={campaign} />
      </Card>
    </div>
  );
}
