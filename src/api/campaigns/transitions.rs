//! `/v1/apps/{app}/campaigns/{campaign}/start`, `pause`, `resume`, `cancel` and `withdraw`.

use axum::extract::State;
use serde_json::json;
use sqlx::{Postgres, Transaction};
use tracing::Instrument as _;

use super::super::http::auth::{MaySend, MaySteerMessages, Server};
use super::super::http::extract::PathId;
use super::super::http::problem::{Problem, ProblemCode};
use super::super::{ApiState, Work};
use super::view::CampaignResponse;
use super::{CampaignRef, find, find_any, open, trigger, view};
use crate::api::messages::send_at::LATE_MAX;
use crate::api::messages::withdraw::{self, Withdrawing};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::CampaignId;
use bellwire_rules::campaign::plan::Plan;
use bellwire_rules::campaign::schedule::When;
use bellwire_rules::campaign::state::{CampaignOrder, CampaignState, OrderResult};
use bellwire_store::campaigns::{CampaignRow, transitions};
use bellwire_store::keys::apps::App;
use bellwire_store::keys::audit::{AuditAction, AuditEntry};
use bellwire_store::queue::withdrawals;

/// Starts a campaign: its messages are sent when they are due. 409 if the scheduled time has passed.
#[utoipa::path(post, path = "/v1/apps/{app}/campaigns/{campaign}/start", tag = "Campaigns",
    responses((status = 200, body = CampaignResponse)))]
pub(crate) async fn start(
    server: Server<MaySend>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
) -> Result<axum::Json<CampaignResponse>, Problem> {
    let row = find(&state, &server.app, &campaign).await?;
    let (plan, now) = (open(&state, &row)?.checked, state.clock.now());
    if row.state == CampaignState::Draft && is_past(&plan, now) {
        return Err(Problem::new(
            ProblemCode::CampaignPast,
            "The start time of this campaign has passed. Change its plan.",
        ));
    }
    if row.state == CampaignState::Draft {
        refuse_stale_follow_up(&state, &server.app, &plan, &row).await?;
    }
    steer(&server, &state, row, CampaignOrder::Start).await
}

/// Refuses a follow-up whose plan depends on what the followed campaign was when the plan was saved.
async fn refuse_stale_follow_up(state: &ApiState, app: &App, plan: &Plan, row: &CampaignRow) -> Result<(), Problem> {
    let Some(follow) = open(state, row)?.given.follows else { return Ok(()) };
    let followed = find_any(state, app, &CampaignRef::of(&follow.campaign)).await?;
    let Some(followed) = followed else {
        return Err(Problem::new(ProblemCode::CampaignState, "The campaign that this one follows was deleted."));
    };
    let theirs = open(state, &followed)?.checked;
    let detail = match (trigger(plan), trigger(&theirs)) {
        (None, None) => return Ok(()),
        (Some(_), Some(_)) if followed.state == CampaignState::Draft => {
            "Start the campaign that this one follows first."
        }
        (Some(own), Some(theirs)) if own.unless == theirs.unless => return Ok(()),
        _ => "The campaign that this one follows has changed since. Save the plan of this campaign again.",
    };
    Err(Problem::new(ProblemCode::CampaignState, detail))
}

pub(super) fn is_past(plan: &Plan, now: Timestamp) -> bool {
    matches!(plan.when, When::At(at) if at < now - LATE_MAX) || plan.has_expired(now)
}

/// Pauses a campaign: no push starts later than a second after the response. The times to live of its messages keep running.
#[utoipa::path(post, path = "/v1/apps/{app}/campaigns/{campaign}/pause", tag = "Campaigns",
    responses((status = 200, body = CampaignResponse)))]
pub(crate) async fn pause(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
) -> Result<axum::Json<CampaignResponse>, Problem> {
    let row = find(&state, &server.app, &campaign).await?;
    steer(&server, &state, row, CampaignOrder::Pause).await
}

/// Resumes a paused campaign. Messages that became due during the pause are sent now; of a recurring campaign, only the latest
/// run. A/B tests are extended by the length of the pause. An expired campaign cannot be resumed.
#[utoipa::path(post, path = "/v1/apps/{app}/campaigns/{campaign}/resume", tag = "Campaigns",
    responses((status = 200, body = CampaignResponse)))]
pub(crate) async fn resume(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
) -> Result<axum::Json<CampaignResponse>, Problem> {
    let row = find(&state, &server.app, &campaign).await?;
    if row.state == CampaignState::Paused && open(&state, &row)?.checked.has_expired(state.clock.now()) {
        return Err(Problem::new(ProblemCode::CampaignPast, "This campaign has expired. It can only be cancelled."));
    }
    steer(&server, &state, row, CampaignOrder::Resume).await
}

/// Cancels a campaign permanently: no push starts later than a second after the response.
#[utoipa::path(post, path = "/v1/apps/{app}/campaigns/{campaign}/cancel", tag = "Campaigns",
    responses((status = 200, body = CampaignResponse)))]
pub(crate) async fn cancel(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
) -> Result<axum::Json<CampaignResponse>, Problem> {
    let row = find(&state, &server.app, &campaign).await?;
    steer(&server, &state, row, CampaignOrder::Cancel).await
}

