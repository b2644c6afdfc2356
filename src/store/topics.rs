//! Topics: named audiences, and who is in them.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::clock::Timestamp;

/// Most topics of one app: a browser can make one by joining it, so there must be an end.
pub const TOPICS_MAX: i64 = 10_000;

/// The numbers of these topics, made on demand. None: the app would have more than [`TOPICS_MAX`].
pub async fn ensure(
    conn: &mut PgConnection,
    app: Uuid,
    names: &[String],
    now: Timestamp,
) -> Result<Option<Vec<i32>>, sqlx::Error> {
    let find = || sqlx::query!("SELECT id, name FROM topics WHERE app = $1 AND name = ANY($2)", app, names);
    let mut known = find().fetch_all(&mut *conn).await?;
    let mut missing: Vec<String> =
        names.iter().filter(|name| !known.iter().any(|row| row.name == **name)).cloned().collect();
    if !missing.is_empty() {
        let there = sqlx::query_scalar!(r#"SELECT count(*) AS "n!" FROM topics WHERE app = $1"#, app)
            .fetch_one(&mut *conn)
            .await?;
        if there + i64::try_from(missing.len()).unwrap_or(i64::MAX) > TOPICS_MAX {
            return Ok(None);
        }
        missing.sort_unstable(); // two registrations that make the same topics wait for each other in one order
        missing.dedup();
        sqlx::query!(
            "INSERT INTO topics (app, name, created_at) SELECT $1, name, $3 FROM unnest($2::text[]) AS name
             ON CONFLICT (app, name) DO NOTHING",
            app,
            &missing,
            now
        )
        .execute(&mut *conn)
        .await?;
        known = find().fetch_all(conn).await?;
    }
    Ok(Some(known.into_iter().map(|row| row.id).collect()))
}

/// The number of a topic, if anybody ever joined it.
pub async fn find(conn: &mut PgConnection, app: Uuid, name: &str) -> Result<Option<i32>, sqlx::Error> {
    sqlx::query_scalar!("SELECT id FROM topics WHERE app = $1 AND name = $2", app, name).fetch_optional(conn).await
}

/// A topic and how many subscriptions are in it.
#[derive(Debug)]
pub struct TopicRow {
    /// Its number.
    pub id: i32,
    /// Its name.
    pub name: String,
    /// Subscriptions in it.
    pub members: i64,
    /// When it was first named.
    pub created_at: Timestamp,
}

/// An app's topics with numbers below `below`, the newest first; or only the one of that `name`.
pub async fn list(
    pool: &PgPool,
    app: Uuid,
    name: Option<&str>,
    below: i32,
    limit: i64,
) -> Result<Vec<TopicRow>, sqlx::Error> {
    sqlx::query_as!(
        TopicRow,
        r#"SELECT t.id, t.name, t.created_at,
             (SELECT count(*) FROM topic_members m WHERE m.topic = t.id) AS "members!"
         FROM topics t WHERE t.app = $1 AND ($2::text IS NULL OR t.name = $2) AND t.id < $3
         ORDER BY t.id DESC LIMIT $4"#,
        app,
        name,
        below,
        limit
    )
    .fetch_all(pool)
    .await
}

/// Puts an active subscription into these topics. It stays in those that it was in.
pub async fn join(
    conn: &mut PgConnection,
    shard: i16,
    subscription: Uuid,
    lane: i32,
    topics: &[i32],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO topic_members (shard, subscription, topic, lane, joined_at)
         SELECT $1, $2, topic, $3, $5 FROM unnest($4::integer[]) AS topic ON CONFLICT DO NOTHING",
        shard,
        subscription,
        lane,
        topics,
        now
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Takes a subscription out of all topics but these, also out of those that it was in when it turned out to be gone.
pub async fn leave_all_but(
    conn: &mut PgConnection,
    shard: i16,
    subscription: Uuid,
    kept: &[i32],
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "WITH former AS (DELETE FROM former_topic_members WHERE shard = $1 AND subscription = $2 AND topic <> ALL($3))
         DELETE FROM topic_members WHERE shard = $1 AND subscription = $2 AND topic <> ALL($3)",
        shard,
        subscription,
        kept
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Takes a subscription out of one topic, also out of one that it was in when it turned out to be gone.
pub async fn leave(conn: &mut PgConnection, shard: i16, subscription: Uuid, topic: i32) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "WITH former AS (DELETE FROM former_topic_members WHERE shard = $1 AND subscription = $2 AND topic = $3)
         DELETE FROM topic_members WHERE shard = $1 AND subscription = $2 AND topic = $3",
        shard,
        subscription,
        topic
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Puts a subscription that was gone and is back into the topics that it was in, with the time of joining.
pub async fn return_to(conn: &mut PgConnection, shard: i16, subscription: Uuid, lane: i32) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "WITH former AS (
           DELETE FROM former_topic_members WHERE shard = $1 AND subscription = $2 RETURNING topic, joined_at)
         INSERT INTO topic_members (shard, subscription, topic, lane, joined_at)
         SELECT $1, $2, topic, $3, joined_at FROM former ON CONFLICT DO NOTHING",
        shard,
        subscription,
        lane
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Moves a subscription's topics to the one that replaces it, with the time of joining; also those that it was in when it
/// turned out to be gone.
pub async fn inherit(
    conn: &mut PgConnection,
    (old_shard, old): (i16, Uuid),
    (shard, new, lane): (i16, Uuid, i32),
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "WITH moved AS (DELETE FROM topic_members WHERE shard = $1 AND subscription = $2 RETURNING topic, joined_at),
           former AS (
             DELETE FROM former_topic_members WHERE shard = $1 AND subscription = $2 RETURNING topic, joined_at)
         INSERT INTO topic_members (shard, subscription, topic, lane, joined_at)
         SELECT $3, $4, topic, $5, joined_at FROM (TABLE moved UNION ALL TABLE former) t ON CONFLICT DO NOTHING",
        old_shard,
        old,
        shard,
        new,
        lane
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The names of the topics that a subscription is in, sorted.
pub async fn names_of(conn: &mut PgConnection, shard: i16, subscription: Uuid) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT t.name FROM topic_members m JOIN topics t ON t.id = m.topic WHERE m.shard = $1 AND m.subscription = $2
         ORDER BY t.name",
        shard,
        subscription
    )
    .fetch_all(conn)
    .await
}
