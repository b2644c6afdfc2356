//! A message is accepted: its row, and whom it goes to, in one transaction.
//!
//! Named recipients and audiences of at most [`ROWS_MAX`] become `queue` rows at once, those of many messages in one
//! statement; larger ones a cursor for each lane, from which workers take batches.

mod rows;

use std::collections::HashSet;

use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::model::clock::Timestamp;
use crate::model::delivery::{Tier, Urgency};
use crate::model::id::{AppId, LaneId, MessageId, SubscriptionId};
use crate::store::audience::audience_counts;
use crate::store::queue::claims::ClaimedRow;
use crate::vault::Vault;
use rows::Parcel;

/// Commits of sends that are under way at a time, each on a connection of its own: while one waits for its WAL the next can
/// be prepared.
pub(crate) const WRITERS: u32 = 2;

/// Largest topic, or whole app, that becomes queue rows at once.
const ROWS_MAX: i64 = 100;

/// A checked message.
#[derive(Debug)]
pub(crate) struct NewMessage {
    /// Its id.
    pub id: MessageId,
    /// The app it belongs to.
    pub app: AppId,
    /// Its tier.
    pub tier: Tier,
    /// `to`, as it was given.
    pub audience: Value,
    /// Sealed [`crate::model::message::Content`], as JSON.
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
pub(crate) enum Audience {
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

/// A message and whom it is addressed to.
#[derive(Debug)]
pub(crate) struct Addressed {
    /// The message.
    pub message: NewMessage,
    /// Whom it is for.
    pub audience: Audience,
}

/// Who holds what is born leased, and must send what comes back in [`Sent::born`] once it is committed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder {
    /// The lease.
    pub lease: Uuid,
    /// When it runs out.
    pub until: Timestamp,
}

/// What an audience comes to.
#[derive(Debug)]
pub(crate) enum Reach {
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

impl Audience {
    /// Whether it names its recipients one by one.
    pub(crate) fn is_named(&self) -> bool {
        matches!(self, Self::Subscriptions(_) | Self::Users(_))
    }

