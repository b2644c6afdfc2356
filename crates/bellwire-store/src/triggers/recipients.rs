//! Recipients of due entries: the browsers that a campaign's audience contains.

use std::collections::{BTreeSet, HashMap, HashSet};

use sqlx::PgConnection;

use super::due::DueEntry;
use crate::audience::segment_filter::{Judge, in_topics};
use crate::audience::{aliases, candidates, engagement_stats, user_shards};
use crate::connections::engine::{shard_column, shards_of};
use bellwire_core::clock::Timestamp;
use bellwire_core::engagement_stats::Habits;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};
use bellwire_core::person::Person;
use bellwire_rules::campaign::plan::{CampaignAudience, FollowCondition};
use bellwire_segment::AudienceFilter;
use bellwire_vault::Vault;

/// Returns the active browsers of each entry: all of a user, or one with its successors.
pub async fn browsers(
    conn: &mut PgConnection,
    vault: &Vault,
    app: AppId,
    entries: &[DueEntry],
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
               ORDER BY id"#,
            (app.0, &users, shards.as_deref())
        )?;
        for row in rows {
            of_users.entry(row.user).or_default().push(row.id);
        }
    }
    let single: Vec<SubscriptionId> = entries.iter().filter_map(|entry| entry.subscription).collect();
    let successors = aliases::resolve(conn, vault, app, &single).await?;
    let present = |id: SubscriptionId| successors.get(&id).copied().unwrap_or(Some(id));
    let single: Vec<SubscriptionId> = single.into_iter().filter_map(present).collect();
    let owners = owners(conn, app, &single).await?;
    let of_entry = |entry: &DueEntry| match entry.subscription {
        // A browser whose user has changed since is another person's.
        Some(id) => present(id).filter(|id| owners.get(id) == Some(&entry.user_id)).into_iter().collect(),
        None => named_user(entry).and_then(|user| of_users.get(user)).cloned().unwrap_or_default(),
    };
    Ok(entries.iter().map(of_entry).collect())
}

fn named_user(entry: &DueEntry) -> Option<&str> {
    entry.user_id.as_deref().filter(|_| entry.subscription.is_none())
}

/// Returns the users of active subscriptions.
async fn owners(
    conn: &mut PgConnection,
    app: AppId,
    ids: &[SubscriptionId],
) -> sqlx::Result<HashMap<SubscriptionId, Option<String>>> {
    let rows = fetch_all!(
        conn,
        r#"SELECT s.id AS "id: SubscriptionId", s.user_id
           FROM unnest($2::smallint[], $3::uuid[]) AS t (shard, id) JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id
           WHERE s.app = $1 AND s.state = 'active' AND s.shard = ANY ($4)"#,
        (app.0, &shard_column(ids), ids as &[SubscriptionId], &shards_of(ids))
    )?;
    Ok(rows.into_iter().map(|row| (row.id, row.user_id)).collect())
}

/// Returns those browsers that belong to an audience.
pub async fn in_audience(
    conn: &mut PgConnection,
    app: AppId,
    (audience, filter): (&CampaignAudience, Option<&AudienceFilter>),
    ids: &[SubscriptionId],
    now: Timestamp,
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

/// Returns the messages to which a browser has reacted.
pub async fn with_reaction(
    conn: &mut PgConnection,
    messages: &[MessageId],
    reaction: FollowCondition,
) -> sqlx::Result<HashSet<MessageId>> {
    let kind: i16 = match reaction {
        FollowCondition::Display => 1,
        FollowCondition::Click => 2,
    };
    let found = fetch_all!(
        conn,
        scalar,
        r#"SELECT DISTINCT message AS "id: MessageId" FROM receipts WHERE message = ANY ($1) AND kind = $2"#,
        (messages as &[MessageId], kind)
    )?;
    Ok(found.into_iter().collect())
}

/// Returns the engagement and the time zone of people, by their first browser.
pub async fn habits(
    conn: &mut PgConnection,
    app: AppId,
    people: &[(SubscriptionId, Person)],
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
