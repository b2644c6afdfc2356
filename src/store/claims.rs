//! How work leaves the database: finding due lanes, claiming queue rows, cutting pages, leasing lost pages again.
//!
//! These statements run on connections that plan by index only (see [`super::connect`]): tables that fill and empty
//! within seconds have no statistics worth planning by. Rows are picked by `ctid` out of an array, because
//! `IN (SELECT … LIMIT n)` may pick more than `n` under some plans.

use std::time::Duration;

use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::delivery::Tier;
use crate::id::{LaneId, MessageId, SubscriptionId};
use crate::policy::token::Queued;
use crate::vault::Vault;

/// How long a claim is its worker's. A worker that dies loses its claims after this.
pub const LEASE: Duration = Duration::from_secs(30);

/// A (lane, tier) that has something to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DueLane {
    /// Which lane.
    pub lane: LaneId,
    /// Which tier of it.
    pub tier: Tier,
    /// Where the work lies.
    pub source: Source,
}

/// The three tables that work is claimed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Deliveries that wait alone.
    Queue,
    /// Pages whose worker died.
    Pages,
    /// Messages still being fanned out.
    Cursors,
}

/// Everything that is due, found by one skip scan of each table: a probe of the index for each (lane, tier) that has
/// rows at all, however many rows there are.
pub async fn due_lanes(pool: &PgPool, now: Timestamp) -> sqlx::Result<Vec<DueLane>> {
    let found = sqlx::query!(
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
            (SELECT lane, tier, due_at FROM pages ORDER BY lane, tier, due_at LIMIT 1)
            UNION ALL
            SELECT n.lane, n.tier, n.due_at FROM p, LATERAL (
                SELECT lane, tier, due_at FROM pages WHERE (lane, tier) > (p.lane, p.tier)
                ORDER BY lane, tier, due_at LIMIT 1) n
        ),
        c AS (
            (SELECT lane, tier, due_at FROM cursors ORDER BY lane, tier, due_at LIMIT 1)
            UNION ALL
            SELECT n.lane, n.tier, n.due_at FROM c, LATERAL (
                SELECT lane, tier, due_at FROM cursors WHERE (lane, tier) > (c.lane, c.tier)
                ORDER BY lane, tier, due_at LIMIT 1) n
        )
        SELECT 0 AS "source!", lane AS "lane!", tier AS "tier!" FROM q WHERE due_at <= $1
        UNION ALL SELECT 1, lane, tier FROM p WHERE due_at <= $1
        UNION ALL SELECT 2, lane, tier FROM c WHERE due_at <= $1
        ORDER BY 3, 1, 2
        "#,
        now
    )
    .fetch_all(pool)
    .await?;
    Ok(found
        .into_iter()
        .filter_map(|row| {
            let source = [Source::Queue, Source::Pages, Source::Cursors][usize::try_from(row.source).ok()?];
            Some(DueLane { lane: LaneId(row.lane), tier: Tier::from_code(row.tier)?, source })
        })
        .collect())
}

/// Whether a claimed delivery may be sent, as the database stood when it was claimed. Whatever changes later comes
/// as a [stop](super::stops).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its subscription is active and its message is sending.
    Sendable,
    /// Its message is paused: park it.
    Paused,
    /// Its message was cancelled, or its subscription unsubscribed, replaced, suspended or erased.
    Cancelled,
    /// Its subscription is gone or expired.
    Gone,
}

fn standing(subscription: Option<&str>, message: &str) -> Standing {
    match (message, subscription) {
        ("cancelled", _) => Standing::Cancelled,
        (_, Some("gone" | "expired")) => Standing::Gone,
        (_, None | Some("unsubscribed" | "replaced" | "suspended")) => Standing::Cancelled,
        ("paused", _) => Standing::Paused,
        _ => Standing::Sendable,
    }
}

/// Whom a delivery goes to. The address is still sealed.
#[derive(Debug)]
pub struct Recipient {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The first id of this browser, from which the delivery's id is derived.
    pub origin_id: Uuid,
    /// Sealed p256dh, auth and endpoint; empty where there is nothing to send.
    pub address: Vec<u8>,
    /// Whether it may be sent.
    pub standing: Standing,
    /// Its subscription's own delivery policy.
    pub policy: Option<Value>,
    /// Its time zone (IANA), if its browser told.
    pub timezone: Option<String>,
    /// Non-retryable refusals in a row so far.
    pub refusals: u16,
}

