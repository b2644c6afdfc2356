//! Many registrations of a server in one transaction. The results are those of [`register`](super::register), one after the
//! other. The exception: ended subscriptions stay ended, because a list does not show that a browser returned. With
//! `restores_pruned`, pruned ones become active again.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;

use super::{Registered, Registration, Unregistered, begin, endpoint_mac, insert_all, refresh, shard_of};
use crate::audience::subscriptions::row::{SubscriptionRow, lock_in_order, read_all};
use crate::audience::{membership, topics};
use crate::connections::engine;
use crate::keys::audit::{AuditAction, AuditEntry};
use crate::queue::{lanes, policies};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, LaneId, SubscriptionId, VapidKeyId};
use bellwire_core::lane::Gateway;
use bellwire_core::subscription::SubscriptionState;
use bellwire_rules::policy::PolicyLevel;
use bellwire_vault::Vault;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enrolled {
    New,
    Known,
    /// The subscription had ended, or the file marks it as ended: it stays ended.
    Ended,
    /// The push service had reported the subscription as gone: it stays pruned.
    Pruned,
    /// The push service had reported the subscription as gone. It is active again.
    Restored,
    /// The endpoint is stored under another VAPID key than the request names.
    OtherKey,
    /// The endpoint is stored with other keys, which a receipt has confirmed.
    EndpointTaken,
    TooManyTopics,
    TooLarge,
}

struct Item<'a> {
    request: &'a Registration<'a>,
    mac: [u8; 32],
    shard: u8,
}

