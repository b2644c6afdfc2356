//! Many registrations in one transaction, by the right of a server. Each comes to what [`register`](super::register) makes of it,
//! one after the other, but for one: what has ended stays so. A list is no browser that has come back.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;

use super::{Registered, Registration, Unregistered, begin, endpoint_mac, insert_all, refresh, shard_of};
use crate::model::clock::Timestamp;
use crate::model::id::{AppId, LaneId, SubscriptionId, VapidKeyId};
use crate::model::lane::Gateway;
use crate::model::permission::Speaker;
use crate::model::subscription::SubscriptionState;
use crate::policy::Place;
use crate::store::audience::subscriptions::row::SubscriptionRow;
use crate::store::audience::{membership, topics};
use crate::store::keys::audit::{Action, Entry};
use crate::store::queue::{lanes, policies};
use crate::vault::Vault;

/// What became of one of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enrolled {
    /// It is new.
    New,
    /// It was there, and says this now.
    Known,
    /// It was there and had ended, or the list says that it has: it stays so.
    Ended,
    /// Its endpoint is known under another VAPID key than stated.
    OtherKey,
    /// The app would have too many topics.
    TooManyTopics,
    /// Its attributes would be too large.
    TooLarge,
}

/// A registration, and where its endpoint is found.
struct Item<'a> {
    request: &'a Registration<'a>,
    mac: [u8; 32],
    shard: u8,
}

/// Registers subscriptions of one app, none of which replaces another one. What one comes to stands at its place.
///
/// # Errors
/// The transaction may have been given up for the sake of another one: run it again.
pub(in crate::store) async fn register_all(
    conn: &mut PgConnection,
    vault: &Vault,
    app: AppId,
    requests: &[Registration<'_>],
    now: Timestamp,
) -> sqlx::Result<Vec<Enrolled>> {
    let find = |request: &Registration<'_>| {
        let endpoint = request.endpoint.expose();
        (endpoint_mac(vault, app, endpoint), shard_of(app, endpoint))
    };
    let places = requests.iter().map(find);
    let items: Vec<Item<'_>> =
        requests.iter().zip(places).map(|(request, (mac, shard))| Item { request, mac, shard }).collect();
    let mut enrolled = vec![Enrolled::Known; items.len()];
    let mut left: Vec<usize> = (0..items.len()).collect();
    while !left.is_empty() {
        // An endpoint that is named twice is registered by the first, and refreshed by the second in the next round.
        let mut seen = HashSet::new();
        let (round, mut later): (Vec<usize>, Vec<usize>) = left.iter().partition(|i| seen.insert(items[**i].mac));
        let of_round: Vec<&Item<'_>> = round.iter().map(|i| &items[*i]).collect();
        for (i, became) in round.into_iter().zip(register_once(conn, vault, app, &of_round, now).await?) {
            match became {
                Some(became) => enrolled[i] = became,
                None => later.push(i),
            }
        }
        later.sort_unstable();
        left = later;
    }
    Ok(enrolled)
}

/// A subscription to be added, and at which place of the round.
struct Beginning {
    at: usize,
    row: SubscriptionRow,
}

