//! Restores subscriptions that their push service reported as gone, possibly by mistake.

use std::collections::BTreeMap;

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::audience::audience_counts::Difference;
use crate::audience::lost_endpoint::{Lost, lost_endpoint_mac};
use crate::audience::membership;
use crate::audience::subscriptions::row::{SubscriptionKeys, lock_in_order};
use crate::connections::engine::shards_of;
use crate::keys::audit::AuditEntry;
use crate::operations::retrying::retrying;
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, LaneId, SubscriptionId};
use bellwire_vault::Vault;

/// Maximum subscriptions restored in one transaction.
pub const CHUNK: i64 = 500;

/// Pruned subscriptions of an app, by the time at which they were pruned.
#[derive(Debug, Clone, Copy)]
pub struct Pruned {
    pub app: AppId,
    /// Lane. `None`: all lanes.
    pub lane: Option<LaneId>,
    pub since: Timestamp,
    /// End of the period, included.
    pub until: Timestamp,
}

/// Position in the order of pruned subscriptions: time of pruning and id.
pub type Cursor = (Timestamp, Uuid);

/// A chunk of pruned subscriptions, and the cursor after it. `None`: no more.
#[derive(Debug)]
pub struct Chunk {
    pub ids: Vec<SubscriptionId>,
    pub next: Option<Cursor>,
}

/// Finds pruned subscriptions after a cursor. Those without an endpoint, and expired ones, are omitted.
pub async fn find_some(
    conn: &mut PgConnection, vault: &Vault, pruned: &Pruned, proven: bool, after: Option<Cursor>, now: Timestamp,
) -> sqlx::Result<Chunk> {
    let (after_at, after_id) = after.unwrap_or((Timestamp::UNIX_EPOCH, Uuid::nil()));
    let rows = fetch_all!(
        conn,
        r#"SELECT id AS "id: SubscriptionId", endpoint_mac, ended_at AS "ended_at!", expires_at FROM subscriptions
           WHERE app = $1 AND state = 'gone' AND ended_at >= $2 AND ended_at <= $3 AND ($4::integer IS NULL OR lane = $4)
             AND (proven OR NOT $5) AND (ended_at, id) > ($6::timestamptz, $7::uuid)
           ORDER BY ended_at, id LIMIT $8"#,
        (pruned.app.0, pruned.since, pruned.until, pruned.lane as Option<LaneId>, proven, after_at, after_id, CHUNK)
    )?;
    let next = rows.last().filter(|_| rows.len() as i64 == CHUNK).map(|row| (row.ended_at, row.id.0));
    let has_endpoint =
        |id, mac: &[u8]| [Lost::Taken, Lost::Erased].iter().all(|lost| mac != lost_endpoint_mac(vault, id, *lost));
    let is_valid = |at: Option<Timestamp>| at.is_none_or(|at| now < at);
    let valid = rows.iter().filter(|row| is_valid(row.expires_at) && has_endpoint(row.id, &row.endpoint_mac));
    Ok(Chunk { ids: valid.map(|row| row.id).collect(), next })
}

/// Restores pruned subscriptions after a cursor within a transaction. Each starts a new life: messages accepted before are not
/// sent to it. Its topics are restored.
pub(crate) async fn restore_some(
    conn: &mut PgConnection, vault: &Vault, pruned: &Pruned, proven: bool, after: Option<Cursor>, now: Timestamp,
) -> sqlx::Result<Chunk> {
    let Chunk { ids, next } = find_some(conn, vault, pruned, proven, after, now).await?;
    if ids.is_empty() {
        return Ok(Chunk { ids, next });
    }
    lock_in_order(conn, ids.iter().copied()).await?;
    let keys = SubscriptionKeys::of(ids);
    // One that was unsubscribed, replaced or registered since stays as it is.
    let revived = fetch_all!(
        &mut *conn,
        r#"UPDATE subscriptions s
           SET state = 'active', since = $3, ended_at = NULL, refusals = 0, refused_at = NULL, life = life + 1, revived = life + 1
           FROM unnest($1::smallint[], $2::uuid[]) AS k (shard, id)
           WHERE s.shard = k.shard AND s.id = k.id AND s.state = 'gone' AND s.ended_at >= $4 AND s.ended_at <= $5
             AND s.shard = ANY ($6)
           RETURNING s.id AS "id: SubscriptionId", s.lane AS "lane: LaneId""#,
        (&keys.shards, &keys.ids as &[SubscriptionId], now, pruned.since, pruned.until, &shards_of(&keys.ids))
    )?;
    let lanes: BTreeMap<_, _> = revived.into_iter().map(|row| (row.id, row.lane)).collect();
    let mut changes = Difference::default();
    lanes.values().for_each(|lane| changes.won(*lane, now));
    changes.write(conn).await?;
    membership::return_all(conn, &lanes, now).await?;
    Ok(Chunk { ids: lanes.into_keys().collect(), next })
}

/// Counts pruned subscriptions that a restore would reactivate.
pub async fn count(pool: &PgPool, vault: &Vault, pruned: &Pruned, now: Timestamp) -> sqlx::Result<u64> {
    let mut conn = pool.acquire().await?;
    let (mut n, mut after) = (0, None);
    loop {
        let chunk = find_some(&mut conn, vault, pruned, false, after, now).await?;
        n += chunk.ids.len() as u64;
        if chunk.next.is_none() {
            return Ok(n);
        }
        after = chunk.next;
    }
}

/// Restores pruned subscriptions in separate transactions until `most` are restored. Each transaction writes `entry` to the
/// audit log. Returns the number restored, and whether there may be more. After a failure, subscriptions restored before stay
/// restored.
pub async fn restore(
    pool: &PgPool, vault: &Vault, pruned: &Pruned, most: u64, entry: &AuditEntry, now: Timestamp,
) -> sqlx::Result<(u64, bool)> {
    let (mut restored, mut after) = (0, None);
    loop {
        let chunk = retrying(|| async move {
            let mut tx = begin(pool).await?;
            let chunk = restore_some(&mut tx, vault, pruned, false, after, now).await?;
            // A request that finds none is logged, too.
            if !chunk.ids.is_empty() || after.is_none() {
                entry.record(&mut tx, chunk.ids.len() as i64, now).await?;
            }
            tx.commit().await?;
            Ok(chunk)
        });
        let chunk = chunk.await?;
        restored += chunk.ids.len() as u64;
        if chunk.next.is_none() || restored >= most {
            return Ok((restored, chunk.next.is_some()));
        }
        after = chunk.next;
    }
}
