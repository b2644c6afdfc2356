//! Recipients of due entries: the browsers that a campaign's audience contains.

use std::collections::{BTreeSet, HashMap, HashSet};

use sqlx::PgConnection;

use super::due::DueEntry;
use crate::audience::segment_filter::{Judge, in_topics};
use crate::audience::{aliases, candidates, engagement_stats, user_shards};
use crate::connections::engine::{self, shard_column, shards_of};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::ReceiptKind;
use bellwire_core::engagement_stats::Habits;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};
use bellwire_core::person::Person;
use bellwire_rules::campaign::follow::FollowCondition;
use bellwire_rules::campaign::plan::CampaignAudience;
use bellwire_segment::AudienceFilter;
use bellwire_vault::Vault;

/// Returns the active browsers of each entry: all of a user, or one with its successors.
pub async fn browsers(
    conn: &mut PgConnection, vault: &Vault, app: AppId, entries: &[DueEntry], now: Timestamp,
) -> sqlx::Result<Vec<Vec<SubscriptionId>>> {
    let users: BTreeSet<&str> = entries.iter().filter_map(named_user).collect();
    let users: Vec<String> = users.into_iter().map(str::to_owned).collect();
    let mut of_users = HashMap::<String, Vec<SubscriptionId>>::new();
    if !users.is_empty() {
        let shards = user_shards::of(&mut *conn, app, Some(&users)).await?;
        let rows = fetch_all!(
            &mut *conn,
            r#"SELECT id AS "id: SubscriptionId", user_id AS "user!" FROM subscriptions
               WHERE app = $1 AND user_id = ANY ($2) AND state = 'active' AND ($3::smallint[] IS NULL OR shard = ANY ($3))
                 AND (expires_at IS NULL OR expires_at > $4)
               ORDER BY id"#,
            (app.0, &users, shards.as_deref(), now)
        )?;
        for row in rows {
            of_users.entry(row.user).or_default().push(row.id);
        }
    }
    let single: Vec<SubscriptionId> = entries.iter().filter_map(|entry| entry.subscription).collect();
    let successors = aliases::resolve(conn, vault, app, &single).await?;
    let present = successors.values().flatten().copied();
    let states = states(conn, app, &single.iter().copied().chain(present).collect::<Vec<_>>(), now).await?;
    let of_entry = |entry: &DueEntry| match entry.subscription {
        Some(id) => single_recipient(entry, id, &successors, &states).into_iter().collect(),
        None => named_user(entry).and_then(|user| of_users.get(user)).cloned().unwrap_or_default(),
    };
    Ok(entries.iter().map(of_entry).collect())
}

/// Returns the browser of an entry, or its successor. `None`: it is not active, or another person's by now.
fn single_recipient(
    entry: &DueEntry, id: SubscriptionId, successors: &HashMap<SubscriptionId, Option<SubscriptionId>>,
    states: &HashMap<SubscriptionId, BrowserState>,
) -> Option<SubscriptionId> {
    let first = states.get(&id).filter(|state| entry.life == Some(state.life))?;
    let present = successors.get(&id).copied().unwrap_or(Some(id))?;
    let last = states.get(&present).filter(|state| state.active && state.user_id == entry.user_id)?;
    let is_direct = first.replaced_by == Some(present);
    let is_same = present == id || !is_direct || first.replaced_by_life == Some(last.life);
    is_same.then_some(present)
}

fn named_user(entry: &DueEntry) -> Option<&str> {
    entry.user_id.as_deref().filter(|_| entry.subscription.is_none())
}

/// Columns of a subscription that decide whether it is still the same person's.
struct BrowserState {
    id: SubscriptionId,
    active: bool,
    user_id: Option<String>,
    life: i32,
    replaced_by: Option<SubscriptionId>,
    replaced_by_life: Option<i32>,
}