/// Registers subscriptions with different endpoints. None: somebody else has registered it since we looked; it can be seen now.
async fn register_once(
    conn: &mut PgConnection,
    vault: &Vault,
    app: AppId,
    items: &[&Item<'_>],
    now: Timestamp,
) -> sqlx::Result<Vec<Option<Enrolled>>> {
    let mut known = lock_known(conn, app, items).await?;
    let ids: Vec<SubscriptionId> = known.values().map(|row| row.id).collect();
    let names = membership::names_of_all(&mut *conn, &ids).await?;
    let topics = ensure_topics(conn, app, items, now).await?;
    let mut lanes = Lanes::default();
    let (mut became, mut new) = (Vec::with_capacity(items.len()), Vec::new());
    for (at, item) in items.iter().enumerate() {
        let wanted = item.request.wanted.topics.as_deref().unwrap_or_default();
        became.push(if wanted.iter().any(|name| !topics.contains_key(name)) {
            Some(Enrolled::TooManyTopics)
        } else if let Some(before) = known.remove(item.mac.as_slice()) {
            let there = names.get(&before.id).map_or(&[][..], Vec::as_slice);
            Some(refresh_one(conn, vault, item.request, before, there, now).await?)
        } else {
            let lane = lanes.of(conn, item.request, now).await?;
            let id = SubscriptionId::new(item.request.id, item.shard);
            let mut row = begin(vault, item.request, (id, lane), &item.mac, None, now);
            let fits = item.request.wanted.apply(&mut row);
            if fits {
                new.push(Beginning { at, row });
            }
            (!fits).then_some(Enrolled::TooLarge)
        });
    }
    // Two that bring the same endpoints wait for each other in one order.
    new.sort_unstable_by(|a, b| a.row.endpoint_mac.cmp(&b.row.endpoint_mac));
    let rows: Vec<_> = new.iter().map(|beginning| (&beginning.row, None)).collect();
    let added = if rows.is_empty() { HashSet::new() } else { insert_all(conn, app, &rows).await? };
    let mut members = Vec::new();
    for Beginning { at, row } in new.iter().filter(|beginning| added.contains(&beginning.row.id)) {
        let request = items[*at].request;
        if request.unsubscribed_at.is_some() {
            became[*at] = Some(Enrolled::Ended);
            continue;
        }
        let wanted = request.wanted.topics.as_deref().unwrap_or_default();
        members.extend(wanted.iter().map(|name| (row.id, row.lane, topics[name])));
        set_policy(conn, request, row.id, now).await?;
        became[*at] = Some(Enrolled::New);
    }
    if !members.is_empty() {
        membership::join_all(conn, &members, now).await?;
    }
    Ok(became)
}

/// Refreshes one that is locked and in the topics of those names.
async fn refresh_one(
    conn: &mut PgConnection,
    vault: &Vault,
    request: &Registration<'_>,
    before: SubscriptionRow,
    topics: &[String],
    now: Timestamp,
) -> sqlx::Result<Enrolled> {
    if before.state != SubscriptionState::Active || request.unsubscribed_at.is_some() {
        return Ok(Enrolled::Ended);
    }
    let row = match refresh(conn, vault, request, before, now).await {
        Ok(row) => row,
        Err(Unregistered::Failed(error)) => return Err(error),
        Err(Unregistered::Refused(Registered::TooLarge)) => return Ok(Enrolled::TooLarge),
        // A server may do anything else with what is known.
        Err(Unregistered::Refused(_)) => return Ok(Enrolled::OtherKey),
    };
    let is_other = request.wanted.topics.as_ref().is_some_and(|wanted| wanted != topics);
    if is_other && membership::set_topics(conn, request.app, &row, request.wanted, now).await?.is_none() {
        return Ok(Enrolled::TooManyTopics);
    }
    set_policy(conn, request, row.id, now).await?;
    Ok(Enrolled::Known)
}

async fn set_policy(
    conn: &mut PgConnection,
    request: &Registration<'_>,
    id: SubscriptionId,
    now: Timestamp,
) -> sqlx::Result<()> {
    let Some((policy, by)) = request.policy else { return Ok(()) };
    if policies::adopt_subscription(conn, request.app, id, policy).await? {
        let target = format!("{}:{id}", Place::Subscription.name());
        Entry::new(by, Some(request.app), Action::PolicySet, target).record(conn, 1, now).await?;
    }
    Ok(())
}

/// Those that there are, locked in the order that everybody locks them in, by what finds their endpoints.
async fn lock_known(
    conn: &mut PgConnection,
    app: AppId,
    items: &[&Item<'_>],
) -> sqlx::Result<HashMap<Vec<u8>, SubscriptionRow>> {
    let rows = sqlx::query_as!(
        SubscriptionRow,
        r#"SELECT s.id, s.lane, l.vapid_key, l.gateway AS "gateway: Gateway", s.state AS "state: SubscriptionState", s.since, s.endpoint_mac, s.address, s.user_id, s.tags,
           s.attributes, s.locale, s.timezone, s.expires_at, s.token_version, s.keys_proven_at, s.last_seen, s.created_at, s.ended_at, s.consent_at, s.consent_source
         FROM unnest($2::bytea[], $3::smallint[]) AS t (mac, shard)
         JOIN subscriptions s ON s.app = $1 AND s.endpoint_mac = t.mac AND s.shard = t.shard JOIN lanes l ON l.id = s.lane
         ORDER BY s.shard, s.id FOR NO KEY UPDATE OF s"#,
        app.0,
        &items.iter().map(|item| item.mac.as_slice()).collect::<Vec<_>>() as &[&[u8]],
        &items.iter().map(|item| i16::from(item.shard)).collect::<Vec<_>>()
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.endpoint_mac.clone(), row)).collect())
}

/// The numbers of the topics that are wanted, which are made where there are none yet. Those that do not fit are left out.
async fn ensure_topics(
    conn: &mut PgConnection,
    app: AppId,
    items: &[&Item<'_>],
    now: Timestamp,
) -> sqlx::Result<HashMap<String, i32>> {
    let wanted = || items.iter().filter_map(|item| item.request.wanted.topics.as_ref());
    let mut names: Vec<String> = wanted().flatten().cloned().collect::<HashSet<_>>().into_iter().collect();
    names.sort_unstable();
    if names.is_empty() {
        return Ok(HashMap::new());
    }
    let (mut there, missing) = topics::ensure(conn, app, &names, &Speaker::Server, now).await?;
    if !missing.is_empty() {
        // Together they are too many: who comes first finds room.
        for names in wanted() {
            there.extend(topics::ensure(conn, app, names, &Speaker::Server, now).await?.0);
        }
    }
    Ok(there.into_iter().map(|topic| (topic.name, topic.id)).collect())
}

/// Lanes that are known by now: all of a file's subscriptions share a few.
#[derive(Default)]
struct Lanes(Vec<((VapidKeyId, Gateway), LaneId)>);

impl Lanes {
    async fn of(
        &mut self,
        conn: &mut PgConnection,
        request: &Registration<'_>,
        now: Timestamp,
    ) -> sqlx::Result<LaneId> {
        let wanted = (request.vapid_key, request.gateway);
        if let Some((_, lane)) = self.0.iter().find(|(known, _)| *known == wanted) {
            return Ok(*lane);
        }
        let lane = lanes::ensure(conn, request.app, request.vapid_key, request.gateway, now).await?;
        self.0.push((wanted, lane));
        Ok(lane)
    }
}
