//! Settles queue rows in groups: fence, log, counts and notes in one statement.

use std::collections::HashSet;

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::closing::Closing;
use super::consequences;
use super::log::{LogEntry, copy_new};
use super::settlement::{ClaimableAt, Delivery, Fate, RowSettlement, Settlement, stored};
use crate::audience::refusals;
use crate::connections::engine;
use crate::hooks;
use crate::outcomes::notes::Profiles;
use crate::outcomes::tally::Tally;
use crate::queue::subscription_holds;
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{MessageId, SubscriptionId};
use bellwire_vault::{SIGNATURE_LEN, Vault};

/// Settles queue rows of any messages. Returns how many were fenced out.
///
/// A row whose lease expired may be here twice, under the lost lease and under a new one. One statement could not distinguish
/// them, so they are settled one after the other.
pub async fn settle_rows(pool: &PgPool, vault: &Vault, rows: &[RowSettlement], now: Timestamp) -> sqlx::Result<usize> {
    let key = |row: &RowSettlement| {
        let of = row.settlement.delivery();
        (of.subscription.shard(), of.subscription, of.message)
    };
    let mut ordered: Vec<&RowSettlement> = rows.iter().collect();
    ordered.sort_unstable_by_key(|row| key(row));
    let mut fenced = 0;
    while !ordered.is_empty() {
        let mut again = Vec::new();
        ordered.dedup_by(|row, before| {
            let is_again = key(row) == key(before);
            again.extend(is_again.then_some(*row));
            is_again
        });
        fenced += settle_different_rows(pool, vault, &ordered, now).await?;
        ordered = again;
    }
    Ok(fenced)
}

/// Settles distinct rows in the order of their keys, in one transaction.
async fn settle_different_rows(
    pool: &PgPool, vault: &Vault, rows: &[&RowSettlement], now: Timestamp,
) -> sqlx::Result<usize> {
    let is_special = |s: &Settlement| {
        consequences::is_special(s) || refusals::counts(s) || s.heard_ending().is_some() || s.hold().is_some()
    };
    let special = rows.iter().any(|row| is_special(&row.settlement));
    if !special && !engine::is_distributed() {
        return Ok(rows.len() - write_rows(&mut *pool.acquire().await?, vault, rows, false, now).await?.len());
    }
    let counted_last = rows.iter().any(|row| consequences::changes_subscription(&row.settlement));
    let mut tx = begin(pool).await?;
    let given = || rows.iter().map(|row| &row.settlement);
    subscription_holds::write(&mut tx, given()).await?;
    let replaced = consequences::lock(&mut tx, given()).await?;
    let is_handed_on = |row: &RowSettlement| replaced.contains(&row.settlement.delivery().subscription);
    let to_successor = |row: &RowSettlement| is_handed_on(row).then(|| row.to_successor(now));
    let to_successors: Vec<Option<RowSettlement>> = rows.iter().map(|row| to_successor(row)).collect();
    let rows: Vec<&RowSettlement> =
        rows.iter().zip(&to_successors).map(|(row, handed_on)| handed_on.as_ref().unwrap_or(row)).collect();
    let rows = rows.as_slice();
    let all = || rows.iter().map(|row| &row.settlement);
    let written = write_rows(&mut tx, vault, rows, counted_last, now).await?;
    let is_ours = |s: &&Settlement| written.contains(&(s.delivery().subscription, s.delivery().message));
    let closing = Closing::of(if counted_last { Tally::of(all().filter(is_ours)) } else { Tally::default() });
    hooks::notes::write(&mut tx, all().filter(is_ours), now).await?;
    refusals::count(&mut tx, all().filter(is_ours), now).await?;
    consequences::write(&mut tx, all().filter(is_ours), closing, now).await?; // last: see there
    tx.commit().await?;
    Ok(rows.len() - written.len())
}

