//! `/v1/apps/{app}/campaigns/{campaign}/runs`: figures of each run of a campaign, compared with the previous run.

use std::collections::BTreeSet;
use std::str::FromStr;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;

use super::super::ApiState;
use super::super::http::auth::{MayRead, Server};
use super::super::http::extract::{PathId, PathParam, Query};
use super::super::http::paging::{Page, Paging};
use super::super::http::problem::Problem;
use super::view::{self, CampaignCounts, CampaignReports, CampaignVariantResponse};
use super::{CampaignRef, find, open};
use bellwire_core::id::CampaignId;
use bellwire_rules::campaign::plan::Plan;
use bellwire_rules::campaign::winner::{VariantCount, is_better};
use bellwire_store::campaigns::progress::{Outcomes, Reports, RunRow};
use bellwire_store::campaigns::runs::{self, RunMessages};
use bellwire_store::keyset::{Keyset, key_of};

#[derive(Debug, Clone, Copy)]
pub(crate) struct RunNumber(i32);

impl FromStr for RunNumber {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().ok().filter(|number| *number > 0).map(Self).ok_or("must be the number of a run, from 1")
    }
}

impl PathParam for RunNumber {
    const NAME: &'static str = "run";
}

/// Figures of one run. When retention has deleted its messages, all figures are 0.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CampaignRunFigures {
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
    /// Messages created and still stored.
    messages: i64,
    /// Messages that are not created yet.
    messages_to_make: i64,
    /// Results of this run's deliveries.
    total: CampaignCounts,
    /// Receipts of this run, over all variants. Null: its pushes request no receipts.
    reports: Option<CampaignReports>,
    /// Results by variant, in the order of the plan.
    variants: Vec<CampaignVariantResponse>,
    /// Comparison with the previous run. Null: this is the first run, or messages of the previous run are no longer stored.
    before: Option<CampaignRunChange>,
}

/// Comparison of a run with the previous one.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CampaignRunChange {
    /// Number of the previous run.
    run: i32,
    /// Difference in targeted deliveries from the previous run. Negative: fewer.
    targeted: i64,
    /// Difference in accepted deliveries from the previous run.
    accepted: i64,
    /// Difference in click rate from the previous run, 0.01 for one percentage point. Null: one of the rates is unknown.
    click_rate: Option<f64>,
    /// Probability that the click rate is truly higher than that of the previous run. Null: one of the rates is unknown.
    higher: Option<f64>,
}

/// Lists the runs of a campaign with their figures, the latest run first.
#[utoipa::path(get, path = "/v1/apps/{app}/campaigns/{campaign}/runs", tag = "Campaigns",
    responses((status = 200, body = Page<CampaignRunFigures>)))]
pub(crate) async fn list_runs(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>, uri: Uri,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let row = find(&state, &server.app, &campaign).await?;
    let plan = open(&state, &row)?.checked;
    let rows = runs::page(&state.pool, row.id, cut.ask()).await?;
    let figures = Figures::of(&state.pool, row.id, &rows).await?;
    Ok(cut.page(rows, |row| key_of(row.run), |row| figures.view(&plan, row)).answer(&uri))
}

/// Returns a run of a campaign with its figures.
#[utoipa::path(get, path = "/v1/apps/{app}/campaigns/{campaign}/runs/{run}", tag = "Campaigns",
    responses((status = 200, body = CampaignRunFigures)))]
pub(crate) async fn show_run(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
    PathId(RunNumber(run)): PathId<RunNumber>,
) -> Result<axum::Json<CampaignRunFigures>, Problem> {
    let row = find(&state, &server.app, &campaign).await?;
    let plan = open(&state, &row)?.checked;
    let rows = runs::page(&state.pool, row.id, Keyset::from_number(run)).await?;
    let found = rows.into_iter().find(|row| row.run == run).ok_or_else(|| Problem::not_found("run"))?;
    let figures = Figures::of(&state.pool, row.id, std::slice::from_ref(&found)).await?;
    Ok(axum::Json(figures.view(&plan, found)))
}

