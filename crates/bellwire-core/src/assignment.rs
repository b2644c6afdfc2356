//! Former user and time zone of a browser. A campaign run assigns browsers by their values at its due time, so a login or a
//! journey between two of its messages moves no browser from one message to another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::clock::Timestamp;

/// Maximum stored changes of one subscription. With more of them within one run, the browser may get the run twice, or never.
pub const CHANGES_MAX: i32 = 16;

/// A value that a subscription had until it changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// Time of the change, in microseconds since 1970.
    pub until: i64,
    /// Former value.
    pub was: FormerValue,
}

/// A value of a subscription that determines its message of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormerValue {
    /// Time zone of the browser. `None`: not reported.
    Timezone(Option<String>),
    /// User of the browser. `None`: no user, so the browser itself was the person.
    User(Option<FormerUser>),
}

/// A user who has left a browser, without their id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerUser {
    /// Id of the [`Person`](super::person::Person).
    pub person: Uuid,
    /// Positions of the person (ten-thousandths) in running campaigns, by the campaigns' salts.
    pub parts: BTreeMap<String, u16>,
}

/// Values at a past time that differ from the current ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Assigned<'a> {
    /// Time zone. Outer `None`: unchanged since.
    pub timezone: Option<Option<&'a str>>,
    /// User. Outer `None`: unchanged since. Inner `None`: no user.
    pub user: Option<Option<&'a FormerUser>>,
}

impl<'a> Assigned<'a> {
    /// Returns the values that differed at `at`. `former` contains the changes in order.
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
