//! Checks of what may be said about a subscription: tags, attributes, topics, locale, time zone, user.

use serde_json::{Map, Value};

use super::extract::{TOPIC_NAME_RULE, TopicName, USER_ID_RULE, is_plain_text};
use super::problem::{Faults, pointer_segment};
use crate::model::message::is_language_tag;
use crate::model::permission::Speaker;
use crate::store::audience::subscriptions::{ATTRIBUTES_MAX, Changes, Merge};

/// Most tags of a subscription.
const TAGS_MAX: usize = 50;
/// Longest tag, and longest name of an attribute, in characters.
const TAG_CHARS_MAX: usize = 64;
/// Most topics that one request names.
const TOPICS_MAX: usize = 50;

/// Attributes as they are given.
pub(crate) type Attributes = Map<String, Value>;

/// What is said, unchecked.
#[derive(Debug)]
pub(crate) struct Said {
    /// Who says it.
    pub by: Speaker,
    /// `user_id`
    pub user_id: Option<Option<String>>,
    /// `tags`
    pub tags: Option<Vec<String>>,
    /// `attributes`
    pub attributes: Option<Attributes>,
    /// `topics`
    pub topics: Option<Vec<String>>,
    /// `locale`
    pub locale: Option<Option<String>>,
    /// `timezone`
    pub timezone: Option<Option<String>>,
}

impl Said {
    /// Checks it all; complaints go into `faults`.
    pub(crate) fn check(self, merge: Merge, faults: &mut Faults) -> Changes {
        if let Some(Some(user)) = &self.user_id {
            faults.require(is_plain_text(user, 255), "/user_id", USER_ID_RULE);
        }
        if let Some(Some(locale)) = &self.locale {
            faults.require(is_language_tag(locale), "/locale", "must be a BCP 47 language tag such as `en` or `pt-BR`");
        }
        if let Some(Some(zone)) = &self.timezone {
            faults.require(is_time_zone(zone), "/timezone", "must be an IANA time zone such as `Europe/Berlin`");
        }
        let tags = self.tags.map(|tags| check_tags(tags, faults));
        let topics = self.topics.map(|topics| check_topics(topics, faults));
        if let Some(attributes) = &self.attributes {
            check_attributes(attributes, merge, faults);
        }
        Changes {
            by: self.by,
            user_id: self.user_id,
            tags,
            attributes: self.attributes.map(|attributes| (attributes, merge)),
            topics,
            locale: self.locale,
            timezone: self.timezone,
        }
    }
}

fn each_once(mut texts: Vec<String>) -> Vec<String> {
    texts.sort_unstable();
    texts.dedup();
    texts
}

fn check_tags(tags: Vec<String>, faults: &mut Faults) -> Vec<String> {
    if tags.len() > TAGS_MAX {
        faults.refuse("/tags", format!("may hold at most {TAGS_MAX} tags"));
        return Vec::new();
    }
    for (i, tag) in tags.iter().enumerate() {
        if !is_plain_text(tag, TAG_CHARS_MAX) {
            let detail = format!("must be 1 to {TAG_CHARS_MAX} characters without control characters");
            faults.refuse(format!("/tags/{i}"), detail);
        }
    }
    each_once(tags)
}

/// Checks names of topics that stand at `/topics`; returns each once, sorted.
pub(super) fn check_topics(topics: Vec<String>, faults: &mut Faults) -> Vec<String> {
    if topics.len() > TOPICS_MAX {
        faults.refuse("/topics", format!("may hold at most {TOPICS_MAX} topics"));
        return Vec::new();
    }
    for (i, topic) in topics.iter().enumerate() {
        if topic.parse::<TopicName>().is_err() {
            faults.refuse(format!("/topics/{i}"), TOPIC_NAME_RULE);
        }
    }
    each_once(topics)
}

fn check_attributes(attributes: &Attributes, merge: Merge, faults: &mut Faults) {
    for (name, value) in attributes {
        let at = format!("/attributes/{}", pointer_segment(name));
        if !is_plain_text(name, TAG_CHARS_MAX) {
            faults.refuse(at, format!("names must be 1 to {TAG_CHARS_MAX} characters without control characters"));
            continue;
        }
        match value {
            Value::Bool(_) | Value::Number(_) => {}
            // Postgres keeps no NUL in jsonb.
            Value::String(text) if !text.contains('\0') => {}
            Value::Null if merge == Merge::Patch => {}
            _ => faults.refuse(at, "must be a string without NUL, a number, true or false"),
        }
    }
    let octets = Value::Object(attributes.clone()).to_string().len();
    if octets > ATTRIBUTES_MAX {
        faults.refuse("/attributes", format!("are {octets} octets of JSON; at most {ATTRIBUTES_MAX} are kept"));
    }
}

/// Whether a text has the form of a name in the IANA time zone database. Whether the zone exists is not looked at.
fn is_time_zone(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .split('/')
            .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_+-".contains(&b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_zones_have_the_form_of_the_database() {
        for good in ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+3", "EST5EDT"] {
            assert!(is_time_zone(good), "{good}");
        }
        for bad in ["", "/", "Europe/", "Europe//Berlin", "+02:00", "Europe/Ber lin", "é"] {
            assert!(!is_time_zone(bad), "{bad}");
        }
    }
}