/// A queue row under our lease.
#[derive(Debug)]
pub struct ClaimedRow {
    /// Whom it goes to.
    pub recipient: Recipient,
    /// What is sent.
    pub message: MessageId,
    /// Attempts that a retry followed.
    pub retries: u32,
    /// When the policy wanted it sent.
    pub scheduled_at: Timestamp,
    /// How often it was claimed, this time included.
    pub leases: i16,
    /// Signs it: see [`crate::policy::token`].
    pub token: Vec<u8>,
    /// When the attempt before failed.
    pub failed_at: Option<Timestamp>,
    /// Whether its subscription's throttle has let it through already.
    pub has_turn: bool,
    /// Whether the attempt that it asks for was made already.
    pub is_recorded: bool,
    /// Whether it waits in its subscription's lane and at its message's tier.
    pub is_in_place: bool,
}

/// Claims up to `limit` due rows of a lane and tier under `lease` until `until`.
pub async fn claim_rows(
    pool: &PgPool,
    lane: LaneId,
    tier: Tier,
    limit: usize,
    lease: Uuid,
    now: Timestamp,
    until: Timestamp,
) -> sqlx::Result<Vec<ClaimedRow>> {
    let rows = sqlx::query!(
        r#"
        WITH claimed AS (
            UPDATE queue SET lease = $5, leases = leases + 1, due_at = $6
            WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM queue WHERE lane = $1 AND tier = $2 AND due_at <= $4
                ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED))
            RETURNING shard, subscription, message, lane, tier, retries, scheduled_at, leases, token, failed_at, has_turn
        )
        SELECT c.subscription, c.message, c.retries, c.scheduled_at, c.leases, c.token, c.failed_at, c.has_turn,
               s.origin_id AS "origin_id?", s.address AS "address?", s.state AS "subscription_state?", s.policy, s.timezone,
               s.refusals AS "refusals?", m.state AS message_state,
               coalesce(s.lane = c.lane, true) AND m.tier = c.tier AS "is_in_place!",
               EXISTS (SELECT FROM attempts a WHERE a.message = c.message AND a.subscription = c.subscription
                       AND a.attempt = c.retries AND a.shard = c.shard) AS "is_recorded!"
        FROM claimed c
        JOIN messages m ON m.id = c.message
        LEFT JOIN subscriptions s ON s.shard = c.shard AND s.id = c.subscription
        "#,
        lane.0,
        tier.code(),
        i64::try_from(limit).unwrap_or(i64::MAX),
        now,
        lease,
        until,
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| ClaimedRow {
            recipient: Recipient {
                subscription: SubscriptionId(row.subscription),
                origin_id: row.origin_id.unwrap_or_default(),
                address: row.address.unwrap_or_default(),
                standing: standing(row.subscription_state.as_deref(), &row.message_state),
                policy: row.policy,
                timezone: row.timezone,
                refusals: row.refusals.and_then(|n| u16::try_from(n).ok()).unwrap_or(0),
            },
            message: MessageId(row.message),
            retries: u32::try_from(row.retries).unwrap_or(0),
            scheduled_at: row.scheduled_at,
            leases: row.leases,
            token: row.token,
            failed_at: row.failed_at,
            has_turn: row.has_turn,
            is_recorded: row.is_recorded,
            is_in_place: row.is_in_place,
        })
        .collect())
}

/// A page under our lease.
#[derive(Debug)]
pub struct Page {
    /// Its id.
    pub id: Uuid,
    /// The fence of its settling.
    pub lease: Uuid,
    /// What is sent.
    pub message: MessageId,
    /// Its lane.
    pub lane: LaneId,
    /// Its tier.
    pub tier: Tier,
    /// How often it was leased, this time included.
    pub leases: i16,
    /// Whom it is for, in order of id.
    pub recipients: Vec<Recipient>,
}

/// What cutting a cursor came to.
#[derive(Debug)]
pub enum Cut {
    /// Nothing of this lane and tier is left to cut now.
    Nothing,
    /// The cursor ended without another recipient.
    Ended,
    /// A page, leased to us.
    Page(Page),
}

/// The message of the cursor that would be cut next.
pub async fn next_cursor(pool: &PgPool, lane: LaneId, tier: Tier, now: Timestamp) -> sqlx::Result<Option<MessageId>> {
    let message = sqlx::query_scalar!(
        "SELECT message FROM cursors WHERE lane = $1 AND tier = $2 AND due_at <= $3 ORDER BY due_at LIMIT 1",
        lane.0,
        tier.code(),
        now
    );
    Ok(message.fetch_optional(pool).await?.map(MessageId))
}

/// Puts a cursor that is due off until `until`. False: it is not there, or not due any more.
pub async fn postpone_cursor(
    pool: &PgPool,
    message: MessageId,
    lane: LaneId,
    now: Timestamp,
    until: Timestamp,
) -> sqlx::Result<bool> {
    let postponed = sqlx::query!(
        "UPDATE cursors SET due_at = $4 WHERE message = $1 AND lane = $2 AND due_at <= $3",
        message.0,
        lane.0,
        now,
        until
    );
    Ok(postponed.execute(pool).await?.rows_affected() == 1)
}

