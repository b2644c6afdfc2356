//! Subscriptions: reading, changing and ending them. How they come about is in [`crate::store::audience::registration`].

use serde_json::{Map, Value};
use sqlx::{PgConnection, PgPool};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use crate::model::clock::Timestamp;
use crate::model::id::{AppId, SubscriptionId};
use crate::model::permission::{BrowserRight, Refused, Speaker};
use crate::model::subscription::SubscriptionState;
use crate::store::audience::membership::{leave_all, leave_closed, names_of, set_topics};
use crate::store::operations::retrying::retrying;
use crate::store::outcomes::tally::Tally;
use crate::store::queue::stops::{Stop, StopKind, stop_subscription};
use crate::store::queue::unsent::{cancel_previous_users, log_cancelled};
use crate::vault::{Purpose, Vault};

/// Most octets of a subscription's attributes, as JSON.
pub(crate) const ATTRIBUTES_MAX: usize = 2048;

/// A row of `subscriptions` with its lane's key and gateway. The address stays sealed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SubscriptionRow {
    /// Its id.
    pub id: Uuid,
    /// Its lane.
    pub lane: i32,
    /// The VAPID key that it was made with.
    pub vapid_key: Uuid,
    /// The push service behind its endpoint.
    pub gateway: String,
    /// Whether it is sent to, or how it ended.
    pub state: SubscriptionState,
    /// Messages accepted before are not for it.
    pub since: Timestamp,
    /// HMAC of (app, endpoint).
    pub endpoint_mac: Vec<u8>,
    /// Sealed p256dh, auth and endpoint.
    pub address: Vec<u8>,
    /// The site's name for its person.
    pub user_id: Option<String>,
    /// Words to select it by.
    pub tags: Vec<String>,
    /// Values to select it by and to fill templates with.
    pub attributes: Value,
    /// A language tag.
    pub locale: Option<String>,
    /// An IANA time zone.
    pub timezone: Option<String>,
    /// The browser's `expirationTime`.
    pub expires_at: Option<Timestamp>,
    /// Which of its tokens is valid.
    pub token_version: i32,
    /// When a receipt first showed that its keys are its browser's.
    pub keys_proven_at: Option<Timestamp>,
    /// When its browser was last heard of, by day.
    pub last_seen: Timestamp,
    /// When it was first registered.
    pub created_at: Timestamp,
    /// When it stopped being active.
    pub ended_at: Option<Timestamp>,
}

impl SubscriptionRow {
    /// Its typed id.
    pub(crate) fn typed_id(&self) -> SubscriptionId {
        SubscriptionId(self.id)
    }
}

/// The browser's own right to a subscription: derived, never stored. Raising the version revokes it.
pub(crate) fn token(vault: &Vault, id: Uuid, version: i32) -> [u8; 32] {
    vault.mac(Purpose::BrowserToken, &[id.as_bytes(), &version.to_be_bytes()])
}

/// By what right somebody acts on a subscription.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Right<'a> {
    /// A server key with the scope `subscribers`.
    Server,
    /// A browser, with the token that it shows, if any.
    Browser(Option<&'a [u8; 32]>),
}

impl Right<'_> {
    /// Whether that right covers this subscription.
    pub(crate) fn covers(self, vault: &Vault, row: &SubscriptionRow) -> bool {
        match self {
            Right::Server => true,
            Right::Browser(shown) => {
                shown.is_some_and(|shown| shown.ct_eq(&token(vault, row.id, row.token_version)).into())
            }
        }
    }
}

/// What is wanted of a subscription's details. None leaves a thing as it is.
#[derive(Debug, Clone)]
pub(crate) struct Changes {
    /// By whom: what it may not say is left out.
    pub by: Speaker,
    /// The user it belongs to; inner none: nobody.
    pub user_id: Option<Option<String>>,
    /// All tags.
    pub tags: Option<Vec<String>>,
    /// Attributes, and whether they are merged into those there are (RFC 7396) or replace them.
    pub attributes: Option<(Map<String, Value>, Merge)>,
    /// All topics, by name.
    pub topics: Option<Vec<String>>,
    /// A language tag.
    pub locale: Option<Option<String>>,
    /// An IANA time zone.
    pub timezone: Option<Option<String>>,
}

