//! Former person and time zone of a browser. A run of a campaign assigns browsers by their values at its due time, so a login or
//! a journey between two of its messages moves no browser from one message to another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::clock::Timestamp;

/// Changes of one subscription that are kept. More of them within one run may bring that run twice, or never.
pub const CHANGES_MAX: i32 = 16;

/// A value that a subscription had until it changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// Time of the change, in microseconds since 1970.
    pub until: i64,
    /// Former value.
    pub was: FormerValue,
}

/// A value of a subscription that decides for which message of a run it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormerValue {
    /// Time zone of the browser. `None`: it reported none.
    Timezone(Option<String>),
    /// User of the browser. `None`: it had no user, so the browser itself was the person.
    User(Option<FormerUser>),
}

/// A user who has left a browser, without their id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerUser {
    /// Id of the [`Person`](super::person::Person).
    pub person: Uuid,
    /// Positions of the person, in ten-thousandths, by the salts of the campaigns that were running.
    pub parts: BTreeMap<String, u16>,
}

/// Values at a time that differ from the current ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Assigned<'a> {
    /// The time zone. Outer none: it has not changed since.
    pub timezone: Option<Option<&'a str>>,
    /// The user. Outer none: not changed since; inner none: it belonged to no user.
    pub user: Option<Option<&'a FormerUser>>,
}

impl<'a> Assigned<'a> {
    /// Returns what differed at `at`, of changes in order.
    pub fn at(former: &'a [Former], at: Timestamp) -> Self {
        let mut assigned = Self::default();
        // The first change after that time is the one that counts: backwards, it is the last that is met.
        for change in former.iter().rev().filter(|change| change.until > at.timestamp_micros()) {
            match &change.was {
                FormerValue::Timezone(zone) => assigned.timezone = Some(zone.as_deref()),
                FormerValue::User(user) => assigned.user = Some(user.as_ref()),
            }
        }
        assigned
    }
}
