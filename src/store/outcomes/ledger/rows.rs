//! Queue rows, settled in groups: fence, log, counts and notes in one statement.

use std::collections::HashSet;

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::closing::Closing;
use super::consequences;
use super::settlement::{Due, Fate, RowSettlement, Settlement, stored, stored_status};
use crate::model::clock::Timestamp;
use crate::model::id::{LaneId, MessageId, SubscriptionId};
use crate::store::audience::refusals;
use crate::store::hooks;
use crate::store::outcomes::notes::Profiles;
use crate::store::outcomes::tally::Tally;
use crate::vault::Vault;

/// Settles queue rows, of any messages. Returns how many were fenced out.
///
/// A row whose lease ran out may be here twice, under the lease that it lost and under another one: its statement could not
/// tell the two apart, so they are settled one after the other.
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

/// Settles rows, each a different one and in the order of their keys, in one transaction.
async fn settle_different_rows(
    pool: &PgPool,
    vault: &Vault,
    rows: &[&RowSettlement],
    now: Timestamp,
) -> sqlx::Result<usize> {
    let is_special = |s: &Settlement| consequences::is_special(s) || refusals::counts(s) || s.heard_ending().is_some();
    let special = rows.iter().any(|row| is_special(&row.settlement));
    if !special {
        return Ok(rows.len() - write_rows(&mut *pool.acquire().await?, vault, rows, false, now).await?.len());
    }
    let all = || rows.iter().map(|row| &row.settlement);
    let counted_last = all().any(consequences::changes_subscription);
    let mut tx = pool.begin().await?;
    consequences::lock(&mut tx, all()).await?;
    let written = write_rows(&mut tx, vault, rows, counted_last, now).await?;
    let is_ours = |s: &&Settlement| written.contains(&(s.delivery().subscription, s.delivery().message));
    let closing = Closing::of(if counted_last { Tally::of(all().filter(is_ours)) } else { Tally::default() });
    hooks::notes::write(&mut tx, all().filter(is_ours), now).await?;
    refusals::count(&mut tx, all().filter(is_ours), now).await?;
    consequences::write(&mut tx, all().filter(is_ours), closing, now).await?; // last: see there
    tx.commit().await?;
    Ok(rows.len() - written.len())
}

/// Fence, log and notes of queue rows in one statement, with counts unless they come last. Returns which
/// (subscription, message) were ours. It is as long as its one statement.
async fn write_rows(
    connection: &mut PgConnection,
    vault: &Vault,
    rows: &[&RowSettlement],
    counted_last: bool,
    now: Timestamp,
) -> sqlx::Result<HashSet<(SubscriptionId, MessageId)>> {
    let (mut given, mut profiles) = (Given::default(), Profiles::default());
    for row in rows {
        given.push(vault, row, now);
        given.profiles.push(profiles.of(&row.settlement));
    }
    let told = profiles.told();
    let written = sqlx::query!(
        r#"
        WITH given AS (
            SELECT * FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::uuid[], $5::smallint[], $6::integer[],
                                 $7::timestamptz[], $8::boolean[], $19::bytea[], $20::timestamptz[], $21::boolean[],
                                 $23::integer[])
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
            SET lease = NULL, leases = 0, retries = coalesce(g.retries, q.retries), token = coalesce(g.token, q.token),
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
        logged AS (
            INSERT INTO attempts (message, subscription, attempt, shard, at, ending, status, took_ms, reason)
            SELECT * FROM unnest($9::uuid[], $10::uuid[], $11::integer[], $12::smallint[], $13::timestamptz[],
                                 $14::smallint[], $15::smallint[], $16::integer[], $17::text[])
                AS a (message, subscription, attempt, shard, at, ending, status, took_ms, reason)
            -- IS TRUE, since a bare IN becomes a join, for which the planner, who takes arrays for ten elements, tries all
            -- pairs: half a millisecond for each of 500 rows.
            WHERE ((a.message, a.subscription) IN (SELECT message, subscription FROM ours)) IS TRUE
            ON CONFLICT DO NOTHING -- a row that came back after its attempt was logged must end all the same
        ),
        counted AS (
            INSERT INTO message_counts AS c (message, lane, accepted, gone, expired, dead, cancelled, capped)
            SELECT message, lane,
                   count(*) FILTER (WHERE ending = 1), count(*) FILTER (WHERE ending = 3),
                   count(*) FILTER (WHERE ending = 4), count(*) FILTER (WHERE ending = 5),
                   count(*) FILTER (WHERE ending = 6), count(*) FILTER (WHERE ending = 7)
            FROM ended WHERE NOT $22 GROUP BY message, lane ORDER BY message, lane
            ON CONFLICT (message, lane) DO UPDATE
            SET accepted = c.accepted + excluded.accepted, gone = c.gone + excluded.gone,
                expired = c.expired + excluded.expired, dead = c.dead + excluded.dead,
                cancelled = c.cancelled + excluded.cancelled, capped = c.capped + excluded.capped
        ),
        noted AS (
            INSERT INTO rollup_notes (minute, lane, tier, message, fact, n)
            SELECT date_trunc('minute', $18::timestamptz), t.lane, t.tier, t.message, t.fact, o.n
            FROM (SELECT profile, count(*) AS n FROM ours GROUP BY profile) o
            JOIN unnest($24::integer[], $25::integer[], $26::smallint[], $27::uuid[], $28::smallint[])
                AS t (profile, lane, tier, message, fact) ON t.profile = o.profile
        )
        SELECT subscription AS "subscription!", message AS "message!" FROM ours
        "#,
        &given.shards,
        &given.subscriptions as &[SubscriptionId],
        &given.messages as &[MessageId],
        &given.leases,
        &given.endings as &[Option<i16>],
        &given.retries as &[Option<i32>],
        &given.dues,
        &given.parked,
        &given.log.messages as &[MessageId],
        &given.log.subscriptions as &[SubscriptionId],
        &given.log.numbers,
        &given.log.shards,
        &given.log.ats,
        &given.log.endings,
        &given.log.statuses as &[Option<i16>],
        &given.log.took_ms as &[Option<i32>],
        &given.log.reasons as &[Option<&str>],
        now,
        &given.tokens as &[Option<Vec<u8>>],
        &given.failed_at as &[Option<Timestamp>],
        &given.has_turn,
        counted_last,
        &given.profiles,
        &told.profiles,
        &told.lanes as &[LaneId],
        &told.tiers,
        &told.messages as &[Option<MessageId>],
        &told.facts,
    )
    .fetch_all(connection)
    .await?;
    Ok(written.into_iter().map(|row| (SubscriptionId(row.subscription), MessageId(row.message))).collect())
}

