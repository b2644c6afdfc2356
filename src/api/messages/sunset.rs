//! `sunset`: rule of a message that excludes recipients who do not click notifications.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::http::problem::Faults;
use bellwire_core::delivery::Tier;
use bellwire_core::duration;
use bellwire_segment::Sunset;

/// Maximum number of unclicked messages in a rule.
const UNCLICKED_MAX: u16 = 100;
/// Maximum time span of a rule in seconds. Older displays are not stored.
const SPAN_MAX_S: i64 = 365 * 86_400;
/// Default time in seconds during which new subscribers are not excluded.
const WELCOME_S: i64 = 30 * 86_400;
const UNCLICKED_FOR_RULE: &str = "must be a span from 1h to 365d, such as 60d";
const WELCOME_RULE: &str = "must be a span up to 365d, such as 30d";

/// Rule that excludes recipients who meet all its conditions. At least one of `unclicked` and `unclicked_for` is required.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SunsetRule)]
pub(crate) struct SunsetBody {
    /// Minimum number of messages displayed since the recipient's last click: 1 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    unclicked: Option<u16>,
    /// Minimum time between the first and the last of these messages: a whole number with `h` or `d`, `1h` to `365d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 10)]
    unclicked_for: Option<String>,
    /// Minimum time since the recipient subscribed, up to `365d`. By default `30d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 10)]
    welcome: Option<String>,
}

impl SunsetBody {
    /// Checks the rule. `is_named`: the message names its recipients, which the rule does not allow.
    pub(in crate::api) fn check(&self, tier: Tier, is_named: bool, faults: &mut Faults) -> Option<Sunset> {
        faults.require(
            tier != Tier::Transactional,
            "/sunset",
            "is not for transactional messages: they exclude no subscription",
        );
        faults.require(!is_named, "/sunset", "is for messages to a topic, a segment or all");
        let is_given = self.unclicked.is_some() || self.unclicked_for.is_some();
        faults.require(is_given, "/sunset", "must have `unclicked`, `unclicked_for` or both");
        let fits = self.unclicked.is_none_or(|n| (1..=UNCLICKED_MAX).contains(&n));
        faults.require(fits, "/sunset/unclicked", "must be 1 to 100");
        let unclicked_for_s = self.unclicked_for.as_deref().map(span_s);
        let fits =
            unclicked_for_s.is_none_or(|given| given.is_some_and(|seconds| (3_600..=SPAN_MAX_S).contains(&seconds)));
        faults.require(fits, "/sunset/unclicked_for", UNCLICKED_FOR_RULE);
        let welcome_s =
            self.welcome.as_deref().map_or(Some(WELCOME_S), span_s).filter(|seconds| *seconds <= SPAN_MAX_S);
        faults.require(welcome_s.is_some(), "/sunset/welcome", WELCOME_RULE);
        let unclicked = self.unclicked.and_then(|n| i16::try_from(n).ok());
        Some(Sunset { unclicked, unclicked_for_s: unclicked_for_s.flatten(), welcome_s: welcome_s? })
    }
}

/// Parses a time span such as `30d`, to seconds.
fn span_s(text: &str) -> Option<i64> {
    duration::parse(text).and_then(|span| i64::try_from(span.as_secs()).ok())
}

impl From<&Sunset> for SunsetBody {
    fn from(rule: &Sunset) -> Self {
        let span = |seconds: i64| duration::written(std::time::Duration::from_secs(seconds.unsigned_abs()));
        Self {
            unclicked: rule.unclicked.and_then(|n| u16::try_from(n).ok()),
            unclicked_for: rule.unclicked_for_s.map(span),
            welcome: Some(span(rule.welcome_s)),
        }
    }
}
