//! Seal keys that are added while a server runs.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::time::sleep;
use tracing::{info, warn};

use bellwire_core::clock::Clock;
use bellwire_dispatch::idle::{AT_REST, Rest};
use bellwire_store::keys::data_keys::{self, TAKES_OVER_AFTER, VALUES_TO_WARN};
use bellwire_vault::Vault;
use bellwire_vault::master_key::MasterKeySource;

/// Interval of the check for added seal keys. Short enough for retries before a key becomes current.
const LOOK_EVERY: Duration = Duration::from_secs(TAKES_OVER_AFTER.as_secs() / 12);
/// Delay after a failure, because a command may have to run again.
const LOOK_AGAIN: Duration = Duration::from_secs(TAKES_OVER_AFTER.as_secs() / 6);
/// Interval at which a process adds its sealed values to the counts in the database. A crash loses the count of one
/// interval.
const COUNT_EVERY: Duration = Duration::from_secs(60);

/// Counts the values sealed under each seal key in an endless loop, and warns before a key has too many.
pub(super) async fn count_on(pool: PgPool, vault: Vault) {
    loop {
        sleep(COUNT_EVERY).await;
        match data_keys::count_sealed(&pool, &vault).await {
            Ok(Some(values)) if values >= VALUES_TO_WARN => {
                warn!(
                    values,
                    of = 1_u64 << 32,
                    "a seal key has sealed half of the values that it may; run `bellwire keys rotate`"
                );
            }
            Ok(_) => {}
            Err(error) => warn!(%error, "values sealed under each key were not counted; it is tried again"),
        }
    }
}

/// Loads added seal keys in an endless loop, and makes each current at its time. Without access to the master key the
/// process keeps its previous keys.
pub(super) async fn watch_on(pool: PgPool, vault: Vault, clock: Clock, source: MasterKeySource, rest: Arc<Rest>) {
    loop {
        rest.pause(LOOK_EVERY, AT_REST).await;
        match data_keys::refresh(&pool, &source, &vault, clock.now()).await {
            Ok(false) => {}
            Ok(true) => {
                let (newest, seals) = vault.seal_keys();
                info!(newest, seals, "seal keys were added or have taken over");
            }
            Err(error) => {
                warn!(%error, "seal keys that may have been added are not known here yet; it is tried again");
                sleep(LOOK_AGAIN).await;
            }
        }
    }
}