/// Cuts the next page of up to `size` recipients off the least recently cut cursor of a lane and tier. `page` is a
/// fresh id, which is also its first lease.
///
/// The transaction does not wait for its WAL: if Postgres crashes and forgets the cut, the recipients are cut again,
/// and they are no more than the crash would have repeated anyway. Whatever settles the page makes the cut durable too.
pub async fn cut_page(
    pool: &PgPool,
    lane: LaneId,
    tier: Tier,
    size: usize,
    page: Uuid,
    now: Timestamp,
    until: Timestamp,
) -> sqlx::Result<Cut> {
    let mut tx = pool.begin_with("BEGIN; SET LOCAL synchronous_commit = off").await?;
    let Some(cursor) = sqlx::query!(
        r#"
        SELECT c.message, c.topic, c.after, m.accepted_at
        FROM cursors c JOIN messages m ON m.id = c.message
        WHERE c.lane = $1 AND c.tier = $2 AND c.due_at <= $3
        ORDER BY c.due_at LIMIT 1 FOR UPDATE OF c SKIP LOCKED
        "#,
        lane.0,
        tier.code(),
        now
    )
    .fetch_optional(&mut *tx)
    .await?
    else {
        return Ok(Cut::Nothing);
    };
    let recipients = read_recipients(&mut tx, lane, cursor.topic, cursor.after, cursor.accepted_at, size, now).await?;
    let ids: Vec<Uuid> = recipients.iter().map(|recipient| recipient.subscription.0).collect();
    if !ids.is_empty() {
        // One statement instead of two: what it costs to start one counts for each page.
        sqlx::query!(
            r#"
            WITH moved AS (UPDATE cursors SET after = $8, due_at = $9 WHERE message = $2 AND lane = $3),
            page AS (
                INSERT INTO pages (id, message, lane, tier, recipients, lease, due_at)
                VALUES ($1, $2, $3, $4, $5, $6, $7)
            )
            INSERT INTO message_counts AS counts (message, lane, targeted) VALUES ($2, $3, cardinality($5::uuid[]))
            ON CONFLICT (message, lane) DO UPDATE SET targeted = counts.targeted + excluded.targeted
            "#,
            page,
            cursor.message,
            lane.0,
            tier.code(),
            &ids,
            page,
            until,
            ids.last(),
            now
        )
        .execute(&mut *tx)
        .await?;
    }
    if ids.len() < size {
        sqlx::query!("DELETE FROM cursors WHERE message = $1 AND lane = $2", cursor.message, lane.0)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    if ids.is_empty() {
        return Ok(Cut::Ended);
    }
    Ok(Cut::Page(Page { id: page, lease: page, message: MessageId(cursor.message), lane, tier, leases: 1, recipients }))
}

async fn read_recipients(
    connection: &mut PgConnection,
    lane: LaneId,
    topic: Option<i32>,
    after: Uuid,
    accepted_at: Timestamp,
    size: usize,
    now: Timestamp,
) -> sqlx::Result<Vec<Recipient>> {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    let Some(topic) = topic else {
        return sqlx::query_as!(
            Sendable,
            r#"
            SELECT id, origin_id, address, policy, timezone, refusals FROM subscriptions
            WHERE lane = $1 AND state = 'active' AND id > $2 AND since <= $3 AND (expires_at IS NULL OR expires_at > $4)
            ORDER BY id LIMIT $5
            "#,
            lane.0,
            after,
            accepted_at,
            now,
            size
        )
        .map(Recipient::from)
        .fetch_all(connection)
        .await;
    };
    sqlx::query_as!(
        Sendable,
        r#"
        SELECT s.id, s.origin_id, s.address, s.policy, s.timezone, s.refusals
        FROM topic_members t JOIN subscriptions s ON s.shard = t.shard AND s.id = t.subscription
        WHERE t.topic = $1 AND t.lane = $2 AND t.subscription > $3 AND t.joined_at <= $4
          AND s.state = 'active' AND s.since <= $4 AND (s.expires_at IS NULL OR s.expires_at > $5)
        ORDER BY t.subscription LIMIT $6
        "#,
        topic,
        lane.0,
        after,
        accepted_at,
        now,
        size
    )
    .map(Recipient::from)
    .fetch_all(connection)
    .await
}

/// A row of an active subscription.
struct Sendable {
    id: Uuid,
    origin_id: Uuid,
    address: Vec<u8>,
    policy: Option<Value>,
    timezone: Option<String>,
    refusals: i16,
}

impl From<Sendable> for Recipient {
    fn from(row: Sendable) -> Self {
        Self {
            subscription: SubscriptionId(row.id),
            origin_id: row.origin_id,
            address: row.address,
            standing: Standing::Sendable,
            policy: row.policy,
            timezone: row.timezone,
            refusals: u16::try_from(row.refusals).unwrap_or(0),
        }
    }
}

/// Leases one page whose lease ran out: its worker died, or lost the database for longer than that.
pub async fn lease_lost_page(
    pool: &PgPool,
    lane: LaneId,
    tier: Tier,
    lease: Uuid,
    now: Timestamp,
    until: Timestamp,
) -> sqlx::Result<Option<Page>> {
    let Some(page) = sqlx::query!(
        r#"
        WITH leased AS (
            UPDATE pages SET lease = $4, leases = leases + 1, due_at = $5
            WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM pages WHERE lane = $1 AND tier = $2 AND due_at <= $3
                ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED))
            RETURNING id, message, leases, recipients
        )
        SELECT l.id, l.message, l.leases, l.recipients, m.state FROM leased l JOIN messages m ON m.id = l.message
        "#,
        lane.0,
        tier.code(),
        now,
        lease,
        until
    )
    .fetch_optional(pool)
    .await?
    else {
        return Ok(None);
    };
    let found = sqlx::query!(
        r#"
        SELECT r.id AS "id!", s.origin_id AS "origin_id?", s.address AS "address?", s.state AS "state?", s.policy, s.timezone,
               s.refusals AS "refusals?"
        FROM unnest($1::uuid[]) WITH ORDINALITY AS r (id, place)
        LEFT JOIN subscriptions s ON s.id = r.id AND s.shard = get_byte(uuid_send(r.id), 15) & 63
        ORDER BY r.place
        "#,
        &page.recipients
    )
    .fetch_all(pool)
    .await?;
    let recipients = found
        .into_iter()
        .map(|row| Recipient {
            subscription: SubscriptionId(row.id),
            origin_id: row.origin_id.unwrap_or_default(),
            address: row.address.unwrap_or_default(),
            standing: standing(row.state.as_deref(), &page.state),
            policy: row.policy,
            timezone: row.timezone,
            refusals: row.refusals.and_then(|n| u16::try_from(n).ok()).unwrap_or(0),
        })
        .collect();
    Ok(Some(Page { id: page.id, lease, message: MessageId(page.message), lane, tier, leases: page.leases, recipients }))
}

