//! Reads, changes and ends subscriptions. [`crate::audience::registration`] creates them.

pub(crate) mod row;

use std::slice;

use serde_json::{Map, Value};
use sqlx::{PgConnection, PgPool};

use crate::audience::membership::{leave_all, leave_closed, names_of, names_of_all, set_topics};
use crate::audience::{aliases, assignments, audience_counts, topics, user_shards};
use crate::keyset::{Keyset, paged};
use crate::operations::retrying::retrying;
use crate::outcomes::ledger::closing::Closing;
use crate::outcomes::ledger::unsent::{cancel_previous_users, cancel_subscription};
use crate::queue::stops::{Stop, StopKind, stop_subscription};
use crate::transactions::begin;
use crate::triggers::observing::observe_browser;
use bellwire_core::clock::Timestamp;
use bellwire_core::fact::Loss;
use bellwire_core::id::{AppId, SubscriptionId};
use bellwire_core::lane::Gateway;
use bellwire_core::permission::RefusedField;
use bellwire_core::subscription::{Consent, SubscriptionState};
use bellwire_rules::campaign::trigger::Cause;
use bellwire_vault::Vault;
pub use row::{ATTRIBUTES_MAX, Changes, Merge, Right, SubscriptionRow, is_signed, token};
use row::{lock, read_all};

pub async fn find(
    pool: &PgPool, app: AppId, id: SubscriptionId,
) -> Result<Option<(SubscriptionRow, Vec<String>)>, sqlx::Error> {
    Ok(of_ids(pool, app, &[id]).await?.pop())
}

/// Maximum subscriptions read for one page of a filtered list.
pub const LOOKED_AT_MAX: i64 = 20_000;

#[derive(Debug, Clone, Default)]
pub struct SubscriptionFilter {
    pub user_id: Option<String>,
    pub topic: Option<String>,
    pub tag: Option<String>,
    pub state: Option<SubscriptionState>,
    pub gateway: Option<Gateway>,
}

impl SubscriptionFilter {
    /// Whether the filter accepts all subscriptions that its index finds.
    pub fn takes_all(&self) -> bool {
        let Self { user_id: _, topic, tag, state, gateway } = self;
        topic.is_none() && tag.is_none() && state.is_none() && gateway.is_none()
    }
}

#[derive(Debug)]
pub struct SubscriptionPage {
    pub rows: Vec<(SubscriptionRow, Vec<String>)>,
    /// Last id that was read. `None`: the list ended.
    pub looked_to: Option<SubscriptionId>,
}

/// Topic number for no filter or an unknown topic. Null is not possible: Citus plans no outer join that cannot match.
const ANY_TOPIC: i32 = 0;
const NO_TOPIC: i32 = -1;

