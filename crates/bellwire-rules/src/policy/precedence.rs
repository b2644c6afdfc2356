//! Order of deliveries of a lane and tier: fewer retries first, within limits.
//!
//! Two places keep to it: the queue in memory, and the statements that claim rows, which spell it out in SQL.

use std::time::Duration;

/// Maximum time for which a retried delivery lets later ones pass. Without the limit, a campaign would delay its own retries to
/// its end.
pub const LETS_PASS: Duration = Duration::from_secs(4);

/// Returns the time for which a delivery lets later ones pass, by its retries: half of [`LETS_PASS`] after the first, two thirds
/// after the second, and so on.
pub fn lets_pass(retries: u32) -> Duration {
    LETS_PASS * retries / retries.saturating_add(1)
}
