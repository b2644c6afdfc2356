//! Finds lanes with due work, without reading the work.

use sqlx::PgPool;

use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId};

/// A lane and tier with due work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueLane {
    pub app: AppId,
    pub lane: LaneId,
    pub tier: Tier,
    pub sources: Sources,
}

/// The three tables that work is claimed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkTable {
    Queue,
    Batches,
    Cursors,
}

/// Due time of the first work in each table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sources {
    /// Due time of [`WorkTable::Queue`].
    pub queue: Option<Timestamp>,
    /// Due time of [`WorkTable::Batches`].
    pub batches: Option<Timestamp>,
    /// Due time of [`WorkTable::Cursors`].
    pub cursors: Option<Timestamp>,
}

impl Sources {
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let first = |one: Option<Timestamp>, other| one.into_iter().chain(other).min();
        Self {
            queue: first(self.queue, other.queue),
            batches: first(self.batches, other.batches),
            cursors: first(self.cursors, other.cursors),
        }
    }

    /// Whether batches or cursors are due.
    pub fn beside_queue(self) -> bool {
        self.batches.is_some() || self.cursors.is_some()
    }

    /// Returns the tables with due work in order of claims: started work before new work.
    pub fn iter(self) -> impl Iterator<Item = (WorkTable, Timestamp)> {
        let all =
            [(WorkTable::Queue, self.queue), (WorkTable::Batches, self.batches), (WorkTable::Cursors, self.cursors)];
        all.into_iter().filter_map(|(source, since)| Some((source, since?)))
    }
}

/// Claimable part of a lane and tier: rows that became due within a period.
///
/// It begins where the last poll found the first row. Earlier rows are dead: they were claimed or ended, but a long snapshot,
/// of a backup for example, prevents Postgres from removing them, and each claim would read all of them. If a row becomes due
/// earlier afterwards, because it was moved or committed late, the next poll finds it first.
#[derive(Debug, Clone, Copy)]
pub struct DueSpan {
    /// Lane of the rows.
    pub lane: LaneId,
    /// Tier of the rows.
    pub tier: Tier,
    /// Start of the period.
    pub since: Timestamp,
    /// End of the period: now.
    pub now: Timestamp,
}

impl DueSpan {
    /// Includes all rows due until now.
    pub fn all(lane: LaneId, tier: Tier, now: Timestamp) -> Self {
        Self { lane, tier, since: Timestamp::UNIX_EPOCH, now }
    }
}

/// Returns all due work by tier, with one skip scan per table. Each scan probes the index once per lane and tier with rows. The
/// three scans differ only in their table, which cannot be a parameter.
pub async fn due_lanes(pool: &PgPool, now: Timestamp) -> sqlx::Result<Vec<DueLane>> {
    let found = fetch_all!(
        pool,
        r#"
        WITH RECURSIVE
        q AS (
            (SELECT lane, tier, due_at FROM queue ORDER BY lane, tier, due_at LIMIT 1)
            UNION ALL
            SELECT n.lane, n.tier, n.due_at FROM q, LATERAL (
                SELECT lane, tier, due_at FROM queue WHERE (lane, tier) > (q.lane, q.tier)
                ORDER BY lane, tier, due_at LIMIT 1) n
        ),
        p AS (
            (SELECT lane, tier, due_at FROM batches ORDER BY lane, tier, due_at LIMIT 1)
            UNION ALL
            SELECT n.lane, n.tier, n.due_at FROM p, LATERAL (
                SELECT lane, tier, due_at FROM batches WHERE (lane, tier) > (p.lane, p.tier)
                ORDER BY lane, tier, due_at LIMIT 1) n
        ),
        c AS (
            (SELECT lane, tier, due_at FROM cursors ORDER BY lane, tier, due_at LIMIT 1)
            UNION ALL
            SELECT n.lane, n.tier, n.due_at FROM c, LATERAL (
                SELECT lane, tier, due_at FROM cursors WHERE (lane, tier) > (c.lane, c.tier)
                ORDER BY lane, tier, due_at LIMIT 1) n
        ),
        due AS (
            SELECT 0 AS source, lane, tier, due_at FROM q WHERE due_at <= $1
            UNION ALL SELECT 1, lane, tier, due_at FROM p WHERE due_at <= $1
            UNION ALL SELECT 2, lane, tier, due_at FROM c WHERE due_at <= $1
        )
        SELECT l.app, d.lane AS "lane!", d.tier AS "tier!", min(d.due_at) FILTER (WHERE d.source = 0) AS queue,
               min(d.due_at) FILTER (WHERE d.source = 1) AS batches, min(d.due_at) FILTER (WHERE d.source = 2) AS cursors
        FROM due d JOIN lanes l ON l.id = d.lane
        GROUP BY d.tier, d.lane, l.app ORDER BY d.tier, d.lane
        "#,
        (now)
    )?;
    Ok(found
        .into_iter()
        .filter_map(|row| {
            // The tier of a row written by hand is unchecked. Such a row belongs to no lane, and blocks no work.
            Some(DueLane {
                app: AppId(row.app),
                lane: LaneId(row.lane),
                tier: Tier::from_code(row.tier)?,
                sources: Sources { queue: row.queue, batches: row.batches, cursors: row.cursors },
            })
        })
        .collect())
}