/// What happens to attributes that are not named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// They stay; null removes a named one.
    Patch,
    /// They go.
    Replace,
}

impl Changes {
    /// Whether a browser says that it has another user now than the one that it had. Servers know what they say of whom.
    pub(in crate::store) fn changes_user(&self, before: &SubscriptionRow) -> bool {
        let says_another = self.user_id.as_ref().is_some_and(|user| *user != before.user_id);
        before.user_id.is_some() && says_another && self.by != Speaker::Server
    }

    /// Changes a row's details in memory, as far as whoever wants it may. False: its attributes would grow beyond
    /// [`ATTRIBUTES_MAX`].
    pub(in crate::store) fn apply(&self, row: &mut SubscriptionRow) -> bool {
        fn set<T: Clone>(place: &mut T, wanted: &Option<T>) {
            if let Some(value) = wanted {
                place.clone_from(value);
            }
        }
        set(&mut row.user_id, &self.user_id);
        set(&mut row.locale, &self.locale);
        set(&mut row.timezone, &self.timezone);
        if self.by.may(BrowserRight::SetTags) {
            set(&mut row.tags, &self.tags);
        }
        if self.attributes.is_none() || !self.by.may(BrowserRight::SetAttributes) {
            return true;
        }
        row.attributes = self.attributes_from(&row.attributes);
        row.attributes.to_string().len() <= ATTRIBUTES_MAX
    }

    /// The attributes that are wanted where these are now.
    fn attributes_from(&self, there: &Value) -> Value {
        let Some((named, merge)) = &self.attributes else { return there.clone() };
        let mut attributes = match there {
            Value::Object(there) if *merge == Merge::Patch => there.clone(),
            _ => Map::new(),
        };
        for (name, value) in named {
            match value {
                Value::Null => attributes.remove(name),
                value => attributes.insert(name.clone(), value.clone()),
            };
        }
        Value::Object(attributes)
    }

    /// What [`apply`](Self::apply) left out of a row. What holds without it, say because a server set the same, was not.
    pub(in crate::store) fn left_out(&self, row: &SubscriptionRow) -> Vec<Refused> {
        let tags = self.tags.as_ref().is_some_and(|tags| *tags != row.tags).then_some(Refused::Tags);
        let attributes = (self.attributes_from(&row.attributes) != row.attributes).then_some(Refused::Attributes);
        tags.into_iter().chain(attributes).collect()
    }
}

/// Reads a subscription, and locks it until the transaction ends.
pub(in crate::store) async fn lock(
    conn: &mut PgConnection,
    app: AppId,
    id: SubscriptionId,
) -> Result<Option<SubscriptionRow>, sqlx::Error> {
    sqlx::query_as!(
        SubscriptionRow,
        r#"SELECT s.id, s.lane, l.vapid_key, l.gateway, s.state AS "state: SubscriptionState", s.since, s.endpoint_mac, s.address, s.user_id, s.tags,
           s.attributes, s.locale, s.timezone, s.expires_at, s.token_version, s.keys_proven_at, s.last_seen, s.created_at, s.ended_at
         FROM subscriptions s JOIN lanes l ON l.id = s.lane WHERE s.shard = $1 AND s.id = $2 AND s.app = $3
         FOR NO KEY UPDATE OF s"#,
        id.shard(),
        id.0,
        app.0
    )
    .fetch_optional(conn)
    .await
}

/// Locks subscriptions in the order that everybody locks them in: two that replace each other, say, would wait for each
/// other otherwise. Those that do not exist are left out.
pub(in crate::store) async fn lock_in_order(
    conn: &mut PgConnection,
    ids: impl Iterator<Item = SubscriptionId>,
) -> Result<(), sqlx::Error> {
    let (shards, ids): (Vec<i16>, Vec<Uuid>) = ids.map(|id| (id.shard(), id.0)).unzip();
    sqlx::query!(
        "SELECT id FROM subscriptions WHERE (shard, id) IN (SELECT * FROM unnest($1::smallint[], $2::uuid[]))
         ORDER BY shard, id FOR NO KEY UPDATE",
        &shards,
        &ids
    )
    .fetch_all(conn)
    .await?;
    Ok(())
}

