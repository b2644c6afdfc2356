//! JSON form of a campaign: its state and progress. Unknown values are null, and each share states its denominator.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;

use super::super::http::problem::Problem;
use crate::api::messages::counts::WithdrawalCounts;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::CampaignId;
use bellwire_core::lane::Gateway;
use bellwire_rules::campaign::plan::{Plan, WHOLE};
use bellwire_rules::campaign::schedule::When;
use bellwire_rules::campaign::state::CampaignState;
use bellwire_rules::campaign::winner::VariantCount;
use bellwire_store::campaigns::CampaignRow;
use bellwire_store::campaigns::progress::{
    self, CampaignHold, CampaignReach, EndedRow, ListedProgress, Outcomes, Reports, RunRow,
};
use bellwire_store::keys::apps::App;
use bellwire_store::queue::withdrawals;
use bellwire_store::triggers::counts::{self, EntryCounts};

/// Campaign of an app.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Campaign)]
pub(crate) struct CampaignResponse {
    /// Id of the campaign.
    id: CampaignId,
    /// Name of the campaign in URLs.
    slug: String,
    /// Display name of the campaign.
    name: String,
    /// Tier of its messages.
    tier: Tier,
    /// State of the campaign.
    state: CampaignState,
    /// Time of the next automatic step. Null: none is planned.
    next_at: Option<DateTime<Utc>>,
    /// Number of runs that have begun. Above 1 only for recurring campaigns.
    runs: i32,
    /// Time of the creation.
    created_at: DateTime<Utc>,
    /// Time of the last change of the plan or the state.
    changed_at: DateTime<Utc>,
    /// Time of the start. Null: a draft.
    started_at: Option<DateTime<Utc>>,
    /// Progress. Not in lists, and not in responses to orders to a campaign that events trigger.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<CampaignProgress>,
    /// Progress in lists. Null for campaigns without deliveries.
    #[serde(skip_serializing_if = "Option::is_none")]
    standing: Option<CampaignStanding>,
    /// Links to related resources.
    links: CampaignLinks,
}

/// Links to related resources.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CampaignLinks {
    /// Path of the campaign.
    #[serde(rename = "self")]
    this: String,
    /// Path of the plan as written.
    plan: String,
    /// Path of the results of each run.
    runs: String,
    /// Path of its results by language.
    locales: String,
    /// Path of its receipts by push service.
    gateways: String,
    /// `POST` here to start it.
    start: String,
    /// `POST` here to pause it.
    pause: String,
    /// `POST` here to resume it.
    resume: String,
    /// `POST` here to cancel it.
    cancel: String,
    /// `POST` here to withdraw it.
    withdraw: String,
}

/// Progress of a campaign over all runs.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct CampaignProgress {
    /// Messages created so far.
    messages: i64,
    /// Messages not created yet, of runs that have begun.
    messages_to_make: i64,
    /// Estimated number of deliveries of the messages, before filters.
    audience_estimate: i64,
    /// Whether fan-out of all created messages is complete.
    expanded: bool,
    /// Results of all deliveries, summed over all runs. `runs` has the results of each run.
    total: CampaignCounts,
    /// Deliveries that ended per second, averaged over the last one or two minutes, or since the message began if that is
    /// shorter. Null if none ended, or if the messages are too small for charts.
    rate_per_second: Option<f64>,
    /// Expected time of the last ending at this rate. Null if unknown, while the campaign is paused, and while `held` is not
    /// empty.
    eta: Option<DateTime<Utc>>,
    /// Push services with held deliveries, the longest hold first. The campaign cannot end before these holds do.
    held: Vec<CampaignHold>,
    /// Results by variant, in the order of the plan, summed over all runs.
    pub(super) variants: Vec<CampaignVariantResponse>,
    /// Results by push service, summed over all runs.
    gateways: Vec<CampaignGatewayHealth>,
    /// Share of the audience that gets nothing.
    holdout: f64,
    /// Last 50 runs, the latest first. `links.runs` lists all runs with their figures.
    runs: Vec<CampaignRunResponse>,
    /// Results of the withdrawal of its messages, summed. Null: none was withdrawn.
    withdrawal: Option<WithdrawalCounts>,
    /// People who entered because of events. Null: a schedule determines its runs.
    trigger: Option<EntryCounts>,
}