async fn states(
    conn: &mut PgConnection, app: AppId, ids: &[SubscriptionId], now: Timestamp,
) -> sqlx::Result<HashMap<SubscriptionId, BrowserState>> {
    let rows = fetch_all!(
        conn,
        BrowserState,
        r#"SELECT s.id AS "id: SubscriptionId", s.state = 'active' AND (s.expires_at IS NULL OR s.expires_at > $5) AS "active!",
             s.user_id, s.life, s.replaced_by AS "replaced_by: SubscriptionId", s.replaced_by_life
           FROM unnest($2::smallint[], $3::uuid[]) AS t (shard, id) JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id
           WHERE s.app = $1 AND s.shard = ANY ($4)"#,
        (app.0, &shard_column(ids), ids as &[SubscriptionId], &shards_of(ids), now)
    )?;
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}

/// Returns those browsers that belong to an audience.
pub async fn in_audience(
    conn: &mut PgConnection, app: AppId, (audience, filter): (&CampaignAudience, Option<&AudienceFilter>),
    ids: &[SubscriptionId], now: Timestamp,
) -> sqlx::Result<HashSet<SubscriptionId>> {
    let mut within: HashSet<SubscriptionId> = ids.iter().copied().collect();
    if let CampaignAudience::Topic { name, .. } = audience {
        within = in_topics(conn, app, std::slice::from_ref(name), ids).await?.remove(name).unwrap_or_default();
    }
    let Some(filter) = filter else { return Ok(within) };
    let ids: Vec<SubscriptionId> = within.into_iter().collect();
    let candidates = candidates::of_ids(conn, &ids).await?;
    let lanes: BTreeSet<LaneId> = candidates.iter().filter_map(|candidate| candidate.lane).collect();
    let judge = Judge::new(conn, app, filter, &Vec::from_iter(lanes), now).await?;
    let judged = judge.judge(conn, &candidates).await?;
    Ok(judged.into_iter().filter_map(|(id, verdict)| verdict.is_taken().then_some(id)).collect())
}

/// Returns the given messages that a push service accepted, that have no such reaction and are not withdrawn.
pub async fn without_reaction(
    conn: &mut PgConnection, messages: &[MessageId], reaction: FollowCondition, browsers: &[SubscriptionId],
) -> sqlx::Result<HashSet<MessageId>> {
    let kind = match reaction {
        FollowCondition::Display => ReceiptKind::Displayed,
        FollowCondition::Click => ReceiptKind::Clicked,
    };
    let shards = engine::is_distributed().then(|| shards_of(browsers));
    let reacted = fetch_all!(
        &mut *conn,
        scalar,
        r#"SELECT DISTINCT message AS "id: MessageId" FROM receipts
           WHERE message = ANY ($1) AND kind = $2 AND ($3::smallint[] IS NULL OR shard = ANY ($3))"#,
        (messages as &[MessageId], kind.code(), shards.as_deref())
    )?;
    let accepted = fetch_all!(
        conn,
        scalar,
        r#"SELECT DISTINCT message AS "id: MessageId" FROM message_counts k WHERE message = ANY ($1) AND accepted > 0
             AND NOT EXISTS (SELECT FROM withdrawals WHERE message = k.message)"#,
        (messages as &[MessageId])
    )?;
    Ok(accepted.into_iter().filter(|id| !reacted.contains(id)).collect())
}

/// Returns the engagement and the time zone of people, by their first browser.
pub async fn habits(
    conn: &mut PgConnection, app: AppId, people: &[(SubscriptionId, Person)],
) -> sqlx::Result<HashMap<SubscriptionId, (Habits, Option<String>)>> {
    let mut habits = engagement_stats::of(&mut *conn, app, people).await?;
    let ids: Vec<SubscriptionId> = people.iter().map(|(id, _)| *id).collect();
    let candidates = candidates::of_ids(conn, &ids).await?;
    let of = |it: candidates::CandidateRow| (it.id, (habits.remove(&it.id).unwrap_or_default(), it.timezone));
    Ok(candidates.into_iter().map(of).collect())
}

/// Returns the person of an entry.
pub fn person(app: AppId, entry: &DueEntry) -> Person {
    match &entry.user_id {
        Some(user) => Person::of_user(app, user),
        None => Person::of_browser(SubscriptionId(entry.person)),
    }
}

/// Returns the bytes that decide about a person's share: the user id, or the first id of the browser.
pub fn share_of(entry: &DueEntry) -> &[u8] {
    entry.user_id.as_ref().map_or(entry.person.as_bytes(), String::as_bytes)
}
