//! Fan-out on Citus: shard by shard, so that a batch belongs to one shard. Its recipients are then read, its attempts written
//! and its subscriptions pruned on one machine, and its settlement commits in two phases on one machine.
//!
//! The position of a cursor is the last id before it, as on plain Postgres, but in another order: by shard (the end of an id),
//! and then by id.

use sqlx::PgConnection;
use uuid::Uuid;

use super::cut::{BatchChunk, BatchScope};
use super::filtered::{self, LOOKED_AT_MAX};
use crate::connections::engine;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{SHARDS, SubscriptionId};
use bellwire_segment::AudienceFilter;

/// Takes the next recipients in the cursor's shard, or in the first shard after it with any. At the end of a shard there are
/// fewer than `size`.
pub(super) async fn cut(
    conn: &mut PgConnection, mut place: BatchScope, filter: Option<&AudienceFilter>, size: usize, now: Timestamp,
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

/// Whether a cursor at `after` has yet to reach a subscription.
pub fn is_ahead(after: SubscriptionId, subscription: SubscriptionId) -> bool {
    let order = |id: SubscriptionId| (engine::is_distributed().then(|| id.shard()), id);
    order(after) < order(subscription)
}
