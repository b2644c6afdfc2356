//! A delivery: one message to one subscription. It has no id of its own; it is `(message, subscription)`.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::named;

/// Numbers of an enum's values in the database: the discriminant plus `$offset`.
macro_rules! numbered {
    ($Enum:ident, $offset:literal) => {
        impl $Enum {
            /// The number that stands for this value in the database.
            pub fn code(self) -> i16 {
                self as i16 + $offset
            }

            /// The value of a database number.
            pub fn from_code(code: i16) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.code() == code)
            }
        }
    };
}

numbered!(Tier, 1);
numbered!(Urgency, 0);
numbered!(Ending, 0);
numbered!(ReceiptKind, 0);

/// Decides policy, weight, window and defaults of a message. Read by its name or its number, 1, 2 or 3; written by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// One-time codes, payments: reserved capacity, never batched or held.
    Transactional,
    /// Campaigns and announcements.
    Promotional,
    /// Nudges, digests: the lowest weight.
    Engagement,
}

const TIER_RULE: &str = "must be transactional (1), promotional (2) or engagement (3)";

impl FromStr for Tier {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_it = |tier: &Tier| text == tier.name() || text == tier.code().to_string();
        Self::ALL.into_iter().find(is_it).ok_or(TIER_RULE)
    }
}

impl<'de> Deserialize<'de> for Tier {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrNumber;

        impl Visitor<'_> for NameOrNumber {
            type Value = Tier;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("transactional (1), promotional (2) or engagement (3)")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Tier, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Tier, E> {
                i16::try_from(number).ok().and_then(Tier::from_code).ok_or_else(|| E::custom(TIER_RULE))
            }
        }

        deserializer.deserialize_any(NameOrNumber)
    }
}

impl Tier {
    /// Every value in the order of its number.
    pub const ALL: [Self; 3] = [Self::Transactional, Self::Promotional, Self::Engagement];

    /// The name used in JSON, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Transactional => "transactional",
            Tier::Promotional => "promotional",
            Tier::Engagement => "engagement",
        }
    }
}

named! {
    /// Urgency with which a push service wakes the device (RFC 8030 section 5.3).
    pub enum Urgency {
        /// On power and Wi-Fi.
        VeryLow = "very-low",
        /// On either power or Wi-Fi.
        Low = "low",
        /// On neither power nor Wi-Fi.
        Normal = "normal",
        /// Even at low battery.
        High = "high",
    }
}

named! {
    /// Result of a delivery; [`Retry`](Ending::Retry) is the result of an attempt.
    ///
    /// The numbers are stored in `attempts.ending` and never change their meaning.
    pub enum Ending {
        /// The gateway accepted it (2xx). This does not prove that a person saw it.
        Accepted = "accepted" (1),
        /// The attempt failed and another one was scheduled.
        Retry = "retry" (2),
        /// The subscription no longer exists.
        Gone = "gone" (3),
        /// The time to live of the message ended first.
        Expired = "expired" (4),
        /// Failed for good. A dead letter has the reason.
        Dead = "dead" (5),
        /// The message was cancelled, or the subscriber unsubscribed.
        Cancelled = "cancelled" (6),
        /// Held back by a frequency cap.
        Capped = "capped" (7),
    }
}

impl Ending {
    /// Whether a delivery that ended so was never accepted in time, and no fault of its recipient's: then it misses the SLA
    /// of its tier.
    pub fn misses_sla(self) -> bool {
        matches!(self, Ending::Expired | Ending::Dead)
    }
}

named! {
    /// Event of a notification that a service worker reports. The numbers are stored in `receipts.kind`.
    pub enum ReceiptKind {
        /// A notification was shown, or the page's own handler took the push.
        Displayed = "displayed" (1),
        /// The person clicked it, or one of its buttons.
        Clicked = "clicked" (2),
        /// The person closed it.
        Closed = "closed" (3),
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/core/unit/delivery.rs"]
mod tests;
