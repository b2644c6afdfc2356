//! A delivery: one message to one subscription. It has no id of its own; it is `(message, subscription)`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::PartialSchema as _;
use utoipa::openapi::{ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema, Type};

/// Decides policy, weight, window and defaults of a message. Read by its name or its number, 1, 2 or 3; written by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// One-time codes, payments: reserved capacity, never batched or held.
    Transactional,
    /// Campaigns, announcements.
    Promotional,
    /// Nudges, digests: the lowest weight.
    Engagement,
}

/// What a tier looks like, for whoever got it wrong.
const TIER_RULE: &str = "must be transactional (1), promotional (2) or engagement (3)";

/// What a tier looks like in requests, which may write it by its name or its number.
pub(crate) struct TierSchema;

impl utoipa::PartialSchema for TierSchema {
    fn schema() -> RefOr<Schema> {
        let numbers = ObjectBuilder::new().schema_type(Type::Integer).enum_values(Some(Tier::ALL.map(Tier::code)));
        let name = Ref::from_schema_name(<Tier as utoipa::ToSchema>::name());
        Schema::OneOf(OneOfBuilder::new().item(name).item(numbers).build()).into()
    }
}

impl utoipa::ToSchema for TierSchema {
    fn name() -> Cow<'static, str> {
        "TierRef".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((<Tier as utoipa::ToSchema>::name().into_owned(), Tier::schema()));
    }
}

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
    /// Every tier, the most urgent first.
    pub const ALL: [Tier; 3] = [Tier::Transactional, Tier::Promotional, Tier::Engagement];

    /// The number that stands for this tier in the database.
    pub fn code(self) -> i16 {
        self as i16 + 1
    }

    /// The tier of a database number.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.get(usize::try_from(code - 1).ok()?).copied()
    }

    /// The name used in JSON, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Transactional => "transactional",
            Tier::Promotional => "promotional",
            Tier::Engagement => "engagement",
        }
    }
}

/// How urgently the gateway should wake the device (RFC 8030 section 5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Urgency {
    /// On power and Wi-Fi.
    VeryLow,
    /// On either power or Wi-Fi.
    Low,
    /// On neither power nor Wi-Fi.
    Normal,
    /// Even at low battery.
    High,
}

impl Urgency {
    /// Every urgency, the least first; its place is its database number.
    pub const ALL: [Urgency; 4] = [Urgency::VeryLow, Urgency::Low, Urgency::Normal, Urgency::High];

    /// The value of the `Urgency` header.
    pub fn header(self) -> &'static str {
        match self {
            Urgency::VeryLow => "very-low",
            Urgency::Low => "low",
            Urgency::Normal => "normal",
            Urgency::High => "high",
        }
    }

    /// The number that stands for this urgency in the database.
    pub fn code(self) -> i16 {
        self as i16
    }

    /// The urgency of a database number.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

/// How a delivery ended, or, for [`Retry`](Ending::Retry), how an attempt did.
///
/// The numbers are stored in `attempts.ending` and never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[repr(i16)]
pub enum Ending {
    /// The gateway took it (2xx). It does not say that anybody saw it.
    Accepted = 1,
    /// The attempt failed and another one was scheduled.
    Retry = 2,
    /// The subscription does not exist any more.
    Gone = 3,
    /// Its time to live ran out first.
    Expired = 4,
    /// Given up; a dead letter tells why.
    Dead = 5,
    /// Its message was cancelled or its subscription unsubscribed.
    Cancelled = 6,
    /// Held back by a frequency cap.
    Capped = 7,
}

impl Ending {
    /// Every ending in the order of its number.
    pub const ALL: [Ending; 7] = [
        Ending::Accepted,
        Ending::Retry,
        Ending::Gone,
        Ending::Expired,
        Ending::Dead,
        Ending::Cancelled,
        Ending::Capped,
    ];

    /// The number that stands for this ending in the database.
    pub fn code(self) -> i16 {
        self as i16
    }

    /// The ending of a database number.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.get(usize::try_from(code - 1).ok()?).copied()
    }

    /// Whether a delivery that ended so was never accepted in time, and no fault of its recipient's: then it misses the SLA
    /// of its tier.
    pub(crate) fn misses_sla(self) -> bool {
        matches!(self, Ending::Expired | Ending::Dead)
    }

    /// The name used in JSON, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Accepted => "accepted",
            Ending::Retry => "retry",
            Ending::Gone => "gone",
            Ending::Expired => "expired",
            Ending::Dead => "dead",
            Ending::Cancelled => "cancelled",
            Ending::Capped => "capped",
        }
    }
}

/// What a service worker reports of a delivery. The numbers are stored in `receipts.kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[repr(i16)]
pub enum ReceiptKind {
    /// A notification was shown, or the page's own handler took the push.
    Displayed = 1,
    /// The person clicked it, or one of its buttons.
    Clicked = 2,
    /// The person closed it.
    Closed = 3,
}

impl ReceiptKind {
    /// Every kind in the order of its number.
    pub const ALL: [ReceiptKind; 3] = [ReceiptKind::Displayed, ReceiptKind::Clicked, ReceiptKind::Closed];

    /// The number that stands for this kind in the database.
    pub fn code(self) -> i16 {
        self as i16
    }

    /// The kind of a database number.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.get(usize::try_from(code - 1).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_goes_by_its_name_or_its_number() {
        for (tier, name, number) in [
            (Tier::Transactional, "transactional", 1),
            (Tier::Promotional, "promotional", 2),
            (Tier::Engagement, "engagement", 3),
        ] {
            for written in [serde_json::json!(name), serde_json::json!(number), serde_json::json!(number.to_string())] {
                assert_eq!(serde_json::from_value::<Tier>(written.clone()).unwrap(), tier, "{written}");
            }
            assert_eq!((name.parse(), number.to_string().parse()), (Ok(tier), Ok(tier)));
            assert_eq!(serde_json::to_value(tier).unwrap(), name);
        }
        for wrong in
            ["\"promo\"", "\"Promotional\"", "\"\"", "\"01\"", "0", "4", "-1", "65537", "1.5", "true", "null", "[1]"]
        {
            let error = serde_json::from_str::<Tier>(wrong).unwrap_err().to_string();
            assert!(error.contains("transactional (1), promotional (2) or engagement (3)"), "{wrong}: {error}");
        }
    }

    #[test]
    fn every_stored_number_reads_back_as_what_it_stood_for() {
        assert!(Tier::ALL.into_iter().all(|t| Tier::from_code(t.code()) == Some(t)));
        assert!(Urgency::ALL.into_iter().all(|u| Urgency::from_code(u.code()) == Some(u)));
        assert!(Ending::ALL.into_iter().all(|e| Ending::from_code(e.code()) == Some(e)));
        assert!(ReceiptKind::ALL.into_iter().all(|k| ReceiptKind::from_code(k.code()) == Some(k)));
        assert_eq!((Tier::from_code(0), Urgency::from_code(-1), Ending::from_code(8)), (None, None, None));
    }
}