    /// The users that it names, none if it names no users.
    fn users(&self) -> Option<&[String]> {
        if let Self::Users(users) = self { Some(users) } else { None }
    }
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
pub(crate) struct Sent {
    /// Subscriptions that do not exist in this app. If there are any, nothing was done.
    pub unknown: Vec<SubscriptionId>,
    /// Whether there is no topic of that name. If that is a mistake, nothing was done.
    pub lacks_topic: bool,
    /// Deliveries to make, as far as known now.
    pub estimate: i64,
    /// Named subscriptions that are not active, or users without an active one.
    pub unreachable: i64,
    /// What was born leased: [`Holder`].
    pub born: Vec<Born>,
}

/// Stores messages and their audiences, all that become queue rows in one statement. A message with an unknown subscription
/// is left out, and does the others no harm. What goes to one named subscription is born leased to the holder, if there is
/// one; the rest is due at once. Returns what became of each, in their order.
pub(crate) async fn send(
    conn: &mut PgConnection,
    vault: &Vault,
    messages: &[&Addressed],
    holder: Option<Holder>,
) -> Result<Vec<Sent>, sqlx::Error> {
    let resolved = resolve(conn, messages.iter().map(|to| (to.message.app, &to.audience))).await?;
    let mut sent: Vec<Sent> = messages.iter().map(|_| Sent::default()).collect();
    let (mut places, mut parcels) = (Vec::new(), Vec::new());
    for (place, (Addressed { message, audience }, resolved)) in messages.iter().zip(resolved).enumerate() {
        let Resolved { reach, topic, lacks_topic, unreachable } = resolved;
        sent[place].lacks_topic = lacks_topic;
        if lacks_topic && matches!(audience, Audience::Topic { may_be_missing: false, .. }) {
            continue;
        }
        match reach {
            Reach::Rows(ids) => {
                let is_held = holder.is_some() && matches!(audience, Audience::Subscriptions(ids) if ids.len() == 1);
                places.push(place);
                parcels.push(Parcel { message, topic, ids, users: audience.users(), unreachable, is_held });
            }
            Reach::Lanes { lanes, total } => {
                fan_out(conn, message, topic, &lanes, total).await?;
                sent[place].estimate = total;
            }
        }
    }
    for (place, written) in places.into_iter().zip(rows::write(conn, vault, &parcels, holder).await?) {
        sent[place] = Sent { lacks_topic: sent[place].lacks_topic, ..written };
    }
    Ok(sent)
}

/// Counts without sending.
pub(crate) async fn dry_run(
    conn: &mut PgConnection,
    app: AppId,
    audience: &Audience,
    now: Timestamp,
) -> Result<Sent, sqlx::Error> {
    let resolved = resolve(conn, std::iter::once((app, audience))).await?.pop();
    let Resolved { reach, unreachable, lacks_topic, .. } =
        resolved.unwrap_or_else(|| Resolved::new(Reach::Rows(Vec::new())));
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
        app.0,
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
    let found: HashSet<Uuid> = found.collect();
    wanted.iter().copied().filter(|id| !found.contains(&id.0)).collect()
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Finds out what audiences come to, those of users all at once.
async fn resolve(
    conn: &mut PgConnection,
    audiences: impl Iterator<Item = (AppId, &Audience)> + Clone,
) -> Result<Vec<Resolved>, sqlx::Error> {
    let groups: Vec<_> = audiences.clone().filter_map(|(app, audience)| Some((app, audience.users()?))).collect();
    let mut found = rows::of_users(conn, &groups).await?.into_iter();
    let mut resolved = Vec::new();
    for (app, audience) in audiences {
        resolved.push(match audience {
            Audience::Subscriptions(ids) => Resolved::new(Reach::Rows(ids.clone())),
            Audience::Users(_) => found.next().expect("one for each group of users"),
            Audience::Topic { name, .. } => resolve_topic(conn, app, name).await?,
            Audience::All => resolve_everyone(conn, app).await?,
        });
    }
    Ok(resolved)
}

async fn resolve_topic(conn: &mut PgConnection, app: AppId, name: &str) -> Result<Resolved, sqlx::Error> {
    let Some(topic) = crate::store::audience::topics::find(conn, app, name).await? else {
        return Ok(Resolved { lacks_topic: true, ..Resolved::new(Reach::Rows(Vec::new())) });
    };
    let lanes = audience_counts::of_topic(conn, topic).await?;
    let reach = small_or_lanes(conn, Some(topic), &lanes).await?;
    Ok(Resolved { topic: Some(topic), ..Resolved::new(reach) })
}

async fn resolve_everyone(conn: &mut PgConnection, app: AppId) -> Result<Resolved, sqlx::Error> {
    let lanes = audience_counts::of_everyone(conn, app).await?;
    Ok(Resolved::new(small_or_lanes(conn, None, &lanes).await?))
}

async fn small_or_lanes(
    conn: &mut PgConnection,
    topic: Option<i32>,
    kept: &[(i32, i64)],
) -> Result<Reach, sqlx::Error> {
    let total: i64 = kept.iter().map(|(_, n)| n).sum();
    let lanes: Vec<i32> = kept.iter().map(|(lane, _)| *lane).collect();
    if total > ROWS_MAX {
        return Ok(Reach::Lanes { lanes, total });
    }
    let ids = match topic {
        Some(topic) => {
            sqlx::query_scalar!(
                "SELECT s.id FROM topic_members m JOIN subscriptions s ON s.shard = m.shard AND s.id = m.subscription
                 WHERE m.topic = $1 AND s.state = 'active' ORDER BY s.id",
                topic
            )
            .fetch_all(conn)
            .await?
        }
        None => {
            sqlx::query_scalar!(
                "SELECT id FROM subscriptions WHERE lane = ANY($1) AND state = 'active' ORDER BY id",
                &lanes
            )
            .fetch_all(conn)
            .await?
        }
    };
    Ok(Reach::Rows(ids.into_iter().map(SubscriptionId).collect()))
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
        message.app.0,
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
