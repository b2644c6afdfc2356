//! JSON form of subscriptions, and refusals of requests about them.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::ApiState;
use crate::api::http::auth::write_token;
use crate::api::http::problem::{FieldError, Problem, ProblemCode};
use crate::api::subscriptions::consent::ConsentResponse;
use crate::api::subscriptions::input::Muted;
use crate::api::subscriptions::partial_warnings::PartialWarning;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{SubscriptionId, VapidKeyId};
use bellwire_core::lane::Gateway;
use bellwire_core::subscription::SubscriptionState;
use bellwire_store::audience::aliases;
use bellwire_store::audience::subscriptions::{self, SubscriptionRow};
use bellwire_store::keys::apps::App;

/// A subscription. Its endpoint and keys are secret and never in responses.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SubscriptionResponse {
    /// Id of the subscription.
    id: SubscriptionId,
    /// Whether the subscription is active, or how it ended.
    state: SubscriptionState,
    /// Push service of its endpoint.
    gateway: Gateway,
    /// VAPID key that the browser subscribed with.
    vapid_key_id: VapidKeyId,
    /// User of the browser. Null: no user.
    user_id: Option<String>,
    /// Tags, for selecting subscriptions.
    tags: Vec<String>,
    /// Attributes, for selecting subscriptions and for templates.
    #[schema(value_type = Object)]
    attributes: Value,
    /// Topics of the subscription.
    topics: Vec<String>,
    /// Language tag of the browser.
    locale: Option<String>,
    /// An IANA time zone.
    timezone: Option<String>,
    /// Only transactional messages reach the subscription. Null: all do.
    muted: Option<Muted>,
    /// Time from which accepted messages are for this subscription. Earlier messages are not sent to it.
    since: DateTime<Utc>,
    /// `expirationTime` that the browser reported. Null: none.
    expires_at: Option<DateTime<Utc>>,
    /// Day of the browser's last contact.
    last_seen: DateTime<Utc>,
    /// Time of the first registration.
    created_at: DateTime<Utc>,
    /// Time at which it stopped being active. Null: active.
    ended_at: Option<DateTime<Utc>>,
    /// Subscription that the id of a replaced one leads to, after all later replacements. Null: not replaced, or the successor
    /// does not get messages to this id, because it has another user, or took over the endpoint with other keys.
    replaced_by: Option<SubscriptionId>,
    /// Time and source of the person's consent. Null: unknown.
    consent: Option<ConsentResponse>,
    /// Values of this request that a browser may not set in this app. They were omitted, and the others are stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<PartialWarning>,
    /// Warnings about the policy and the time zone in this request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<FieldError>,
    /// Token with which the browser changes or deletes the subscription. Only in responses to the registering caller, and to
    /// browsers that change it. Each change of `user_id` or keys invalidates the previous token.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl SubscriptionResponse {
    pub(in crate::api) fn id(&self) -> SubscriptionId {
        self.id
    }

    /// Adds omitted values, and warnings about stored values.
    pub(in crate::api) fn with_warnings(self, refused: Vec<PartialWarning>, warnings: Vec<FieldError>) -> Self {
        Self { refused, warnings, ..self }
    }

    /// Converts a row.
    pub(crate) fn new(row: SubscriptionRow, topics: Vec<String>, now: Timestamp) -> Self {
        let consent = row.consent();
        Self {
            id: row.id,
            state: row.state,
            gateway: row.gateway,
            vapid_key_id: row.vapid_key,
            user_id: row.user_id,
            tags: row.tags,
            attributes: row.attributes,
            topics,
            locale: row.locale,
            timezone: row.timezone,
            muted: Muted::stored(row.muted_until, now),
            since: row.since,
            expires_at: row.expires_at,
            last_seen: row.last_seen,
            created_at: row.created_at,
            ended_at: row.ended_at,
            replaced_by: None,
            consent: ConsentResponse::of(consent),
            refused: Vec::new(),
            warnings: Vec::new(),
            token: None,
        }
    }
}

/// Converts a row and adds the token, for its browser or the registering caller.
pub(in crate::api) fn with_token(state: &ApiState, row: SubscriptionRow, topics: Vec<String>) -> SubscriptionResponse {
    let token = write_token(&subscriptions::token(&state.vault, row.id, row.token_version));
    SubscriptionResponse { token: Some(token), ..SubscriptionResponse::new(row, topics, state.clock.now()) }
}

/// Returns a 404 problem: the subscription does not exist, or the caller may not see it.
pub(in crate::api) fn unknown() -> Problem {
    Problem::not_found("subscription")
}

/// Returns a 409 problem: the subscription has ended.
pub(in crate::api) fn ended() -> Problem {
    Problem::new(ProblemCode::SubscriptionEnded, "The subscription has ended. Registering it again brings it back.")
}

/// Returns the subscription for an id: the successor of a replaced one, otherwise the subscription itself.
pub(in crate::api) async fn current(
    state: &ApiState, app: &App, id: SubscriptionId,
) -> Result<SubscriptionId, Problem> {
    Ok(aliases::successor(&state.pool, &state.vault, app.id, id).await?.unwrap_or(id))
}

/// Converts rows. Replaced subscriptions get the id of their successor.
pub(in crate::api) async fn shown(
    state: &ApiState, app: &App, rows: Vec<(SubscriptionRow, Vec<String>)>,
) -> Result<Vec<SubscriptionResponse>, Problem> {
    let is_replaced = |row: &&(SubscriptionRow, _)| row.0.state == SubscriptionState::Replaced;
    let replaced: Vec<SubscriptionId> = rows.iter().filter(is_replaced).map(|(row, _)| row.id).collect();
    let successors = match replaced.is_empty() {
        true => HashMap::new(),
        false => aliases::resolve(&mut *state.pool.acquire().await?, &state.vault, app.id, &replaced).await?,
    };
    let now = state.clock.now();
    let show = |(row, topics): (SubscriptionRow, _)| {
        let replaced_by = successors.get(&row.id).copied().flatten();
        SubscriptionResponse { replaced_by, ..SubscriptionResponse::new(row, topics, now) }
    };
    Ok(rows.into_iter().map(show).collect())
}
