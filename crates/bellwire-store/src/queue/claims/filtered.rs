//! Fan-out with a filter: selects the next candidates for a batch.
//!
//! A cut reads a limited number of candidates in small statements, and moves the cursor past all of them, taken or not. So its
//! transaction is short even if the filter accepts few, and other messages of its lane and tier run before it continues.

use sqlx::PgConnection;

use super::cut::{self, BatchChunk, BatchScope, Sendable};
use super::recipient::Recipient;
use crate::audience::candidates::{self, Stretch};
use crate::audience::segment_filter::Judge;
use crate::connections::engine::{self, shard_column};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::SubscriptionId;
use bellwire_segment::{AudienceFilter, FilterVerdict};

pub(super) const LOOKED_AT_MAX: usize = 4_000;
/// Minimum number of candidates per statement, because each statement has a fixed cost.
const ASKED_MIN: usize = 100;

/// Takes up to `size` recipients after a cursor that its message's filter accepts. `None`: the message has no filter.
pub(super) async fn cut(
    conn: &mut PgConnection, place: &BatchScope, filter: Option<&AudienceFilter>, size: usize, now: Timestamp,
) -> sqlx::Result<BatchChunk> {
    let Some(filter) = filter else { return cut::cut(conn, place, size, now).await };
    let judge = Judge::new(conn, place.app, filter, &[place.lane], now).await?.assigned_at(place.assigned_at);
    let BatchScope { lane, topic, shard, after, accepted_at, .. } = *place;
    let mut stretch = Stretch { lane, topic, shard, after, accepted_at };
    let (mut taken, mut passed, mut sunset, mut is_last) = (Vec::new(), 0, 0, false);
    while !is_last && taken.len() < size && taken.len() + passed < LOOKED_AT_MAX {
        let asked = to_ask(size - taken.len(), taken.len(), passed);
        let candidates = candidates::next(conn, &stretch, &judge.needs, asked, now).await?;
        is_last = candidates.len() < asked;
        for (id, verdict) in judge.judge(conn, &candidates).await? {
            match verdict {
                FilterVerdict::Taken if taken.len() == size => {
                    is_last = false;
                    break;
                }
                FilterVerdict::Taken => taken.push(id),
                verdict => {
                    passed += 1;
                    sunset += i64::from(verdict == FilterVerdict::Sunset);
                }
            }
            stretch.after = id;
        }
    }
    let recipients = recipients(conn, &taken, place.is_capped).await?;
    Ok(BatchChunk { recipients, after: stretch.after, is_last, passed, sunset })
}

/// Returns the number of candidates to read to find `wanted` more, estimated from the numbers taken and passed so far.
fn to_ask(wanted: usize, taken: usize, passed: usize) -> usize {
    let per_taken = (taken + passed + 1).div_ceil(taken + 1);
    let left = LOOKED_AT_MAX.saturating_sub(taken + passed);
    wanted.saturating_mul(per_taken).max(ASKED_MIN).min(left.max(1))
}

/// Reads the data for sending of active subscriptions, in order of id.
async fn recipients(conn: &mut PgConnection, ids: &[SubscriptionId], is_capped: bool) -> sqlx::Result<Vec<Recipient>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    macro_rules! recipients {
        ($within:literal) => {
            query!(
                Sendable,
                "SELECT s.id, s.origin_id, s.address, s.policy, s.muted_until, s.timezone, CASE WHEN $3 THEN s.user_id END AS user_id, s.proven, s.life
         FROM unnest($1::smallint[], $2::uuid[]) AS t (shard, id)
         JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id WHERE s.state = 'active'" + $within + " ORDER BY s.id",
                (&shard_column(ids), ids as &[SubscriptionId], is_capped)
            )
            .map(Recipient::from)
        };
    }
    match engine::is_distributed() {
        false => recipients!("").fetch_all(conn).await,
        true => recipients!(" AND s.shard = ANY ($1)").fetch_all(conn).await,
    }
}

#[cfg(test)]
#[path = "../../../../../tests/crates/store/unit/queue/claims/filtered.rs"]
mod tests;