/// Returns an app's subscriptions beyond the page's key with their topics, the nearest ids first. Reads at most
/// [`LOOKED_AT_MAX`].
pub async fn list(
    pool: &PgPool, app: AppId, filter: &SubscriptionFilter, page: Keyset,
) -> Result<SubscriptionPage, sqlx::Error> {
    let topic = match &filter.topic {
        Some(name) => topics::find(&mut *pool.acquire().await?, app, name).await?.unwrap_or(NO_TOPIC),
        None => ANY_TOPIC,
    };
    let shards = user_shards::of(pool, app, filter.user_id.as_ref().map(slice::from_ref)).await?;
    let rows = paged!(pool, page, SubscriptionRow,
        [r#"SELECT s.id, s.lane, l.vapid_key, l.gateway AS "gateway: Gateway", s.state AS "state: SubscriptionState", s.since, s.endpoint_mac, s.address, s.user_id, s.tags,
           s.attributes, s.locale, s.timezone, s.expires_at, s.token_version, s.keys_proven_at, s.keys_vouched, s.last_seen, s.created_at, s.ended_at, s.consent_at, s.consent_source, s.muted_until
         FROM (SELECT s.*, m.topic FROM subscriptions s
               LEFT JOIN topic_members m ON m.shard = s.shard AND m.subscription = s.id AND m.topic = $7
               WHERE s.app = $1 AND s.id"# < "$2 AND ($3::text IS NULL OR s.user_id = $3)
                 AND ($10::smallint[] IS NULL OR s.shard = ANY ($10))
               ORDER BY s.id" DESC "LIMIT $9) s JOIN lanes l ON l.id = s.lane
         WHERE ($4::text IS NULL OR s.state = $4) AND ($5::text IS NULL OR $5 = ANY (s.tags)) AND ($6::text IS NULL OR l.gateway = $6)
           AND ($7 = 0 OR s.topic IS NOT NULL)
         ORDER BY s.id" DESC "LIMIT $8"],
        (app.0, page.beyond, filter.user_id, filter.state.map(SubscriptionState::name), filter.tag),
        (filter.gateway.map(Gateway::name), topic, page.limit, LOOKED_AT_MAX, shards.as_deref())
    )?;
    let looked_to = match filter.takes_all() || rows.len() as i64 >= page.limit {
        true => None,
        false => end_of_look(pool, app, filter, shards.as_deref(), page).await?,
    };
    Ok(SubscriptionPage { rows: with_topics(pool, rows).await?, looked_to })
}

/// Returns an app's subscriptions with these ids and their topics, the newest first.
pub async fn of_ids(
    pool: &PgPool, app: AppId, ids: &[SubscriptionId],
) -> Result<Vec<(SubscriptionRow, Vec<String>)>, sqlx::Error> {
    let rows = read_all(pool, app, ids).await?;
    with_topics(pool, rows).await
}

async fn with_topics(
    pool: &PgPool, rows: Vec<SubscriptionRow>,
) -> Result<Vec<(SubscriptionRow, Vec<String>)>, sqlx::Error> {
    let ids: Vec<SubscriptionId> = rows.iter().map(|row| row.id).collect();
    let mut names = names_of_all(pool, &ids).await?;
    let with_names = |row: SubscriptionRow| {
        let names = names.remove(&row.id).unwrap_or_default();
        (row, names)
    };
    Ok(rows.into_iter().map(with_names).collect())
}

/// Returns the last subscription within the limit of a list's search. `None`: the search reaches the end.
async fn end_of_look(
    pool: &PgPool, app: AppId, filter: &SubscriptionFilter, shards: Option<&[i16]>, page: Keyset,
) -> sqlx::Result<Option<SubscriptionId>> {
    let end = paged!(pool, page, scalar,
            [r#"SELECT id AS "id: SubscriptionId" FROM subscriptions
           WHERE app = $1 AND id"# < "$2 AND ($3::text IS NULL OR user_id = $3)
             AND ($5::smallint[] IS NULL OR shard = ANY ($5)) ORDER BY id" DESC "OFFSET $4::bigint - 1 LIMIT 1"],
        (app.0, page.beyond, filter.user_id, LOOKED_AT_MAX, shards)
    )?;
    Ok(end.first().copied())
}

#[derive(Debug)]
pub enum Changed {
    /// The change was made: row, topics, and omitted values.
    Done(Box<SubscriptionRow>, Vec<String>, Vec<RefusedField>),
    /// The subscription does not exist, or the caller may not see it.
    Unknown,
    Ended,
    TooManyTopics,
    TooLarge,
}

pub async fn change(
    pool: &PgPool, vault: &Vault, app: AppId, id: SubscriptionId, right: Right<'_>, wanted: &Changes, now: Timestamp,
) -> Result<Changed, sqlx::Error> {
    retrying(|| async move {
        let mut tx = begin(pool).await?;
        let before = match right {
            Right::Server | Right::User(_) => aliases::lock_current(&mut tx, vault, app, id, right).await?,
            // The answer holds a token: that of a successor is not for the holder of an old one.
            Right::Browser(_) => lock(&mut tx, app, id).await?.filter(|row| right.covers(vault, row)),
        };
        let Some(before) = before else { return Ok(Changed::Unknown) };
        if !before.state.lives() {
            return Ok(Changed::Ended);
        }
        let mut row = SubscriptionRow { keys_vouched: true, ..before.clone() };
        if wanted.changes_user(&before) {
            forget_what_servers_said(&mut tx, &mut row).await?;
        }
        if !wanted.apply(&mut row) {
            return Ok(Changed::TooLarge);
        }
        write_details(&mut tx, app, &before, &mut row, now).await?;
        let Some(topics) = set_topics(&mut tx, app, &row, wanted, now).await? else {
            return Ok(Changed::TooManyTopics);
        };
        let causes = topics.joined.into_iter().map(Cause::Joined).collect();
        observe_browser(&mut tx, app, &row, causes, now).await?;
        let refused = topics.refused;
        let names = names_of(&mut tx, row.id).await?;
        tx.commit().await?;
        Ok(Changed::Done(Box::new(row), names, refused))
    })
    .await
}

/// Deletes values that servers set about a former user of a locked row, and the consent, because the next user is another
/// person.
pub(crate) async fn forget_what_servers_said(
    conn: &mut PgConnection, row: &mut SubscriptionRow,
) -> Result<(), sqlx::Error> {
    row.tags.clear();
    row.attributes = Value::Object(Map::new());
    row.set_consent(Consent::default());
    row.muted_until = None;
    leave_closed(conn, row.id).await
}

/// Writes all changeable values of a locked row. A change of user revokes the token, which the previous user may have stored,
/// and cancels deliveries to the previous user.
pub(crate) async fn write_details(
    conn: &mut PgConnection, app: AppId, before: &SubscriptionRow, row: &mut SubscriptionRow, now: Timestamp,
) -> Result<(), sqlx::Error> {
    let other_user = before.user_id != row.user_id;
    if other_user {
        row.token_version = before.token_version + 1;
    }
    let shard = row.id.shard();
    execute!(
        &mut *conn,
        "UPDATE subscriptions SET state = $3, since = $4, user_id = $5, tags = $6, attributes = $7, locale = $8,
           timezone = $9, expires_at = $10, last_seen = $11, ended_at = $12, token_version = $13, keys_vouched = $14,
           consent_at = $15, consent_source = $16, muted_until = $17
         WHERE shard = $1 AND id = $2",
        (shard, row.id.0, row.state.name(), row.since, row.user_id, &row.tags, row.attributes, row.locale),
        (row.timezone, row.expires_at, row.last_seen, row.ended_at, row.token_version, row.keys_vouched),
        (row.consent_at, row.consent_source, row.muted_until)
    )?;
    assignments::note(&mut *conn, app, before, row, now).await?;
    if before.state != SubscriptionState::Active && row.state == SubscriptionState::Active {
        let mut changes = audience_counts::Difference::default();
        changes.won(row.lane, row.since);
        changes.write(conn).await?;
    }
    // Also if that is known already, or should be.
    let noted = row.user_id.as_deref().map(|user| (row.id, user));
    user_shards::note(&mut *conn, app, noted.into_iter()).await?;
    if let Some(user) = before.user_id.as_deref().filter(|_| other_user) {
        user_shards::doubt(&mut *conn, app, std::iter::once((row.id, user)), now).await?;
        cancel_previous_users(conn, row.id, now).await?;
    }
    Ok(())
}

/// Ends a subscription and its waiting deliveries, and sends a stop to all workers. `None`: it does not exist, or the caller
/// may not end it. Repeating it only repeats the stop.
pub async fn unsubscribe(
    pool: &PgPool, vault: &Vault, app: AppId, id: SubscriptionId, right: Right<'_>, now: Timestamp,
) -> Result<Option<Stop>, sqlx::Error> {
    retrying(|| async move {
        let mut tx = begin(pool).await?;
        let Some(row) = aliases::lock_current(&mut tx, vault, app, id, right).await? else {
            return Ok(None);
        };
        let mut closing = Closing::default();
        let stop = end(&mut tx, &row, &mut closing, now).await?;
        closing.write(&mut tx, now).await?;
        tx.commit().await?;
        Ok(Some(stop))
    })
    .await
}

/// Ends a locked subscription and its waiting deliveries. The caller writes the stop and commits.
pub(crate) async fn end(
    conn: &mut PgConnection, row: &SubscriptionRow, closing: &mut Closing, now: Timestamp,
) -> Result<Stop, sqlx::Error> {
    let shard = row.id.shard();
    // A pruned one, too: no restore brings it back.
    execute!(
        &mut *conn,
        "UPDATE subscriptions SET state = 'unsubscribed', ended_at = coalesce(ended_at, $3)
         WHERE shard = $1 AND id = $2 AND state IN ('active', 'suspended', 'gone')",
        (shard, row.id.0, now)
    )?;
    if row.state == SubscriptionState::Active {
        let mut changes = audience_counts::Difference::default();
        changes.lost(row.lane, now, Loss::Unsubscribed);
        changes.write(conn).await?;
    }
    leave_all(conn, row.id).await?;
    let stop = stop_subscription(conn, StopKind::Unsubscribe, row.id, now).await?;
    cancel_subscription(conn, row.id, "unsubscribed", closing, now).await?;
    Ok(stop)
}
