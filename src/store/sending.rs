//! A message is accepted: its row, and whom it goes to, in one transaction.
//!
//! Named recipients and audiences of at most [`ROWS_MAX`] become `queue` rows at once; larger ones a cursor for each
//! lane, from which workers cut pages.

use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::claims::{ClaimedRow, LEASE, Recipient, Standing};
use crate::clock::Timestamp;
use crate::delivery::{Tier, Urgency};
use crate::id::{LaneId, MessageId, SubscriptionId};
use crate::policy::token::Queued;
use crate::vault::Vault;

/// Largest topic, or whole app, that becomes queue rows at once.
const ROWS_MAX: i64 = 100;

/// A checked message.
#[derive(Debug)]
pub struct NewMessage {
    /// Its id.
    pub id: MessageId,
    /// Whose it is.
    pub app: Uuid,
    /// Its tier.
    pub tier: Tier,
    /// `to`, as it was given.
    pub audience: Value,
    /// Sealed [`crate::message::Content`], as JSON.
    pub content: Vec<u8>,
    /// Time to live.
    pub ttl_s: i32,
    /// How urgently gateways should deliver it.
    pub urgency: Urgency,
    /// Hash of its collapse key.
    pub topic_header: Option<String>,
    /// Its own delivery policy.
    pub policy: Option<Value>,
    /// Whether its pushes carry our envelope, and with it the token that receipts come with.
    pub enveloped: bool,
    /// When the API took it.
    pub accepted_at: Timestamp,
}

impl NewMessage {
    fn expires_at(&self) -> Timestamp {
        self.accepted_at + chrono::TimeDelta::seconds(self.ttl_s.into())
    }
}

/// Whom a message is addressed to.
#[derive(Debug, Clone)]
pub enum Audience {
    /// These, each once.
    Subscriptions(Vec<SubscriptionId>),
    /// Every active subscription of these users, each named once.
    Users(Vec<String>),
    /// Everyone in a topic.
    Topic {
        /// Its name.
        name: String,
        /// Whether it is no mistake if there is no such topic: browsers may make topics by joining.
        may_be_missing: bool,
    },
    /// Everyone.
    All,
}

/// What an audience comes to.
#[derive(Debug)]
pub enum Reach {
    /// One by one.
    Rows(Vec<SubscriptionId>),
    /// By cursors.
    Lanes {
        /// Where they are.
        lanes: Vec<i32>,
        /// How many there are.
        total: i64,
    },
}

/// An audience that was looked up.
struct Resolved {
    reach: Reach,
    /// The topic that it is.
    topic: Option<i32>,
    /// Whether there is no topic of that name.
    lacks_topic: bool,
    /// Named users who cannot be reached.
    unreachable: i64,
}

impl Resolved {
    fn new(reach: Reach) -> Self {
        Self { reach, topic: None, lacks_topic: false, unreachable: 0 }
    }
}

/// A delivery that was born leased to this process.
#[derive(Debug)]
pub struct Born {
    /// Its lane.
    pub lane: LaneId,
    /// As if it had been claimed.
    pub row: ClaimedRow,
}

/// What became of a message.
#[derive(Debug, Default)]
pub struct Sent {
    /// Subscriptions that do not exist in this app. If there are any, nothing was done.
    pub unknown: Vec<SubscriptionId>,
    /// Whether there is no topic of that name. If that is a mistake, nothing was done.
    pub lacks_topic: bool,
    /// Deliveries to make, as far as known now.
    pub estimate: i64,
    /// Named subscriptions that are not active, or users without an active one.
    pub unreachable: i64,
    /// What was born leased, if a lease was given and there are only queue rows.
    pub born: Vec<Born>,
}

/// Stores a message and its audience. With a lease, queue rows are born held by whoever made it, who must send what
/// comes back in [`Sent::born`] once the transaction is committed; without one they are due at once.
pub async fn send(
    conn: &mut PgConnection,
    vault: &Vault,
    message: &NewMessage,
    audience: &Audience,
    lease: Option<Uuid>,
) -> Result<Sent, sqlx::Error> {
    let Resolved { reach, topic, lacks_topic, unreachable } = resolve(conn, message.app, audience).await?;
    if lacks_topic && matches!(audience, Audience::Topic { may_be_missing: false, .. }) {
        return Ok(Sent { lacks_topic, ..Sent::default() });
    }
    match reach {
        Reach::Rows(ids) => {
            let users = if let Audience::Users(users) = audience { Some(users.as_slice()) } else { None };
            let sent = send_to(conn, vault, message, topic, &ids, users, lease).await?;
            Ok(Sent { unreachable: sent.unreachable + unreachable, lacks_topic, ..sent })
        }
        Reach::Lanes { lanes, total } => {
            fan_out(conn, message, topic, &lanes, total).await?;
            Ok(Sent { estimate: total, ..Sent::default() })
        }
    }
}