/// Turns a page that killed its workers into queue rows, so that the recipient that does it ends up alone.
pub async fn split_page(pool: &PgPool, vault: &Vault, page: &Page, now: Timestamp) -> sqlx::Result<()> {
    let (ids, tokens): (Vec<Uuid>, Vec<Vec<u8>>) = page
        .recipients
        .iter()
        .map(|&Recipient { subscription, .. }| {
            let queued = Queued { message: page.message, subscription, retries: 0, scheduled_at: now };
            (subscription.0, queued.sign(vault).to_vec())
        })
        .unzip();
    sqlx::query!(
        r#"
        WITH fence AS (DELETE FROM pages WHERE id = $1 AND lease = $2 RETURNING message, lane, tier)
        INSERT INTO queue (shard, subscription, message, lane, tier, due_at, scheduled_at, leases, token)
        SELECT get_byte(uuid_send(r.id), 15) & 63, r.id, f.message, f.lane, f.tier, $3, $3, 1, r.token
        FROM fence f, unnest($4::uuid[], $5::bytea[]) AS r (id, token)
        ON CONFLICT DO NOTHING
        "#,
        page.id,
        page.lease,
        now,
        &ids,
        &tokens
    )
    .execute(pool)
    .await
    .map(drop)
}

/// Reads the state of rows again whose tokens are late, and signs them anew. Answers which (subscription, message) are
/// still ours to send: neither stopped nor taken over meanwhile.
pub async fn sign_again(
    pool: &PgPool,
    vault: &Vault,
    lease: Uuid,
    late: &[Queued],
) -> sqlx::Result<Vec<(SubscriptionId, MessageId)>> {
    let column = |value: fn(&Queued) -> Uuid| late.iter().map(value).collect::<Vec<_>>();
    let signed = sqlx::query!(
        r#"
        UPDATE queue q SET token = l.token
        FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::bytea[]) AS l (shard, subscription, message, token)
        JOIN messages m ON m.id = l.message
        JOIN subscriptions s ON s.shard = l.shard AND s.id = l.subscription
        WHERE q.shard = l.shard AND q.subscription = l.subscription AND q.message = l.message AND q.lease = $5
          AND m.state = 'sending' AND s.state = 'active'
        RETURNING q.subscription, q.message
        "#,
        &late.iter().map(|queued| queued.subscription.shard()).collect::<Vec<_>>(),
        &column(|queued| queued.subscription.0),
        &column(|queued| queued.message.0),
        &late.iter().map(|queued| queued.sign(vault).to_vec()).collect::<Vec<_>>(),
        lease
    )
    .fetch_all(pool)
    .await?;
    Ok(signed.into_iter().map(|row| (SubscriptionId(row.subscription), MessageId(row.message))).collect())
}
