//! A message to store, its recipients, and the result.

use std::collections::HashSet;

use serde_json::Value;
use uuid::Uuid;

use crate::queue::claims::ClaimedRow;
use crate::queue::opening::{Conditions, MessageRow};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Tier, Urgency};
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};
use bellwire_segment::AudienceFilter;

#[derive(Debug)]
pub struct NewMessage {
    pub id: MessageId,
    pub app: AppId,
    pub tier: Tier,
    /// `to` of the request.
    pub audience: Value,
    /// Filter of its audience. `None`: no filter. Only for audiences without named recipients.
    pub filter: Option<AudienceFilter>,
    /// Encrypted [`bellwire_core::message::Content`], as JSON.
    pub content: Vec<u8>,
    pub ttl_s: i32,
    pub urgency: Urgency,
    /// Hash of its collapse key. `None`: none.
    pub topic_header: Option<String>,
    pub policy: Option<Value>,
    /// Whether its pushes have Bellwire's envelope, with the token for receipts.
    pub enveloped: bool,
    /// Whether a click in one browser removes it from the person's others.
    pub clear_on_click: bool,
    /// Time of acceptance, or the scheduled time.
    pub accepted_at: Timestamp,
    /// Time at which the API accepted a scheduled message. `None`: not scheduled.
    pub received_at: Option<Timestamp>,
    /// Whether it uses cursors for an audience of any size. Scheduled messages always do, unless recipients are named.
    pub by_cursors: bool,
    /// Sender's own key for the message.
    pub key: Option<String>,
    /// Trace context of its request, if that is traced.
    pub traceparent: Option<String>,
    /// Sender: id of an API key or teammate. `None`: neither.
    pub sent_by: Option<Uuid>,
}

impl NewMessage {
    pub(super) fn is_for_later(&self) -> bool {
        self.received_at.is_some()
    }

    pub(super) fn expires_at(&self) -> Timestamp {
        self.accepted_at + chrono::TimeDelta::seconds(self.ttl_s.into())
    }
}

#[derive(Debug, Clone)]
pub enum Audience {
    Subscriptions(Vec<SubscriptionId>),
    Users(Vec<String>),
    /// These browsers, as far as they belong to these users when the message is stored.
    BrowsersOf(Vec<String>, Vec<SubscriptionId>),
    Topic {
        name: String,
        /// Whether a missing topic is allowed, because browsers may create it by joining.
        may_be_missing: bool,
    },
    All,
}

#[derive(Debug)]
pub struct Addressed {
    pub message: NewMessage,
    pub audience: Audience,
}

impl Addressed {
    /// Whether it is scheduled for an audience that may still grow.
    pub(super) fn awaits_newcomers(&self) -> bool {
        self.message.is_for_later() && !self.audience.is_named()
    }

    /// Whether nothing was stored, because none of its named recipients exists.
    pub(super) fn is_refused(&self, sent: &Sent) -> bool {
        let needs_topic = matches!(self.audience, Audience::Topic { may_be_missing: false, .. });
        !sent.unknown.is_empty() || needs_topic && sent.lacks_topic
    }
}

/// Holder of rows that are inserted already leased. It must send [`Sent::born`] after the commit.
#[derive(Debug, Clone, Copy)]
pub struct LeaseHolder {
    pub lease: Uuid,
    pub until: Timestamp,
}

#[derive(Debug)]
pub(crate) enum ResolvedReach {
    Rows(Vec<SubscriptionId>),
    Lanes(Vec<(LaneId, i64)>),
}

impl Audience {
    pub fn is_named(&self) -> bool {
        matches!(self, Self::Subscriptions(_) | Self::Users(_) | Self::BrowsersOf(..))
    }

    /// Returns the users whose browsers are the recipients, if any.
    pub(super) fn users_to_find(&self) -> Option<&[String]> {
        if let Self::Users(users) = self { Some(users) } else { None }
    }

    /// Returns the users that recipients must belong to, if any.
    pub(super) fn users(&self) -> Option<&[String]> {
        match self {
            Self::Users(users) | Self::BrowsersOf(users, _) => Some(users),
            Self::Subscriptions(_) | Self::Topic { .. } | Self::All => None,
        }
    }
}

/// An audience whose recipients were determined.
pub(super) struct ResolvedAudience {
    pub(super) reach: ResolvedReach,
    pub(super) topic: Option<i32>,
    pub(super) lacks_topic: bool,
    pub(super) unreachable: i64,
}

impl ResolvedAudience {
    pub(super) fn new(reach: ResolvedReach) -> Self {
        Self { reach, topic: None, lacks_topic: false, unreachable: 0 }
    }
}

/// A delivery that was inserted leased to this process.
#[derive(Debug)]
pub struct Born {
    /// Lane of the subscription.
    pub lane: LaneId,
    /// Queue row, in the form of a claimed one.
    pub row: ClaimedRow,
    /// Message of the row, in the form in which dispatch reads it.
    pub message: MessageRow,
    /// Delivery settings of its app and tier when it was stored. Only the first message of an app and tier in a group has them,
    /// and none if that message was refused or has no recipients.
    pub conditions: Option<Conditions>,
}

#[derive(Debug, Default)]
pub struct Sent {
    /// Unknown subscriptions. If there are any, nothing was stored.
    pub unknown: Vec<SubscriptionId>,
    /// Replaced recipients. If there are any, nothing was stored.
    pub(super) replaced: Vec<SubscriptionId>,
    /// Whether the topic does not exist. If that is not allowed, nothing was stored.
    pub lacks_topic: bool,
    /// Estimated number of deliveries.
    pub estimate: i64,
    /// Margin of error of the estimate, plus or minus, at 95 % confidence.
    pub margin: i64,
    /// Whether the message has a fan-out, independent of the estimate.
    pub expands: bool,
    /// Number of named subscriptions that are not active, and of named users without an active one.
    pub unreachable: i64,
    /// Other message that has its key. If there is one, nothing was stored.
    pub key_taken_by: Option<MessageId>,
    /// Rows inserted already leased, for the [`LeaseHolder`].
    pub born: Vec<Born>,
}

/// Returns the wanted subscriptions that were not found.
pub(super) fn missing(wanted: &[SubscriptionId], found: impl Iterator<Item = SubscriptionId>) -> Vec<SubscriptionId> {
    let found: HashSet<SubscriptionId> = found.collect();
    wanted.iter().copied().filter(|id| !found.contains(id)).collect()
}

pub(super) fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