/// A subscription and its topics: the list's query, asked for the first row from this id down.
pub(crate) async fn find(
    pool: &PgPool,
    app: AppId,
    id: SubscriptionId,
) -> Result<Option<(SubscriptionRow, Vec<String>)>, sqlx::Error> {
    let above = Uuid::from_u128(id.0.as_u128().saturating_add(1));
    let first = list(pool, app, &Filter::default(), above, 1).await?.pop();
    Ok(first.filter(|(row, _)| row.id == id.0))
}

/// What a list of subscriptions is narrowed to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    /// Only those of this user.
    pub user_id: Option<String>,
    /// The topic they are in.
    pub topic: Option<String>,
    /// A tag they carry.
    pub tag: Option<String>,
    /// Their state.
    pub state: Option<SubscriptionState>,
    /// Their push service.
    pub gateway: Option<String>,
}

/// An app's subscriptions with ids below `before`, the newest first, with their topics.
pub(crate) async fn list(
    pool: &PgPool,
    app: AppId,
    filter: &Filter,
    before: Uuid,
    limit: i64,
) -> Result<Vec<(SubscriptionRow, Vec<String>)>, sqlx::Error> {
    let rows = sqlx::query_as!(
        SubscriptionRow,
        r#"SELECT s.id, s.lane, l.vapid_key, l.gateway, s.state AS "state: SubscriptionState", s.since, s.endpoint_mac, s.address, s.user_id, s.tags,
           s.attributes, s.locale, s.timezone, s.expires_at, s.token_version, s.keys_proven_at, s.last_seen, s.created_at, s.ended_at
         FROM subscriptions s JOIN lanes l ON l.id = s.lane
         WHERE s.app = $1 AND s.id < $2 AND ($3::text IS NULL OR s.user_id = $3) AND ($4::text IS NULL OR s.state = $4)
           AND ($5::text IS NULL OR $5 = ANY (s.tags)) AND ($6::text IS NULL OR l.gateway = $6)
           AND ($7::text IS NULL OR EXISTS (SELECT 1 FROM topic_members m JOIN topics t ON t.id = m.topic
             WHERE m.shard = s.shard AND m.subscription = s.id AND t.app = $1 AND t.name = $7))
         ORDER BY s.id DESC LIMIT $8"#,
        app.0,
        before,
        filter.user_id,
        filter.state.map(SubscriptionState::name),
        filter.tag,
        filter.gateway,
        filter.topic,
        limit
    )
    .fetch_all(pool)
    .await?;
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let joined = sqlx::query!(
        "SELECT m.subscription, t.name FROM topic_members m JOIN topics t ON t.id = m.topic
         WHERE (m.shard, m.subscription) IN (SELECT * FROM unnest($1::smallint[], $2::uuid[])) ORDER BY t.name",
        &rows.iter().map(|row| row.typed_id().shard()).collect::<Vec<_>>(),
        &ids
    )
    .fetch_all(pool)
    .await?;
    let names_of = |id| joined.iter().filter(|m| m.subscription == id).map(|m| m.name.clone()).collect();
    Ok(rows.into_iter().map(|row| (names_of(row.id), row)).map(|(names, row)| (row, names)).collect())
}

/// What became of a change.
#[derive(Debug)]
pub(crate) enum Changed {
    /// It is made: the row, its topics, and what was left out.
    Done(Box<SubscriptionRow>, Vec<String>, Vec<Refused>),
    /// There is no such subscription, or not for whoever asks.
    Unknown,
    /// It has ended.
    Ended,
    /// The app would have too many topics.
    TooManyTopics,
    /// The attributes would be too large.
    TooLarge,
}

/// Changes a subscription's details.
pub(crate) async fn change(
    pool: &PgPool,
    vault: &Vault,
    app: AppId,
    id: SubscriptionId,
    right: Right<'_>,
    wanted: &Changes,
    now: Timestamp,
) -> Result<Changed, sqlx::Error> {
    retrying(|| async move {
        let mut tx = pool.begin().await?;
        let Some(before) = lock(&mut tx, app, id).await?.filter(|row| right.covers(vault, row)) else {
            return Ok(Changed::Unknown);
        };
        if !before.state.lives() {
            return Ok(Changed::Ended);
        }
        let mut row = before.clone();
        if wanted.changes_user(&before) {
            forget_what_servers_said(&mut tx, &mut row).await?;
        }
        if !wanted.apply(&mut row) {
            return Ok(Changed::TooLarge);
        }
        write_details(&mut tx, &before, &mut row, now).await?;
        let Some(refused) = set_topics(&mut tx, app, &row, wanted, now).await? else {
            return Ok(Changed::TooManyTopics);
        };
        let names = names_of(&mut tx, id).await?;
        tx.commit().await?;
        Ok(Changed::Done(Box::new(row), names, refused))
    })
    .await
}

