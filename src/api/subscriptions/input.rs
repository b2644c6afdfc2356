//! Checks the optional members of a subscription: tags, attributes, topics, locale, time zone.
//!
//! An invalid member is omitted, and the caller decides whether to refuse the request.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api::http::extract::{TOPIC_NAME_RULE, TopicName, USER_ID_RULE, is_plain_text, is_user_id};
use crate::api::http::problem::{Faults, FieldError, pointer_segment};
use bellwire_core::clock::Timestamp;
use bellwire_core::locale::language_tag;
use bellwire_core::permission::Speaker;
use bellwire_core::request_time;
use bellwire_core::time_zone::time_zone;
use bellwire_rules::policy::calendar;
use bellwire_store::audience::subscriptions::{ATTRIBUTES_MAX, Changes, Merge};

const TAGS_MAX: usize = 50;
/// Maximum characters of a tag, and of an attribute's name.
const TAG_CHARS_MAX: usize = 64;
const TAG_RULE: &str = "must be 1 to 64 characters without control characters";
const TOPICS_MAX: usize = 50;
const LOCALE_RULE: &str = "must be a BCP 47 language tag such as `en` or `pt-BR`";
const ZONE_RULE: &str = "must be an IANA time zone such as `Europe/Berlin`";

pub(crate) type AttributeMap = Map<String, Value>;

/// Unchecked members of a request. `None`: absent. `Null`: to be removed.
#[derive(Debug)]
pub(crate) struct SubscriptionInput {
    pub by: Speaker,
    pub user_id: Option<Option<String>>,
    pub tags: Option<Value>,
    pub attributes: Option<Value>,
    pub topics: Option<Value>,
    pub locale: Option<Value>,
    pub timezone: Option<Value>,
    /// Inner `None`: all messages are sent.
    pub muted: Option<Option<Muted>>,
}

/// Time in which only transactional messages reach a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Muted {
    /// End of that time, at most 366 days ahead. Null: none.
    #[serde(default, deserialize_with = "request_time::optional")]
    pub until: Option<DateTime<Utc>>,
}

/// Stored end of a time that has none: 9999-12-31.
const NO_END_S: i64 = 253_402_214_400;
const MUTED_MAX: TimeDelta = TimeDelta::days(366);

impl Muted {
    /// Returns the stored end of a time that has none.
    pub(in crate::api) fn without_end() -> Timestamp {
        DateTime::from_timestamp(NO_END_S, 0).unwrap_or(DateTime::<Utc>::MAX_UTC)
    }

    /// Returns the member of a response. `None`: not muted now.
    pub(in crate::api) fn stored(until: Option<Timestamp>, now: Timestamp) -> Option<Self> {
        let until = until.filter(|until| *until > now)?;
        Some(Self { until: (until.timestamp() != NO_END_S).then_some(until) })
    }

    /// Returns the time to store, or adds a fault.
    fn check(self, now: Timestamp, faults: &mut Faults) -> Option<Timestamp> {
        let fits = self.until.is_none_or(|until| until <= now + MUTED_MAX);
        faults.require(fits, "/muted/until", "must be at most 366 days ahead; null has no end");
        fits.then(|| self.until.unwrap_or_else(Self::without_end))
    }
}

impl SubscriptionInput {
    /// Returns the valid members in normal form. The others are absent, with a fault in `faults`.
    pub(crate) fn check(self, merge: Merge, now: Timestamp, faults: &mut Faults) -> Changes {
        let tags = self.tags.and_then(|tags| list(tags, ("/tags", TAGS_MAX), is_tag, TAG_RULE, faults));
        let topics =
            self.topics.and_then(|topics| list(topics, ("/topics", TOPICS_MAX), is_topic, TOPIC_NAME_RULE, faults));
        let locale = self.locale.and_then(|locale| name(locale, "/locale", language_tag, LOCALE_RULE, faults));
        let timezone = self.timezone.and_then(|zone| name(zone, "/timezone", time_zone, ZONE_RULE, faults));
        let attributes = self.attributes.and_then(|attributes| check_attributes(attributes, merge, faults));
        let muted_until = match self.muted {
            Some(Some(muted)) => muted.check(now, faults).map(Some),
            unmuted => unmuted.map(|_| None),
        };
        Changes {
            by: self.by,
            user_id: self.user_id,
            tags,
            attributes: attributes.map(|attributes| (attributes, merge)),
            topics,
            locale,
            timezone,
            muted_until,
        }
    }
}

