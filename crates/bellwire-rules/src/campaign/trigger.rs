//! Triggers: events that let one person enter a campaign, and events that end the wait for its message.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use super::follow::FollowCondition;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::CampaignId;
use bellwire_core::user_event::is_event_name;
use bellwire_segment::Expression;

/// Maximum age of an event that lets people enter. So a history can be reported without sending.
pub const ENTERS_FOR: TimeDelta = TimeDelta::days(1);
/// Cause that lets a person enter a trigger.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A browser subscribed.
    Subscribed,
    /// A browser joined this topic.
    Joined(String),
    /// The site reported an event with this name.
    Event(String),
    /// A message of this campaign was sent.
    Sent(CampaignId),
}

impl Cause {
    /// Returns the name of the event, if it is one that the site reports.
    pub fn event(&self) -> Option<&str> {
        if let Self::Event(name) = self { Some(name) } else { None }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subscribed => f.write_str("subscribed"),
            Self::Joined(topic) => write!(f, "joined:{topic}"),
            Self::Event(name) => write!(f, "event:{name}"),
            Self::Sent(campaign) => write!(f, "sent:{campaign}"),
        }
    }
}

/// Error of a text that names no cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoCause;

impl FromStr for Cause {
    type Err = NoCause;

    fn from_str(text: &str) -> Result<Self, NoCause> {
        match text.split_once(':') {
            None if text == "subscribed" => Ok(Self::Subscribed),
            Some(("joined", topic)) if !topic.is_empty() => Ok(Self::Joined(topic.to_owned())),
            Some(("event", name)) if is_event_name(name) => Ok(Self::Event(name.to_owned())),
            Some(("sent", campaign)) => campaign.parse().map(Self::Sent).map_err(|_| NoCause),
            _ => Err(NoCause),
        }
    }
}

impl Serialize for Cause {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cause {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(|_| serde::de::Error::custom("no cause"))
    }
}

/// Rule by which people enter a campaign one by one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trigger {
    /// Cause that lets a person enter.
    pub on: Cause,
    /// Condition on the properties of the event. `None`: any event.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Expression>,
    /// Seconds from the event to the message.
    pub after_s: i64,
    /// Names of events that end the wait.
    pub unless: Vec<String>,
    /// Limit of messages to one person. `None`: no limit.
    pub at_most: Option<AtMost>,
    /// Reaction to the followed message that people lack. `None`: not a follow-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub did_not: Option<FollowCondition>,
}

/// Limit of messages that one person gets from a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtMost {
    /// One message, ever.
    Once,
    /// One message within this many seconds.
    OncePer(i64),
}

impl AtMost {
    fn allows(self, sent_at: Timestamp, at: Timestamp) -> bool {
        match self {
            Self::Once => false,
            Self::OncePer(seconds) => sent_at + TimeDelta::seconds(seconds) <= at,
        }
    }
}

/// A person's row in a trigger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EntryState {
    /// Time of the event, if the person waits for a message.
    pub waits_since: Option<Timestamp>,
    /// Time of the last message to the person.
    pub sent_at: Option<Timestamp>,
}

/// Result of an event for a person who may enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entering {
    /// The person waits until this time.
    Until(Timestamp),
    /// An event that ends the wait came first. It was reported earlier.
    Cancelled,
    /// The person waits already.
    Waits,
    /// The person had a message too recently.
    Limited,
    /// The event is older than [`ENTERS_FOR`].
    Old,
}

impl Trigger {
    /// Returns the result of an event that lets a person enter. `is_ended`: a later event, which was reported earlier, ends the wait.
    pub fn enter(&self, entry: EntryState, at: Timestamp, is_ended: bool, now: Timestamp) -> Entering {
        let is_limited = |sent_at| self.at_most.is_some_and(|at_most| !at_most.allows(sent_at, at));
        if at < now - ENTERS_FOR {
            Entering::Old
        } else if entry.waits_since.is_some() {
            Entering::Waits
        } else if entry.sent_at.is_some_and(is_limited) {
            Entering::Limited
        } else if is_ended {
            Entering::Cancelled
        } else {
            Entering::Until(at + TimeDelta::seconds(self.after_s))
        }
    }

    /// Whether an event with this name ends the wait of a person who entered at `since`.
    pub fn ends(&self, name: &str, at: Timestamp, since: Timestamp) -> bool {
        at >= since && self.unless.iter().any(|unless| unless == name)
    }
}

/// Something that happened to a person, for a trial of a trigger.
#[derive(Debug, Clone, PartialEq)]
pub struct PastEvent {
    /// Person of the event, in any numbering.
    pub person: u128,
    /// Time of the event.
    pub at: Timestamp,
    /// Name of an event that may end a wait. `None`: it lets the person enter.
    pub ends: Option<String>,
}

/// An entry of a trial, or an event without an entry because of the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialEntry {
    /// Time of the event.
    pub at: Timestamp,
    /// Result for the person.
    pub result: TrialResult,
}

/// Result of an entry in a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialResult {
    /// A message would have been created at this time, or will be.
    Message(Timestamp),
    /// An event with this name ended the wait.
    Cancelled(String, Timestamp),
    /// The person did not enter, because of the limit.
    Limited,
}

impl Trigger {
    /// Applies the trigger to past events in order of time. Returns the entries, and the events that the limit refused.
    pub fn try_out(&self, mut events: Vec<PastEvent>) -> Vec<TrialEntry> {
        events.sort_by_key(|event| event.at);
        let mut waiting = BTreeMap::<u128, (Timestamp, Timestamp)>::new();
        let mut sent = BTreeMap::<u128, Timestamp>::new();
        let mut entries = Vec::new();
        for PastEvent { person, at, ends } in events {
            if let Some((since, _)) = waiting.get(&person).copied().filter(|(_, until)| *until > at) {
                if let Some(name) = ends.filter(|name| self.ends(name, at, since)) {
                    waiting.remove(&person);
                    entries.push(TrialEntry { at: since, result: TrialResult::Cancelled(name, at) });
                }
                continue;
            }
            if let Some((since, until)) = waiting.remove(&person) {
                sent.insert(person, until);
                entries.push(TrialEntry { at: since, result: TrialResult::Message(until) });
            }
            let state = EntryState { waits_since: None, sent_at: sent.get(&person).copied() };
            match ends.is_none().then(|| self.enter(state, at, false, at)) {
                Some(Entering::Until(until)) => drop(waiting.insert(person, (at, until))),
                Some(Entering::Limited) => entries.push(TrialEntry { at, result: TrialResult::Limited }),
                _ => {}
            }
        }
        entries.extend(waiting.into_values().map(|(at, until)| TrialEntry { at, result: TrialResult::Message(until) }));
        entries.sort_by_key(|entry| entry.at);
        entries
    }
}

#[cfg(test)]
#[path = "../../../../tests/crates/rules/unit/campaign/trigger.rs"]
mod tests;
