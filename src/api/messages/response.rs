//! JSON form of messages, without their content.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::ApiState;
use crate::api::http::problem::Problem;
use crate::api::messages::accepted::{Links, SendState};
use crate::api::messages::counts::MessageCounts;
use crate::api::messages::sunset::SunsetBody;
use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::delivery::{Tier, Urgency};
use bellwire_core::id::{ApiKeyId, CampaignId, MessageId, TeammateId};
use bellwire_rules::policy::DeliveryPolicy;
use bellwire_store::keys::apps::App;
use bellwire_store::outcomes::receipts::kept_since;
use bellwire_store::queue::messages::{Ended, MessageRow};

/// A message, without its content.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageResponse {
    /// Id of the message.
    id: MessageId,
    /// Whether the message is scheduled, being sent, paused, cancelled or done.
    state: SendState,
    /// Tier of the message.
    tier: Tier,
    /// `to` of the request. User ids are null after every delivery has ended, and those of erased users at once.
    #[schema(value_type = Object)]
    to: Value,
    /// Expression of the segment at the message's acceptance.
    #[serde(skip_serializing_if = "Option::is_none")]
    segment: Option<String>,
    /// Sunset rule, which excludes recipients who do not click.
    #[serde(skip_serializing_if = "Option::is_none")]
    sunset: Option<SunsetBody>,
    /// Title of the notification, or of the stored template before rendering. Requires the scope `send`. Null for messages to
    /// named or very few recipients, unless the title is that of a stored template.
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// Time to live, in seconds.
    ttl: i32,
    /// Urgency for push services.
    urgency: Urgency,
    /// `Topic` header of its pushes: a hash of the collapse key. Null: no collapse key.
    topic_header: Option<String>,
    /// Delivery policy of the message, including the retry headers of its request.
    #[schema(value_type = Option<DeliveryPolicy>)]
    policy: Option<Value>,
    /// Message whose dead letters it replays. Null: not a replay.
    replay_of: Option<MessageId>,
    /// Campaign that created the message, even if it was deleted since. Null: no campaign.
    campaign: Option<CampaignId>,
    /// Time at which the message was withdrawn. Null: it was not.
    withdrawn_at: Option<DateTime<Utc>>,
    /// Whether the content was deleted, because every delivery has ended and no open dead letter needs it.
    content_deleted: bool,
    /// Your own key for the message. Null if a later message has taken over the key.
    key: Option<String>,
    /// Time of `send_at`, or else of the acceptance. The time to live begins then.
    accepted_at: DateTime<Utc>,
    /// Time at which the request was accepted, also with `send_at`.
    received_at: DateTime<Utc>,
    /// End of its time to live.
    expires_at: DateTime<Utc>,
    /// Whether fan-out is complete.
    expanded: bool,
    /// Number of deliveries, as counted at the acceptance. For a segment, an estimate from a sample.
    audience_estimate: i64,
    /// Sender: the id of an API key or a teammate. Null: a campaign, the example page or a diagnosis.
    sent_by: Option<String>,
    /// Counts of its deliveries. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<MessageCounts>,
    /// Progress of its deliveries. Only in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<MessageProgress>,
    /// Links to related resources.
    links: Links,
}

impl MessageResponse {
    /// Converts a row, without counts.
    pub(in crate::api) fn new(app: &App, row: MessageRow, now: Timestamp) -> Self {
        let sent_by = row.sent_by.map(|id| match row.sent_by_key {
            true => ApiKeyId(id).to_string(),
            false => TeammateId(id).to_string(),
        });
        let sunset = row.filter.as_ref().and_then(|filter| filter.0.sunset.as_ref()).map(SunsetBody::from);
        Self {
            id: row.id,
            state: SendState::of(&row, now),
            tier: Tier::from_code(row.tier).unwrap_or(Tier::Promotional),
            to: row.audience,
            segment: row.filter.and_then(|filter| filter.0.segment).map(|segment| segment.to_string()),
            sunset,
            title: None,
            ttl: row.ttl_s,
            urgency: Urgency::from_code(row.urgency).unwrap_or(Urgency::Normal),
            topic_header: row.topic_header,
            policy: row.policy,
            replay_of: row.replay_of,
            campaign: row.campaign,
            withdrawn_at: row.withdrawn_at,
            content_deleted: row.content_deleted,
            key: row.key,
            accepted_at: row.accepted_at,
            received_at: row.received_at.unwrap_or(row.accepted_at),
            expires_at: row.expires_at,
            expanded: !row.expanding,
            audience_estimate: row.audience_estimate,
            sent_by,
            counts: None,
            progress: None,
            links: Links::new(app, row.id),
        }
    }

    /// Adds title and counts, for a single message.
    pub(in crate::api) fn with_counts(self, title: Option<String>, counts: MessageCounts) -> Self {
        Self { title, counts: Some(counts), ..self }
    }

    /// Adds title and progress, for lists.
    pub(in crate::api) fn listed(self, title: Option<String>, progress: MessageProgress) -> Self {
        Self { title, progress: Some(progress), ..self }
    }
}

/// Progress of a message's deliveries. Until fan-out is complete, `targeted` grows.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = MessageProgress)]
pub(crate) struct MessageProgress {
    /// Deliveries created so far.
    targeted: i64,
    /// Deliveries that have not ended.
    waiting: i64,
    /// Deliveries accepted by a push service. That does not prove that the notification was displayed.
    accepted: i64,
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
    /// Deliveries reported as displayed: a lower bound. This and `clicked` are null if the pushes request no receipts.
    displayed: Option<i64>,
    /// Number of clicks.
    clicked: Option<i64>,
}

impl MessageProgress {
    /// Builds the progress. `known`: the pushes request receipts.
    pub(super) fn new(ended: Option<Ended>, known: bool) -> Self {
        let mut it = ended.map(Self::from).unwrap_or_default();
        let if_known = |n: Option<i64>| known.then_some(n.unwrap_or_default());
        (it.displayed, it.clicked) = (if_known(it.displayed), if_known(it.clicked));
        it
    }
}

impl From<Ended> for MessageProgress {
    fn from(it: Ended) -> Self {
        let Ended { message: _, targeted, accepted, gone, expired, dead, cancelled, capped, displayed, clicked } = it;
        let waiting = targeted - (accepted + gone + expired + dead + cancelled + capped);
        let (displayed, clicked) = (Some(displayed), Some(clicked));
        Self { targeted, waiting, accepted, gone, expired, dead, cancelled, capped, displayed, clicked }
    }
}

/// Returns a 404 problem: the message does not exist, or retention deleted it.
pub(in crate::api) fn missing(state: &ApiState, id: MessageId) -> Problem {
    let days = state.settings.receipts.retention_days;
    let mut problem = Problem::not_found("message");
    if id.0 < first_uuid_of(kept_since(state.clock.now(), days)) {
        problem.detail =
            format!("There is no such message. Messages are kept for {days} days; one of that id would be older.");
    }
    problem
}