/// Registers subscriptions of one app, none of which replaces another one. Returns the results in the order of the requests.
///
/// # Errors Postgres may have aborted the transaction because of a deadlock: run it again.
pub(crate) async fn register_all(
    conn: &mut PgConnection, vault: &Vault, app: AppId, requests: &[Registration<'_>], restores_pruned: bool,
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
    let mut enrolment = Enrolment { vault, app, items: &items, topics: None, restores_pruned, now };
    let mut left: Vec<usize> = (0..items.len()).collect();
    while !left.is_empty() {
        // An endpoint that is named twice is registered by the first, and refreshed by the second in the next round.
        let mut seen = HashSet::new();
        let (round, mut later): (Vec<usize>, Vec<usize>) = left.iter().partition(|i| seen.insert(items[**i].mac));
        let of_round: Vec<&Item<'_>> = round.iter().map(|i| &items[*i]).collect();
        for (i, became) in round.into_iter().zip(enrolment.register_once(conn, &of_round).await?) {
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

/// A subscription to insert, and its index in the round.
struct PendingInsert {
    at: usize,
    row: SubscriptionRow,
}

/// All registrations of a transaction. To prevent deadlocks it takes locks in a fixed order: known subscriptions, new lanes,
/// new topics, new subscriptions, each sorted.
struct Enrolment<'a> {
    vault: &'a Vault,
    app: AppId,
    items: &'a [Item<'a>],
    /// Numbers of all wanted topics within the app's limit. `None`: not read yet.
    topics: Option<HashMap<String, i32>>,
    restores_pruned: bool,
    now: Timestamp,
}

impl Enrolment<'_> {
    /// Registers subscriptions with different endpoints. `None`: another transaction has registered one since it was read.
    /// Repeat the call, which then sees it.
    async fn register_once(
        &mut self, conn: &mut PgConnection, items: &[&Item<'_>],
    ) -> sqlx::Result<Vec<Option<Enrolled>>> {
        let (vault, app, now, restores_pruned) = (self.vault, self.app, self.now, self.restores_pruned);
        let mut known = lock_known(conn, app, items).await?;
        let ids: Vec<SubscriptionId> = known.values().map(|row| row.id).collect();
        let names = if ids.is_empty() { HashMap::new() } else { membership::names_of_all(&mut *conn, &ids).await? };
        let lanes = ensure_lanes(conn, items, &known, now).await?;
        let topics = self.topics(conn).await?;
        let (mut became, mut new) = (Vec::with_capacity(items.len()), Vec::new());
        for (at, item) in items.iter().enumerate() {
            let request = item.request;
            let wanted = request.wanted.topics.as_deref().unwrap_or_default();
            became.push(if wanted.iter().any(|name| !topics.contains_key(name)) {
                Some(Enrolled::TooManyTopics)
            } else if let Some(before) = known.remove(item.mac.as_slice()) {
                let there = names.get(&before.id).map_or(&[][..], Vec::as_slice);
                let is_pruned = before.state == SubscriptionState::Gone && request.unsubscribed_at.is_none();
                match is_pruned && !restores_pruned {
                    true => Some(Enrolled::Pruned),
                    false => Some(refresh_one(conn, vault, request, before, there, now).await?),
                }
            } else {
                let id = SubscriptionId::new(request.id, item.shard);
                let lane = lanes[&(request.vapid_key, request.gateway)];
                let mut row = begin(vault, request, (id, lane), &item.mac, None, now);
                let fits = request.wanted.apply(&mut row);
                if fits {
                    new.push(PendingInsert { at, row });
                }
                (!fits).then_some(Enrolled::TooLarge)
            });
        }
        add(conn, (app, items, topics), new, &mut became, now).await?;
        Ok(became)
    }

    /// Returns the numbers of the wanted topics, and creates missing ones. Topics beyond the app's limit are omitted.
    async fn topics(&mut self, conn: &mut PgConnection) -> sqlx::Result<&HashMap<String, i32>> {
        if self.topics.is_none() {
            let wanted = self.items.iter().filter_map(|item| item.request.wanted.topics.as_deref());
            let there = topics::ensure_in_turn(conn, self.app, &wanted.collect::<Vec<_>>(), self.now).await?;
            self.topics = Some(there.into_iter().map(|topic| (topic.name, topic.id)).collect());
        }
        Ok(self.topics.get_or_insert_default())
    }
}

/// Inserts new subscriptions with their topics and policies, and returns the results. Those without a result were registered by
/// another transaction.
async fn add(
    conn: &mut PgConnection, (app, items, topics): (AppId, &[&Item<'_>], &HashMap<String, i32>),
    mut new: Vec<PendingInsert>, became: &mut [Option<Enrolled>], now: Timestamp,
) -> sqlx::Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    new.sort_unstable_by(|a, b| a.row.endpoint_mac.cmp(&b.row.endpoint_mac));
    let rows: Vec<_> = new.iter().map(|beginning| (&beginning.row, None)).collect();
    let added = insert_all(conn, app, &rows).await?;
    let mut members = Vec::new();
    for PendingInsert { at, row } in new.iter().filter(|beginning| added.contains(&beginning.row.id)) {
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
    Ok(())
}

/// Refreshes or restores a locked subscription and sets its topics.
async fn refresh_one(
    conn: &mut PgConnection, vault: &Vault, request: &Registration<'_>, before: SubscriptionRow, topics: &[String],
    now: Timestamp,
) -> sqlx::Result<Enrolled> {
    let is_pruned = before.state == SubscriptionState::Gone;
    if !is_pruned && before.state != SubscriptionState::Active || request.unsubscribed_at.is_some() {
        return Ok(Enrolled::Ended);
    }
    let known_as = before.id;
    let row = match refresh(conn, vault, request, before, now).await {
        Ok(row) => row,
        Err(Unregistered::Failed(error)) => return Err(error),
        Err(Unregistered::Refused(Registered::TooLarge)) => return Ok(Enrolled::TooLarge),
        Err(Unregistered::Refused(Registered::Taken)) => return Ok(Enrolled::EndpointTaken),
        // A server may do anything else with what is known.
        Err(Unregistered::Refused(_)) => return Ok(Enrolled::OtherKey),
    };
    let is_other = request.wanted.topics.as_ref().is_some_and(|wanted| is_pruned || wanted != topics);
    if is_other && membership::set_topics(conn, request.app, &row, request.wanted, now).await?.is_none() {
        return Ok(Enrolled::TooManyTopics);
    }
    set_policy(conn, request, row.id, now).await?;
    Ok(match row.id == known_as {
        true if is_pruned => Enrolled::Restored,
        true => Enrolled::Known,
        false => Enrolled::New,
    })
}

async fn set_policy(
    conn: &mut PgConnection, request: &Registration<'_>, id: SubscriptionId, now: Timestamp,
) -> sqlx::Result<()> {
    let Some((policy, by)) = request.policy else { return Ok(()) };
    if policies::adopt_subscription(conn, request.app, id, policy).await? {
        let target = format!("{}:{id}", PolicyLevel::Subscription.name());
        AuditEntry::new(by, Some(request.app), AuditAction::PolicySet, target).record(conn, 1, now).await?;
    }
    Ok(())
}

/// Returns the stored subscriptions by endpoint MAC, locked in the common order.
async fn lock_known(
    conn: &mut PgConnection, app: AppId, items: &[&Item<'_>],
) -> sqlx::Result<HashMap<Vec<u8>, SubscriptionRow>> {
    if engine::is_distributed() {
        return lock_known_apart(conn, app, items).await;
    }
    // Each is looked for by what comes next in the index of endpoints. To the planner, an app that grows by what is being registered
    // has a handful of subscriptions: by `app = $1` it would find all of them, each time anew.
    let rows = fetch_all!(
        conn,
        SubscriptionRow,
        r#"WITH found AS MATERIALIZED (
           SELECT next.shard, next.id FROM unnest($2::bytea[], $3::smallint[]) AS t (mac, shard), LATERAL (
             SELECT app, endpoint_mac, shard, id FROM subscriptions WHERE (app, endpoint_mac, shard) >= ($1, t.mac, t.shard)
             ORDER BY app, endpoint_mac, shard LIMIT 1) next
           WHERE next.app = $1 AND next.endpoint_mac = t.mac AND next.shard = t.shard)
         SELECT s.id, s.lane, l.vapid_key, l.gateway AS "gateway: Gateway", s.state AS "state: SubscriptionState", s.since, s.endpoint_mac, s.address, s.user_id, s.tags,
           s.attributes, s.locale, s.timezone, s.expires_at, s.token_version, s.keys_proven_at, s.keys_vouched, s.last_seen, s.created_at, s.ended_at, s.consent_at, s.consent_source, s.muted_until
         FROM found JOIN subscriptions s ON s.shard = found.shard AND s.id = found.id JOIN lanes l ON l.id = s.lane
         ORDER BY s.shard, s.id FOR NO KEY UPDATE OF s"#,
        (app.0),
        items,
        |item| (item.mac.as_slice(), i16::from(item.shard))
    )?;
    Ok(rows.into_iter().map(|row| (row.endpoint_mac.clone(), row)).collect())
}

/// [`lock_known`] for Citus: finds, locks and reads subscriptions in separate statements.
async fn lock_known_apart(
    conn: &mut PgConnection, app: AppId, items: &[&Item<'_>],
) -> sqlx::Result<HashMap<Vec<u8>, SubscriptionRow>> {
    let shards: Vec<i16> = items.iter().map(|item| i16::from(item.shard)).collect();
    let ids = fetch_all!(
        &mut *conn,
        scalar,
        r#"SELECT s.id AS "id: SubscriptionId" FROM unnest($2::bytea[], $3::smallint[]) AS t (mac, shard)
           JOIN subscriptions s ON s.shard = t.shard AND s.endpoint_mac = t.mac WHERE s.app = $1 AND s.shard = ANY ($3)"#,
        (app.0),
        items,
        |item| (item.mac.as_slice()),
        (&shards)
    )?;
    lock_in_order(conn, ids.iter().copied()).await?;
    let rows = read_all(conn, app, &ids).await?;
    Ok(rows.into_iter().map(|row| (row.endpoint_mac.clone(), row)).collect())
}

/// Returns the lanes of possibly new subscriptions, creating missing ones in a fixed order. A file has few different lanes.
async fn ensure_lanes(
    conn: &mut PgConnection, items: &[&Item<'_>], known: &HashMap<Vec<u8>, SubscriptionRow>, now: Timestamp,
) -> sqlx::Result<HashMap<(VapidKeyId, Gateway), LaneId>> {
    let new = items.iter().filter(|item| !known.contains_key(item.mac.as_slice())).map(|item| item.request);
    let wanted: HashMap<_, _> = new.map(|request| ((request.vapid_key, request.gateway), request.app)).collect();
    let mut wanted: Vec<_> = wanted.into_iter().collect();
    wanted.sort_unstable_by_key(|((key, gateway), _)| (*key, gateway.name()));
    let mut lanes = HashMap::with_capacity(wanted.len());
    for ((key, gateway), app) in wanted {
        lanes.insert((key, gateway), lanes::ensure(conn, app, key, gateway, now).await?);
    }
    Ok(lanes)
}