/// The arrays of [`write_rows`]: a row an element.
#[derive(Default)]
struct Given<'a> {
    shards: Vec<i16>,
    subscriptions: Vec<SubscriptionId>,
    messages: Vec<MessageId>,
    leases: Vec<Uuid>,
    endings: Vec<Option<i16>>,
    retries: Vec<Option<i32>>,
    dues: Vec<Timestamp>,
    parked: Vec<bool>,
    /// None: the row keeps its own, since nothing that it signs changes.
    tokens: Vec<Option<Vec<u8>>>,
    failed_at: Vec<Option<Timestamp>>,
    has_turn: Vec<bool>,
    /// What figures over time are told of it.
    profiles: Vec<i32>,
    log: Log<'a>,
}

#[derive(Default)]
struct Log<'a> {
    messages: Vec<MessageId>,
    subscriptions: Vec<SubscriptionId>,
    numbers: Vec<i32>,
    shards: Vec<i16>,
    ats: Vec<Timestamp>,
    endings: Vec<i16>,
    statuses: Vec<Option<i16>>,
    took_ms: Vec<Option<i32>>,
    reasons: Vec<Option<&'a str>>,
}

impl<'a> Given<'a> {
    fn push(&mut self, vault: &Vault, row: &'a RowSettlement, now: Timestamp) {
        let (settlement, of) = (&row.settlement, row.settlement.delivery());
        let (ending, retries, due) = match settlement.fate() {
            Fate::Ended(_, end) => (Some(end.ending().code()), None, Due::At(now)),
            Fate::Retry { retries, due, .. } => (None, Some(*retries), Due::At(*due)),
            Fate::Deferred(due) => (None, None, *due),
            // A row in flight is not settled; should one get here, it is simply due again.
            Fate::InFlight { lease_until, .. } => (None, None, Due::At(*lease_until)),
        };
        let token = retries.map(|retries| settlement.queued(retries, due.time(now)).sign(vault).to_vec());
        self.shards.push(of.subscription.shard());
        self.subscriptions.push(of.subscription);
        self.messages.push(of.message);
        self.leases.push(row.lease);
        self.endings.push(ending);
        self.retries.push(retries.map(stored));
        self.dues.push(due.time(now));
        self.parked.push(due == Due::Parked);
        self.tokens.push(token);
        self.failed_at.push(settlement.failed_at());
        self.has_turn.push(due.is_turn());
        for (attempt, ending) in settlement.attempts() {
            self.log.messages.push(of.message);
            self.log.subscriptions.push(of.subscription);
            self.log.numbers.push(stored(attempt.number));
            self.log.shards.push(of.subscription.shard());
            self.log.ats.push(attempt.at);
            self.log.endings.push(ending.code());
            self.log.statuses.push(attempt.status.map(stored_status));
            self.log.took_ms.push(attempt.took_ms.map(stored));
            self.log.reasons.push(attempt.reason.as_deref());
        }
    }
}