/// Returns a warning about a time zone that is stored, although this server's database lacks it.
pub(crate) fn zone_warning(timezone: Option<&Option<String>>) -> Option<FieldError> {
    let zone = timezone?.as_deref().filter(|name| calendar::zone(name).is_none())?;
    let detail = format!("{zone:?} is stored, but this server knows no such time zone; check the spelling");
    Some(FieldError::member("/timezone", detail))
}

/// Parses a user id: a string or a number. `Some(None)`: null. `None`: absent, or a fault was added.
pub(crate) fn user_id(given: Option<Option<Value>>, faults: &mut Faults) -> Option<Option<String>> {
    let id = match given? {
        None => return Some(None),
        Some(Value::String(id)) => Some(id),
        Some(Value::Number(id)) => Some(id.to_string()),
        Some(_) => None,
    };
    let id = id.filter(|id| is_user_id(id));
    faults.require(id.is_some(), "/user_id", USER_ID_RULE);
    id.map(Some)
}

fn is_tag(text: &str) -> bool {
    is_plain_text(text, TAG_CHARS_MAX)
}

fn is_topic(text: &str) -> bool {
    text.parse::<TopicName>().is_ok()
}

/// Parses a name and returns its normal form. Of an array, such as `navigator.languages`, the first valid item counts.
/// `Some(None)`: null.
fn name(
    value: Value, at: &str, read: fn(&str) -> Option<String>, rule: &str, faults: &mut Faults,
) -> Option<Option<String>> {
    let found = match &value {
        Value::Null => return Some(None),
        Value::String(text) => read(text),
        Value::Array(items) => items.iter().filter_map(Value::as_str).find_map(read),
        _ => None,
    };
    faults.require(found.is_some(), at, rule);
    found.map(Some)
}

/// Parses an array of strings, or a single string. Returns the valid items, sorted and without duplicates.
fn list(
    value: Value, (at, max): (&str, usize), fits: fn(&str) -> bool, rule: &str, faults: &mut Faults,
) -> Option<Vec<String>> {
    let (items, is_single) = match value {
        Value::Null => (Vec::new(), false),
        Value::Array(items) => (items, false),
        Value::String(text) => (vec![Value::String(text)], true),
        _ => {
            faults.refuse(at, "must be an array of strings");
            return None;
        }
    };
    if items.len() > max {
        faults.refuse(at, format!("may hold at most {max} items"));
    }
    let mut kept = Vec::new();
    for (i, item) in items.into_iter().take(max).enumerate() {
        match item {
            Value::String(text) if fits(&text) => kept.push(text),
            _ if is_single => {
                faults.refuse(at, rule);
                return None;
            }
            _ => faults.refuse(format!("{at}/{i}"), rule),
        }
    }
    kept.sort_unstable();
    kept.dedup();
    Some(kept)
}

/// Checks topic names at `/topics`. Returns them sorted and without duplicates.
pub(in crate::api) fn check_topics(topics: Vec<String>, faults: &mut Faults) -> Vec<String> {
    list(topics.into(), ("/topics", TOPICS_MAX), is_topic, TOPIC_NAME_RULE, faults).unwrap_or_default()
}

fn check_attributes(attributes: Value, merge: Merge, faults: &mut Faults) -> Option<AttributeMap> {
    let mut attributes = match attributes {
        Value::Null => Map::new(),
        Value::Object(members) => members,
        _ => {
            faults.refuse("/attributes", "must be an object");
            return None;
        }
    };
    attributes.retain(|name, value| {
        let rule = match value {
            _ if !is_tag(name) => "names must be 1 to 64 characters without control characters",
            Value::Bool(_) | Value::Number(_) => return true,
            // Postgres keeps no NUL in jsonb.
            Value::String(text) if !text.contains('\0') => return true,
            Value::Null if merge == Merge::Patch => return true,
            _ => "must be a string without NUL, a number, true or false",
        };
        faults.refuse(format!("/attributes/{}", pointer_segment(name)), rule);
        false
    });
    let octets = serde_json::to_string(&attributes).map_or(0, |text| text.len());
    if octets > ATTRIBUTES_MAX {
        faults.refuse("/attributes", format!("are {octets} octets of JSON; at most {ATTRIBUTES_MAX} are kept"));
        return None;
    }
    Some(attributes)
}
