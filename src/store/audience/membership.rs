//! Who is in which topic, and who may change that.

use std::collections::HashMap;

use sqlx::{PgConnection, PgExecutor, PgPool};

use crate::model::clock::Timestamp;
use crate::model::id::{AppId, LaneId, SubscriptionId};
use crate::model::permission::{BrowserRight, Refused, Speaker};
use crate::store::audience::subscriptions::row::{Changes, SubscriptionRow, lock};
use crate::store::audience::topics;
use crate::store::operations::retrying::retrying;

/// Makes the topics of a locked subscription what is wanted, as far as whoever wants it may; none wanted leaves them.
/// Returns everything that was left out of `wanted`, which has been applied to the row before. None: the app would have
/// too many topics.
///
/// A browser's list speaks of the topics only that browsers may join: it neither leaves nor joins the others.
pub(in crate::store) async fn set_topics(
    conn: &mut PgConnection,
    app: AppId,
    row: &SubscriptionRow,
    wanted: &Changes,
    now: Timestamp,
) -> Result<Option<Vec<Refused>>, sqlx::Error> {
    let mut refused = wanted.left_out(row);
    let (Some(names), by) = (&wanted.topics, &wanted.by) else { return Ok(Some(refused)) };
    let (there, missing) = topics::ensure(conn, app, names, by, now).await?;
    match by {
        Speaker::Server if !missing.is_empty() => return Ok(None),
        Speaker::Browser(_) if by.may(BrowserRight::CreateTopics) => {
            refused.extend(missing.into_iter().map(Refused::TopicLimit));
        }
        _ => refused.extend(missing.into_iter().map(Refused::TopicUnknown)),
    }
    let (open, closed): (Vec<_>, Vec<_>) = there.into_iter().partition(|topic| by.may_join(topic.join));
    let open: Vec<i32> = open.iter().map(|topic| topic.id).collect();
    leave_all_but(conn, row.id, &open, by).await?;
    join(conn, row.id, row.lane, &open, now).await?;
    if !closed.is_empty() {
        let inside = names_of(conn, row.id).await?;
        let outside = closed.into_iter().map(|topic| topic.name).filter(|name| !inside.contains(name));
        refused.extend(outside.map(Refused::TopicClosed));
    }
    Ok(Some(refused))
}

/// What became of a wish to join or leave a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Membership {
    /// It is so.
    Done,
    /// There is no such subscription.
    Unknown,
    /// It has ended.
    Ended,
    /// The app would have too many topics.
    TooManyTopics,
}

/// Puts a subscription into a topic, or takes it out, as a server does.
pub(crate) async fn set_membership(
    pool: &PgPool,
    app: AppId,
    id: SubscriptionId,
    topic: &str,
    member: bool,
    now: Timestamp,
) -> Result<Membership, sqlx::Error> {
    retrying(|| async move {
        let mut tx = pool.begin().await?;
        let Some(row) = lock(&mut tx, app, id).await? else { return Ok(Membership::Unknown) };
        if member && !row.state.lives() {
            return Ok(Membership::Ended);
        }
        if member {
            let (there, missing) = topics::ensure(&mut tx, app, &[topic.to_owned()], &Speaker::Server, now).await?;
            if !missing.is_empty() {
                return Ok(Membership::TooManyTopics);
            }
            let ids: Vec<i32> = there.iter().map(|topic| topic.id).collect();
            join(&mut tx, id, row.lane, &ids, now).await?;
        } else if let Some(topic) = topics::find(&mut tx, app, topic).await? {
            leave(&mut tx, id, topic).await?;
        }
        tx.commit().await?;
        Ok(Membership::Done)
    })
    .await
}

