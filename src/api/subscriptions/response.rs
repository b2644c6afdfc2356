//! Subscriptions as responses show them, and the refusals of requests about one.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::ApiState;
use crate::api::http::auth::write_token;
use crate::api::http::problem::{FieldError, Problem, ProblemCode};
use crate::api::subscriptions::consent::ConsentResponse;
use crate::api::subscriptions::partial_warnings::PartialWarning;
use bellwire_core::id::{SubscriptionId, VapidKeyId};
use bellwire_core::lane::Gateway;
use bellwire_core::subscription::SubscriptionState;
use bellwire_store::audience::aliases;
use bellwire_store::audience::subscriptions::{self, SubscriptionRow};
use bellwire_store::keys::apps::App;

/// A subscription. Its endpoint and keys are secrets and never shown.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SubscriptionResponse {
    /// Id of the subscription.
    id: SubscriptionId,
    /// Whether it is sent to, or how it ended.
    state: SubscriptionState,
    /// The push service behind its endpoint.
    gateway: Gateway,
    /// The VAPID key that it was made with.
    vapid_key_id: VapidKeyId,
    /// User of the browser. Null: no user.
    user_id: Option<String>,
    /// Words to select it by.
    tags: Vec<String>,
    /// Values to select it by and to fill templates with.
    #[schema(value_type = Object)]
    attributes: Value,
    /// Topics that it is in.
    topics: Vec<String>,
    /// Language tag of the browser.
    locale: Option<String>,
    /// An IANA time zone.
    timezone: Option<String>,
    /// Messages accepted before this are not for it.
    since: DateTime<Utc>,
    /// `expirationTime` of the browser.
    expires_at: Option<DateTime<Utc>>,
    /// Day of the browser's last contact.
    last_seen: DateTime<Utc>,
    /// Time of the first registration.
    created_at: DateTime<Utc>,
    /// Time at which it stopped being active.
    ended_at: Option<DateTime<Utc>>,
    /// Active or ended subscription that the id of a replaced one leads to, over all replacements since. Null: not replaced, or the
    /// successor is not to get messages to this id: it has another user, or took the endpoint with other keys.
    replaced_by: Option<SubscriptionId>,
    /// Time and place of the person's consent. Null: unknown.
    consent: Option<ConsentResponse>,
    /// Values of this request that a browser may not set in this app: they were left out, and the others are stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<PartialWarning>,
    /// Warnings about the policy in this request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<FieldError>,
    /// Token of the browser to change or delete it. Only for the caller that registers it, and for browsers that change it. Each
    /// change of `user_id` or keys, by any caller, ends the previous token.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl SubscriptionResponse {
    pub(in crate::api) fn id(&self) -> SubscriptionId {
        self.id
    }

    /// The same with values that were left out, and warnings about the policy.
    pub(in crate::api) fn with_warnings(self, refused: Vec<PartialWarning>, warnings: Vec<FieldError>) -> Self {
        Self { refused, warnings, ..self }
    }

    /// Builds the response of a row.
    pub(crate) fn new(row: SubscriptionRow, topics: Vec<String>) -> Self {
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

/// Builds the response of a row for its browser, or for the caller that registered it.
pub(in crate::api) fn with_token(state: &ApiState, row: SubscriptionRow, topics: Vec<String>) -> SubscriptionResponse {
    let token = write_token(&subscriptions::token(&state.vault, row.id, row.token_version));
    SubscriptionResponse { token: Some(token), ..SubscriptionResponse::new(row, topics) }
}

/// 404: it does not exist, or the caller may not see it.
pub(in crate::api) fn unknown() -> Problem {
    Problem::not_found("subscription")
}

/// 409: it has ended.
pub(in crate::api) fn ended() -> Problem {
    Problem::new(ProblemCode::SubscriptionEnded, "The subscription has ended. Registering it again brings it back.")
}

/// Returns the subscription that answers to an id: the successor of a replaced one, else the one with that id.
pub(in crate::api) async fn current(
    state: &ApiState,
    app: &App,
    id: SubscriptionId,
) -> Result<SubscriptionId, Problem> {
    Ok(aliases::successor(&state.pool, &state.vault, app.id, id).await?.unwrap_or(id))
}

/// Shows rows, those of replaced subscriptions with their successors.
pub(in crate::api) async fn shown(
    state: &ApiState,
    app: &App,
    rows: Vec<(SubscriptionRow, Vec<String>)>,
) -> Result<Vec<SubscriptionResponse>, Problem> {
    let is_replaced = |row: &&(SubscriptionRow, _)| row.0.state == SubscriptionState::Replaced;
    let replaced: Vec<SubscriptionId> = rows.iter().filter(is_replaced).map(|(row, _)| row.id).collect();
    let successors = match replaced.is_empty() {
        true => HashMap::new(),
        false => aliases::resolve(&mut *state.pool.acquire().await?, &state.vault, app.id, &replaced).await?,
    };
    let show = |(row, topics): (SubscriptionRow, _)| {
        let replaced_by = successors.get(&row.id).copied().flatten();
        SubscriptionResponse { replaced_by, ..SubscriptionResponse::new(row, topics) }
    };
    Ok(rows.into_iter().map(show).collect())
}
