//! Topics of subscriptions, and permissions to change them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::{PgConnection, PgExecutor, PgPool};

use crate::audience::audience_counts::Difference;
use crate::audience::subscriptions::row::{Changes, Right, SubscriptionKeys, SubscriptionRow};
use crate::audience::{aliases, topics};
use crate::connections::engine::{self, shard_column, shards_of};
use crate::operations::retrying::retrying;
use crate::outcomes::copy::Rows;
use crate::transactions::begin;
use crate::triggers::observing::observe_browser;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, LaneId, SubscriptionId};
use bellwire_core::permission::{BrowserRight, RefusedField, Speaker, TopicJoin};
use bellwire_rules::campaign::trigger::Cause;
use bellwire_vault::Vault;

/// Result of setting topics.
#[derive(Debug, Default)]
pub(crate) struct TopicChange {
    /// Values that were omitted.
    pub refused: Vec<RefusedField>,
    /// Names of topics that were joined.
    pub joined: Vec<String>,
}

/// Sets the topics of a locked subscription to the wanted ones, as far as the caller may. `None` for `wanted` changes nothing.
/// `None`: the app would have too many topics.
///
/// A browser's list covers only topics that browsers may join: other topics are neither joined nor left.
pub(crate) async fn set_topics(
    conn: &mut PgConnection, app: AppId, row: &SubscriptionRow, wanted: &Changes, now: Timestamp,
) -> Result<Option<TopicChange>, sqlx::Error> {
    let mut refused = wanted.left_out(row);
    let (Some(names), by) = (&wanted.topics, &wanted.by) else {
        return Ok(Some(TopicChange { refused, joined: Vec::new() }));
    };
    let (there, missing) = topics::ensure(conn, app, names, by, now).await?;
    match by {
        Speaker::Server if !missing.is_empty() => return Ok(None),
        Speaker::Browser(_) if by.may(BrowserRight::CreateTopics) => {
            refused.extend(missing.into_iter().map(RefusedField::TopicLimit));
        }
        _ => refused.extend(missing.into_iter().map(RefusedField::TopicUnknown)),
    }
    let (open, closed): (Vec<_>, Vec<_>) = there.into_iter().partition(|topic| by.may_join(topic.join));
    let ids: Vec<i32> = open.iter().map(|topic| topic.id).collect();
    leave_all_but(conn, row.id, &ids, by).await?;
    let joined = join(conn, row.id, row.lane, &ids, now).await?;
    let joined = open.into_iter().filter(|topic| joined.contains(&topic.id)).map(|topic| topic.name).collect();
    if !closed.is_empty() {
        let inside = names_of(conn, row.id).await?;
        let outside = closed.into_iter().map(|topic| topic.name).filter(|name| !inside.contains(name));
        refused.extend(outside.map(RefusedField::TopicClosed));
    }
    Ok(Some(TopicChange { refused, joined }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    Done,
    Unknown,
    Ended,
    TooManyTopics,
}

/// Adds a subscription to a topic or removes it, with the permissions of a server.
pub async fn set_membership(
    pool: &PgPool, vault: &Vault, (app, id): (AppId, SubscriptionId), topic: &str, member: bool, now: Timestamp,
) -> Result<Membership, sqlx::Error> {
    retrying(|| async move {
        let mut tx = begin(pool).await?;
        let row = aliases::lock_current(&mut tx, vault, app, id, Right::Server).await?;
        let Some(row) = row else { return Ok(Membership::Unknown) };
        if member && !row.state.lives() {
            return Ok(Membership::Ended);
        }
        if member {
            let (there, missing) = topics::ensure(&mut tx, app, &[topic.to_owned()], &Speaker::Server, now).await?;
            if !missing.is_empty() {
                return Ok(Membership::TooManyTopics);
            }
            let ids: Vec<i32> = there.iter().map(|topic| topic.id).collect();
            if !join(&mut tx, row.id, row.lane, &ids, now).await?.is_empty() {
                observe_browser(&mut tx, app, &row, vec![Cause::Joined(topic.to_owned())], now).await?;
            }
        } else if let Some(topic) = topics::find(&mut tx, app, topic).await? {
            leave(&mut tx, row.id, &[topic]).await?;
        }
        tx.commit().await?;
        Ok(Membership::Done)
    })
    .await
}

/// Adds an active subscription to topics. Its other topics stay. Returns the topics that it joined.
async fn join(
    conn: &mut PgConnection, id: SubscriptionId, lane: LaneId, topics: &[i32], now: Timestamp,
) -> Result<Vec<i32>, sqlx::Error> {
    let joined = query!(
        scalar,
        "INSERT INTO topic_members (shard, subscription, topic, lane, joined_at)
         SELECT $1, $2, topic, $3, $5 FROM unnest($4::integer[]) AS topic ON CONFLICT DO NOTHING RETURNING topic",
        (id.shard(), id.0, lane.0, topics, now)
    );
    let joined = joined.fetch_all(&mut *conn).await?;
    let mut difference = Difference::default();
    joined.iter().for_each(|topic| difference.joined(*topic, lane));
    difference.write(conn).await?;
    Ok(joined)
}

/// Adds new active subscriptions, each in its lane, to topics whose rows the transaction has locked.
pub(crate) async fn join_all(
    conn: &mut PgConnection, members: &[(SubscriptionId, LaneId, i32)], now: Timestamp,
) -> Result<(), sqlx::Error> {
    if engine::is_distributed() {
        return copy_all(conn, members, now).await;
    }
    let joined = query!(
        r#"INSERT INTO topic_members (shard, subscription, topic, lane, joined_at)
           SELECT shard, subscription, topic, lane, $5
           FROM unnest($1::smallint[], $2::uuid[], $3::integer[], $4::integer[]) AS t (shard, subscription, topic, lane)
           ON CONFLICT DO NOTHING RETURNING topic, lane AS "lane: LaneId""#,
        members,
        |(id, lane, topic)| (id.shard(), id.0, *topic, lane.0),
        (now)
    );
    let mut difference = Difference::default();
    joined.fetch_all(&mut *conn).await?.iter().for_each(|row| difference.joined(row.topic, row.lane));
    difference.write(conn).await
}

/// [`join_all`] by COPY, for Citus: INSERT … ON CONFLICT takes 10 ms of CPU for each shard.
async fn copy_all(
    conn: &mut PgConnection, members: &[(SubscriptionId, LaneId, i32)], now: Timestamp,
) -> Result<(), sqlx::Error> {
    // A subscription may name a topic twice.
    let members: BTreeSet<_> = members.iter().map(|(id, lane, topic)| (id.shard(), id.0, lane.0, *topic)).collect();
    let (mut rows, mut difference) = (Rows::new(5, members.len()), Difference::default());
    for (shard, id, lane, topic) in members {
        rows.row().smallint(shard).uuid(id).integer(topic).integer(lane).timestamp(now);
        difference.joined(topic, LaneId(lane));
    }
    const COPY: &str = "COPY topic_members (shard, subscription, topic, lane, joined_at) FROM STDIN (FORMAT binary)";
    rows.send(conn, COPY).await?;
    difference.write(conn).await
}

/// Removes a subscription from all topics except these, as far as the caller may. Includes topics from before it was pruned.
async fn leave_all_but(
    conn: &mut PgConnection, id: SubscriptionId, kept: &[i32], by: &Speaker,
) -> Result<(), sqlx::Error> {
    let mut left: Vec<i32> = joined(conn, id).await?.into_keys().filter(|topic| !kept.contains(topic)).collect();
    if *by != Speaker::Server {
        left = topics::with_right(conn, &left, TopicJoin::Anyone).await?;
    }
    leave(conn, id, &left).await
}

/// Removes a subscription that ends from all topics.
pub(crate) async fn leave_all(conn: &mut PgConnection, id: SubscriptionId) -> Result<(), sqlx::Error> {
    leave_all_but(conn, id, &[], &Speaker::Server).await
}

/// Removes a subscription from topics that only servers may join it to.
pub(crate) async fn leave_closed(conn: &mut PgConnection, id: SubscriptionId) -> Result<(), sqlx::Error> {
    let there: Vec<i32> = joined(conn, id).await?.into_keys().collect();
    let closed = topics::with_right(conn, &there, TopicJoin::Server).await?;
    leave(conn, id, &closed).await
}

/// Returns the topics of a subscription, including those from before it was pruned, with the time of joining.
pub(crate) async fn joined(
    conn: &mut PgConnection, id: SubscriptionId,
) -> Result<HashMap<i32, Timestamp>, sqlx::Error> {
    let joined = query!(
        Joined,
        r#"SELECT topic AS "topic!", joined_at AS "joined_at!" FROM topic_members WHERE shard = $1 AND subscription = $2
           UNION ALL SELECT topic, joined_at FROM former_topic_members WHERE shard = $1 AND subscription = $2"#,
        (id.shard(), id.0)
    );
    let mut first = HashMap::new();
    for Joined { topic, joined_at } in joined.fetch_all(conn).await? {
        first.entry(topic).and_modify(|at: &mut Timestamp| *at = joined_at.min(*at)).or_insert(joined_at);
    }
    Ok(first)
}

/// Removes a subscription from topics, including those from before it was pruned.
async fn leave(conn: &mut PgConnection, id: SubscriptionId, topics: &[i32]) -> Result<(), sqlx::Error> {
    if topics.is_empty() {
        return Ok(());
    }
    execute!(
        &mut *conn,
        "DELETE FROM former_topic_members WHERE shard = $1 AND subscription = $2 AND topic = ANY ($3)",
        (id.shard(), id.0, topics)
    )?;
    let left = query!(
        r#"DELETE FROM topic_members WHERE shard = $1 AND subscription = $2 AND topic = ANY ($3)
           RETURNING topic, lane AS "lane: LaneId""#,
        (id.shard(), id.0, topics)
    );
    let mut difference = Difference::default();
    left.fetch_all(&mut *conn).await?.iter().for_each(|row| difference.left(row.topic, row.lane));
    difference.write(conn).await
}

pub(crate) async fn forget_topics(conn: &mut PgConnection, deleted: &SubscriptionKeys) -> Result<(), sqlx::Error> {
    let SubscriptionKeys { shards, ids } = deleted;
    let left = query!(
        r#"DELETE FROM topic_members t USING unnest($1::smallint[], $2::uuid[]) AS k (shard, id)
           WHERE t.shard = k.shard AND t.subscription = k.id AND t.shard = ANY ($3)
           RETURNING t.topic, t.lane AS "lane: LaneId""#,
        (shards, ids as &[SubscriptionId], &shards_of(ids))
    );
    let mut difference = Difference::default();
    left.fetch_all(&mut *conn).await?.iter().for_each(|row| difference.left(row.topic, row.lane));
    difference.write(&mut *conn).await?;
    execute!(
        conn,
        "DELETE FROM former_topic_members t USING unnest($1::smallint[], $2::uuid[]) AS k (shard, id)
         WHERE t.shard = k.shard AND t.subscription = k.id",
        (shards, ids as &[SubscriptionId])
    )?;
    Ok(())
}

/// A topic of a subscription, with the time of joining.
struct Joined {
    topic: i32,
    joined_at: Timestamp,
}

/// Restores the topics of a pruned subscription that is active again, with the time of joining.
pub(crate) async fn return_to(conn: &mut PgConnection, id: SubscriptionId, lane: LaneId) -> Result<(), sqlx::Error> {
    let former = take_former(conn, id).await?;
    rejoin(conn, (id, lane), &former).await
}

/// Restores the topics of restored subscriptions, as far as the topics still exist.
pub(crate) async fn return_all(
    conn: &mut PgConnection, lanes: &BTreeMap<SubscriptionId, LaneId>, now: Timestamp,
) -> Result<(), sqlx::Error> {
    let keys = SubscriptionKeys::of(lanes.keys().copied().collect());
    let former = fetch_all!(
        &mut *conn,
        r#"DELETE FROM former_topic_members t USING unnest($1::smallint[], $2::uuid[]) AS k (shard, id)
           WHERE t.shard = k.shard AND t.subscription = k.id RETURNING t.subscription AS "id: SubscriptionId", t.topic"#,
        (&keys.shards, &keys.ids as &[SubscriptionId])
    )?;
    let mut topics: Vec<i32> = former.iter().map(|row| row.topic).collect();
    topics.sort_unstable();
    topics.dedup();
    let there = topics::hold(conn, &topics).await?;
    let members = former.iter().filter(|row| there.contains(&row.topic)).map(|row| (row.id, lanes[&row.id], row.topic));
    join_all(conn, &members.collect::<Vec<_>>(), now).await
}

/// Moves a subscription's topics to its successor, with the time of joining. Includes topics that only servers may set, because
/// it is the same browser, and topics from before it was pruned.
pub(crate) async fn inherit(
    conn: &mut PgConnection, old: SubscriptionId, new: (SubscriptionId, LaneId),
) -> Result<(), sqlx::Error> {
    let left = fetch_all!(
        &mut *conn,
        r#"DELETE FROM topic_members WHERE shard = $1 AND subscription = $2
           RETURNING topic, lane AS "lane: LaneId", joined_at"#,
        (old.shard(), old.0)
    )?;
    let mut difference = Difference::default();
    left.iter().for_each(|row| difference.left(row.topic, row.lane));
    difference.write(&mut *conn).await?;
    let mut moved: Vec<Joined> =
        left.into_iter().map(|row| Joined { topic: row.topic, joined_at: row.joined_at }).collect();
    moved.extend(take_former(conn, old).await?);
    rejoin(conn, new, &moved).await
}

/// Deletes and returns the topics that a subscription had before it was pruned.
async fn take_former(conn: &mut PgConnection, id: SubscriptionId) -> Result<Vec<Joined>, sqlx::Error> {
    fetch_all!(
        conn,
        Joined,
        "DELETE FROM former_topic_members WHERE shard = $1 AND subscription = $2 RETURNING topic, joined_at",
        (id.shard(), id.0)
    )
}

/// Adds a subscription to those topics that still exist, with the time of joining. Its other topics stay. Of two times for the
/// same topic the earlier one counts.
async fn rejoin(
    conn: &mut PgConnection, (id, lane): (SubscriptionId, LaneId), joined: &[Joined],
) -> Result<(), sqlx::Error> {
    if joined.is_empty() {
        return Ok(());
    }
    let wanted: Vec<i32> = joined.iter().map(|joined| joined.topic).collect();
    let there = topics::hold(conn, &wanted).await?;
    let joined: Vec<&Joined> = joined.iter().filter(|joined| there.contains(&joined.topic)).collect();
    let rejoined = query!(
        scalar,
        "INSERT INTO topic_members (shard, subscription, topic, lane, joined_at)
         SELECT $1, $2, t.topic, $3, t.joined_at FROM unnest($4::integer[], $5::timestamptz[]) AS t (topic, joined_at)
         ON CONFLICT DO NOTHING RETURNING topic",
        (id.shard(), id.0, lane.0),
        joined,
        |joined| (joined.topic, joined.joined_at)
    );
    let mut difference = Difference::default();
    rejoined.fetch_all(&mut *conn).await?.into_iter().for_each(|topic| difference.joined(topic, lane));
    difference.write(conn).await
}

/// Returns the topic names of a subscription, sorted.
pub(crate) async fn names_of(conn: &mut PgConnection, id: SubscriptionId) -> Result<Vec<String>, sqlx::Error> {
    fetch_all!(
        conn,
        scalar,
        "SELECT t.name FROM topic_members m JOIN topics t ON t.id = m.topic WHERE m.shard = $1 AND m.subscription = $2
         ORDER BY t.name",
        (id.shard(), id.0)
    )
}

/// Returns the topic names of several subscriptions, sorted for each. Subscriptions without topics are omitted.
pub(crate) async fn names_of_all(
    executor: impl PgExecutor<'_>, ids: &[SubscriptionId],
) -> Result<HashMap<SubscriptionId, Vec<String>>, sqlx::Error> {
    let joined = fetch_all!(
        executor,
        r#"SELECT m.subscription AS "id: SubscriptionId", t.name FROM topic_members m JOIN topics t ON t.id = m.topic
         WHERE (m.shard, m.subscription) IN (SELECT * FROM unnest($1::smallint[], $2::uuid[])) AND m.shard = ANY ($3) ORDER BY t.name"#,
        (&shard_column(ids), ids as &[SubscriptionId], &shards_of(ids))
    )?;
    let mut names: HashMap<SubscriptionId, Vec<String>> = HashMap::new();
    for row in joined {
        names.entry(row.id).or_default().push(row.name);
    }
    Ok(names)
}
