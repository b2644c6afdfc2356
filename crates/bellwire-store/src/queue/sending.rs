//! Accepts messages: stores the message and its recipients in one transaction.
//!
//! Named recipients and audiences of at most [`ROWS_MAX`] become `queue` rows at once, those of many messages in one statement.
//! Larger audiences, and those with a filter, become a cursor for each lane, from which workers take batches.

mod addressed;
mod keys;
mod rows;

use std::collections::HashSet;

use sqlx::types::Json;
use sqlx::{Connection as _, PgConnection};

use crate::audience::{aliases, audience_counts, reach, topics};
use crate::connections::engine::{shard_column, shards_of};
use crate::queue::lanes;
pub use addressed::Born;
pub use addressed::{Addressed, Audience, LeaseHolder, NewMessage, Sent};
use addressed::{ResolvedAudience, ResolvedReach, count, missing};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};
use bellwire_segment::AudienceFilter;
use bellwire_vault::Vault;
use rows::Parcel;

/// Concurrent transactions of sends, each on its own connection: while one waits for its WAL flush, the next is prepared.
pub const WRITERS: u32 = 2;

/// Maximum audience (topic or whole app) that becomes queue rows at once.
const ROWS_MAX: i64 = 100;

/// Maximum recipients of a transactional message whose rows are inserted already leased: the browsers of one person. With more,
/// several workers should share the deliveries. Less urgent messages wait in the queue, subject to lane, app and caps.
const HELD_MAX: usize = 4;

/// Stores messages and their recipients, all queue rows in one statement. A message with an unknown subscription, or with a key
/// of another message, is omitted without effect on the others. Messages to one subscription, and transactional ones to at most
/// [`HELD_MAX`] named recipients, are inserted leased to the holder, if one exists and the message is not scheduled. Other rows
/// are due at acceptance. Returns the results in order.
pub async fn send(
    conn: &mut PgConnection, vault: &Vault, messages: &[&Addressed], holder: Option<LeaseHolder>, now: Timestamp,
) -> Result<Vec<Sent>, sqlx::Error> {
    let has_keys = messages.iter().any(|to| to.message.key.is_some());
    if !has_keys && !messages.iter().any(|to| to.awaits_newcomers()) {
        return write(conn, vault, messages, holder, now).await;
    }
    let mut tx = conn.begin().await?;
    let sent = match has_keys {
        true => send_by_key(&mut tx, vault, messages, holder, now).await?,
        false => write(&mut tx, vault, messages, holder, now).await?,
    };
    tx.commit().await?;
    Ok(sent)
}

/// Stores messages of which some have keys, at once. Messages whose key was claimed by a refused message of the group follow.
async fn send_by_key(
    conn: &mut PgConnection, vault: &Vault, messages: &[&Addressed], holder: Option<LeaseHolder>, now: Timestamp,
) -> Result<Vec<Sent>, sqlx::Error> {
    let mut sent: Vec<Option<Sent>> = messages.iter().map(|_| None).collect();
    loop {
        let open: Vec<usize> = (0..messages.len()).filter(|place| sent[*place].is_none()).collect();
        if open.is_empty() {
            return Ok(sent.into_iter().flatten().collect());
        }
        let asked: Vec<&Addressed> = open.iter().map(|place| messages[*place]).collect();
        let taken = keys::claim(conn, &asked, now).await?;
        let (mut free, mut others) = (Vec::new(), Vec::new());
        for (place, by) in open.into_iter().zip(taken) {
            match by {
                None => free.push(place),
                Some(by) => others.push((place, by)),
            }
        }
        let given: Vec<&Addressed> = free.iter().map(|place| messages[*place]).collect();
        let mut refused = HashSet::new();
        for (place, written) in free.into_iter().zip(write(conn, vault, &given, holder, now).await?) {
            refused.extend(messages[place].is_refused(&written).then_some(messages[place].message.id));
            sent[place] = Some(written);
        }
        for (place, by) in others.into_iter().filter(|(_, by)| !refused.contains(by)) {
            sent[place] = Some(Sent { key_taken_by: Some(by), ..Sent::default() });
        }
    }
}

