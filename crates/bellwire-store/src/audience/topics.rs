//! Topics: named audiences. [`crate::audience::membership`] has their subscriptions.
//!
//! A transaction that adds a subscription to a topic locks the topic's row (`FOR KEY SHARE`, like a foreign key) until its end.
//! So a deletion waits, and no subscription joins a deleted topic. A scheduled message locks the row, too. A message that is
//! due at once does not: sent during a deletion, it reaches the current subscriptions.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use sqlx::{PgConnection, PgExecutor, PgPool};

use crate::audience::audience_counts::Difference;
use crate::keyset::{Keyset, paged};
use crate::results::WriteOutcome;
use crate::transactions::{begin, begin_by_index};
use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::id::{AppId, LaneId, MessageId};
use bellwire_core::permission::{BrowserRight, BrowsersMay, Maker, Speaker, TopicJoin};

pub const TOPICS_MAX: i64 = 10_000;
/// Maximum topics of one app that browsers created. The remaining topics are for servers.
pub const BROWSER_TOPICS_MAX: i64 = 1_000;
/// Time after which a topic created by browsers is deleted if it has no subscriptions and messages.
const UNUSED_KEPT: Duration = Duration::from_secs(7 * 86_400);
/// Maximum topics of one app with an entry in the preferences.
pub const DISPLAYED_MAX: i64 = 50;
/// Maximum rows changed in one transaction.
const CHUNK: i64 = 10_000;

#[derive(Debug)]
pub struct Topic {
    pub id: i32,
    pub name: String,
    pub join: TopicJoin,
}

/// Returns the existing topics, and the names of the missing ones. Missing topics are created first if the caller may create
/// them and all of them fit.
pub async fn ensure(
    conn: &mut PgConnection, app: AppId, names: &[String], by: &Speaker, now: Timestamp,
) -> Result<(Vec<Topic>, Vec<String>), sqlx::Error> {
    let mut there = fetch_all!(
        &mut *conn,
        Topic,
        r#"SELECT id, name, join_by AS "join: TopicJoin" FROM topics WHERE app = $1 AND name = ANY($2) FOR KEY SHARE"#,
        (app.0, names)
    )?;
    let is_missing = |name: &&String| !there.iter().any(|topic| topic.name == **name);
    let mut missing: Vec<String> = names.iter().filter(is_missing).cloned().collect();
    if missing.is_empty() || !by.may(BrowserRight::CreateTopics) {
        return Ok((there, missing));
    }
    missing.sort_unstable();
    missing.dedup();
    if i64::try_from(missing.len()).unwrap_or(i64::MAX) > room(conn, app, by).await? {
        return Ok((there, missing));
    }
    there.extend(make(conn, app, missing, by, now).await?);
    Ok((there, Vec::new()))
}

pub(crate) async fn with_right(conn: &mut PgConnection, topics: &[i32], join: TopicJoin) -> sqlx::Result<Vec<i32>> {
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    fetch_all!(conn, scalar, "SELECT id FROM topics WHERE id = ANY ($1) AND join_by = $2", (topics, join.name()))
}

/// Returns the existing ones of these topics, locked against deletion until the end of the transaction.
pub(crate) async fn hold(conn: &mut PgConnection, topics: &[i32]) -> sqlx::Result<Vec<i32>> {
    fetch_all!(conn, scalar, "SELECT id FROM topics WHERE id = ANY ($1) FOR KEY SHARE", (topics))
}

