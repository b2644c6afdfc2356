//! A message that is sent, whom it is addressed to, and what becomes of it.

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
    /// `to`, as it was given.
    pub audience: Value,
    /// Filter of its audience. `None`: all of it. Only with an audience without named recipients.
    pub filter: Option<AudienceFilter>,
    /// Sealed [`bellwire_core::message::Content`], as JSON.
    pub content: Vec<u8>,
    pub ttl_s: i32,
    pub urgency: Urgency,
    /// Hash of its collapse key.
    pub topic_header: Option<String>,
    pub policy: Option<Value>,
    /// Whether its pushes carry our envelope, and with it the token that receipts come with.
    pub enveloped: bool,
    /// Time of acceptance, or of a scheduled message, its time.
    pub accepted_at: Timestamp,
    /// Time at which the API accepted a message for later. `None`: it is not for later.
    pub received_at: Option<Timestamp>,
    /// Whether it uses cursors for any size of audience, unless recipients are named. Scheduled messages always do.
    pub by_cursors: bool,
    /// Name given by its sender.
    pub key: Option<String>,
    /// The span of its request, if that is traced.
    pub traceparent: Option<String>,
    /// Sender: the id of an API key or a teammate. `None`: a sender without one.
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
    Topic {
        name: String,
        /// Whether it is no mistake if there is no such topic: browsers may make topics by joining.
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
    /// Whether it is scheduled for an audience that subscribers may still join.
    pub(super) fn awaits_newcomers(&self) -> bool {
        self.message.is_for_later() && !self.audience.is_named()
    }

    /// Whether nothing was stored, because none of its named recipients exists.
    pub(super) fn is_refused(&self, sent: &Sent) -> bool {
        let needs_topic = matches!(self.audience, Audience::Topic { may_be_missing: false, .. });
        !sent.unknown.is_empty() || needs_topic && sent.lacks_topic
    }
}

/// Holder of rows that are born leased, who must send [`Sent::born`] after the commit.
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
        matches!(self, Self::Subscriptions(_) | Self::Users(_))
    }

    /// The users that it names, none if it names no users.
    pub(super) fn users(&self) -> Option<&[String]> {
        if let Self::Users(users) = self { Some(users) } else { None }
    }
}

/// An audience that was looked up.
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

/// A delivery that was born leased to this process.
#[derive(Debug)]
pub struct Born {
    /// Lane of the subscription.
    pub lane: LaneId,
    /// As if it had been claimed.
    pub row: ClaimedRow,
    /// Message of the row, as if it had been read.
    pub message: MessageRow,
    /// Settings for messages of its app and tier at the time of storing. The deliveries of the first message among those written
    /// together have them. No delivery has them if that message is refused, or has no recipients.
    pub conditions: Option<Conditions>,
}

#[derive(Debug, Default)]
pub struct Sent {
    /// Subscriptions that do not exist in this app. If there are any, nothing was done.
    pub unknown: Vec<SubscriptionId>,
    /// Recipients that other subscriptions have replaced. If there are any, nothing was done.
    pub(super) replaced: Vec<SubscriptionId>,
    /// Whether no topic of that name existed. If that is a mistake, nothing was done.
    pub lacks_topic: bool,
    /// Deliveries to make, as far as known now.
    pub estimate: i64,
    /// Margin of the estimate, in 95 of 100 cases.
    pub margin: i64,
    /// Whether recipients are still to be found, independent of the estimate.
    pub expands: bool,
    /// Named subscriptions that are not active, or users without an active one.
    pub unreachable: i64,
    /// The message that has its key. If there is one, nothing was done.
    pub key_taken_by: Option<MessageId>,
    /// Rows that were born leased, for the [`LeaseHolder`].
    pub born: Vec<Born>,
}

/// Those of `wanted` that are not among the found.
pub(super) fn missing(wanted: &[SubscriptionId], found: impl Iterator<Item = SubscriptionId>) -> Vec<SubscriptionId> {
    let found: HashSet<SubscriptionId> = found.collect();
    wanted.iter().copied().filter(|id| !found.contains(id)).collect()
}

pub(super) fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
