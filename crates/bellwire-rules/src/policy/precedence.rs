//! Order of deliveries of a lane and tier: fewer retries first, within limits.
//!
//! Two places use it: the queue in memory, and the SQL statements that claim rows.

use std::time::Duration;

/// Maximum time for which a retried delivery lets newer ones pass. Otherwise a campaign would delay its own retries to its end.
pub const LETS_PASS: Duration = Duration::from_secs(4);

/// Returns the time for which a delivery lets newer ones pass, by its retries: half of [`LETS_PASS`] after the first, two
/// thirds after the second, and so on.
pub fn lets_pass(retries: u32) -> Duration {
    LETS_PASS * retries / retries.saturating_add(1)
}