/// Resolves several lists of topics in order. For each list, all missing topics are created, or none if they do not fit.
pub async fn ensure_in_turn(
    conn: &mut PgConnection, app: AppId, lists: &[&[String]], now: Timestamp,
) -> sqlx::Result<Vec<Topic>> {
    let by = Speaker::Server;
    let mut names: Vec<String> = lists.iter().copied().flatten().cloned().collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let (mut there, missing) = ensure(conn, app, &names, &by, now).await?;
    if missing.is_empty() {
        return Ok(there);
    }
    // Together they are too many: who comes first finds room.
    let mut room = usize::try_from(room(conn, app, &by).await?).unwrap_or(0);
    let missing: HashSet<String> = missing.into_iter().collect();
    let mut fitting = HashSet::new();
    for list in lists {
        let new: HashSet<&String> =
            list.iter().filter(|name| missing.contains(*name) && !fitting.contains(*name)).collect();
        if new.len() <= room {
            room -= new.len();
            fitting.extend(new);
        }
    }
    there.extend(make(conn, app, fitting.into_iter().cloned().collect(), &by, now).await?);
    Ok(there)
}

/// Creates missing topics. To prevent deadlocks, they are created in a fixed order. A transaction must create all of its topics
/// in one call.
async fn make(
    conn: &mut PgConnection, app: AppId, mut names: Vec<String>, by: &Speaker, now: Timestamp,
) -> sqlx::Result<Vec<Topic>> {
    names.sort_unstable();
    // One created by another transaction since is locked like the existing ones.
    fetch_all!(
        conn,
        Topic,
        r#"INSERT INTO topics (app, name, made_by, created_at) SELECT $1, name, $3, $4 FROM unnest($2::text[]) AS name
         ON CONFLICT (app, name) DO UPDATE SET name = excluded.name RETURNING id, name, join_by AS "join: TopicJoin""#,
        (app.0, &names, by.maker().name(), now)
    )
}

/// Returns the number of further topics that the caller may create in the app.
async fn room(conn: &mut PgConnection, app: AppId, by: &Speaker) -> Result<i64, sqlx::Error> {
    let made = fetch_one!(
        conn,
        r#"SELECT count(*) AS "n!", count(*) FILTER (WHERE made_by = 'browser') AS "by_browsers!" FROM topics WHERE app = $1"#,
        (app.0)
    )?;
    let room = TOPICS_MAX - made.n;
    Ok(match by {
        Speaker::Server => room,
        Speaker::Browser(_) => room.min(BROWSER_TOPICS_MAX - made.by_browsers),
    })
}

/// Returns the number of a topic. `None`: it does not exist.
pub async fn find(conn: &mut PgConnection, app: AppId, name: &str) -> Result<Option<i32>, sqlx::Error> {
    fetch_optional!(conn, scalar, "SELECT id FROM topics WHERE app = $1 AND name = $2", (app.0, name))
}

/// Returns the number of a scheduled message's topic, locked until the end of the transaction, and whether the topic was
/// missing. A missing topic is created if browsers may create it, so that subscriptions can join it before the message is due.
pub(crate) async fn hold_for_later(
    conn: &mut PgConnection, app: AppId, name: &str, may_be_missing: bool, now: Timestamp,
) -> sqlx::Result<(Option<i32>, bool)> {
    let is_missing = find(conn, app, name).await?.is_none();
    let rights = BrowsersMay::default();
    let rights = if may_be_missing { rights.and(BrowserRight::CreateTopics) } else { rights };
    let (held, _) = ensure(conn, app, &[name.to_owned()], &Speaker::Browser(rights), now).await?;
    Ok((held.first().map(|topic| topic.id), is_missing))
}

/// A topic and the number of its subscriptions.
#[derive(Debug)]
pub struct TopicRow {
    pub id: i32,
    pub name: String,
    pub join: TopicJoin,
    pub made_by: Maker,
    /// Entry in the preferences of visitors, as the API wrote it.
    pub display: Option<Value>,
    pub members: i64,
    pub created_at: Timestamp,
}