/// Declares the statement of [`write_rows`]: fence, counts and notes, and the addition `$logged`.
macro_rules! settled {
    ($given:ident, $now:ident, $counted_last:ident, $told:ident, $logged:literal $($log:tt)*) => {
        query!(
            r#"/* settle_rows */
        WITH given AS (
            SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::uuid[], $5::smallint[], $6::integer[],
                                 $7::timestamptz[], $8::boolean[], $9::bytea[], $10::timestamptz[], $11::boolean[],
                                 $12::integer[])
                AS g (shard, subscription, message, lease, ending, retries, due, parked, token, failed_at, has_turn,
                      profile)
        ),
        ended AS (
            DELETE FROM queue q USING given g
            WHERE q.shard = g.shard AND q.subscription = g.subscription AND q.message = g.message AND q.lease = g.lease
              AND g.ending IS NOT NULL
            RETURNING q.subscription, q.message, q.lane, g.ending, g.profile
        ),
        kept AS (
            UPDATE queue q
            -- A claim that was lost before stays counted: its worker may have sent the push. See `queue::removals`.
            SET lease = NULL, leases = least(q.leases - 1, 1), retries = coalesce(g.retries, q.retries), token = coalesce(g.token, q.token),
                failed_at = coalesce(g.failed_at, q.failed_at), has_turn = g.has_turn,
                -- Whoever settles may have slept through the resume.
                due_at = CASE WHEN g.parked AND (SELECT state FROM messages WHERE id = g.message) = 'paused' THEN 'infinity'
                              ELSE g.due END,
                scheduled_at = CASE WHEN g.retries IS NULL THEN q.scheduled_at ELSE g.due END
            FROM given g
            WHERE q.shard = g.shard AND q.subscription = g.subscription AND q.message = g.message AND q.lease = g.lease
              AND g.ending IS NULL
            RETURNING q.subscription, q.message, g.profile
        ),
        ours AS (
            SELECT subscription, message, profile FROM ended UNION ALL SELECT subscription, message, profile FROM kept
        ),
"# + $logged + r#"
        counted AS (
            INSERT INTO message_counts AS c (message, lane, accepted, gone, expired, dead, cancelled, capped)
            SELECT message, lane,
                   count(*) FILTER (WHERE ending = 1), count(*) FILTER (WHERE ending = 3),
                   count(*) FILTER (WHERE ending = 4), count(*) FILTER (WHERE ending = 5),
                   count(*) FILTER (WHERE ending = 6), count(*) FILTER (WHERE ending = 7)
            FROM ended WHERE NOT $14 GROUP BY message, lane ORDER BY message, lane
            ON CONFLICT (message, lane) DO UPDATE
            SET accepted = c.accepted + excluded.accepted, gone = c.gone + excluded.gone,
                expired = c.expired + excluded.expired, dead = c.dead + excluded.dead,
                cancelled = c.cancelled + excluded.cancelled, capped = c.capped + excluded.capped
        ),
        noted AS (
            INSERT INTO rollup_notes (minute, lane, tier, message, fact, n)
            SELECT date_trunc('minute', $13::timestamptz), t.lane, t.tier, t.message, t.fact, o.n
            FROM (SELECT profile, count(*) AS n FROM ours GROUP BY profile) o
            JOIN unnest($15::integer[], $16::integer[], $17::smallint[], $18::uuid[], $19::smallint[])
                AS t (profile, lane, tier, message, fact) ON t.profile = o.profile
        )
        SELECT subscription AS "subscription!", message AS "message!" FROM ours
        "#,
            $given,
            |row| (row.of.subscription.shard(), row.of.subscription, row.of.message, row.lease, row.ending),
            |row| (row.retries.map(stored), row.due.time($now), row.due == ClaimableAt::Parked, row.token.as_ref().map(|it| &it[..])),
            |row| (row.failed_at, row.due.is_turn(), row.profile),
            ($now, $counted_last),
            $told,
            |(profile, lane, tier, message, fact)| (*profile, *lane, *tier, *message, *fact)
            $($log)*
        )
        .map(|row| (SubscriptionId(row.subscription), MessageId(row.message)))
    };
}