/// Progress of a campaign over all runs, in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CampaignStanding {
    /// Messages not created yet, of runs that have begun.
    messages_to_make: i64,
    /// Estimated number of deliveries of the messages, before filters.
    audience_estimate: i64,
    /// Whether fan-out of all created messages is complete.
    expanded: bool,
    /// Results of all deliveries.
    total: CampaignCounts,
}

/// Delivery counts: `targeted = waiting + accepted + gone + expired + dead + cancelled + capped`.
#[derive(Debug, Default, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct CampaignCounts {
    /// Deliveries created so far.
    pub(super) targeted: i64,
    /// Deliveries that have not ended.
    waiting: i64,
    /// Deliveries accepted by a push service. That does not prove that the notification was displayed.
    pub(super) accepted: i64,
    /// Deliveries whose subscription no longer exists.
    gone: i64,
    /// Deliveries whose time to live ended first.
    expired: i64,
    /// Deliveries that failed permanently.
    dead: i64,
    /// Deliveries cancelled, or ended because the subscriber unsubscribed.
    cancelled: i64,
    /// Deliveries suppressed by a frequency cap.
    capped: i64,
    /// Recipients excluded by a sunset rule. They are not part of `targeted`.
    sunset: i64,
}

/// A variant and its results.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CampaignVariantResponse {
    /// Name of the variant.
    name: String,
    /// Weight of the variant relative to the others.
    weight: u16,
    /// Results of its deliveries.
    counts: CampaignCounts,
    /// Receipts. Null: its pushes request no receipts, so they are unknown.
    reports: Option<CampaignReports>,
}

/// Receipts of accepted deliveries. All counts are lower bounds, because receipts can get lost.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CampaignReports {
    /// Accepted deliveries that can have receipts. Excluded are push services whose browsers display pushes without running the
    /// service worker.
    may_report: i64,
    /// Deliveries with at least one receipt.
    acknowledged: i64,
    /// Number of displays.
    displayed: i64,
    /// Number of clicks.
    clicked: i64,
    /// Number of closes.
    closed: i64,
    /// `clicked` divided by `accepted`. Null: none was accepted.
    click_rate: Option<f64>,
    /// Lower bound of the 95 % confidence interval of the click rate. Null: none was accepted.
    click_rate_from: Option<f64>,
    /// Upper bound of the 95 % confidence interval of the click rate. Null: none was accepted.
    click_rate_to: Option<f64>,
}

/// A push service and the results of deliveries through it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CampaignGatewayHealth {
    /// Name of the push service.
    gateway: Gateway,
    /// Results of its deliveries.
    counts: CampaignCounts,
    /// Whether browsers of this push service send receipts. If not, displays and clicks are unknown.
    reports: bool,
}

/// Run of a campaign.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CampaignRunResponse {
    /// Number of the run, from 1.
    run: i32,
    /// Scheduled time of the run.
    at: DateTime<Utc>,
    /// Time at which the winner of the A/B test is chosen. Null: no test, or already chosen.
    decide_at: Option<DateTime<Utc>>,
    /// Name of the winning variant. Null: no winner.
    winner: Option<String>,
    /// Probability, when the winner was chosen, that the best variant is better than every other. Null: not chosen.
    confidence: Option<f64>,
}

impl CampaignResponse {
    /// Converts a row, without progress.
    pub(super) fn new(app: &App, row: &CampaignRow) -> Self {
        let this = format!("/v1/apps/{}/campaigns/{}", app.slug, row.id);
        let to = |what: &str| format!("{this}/{what}");
        Self {
            id: row.id,
            slug: row.slug.clone(),
            name: row.name.clone(),
            tier: Tier::from_code(row.tier).unwrap_or(Tier::Promotional),
            state: row.state,
            next_at: row.next_at,
            runs: row.runs,
            created_at: row.created_at,
            changed_at: row.changed_at,
            started_at: row.started_at,
            progress: None,
            standing: None,
            links: CampaignLinks {
                plan: to("plan"),
                runs: to("runs"),
                locales: to("locales"),
                gateways: to("gateways"),
                start: to("start"),
                pause: to("pause"),
                resume: to("resume"),
                cancel: to("cancel"),
                withdraw: to("withdraw"),
                this,
            },
        }
    }

