//! Data of the event streams: committed rows in a final order, and the progress of campaigns and outcomes.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;
use sqlx::PgPool;

use crate::transactions::begin_by_index;
use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::delivery::Ending;
use bellwire_core::event_type::EventType;
use bellwire_core::id::{AppId, CampaignId, MessageId};
use bellwire_core::message::MessageState;

/// Maximum campaigns of an app whose progress is read, the newest first.
const CAMPAIGNS_OF_APP_MAX: i64 = 200;
/// Maximum campaigns whose progress is read: the newest of each app, then the second newest of each, and so on, so that no app
/// displaces another.
const CAMPAIGNS_MAX: i64 = 1_000;
/// Campaigns that are marked as ended in one transaction.
const CHUNK: i64 = 1_000;

/// Position in the order of rows, written as `{xid}-{seq}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub xid: i64,
    pub seq: i64,
}

impl Position {
    pub const FIRST: Self = Self { xid: 0, seq: 0 };
    pub const LAST: Self = Self { xid: i64::MAX, seq: i64::MAX };
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.xid, self.seq)
    }
}

impl FromStr for Position {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number =
            |digits: &str| digits.parse().ok().filter(|n| *n >= 0 && digits.bytes().all(|b| b.is_ascii_digit()));
        let (xid, seq) = text.split_once('-').ok_or(())?;
        Ok(Self { xid: number(xid).ok_or(())?, seq: number(seq).ok_or(())? })
    }
}

#[derive(Debug)]
pub struct StreamRow {
    pub xid: i64,
    pub seq: i64,
    pub at: Timestamp,
    /// App of the event. `None`: the server.
    pub app: Option<AppId>,
    pub kind: String,
    pub data: Value,
}

impl StreamRow {
    pub fn position(&self) -> Position {
        Position { xid: self.xid, seq: self.seq }
    }
}

/// Returns the position after all rows whose order is final.
pub async fn end(pool: &PgPool) -> sqlx::Result<Position> {
    let xid = query!(scalar, r#"SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS "xmin!""#);
    Ok(Position { xid: xid.fetch_one(pool).await?, seq: 0 })
}

#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// Position after which all rows are still stored.
    pub floor: Position,
    /// Position after the last row. A later one in a request comes from another cluster, for example before a restore, or is
    /// invented.
    pub end: Position,
}

/// Returns the range of rows from which streams can resume now.
pub async fn kept(pool: &PgPool) -> sqlx::Result<Kept> {
    let row = fetch_one!(
        pool,
        r#"SELECT xid::text::bigint AS "xid!", seq, pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS "xmin!"
           FROM stream_floor"#
    )?;
    let (floor, end) = (Position { xid: row.xid, seq: row.seq }, Position { xid: row.xmin, seq: 0 });
    // A floor that came with a dump says nothing about this cluster's transactions.
    Ok(Kept { floor: if floor > end { Position::FIRST } else { floor }, end })
}

/// Returns rows after a position up to `until`, in order, filtered by apps and kinds. Rows later than a transaction that has
/// not committed yet are withheld, so that the order is final.
pub async fn read(
    pool: &PgPool, after: Position, until: Position, apps: Option<&[AppId]>, kinds: Option<&[String]>, limit: i64,
) -> sqlx::Result<Vec<StreamRow>> {
    let Some(apps) = apps else {
        let of_all = query!(
            StreamRow,
            r#"SELECT xid::text::bigint AS "xid!", seq, at, app AS "app: AppId", kind, data FROM stream_events
               WHERE (xid, seq) > ($1::bigint::text::xid8, $2) AND xid < pg_snapshot_xmin(pg_current_snapshot())
                 AND (xid, seq) <= ($3::bigint::text::xid8, $4) AND ($5::text[] IS NULL OR kind = ANY ($5))
               ORDER BY xid, seq LIMIT $6"#,
            (after.xid, after.seq, until.xid, until.seq, kinds, limit)
        );
        return of_all.fetch_all(pool).await;
    };
    // As many of each as there may be of all together: an app's rows lie in this order by themselves.
    fetch_all!(
        pool,
        StreamRow,
        r#"SELECT e.xid::text::bigint AS "xid!", e.seq AS "seq!", e.at AS "at!", e.app AS "app: AppId", e.kind AS "kind!",
             e.data AS "data!"
           FROM unnest($7::uuid[]) AS wanted (app), LATERAL (
               SELECT xid, seq, at, app, kind, data FROM stream_events
               WHERE app = wanted.app AND (xid, seq) > ($1::bigint::text::xid8, $2)
                 AND xid < pg_snapshot_xmin(pg_current_snapshot()) AND (xid, seq) <= ($3::bigint::text::xid8, $4)
                 AND ($5::text[] IS NULL OR kind = ANY ($5))
               ORDER BY xid, seq LIMIT $6) e
           ORDER BY e.xid, e.seq LIMIT $6"#,
        (after.xid, after.seq, until.xid, until.seq, kinds, limit, apps as &[AppId])
    )
}

/// Progress of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamProgress {
    pub message: MessageId,
    pub app: AppId,
    pub campaign: Option<CampaignId>,
    pub state: MessageState,
    /// Whether fan-out is complete.
    pub expanded: bool,
    /// Number of deliveries, as counted at the acceptance.
    pub audience_estimate: i64,
    pub targeted: i64,
    pub accepted: i64,
    pub gone: i64,
    pub expired: i64,
    pub dead: i64,
    pub cancelled: i64,
    pub capped: i64,
}

