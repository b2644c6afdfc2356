//! Fan-out where Citus keeps subscriptions on other machines: shard by shard, so that a batch lies in one of them. Then its recipients are read
//! there, its attempts written and its subscriptions pruned there, and its settling is committed in two phases on one machine.
//!
//! The position of a cursor is the last id before it, as on plain Postgres, but in another order: by shard, which is the end of
//! an id, and then by id.

use sqlx::PgConnection;
use uuid::Uuid;

use super::cut::{BatchChunk, BatchScope};
use super::filtered::{self, LOOKED_AT_MAX};
use crate::connections::engine;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{SHARDS, SubscriptionId};
use bellwire_segment::AudienceFilter;

/// Cuts the next recipients off, in the cursor's shard or in the first one after it with any. There are fewer than `size` at the
/// end of that shard.
pub(super) async fn cut(
    conn: &mut PgConnection,
    mut place: BatchScope,
    filter: Option<&AudienceFilter>,
    size: usize,
    now: Timestamp,
) -> sqlx::Result<BatchChunk> {
    let (mut passed, mut sunset) = (0, 0);
    loop {
        let shard = place.after.shard();
        place.shard = Some(shard);
        let cut = filtered::cut(conn, &place, filter, size, now).await?;
        (passed, sunset) = (passed + cut.passed, sunset + cut.sunset);
        let cut = BatchChunk { passed, sunset, ..cut };
        let next = u8::try_from(shard + 1).ok().filter(|next| cut.is_last && *next < SHARDS);
        let Some(next) = next else { return Ok(cut) };
        place.after = SubscriptionId::new(Uuid::nil(), next); // before everybody there
        if !cut.recipients.is_empty() || passed >= LOOKED_AT_MAX {
            return Ok(BatchChunk { after: place.after, is_last: false, ..cut });
        }
    }
}

/// Whether a cursor that comes after `after` has still to come to a subscription.
pub fn is_ahead(after: SubscriptionId, subscription: SubscriptionId) -> bool {
    let order = |id: SubscriptionId| (engine::is_distributed().then(|| id.shard()), id);
    order(after) < order(subscription)
}
