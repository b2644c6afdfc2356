//! Runaway guard: an app that sends far more than its size explains is held until an operator releases it. These are pure rules.
//! The store counts and holds.

use std::time::Duration;

use bellwire_core::delivery::Tier;

/// Deliveries are counted over so long.
pub const WINDOW: Duration = Duration::from_secs(15 * 60);
pub const FACTOR_MAX: i64 = 1_000;
pub const FLOOR_MAX: i64 = 1_000_000_000;

/// Limits of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    /// So many deliveries for each active subscription; 0: nothing is too much.
    pub factor: u32,
    /// Deliveries that are allowed in addition, for an app of any size.
    pub floor: u64,
}

impl Guard {
    /// Limits of an app without its own.
    pub const DEFAULT: Self = Self { factor: 10, floor: 10_000 };

    /// Maximum deliveries within the [`WINDOW`] of an app with this many active subscriptions; `None`: no limit.
    pub fn limit(self, subscriptions: u64) -> Option<u64> {
        (self.factor > 0).then(|| u64::from(self.factor).saturating_mul(subscriptions).saturating_add(self.floor))
    }

    /// Whether it allows more than another guard for an app of any size.
    pub fn is_looser_than(self, other: Self) -> bool {
        let by_factor = |guard: Self| if guard.factor == 0 { u32::MAX } else { guard.factor };
        by_factor(self) > by_factor(other) || other.factor > 0 && self.floor > other.floor
    }
}

/// Group that is counted and held together: a runaway newsletter never stops one-time codes.
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
mod tests {
    use super::*;

    #[test]
    fn guard_scales_with_app_size_or_is_off() {
        let guard = |factor, floor| Guard { factor, floor };
        assert_eq!(Guard::DEFAULT.limit(0), Some(10_000));
        assert_eq!(Guard::DEFAULT.limit(5_000), Some(60_000));
        assert_eq!(guard(1, 0).limit(7), Some(7));
        assert_eq!(guard(0, 10).limit(7), None);
        assert_eq!(guard(2, 1).limit(u64::MAX), Some(u64::MAX));
        for (one, other, is_looser) in [
            ((10, 5), (10, 5), false),
            ((11, 0), (10, 5), true),
            ((9, 6), (10, 5), true),
            ((9, 4), (10, 5), false),
            ((0, 0), (10, 5), true),
            ((10, 5), (0, 0), false),
            ((0, 9), (0, 0), false),
        ] {
            assert_eq!(guard(one.0, one.1).is_looser_than(guard(other.0, other.1)), is_looser, "{one:?} {other:?}");
        }
    }
}
