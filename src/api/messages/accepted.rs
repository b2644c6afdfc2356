//! Response to an accepted message.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::ApiState;
use crate::api::http::problem::{FieldError, Problem, ProblemCode};
use crate::api::messages::compose::SendContext;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::MessageId;
use bellwire_core::message::MessageState;
use bellwire_store::keys::apps::App;
use bellwire_store::queue::messages::MessageRow;
use bellwire_store::queue::sending::Sent;

/// State of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SendState {
    /// Waiting for its `send_at`.
    Scheduled,
    /// Deliveries are sent as they become due.
    Sending,
    /// No delivery is sent until the message is resumed.
    Paused,
    /// No delivery is sent any longer.
    Cancelled,
    /// Every delivery has ended.
    Done,
}

impl SendState {
    /// Returns the state of a message. A cancelled message stays cancelled after its deliveries have ended.
    pub(in crate::api) fn of(row: &MessageRow, now: Timestamp) -> Self {
        match row.state {
            MessageState::Cancelled => Self::Cancelled,
            _ if !row.moving => Self::Done,
            MessageState::Paused => Self::Paused,
            MessageState::Scheduled | MessageState::Sending if row.accepted_at > now => Self::Scheduled,
            MessageState::Scheduled | MessageState::Sending => Self::Sending,
        }
    }
}

/// Links to related resources.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Links {
    /// Path of the message.
    #[serde(rename = "self")]
    pub(in crate::api) this: String,
    /// Path of its deliveries.
    deliveries: String,
    /// `POST` here to pause it.
    pause: String,
    /// `POST` here to resume it.
    resume: String,
    /// `POST` here to cancel it.
    cancel: String,
    /// `POST` here to withdraw it.
    withdraw: String,
}

impl Links {
    pub(in crate::api) fn new(app: &App, id: MessageId) -> Self {
        let this = format!("/v1/apps/{}/messages/{id}", app.slug);
        let to = |what: &str| format!("{this}/{what}");
        Self {
            deliveries: to("deliveries"),
            pause: to("pause"),
            resume: to("resume"),
            cancel: to("cancel"),
            withdraw: to("withdraw"),
            this,
        }
    }
}

/// An accepted message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Accepted {
    /// Id of the message.
    id: MessageId,
    /// State: `sending`, `scheduled` (before `send_at`), or `done` (no recipients).
    state: SendState,
    /// Number of deliveries, as counted now. For a segment, an estimate from a sample.
    audience_estimate: i64,
    /// Margin of error of the estimate, plus or minus, at 95 % confidence. 0: counted exactly.
    audience_margin: i64,
    /// Number of named subscriptions that are not active, and of named users without an active one. They are not targeted.
    unreachable: i64,
    /// Warnings: about the policy, recipients without an active subscription, or broadcasts that few recipients open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<FieldError>,
    /// Links to related resources.
    pub(in crate::api) links: Links,
}

impl Accepted {
    /// Builds the response to a stored message. 422: it names unknown subscriptions. 409: another message has its `key`.
    pub(in crate::api) fn new(app: &App, mut asked: SendContext, sent: &Sent) -> Result<Self, Problem> {
        asked.refuse_unknown(sent)?;
        if let Some(other) = sent.key_taken_by {
            let detail = format!("The message {other} has this key, and its deliveries have not all ended.");
            return Err(Problem::new(ProblemCode::MessageKeyTaken, detail));
        }
        let state = match sent.estimate {
            0 if !sent.expands => SendState::Done,
            _ if asked.is_for_later => SendState::Scheduled,
            _ => SendState::Sending,
        };
        Ok(Self {
            id: asked.id,
            state,
            audience_estimate: sent.estimate,
            audience_margin: sent.margin,
            unreachable: sent.unreachable,
            warnings: asked.warnings,
            links: Links::new(app, asked.id),
        })
    }

    /// Updates metrics of a committed message. Logs the message if it is a broadcast.
    pub(in crate::api) fn note(&self, state: &ApiState, app: &App, is_named: bool) {
        state.metrics.messages_accepted.inc();
        if is_named {
            tracing::debug!(message_id = %self.id, app = app.slug, "a message was taken");
        } else {
            tracing::info!(message_id = %self.id, app = app.slug, estimate = self.audience_estimate, "a campaign begins");
        }
    }

    /// Serialises the body of the response.
    pub(in crate::api) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and texts")
    }
}