/// Stores messages whose keys are claimed.
async fn write(
    conn: &mut PgConnection, vault: &Vault, messages: &[&Addressed], holder: Option<LeaseHolder>, now: Timestamp,
) -> Result<Vec<Sent>, sqlx::Error> {
    for to in messages.iter().filter(|to| to.awaits_newcomers()) {
        lanes::keep_out(conn, to.message.app).await?;
    }
    let audiences = messages.iter().map(|to| (to.message.app, &to.audience, Way::of(&to.message)));
    let resolved = resolve(conn, audiences, now).await?;
    let mut sent: Vec<Sent> = messages.iter().map(|_| Sent::default()).collect();
    let (mut places, mut parcels) = (Vec::new(), Vec::new());
    for (place, (Addressed { message, audience }, resolved)) in messages.iter().zip(resolved).enumerate() {
        let ResolvedAudience { reach, topic, lacks_topic, unreachable } = resolved;
        sent[place].lacks_topic = lacks_topic;
        if lacks_topic && matches!(audience, Audience::Topic { may_be_missing: false, .. }) {
            continue;
        }
        match reach {
            ResolvedReach::Rows(ids) => {
                let held_max = match (message.tier, audience) {
                    (Tier::Transactional, _) => HELD_MAX,
                    (_, Audience::Subscriptions(_)) => 1,
                    _ => 0,
                };
                let are_few = audience.is_named() && (1..=held_max).contains(&ids.len());
                let is_held = holder.is_some() && are_few && !message.is_for_later();
                places.push(place);
                parcels.push(Parcel { message, topic, ids, users: audience.users(), unreachable, is_held });
            }
            ResolvedReach::Lanes(lanes) => {
                let filter = (message.app, message.filter.as_ref());
                let (lanes, ReachEstimate { estimate, margin }) =
                    narrowed(conn, filter, topic, lanes, message.accepted_at).await?;
                fan_out(conn, message, topic, &lanes, estimate).await?;
                let expands = message.is_for_later() || !lanes.is_empty();
                sent[place] = Sent { estimate, margin, expands, lacks_topic, ..Sent::default() };
            }
        }
    }
    let flagged: Vec<MessageId> =
        messages.iter().filter(|to| to.message.clear_on_click).map(|to| to.message.id).collect();
    // Again only for messages to subscriptions that were replaced, also in between.
    while !parcels.is_empty() {
        let written = rows::write(conn, vault, &parcels, holder).await?;
        let mut replaced = Vec::new();
        for ((place, mut parcel), written) in places.into_iter().zip(parcels).zip(written) {
            if !written.replaced.is_empty() {
                parcel.unreachable += follow(conn, vault, parcel.message.app, &mut parcel.ids).await?;
                replaced.push((place, parcel));
                continue;
            }
            sent[place] = Sent { lacks_topic: sent[place].lacks_topic, ..written };
        }
        (places, parcels) = replaced.into_iter().unzip();
    }
    if !flagged.is_empty() {
        execute!(conn, "UPDATE messages SET clear_on_click = true WHERE id = ANY ($1)", (&flagged as &[MessageId]))?;
    }
    Ok(sent)
}

/// Replaces the ids of replaced subscriptions by their successors, without duplicates. Removes ids that lead nowhere, and
/// returns their number.
async fn follow(
    conn: &mut PgConnection, vault: &Vault, app: AppId, ids: &mut Vec<SubscriptionId>,
) -> sqlx::Result<i64> {
    let resolved = aliases::resolve(conn, vault, app, ids).await?;
    let mut seen = HashSet::new();
    *ids = ids
        .iter()
        .filter_map(|id| resolved.get(id).copied().unwrap_or(Some(*id)))
        .filter(|id| seen.insert(*id))
        .collect();
    Ok(count(resolved.values().filter(|successor| successor.is_none()).count()))
}

