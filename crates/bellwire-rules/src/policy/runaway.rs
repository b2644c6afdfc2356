//! Runaway guard: holds an app that sends far more than its size explains until an operator releases it. Pure rules; the store
//! counts and holds.

use std::time::Duration;

use bellwire_core::delivery::Tier;

/// Period over which deliveries are counted.
pub const WINDOW: Duration = Duration::from_secs(15 * 60);
pub const FACTOR_MAX: i64 = 1_000;
pub const FLOOR_MAX: i64 = 1_000_000_000;

/// Limits of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// Deliveries allowed for each active subscription. 0: unlimited.
    pub factor: u32,
    /// Deliveries allowed in addition, for an app of any size.
    pub floor: u64,
}

impl Guard {
    /// Limits of an app without its own.
    pub const DEFAULT: Self = Self { factor: 10, floor: 10_000 };

    /// Returns the maximum deliveries within [`WINDOW`] of an app with this many active subscriptions. `None`: unlimited.
    pub fn limit(self, subscriptions: u64) -> Option<u64> {
        (self.factor > 0).then(|| u64::from(self.factor).saturating_mul(subscriptions).saturating_add(self.floor))
    }

    /// Whether it allows more than another guard for an app of some size.
    pub fn is_looser_than(self, other: Self) -> bool {
        let by_factor = |guard: Self| if guard.factor == 0 { u32::MAX } else { guard.factor };
        by_factor(self) > by_factor(other) || other.factor > 0 && self.floor > other.floor
    }
}

/// Group of tiers counted and held together, so that a runaway newsletter never stops one-time codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    Transactional,
    Other,
}

impl Flood {
    pub fn tiers(self) -> &'static [Tier] {
        match self {
            Self::Transactional => &[Tier::Transactional],
            Self::Other => &[Tier::Promotional, Tier::Engagement],
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/crates/rules/unit/policy/runaway.rs"]
mod tests;