/// Withdraws a campaign: cancels it and withdraws its messages, as `POST …/messages/{message}/withdraw` does for one. A repeat
/// changes nothing. 409 for a draft.
#[utoipa::path(post, path = "/v1/apps/{app}/campaigns/{campaign}/withdraw", tag = "Campaigns",
    responses((status = 200, body = CampaignResponse)))]
pub(crate) async fn withdraw(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
) -> Result<axum::Json<CampaignResponse>, Problem> {
    let row = find(&state, &server.app, &campaign).await?;
    if row.state == CampaignState::Draft {
        return Err(Problem::new(ProblemCode::CampaignState, "This campaign is a draft. Delete it instead."));
    }
    let (app, now) = (&server.app, state.clock.now());
    let mut tx = state.begin().await?;
    let turned = transitions::turn(&mut tx, app.id, row.id, CampaignOrder::Cancel, now).await?;
    let (n, replays) = withdrawals::request_of_campaign(&mut tx, row.id, server.caller.counted_as(), now).await?;
    let changes = n > 0 || !replays.is_empty() || matches!(turned, Some(OrderResult::To(_)));
    let entry = server.did(AuditAction::CampaignWithdrawn, row.id).with(json!({"slug": row.slug, "messages": n}));
    let carried_out =
        tokio::spawn(carry_out(state.clone(), row.id, tx, changes.then_some(entry), now).in_current_span());
    carried_out.await.map_err(|_| Problem::internal())??;
    for replay in replays {
        withdraw::go_on(&state, replay).await;
    }
    tokio::spawn(withdraw::finish(state.clone(), Withdrawing::Campaign(row.id)));
    let row = find(&state, app, &CampaignRef::Id(row.id)).await?;
    view_steered(&state, app, &row).await
}

/// Returns a campaign after an order. To sum the messages of a trigger, one for each person, may take seconds: that is left out.
async fn view_steered(state: &ApiState, app: &App, row: &CampaignRow) -> Result<axum::Json<CampaignResponse>, Problem> {
    match open(state, row)?.checked.when {
        When::Trigger(_) => Ok(axum::Json(CampaignResponse::new(app, row))),
        _ => view(state, app, row).await,
    }
}

async fn steer<S>(
    server: &Server<S>, state: &ApiState, row: CampaignRow, order: CampaignOrder,
) -> Result<axum::Json<CampaignResponse>, Problem> {
    let action = match order {
        CampaignOrder::Start => AuditAction::CampaignStarted,
        CampaignOrder::Pause => AuditAction::CampaignPaused,
        CampaignOrder::Resume => AuditAction::CampaignResumed,
        CampaignOrder::Cancel => AuditAction::CampaignCancelled,
    };
    let (app, now) = (&server.app, state.clock.now());
    let mut tx = state.begin().await?;
    let entry = match transitions::turn(&mut tx, app.id, row.id, order, now).await? {
        None => return Err(Problem::not_found("campaign")),
        Some(OrderResult::Never) => {
            let detail = format!("This campaign is {}.", row.state.name());
            return Err(Problem::new(ProblemCode::CampaignState, detail));
        }
        Some(OrderResult::Already) => None,
        Some(OrderResult::To(_)) => Some(server.did(action, row.id).with(json!({"slug": row.slug}))),
    };
    // A task of its own: if the client hangs up, the campaign's messages follow all the same.
    let carried_out = tokio::spawn(carry_out(state.clone(), row.id, tx, entry, now).in_current_span());
    carried_out.await.map_err(|_| Problem::internal())??;
    let mut turned = find(state, app, &CampaignRef::Id(row.id)).await?;
    if turned.state == CampaignState::Scheduled {
        let missed_since = (order == CampaignOrder::Resume).then_some(row.changed_at);
        turned.next_at = next_run(&open(state, &turned)?.checked, missed_since, now).or(turned.next_at);
    }
    view_steered(state, app, &turned).await
}

/// Returns the time of the next run. `None`: now, or not determined by the plan. The scheduler stores that time shortly after a
/// transition. `missed_since`: beginning of the pause that ends.
fn next_run(plan: &Plan, missed_since: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    match &plan.when {
        When::At(at) => Some(*at).filter(|at| *at > now),
        When::Cron(recurrence) => match missed_since.and_then(|since| recurrence.last(since, now)) {
            Some(_) => None,
            None => recurrence.next(now),
        },
        When::Now | When::Recipients { .. } | When::After(_) | When::Trigger(_) => None,
    }
}

/// Commits a transition with its audit entry, and changes the campaign's messages. `None`: a previous call committed the
/// transition, but may not have changed all messages.
async fn carry_out(
    state: ApiState, id: CampaignId, mut tx: Transaction<'static, Postgres>, entry: Option<AuditEntry>, now: Timestamp,
) -> sqlx::Result<()> {
    match entry {
        Some(entry) => {
            entry.record(&mut tx, 1, now).await?;
            tx.commit().await?;
        }
        // Ended here: the scheduler skips locked campaigns.
        None => tx.rollback().await?,
    }
    for stop in transitions::follow_through(&state.pool, id, now).await? {
        (state.engine.tell)(Work::Stop(stop));
    }
    Ok(())
}