    /// Adds the progress.
    pub(super) fn with(self, progress: CampaignProgress) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// Adds the progress as lists show it.
    pub(super) fn standing(self, standing: Option<CampaignStanding>) -> Self {
        Self { standing, ..self }
    }
}

impl From<ListedProgress> for CampaignStanding {
    fn from(it: ListedProgress) -> Self {
        let ListedProgress { campaign: _, estimate, expanded, to_make, targeted, .. } = it;
        let ListedProgress { accepted, gone, expired, dead, cancelled, capped, sunset, .. } = it;
        let waiting = targeted - (accepted + gone + expired + dead + cancelled + capped);
        Self {
            messages_to_make: to_make,
            audience_estimate: estimate,
            expanded: expanded && to_make == 0,
            total: CampaignCounts { targeted, waiting, accepted, gone, expired, dead, cancelled, capped, sunset },
        }
    }
}

/// Returns the progress of those campaigns that have begun.
pub(super) async fn standings(
    pool: &PgPool, rows: &[CampaignRow],
) -> Result<HashMap<CampaignId, CampaignStanding>, Problem> {
    let begun: Vec<CampaignId> = rows.iter().filter(|row| row.runs > 0).map(|row| row.id).collect();
    let standings = if begun.is_empty() { Vec::new() } else { progress::standings(pool, &begun).await? };
    Ok(standings.into_iter().map(|it| (it.campaign, it.into())).collect())
}

impl CampaignCounts {
    /// Adds outcomes of deliveries to these counts.
    pub(super) fn add(&mut self, it: &Outcomes) {
        let ended = it.accepted + it.gone + it.expired + it.dead + it.cancelled + it.capped;
        self.targeted += it.targeted;
        self.waiting += it.targeted - ended;
        self.accepted += it.accepted;
        self.gone += it.gone;
        self.expired += it.expired;
        self.dead += it.dead;
        self.cancelled += it.cancelled;
        self.capped += it.capped;
        self.sunset += it.sunset;
    }
}

/// Whether browsers of a push service send receipts. Safari displays declarative pushes without running the service worker, so
/// it sends none.
pub(super) fn reports_from(gateway: Gateway) -> bool {
    gateway != Gateway::Apple
}

pub(super) async fn progress(
    pool: &PgPool, row: &CampaignRow, plan: &Plan, now: Timestamp,
) -> Result<CampaignProgress, Problem> {
    let id = row.id;
    let minute = now.duration_trunc(TimeDelta::minutes(1)).unwrap_or(now) - TimeDelta::minutes(1);
    let outcomes = progress::outcomes(pool, id).await?;
    let reports = progress::reports(pool, id).await?;
    let reach = progress::reach(pool, id).await?;
    let ended = progress::ended_since(pool, id, minute).await?;
    let held = progress::held(pool, id, row.tier, now).await?;
    let runs = progress::runs(pool, id).await?;
    let speed = Speed { rate: rate(&ended, minute, now), is_paused: row.state == CampaignState::Paused, held };
    let withdrawal = withdrawals::of_campaign(pool, row.id).await?.map(WithdrawalCounts::from);
    let trigger = match plan.when {
        When::Trigger(_) => Some(counts::of_campaign(pool, id).await?),
        _ => None,
    };
    Ok(CampaignProgress { withdrawal, trigger, ..summary(plan, &outcomes, &reports, reach, speed, runs, now) })
}

/// Delivery rate of a campaign, and the holds that stop it.
struct Speed {
    /// Deliveries that end per second.
    rate: Option<f64>,
    is_paused: bool,
    held: Vec<CampaignHold>,
}

/// Returns the deliveries that end per second. Counting starts at `minute`, or at the start of a younger message.
fn rate(ended: &[EndedRow], minute: Timestamp, now: Timestamp) -> Option<f64> {
    let per_second = |it: &EndedRow| {
        let lasted = now - it.accepted_at.max(minute);
        it.n as f64 / (lasted.num_milliseconds() as f64 / 1e3).max(1.0)
    };
    Some(ended.iter().map(per_second).sum()).filter(|rate| *rate > 0.0)
}

