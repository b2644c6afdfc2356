//! Which delivery of a lane and tier goes first: the one with fewer retries, within limits.
//!
//! Two places keep to it: the queue in memory, and the statements that claim rows, which spell it out in SQL.

use std::time::Duration;

/// For so long at most a delivery that was tried before lets those pass that came after it: if it were for ever, a
/// campaign would keep its own retries back to its end.
pub const LETS_PASS: Duration = Duration::from_secs(4);

/// For how long a delivery lets pass what comes after it, by its number of retries: half of [`LETS_PASS`] after the first, two
/// thirds after the second, and so on.
pub fn lets_pass(retries: u32) -> Duration {
    LETS_PASS * retries / retries.saturating_add(1)
}