pub async fn dry_run(
    conn: &mut PgConnection, vault: &Vault, (app, audience): (AppId, &Audience), filter: Option<&AudienceFilter>,
    now: Timestamp,
) -> Result<Sent, sqlx::Error> {
    let way = if filter.is_some() { Way::Cursors } else { Way::Shortest };
    let resolved = resolve(conn, std::iter::once((app, audience, way)), now).await?.pop();
    let ResolvedAudience { reach, topic, unreachable, lacks_topic } =
        resolved.unwrap_or_else(|| ResolvedAudience::new(ResolvedReach::Rows(Vec::new())));
    let (mut ids, mut unreachable) = match reach {
        ResolvedReach::Rows(ids) => (ids, unreachable),
        ResolvedReach::Lanes(lanes) => {
            let (lanes, ReachEstimate { estimate, margin }) = narrowed(conn, (app, filter), topic, lanes, now).await?;
            return Ok(Sent { estimate, margin, expands: !lanes.is_empty(), ..Sent::default() });
        }
    };
    unreachable += follow(conn, vault, app, &mut ids).await?;
    let known = fetch_all!(
        conn,
        r#"SELECT s.id, s.state = 'active' AND (s.expires_at IS NULL OR s.expires_at > $4) AS "live!"
         FROM unnest($1::smallint[], $2::uuid[]) AS t (shard, id)
         JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id AND s.app = $3
         WHERE s.shard = ANY ($5)"#,
        (&shard_column(&ids), &ids as &[SubscriptionId], app.0, now, &shards_of(&ids))
    )?;
    let live = known.iter().filter(|row| row.live).count();
    Ok(Sent {
        unknown: missing(&ids, known.iter().map(|row| SubscriptionId(row.id))),
        estimate: count(live),
        unreachable: unreachable + count(known.len() - live),
        lacks_topic,
        ..Sent::default()
    })
}

/// Way to recipients without names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Queue rows if they are few, otherwise cursors.
    Shortest,
    Cursors,
    /// A cursor in every lane, so that subscriptions registered before the due time are included.
    EveryLane,
}

impl Way {
    fn of(message: &NewMessage) -> Self {
        match message.is_for_later() {
            true => Self::EveryLane,
            false if message.by_cursors || message.filter.is_some() => Self::Cursors,
            false => Self::Shortest,
        }
    }
}

/// Determines the recipients of audiences. All users are read at once.
async fn resolve(
    conn: &mut PgConnection, audiences: impl Iterator<Item = (AppId, &Audience, Way)> + Clone, now: Timestamp,
) -> Result<Vec<ResolvedAudience>, sqlx::Error> {
    let to_find = audiences.clone().filter_map(|(app, audience, _)| Some((app, audience.users_to_find()?)));
    let groups: Vec<(AppId, &[String])> = to_find.collect();
    let mut found = rows::of_users(conn, &groups).await?.into_iter();
    let mut resolved = Vec::new();
    for (app, audience, way) in audiences {
        resolved.push(match audience {
            Audience::Subscriptions(ids) | Audience::BrowsersOf(_, ids) => {
                ResolvedAudience::new(ResolvedReach::Rows(ids.clone()))
            }
            Audience::Users(_) => found.next().expect("one for each group of users"),
            Audience::Topic { name, may_be_missing } => {
                let (topic, lacks_topic) = match way {
                    Way::EveryLane => topics::hold_for_later(conn, app, name, *may_be_missing, now).await?,
                    Way::Shortest | Way::Cursors => {
                        let topic = topics::find(conn, app, name).await?;
                        (topic, topic.is_none())
                    }
                };
                ResolvedAudience { lacks_topic, ..resolve_topic(conn, app, topic, way).await? }
            }
            Audience::All => resolve_everyone(conn, app, way).await?,
        });
    }
    Ok(resolved)
}

async fn resolve_topic(
    conn: &mut PgConnection, app: AppId, topic: Option<i32>, way: Way,
) -> Result<ResolvedAudience, sqlx::Error> {
    let Some(topic) = topic else { return Ok(ResolvedAudience::new(ResolvedReach::Rows(Vec::new()))) };
    let lanes = audience_counts::of_topic(conn, topic).await?;
    let reach = by_way(conn, app, Some(topic), lanes, way).await?;
    Ok(ResolvedAudience { topic: Some(topic), ..ResolvedAudience::new(reach) })
}

async fn resolve_everyone(conn: &mut PgConnection, app: AppId, way: Way) -> Result<ResolvedAudience, sqlx::Error> {
    let lanes = audience_counts::of_everyone(conn, app).await?;
    Ok(ResolvedAudience::new(by_way(conn, app, None, lanes, way).await?))
}

/// Returns the recipients of lanes with these numbers of subscriptions.
async fn by_way(
    conn: &mut PgConnection, app: AppId, topic: Option<i32>, lanes: Vec<(LaneId, i64)>, way: Way,
) -> Result<ResolvedReach, sqlx::Error> {
    match way {
        Way::Shortest => small_or_lanes(conn, topic, lanes).await,
        Way::Cursors => Ok(ResolvedReach::Lanes(lanes)),
        Way::EveryLane => every_lane(conn, app, &lanes).await,
    }
}

