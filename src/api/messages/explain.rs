//! `…/deliveries/{subscription}/explain`: explanation of one delivery. This module reads the stored data as [`Facts`], and
//! [`explain::tell`] writes the text.

use axum::Json as Answer;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::ApiState;
use crate::api::campaigns::part_of;
use crate::api::http::auth::{MayRead, Server};
use crate::api::http::extract::PathId;
use crate::api::http::problem::Problem;
use crate::api::http::routes::routes;
use crate::api::messages::response::missing;
use crate::api::policies::restore;
use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::delivery::{Ending, ReceiptKind, Tier};
use bellwire_core::id::{MessageId, SubscriptionId};
use bellwire_core::subscription::{Endpoint, SubscriptionState};
use bellwire_rules::explain::{self, Facts, Sentence};
use bellwire_rules::policy::calendar::Calendar;
use bellwire_rules::policy::lane_state::ALL_ORIGINS;
use bellwire_rules::policy::{Places, Policy, PolicyLevel};
use bellwire_segment::FilterVerdict;
use bellwire_store::keys::apps::App;
use bellwire_store::outcomes::deliveries::AttemptRow;
use bellwire_store::outcomes::receipts::{ReceiptRow, kept_since};
use bellwire_store::outcomes::stories::{self, StoredStory, StoryRow};
use bellwire_store::queue::claims::walk;
use bellwire_store::queue::lanes::OriginRow;
use bellwire_vault as vault;
use utoipa_axum::router::OpenApiRouter;

pub(in crate::api) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show))
}

/// Offset of the endpoint in a decrypted address, after the browser's keys.
const ENDPOINT_AT: usize = 65 + 16;

/// Explanation of one delivery in plain words, from stored data.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExplanationResponse {
    /// Message that was sent.
    message: MessageId,
    /// Recipient of the delivery.
    subscription: SubscriptionId,
    /// Time of the explanation, from which "ago" is counted.
    now: DateTime<Utc>,
    /// `queued`, `dispatching`, `retrying`, its ending (`accepted`, `gone`, `expired`, `dead`, `cancelled`, `capped`), or
    /// `none`: no delivery exists, or its data were deleted.
    state: &'static str,
    /// Sentences about past events in order, the current state, and the next step.
    story: Vec<Sentence>,
}

/// Explains one delivery: policy, responses of the push service, times and next step. Data that are no longer stored are
/// described as unknown. For a subscription that is not a recipient, the explanation gives the reason.
#[utoipa::path(get, path = "/v1/apps/{app}/messages/{message}/deliveries/{subscription}/explain", tag = "Messages",
    responses((status = 200, body = ExplanationResponse)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(message): PathId<MessageId>,
    PathId(subscription): PathId<SubscriptionId>,
) -> Result<Answer<ExplanationResponse>, Problem> {
    let now = state.clock.now();
    let stored = stories::read(&state.pool, server.app.id, message, subscription, now).await?;
    let stored = stored.ok_or_else(|| missing(&state, message))?;
    if stored.is_empty() {
        return Err(Problem::not_found("delivery"));
    }
    let timezone = stored.row.timezone.clone();
    let whose = (subscription, timezone.as_deref());
    let part = match stored.judged {
        Some((FilterVerdict::NotInSegment, _)) => part_of(&state, &server.app, message, whose, None, now).await?,
        Some((FilterVerdict::NotInPortion(position), _)) => {
            part_of(&state, &server.app, message, whose, Some(position), now).await?
        }
        _ => None, // nothing of it would be told
    };
    let facts = Facts { part, ..facts(&state, &server.app, message, subscription, stored, now) };
    Ok(Answer(ExplanationResponse { message, subscription, now, state: facts.state(), story: explain::tell(&facts) }))
}

fn facts(
    state: &ApiState, app: &App, message: MessageId, subscription: SubscriptionId, stored: StoredStory, now: Timestamp,
) -> Facts {
    let StoredStory {
        mut row,
        attempts,
        reports,
        letter,
        origins,
        subscription_held_until,
        flows,
        worker_lives,
        judged,
    } = stored;
    let tier = Tier::from_code(row.tier).expect("checked by the table");
    let oldest = kept_since(now, state.settings.receipts.retention_days).date_naive().and_time(chrono::NaiveTime::MIN);
    let origin = row.address.take().and_then(|sealed| origin_of(state, subscription, &sealed));
    let concerns = |row: &OriginRow| row.origin == ALL_ORIGINS || origin.as_deref() == Some(&*row.origin);
    let report = |row: ReceiptRow| Some(explain::ReceiptReport { kind: ReceiptKind::from_code(row.kind)?, at: row.at });
    let unsigned = |n: i32| u32::try_from(n).unwrap_or(0);
    Facts {
        now,
        policy: in_force(state, app, tier, &row),
        calendar: Calendar::restore(&row.app_timezone, row.quiet_hours.take(), row.off_peak.take()),
        subscription: subscription_of(&row),
        gateway: row.gateway,
        waiting: waiting(&row, subscription, now),
        attempts: attempts.into_iter().map(attempt).collect(),
        reports: reports.into_iter().filter_map(report).collect(),
        letter,
        origins: origins.into_iter().filter(concerns).map(origin_state).collect(),
        subscription_held_until,
        flows: flows
            .into_iter()
            .map(|flow| explain::FlowLimit {
                of_lane: flow.lane.is_some(),
                rate: flow.rate,
                parallelism: flow.parallelism,
                paused: flow.paused,
                held_at: flow.held_at.filter(|_| flow.held.contains(&tier)),
            })
            .collect(),
        worker_lives,
        judged: judged.map(|(verdict, habits)| explain::Judged {
            verdict,
            own_hour: row.filter.as_ref().and_then(|filter| habits.own_hour_at(filter.0.own_hour.as_ref()?.as_of())),
            habits,
            sunset: row.filter.as_ref().and_then(|filter| filter.0.sunset.clone()),
        }),
        part: None,
        message: explain::ExplainedMessage {
            id: message,
            tier,
            state: row.state,
            audience: row.audience,
            ttl_s: unsigned(row.ttl_s),
            accepted_at: row.accepted_at,
            expires_at: row.expires_at,
            replay_of: row.replay_of,
            withdraws: row.withdraws,
            withdrawn_at: row.withdrawn_at,
            removal: row.removal,
            content_deleted: row.content_deleted,
            history_deleted: message.0 < first_uuid_of(oldest.and_utc()),
            enveloped: row.enveloped,
            topic: row.topic,
        },
    }
}

