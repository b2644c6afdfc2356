//! Faults of the demo's gateways, and their expected outcomes.
//!
//! Lasting faults belong to fixed shares of the endpoints, so that the outcome is known in advance. The burst and the outage affect the
//! requests in flight and must cost no delivery.

use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{Rule, RuleAction};

/// Push service that throttles a burst of requests.
pub(super) const THROTTLING: Gateway = Gateway::Apple;
pub(super) const DOWN: Gateway = Gateway::Wns;
/// Length of the outage, in milliseconds. The first probe of a breaker of [`CIRCUIT_OPEN`] fails.
pub(super) const DOWN_MS: u64 = 4_000;
pub(super) const CIRCUIT_OPEN: &str = "2s";
/// The `Retry-After` of the burst, in seconds.
const PAUSE_S: u64 = 2;

const NOT_FOUND: [f64; 2] = [0.0, 0.005];
const GONE: [f64; 2] = [0.005, 0.01];
const UNAVAILABLE: [f64; 2] = [0.01, 0.03];
const TOO_LARGE_ONCE: [f64; 2] = [0.03, 0.034];
const TOO_LARGE: [f64; 2] = [0.034, 0.036];

/// Expected result of an endpoint's deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The push service reports the subscription as gone: 404 or 410.
    Gone,
    /// 503 at first, accepted later.
    Recovers,
    /// 413 at first, and again without padding. A smaller payload is accepted.
    Shrinks,
    /// 413 for every size.
    Dies,
    Fine,
}

impl Fate {
    /// Returns the expected result of an endpoint by its position in [0, 1).
    pub(super) fn of(fraction: f64) -> Self {
        match fraction {
            at if at < GONE[1] => Fate::Gone,
            at if at < UNAVAILABLE[1] => Fate::Recovers,
            at if at < TOO_LARGE_ONCE[1] => Fate::Shrinks,
            at if at < TOO_LARGE[1] => Fate::Dies,
            _ => Fate::Fine,
        }
    }
}

/// Returns the faults that exist from the start.
pub(super) fn lasting() -> [Rule; 5] {
    let share = |share, action| Rule { share: Some(share), ..Rule::always(action) };
    let once = |rule| Rule { attempts: Some([1, 1]), ..rule };
    [
        share(NOT_FOUND, RuleAction::NotFound),
        share(GONE, RuleAction::Gone),
        once(share(UNAVAILABLE, RuleAction::Unavailable { retry_after_s: Some(1) })),
        Rule { attempts: Some([1, 2]), ..share(TOO_LARGE_ONCE, RuleAction::TooLarge) },
        share(TOO_LARGE, RuleAction::TooLarge),
    ]
}

/// Returns a rule that responds with 429 to this many requests to one push service.
pub(super) fn burst(answers: u64) -> Rule {
    let action = RuleAction::Throttled { retry_after_s: Some(PAUSE_S) };
    Rule { gateway: Some(THROTTLING), count: Some(answers), ..Rule::always(action) }
}

/// Returns a rule with which one push service cuts its connections and refuses new ones.
pub(super) fn outage() -> Rule {
    Rule { gateway: Some(DOWN), for_ms: Some(DOWN_MS), ..Rule::always(RuleAction::RefuseTcp) }
}

#[cfg(test)]
#[path = "../../tests/unit/demo/faults.rs"]
mod tests;