/// Takes out of a locked row what servers said of the user whom a browser says it has no more: the next one is somebody else.
pub(in crate::store) async fn forget_what_servers_said(
    conn: &mut PgConnection,
    row: &mut SubscriptionRow,
) -> Result<(), sqlx::Error> {
    row.tags.clear();
    row.attributes = Value::Object(Map::new());
    leave_closed(conn, row.typed_id()).await
}

/// Writes everything of a locked row that may change while it lives, or as it comes back to life. With another user or
/// other keys its token becomes another one too: whoever has the one before had the browser before. With other keys it is
/// open again whether they are right. What was addressed to a user who leaves is not sent any more.
pub(in crate::store) async fn write_details(
    conn: &mut PgConnection,
    before: &SubscriptionRow,
    row: &mut SubscriptionRow,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let (other_user, other_keys) = (before.user_id != row.user_id, before.address != row.address);
    if other_user || other_keys {
        row.token_version = before.token_version + 1;
    }
    if other_keys {
        row.keys_proven_at = None;
    }
    let shard = row.typed_id().shard();
    sqlx::query!(
        "UPDATE subscriptions SET state = $3, since = $4, address = $5, user_id = $6, tags = $7, attributes = $8,
           locale = $9, timezone = $10, expires_at = $11, last_seen = $12, ended_at = $13, token_version = $14,
           keys_proven_at = $15, keys_since = CASE WHEN $16 THEN $17 ELSE keys_since END WHERE shard = $1 AND id = $2",
        shard,
        row.id,
        row.state.name(),
        row.since,
        row.address,
        row.user_id,
        &row.tags,
        row.attributes,
        row.locale,
        row.timezone,
        row.expires_at,
        row.last_seen,
        row.ended_at,
        row.token_version,
        row.keys_proven_at,
        other_keys,
        now
    )
    .execute(&mut *conn)
    .await?;
    if other_user && before.user_id.is_some() {
        cancel_previous_users(conn, shard, row.id, now).await?;
    }
    Ok(())
}

/// Ends a subscription: nothing waits for it any more, and all workers are told. None: there is no such subscription,
/// or not for whoever asks. Done again, it only tells the workers again.
pub(crate) async fn unsubscribe(
    pool: &PgPool,
    vault: &Vault,
    app: AppId,
    id: SubscriptionId,
    right: Right<'_>,
    now: Timestamp,
) -> Result<Option<Stop>, sqlx::Error> {
    retrying(|| async move {
        let mut tx = pool.begin().await?;
        let Some(row) = lock(&mut tx, app, id).await?.filter(|row| right.covers(vault, row)) else {
            return Ok(None);
        };
        let mut tally = Tally::default();
        let stop = end(&mut tx, &row, &mut tally, now).await?;
        tally.write(&mut tx, now).await?;
        tx.commit().await?;
        Ok(Some(stop))
    })
    .await
}

/// Ends a locked subscription and whatever waits for it, but for the tally, which comes last in the transaction.
pub(in crate::store) async fn end(
    conn: &mut PgConnection,
    row: &SubscriptionRow,
    tally: &mut Tally,
    now: Timestamp,
) -> Result<Stop, sqlx::Error> {
    let shard = row.typed_id().shard();
    sqlx::query!(
        "UPDATE subscriptions SET state = 'unsubscribed', ended_at = coalesce(ended_at, $3)
         WHERE shard = $1 AND id = $2 AND state IN ('active', 'suspended')",
        shard,
        row.id,
        now
    )
    .execute(&mut *conn)
    .await?;
    leave_all(conn, row.typed_id()).await?;
    let stop = stop_subscription(conn, StopKind::Unsubscribe, row.typed_id(), now).await?;
    log_cancelled(conn, shard, row.id, "unsubscribed", tally, now).await?;
    Ok(stop)
}