fn summary(
    plan: &Plan, outcomes: &[Outcomes], reports: &[Reports], reach: CampaignReach,
    Speed { rate, is_paused, held }: Speed, runs: Vec<RunRow>, now: Timestamp,
) -> CampaignProgress {
    let mut total = CampaignCounts::default();
    let mut gateways = BTreeMap::<Gateway, CampaignCounts>::new();
    for it in outcomes {
        total.add(it);
        gateways.entry(it.gateway).or_default().add(it);
    }
    let run = |row: RunRow| CampaignRunResponse {
        run: row.run,
        at: row.at,
        decide_at: row.decide_at,
        winner: row.winner.and_then(|variant| variant_name(plan, variant)),
        confidence: row.confidence,
    };
    CampaignProgress {
        messages: reach.messages,
        messages_to_make: reach.to_make,
        audience_estimate: reach.estimate,
        expanded: reach.expanded && reach.to_make == 0,
        total,
        rate_per_second: rate.map(|rate| (rate * 10.0).round() / 10.0),
        eta: eta(&total, reach, rate, now).filter(|_| !is_paused && held.is_empty()),
        held,
        variants: (0..plan.variants.len()).map(|place| variant(plan, place, outcomes, reports)).collect(),
        gateways: gateways
            .into_iter()
            .map(|(gateway, counts)| CampaignGatewayHealth { gateway, counts, reports: reports_from(gateway) })
            .collect(),
        holdout: f64::from(plan.holdout) / f64::from(WHOLE),
        runs: runs.into_iter().map(run).collect(),
        withdrawal: None,
        trigger: None,
    }
}

/// Returns the expected end of the last delivery at the current rate.
fn eta(total: &CampaignCounts, reach: CampaignReach, rate: Option<f64>, now: Timestamp) -> Option<Timestamp> {
    if let Some(last_due_at) = reach.last_due_at.filter(|due_at| *due_at > now) {
        return Some(last_due_at);
    }
    // While recipients are still being found, there are as many to come as were estimated: filters make them fewer.
    let to_find = if reach.expanded { 0 } else { (reach.estimate - total.targeted).max(0) };
    let left = total.waiting + to_find;
    let seconds = (left as f64 / rate?).min(1e9);
    #[expect(clippy::cast_possible_truncation, reason = "bounded")]
    let span = TimeDelta::milliseconds((seconds * 1e3) as i64);
    (left > 0).then(|| now + span)
}

/// Returns the name of a variant. `None`: the plan has none at that index.
pub(super) fn variant_name(plan: &Plan, variant: i16) -> Option<String> {
    Some(plan.variants.get(usize::try_from(variant).ok()?)?.name.clone())
}

/// Returns a variant with its results, from counts of all variants.
pub(super) fn variant(
    plan: &Plan, place: usize, outcomes: &[Outcomes], reported: &[Reports],
) -> CampaignVariantResponse {
    let variant = &plan.variants[place];
    let is_its = |number: i16| usize::try_from(number) == Ok(place);
    let outcomes = || outcomes.iter().filter(|it| is_its(it.variant));
    let mut counts = CampaignCounts::default();
    outcomes().for_each(|it| counts.add(it));
    let reported = reported.iter().filter(|it| is_its(it.variant));
    let reports = variant.body.enveloped.then(|| reports(outcomes(), reported).0);
    CampaignVariantResponse { name: variant.name.clone(), weight: variant.weight, counts, reports }
}

/// Returns the sums of receipts, and the denominator of the click rate.
pub(super) fn reports<'a>(
    outcomes: impl Iterator<Item = &'a Outcomes>, reported: impl Iterator<Item = &'a Reports>,
) -> (CampaignReports, VariantCount) {
    let (mut count, mut may_report) = (VariantCount { accepted: 0, clicked: 0 }, 0);
    for it in outcomes {
        count.accepted += it.accepted;
        may_report += if reports_from(it.gateway) { it.accepted } else { 0 };
    }
    let (mut acknowledged, mut displayed, mut closed) = (0, 0, 0);
    for it in reported {
        acknowledged += it.acknowledged;
        displayed += it.displayed;
        count.clicked += it.clicked;
        closed += it.closed;
    }
    let interval = count.interval();
    let reports = CampaignReports {
        may_report,
        acknowledged,
        displayed,
        clicked: count.clicked,
        closed,
        click_rate: (count.accepted > 0).then(|| count.clicked as f64 / count.accepted as f64),
        click_rate_from: interval.map(|(from, _)| from),
        click_rate_to: interval.map(|(_, to)| to),
    };
    (reports, count)
}
