//! Search for deliveries by recipient or by message.
//!
//! No index leads from a subscription to its deliveries, because it would make each send more expensive. Instead the search
//! reads the app's messages from the newest on, and each delivery by key. One request reads a limited number and returns the
//! position where the next one continues.

mod citus;
pub mod former;

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::audience::user_shards;
use crate::connections::engine;
use crate::keyset::{Towards, paged};
use crate::transactions::begin_by_index;
use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};
use bellwire_core::lane::Gateway;

/// Maximum pairs of message and subscription that one request reads.
pub const PAIRS_MAX: usize = 2_000;
/// Maximum subscriptions of a user that are searched: the newest ones.
pub const DEVICES_MAX: usize = 20;

/// Position of a delivery in a list: by message, then by subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryCursor {
    pub message: Uuid,
    pub subscription: Uuid,
}

impl DeliveryCursor {
    pub const TOP: Self = Self { message: Uuid::max(), subscription: Uuid::max() };
}

#[derive(Debug, Clone)]
pub enum Whose {
    Message(MessageId),
    Subscriptions(Vec<SubscriptionId>),
    Both(MessageId, Vec<SubscriptionId>),
}

#[derive(Debug, Clone, Copy)]
pub struct SearchQuery {
    pub towards: Towards,
    pub beyond: DeliveryCursor,
    /// Earliest time of the message's creation.
    pub since: Timestamp,
    /// Position before which deliveries are searched.
    pub below: DeliveryCursor,
    pub tier: Option<Tier>,
    pub lane: Option<LaneId>,
    /// Whether only waiting and dispatching deliveries are searched.
    pub waiting: bool,
    /// Maximum recipients of a message to read.
    pub recipients: usize,
}

#[derive(Debug)]
pub struct FoundRow {
    pub message: MessageId,
    pub subscription: SubscriptionId,
    /// Current user of the subscription.
    pub user_id: Option<String>,
    /// Code from [`Tier::code`].
    pub tier: i16,
    pub accepted_at: Timestamp,
    /// Lane of the subscription. `None`: the subscription was deleted.
    pub lane: Option<LaneId>,
    pub gateway: Option<Gateway>,
    /// Number of failed attempts while it waits for a retry. `None`: it does not wait.
    pub retries: Option<i32>,
    pub held: bool,
    /// Due time while it waits. `None`: its message is paused, or it does not wait.
    pub due_at: Option<Timestamp>,
    /// Number of its last attempt. This and the following fields are `None` before the first attempt.
    pub attempt: Option<i32>,
    pub at: Option<Timestamp>,
    pub ending: Option<i16>,
    pub status: Option<i16>,
    pub took_ms: Option<i32>,
    pub reason: Option<String>,
}

/// Result of one request.
#[derive(Debug)]
pub struct SearchResult {
    /// Rows, the nearest first. Towards older ones: the newest messages first, and of each the newest subscriptions.
    pub rows: Vec<FoundRow>,
    /// Start of the next request. `None`: the search is complete.
    pub next: Option<DeliveryCursor>,
}

/// Messages to read, each with subscriptions.
#[derive(Debug, Default)]
struct Stretch {
    messages: Vec<MessageId>,
    subscriptions: Vec<SubscriptionId>,
    next: Option<DeliveryCursor>,
}

pub async fn devices(pool: &PgPool, app: AppId, user_id: &str) -> sqlx::Result<Vec<SubscriptionId>> {
    let shards = user_shards::of(pool, app, Some(&[user_id.to_owned()])).await?;
    fetch_all!(
        pool,
        scalar,
        r#"SELECT id AS "id: SubscriptionId" FROM subscriptions
           WHERE app = $1 AND user_id = $2 AND ($4::smallint[] IS NULL OR shard = ANY ($4)) ORDER BY id DESC LIMIT $3"#,
        (app.0, user_id, DEVICES_MAX as i64, shards.as_deref())
    )
}

/// Searches deliveries of one app within the limits of one request.
pub async fn search(
    pool: &PgPool, app: AppId, whose: &Whose, wanted: &SearchQuery, now: Timestamp,
) -> sqlx::Result<SearchResult> {
    let mut tx = begin_by_index(pool).await?;
    let stretch = match whose {
        Whose::Message(message) => recipients(&mut tx, *message, wanted).await?,
        Whose::Subscriptions(subscriptions) => messages(&mut tx, app, subscriptions, wanted).await?,
        Whose::Both(message, subscriptions) => {
            Stretch { messages: vec![*message], subscriptions: subscriptions.clone(), next: None }
        }
    };
    let rows = look(&mut tx, app, &stretch, wanted, now).await?;
    tx.commit().await?;
    Ok(SearchResult { rows, next: stretch.next })
}