/// Writes fence, log and notes of queue rows in one statement, and counts unless they come last. Returns the (subscription,
/// message) of rows that passed the fence. On Citus, their attempts are logged by another statement.
async fn write_rows(
    connection: &mut PgConnection, vault: &Vault, rows: &[&RowSettlement], counted_last: bool, now: Timestamp,
) -> sqlx::Result<HashSet<(SubscriptionId, MessageId)>> {
    let mut profiles = Profiles::default();
    let given: Vec<GivenRow<'_>> =
        rows.iter().map(|row| GivenRow::of(vault, row, profiles.of(&row.settlement), now)).collect();
    let told = profiles.told();
    if engine::is_distributed() {
        let written = settled!(given, now, counted_last, told, "").fetch_all(&mut *connection).await?;
        let written = written.into_iter().collect();
        log(connection, rows, &written).await?;
        return Ok(written);
    }
    let mut entries = Vec::with_capacity(rows.len());
    entries.extend(rows.iter().flat_map(|row| row.settlement.logged()));
    let written = settled!(
        given,
        now,
        counted_last,
        told,
        r#"
        logged AS (
            INSERT INTO attempts (message, subscription, attempt, shard, at, ending, status, took_ms, reason)
            SELECT * FROM unnest($20::uuid[], $21::uuid[], $22::integer[], $23::smallint[], $24::timestamptz[],
                                 $25::smallint[], $26::smallint[], $27::integer[], $28::text[])
                AS a (message, subscription, attempt, shard, at, ending, status, took_ms, reason)
            -- IS TRUE, since a bare IN becomes a join, for which the planner, who takes arrays for ten elements, tries all
            -- pairs: half a millisecond for each of 500 rows.
            WHERE ((a.message, a.subscription) IN (SELECT message, subscription FROM ours)) IS TRUE
            ON CONFLICT DO NOTHING -- a row that came back after its attempt was logged must end all the same
        ),
        "#,
        entries,
        |it| (it.message, it.subscription, it.number, it.subscription.shard(), it.at, it.ending),
        |it| (it.status, it.took_ms, it.reason)
    );
    Ok(written.fetch_all(connection).await?.into_iter().collect())
}

/// Logs the attempts of rows that this worker held. A row may reappear after its attempt was logged, and must end nevertheless.
async fn log(
    connection: &mut PgConnection, rows: &[&RowSettlement], ours: &HashSet<(SubscriptionId, MessageId)>,
) -> sqlx::Result<()> {
    let is_ours = |row: &&&RowSettlement| {
        let of = row.settlement.delivery();
        ours.contains(&(of.subscription, of.message))
    };
    let entries: Vec<LogEntry<'_>> = rows.iter().filter(is_ours).flat_map(|row| row.settlement.logged()).collect();
    copy_new(connection, &entries).await
}

/// A row in the form of [`write_rows`]'s parameters.
struct GivenRow<'a> {
    of: &'a Delivery,
    lease: Uuid,
    ending: Option<i16>,
    retries: Option<u32>,
    due: ClaimableAt,
    /// New retry token. `None`: the row keeps its token, because no signed value changes.
    token: Option<[u8; SIGNATURE_LEN]>,
    failed_at: Option<Timestamp>,
    profile: i32,
}

impl<'a> GivenRow<'a> {
    fn of(vault: &Vault, row: &'a RowSettlement, profile: i32, now: Timestamp) -> Self {
        let settlement = &row.settlement;
        let (ending, retries, due) = match settlement.fate() {
            Fate::Ended(_, end) => (Some(end.ending().code()), None, ClaimableAt::At(now)),
            Fate::Retry { retries, due, .. } => (None, Some(*retries), ClaimableAt::At(*due)),
            Fate::Deferred(due) => (None, None, *due),
            // A row in flight is not settled; should one get here, it is simply due again.
            Fate::InFlight { lease_until, .. } => (None, None, ClaimableAt::At(*lease_until)),
        };
        let token = retries.map(|retries| settlement.queued(retries, due.time(now)).sign(vault));
        let (of, failed_at) = (settlement.delivery(), settlement.failed_at());
        Self { of, lease: row.lease, ending, retries, due, token, failed_at, profile }
    }
}
