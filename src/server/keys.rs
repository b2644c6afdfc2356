//! Seal keys that are added while a server runs.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::dispatch::rest::{AT_REST, Rest};
use crate::model::clock::Clock;
use crate::store::keys::data_keys::{self, TAKES_OVER_AFTER};
use crate::vault::Vault;
use crate::vault::master_key::Source;

/// How often it is looked for seal keys that were added: often enough to try again before one takes over.
const LOOK_EVERY: Duration = Duration::from_secs(TAKES_OVER_AFTER.as_secs() / 12);
/// How long to wait after a failure, when a command may have to be run again.
const LOOK_AGAIN: Duration = Duration::from_secs(TAKES_OVER_AFTER.as_secs() / 6);

/// Takes in seal keys that were added, and lets each seal from its time on, for ever. Whoever does not get hold of the master key goes on
/// with the keys that it has.
pub(super) async fn watch_on(pool: PgPool, vault: Vault, clock: Clock, source: Source, rest: Arc<Rest>) {
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