async fn messages(
    conn: &mut PgConnection, app: AppId, subscriptions: &[SubscriptionId], wanted: &SearchQuery,
) -> sqlx::Result<Stretch> {
    if subscriptions.is_empty() {
        return Ok(Stretch::default());
    }
    let most = PAIRS_MAX / subscriptions.len();
    let since = first_uuid_of(wanted.since);
    let (newest, oldest, furthest) = match wanted.towards {
        Towards::Older => (wanted.beyond.message, since, Uuid::nil()),
        Towards::Newer => (wanted.below.message, since.max(wanted.beyond.message), Uuid::max()),
    };
    let messages = paged!(conn, wanted, scalar,
        [r#"SELECT id AS "id: MessageId" FROM messages WHERE app = $1 AND id <= $2 AND id >= $3 ORDER BY id"# DESC "LIMIT $4"],
        (app.0, newest, oldest, most as i64)
    )?;
    let last = messages.last().filter(|_| messages.len() == most);
    let next = last.map(|last| DeliveryCursor { message: last.0, subscription: furthest });
    Ok(Stretch { messages, subscriptions: subscriptions.to_vec(), next })
}

async fn recipients(conn: &mut PgConnection, message: MessageId, wanted: &SearchQuery) -> sqlx::Result<Stretch> {
    let subscriptions = paged!(conn, wanted, scalar,
        [r#"SELECT subscription AS "subscription!: SubscriptionId" FROM (
             (SELECT DISTINCT subscription FROM attempts WHERE NOT $4 AND message = $1 AND subscription"# < "$2
               ORDER BY subscription" DESC "LIMIT $3)
             UNION (SELECT subscription FROM queue WHERE message = $1 AND subscription" < "$2
               ORDER BY subscription" DESC "LIMIT $3)
             UNION (SELECT r.subscription FROM batches b CROSS JOIN LATERAL unnest(b.recipients) AS r (subscription)
               WHERE b.message = $1 AND r.subscription" < "$2 ORDER BY r.subscription" DESC "LIMIT $3)) AS known
           ORDER BY subscription" DESC "LIMIT $3"],
        (message.0, wanted.beyond.subscription, wanted.recipients as i64, wanted.waiting)
    )?;
    let last = subscriptions.last().filter(|_| subscriptions.len() == wanted.recipients);
    let next = last.map(|last| DeliveryCursor { message: message.0, subscription: last.0 });
    Ok(Stretch { messages: vec![message], subscriptions, next })
}

/// Reads the state of each pair in one snapshot. Pairs without a delivery are omitted.
async fn look(
    conn: &mut PgConnection, app: AppId, stretch: &Stretch, wanted: &SearchQuery, now: Timestamp,
) -> sqlx::Result<Vec<FoundRow>> {
    if engine::is_distributed() {
        return citus::look(conn, app, stretch, wanted, now).await;
    }
    paged!(conn, wanted, FoundRow,
        [r#"
        WITH looked_at AS MATERIALIZED (
            SELECT m.id AS message, p.subscription, s.user_id, m.tier, m.accepted_at, s.lane, g.gateway, q.retries,
                   nullif(q.due_at, 'infinity') AS due_at, l.attempt, l.at, l.ending, l.status, l.took_ms, l.reason,
                   coalesce(q.lease IS NOT NULL AND q.due_at > $7, false)
                     OR (m.id, p.subscription) IN (
                       SELECT b.message, r.subscription
                       FROM batches b CROSS JOIN LATERAL unnest(b.recipients) AS r (subscription)
                       WHERE b.message = ANY ($2)) AS held
            FROM unnest($2::uuid[]) AS c (id)
            JOIN messages m ON m.id = c.id AND m.app = $1
            CROSS JOIN unnest($3::uuid[]) AS p (subscription)
            LEFT JOIN LATERAL (
                SELECT attempt, at, ending, status, took_ms, reason FROM attempts
                WHERE message = c.id AND subscription = p.subscription ORDER BY attempt DESC LIMIT 1) l ON true
            LEFT JOIN queue q ON q.shard = get_byte(uuid_send(p.subscription), 15) & 63
              AND q.subscription = p.subscription AND q.message = c.id
            LEFT JOIN subscriptions s ON s.shard = get_byte(uuid_send(p.subscription), 15) & 63
              AND s.id = p.subscription
            LEFT JOIN lanes g ON g.id = s.lane
            WHERE (c.id, p.subscription)"# < r#"($4::uuid, $5::uuid)
              AND ($6::smallint IS NULL OR m.tier = $6) AND ($8::integer IS NULL OR s.lane = $8))
        SELECT message AS "message!: MessageId", subscription AS "subscription!: SubscriptionId", user_id AS "user_id?",
               tier AS "tier!", accepted_at AS "accepted_at!", lane AS "lane?: LaneId", gateway AS "gateway?: Gateway",
               retries AS "retries?", held AS "held!", due_at AS "due_at?", attempt AS "attempt?", at AS "at?",
               ending AS "ending?", status AS "status?", took_ms AS "took_ms?", reason AS "reason?"
        FROM looked_at WHERE held OR retries IS NOT NULL OR ending IS NOT NULL
        ORDER BY message"# DESC ", subscription" DESC],
        (app.0, &stretch.messages as &[MessageId], &stretch.subscriptions as &[SubscriptionId], wanted.beyond.message),
        (wanted.beyond.subscription, wanted.tier.map(Tier::code), now, wanted.lane.map(|lane| lane.0))
    )
}