/// Returns the origin of a subscription's endpoint. `None`: the address cannot be decrypted, so its deliveries fail.
fn origin_of(state: &ApiState, subscription: SubscriptionId, sealed: &[u8]) -> Option<String> {
    let plain = zeroize::Zeroizing::new(state.vault.open(vault::ADDRESS, subscription, sealed).ok()?);
    let endpoint = Endpoint::parse(std::str::from_utf8(plain.get(ENDPOINT_AT..)?).ok()?).ok()?;
    Some(endpoint.origin().to_owned())
}

fn in_force(state: &ApiState, app: &App, tier: Tier, row: &StoryRow) -> explain::InForce {
    let layer = |place, policy: &Option<_>| restore(app, place, policy.as_ref()).0;
    let message = layer(PolicyLevel::Message, &row.message_policy);
    let subscription = layer(PolicyLevel::Subscription, &row.subscription_policy);
    let topic = layer(PolicyLevel::Topic, &row.topic_policy);
    let of_tier = layer(PolicyLevel::Tier, &row.tier_policy);
    let places = Places {
        message: message.as_ref(),
        subscription: subscription.as_ref(),
        topic: topic.as_ref(),
        tier: of_tier.as_ref(),
        server: state.settings.policy,
    };
    explain::InForce { policy: Policy::in_force(tier, &places), retry_set_by: places.set_by().retry }
}

fn subscription_of(row: &StoryRow) -> Option<explain::Subscription> {
    Some(explain::Subscription {
        state: row.subscription_state?,
        since: row.since?,
        ended_at: row.ended_at,
        timezone: row.timezone.clone(),
        joined_at: row.joined_at,
        replaced_by: row.replaced_by,
        is_successor: row.is_successor.unwrap_or(false),
        is_past: row.is_past,
    })
}

fn waiting(row: &StoryRow, subscription: SubscriptionId, now: Timestamp) -> Option<explain::WaitingDelivery> {
    if let (Some(recipients), Some(lease_until)) = (row.batch_recipients, row.batch_due_at) {
        let recipients = u32::try_from(recipients).unwrap_or(0);
        return Some(explain::WaitingDelivery::InBatch { recipients, lease_until });
    }
    if let (Some(retries), Some(scheduled_at)) = (row.retries, row.scheduled_at) {
        return Some(explain::WaitingDelivery::Alone(explain::SingleRow {
            retries: u32::try_from(retries).unwrap_or(0),
            due_at: row.due_at,
            scheduled_at,
            failed_at: row.failed_at,
            leased: row.leased.unwrap_or(false),
            leases: row.leases.and_then(|leases| u32::try_from(leases).ok()).unwrap_or(0),
            has_turn: row.has_turn.unwrap_or(false),
        }));
    }
    is_ahead(row, subscription, now).then_some(explain::WaitingDelivery::BehindCursor { due_at: row.cursor_due_at })
}

/// Whether the running fan-out has yet to reach the subscription.
fn is_ahead(row: &StoryRow, subscription: SubscriptionId, now: Timestamp) -> bool {
    row.cursor_after.is_some_and(|after| walk::is_ahead(after, subscription))
        && row.subscription_state == Some(SubscriptionState::Active)
        && row.since.is_some_and(|since| since <= row.accepted_at)
        && row.ends_at.is_none_or(|ends_at| now < ends_at)
        && (row.topic.is_none() || row.joined_at.is_some_and(|at| at <= row.accepted_at))
}

fn attempt(row: AttemptRow) -> explain::ExplainedAttempt {
    explain::ExplainedAttempt {
        number: u32::try_from(row.attempt).unwrap_or(0),
        at: row.at,
        ending: Ending::from_code(row.ending).unwrap_or(Ending::Dead),
        status: row.status.and_then(|status| u16::try_from(status).ok()),
        took_ms: row.took_ms.and_then(|ms| u32::try_from(ms).ok()),
        reason: row.reason,
    }
}

/// Converts the state of an origin. Omits operators' notes, which are not for apps.
fn origin_state(row: OriginRow) -> explain::OriginState {
    explain::OriginState {
        held_until: row.held_until,
        reason: row.reason,
        breaker_of_one: row.breaker_of.is_some(),
        breaker: row.breaker,
        open_until: row.open_until,
    }
}