/// Returns all lanes of an app, because an empty lane may get subscriptions before a scheduled message is due. A lane created
/// later is added by [`lanes::ensure`].
async fn every_lane(conn: &mut PgConnection, app: AppId, kept: &[(LaneId, i64)]) -> Result<ResolvedReach, sqlx::Error> {
    let lanes = fetch_all!(conn, scalar, "SELECT id FROM lanes WHERE app = $1 ORDER BY id", (app.0))?;
    let n_in = |id: i32| kept.iter().find(|(lane, _)| lane.0 == id).map_or(0, |(_, n)| *n);
    Ok(ResolvedReach::Lanes(lanes.into_iter().map(|id| (LaneId(id), n_in(id))).collect()))
}

async fn small_or_lanes(
    conn: &mut PgConnection, topic: Option<i32>, kept: Vec<(LaneId, i64)>,
) -> Result<ResolvedReach, sqlx::Error> {
    if kept.iter().map(|(_, n)| n).sum::<i64>() > ROWS_MAX {
        return Ok(ResolvedReach::Lanes(kept));
    }
    let lanes: Vec<LaneId> = kept.iter().map(|(lane, _)| *lane).collect();
    let ids = match topic {
        Some(topic) => fetch_all!(
            conn,
            scalar,
            "SELECT s.id FROM topic_members m JOIN subscriptions s ON s.shard = m.shard AND s.id = m.subscription
                 WHERE m.topic = $1 AND s.state = 'active' ORDER BY s.id",
            (topic)
        )?,
        None => fetch_all!(
            conn,
            scalar,
            "SELECT id FROM subscriptions WHERE lane = ANY($1) AND state = 'active' ORDER BY id",
            (&lanes as &[LaneId])
        )?,
    };
    Ok(ResolvedReach::Rows(ids.into_iter().map(SubscriptionId).collect()))
}

/// Returns the lanes of an audience that may contain recipients of a message, and their maximum number.
async fn narrowed(
    conn: &mut PgConnection, (app, filter): (AppId, Option<&AudienceFilter>), topic: Option<i32>,
    lanes: Vec<(LaneId, i64)>, now: Timestamp,
) -> Result<(Vec<LaneId>, ReachEstimate), sqlx::Error> {
    let ids = |lanes: &[(LaneId, i64)]| lanes.iter().map(|(lane, _)| *lane).collect();
    let Some(filter) = filter else {
        return Ok((ids(&lanes), ReachEstimate { estimate: lanes.iter().map(|(_, n)| n).sum(), margin: 0 }));
    };
    let lanes = reach::narrowed(conn, filter, lanes).await?;
    let reach = reach::of_message(conn, &reach::Whole { app, filter, topic, lanes: &lanes }, now).await?;
    Ok((ids(&lanes), ReachEstimate { estimate: reach.count, margin: reach.margin }))
}

/// Number of deliveries, with its margin of error.
struct ReachEstimate {
    estimate: i64,
    margin: i64,
}

/// Stores a message and a cursor for each lane.
pub(super) async fn fan_out(
    conn: &mut PgConnection, message: &NewMessage, topic: Option<i32>, lanes: &[LaneId], estimate: i64,
) -> Result<(), sqlx::Error> {
    execute!(
        conn,
        "WITH message AS (
           INSERT INTO messages (id, app, tier, state, audience, content, ttl_s, urgency, topic_header, policy,
             topic, enveloped, audience_estimate, accepted_at, expires_at, traceparent, filter, sent_by, received_at)
           VALUES ($1, $2, $3, 'sending', $4, $5, $6, $7, $8, $9, $13, $15, $10, $11, $12, $16, $17, $18, $19)),
         campaign AS (INSERT INTO campaigns_in_motion (message, app) VALUES ($1, $2))
         INSERT INTO cursors (message, lane, tier, topic, after, due_at)
         SELECT $1, lane, $3, $13, '00000000-0000-0000-0000-000000000000', $11 FROM unnest($14::integer[]) AS lane",
        (message.id.0, message.app.0, message.tier.code(), message.audience, message.content, message.ttl_s),
        (message.urgency.code(), message.topic_header, message.policy, estimate, message.accepted_at),
        (message.expires_at(), topic, lanes as &[LaneId], message.enveloped, message.traceparent),
        (message.filter.as_ref().map(Json) as Option<Json<&AudienceFilter>>, message.sent_by, message.received_at)
    )?;
    Ok(())
}