/// Returns running campaigns that are due for an event, and those that ended within the last seconds. Waiting deliveries are
/// the targeted ones that have not ended.
pub async fn progress(pool: &PgPool, now: Timestamp) -> sqlx::Result<Vec<StreamProgress>> {
    fetch_all!(
        pool,
        StreamProgress,
        r#"SELECT m.id AS "message: MessageId", m.app AS "app: AppId", m.campaign AS "campaign: CampaignId", m.state AS "state: MessageState",
             NOT EXISTS (SELECT FROM cursors WHERE message = m.id) AS "expanded!", m.audience_estimate,
             c.targeted AS "targeted!", c.accepted AS "accepted!", c.gone AS "gone!", c.expired AS "expired!",
             c.dead AS "dead!", c.cancelled AS "cancelled!", c.capped AS "capped!"
           FROM (SELECT message FROM (
                   SELECT message, row_number() OVER (PARTITION BY app ORDER BY message DESC) AS n FROM campaigns_in_motion
                   WHERE message < $3
                 ) numbered WHERE n <= $1 ORDER BY n, message DESC LIMIT $2) k
           JOIN messages m ON m.id = k.message,
           LATERAL (SELECT coalesce(sum(targeted), 0)::bigint AS targeted, coalesce(sum(accepted), 0)::bigint AS accepted,
             coalesce(sum(gone), 0)::bigint AS gone, coalesce(sum(expired), 0)::bigint AS expired,
             coalesce(sum(dead), 0)::bigint AS dead, coalesce(sum(cancelled), 0)::bigint AS cancelled,
             coalesce(sum(capped), 0)::bigint AS capped FROM message_counts WHERE message = m.id) c"#,
        (CAMPAIGNS_OF_APP_MAX, CAMPAIGNS_MAX, first_uuid_of(now + chrono::TimeDelta::milliseconds(1)))
    )
}

/// Number of an app's attempts with one result within a minute.
#[derive(Debug)]
pub struct Rollup {
    pub minute: Timestamp,
    pub app: AppId,
    /// Code from [`bellwire_core::delivery::Ending::code`].
    pub ending: i16,
    pub n: i64,
}

/// Reads outcomes of these minutes. The minutes are listed, not given as a range, so that the index plan is always the
/// cheapest.
pub async fn outcomes(pool: &PgPool, minutes: &[Timestamp]) -> sqlx::Result<Vec<Rollup>> {
    fetch_all!(
        pool,
        Rollup,
        r#"SELECT r.minute AS "minute!", l.app AS "app: AppId", r.ending AS "ending!", sum(r.n)::bigint AS "n!"
           FROM (SELECT start AS minute, lane, u.fact AS ending, u.n
                 FROM rollups, unnest(facts, ns) AS u (fact, n)
                 WHERE step = 1 AND start = ANY ($1) AND message = '00000000-0000-0000-0000-000000000000'
                 UNION ALL SELECT minute, lane, fact, n FROM rollup_notes WHERE minute = ANY ($1)) r
           JOIN lanes l ON l.id = r.lane WHERE r.ending <= $2 GROUP BY r.minute, l.app, r.ending"#,
        (
            minutes,
            Ending::Capped.code() // the last of them
        )
    )
}

/// Marks a chunk of campaigns without waiting deliveries as ended, except scheduled ones before their time. Returns the number.
pub async fn end_campaigns(pool: &PgPool, now: Timestamp) -> sqlx::Result<u64> {
    let mut tx = begin_by_index(pool).await?;
    let ended = fetch_one!(
        &mut *tx,
        scalar,
        r#"
        WITH ended AS (
            SELECT message, app FROM campaigns_in_motion k
            -- Not EXISTS, which may be planned as a look at the whole table.
            WHERE (SELECT true FROM cursors WHERE message = k.message LIMIT 1) IS NULL
              AND (SELECT true FROM batches WHERE message = k.message LIMIT 1) IS NULL
              AND (SELECT true FROM queue WHERE message = k.message LIMIT 1) IS NULL
              AND (SELECT true FROM messages WHERE id = k.message AND accepted_at > $1 AND state <> 'cancelled') IS NULL
            LIMIT $2 FOR UPDATE SKIP LOCKED
        ),
        forgotten AS (DELETE FROM campaigns_in_motion k USING ended e WHERE k.message = e.message),
        told AS (
            INSERT INTO stream_events (at, app, kind, data)
            SELECT $1, e.app, $3,
                   jsonb_build_object('message', 'msg_' || m.id, 'state', CASE m.state WHEN 'cancelled' THEN m.state ELSE 'done' END) || c.counts
            FROM ended e JOIN messages m ON m.id = e.message,
            LATERAL (SELECT jsonb_build_object('targeted', coalesce(sum(targeted), 0), 'accepted', coalesce(sum(accepted), 0),
                'gone', coalesce(sum(gone), 0), 'expired', coalesce(sum(expired), 0), 'dead', coalesce(sum(dead), 0),
                'cancelled', coalesce(sum(cancelled), 0), 'capped', coalesce(sum(capped), 0)) AS counts
                FROM message_counts WHERE message = m.id) c
        )
        SELECT count(*) AS "n!" FROM ended
        "#,
        (now, CHUNK, EventType::MessageDone.name())
    )?;
    tx.commit().await?;
    Ok(u64::try_from(ended).unwrap_or(0))
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/stream.rs"]
mod tests;
