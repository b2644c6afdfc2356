//! Dry run of a campaign: its effect, without sending.

use axum::extract::State;
use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use serde::Serialize;
use sqlx::PgConnection;
use utoipa::ToSchema;

use super::transitions::is_past;
use super::trigger_trial::{self, TriggerTrial};
use super::{CampaignRef, find, open, trigger};
use crate::api::ApiState;
use crate::api::http::auth::{MaySend, Server};
use crate::api::http::extract::PathId;
use crate::api::http::problem::{FieldError, Problem};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, CampaignId};
use bellwire_rules::campaign::parts::{self, CampaignPart};
use bellwire_rules::campaign::plan::{CampaignAudience, Plan, WHOLE};
use bellwire_rules::campaign::schedule::When;
use bellwire_store::queue::calendars;
use bellwire_store::queue::sending::{self, Audience as SentTo};
use bellwire_vault::Vault;

/// Maximum messages in the response. Each estimate reads a sample of the audience.
const MESSAGES_MAX: usize = 100;
const LATER_RUNS: usize = 5;

/// Result of a dry run, as if the campaign were started now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CampaignDryRun {
    /// Start of the next run. Null: the campaign has no further run, or follows another campaign that has not run. Messages are
    /// then shown as of now.
    begins_at: Option<DateTime<Utc>>,
    /// Starts of the five runs after that, for a recurring campaign.
    later_runs: Vec<DateTime<Utc>>,
    /// First 100 messages of the run, in order of time.
    messages: Vec<CampaignDryRunMessage>,
    /// Number of further messages.
    more_messages: usize,
    /// Effect on past events, for a campaign that events trigger. Null: a schedule determines its runs, or it is a follow-up.
    trigger: Option<TriggerTrial>,
    /// Faults that prevent the start or omit messages, by member of the plan.
    refused: Vec<FieldError>,
}

/// A message that the campaign would create.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CampaignDryRunMessage {
    /// Time at which the message is due.
    due_at: DateTime<Utc>,
    /// Name of the variant. Null: the winner of the A/B test.
    variant: Option<String>,
    /// Share of the audience that may get the message, 0 to 1.
    share: f64,
    /// Hour after the run's start, 0 to 23, for a campaign at each recipient's own hour. Null: other campaigns.
    own_hour: Option<u8>,
    /// Number of deliveries, counted now or estimated from a sample.
    audience_estimate: i64,
    /// Margin of error of the estimate, plus or minus, at 95 % confidence. 0: counted exactly.
    audience_margin: i64,
}

/// Returns the schedule and the reach of each message as if the campaign were started now. Nothing is sent. If too many
/// searches run, the response is 503 (`searches_busy`).
#[utoipa::path(post, path = "/v1/apps/{app}/campaigns/{campaign}/dry-run", tag = "Campaigns",
    responses((status = 200, body = CampaignDryRun)))]
pub(crate) async fn dry_run(
    server: Server<MaySend>, State(state): State<ApiState>, PathId(campaign): PathId<CampaignRef>,
) -> Result<axum::Json<CampaignDryRun>, Problem> {
    let row = find(&state, &server.app, &campaign).await?;
    let (plan, now) = (open(&state, &row)?.checked, state.clock.now());
    let _place = state.place_to_search(server.app.id).await?;
    let (begins_at, later_runs) = runs(&plan, now);
    let home = calendars::read(&state.pool, server.app.id).await?.zone;
    let all = messages_of(&plan, begins_at.unwrap_or(now), home);
    let more_messages = all.len().saturating_sub(MESSAGES_MAX);
    let mut refused = Vec::new();
    if is_past(&plan, now) {
        let pointer = if plan.has_expired(now) { "/expires_at" } else { "/schedule/at" };
        refused.push(fault(pointer, "has passed"));
    }
    let mut conn = state.pool.acquire().await?;
    let (mut messages, mut lacks_topic) = (Vec::with_capacity(all.len().min(MESSAGES_MAX)), false);
    for (part, is_of_winner) in all.iter().take(MESSAGES_MAX) {
        match estimate(&mut conn, (&state.vault, server.app.id), row.id, &plan, part, now).await? {
            Some((estimate, margin)) => messages.push(shown(&plan, part, *is_of_winner, estimate, margin)),
            None => lacks_topic = true,
        }
    }
    if lacks_topic {
        refused.push(fault("/message/to/topic", "names a topic that no longer exists in this app"));
    }
    let trigger = match trigger(&plan) {
        Some(trigger) => trigger_trial::try_out(&mut conn, &state.vault, server.app.id, trigger, now).await?,
        None => None,
    };
    Ok(axum::Json(CampaignDryRun { trigger, begins_at, later_runs, messages, more_messages, refused }))
}

