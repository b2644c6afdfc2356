//! How work leaves the database: finding due lanes, claiming queue rows, cutting pages, leasing lost pages again.
//!
//! These statements run on connections that plan by index only (see [`super::connect`]): tables that fill and empty
//! within seconds have no statistics worth planning by. Rows are picked by `ctid` out of an array, because
//! `IN (SELECT … LIMIT n)` may pick more than `n` under some plans.

use std::time::Duration;

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::delivery::{Tier, Urgency};
use crate::id::{AppId, LaneId, MessageId, SubscriptionId, VapidKeyId};
use crate::lane::Gateway;

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
            RETURNING shard, subscription, message, retries, scheduled_at, leases
        )
        SELECT c.subscription, c.message, c.retries, c.scheduled_at, c.leases,
               s.origin_id AS "origin_id?", s.address AS "address?", s.state AS "subscription_state?",
               m.state AS message_state
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
            },
            message: MessageId(row.message),
            retries: u32::try_from(row.retries).unwrap_or(0),
            scheduled_at: row.scheduled_at,
            leases: row.leases,
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
    let sendable = |id, origin_id, address| Recipient {
        subscription: SubscriptionId(id),
        origin_id,
        address,
        standing: Standing::Sendable,
    };
    let Some(topic) = topic else {
        return sqlx::query!(
            r#"
            SELECT id, origin_id, address FROM subscriptions
            WHERE lane = $1 AND state = 'active' AND id > $2 AND since <= $3 AND (expires_at IS NULL OR expires_at > $4)
            ORDER BY id LIMIT $5
            "#,
            lane.0,
            after,
            accepted_at,
            now,
            size
        )
        .map(|row| sendable(row.id, row.origin_id, row.address))
        .fetch_all(connection)
        .await;
    };
    sqlx::query!(
        r#"
        SELECT s.id, s.origin_id, s.address
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
    .map(|row| sendable(row.id, row.origin_id, row.address))
    .fetch_all(connection)
    .await
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
        SELECT r.id AS "id!", s.origin_id AS "origin_id?", s.address AS "address?", s.state AS "state?"
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
        })
        .collect();
    Ok(Some(Page { id: page.id, lease, message: MessageId(page.message), lane, tier, leases: page.leases, recipients }))
}

/// Turns a page that killed its workers into queue rows, so that the recipient that does it ends up alone.
pub async fn split_page(pool: &PgPool, page: &Page, now: Timestamp) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        WITH fence AS (DELETE FROM pages WHERE id = $1 AND lease = $2 RETURNING message, lane, tier, recipients)
        INSERT INTO queue (shard, subscription, message, lane, tier, due_at, scheduled_at, leases)
        SELECT get_byte(uuid_send(r.id), 15) & 63, r.id, f.message, f.lane, f.tier, $3, $3, 1
        FROM fence f, unnest(f.recipients) AS r (id)
        ON CONFLICT DO NOTHING
        "#,
        page.id,
        page.lease,
        now
    )
    .execute(pool)
    .await
    .map(drop)
}

/// What dispatch needs of a message. The content is still sealed.
#[derive(Debug)]
pub struct MessageRow {
    /// Its id.
    pub id: MessageId,
    /// What its deliveries' ids are derived from: the message that it replays, or itself.
    pub root: MessageId,
    /// Whose it is.
    pub app: AppId,
    /// Its tier.
    pub tier: Tier,
    /// Sealed JSON of the content; none: it was deleted, since every delivery had ended.
    pub content: Option<Vec<u8>>,
    /// Time to live in seconds.
    pub ttl_s: u32,
    /// How urgently to wake the device.
    pub urgency: Urgency,
    /// The `Topic` header, 32 characters.
    pub topic_header: Option<String>,
    /// Its own delivery policy.
    pub policy: Option<serde_json::Value>,
    /// When its time to live began.
    pub accepted_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// Reads one message for dispatch.
pub async fn load_message(pool: &PgPool, id: MessageId) -> sqlx::Result<Option<MessageRow>> {
    let row = sqlx::query!(
        "SELECT app, replay_of, tier, content, ttl_s, urgency, topic_header, policy, accepted_at, expires_at
         FROM messages WHERE id = $1",
        id.0
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|row| MessageRow {
        id,
        root: row.replay_of.map_or(id, MessageId),
        app: AppId(row.app),
        tier: Tier::from_code(row.tier).expect("checked by the table"),
        content: row.content,
        ttl_s: u32::try_from(row.ttl_s).expect("checked by the table"),
        urgency: Urgency::from_code(row.urgency).expect("checked by the table"),
        topic_header: row.topic_header,
        policy: row.policy,
        accepted_at: row.accepted_at,
        expires_at: row.expires_at,
    }))
}

/// What dispatch needs of a lane. The private key is still sealed.
#[derive(Debug)]
pub struct LaneRow {
    /// Which push service.
    pub gateway: Gateway,
    /// Whose lane it is.
    pub app: AppId,
    /// The key that signs for it.
    pub vapid_key: VapidKeyId,
    /// Sealed private key.
    pub private_key: Vec<u8>,
    /// The `sub` claim.
    pub subject: String,
}

/// Reads one lane with its key.
pub async fn load_lane(pool: &PgPool, id: LaneId) -> sqlx::Result<Option<LaneRow>> {
    let row = sqlx::query!(
        r#"
        SELECT l.gateway, l.app, v.id AS vapid_key, v.private_key, v.subject
        FROM lanes l JOIN vapid_keys v ON v.id = l.vapid_key WHERE l.id = $1
        "#,
        id.0
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|row| LaneRow {
        gateway: Gateway::from_name(&row.gateway).expect("checked by the table"),
        app: AppId(row.app),
        vapid_key: VapidKeyId(row.vapid_key),
        private_key: row.private_key,
        subject: row.subject,
    }))
}
