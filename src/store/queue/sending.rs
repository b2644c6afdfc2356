//! A message is accepted: its row, and whom it goes to, in one transaction.
//!
//! Named recipients and audiences of at most [`ROWS_MAX`] become `queue` rows at once, those of many messages in one
//! statement; larger ones a cursor for each lane, from which workers take batches.

mod addressed;
mod keys;
mod rows;

use sqlx::{Connection as _, PgConnection};

use crate::model::clock::Timestamp;
use crate::model::id::{AppId, LaneId, SubscriptionId};
use crate::store::audience::audience_counts;
use crate::vault::Vault;
pub(crate) use addressed::Born;
pub(crate) use addressed::{Addressed, Audience, Holder, NewMessage, Sent};
use addressed::{Reach, Resolved, count, missing};
use rows::Parcel;

/// Commits of sends that are under way at a time, each on a connection of its own: while one waits for its WAL the next can
/// be prepared.
pub(crate) const WRITERS: u32 = 2;

/// Largest topic, or whole app, that becomes queue rows at once.
const ROWS_MAX: i64 = 100;

/// Stores messages and their audiences, all that become queue rows in one statement. A message with an unknown subscription
/// is left out, and does the others no harm; so is one whose key another message has. What goes to one named subscription
/// is born leased to the holder, if there is one and it is not for later; the rest is due when it is accepted. Returns what
/// became of each, in their order.
pub(crate) async fn send(
    conn: &mut PgConnection,
    vault: &Vault,
    messages: &[&Addressed],
    holder: Option<Holder>,
) -> Result<Vec<Sent>, sqlx::Error> {
    if messages.iter().all(|to| to.message.key.is_none()) {
        return write(conn, vault, messages, holder).await;
    }
    let mut tx = conn.begin().await?;
    let taken = keys::claim(&mut tx, messages).await?;
    let free: Vec<&Addressed> = messages.iter().zip(&taken).filter(|(_, by)| by.is_none()).map(|(to, _)| *to).collect();
    let mut written = write(&mut tx, vault, &free, holder).await?.into_iter();
    tx.commit().await?;
    let sent = taken.into_iter().map(|by| match by {
        Some(_) => Sent { key_taken_by: by, ..Sent::default() },
        None => written.next().expect("what became of each"),
    });
    Ok(sent.collect())
}

/// Stores messages whose keys are theirs.
async fn write(
    conn: &mut PgConnection,
    vault: &Vault,
    messages: &[&Addressed],
    holder: Option<Holder>,
) -> Result<Vec<Sent>, sqlx::Error> {
    let wanted = messages.iter().map(|to| (to.message.app, &to.audience, to.message.by_cursors));
    let resolved = resolve(conn, wanted).await?;
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
                let is_single = matches!(audience, Audience::Subscriptions(ids) if ids.len() == 1);
                let is_held = holder.is_some() && is_single && !message.is_for_later;
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
    let resolved = resolve(conn, std::iter::once((app, audience, false))).await?.pop();
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
        &ids as &[SubscriptionId],
        app.0,
        now
    )
    .fetch_all(conn)
    .await?;
    let live = known.iter().filter(|row| row.live).count();
    Ok(Sent {
        unknown: missing(&ids, known.iter().map(|row| SubscriptionId(row.id))),
        estimate: count(live),
        unreachable: unreachable + count(known.len() - live),
        lacks_topic,
        ..Sent::default()
    })
}

/// Finds out what audiences come to, those of users all at once.
async fn resolve(
    conn: &mut PgConnection,
    audiences: impl Iterator<Item = (AppId, &Audience, bool)> + Clone,
) -> Result<Vec<Resolved>, sqlx::Error> {
    let groups: Vec<_> = audiences.clone().filter_map(|(app, audience, _)| Some((app, audience.users()?))).collect();
    let mut found = rows::of_users(conn, &groups).await?.into_iter();
    let mut resolved = Vec::new();
    for (app, audience, by_cursors) in audiences {
        resolved.push(match audience {
            Audience::Subscriptions(ids) => Resolved::new(Reach::Rows(ids.clone())),
            Audience::Users(_) => found.next().expect("one for each group of users"),
            Audience::Topic { name, .. } => resolve_topic(conn, app, name, by_cursors).await?,
            Audience::All => resolve_everyone(conn, app, by_cursors).await?,
        });
    }
    Ok(resolved)
}

async fn resolve_topic(
    conn: &mut PgConnection,
    app: AppId,
    name: &str,
    by_cursors: bool,
) -> Result<Resolved, sqlx::Error> {
    let Some(topic) = crate::store::audience::topics::find(conn, app, name).await? else {
        return Ok(Resolved { lacks_topic: true, ..Resolved::new(Reach::Rows(Vec::new())) });
    };
    let lanes = audience_counts::of_topic(conn, topic).await?;
    let reach = match by_cursors {
        true => every_lane(conn, app, &lanes).await?,
        false => small_or_lanes(conn, Some(topic), &lanes).await?,
    };
    Ok(Resolved { topic: Some(topic), ..Resolved::new(reach) })
}

async fn resolve_everyone(conn: &mut PgConnection, app: AppId, by_cursors: bool) -> Result<Resolved, sqlx::Error> {
    let lanes = audience_counts::of_everyone(conn, app).await?;
    Ok(Resolved::new(match by_cursors {
        true => every_lane(conn, app, &lanes).await?,
        false => small_or_lanes(conn, None, &lanes).await?,
    }))
}

/// All lanes of an app: who is there when a message for later falls due need not be there now. A lane that is made until then
/// joins them ([`crate::store::queue::lanes::ensure`]).
async fn every_lane(conn: &mut PgConnection, app: AppId, kept: &[(LaneId, i64)]) -> Result<Reach, sqlx::Error> {
    let lanes = sqlx::query_scalar!("SELECT id FROM lanes WHERE app = $1 ORDER BY id", app.0).fetch_all(conn).await?;
    Ok(Reach::Lanes { lanes: lanes.into_iter().map(LaneId).collect(), total: kept.iter().map(|(_, n)| n).sum() })
}

async fn small_or_lanes(
    conn: &mut PgConnection,
    topic: Option<i32>,
    kept: &[(LaneId, i64)],
) -> Result<Reach, sqlx::Error> {
    let total: i64 = kept.iter().map(|(_, n)| n).sum();
    let lanes: Vec<LaneId> = kept.iter().map(|(lane, _)| *lane).collect();
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
                &lanes as &[LaneId]
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
    lanes: &[LaneId],
    total: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "WITH message AS (
           INSERT INTO messages (id, app, tier, state, audience, content, ttl_s, urgency, topic_header, policy,
             topic, enveloped, audience_estimate, accepted_at, expires_at, traceparent)
           VALUES ($1, $2, $3, 'sending', $4, $5, $6, $7, $8, $9, $13, $15, $10, $11, $12, $16)),
         campaign AS (INSERT INTO campaigns_in_motion (message, app) VALUES ($1, $2))
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
        lanes as &[LaneId],
        message.enveloped,
        message.traceparent
    )
    .execute(conn)
    .await?;
    Ok(())
}
