//! Ids of replaced subscriptions: each stays valid as an alias of its successor.
//!
//! An alias never leads to another person. It ends where another registration took over the endpoint with other keys, and where
//! the successor has another user.

use std::collections::{HashMap, HashSet};

use sqlx::{PgConnection, PgPool};

use crate::audience::lost_endpoint::{Lost, lost_endpoint_mac};
use crate::audience::subscriptions::row::{Right, SubscriptionRow, lock};
use crate::connections::engine::{shard_column, shards_of};
use bellwire_core::id::{AppId, SubscriptionId};
use bellwire_core::subscription::SubscriptionState;
use bellwire_vault::Vault;

/// Maximum replacements that are followed. The alias of a longer chain leads nowhere.
const STEPS_MAX: usize = 100;

/// Columns of a subscription that decide where its id leads.
#[derive(Clone)]
struct Link {
    id: SubscriptionId,
    next: Option<SubscriptionId>,
    endpoint_mac: Vec<u8>,
    user_id: Option<String>,
}

impl Link {
    fn successor(&self, vault: &Vault) -> Option<SubscriptionId> {
        self.next.filter(|_| self.endpoint_mac != lost_endpoint_mac(vault, self.id, Lost::Taken))
    }

    fn may_lead_to(&self, next: &Link) -> bool {
        is_same_person(self.user_id.as_deref(), next.user_id.as_deref())
    }
}

/// Whether a message to a subscription with user `before` may reach a successor with user `after`. A successor without a user
/// may get it.
fn is_same_person(before: Option<&str>, after: Option<&str>) -> bool {
    before.is_none() || before == after
}

async fn links(conn: &mut PgConnection, app: AppId, ids: &[SubscriptionId]) -> sqlx::Result<Vec<Link>> {
    fetch_all!(
        conn,
        Link,
        r#"SELECT s.id, CASE WHEN s.state = 'replaced' THEN s.replaced_by END AS "next: SubscriptionId", s.endpoint_mac, s.user_id
           FROM unnest($2::smallint[], $3::uuid[]) AS t (shard, id) JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id
           WHERE s.app = $1 AND s.shard = ANY ($4)"#,
        (app.0, &shard_column(ids), ids as &[SubscriptionId], &shards_of(ids))
    )
}

/// Resolves the ids of replaced subscriptions to their successors, or to `None` if the alias leads nowhere. Ids of other
/// subscriptions are omitted.
pub async fn resolve(
    conn: &mut PgConnection, vault: &Vault, app: AppId, ids: &[SubscriptionId],
) -> sqlx::Result<HashMap<SubscriptionId, Option<SubscriptionId>>> {
    let mut resolved = HashMap::new();
    let given = links(conn, app, ids).await?.into_iter().filter(|link| link.next.is_some());
    let mut open: Vec<(SubscriptionId, Link)> = given.map(|link| (link.id, link)).collect();
    for _ in 0..STEPS_MAX {
        resolved.extend(open.iter().map(|(id, _)| (*id, None)));
        open.retain(|(_, link)| link.successor(vault).is_some());
        if open.is_empty() {
            break;
        }
        let next: HashSet<SubscriptionId> = open.iter().filter_map(|(_, link)| link.next).collect();
        let next: Vec<SubscriptionId> = next.into_iter().collect();
        let found: HashMap<SubscriptionId, Link> =
            links(conn, app, &next).await?.into_iter().map(|link| (link.id, link)).collect();
        let mut further = Vec::new();
        for (id, link) in open {
            let Some(next) = link.next.and_then(|next| found.get(&next)).filter(|next| link.may_lead_to(next)) else {
                continue;
            };
            match next.next {
                Some(_) => further.push((id, next.clone())),
                None => {
                    resolved.insert(id, Some(next.id));
                }
            }
        }
        open = further;
    }
    Ok(resolved)
}

/// Returns the successor of a replaced subscription. `None`: not replaced, or the alias leads nowhere.
pub async fn successor(
    pool: &PgPool, vault: &Vault, app: AppId, id: SubscriptionId,
) -> sqlx::Result<Option<SubscriptionId>> {
    Ok(resolve(&mut *pool.acquire().await?, vault, app, &[id]).await?.remove(&id).flatten())
}

/// Locks the subscription that an id leads to, and those in between. The caller needs the right to the first one. A browser
/// also needs the same user as the last one. If the alias leads nowhere, the last subscription of the chain is locked. `None`:
/// the subscription does not exist, or the caller has no right to it.
pub async fn lock_current(
    conn: &mut PgConnection, vault: &Vault, app: AppId, id: SubscriptionId, right: Right<'_>,
) -> sqlx::Result<Option<SubscriptionRow>> {
    let Some(mut row) = lock(conn, app, id).await?.filter(|row| right.covers(vault, row)) else { return Ok(None) };
    for _ in 0..STEPS_MAX {
        if row.state != SubscriptionState::Replaced {
            break;
        }
        let link = links(conn, app, &[row.id]).await?.pop();
        let Some(next) = link.and_then(|link| link.successor(vault)) else { break };
        let may_follow = |next: &SubscriptionRow| match right {
            Right::Server | Right::User(_) => is_same_person(row.user_id.as_deref(), next.user_id.as_deref()),
            Right::Browser(_) => row.user_id == next.user_id,
        };
        let Some(next) = lock(conn, app, next).await?.filter(may_follow) else { break };
        row = next;
    }
    Ok(Some(row))
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/aliases.rs"]
mod tests;