/// Returns an app's topics beyond the page's key, the nearest numbers first; or only the one with `name`.
pub async fn list(
    executor: impl PgExecutor<'_>, app: AppId, name: Option<&str>, page: Keyset,
) -> Result<Vec<TopicRow>, sqlx::Error> {
    paged!(executor, page, TopicRow,
        [r#"SELECT t.id, t.name, t.join_by AS "join: TopicJoin", t.made_by AS "made_by: Maker", t.display, t.created_at,
             coalesce((SELECT sum(n) FROM audiences WHERE topic = t.id), 0)::bigint AS "members!"
         FROM topics t WHERE t.app = $1 AND ($2::text IS NULL OR t.name = $2) AND t.id"# < "$3
         ORDER BY t.id" DESC "LIMIT $4"],
        (app.0, name, page.number(), page.limit)
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTopicResult {
    Created,
    Changed,
    /// The app has [`TOPICS_MAX`] topics. The caller must roll back.
    TooMany,
}

/// Creates a topic for a server, or changes the callers that may join an existing one.
pub async fn set(
    conn: &mut PgConnection, app: AppId, name: &str, join: TopicJoin, now: Timestamp,
) -> Result<SetTopicResult, sqlx::Error> {
    let room = room(conn, app, &Speaker::Server).await?;
    let is_new = fetch_one!(
        conn,
        scalar,
        r#"INSERT INTO topics (app, name, join_by, made_by, created_at) VALUES ($1, $2, $3, 'server', $4)
           ON CONFLICT (app, name) DO UPDATE SET join_by = excluded.join_by RETURNING xmax = 0 AS "is_new!""#,
        (app.0, name, join.name(), now)
    )?;
    Ok(match is_new {
        false => SetTopicResult::Changed,
        true if room < 1 => SetTopicResult::TooMany,
        true => SetTopicResult::Created,
    })
}

/// Changes the callers that may join a topic. Its subscriptions stay.
pub async fn change(
    conn: &mut PgConnection, app: AppId, name: &str, join: TopicJoin,
) -> Result<WriteOutcome, sqlx::Error> {
    let done = rows_affected!(
        conn,
        "UPDATE topics SET join_by = $3 WHERE app = $1 AND name = $2",
        (app.0, name, join.name())
    )?;
    Ok(WriteOutcome::by(done))
}

/// Sets or removes the topic's entry in the preferences of visitors.
pub async fn set_display(
    conn: &mut PgConnection, app: AppId, name: &str, display: Option<&Value>,
) -> sqlx::Result<WriteOutcome> {
    let done =
        rows_affected!(conn, "UPDATE topics SET display = $3 WHERE app = $1 AND name = $2", (app.0, name, display))?;
    Ok(WriteOutcome::by(done))
}

/// Returns names and entries of the topics in the preferences, at most [`DISPLAYED_MAX`].
pub async fn displayed(pool: &PgPool, app: AppId) -> sqlx::Result<Vec<(String, Value)>> {
    let rows = fetch_all!(
        pool,
        r#"SELECT name, display AS "display!" FROM topics WHERE app = $1 AND display IS NOT NULL AND join_by = 'anyone'
           ORDER BY coalesce((display->>'position')::bigint, 0), display->>'title', id LIMIT $2"#,
        (app.0, DISPLAYED_MAX)
    )?;
    Ok(rows.into_iter().map(|row| (row.name, row.display)).collect())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    Done,
    Unknown,
    /// The message with this id is scheduled, or being fanned out to the topic.
    InUse(MessageId),
}

/// Deletes a topic. Its membership rows are deleted later by [`clear_removed`]. Waiting deliveries of its messages continue
/// without its policy.
pub async fn remove(conn: &mut PgConnection, app: AppId, name: &str, now: Timestamp) -> Result<Removed, sqlx::Error> {
    let found = fetch_optional!(
        &mut *conn,
        scalar,
        "SELECT id FROM topics WHERE app = $1 AND name = $2 FOR UPDATE",
        (app.0, name)
    )?;
    let Some(topic) = found else { return Ok(Removed::Unknown) };
    let message = query!(
        scalar,
        r#"SELECT message AS "message!" FROM cursors WHERE topic = $1
           UNION ALL
           SELECT k.message FROM campaigns_in_motion k JOIN messages m ON m.id = k.message
           WHERE k.app = $2 AND m.topic = $1 AND m.accepted_at > $3 AND m.state <> 'cancelled'
           LIMIT 1"#,
        (topic, app.0, now)
    );
    if let Some(message) = message.fetch_optional(&mut *conn).await? {
        return Ok(Removed::InUse(MessageId(message)));
    }
    execute!(
        conn,
        "WITH removed AS (DELETE FROM topics WHERE id = $1) INSERT INTO removed_topics (topic, removed_at) VALUES ($1, $2)",
        (topic, now)
    )?;
    Ok(Removed::Done)
}

/// Deletes a chunk of membership rows of deleted topics. Returns the number.
pub async fn clear_removed(pool: &PgPool) -> Result<u64, sqlx::Error> {
    let removed = fetch_all!(pool, scalar, "SELECT topic FROM removed_topics ORDER BY removed_at LIMIT $1", (CHUNK))?;
    if removed.is_empty() {
        return Ok(0);
    }
    let mut tx = begin_by_index(pool).await?;
    let found = query!(
        "SELECT shard, subscription, topic FROM topic_members WHERE topic = ANY ($1) LIMIT $2",
        (&removed, CHUNK)
    );
    let mut found = found.map(|row| (row.shard, row.subscription, row.topic)).fetch_all(&mut *tx).await?;
    found.sort_unstable();
    let members = fetch_all!(
        &mut *tx,
        r#"DELETE FROM topic_members m USING unnest($1::smallint[], $2::uuid[], $3::integer[]) AS f (shard, subscription, topic)
           WHERE m.shard = f.shard AND m.subscription = f.subscription AND m.topic = f.topic
           RETURNING m.topic, m.lane AS "lane: LaneId""#,
        found,
        |(shard, subscription, topic)| (*shard, *subscription, *topic)
    )?;
    let cleared = members;
    let mut difference = Difference::default();
    cleared.iter().for_each(|row| difference.left(row.topic, row.lane));
    difference.write(&mut tx).await?;
    tx.commit().await?;
    if found.is_empty() {
        // No subscription joins a deleted topic: without rows now, there will be none.
        execute!(pool, "DELETE FROM removed_topics WHERE topic = ANY ($1)", (&removed))?;
    }
    Ok(cleared.len() as u64)
}

/// Deletes a chunk of unused topics that browsers created: without subscriptions and messages for a week, and without settings.
/// Returns their number. Membership is read from the exact [stored counts](crate::audience::audience_counts).
pub async fn clear_unused(pool: &PgPool, now: Timestamp) -> Result<u64, sqlx::Error> {
    let cutoff = now - UNUSED_KEPT;
    let mut tx = begin(pool).await?;
    let unused = fetch_all!(
        &mut *tx,
        scalar,
        "SELECT id FROM topics t
         WHERE made_by = 'browser' AND join_by = 'anyone' AND policy IS NULL AND display IS NULL AND created_at < $1
           AND coalesce((SELECT sum(n) FROM audiences WHERE topic = t.id), 0) = 0
           AND NOT EXISTS (SELECT FROM messages WHERE topic = t.id AND id >= $2)
         LIMIT $3 FOR UPDATE SKIP LOCKED",
        (cutoff, first_uuid_of(cutoff), CHUNK)
    )?;
    // They are locked now. A second statement reads the members and messages that were committed during the first one.
    let removed = rows_affected!(
        &mut *tx,
        "DELETE FROM topics t WHERE id = ANY($1) AND coalesce((SELECT sum(n) FROM audiences WHERE topic = t.id), 0) = 0
           AND NOT EXISTS (SELECT FROM messages WHERE topic = t.id AND id >= $2)",
        (&unused, first_uuid_of(cutoff))
    )?;
    tx.commit().await?;
    Ok(removed)
}
