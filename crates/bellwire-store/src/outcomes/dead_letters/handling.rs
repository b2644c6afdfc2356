//! Replays and discards all dead letters that match a filter, and records each operation.
//!
//! An operation runs in transactions of limited size. Each marks its dead letters, creates the messages that replay them and
//! adds its part to the record. After an interruption, finished parts are complete and the other dead letters are still open.
//! Repeating the operation continues there, and no dead letter is replayed twice.

mod citus;

use std::collections::{BTreeSet, HashMap};

use serde_json::{Value, json};
use sqlx::{FromRow, PgConnection, PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use super::{DeadLetterFilter, push_filter};
use crate::connections::engine;
use crate::keys::audit::{self, Actor, AuditEntry};
use crate::operations::retrying::retrying;
use crate::queue::sending::{self, Addressed, Audience, NewMessage};
use crate::transactions::{begin, begin_by_index};
use bellwire_core::clock::{Clock, Timestamp, first_uuid_of};
use bellwire_core::delivery::{Tier, Urgency};
use bellwire_core::id::{ActionId, AppId, DeadLetterId, MessageId, SubscriptionId};
use bellwire_core::named;
use bellwire_vault::{CONTENT, Vault};

/// Maximum dead letters that one transaction replays, and maximum recipients of a replaying message.
pub const REPLAY_CHUNK: i64 = 1_000;
const DISCARD_CHUNK: i64 = 10_000;

named! {
    /// Kind of an operation.
    pub enum HandlingAction {
        /// Sends dead letters again.
        Replay = "replay",
        /// Discards dead letters.
        Discard = "discard",
        /// Exports dead letters.
        Export = "export",
    }
}

impl HandlingAction {
    fn audited(self) -> audit::AuditAction {
        match self {
            HandlingAction::Replay => audit::AuditAction::DeadLettersReplayed,
            HandlingAction::Discard => audit::AuditAction::DeadLettersDiscarded,
            HandlingAction::Export => audit::AuditAction::DeadLettersExported,
        }
    }
}

/// One operation on all dead letters that match a filter.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Id of the operation, a UUIDv7 of its start.
    pub id: ActionId,
    pub app: AppId,
    pub action: HandlingAction,
    pub actor: Actor,
    pub filter: DeadLetterFilter,
    /// Start of the operation. Later dead letters are not included.
    pub began: Timestamp,
}

impl Operation {
    /// Appends the conditions of the operation's dead letters to a statement.
    fn push_meant(&self, query: &mut QueryBuilder<Postgres>) {
        push_filter(query, self.app, &self.filter);
        let later = self.began + chrono::TimeDelta::milliseconds(1);
        query.push(" AND l.state = 'open' AND l.id < ").push_bind(first_uuid_of(later));
    }
}

/// Number of open dead letters that an operation would handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct OperationPreview {
    pub matched: i64,
    /// Dead letters whose subscription is no longer active.
    pub unreachable: i64,
    /// Dead letters addressed to a user or a subscription, whose user has since left the browser.
    pub user_left: i64,
}

/// SQL condition under which a replay can reach the recipient.
const REACHABLE: &str = "(s.state = 'active' AND (s.expires_at IS NULL OR s.expires_at > ";

/// SQL condition that prevents a replay: the browser has another user than the message was for. Replays of messages to a topic
/// or to all subscribers may reach the new user, although they name subscriptions.
const USER_LEFT: &str = "coalesce(s.user_left_at >= m.accepted_at \
                         AND coalesce(o.audience, m.audience) ?| ARRAY['users', 'subscriptions'], false)";

/// Joins the message of a dead letter and, if that replays another message, the original.
const MESSAGES: &str = " LEFT JOIN messages m ON m.id = l.message LEFT JOIN messages o ON o.id = m.replay_of";

pub async fn count(pool: &PgPool, operation: &Operation) -> sqlx::Result<OperationPreview> {
    if engine::is_distributed() {
        return citus::count(pool, operation).await;
    }
    let mut query = QueryBuilder::new(
        "SELECT count(*) AS matched, count(*) FILTER (WHERE NOT reachable) AS unreachable, \
           count(*) FILTER (WHERE reachable AND user_left) AS user_left FROM (SELECT coalesce(",
    );
    query.push(REACHABLE).push_bind(operation.began).push(")), false) AS reachable, ");
    query.push(USER_LEFT).push(" AS user_left");
    query.push(" FROM dead_letters l JOIN lanes g ON g.id = l.lane");
    query.push(" LEFT JOIN subscriptions s ON s.shard = l.shard AND s.id = l.subscription").push(MESSAGES);
    operation.push_meant(&mut query);
    query.push(") AS letter");
    query.build_query_as().persistent(false).fetch_one(pool).await
}