/// Counts without sending.
pub async fn dry_run(
    conn: &mut PgConnection,
    app: Uuid,
    audience: &Audience,
    now: Timestamp,
) -> Result<Sent, sqlx::Error> {
    let Resolved { reach, unreachable, lacks_topic, .. } = resolve(conn, app, audience).await?;
    let ids = match reach {
        Reach::Rows(ids) => ids,
        Reach::Lanes { total, .. } => return Ok(Sent { estimate: total, ..Sent::default() }),
    };
    let known = sqlx::query!(
        r#"SELECT s.id, s.state = 'active' AND (s.expires_at IS NULL OR s.expires_at > $4) AS "live!"
         FROM unnest($1::smallint[], $2::uuid[]) AS t (shard, id)
         JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id AND s.app = $3"#,
        &ids.iter().map(|id| id.shard()).collect::<Vec<_>>(),
        &ids.iter().map(|id| id.0).collect::<Vec<_>>(),
        app,
        now
    )
    .fetch_all(conn)
    .await?;
    let live = known.iter().filter(|row| row.live).count();
    Ok(Sent {
        unknown: missing(&ids, known.iter().map(|row| row.id)),
        estimate: count(live),
        unreachable: unreachable + count(known.len() - live),
        lacks_topic,
        born: Vec::new(),
    })
}