/// Counts of the listed runs and of the run before each.
struct Figures {
    messages: Vec<RunMessages>,
    outcomes: Vec<Outcomes>,
    reports: Vec<Reports>,
}

/// Sums of one run over its variants.
struct Sum {
    total: CampaignCounts,
    /// Receipts of the variants whose pushes request receipts. `None`: no variant does.
    reports: Option<(CampaignReports, VariantCount)>,
}

impl Figures {
    async fn of(pool: &PgPool, id: CampaignId, rows: &[RunRow]) -> Result<Self, Problem> {
        let numbers: BTreeSet<i32> = rows.iter().flat_map(|row| [row.run, row.run - 1]).collect();
        let numbers: Vec<i32> = numbers.into_iter().collect();
        Ok(Self {
            messages: runs::messages(pool, id, &numbers).await?,
            outcomes: runs::outcomes(pool, id, &numbers).await?,
            reports: runs::reports(pool, id, &numbers).await?,
        })
    }

    fn messages_of(&self, run: i32) -> RunMessages {
        let found = self.messages.iter().find(|it| it.run == run);
        found.copied().unwrap_or(RunMessages { run, made: 0, to_make: 0 })
    }

    fn outcomes_of(&self, run: i32) -> Vec<Outcomes> {
        self.outcomes.iter().filter(|it| it.run == run).cloned().collect()
    }

    fn reports_of(&self, run: i32) -> Vec<Reports> {
        self.reports.iter().filter(|it| it.run == run).copied().collect()
    }

    fn sum(&self, plan: &Plan, run: i32) -> Sum {
        let (outcomes, reports) = (self.outcomes_of(run), self.reports_of(run));
        let mut total = CampaignCounts::default();
        outcomes.iter().for_each(|it| total.add(it));
        let tells = |variant: i16| {
            let of = usize::try_from(variant).ok().and_then(|place| plan.variants.get(place));
            of.is_some_and(|variant| variant.body.enveloped)
        };
        let reports = plan.variants.iter().any(|variant| variant.body.enveloped).then(|| {
            view::reports(outcomes.iter().filter(|it| tells(it.variant)), reports.iter().filter(|it| tells(it.variant)))
        });
        Sum { total, reports }
    }

    fn view(&self, plan: &Plan, row: RunRow) -> CampaignRunFigures {
        let RunMessages { made, to_make, .. } = self.messages_of(row.run);
        let (outcomes, reports) = (self.outcomes_of(row.run), self.reports_of(row.run));
        let sum = self.sum(plan, row.run);
        let has_before = self.messages_of(row.run - 1).made > 0 && made > 0;
        let before = has_before.then(|| change(row.run - 1, &sum, &self.sum(plan, row.run - 1)));
        let variants = (0..plan.variants.len()).map(|place| view::variant(plan, place, &outcomes, &reports)).collect();
        CampaignRunFigures {
            run: row.run,
            at: row.at,
            decide_at: row.decide_at,
            winner: row.winner.and_then(|variant| view::variant_name(plan, variant)),
            confidence: row.confidence,
            messages: made,
            messages_to_make: to_make,
            total: sum.total,
            reports: sum.reports.map(|(reports, _)| reports),
            variants,
            before,
        }
    }
}

/// Compares run number `run` with the previous one.
fn change(run: i32, this: &Sum, before: &Sum) -> CampaignRunChange {
    let counts = this.reports.as_ref().zip(before.reports.as_ref()).map(|((_, this), (_, before))| (*this, *before));
    let known = counts.filter(|(this, before)| this.accepted > 0 && before.accepted > 0);
    let rate = |count: VariantCount| count.clicked as f64 / count.accepted as f64;
    CampaignRunChange {
        run,
        targeted: this.total.targeted - before.total.targeted,
        accepted: this.total.accepted - before.total.accepted,
        click_rate: known.map(|(this, before)| rate(this) - rate(before)),
        higher: known.map(|(this, before)| is_better(this, before)),
    }
}
