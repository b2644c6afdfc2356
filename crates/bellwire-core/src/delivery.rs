//! A delivery: one message to one subscription. It has no id of its own; it is `(message, subscription)`.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::named;

/// Declares an enum with numbers for the database: the discriminant plus `$offset`.
macro_rules! numbered {
    ($Enum:ident, $offset:literal) => {
        impl $Enum {
            /// Returns the number stored in the database.
            pub fn code(self) -> i16 {
                self as i16 + $offset
            }

            /// Returns the value of a stored number. `None`: unknown.
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

/// Class of a message, which determines policy, weight, send times and defaults. In JSON it is read as a name or a number (1,
/// 2, 3), and written as a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// One-time codes, payments: reserved capacity, and never deferred by caps or calendar.
    Transactional,
    /// Campaigns and announcements.
    Promotional,
    /// Nudges, digests: lowest weight.
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

impl TryFrom<i16> for Tier {
    type Error = &'static str;

    fn try_from(code: i16) -> Result<Self, Self::Error> {
        Self::from_code(code).ok_or(TIER_RULE)
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
    /// All values in order of their numbers.
    pub const ALL: [Self; 3] = [Self::Transactional, Self::Promotional, Self::Engagement];

    /// Returns the name used in JSON, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Transactional => "transactional",
            Tier::Promotional => "promotional",
            Tier::Engagement => "engagement",
        }
    }
}

named! {
    /// Urgency with which a push service wakes the device (RFC 8030 section 5.3). Each value names the device states in which
    /// it is delivered.
    pub enum Urgency {
        /// Device on power and Wi-Fi.
        VeryLow = "very-low",
        /// Device on power or Wi-Fi.
        Low = "low",
        /// Device on neither power nor Wi-Fi.
        Normal = "normal",
        /// Device with a low battery.
        High = "high",
    }
}

named! {
    /// Result of a delivery; `retry` is the result of an attempt.
    // The numbers are stored in `attempts.ending` and never change their meaning.
    pub enum Ending {
        /// Accepted by the push service (2xx). That does not prove that the notification was displayed.
        Accepted = "accepted" (1),
        /// The attempt failed and a retry was scheduled.
        Retry = "retry" (2),
        /// The subscription no longer exists.
        Gone = "gone" (3),
        /// The time to live of the message ended first.
        Expired = "expired" (4),
        /// Failed permanently. A dead letter has the reason.
        Dead = "dead" (5),
        /// The message was cancelled, or the subscriber unsubscribed.
        Cancelled = "cancelled" (6),
        /// Suppressed by a frequency cap.
        Capped = "capped" (7),
    }
}

impl Ending {
    /// Whether this ending misses the SLA of the tier: the delivery was never accepted, and not because of its recipient.
    pub fn misses_sla(self) -> bool {
        matches!(self, Ending::Expired | Ending::Dead)
    }
}

named! {
    /// Event of a notification, or result of a withdrawal, that a service worker reports.
    pub enum ReceiptKind {
        /// A notification was displayed, or the page's own handler processed the push.
        Displayed = "displayed" (1),
        /// The person clicked the notification or one of its buttons.
        Clicked = "clicked" (2),
        /// The person closed the notification.
        Closed = "closed" (3),
        /// A withdrawn notification was closed.
        Removed = "removed" (4),
        /// A withdrawn notification had not been displayed, and will not be.
        Prevented = "prevented" (5),
        /// A withdrawn notification had been clicked or closed before.
        Missed = "missed" (6),
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/core/unit/delivery.rs"]
mod tests;