fn fault(pointer: &str, detail: &str) -> FieldError {
    FieldError { pointer: Some(pointer.to_owned()), parameter: None, header: None, detail: detail.to_owned() }
}

/// Returns the start of the next run, and the starts of the following ones.
fn runs(plan: &Plan, now: Timestamp) -> (Option<Timestamp>, Vec<Timestamp>) {
    let is_in_time = |at: &Timestamp| plan.expires_at.is_none_or(|end| *at < end);
    match &plan.when {
        When::Now | When::Recipients { .. } => (Some(now).filter(is_in_time), Vec::new()),
        When::At(at) => (Some((*at).max(now)).filter(is_in_time), Vec::new()),
        When::After(_) | When::Trigger(_) => (None, Vec::new()),
        When::Cron(recurrence) => {
            let mut runs =
                std::iter::successors(recurrence.next(now), |at| recurrence.next(*at)).take_while(is_in_time);
            (runs.next(), runs.take(LATER_RUNS).collect())
        }
    }
}

/// Returns the messages of a run that begins at this time, in order of time. The boolean marks messages of the winning variant.
fn messages_of(plan: &Plan, begins_at: Timestamp, home: Tz) -> Vec<(CampaignPart, bool)> {
    let mut all: Vec<_> = parts::of_run(plan, begins_at, home).into_iter().map(|part| (part, false)).collect();
    if let Some(test) = plan.test.filter(|test| u32::from(plan.holdout) + u32::from(test.share) < u32::from(WHOLE)) {
        let decided_at = begins_at + TimeDelta::seconds(test.after_s);
        if plan.expires_at.is_none_or(|end| decided_at < end) {
            all.push((parts::of_rest(plan, test, 0, decided_at), true));
        }
    }
    all.sort_by_key(|(part, _)| part.due_at);
    all
}

/// Returns the estimated deliveries of a message, and their margin. `None`: its topic was deleted, so the message is omitted.
async fn estimate(
    conn: &mut PgConnection, (vault, app): (&Vault, AppId), id: CampaignId, plan: &Plan, part: &CampaignPart,
    now: Timestamp,
) -> Result<Option<(i64, i64)>, Problem> {
    let body = &plan.variants[part.variant].body;
    let filter = parts::filter(plan, id, body, &part.narrow).ok_or_else(Problem::internal)?;
    let audience = match body.audience.clone() {
        CampaignAudience::Topic { name, may_be_missing } => SentTo::Topic { name, may_be_missing },
        CampaignAudience::All => SentTo::All,
    };
    let sent = sending::dry_run(conn, vault, (app, &audience), filter.as_ref(), now).await?;
    Ok((!sent.lacks_topic).then_some((sent.estimate, sent.margin)))
}

fn shown(plan: &Plan, part: &CampaignPart, is_of_winner: bool, estimate: i64, margin: i64) -> CampaignDryRunMessage {
    let share = part.narrow.share.map_or(WHOLE, |share| share.to - share.from);
    CampaignDryRunMessage {
        due_at: part.due_at,
        variant: (!is_of_winner).then(|| plan.variants[part.variant].name.clone()),
        share: f64::from(share) / f64::from(WHOLE),
        own_hour: part.narrow.own_hour.as_ref().map(|own| own.slot),
        audience_estimate: estimate,
        audience_margin: margin,
    }
}