#[derive(Debug, Default)]
pub struct Replayed {
    /// Number of dead letters replayed.
    pub letters: i64,
    pub messages: Vec<MessageId>,
}

/// Replays up to `cap` matching dead letters, those of the oldest messages first, with their messages' time to live or `ttl_s`.
/// Dead letters that can no longer be sent, or not to the browser's current user, stay open. `sent` is called after each
/// transaction.
pub async fn replay(
    pool: &PgPool, vault: &Vault, clock: &Clock, operation: &Operation, ttl_s: Option<i32>, cap: i64, sent: impl Fn(),
) -> sqlx::Result<Replayed> {
    let (mut done, mut after, mut part) = (Replayed::default(), FIRST, 0);
    while done.letters < cap {
        let limit = REPLAY_CHUNK.min(cap - done.letters);
        let made = &done.messages;
        let chunk = retrying(|| replay_chunk(pool, vault, clock, operation, ttl_s, made, (after, limit, part))).await?;
        sent();
        done.letters += chunk.letters;
        done.messages.extend(chunk.messages);
        part += 1;
        match chunk.last {
            Some(last) => after = last,
            None => break,
        }
    }
    Ok(done)
}

/// Position of a dead letter in the order of replaying: by message, then by id.
type ReplayCursor = (MessageId, DeadLetterId);

/// Position before the first dead letter.
const FIRST: ReplayCursor = (MessageId(Uuid::nil()), DeadLetterId(Uuid::nil()));

#[derive(Debug, Clone, Copy, FromRow)]
struct Letter {
    id: DeadLetterId,
    message: MessageId,
    subscription: SubscriptionId,
}

struct Chunk {
    letters: i64,
    messages: Vec<MessageId>,
    /// Position of the last dead letter. `None`: no more.
    last: Option<ReplayCursor>,
}

async fn replay_chunk(
    pool: &PgPool, vault: &Vault, clock: &Clock, operation: &Operation, ttl_s: Option<i32>, made_before: &[MessageId],
    (after, limit, part): (ReplayCursor, i64, i32),
) -> sqlx::Result<Chunk> {
    let now = clock.now();
    let mut tx = begin_by_index(pool).await?;
    let mut letters = lock(&mut tx, operation, made_before, after, limit, now).await?;
    keep_messages_whole(&mut letters);
    let originals = load(&mut tx, &letters).await?;
    let mut made = ReplayChunk::default();
    for group in letters.chunk_by(|one, next| one.message == next.message) {
        let Some(original) = originals.get(&group[0].message) else { continue };
        let Some(message) = compose(vault, MessageId(clock.uuid()), operation, original, group, ttl_s, now) else {
            continue;
        };
        let audience = Audience::Subscriptions(recipients(group));
        let replay = Addressed { message, audience };
        sending::send(&mut tx, vault, &[&replay], None, now).await?;
        let id = replay.message.id;
        made.messages.push(id);
        made.roots.push(original.root);
        made.topics.push(original.topic);
        made.letters.extend(group.iter().map(|letter| letter.id));
        made.by.extend(group.iter().map(|_| id));
    }
    let n = mark_replayed(&mut tx, operation.app, &made, now).await?;
    look_again(&mut tx, originals.keys().copied().collect(), now).await?;
    if n > 0 || part == 0 {
        record(&mut tx, operation, part, n, now).await?;
    }
    tx.commit().await?;
    let last = letters.last().map(|letter| (letter.message, letter.id));
    Ok(Chunk { letters: n, messages: made.messages, last })
}

