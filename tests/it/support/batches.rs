//! A message whose recipients are all in one batch.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwire_dispatch::DispatchConfig;
use bellwire_store::queue::claims::LEASE;

use super::accounts::counts;

/// Time after which a lease has expired.
pub const AFTER_LEASE: Duration = LEASE.saturating_add(Duration::from_secs(1));

/// Statement that settles a batch.
pub const SETTLE_BATCH: &str = "/* settle_batch */";

/// Recipients: too many for single rows, few enough for one batch if they are seeded together.
pub const BATCH_SIZE: u32 = 120;

/// Settings under which all recipients are in one batch.
pub fn single_batch() -> DispatchConfig {
    DispatchConfig { batch_min: 200, batch_max: 200, ..DispatchConfig::default() }
}

/// Counts of a message to [`BATCH_SIZE`] recipients, all accepted.
pub fn all_accepted() -> BTreeMap<String, i64> {
    counts(&[("targeted", BATCH_SIZE.into()), ("accepted", BATCH_SIZE.into()), ("awaiting_ack", BATCH_SIZE.into())])
}