/// Puts an active subscription into these topics. It stays in those that it was in.
async fn join(
    conn: &mut PgConnection,
    id: SubscriptionId,
    lane: LaneId,
    topics: &[i32],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO topic_members (shard, subscription, topic, lane, joined_at)
         SELECT $1, $2, topic, $3, $5 FROM unnest($4::integer[]) AS topic ON CONFLICT DO NOTHING",
        id.shard(),
        id.0,
        lane.0,
        topics,
        now
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Puts active subscriptions, each in its lane, into topics that the transaction holds.
pub(in crate::store) async fn join_all(
    conn: &mut PgConnection,
    members: &[(SubscriptionId, LaneId, i32)],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO topic_members (shard, subscription, topic, lane, joined_at)
         SELECT shard, subscription, topic, lane, $5
         FROM unnest($1::smallint[], $2::uuid[], $3::integer[], $4::integer[]) AS t (shard, subscription, topic, lane)
         ON CONFLICT DO NOTHING",
        &members.iter().map(|(id, ..)| id.shard()).collect::<Vec<_>>(),
        &members.iter().map(|(id, ..)| id.0).collect::<Vec<_>>(),
        &members.iter().map(|(.., topic)| *topic).collect::<Vec<_>>(),
        &members.iter().map(|(_, lane, _)| lane.0).collect::<Vec<_>>(),
        now
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Takes a subscription out of all topics but these, as far as whoever wants it may; also out of those that it was in when
/// it turned out to be gone.
async fn leave_all_but(
    conn: &mut PgConnection,
    id: SubscriptionId,
    kept: &[i32],
    by: &Speaker,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "WITH may AS MATERIALIZED (
           SELECT t.id FROM topics t WHERE ($4 OR t.join_by = 'anyone') AND t.id <> ALL($3) AND t.id IN (
             SELECT topic FROM topic_members WHERE shard = $1 AND subscription = $2
             UNION ALL SELECT topic FROM former_topic_members WHERE shard = $1 AND subscription = $2)),
           former AS (
             DELETE FROM former_topic_members WHERE shard = $1 AND subscription = $2 AND topic IN (SELECT id FROM may))
         DELETE FROM topic_members WHERE shard = $1 AND subscription = $2 AND topic IN (SELECT id FROM may)",
        id.shard(),
        id.0,
        kept,
        *by == Speaker::Server
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Takes a subscription that ends out of all topics.
pub(in crate::store) async fn leave_all(conn: &mut PgConnection, id: SubscriptionId) -> Result<(), sqlx::Error> {
    leave_all_but(conn, id, &[], &Speaker::Server).await
}

/// Takes a subscription out of the topics that only servers put subscriptions into.
pub(in crate::store) async fn leave_closed(conn: &mut PgConnection, id: SubscriptionId) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "WITH closed AS MATERIALIZED (
           SELECT t.id FROM topics t WHERE t.join_by = 'server' AND t.id IN (
             SELECT topic FROM topic_members WHERE shard = $1 AND subscription = $2
             UNION ALL SELECT topic FROM former_topic_members WHERE shard = $1 AND subscription = $2)),
           former AS (
             DELETE FROM former_topic_members WHERE shard = $1 AND subscription = $2 AND topic IN (SELECT id FROM closed))
         DELETE FROM topic_members WHERE shard = $1 AND subscription = $2 AND topic IN (SELECT id FROM closed)",
        id.shard(),
        id.0
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Takes a subscription out of one topic, also if it was in it when it turned out to be gone.
async fn leave(conn: &mut PgConnection, id: SubscriptionId, topic: i32) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "WITH former AS (DELETE FROM former_topic_members WHERE shard = $1 AND subscription = $2 AND topic = $3)
         DELETE FROM topic_members WHERE shard = $1 AND subscription = $2 AND topic = $3",
        id.shard(),
        id.0,
        topic
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Puts a subscription that was gone and is back into the topics that it was in, with the time of joining.
pub(in crate::store) async fn return_to(
    conn: &mut PgConnection,
    id: SubscriptionId,
    lane: LaneId,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "WITH former AS (
           DELETE FROM former_topic_members WHERE shard = $1 AND subscription = $2 RETURNING topic, joined_at)
         INSERT INTO topic_members (shard, subscription, topic, lane, joined_at)
         SELECT $1, $2, t.id, $3, former.joined_at FROM former JOIN topics t ON t.id = former.topic FOR KEY SHARE OF t
         ON CONFLICT DO NOTHING",
        id.shard(),
        id.0,
        lane.0
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Moves a subscription's topics to the one that replaces it, with the time of joining: also those that only servers put
/// it into, since it is the same browser, and those that it was in when it turned out to be gone.
pub(in crate::store) async fn inherit(
    conn: &mut PgConnection,
    old: SubscriptionId,
    (new, lane): (SubscriptionId, LaneId),
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "WITH moved AS (DELETE FROM topic_members WHERE shard = $1 AND subscription = $2 RETURNING topic, joined_at),
           former AS (
             DELETE FROM former_topic_members WHERE shard = $1 AND subscription = $2 RETURNING topic, joined_at)
         INSERT INTO topic_members (shard, subscription, topic, lane, joined_at)
         SELECT $3, $4, t.id, $5, was.joined_at FROM (TABLE moved UNION ALL TABLE former) was
         JOIN topics t ON t.id = was.topic FOR KEY SHARE OF t
         ON CONFLICT DO NOTHING",
        old.shard(),
        old.0,
        new.shard(),
        new.0,
        lane.0
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The names of the topics that a subscription is in, sorted.
pub(in crate::store) async fn names_of(
    conn: &mut PgConnection,
    id: SubscriptionId,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT t.name FROM topic_members m JOIN topics t ON t.id = m.topic WHERE m.shard = $1 AND m.subscription = $2
         ORDER BY t.name",
        id.shard(),
        id.0
    )
    .fetch_all(conn)
    .await
}

/// The names of the topics that these subscriptions are in, each one's sorted; those in none are left out.
pub(in crate::store) async fn names_of_all(
    executor: impl PgExecutor<'_>,
    ids: &[SubscriptionId],
) -> Result<HashMap<SubscriptionId, Vec<String>>, sqlx::Error> {
    let joined = sqlx::query!(
        r#"SELECT m.subscription AS "id: SubscriptionId", t.name FROM topic_members m JOIN topics t ON t.id = m.topic
         WHERE (m.shard, m.subscription) IN (SELECT * FROM unnest($1::smallint[], $2::uuid[])) ORDER BY t.name"#,
        &ids.iter().map(|id| id.shard()).collect::<Vec<_>>(),
        ids as &[SubscriptionId]
    )
    .fetch_all(executor)
    .await?;
    let mut names: HashMap<SubscriptionId, Vec<String>> = HashMap::new();
    for row in joined {
        names.entry(row.id).or_default().push(row.name);
    }
    Ok(names)
}