/// Locks the next dead letters that can be replayed, message by message. The statement follows an index in this order, because
/// sorting all open dead letters would cost each chunk as much as the whole. The users of their subscriptions cannot change
/// until the transaction ends. Dead letters of subscriptions that are being changed stay open.
async fn lock(
    conn: &mut PgConnection, operation: &Operation, made_before: &[MessageId], after: ReplayCursor, limit: i64,
    now: Timestamp,
) -> sqlx::Result<Vec<Letter>> {
    if engine::is_distributed() {
        return citus::lock(conn, operation, made_before, after, limit, now).await;
    }
    if operation.filter.id.is_none() {
        execute!(&mut *conn, "SET LOCAL enable_sort = off")?;
    }
    let mut query = QueryBuilder::new(
        "SELECT l.id, l.message, l.subscription FROM dead_letters l JOIN lanes g ON g.id = l.lane \
         JOIN subscriptions s ON s.shard = l.shard AND s.id = l.subscription",
    );
    query.push(MESSAGES);
    operation.push_meant(&mut query);
    query.push(" AND NOT ").push(USER_LEFT);
    query.push(" AND ").push(REACHABLE).push_bind(now).push(")) AND (l.message, l.id) > (").push_bind(after.0);
    // What this operation sent may have died again already, within the same millisecond.
    query.push(", ").push_bind(after.1).push(") AND l.message <> ALL (").push_bind(made_before);
    query.push(") ORDER BY l.message, l.id LIMIT ").push_bind(limit);
    query.push(" FOR UPDATE OF l SKIP LOCKED FOR SHARE OF s SKIP LOCKED");
    query.build_query_as().persistent(false).fetch_all(conn).await
}

/// Removes the last message of a full chunk, unless it fills the chunk alone, so that its replay is not split into several
/// messages.
fn keep_messages_whole(letters: &mut Vec<Letter>) {
    if letters.len() == REPLAY_CHUNK as usize
        && let Some(last) = letters.last().copied()
        && letters[0].message != last.message
    {
        letters.retain(|letter| letter.message != last.message);
    }
}

struct Original {
    id: MessageId,
    root: MessageId,
    tier: i16,
    content: Vec<u8>,
    ttl_s: i32,
    urgency: i16,
    topic_header: Option<String>,
    topic: Option<i32>,
    policy: Option<Value>,
    enveloped: bool,
    clear_on_click: bool,
}

/// Reads the messages of these dead letters that still have their content.
async fn load(conn: &mut PgConnection, letters: &[Letter]) -> sqlx::Result<HashMap<MessageId, Original>> {
    let found = fetch_all!(
        conn,
        Original,
        r#"SELECT id, coalesce(replay_of, id) AS "root!", tier, content AS "content!", ttl_s, urgency, topic_header, topic, policy,
             enveloped, clear_on_click FROM messages WHERE id = ANY ($1) AND content IS NOT NULL"#,
        letters,
        |letter| (letter.message)
    )?;
    Ok(found.into_iter().map(|original| (original.id, original)).collect())
}

/// Returns the recipients of these dead letters. A delivery with several dead letters is replayed once.
fn recipients(letters: &[Letter]) -> Vec<SubscriptionId> {
    letters.iter().map(|letter| letter.subscription).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Builds the message that replays these dead letters of an original. `None`: its content cannot be decrypted.
fn compose(
    vault: &Vault, id: MessageId, operation: &Operation, original: &Original, letters: &[Letter], ttl_s: Option<i32>,
    now: Timestamp,
) -> Option<NewMessage> {
    let content = match vault.open(CONTENT, original.id, &original.content) {
        Ok(content) => zeroize::Zeroizing::new(content),
        Err(error) => {
            tracing::error!(%error, message_id = %original.id, "its dead letters cannot be replayed");
            return None;
        }
    };
    Some(NewMessage {
        id,
        app: operation.app,
        tier: Tier::from_code(original.tier).expect("checked by the table"),
        audience: json!({"subscriptions": recipients(letters)}),
        filter: None,
        content: vault.seal(CONTENT, id, &content),
        ttl_s: ttl_s.unwrap_or(original.ttl_s),
        urgency: Urgency::from_code(original.urgency).expect("checked by the table"),
        topic_header: original.topic_header.clone(),
        policy: original.policy.clone(),
        enveloped: original.enveloped,
        clear_on_click: original.clear_on_click,
        accepted_at: now,
        received_at: None,
        by_cursors: false,
        key: None,
        traceparent: None,
        sent_by: operation.actor.who.id(),
    })
}

/// Result of a chunk: new messages with their originals, and dead letters with their new messages.
#[derive(Default)]
struct ReplayChunk {
    messages: Vec<MessageId>,
    roots: Vec<MessageId>,
    /// Topic of each original message, because the first message may be deleted.
    topics: Vec<Option<i32>>,
    letters: Vec<DeadLetterId>,
    by: Vec<MessageId>,
}

/// Marks the dead letters whose recipients have a queue row now. A subscription that ended a moment ago has none. Returns the
/// number.
async fn mark_replayed(conn: &mut PgConnection, app: AppId, made: &ReplayChunk, now: Timestamp) -> sqlx::Result<i64> {
    if made.messages.is_empty() {
        return Ok(0);
    }
    execute!(
        &mut *conn,
        "UPDATE messages m SET replay_of = t.root, topic = t.topic, root = o.root, withdraws = o.withdraws,
           withdraws_root = o.withdraws_root, is_update = coalesce(o.is_update, false)
         FROM unnest($1::uuid[], $2::uuid[], $3::integer[]) AS t (id, root, topic)
           LEFT JOIN messages o ON o.id = t.root WHERE m.id = t.id",
        (&made.messages as &[MessageId], &made.roots as &[MessageId], &made.topics as &[Option<i32>])
    )?;
    let marked = rows_affected!(
        conn,
        "UPDATE dead_letters l SET state = 'replayed', settled_at = $4, replay = q.message
         FROM unnest($2::uuid[], $3::uuid[]) AS t (letter, message), queue q
         WHERE l.app = $1 AND l.id = t.letter AND q.shard = l.shard AND q.subscription = l.subscription
           AND q.message = t.message",
        (app.0, &made.letters as &[DeadLetterId], &made.by as &[MessageId], now)
    )?;
    Ok(i64::try_from(marked).unwrap_or(i64::MAX))
}

/// Schedules a check whether the content of these messages is still needed.
pub(crate) async fn look_again(
    conn: &mut PgConnection, mut messages: Vec<MessageId>, now: Timestamp,
) -> sqlx::Result<()> {
    messages.sort_unstable();
    messages.dedup();
    execute!(
        conn,
        "UPDATE messages SET look_at = $2 WHERE id IN (
           SELECT id FROM messages WHERE id = ANY ($1) AND look_at > $2 ORDER BY id FOR NO KEY UPDATE)",
        (&messages as &[MessageId], now)
    )
}