fn missing(wanted: &[SubscriptionId], found: impl Iterator<Item = Uuid>) -> Vec<SubscriptionId> {
    let found: std::collections::HashSet<Uuid> = found.collect();
    wanted.iter().copied().filter(|id| !found.contains(&id.0)).collect()
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Finds out what an audience comes to.
async fn resolve(conn: &mut PgConnection, app: Uuid, audience: &Audience) -> Result<Resolved, sqlx::Error> {
    match audience {
        Audience::Subscriptions(ids) => Ok(Resolved::new(Reach::Rows(ids.clone()))),
        Audience::Users(users) => {
            let found = sqlx::query!(
                r#"SELECT id, user_id AS "user_id!" FROM subscriptions
                 WHERE app = $1 AND user_id = ANY($2) AND state = 'active'"#,
                app,
                users
            )
            .fetch_all(conn)
            .await?;
            let reached: std::collections::HashSet<&str> = found.iter().map(|row| row.user_id.as_str()).collect();
            let unreachable = count(users.len() - reached.len());
            let ids = found.iter().map(|row| SubscriptionId(row.id)).collect();
            Ok(Resolved { unreachable, ..Resolved::new(Reach::Rows(ids)) })
        }
        Audience::Topic { name, .. } => {
            let Some(topic) = super::topics::find(conn, app, name).await? else {
                return Ok(Resolved { lacks_topic: true, ..Resolved::new(Reach::Rows(Vec::new())) });
            };
            let lanes = sqlx::query!(
                r#"SELECT lane, count(*) AS "n!" FROM topic_members WHERE topic = $1 GROUP BY lane ORDER BY lane"#,
                topic
            )
            .map(|row| (row.lane, row.n))
            .fetch_all(&mut *conn)
            .await?;
            let reach = small_or_lanes(conn, Some(topic), &lanes).await?;
            Ok(Resolved { topic: Some(topic), ..Resolved::new(reach) })
        }
        Audience::All => {
            let lanes = sqlx::query!(
                r#"SELECT l.id AS lane, (SELECT count(*) FROM subscriptions s WHERE s.lane = l.id AND s.state = 'active')
                   AS "n!" FROM lanes l WHERE l.app = $1 ORDER BY l.id"#,
                app
            )
            .map(|row| (row.lane, row.n))
            .fetch_all(&mut *conn)
            .await?;
            Ok(Resolved::new(small_or_lanes(conn, None, &lanes).await?))
        }
    }
}

async fn small_or_lanes(
    conn: &mut PgConnection,
    topic: Option<i32>,
    counted: &[(i32, i64)],
) -> Result<Reach, sqlx::Error> {
    let total: i64 = counted.iter().map(|(_, n)| n).sum();
    let lanes: Vec<i32> = counted.iter().filter(|(_, n)| *n > 0).map(|(lane, _)| *lane).collect();
    if total > ROWS_MAX {
        return Ok(Reach::Lanes { lanes, total });
    }
    let ids = match topic {
        Some(topic) => {
            sqlx::query_scalar!(
                "SELECT s.id FROM topic_members m JOIN subscriptions s ON s.shard = m.shard AND s.id = m.subscription
                 WHERE m.topic = $1 AND s.state = 'active'",
                topic
            )
            .fetch_all(conn)
            .await?
        }
        None => {
            sqlx::query_scalar!("SELECT id FROM subscriptions WHERE lane = ANY($1) AND state = 'active'", &lanes)
                .fetch_all(conn)
                .await?
        }
    };
    Ok(Reach::Rows(ids.into_iter().map(SubscriptionId).collect()))
}

/// Stores a message with a queue row for each of these subscriptions that is active, all in one statement: this is
/// the way of the one-time code. If any id is unknown, nothing is stored. With `users`, it is for those subscriptions only that
/// still are theirs: somebody else may have logged in since they were looked up.
async fn send_to(
    conn: &mut PgConnection,
    vault: &Vault,
    message: &NewMessage,
    topic: Option<i32>,
    ids: &[SubscriptionId],
    users: Option<&[String]>,
    lease: Option<Uuid>,
) -> Result<Sent, sqlx::Error> {
    let now = message.accepted_at;
    let queued = |subscription| Queued { message: message.id, subscription, retries: 0, scheduled_at: now };
    let rows = sqlx::query!(
        r#"WITH named AS (
             SELECT s.shard, s.id, s.lane, s.origin_id, s.address, s.policy, s.timezone, s.proven, s.life, t.token,
               s.state = 'active' AND (s.expires_at IS NULL OR s.expires_at > $13)
                 AND ($19::text[] IS NULL OR s.user_id = ANY ($19)) IS TRUE AS live
             FROM unnest($1::smallint[], $2::uuid[], $16::bytea[]) AS t (shard, id, token)
             JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id AND s.app = $3),
           message AS (
             INSERT INTO messages (id, app, tier, state, audience, content, ttl_s, urgency, topic_header, policy,
               topic, enveloped, audience_estimate, accepted_at, expires_at)
             SELECT $4, $3, $5, 'sending', $6, $7, $8, $9, $10, $11, $17, $18, count(*) FILTER (WHERE live), $13, $12
             FROM named HAVING count(*) = cardinality($2) RETURNING id),
           counted AS (
             INSERT INTO message_counts (message, lane, targeted)
             SELECT message.id, lane, count(*) FROM named, message WHERE live GROUP BY message.id, lane ORDER BY lane),
           queued AS (
             INSERT INTO queue (shard, subscription, message, lane, tier, due_at, scheduled_at, lease, leases, token, life)
             SELECT shard, named.id, message.id, lane, $5, $14, $13, $15, CASE WHEN $15::uuid IS NULL THEN 0 ELSE 1 END, token,
               life
             FROM named, message WHERE live)
         SELECT id, lane, origin_id, policy, timezone, proven, life, live AS "live!",
           CASE WHEN live AND $15::uuid IS NOT NULL THEN address ELSE '' END AS "address!" FROM named"#,
        &ids.iter().map(|id| id.shard()).collect::<Vec<_>>(),
        &ids.iter().map(|id| id.0).collect::<Vec<_>>(),
        message.app,
        message.id.0,
        message.tier.code(),
        message.audience,
        message.content,
        message.ttl_s,
        message.urgency.code(),
        message.topic_header,
        message.policy,
        message.expires_at(),
        now,
        lease.map_or(now, |_| now + LEASE),
        lease,
        &ids.iter().map(|id| queued(*id).sign(vault).to_vec()).collect::<Vec<_>>(),
        topic,
        message.enveloped,
        users
    )
    .fetch_all(conn)
    .await?;
    let unknown = missing(ids, rows.iter().map(|row| row.id));
    if !unknown.is_empty() {
        return Ok(Sent { unknown, ..Sent::default() });
    }
    let live = rows.iter().filter(|row| row.live).count();
    let unreachable = count(rows.len() - live);
    let born = rows.into_iter().filter(|row| row.live && lease.is_some()).map(|row| Born {
        lane: LaneId(row.lane),
        row: ClaimedRow {
            recipient: Recipient {
                subscription: SubscriptionId(row.id),
                origin_id: row.origin_id,
                address: row.address,
                standing: Standing::Sendable,
                policy: row.policy,
                timezone: row.timezone,
                proven: row.proven,
                life: row.life,
            },
            message: message.id,
            retries: 0,
            scheduled_at: now,
            leases: 1,
            token: queued(SubscriptionId(row.id)).sign(vault).to_vec(),
            failed_at: None,
            has_turn: false,
            is_recorded: false,
            is_in_place: true,
        },
    });
    Ok(Sent { unknown, lacks_topic: false, estimate: count(live), unreachable, born: born.collect() })
}

/// Stores a message with a cursor for each lane.
async fn fan_out(
    conn: &mut PgConnection,
    message: &NewMessage,
    topic: Option<i32>,
    lanes: &[i32],
    total: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "WITH message AS (
           INSERT INTO messages (id, app, tier, state, audience, content, ttl_s, urgency, topic_header, policy,
             topic, enveloped, audience_estimate, accepted_at, expires_at)
           VALUES ($1, $2, $3, 'sending', $4, $5, $6, $7, $8, $9, $13, $15, $10, $11, $12))
         INSERT INTO cursors (message, lane, tier, topic, after, due_at)
         SELECT $1, lane, $3, $13, '00000000-0000-0000-0000-000000000000', $11 FROM unnest($14::integer[]) AS lane",
        message.id.0,
        message.app,
        message.tier.code(),
        message.audience,
        message.content,
        message.ttl_s,
        message.urgency.code(),
        message.topic_header,
        message.policy,
        total,
        message.accepted_at,
        message.expires_at(),
        topic,
        lanes,
        message.enveloped
    )
    .execute(conn)
    .await?;
    Ok(())
}
