//! Number of active subscriptions by lane, in total and by topic. Triggers write each change to `audience_changes`. [`fold`]
//! adds these changes to `audience_counts`, and passes gains and losses to metrics over time. The view `audiences` sums both
//! tables: it is exact in each snapshot.

use std::collections::BTreeMap;

use chrono::{DurationRound as _, TimeDelta};

use crate::connections::engine;
use crate::results::ChunkProgress;
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::fact::{Fact, Loss};
use bellwire_core::id::{AppId, LaneId};
use bellwire_core::lane::Gateway;
use sqlx::{PgConnection, PgExecutor, PgPool};

/// Topic number that stands for all subscribers.
const EVERYONE: i32 = 0;
/// Changes added in one transaction.
const CHUNK: i64 = 10_000;

/// Returns the active subscriptions of a topic by lane, in order of lanes. Lanes without any are omitted.
pub async fn of_topic(conn: &mut PgConnection, topic: i32) -> sqlx::Result<Vec<(LaneId, i64)>> {
    query!(
        r#"SELECT lane AS "lane!", sum(n)::bigint AS "n!"
           FROM audiences WHERE topic = $1 GROUP BY lane HAVING sum(n) > 0 ORDER BY lane"#,
        (topic)
    )
    .map(|row| (LaneId(row.lane), row.n))
    .fetch_all(conn)
    .await
}

/// Returns the active subscriptions of an app by lane, in order of lanes. Lanes without any are omitted.
pub async fn of_everyone(conn: &mut PgConnection, app: AppId) -> sqlx::Result<Vec<(LaneId, i64)>> {
    query!(
        r#"SELECT l.id AS lane, kept.n AS "n!" FROM lanes l, LATERAL (
             SELECT sum(n)::bigint AS n FROM audiences WHERE topic = $2 AND lane = l.id) kept
           WHERE l.app = $1 AND kept.n > 0 ORDER BY l.id"#,
        (app.0, EVERYONE)
    )
    .map(|row| (LaneId(row.lane), row.n))
    .fetch_all(conn)
    .await
}

/// Returns the active subscriptions of all apps by push service.
pub async fn by_gateway(executor: impl PgExecutor<'_>) -> sqlx::Result<Vec<(Gateway, i64)>> {
    query!(
        r#"SELECT l.gateway AS "gateway: Gateway", sum(a.n)::bigint AS "n!" FROM audiences a JOIN lanes l ON l.id = a.lane
           WHERE a.topic = $1 GROUP BY l.gateway ORDER BY l.gateway"#,
        (EVERYONE)
    )
    .map(|row| (row.gateway, row.n))
    .fetch_all(executor)
    .await
}

/// Adds a chunk of changes to the counts, and deletes counts of zero. A full chunk means that there are more changes. Only one
/// call runs at a time; a concurrent call returns at once.
pub async fn fold(pool: &PgPool) -> sqlx::Result<ChunkProgress> {
    let mut tx = begin(pool).await?;
    let alone = fetch_one!(
        &mut *tx,
        scalar,
        r#"SELECT pg_try_advisory_xact_lock(hashtextextended('bellwire.audience_counts', 0)) AS "alone!""#
    )?;
    if !alone {
        return Ok(ChunkProgress::Done);
    }
    let folded = fetch_one!(
        &mut *tx,
        scalar,
        r#"WITH taken AS (
             DELETE FROM audience_changes WHERE ctid = ANY (ARRAY(SELECT ctid FROM audience_changes LIMIT $1))
             RETURNING topic, lane, n, at, fact),
           added AS (
             INSERT INTO audience_counts AS kept (topic, lane, n)
             SELECT topic, lane, sum(n) FROM taken GROUP BY topic, lane
             ON CONFLICT (topic, lane) DO UPDATE SET n = kept.n + excluded.n),
           noted AS (
             INSERT INTO rollup_notes (minute, lane, tier, fact, n)
             SELECT date_trunc('minute', at), lane, 0, fact, sum(abs(n)) FROM taken WHERE fact IS NOT NULL GROUP BY 1, 2, 4)
           SELECT count(*) AS "n!" FROM taken"#,
        (CHUNK)
    )?;
    execute!(&mut *tx, "DELETE FROM audience_counts WHERE n = 0")?;
    tx.commit().await?;
    Ok(ChunkProgress::after(folded == CHUNK))
}

/// Changes of a transaction to the counts of active subscriptions. On plain Postgres triggers record them, manual changes
/// included. On Citus a trigger cannot write to the machine with the counts, so each writer records its changes itself.
#[derive(Debug, Default)]
pub(crate) struct Difference(BTreeMap<(i32, LaneId, Option<Timestamp>, Option<i16>), i64>);

impl Difference {
    /// Adds a new subscription. It counts from `since`, or from `created_at` if an imported file gives an earlier creation. Old
    /// ones of a file share an entry, as with triggers.
    pub(crate) fn came(&mut self, lane: LaneId, created_at: Timestamp, since: Timestamp) {
        let unit = match since - created_at {
            age if age < TimeDelta::days(2) => TimeDelta::minutes(1),
            age if age < TimeDelta::days(90) => TimeDelta::hours(1),
            _ => TimeDelta::days(1),
        };
        self.won(lane, created_at.duration_trunc(unit).unwrap_or(created_at));
    }

    /// Adds a subscription that is active again since `at`.
    pub(crate) fn won(&mut self, lane: LaneId, at: Timestamp) {
        self.add((EVERYONE, lane, Some(at), Some(Fact::Won.code())), 1);
    }

    /// Adds a subscription that ended at `at`.
    pub(crate) fn lost(&mut self, lane: LaneId, at: Timestamp, loss: Loss) {
        self.add((EVERYONE, lane, Some(at), Some(Fact::Lost(loss).code())), -1);
    }

    /// Adds a subscription that joined a topic.
    pub(crate) fn joined(&mut self, topic: i32, lane: LaneId) {
        self.add((topic, lane, None, None), 1);
    }

    /// Adds a subscription that left a topic.
    pub(crate) fn left(&mut self, topic: i32, lane: LaneId) {
        self.add((topic, lane, None, None), -1);
    }

    fn add(&mut self, key: (i32, LaneId, Option<Timestamp>, Option<i16>), n: i64) {
        if engine::is_distributed() {
            *self.0.entry(key).or_insert(0) += n;
        }
    }

    pub(crate) async fn write(self, conn: &mut PgConnection) -> sqlx::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let keys = || self.0.keys();
        execute!(
            conn,
            "INSERT INTO audience_changes (topic, lane, n, at, fact)
             SELECT * FROM unnest($1::integer[], $2::integer[], $3::bigint[], $4::timestamptz[], $5::smallint[])
             WHERE NOT EXISTS (
               SELECT FROM pg_trigger WHERE tgrelid = to_regclass('subscriptions') AND tgname = 'subscriptions_gained')",
            (&keys().map(|(topic, ..)| *topic).collect::<Vec<_>>()),
            (&keys().map(|(_, lane, ..)| *lane).collect::<Vec<_>>() as &[LaneId]),
            (&self.0.values().copied().collect::<Vec<_>>()),
            (&keys().map(|(.., at, _)| *at).collect::<Vec<_>>() as &[Option<Timestamp>]),
            (&keys().map(|(.., fact)| *fact).collect::<Vec<_>>() as &[Option<i16>])
        )
    }
}