/// Discards up to `cap` matching dead letters, the oldest first. Returns the number.
pub async fn discard(pool: &PgPool, clock: &Clock, operation: &Operation, cap: i64) -> sqlx::Result<i64> {
    let (mut discarded, mut part) = (0, 0);
    while discarded < cap {
        let limit = DISCARD_CHUNK.min(cap - discarded);
        let n = retrying(|| discard_chunk(pool, operation, limit, part, clock.now())).await?;
        discarded += n;
        part += 1;
        if n < limit {
            break;
        }
    }
    Ok(discarded)
}

async fn discard_chunk(
    pool: &PgPool, operation: &Operation, limit: i64, part: i32, now: Timestamp,
) -> sqlx::Result<i64> {
    let mut tx = begin(pool).await?;
    let mut query = QueryBuilder::new("UPDATE dead_letters SET state = 'discarded', settled_at = ");
    query.push_bind(now).push(" WHERE ctid = ANY (ARRAY(");
    query.push("SELECT l.ctid FROM dead_letters l JOIN lanes g ON g.id = l.lane");
    operation.push_meant(&mut query);
    query.push(" ORDER BY l.id LIMIT ").push_bind(limit).push(" FOR UPDATE OF l SKIP LOCKED)) RETURNING message");
    let messages: Vec<MessageId> = query.build_query_scalar().persistent(false).fetch_all(&mut *tx).await?;
    let n = i64::try_from(messages.len()).unwrap_or(i64::MAX);
    look_again(&mut tx, messages, now).await?;
    if n > 0 || part == 0 {
        record(&mut tx, operation, part, n, now).await?;
    }
    tx.commit().await?;
    Ok(n)
}

/// Records a part of `n` dead letters in the list of actions and in the audit log. Call it in the transaction that handles
/// them.
pub async fn record(
    conn: &mut PgConnection, operation: &Operation, part: i32, n: i64, now: Timestamp,
) -> sqlx::Result<()> {
    execute!(
        &mut *conn,
        "INSERT INTO dead_letter_actions (app, operation, part, action, actor, filter, n, at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        (operation.app.0, operation.id.0, part, operation.action.name(), operation.actor.who.name()),
        (serde_json::to_value(&operation.filter).unwrap_or(Value::Null), n, now)
    )?;
    let entry = AuditEntry::new(operation.actor, Some(operation.app), operation.action.audited(), operation.id);
    entry.record(conn, n, now).await
}

#[cfg(test)]
#[path = "../../../../../tests/crates/store/unit/outcomes/dead_letters/handling.rs"]
mod tests;
