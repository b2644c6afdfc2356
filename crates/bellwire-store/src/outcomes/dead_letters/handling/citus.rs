//! Handles dead letters on Citus, where subscriptions are on other machines: reads dead letters in chunks, and then the state
//! of their subscriptions by key.

use std::collections::HashMap;

use sqlx::{FromRow, PgConnection, PgPool, QueryBuilder};

use super::{Letter, MESSAGES, Operation, OperationPreview, ReplayCursor};
use crate::connections::engine::{shard_column, shards_of};
use crate::transactions::begin_by_index;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{DeadLetterId, MessageId, SubscriptionId};

/// Dead letters read per statement.
const CHUNK: i64 = 5_000;

#[derive(FromRow)]
struct Meant {
    id: DeadLetterId,
    message: MessageId,
    subscription: SubscriptionId,
    accepted_at: Option<Timestamp>,
    /// Whether its message, or the original, named its subscriptions or users.
    is_named: bool,
}

struct ReplayTarget {
    is_active: bool,
    expires_at: Option<Timestamp>,
    user_left_at: Option<Timestamp>,
}

impl ReplayTarget {
    fn is_reachable(&self, now: Timestamp) -> bool {
        self.is_active && self.expires_at.is_none_or(|at| at > now)
    }

    fn is_left(&self, letter: &Meant) -> bool {
        letter.is_named && self.user_left_at.zip(letter.accepted_at).is_some_and(|(left, accepted)| left >= accepted)
    }
}

/// Implements [`super::count`] on Citus.
pub(super) async fn count(pool: &PgPool, operation: &Operation) -> sqlx::Result<OperationPreview> {
    let (mut found, mut after) = (OperationPreview { matched: 0, unreachable: 0, user_left: 0 }, super::FIRST);
    loop {
        let mut tx = begin_by_index(pool).await?;
        let letters = next(&mut tx, operation, &[], after, CHUNK, "").await?;
        tx.commit().await?;
        let standings = standings(&mut *pool.acquire().await?, &letters).await?;
        for letter in &letters {
            let of = standings.get(&letter.subscription);
            let is_reachable = of.is_some_and(|of| of.is_reachable(operation.began));
            found.matched += 1;
            found.unreachable += i64::from(!is_reachable);
            found.user_left += i64::from(is_reachable && of.is_some_and(|of| of.is_left(letter)));
        }
        match letters.last() {
            Some(last) if letters.len() as i64 == CHUNK => after = (last.message, last.id),
            _ => return Ok(found),
        }
    }
}

/// Implements [`super::lock`] on Citus.
pub(super) async fn lock(
    conn: &mut PgConnection, operation: &Operation, made_before: &[MessageId], mut after: ReplayCursor, limit: i64,
    now: Timestamp,
) -> sqlx::Result<Vec<Letter>> {
    loop {
        let letters = next(conn, operation, made_before, after, limit, " FOR UPDATE OF l SKIP LOCKED").await?;
        let standings = locked(conn, &letters).await?;
        let is_sent = |letter: &&Meant| {
            let of = standings.get(&letter.subscription);
            of.is_some_and(|of| of.is_reachable(now) && !of.is_left(letter))
        };
        let locked: Vec<Letter> = letters
            .iter()
            .filter(is_sent)
            .map(|letter| Letter { id: letter.id, message: letter.message, subscription: letter.subscription })
            .collect();
        match letters.last() {
            // None of these: others may come after them.
            Some(last) if locked.is_empty() => after = (last.message, last.id),
            _ => return Ok(locked),
        }
    }
}

/// Returns the next matching dead letters, message by message.
async fn next(
    conn: &mut PgConnection, operation: &Operation, made_before: &[MessageId], after: ReplayCursor, limit: i64,
    locking: &'static str,
) -> sqlx::Result<Vec<Meant>> {
    let mut query = QueryBuilder::new(
        "SELECT l.id, l.message, l.subscription, m.accepted_at, \
           coalesce(coalesce(o.audience, m.audience) ?| ARRAY['users', 'subscriptions'], false) AS is_named \
         FROM dead_letters l JOIN lanes g ON g.id = l.lane",
    );
    query.push(MESSAGES);
    operation.push_meant(&mut query);
    query.push(" AND (l.message, l.id) > (").push_bind(after.0).push(", ").push_bind(after.1);
    query.push(") AND l.message <> ALL (").push_bind(made_before);
    query.push(") ORDER BY l.message, l.id LIMIT ").push_bind(limit).push(locking);
    query.build_query_as().persistent(false).fetch_all(conn).await
}

async fn standings(conn: &mut PgConnection, letters: &[Meant]) -> sqlx::Result<HashMap<SubscriptionId, ReplayTarget>> {
    let ids = subscriptions(letters);
    let rows = fetch_all!(
        conn,
        r#"SELECT s.id AS "id: SubscriptionId", s.state = 'active' AS "is_active!", s.expires_at, s.user_left_at
           FROM unnest($1::smallint[], $2::uuid[]) AS k (shard, id) JOIN subscriptions s ON s.shard = k.shard AND s.id = k.id
           WHERE s.shard = ANY ($3)"#,
        (&shard_column(&ids), &ids as &[SubscriptionId], &shards_of(&ids))
    )?;
    let rows = rows.into_iter();
    let standing = |is_active, expires_at, user_left_at| ReplayTarget { is_active, expires_at, user_left_at };
    Ok(rows.map(|row| (row.id, standing(row.is_active, row.expires_at, row.user_left_at))).collect())
}

/// Locks these dead letters and the users of their subscriptions until the transaction ends, except those that are being
/// changed.
async fn locked(conn: &mut PgConnection, letters: &[Meant]) -> sqlx::Result<HashMap<SubscriptionId, ReplayTarget>> {
    let mut locked = HashMap::new();
    // Citus locks rows in one shard at a time.
    for of_shard in subscriptions(letters).chunk_by(|a, b| a.shard() == b.shard()) {
        let rows = fetch_all!(
            &mut *conn,
            r#"SELECT id AS "id: SubscriptionId", state = 'active' AS "is_active!", expires_at, user_left_at FROM subscriptions
               WHERE shard = $1 AND id = ANY ($2) ORDER BY id FOR SHARE SKIP LOCKED"#,
            (of_shard[0].shard(), of_shard as &[SubscriptionId])
        )?;
        locked.extend(rows.into_iter().map(|row| {
            let standing =
                ReplayTarget { is_active: row.is_active, expires_at: row.expires_at, user_left_at: row.user_left_at };
            (row.id, standing)
        }));
    }
    Ok(locked)
}

/// Returns the distinct subscriptions of these dead letters, by shard.
fn subscriptions(letters: &[Meant]) -> Vec<SubscriptionId> {
    let mut ids: Vec<SubscriptionId> = letters.iter().map(|letter| letter.subscription).collect();
    ids.sort_unstable_by_key(|id| (id.shard(), *id));
    ids.dedup();
    ids
}
