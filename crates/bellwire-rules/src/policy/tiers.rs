//! Default behaviour of each tier, and settings of the server that a tier may override.

use std::time::Duration;

use super::Guide;
use bellwire_core::delivery::{Tier, Urgency};

/// Built-in defaults of a tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TierDefaults {
    /// Time to live, in seconds.
    pub ttl_s: u32,
    /// Urgency sent to the gateway.
    pub urgency: Urgency,
    pub(super) guide: Guide,
}

impl TierDefaults {
    /// Returns the defaults of `tier`. The published ones end after 5 retries. Two tiers retry for longer here, because such a
    /// timetable ends before a partial outage of a gateway.
    pub fn of(tier: Tier) -> &'static Self {
        const fn guide(immediate_retries: u32, base_delay_ms: u32, max_delay_ms: u32, max_attempts: u32) -> Guide {
            Guide { immediate_retries, base_delay_ms, max_delay_ms, max_attempts, ..Guide::DEFAULT }
        }
        /// 8 retries in 123 s, published 5 in 15 s: of 60,000, a part-fault of a minute cost 20, and now none.
        const TRANSACTIONAL: TierDefaults =
            TierDefaults { ttl_s: 600, urgency: Urgency::High, guide: guide(1, 1_000, 60_000, 8) };
        /// 10 retries in 27 min, published 5 in 62 s: of 60,000, a part-fault of 10 minutes cost 230, and now none.
        const PROMOTIONAL: TierDefaults =
            TierDefaults { ttl_s: 86_400, urgency: Urgency::Normal, guide: guide(0, 2_000, 600_000, 10) };
        /// As published, 5 retries in 31 min: they outlive a part-fault of 10 minutes already.
        const ENGAGEMENT: TierDefaults =
            TierDefaults { ttl_s: 259_200, urgency: Urgency::Low, guide: guide(0, 60_000, 3_600_000, 5) };
        match tier {
            Tier::Transactional => &TRANSACTIONAL,
            Tier::Promotional => &PROMOTIONAL,
            Tier::Engagement => &ENGAGEMENT,
        }
    }
}

/// Maximum consecutive failures of the breaker's setting.
pub(super) const FAILURES_IN_A_ROW_MAX: u32 = 1_000;

/// Figures of the server, by the guide's names, and by names after its fashion where it is silent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TierSettings {
    /// `circuitFailureThreshold`: the share of failures that opens a breaker, above 0, at most 1.
    pub circuit_failure_threshold: f64,
    /// `circuitMinAttempts`: that share counts from so many POSTs in a minute on.
    pub circuit_attempts_min: u32,
    /// `circuitConsecutiveFailures`: so many POSTs that failed in a row open it, too.
    pub circuit_failures_in_a_row: u32,
    /// `circuitOpenMs`: how long a breaker opens the first time.
    pub circuit_open: Duration,
    /// `circuitOpenMaxMs`: how long repeated openings grow, doubling; no longer than the first: they do not.
    pub circuit_open_max: Duration,
    /// `retryTokenTtlSec`: how long past its due time a retry token is valid.
    pub retry_token_ttl: Duration,
    /// Whether tiers without a policy retry as the guide publishes, not as tuned here.
    pub published_retries: bool,
}

impl Default for TierSettings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl TierSettings {
    /// The figures by their published names.
    pub fn to_json(self) -> serde_json::Value {
        serde_json::json!({
            "circuitFailureThreshold": self.circuit_failure_threshold,
            "circuitMinAttempts": self.circuit_attempts_min,
            "circuitConsecutiveFailures": self.circuit_failures_in_a_row,
            "circuitOpenMs": self.circuit_open.as_millis() as u64,
            "circuitOpenMaxMs": self.circuit_open_max.as_millis() as u64,
            "retryTokenTtlSec": self.retry_token_ttl.as_secs(),
        })
    }

    /// Published values of the guide: its openings do not grow. It does not define how many POSTs make a share, or a run.
    pub const GUIDE: TierSettings = TierSettings {
        circuit_failure_threshold: 0.05,
        circuit_attempts_min: 400,
        circuit_failures_in_a_row: 5,
        circuit_open: Duration::from_secs(30),
        circuit_open_max: Duration::from_secs(30),
        retry_token_ttl: Duration::from_secs(300),
        published_retries: true,
    };

    /// Default values of a server: those of the guide, except two. `circuitFailureThreshold` is 0.25, where the guide has 0.05.
    /// With 10 % of random failures, the guide's value stopped a working lane until 15,146 of 20,000 one-time codes had expired,
    /// and this value lost none. An outage trips by five consecutive failures in any case. Openings grow to a minute. Growing to
    /// 10 minutes, they cost 28,455 of 60,000 deliveries that lived for 10 minutes around an outage of that length, and growing
    /// to a minute 3,099.
    pub const DEFAULT: TierSettings = TierSettings {
        circuit_failure_threshold: 0.25,
        circuit_open_max: Duration::from_secs(60),
        published_retries: false,
        ..TierSettings::GUIDE
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_admin_page_knows_the_defaults_of_tiers() {
        let page = include_str!("../../../../static/admin/src/lib/timing.ts");
        for tier in Tier::ALL {
            let TierDefaults { ttl_s, urgency, .. } = TierDefaults::of(tier);
            let (name, urgency) = (tier.name(), urgency.name());
            let line = format!(r#"{name}: {{ ttlS: {ttl_s}, urgency: "{urgency}" }}"#);
            assert!(page.replace('_', "").contains(&line.replace('_', "")), "{line}");
        }
    }
}
