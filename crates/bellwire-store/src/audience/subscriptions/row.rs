//! Row of a subscription, requested changes with the caller's permissions, and row locks.

use serde_json::{Map, Value};
use sqlx::{PgConnection, PgExecutor};
use subtle::ConstantTimeEq as _;

use crate::connections::engine::{self, shard_column};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, LaneId, SubscriptionId, VapidKeyId};
use bellwire_core::lane::Gateway;
use bellwire_core::permission::{BrowserRight, RefusedField, Speaker};
use bellwire_core::subscription::{Consent, SubscriptionState};
use bellwire_vault::{Purpose, Vault};

/// Maximum bytes of a subscription's attributes, as JSON.
pub const ATTRIBUTES_MAX: usize = 2048;

/// A row of `subscriptions` with its lane's key and push service. The address stays encrypted.
#[derive(Debug, Clone, PartialEq)]
pub struct SubscriptionRow {
    pub id: SubscriptionId,
    pub lane: LaneId,
    pub vapid_key: VapidKeyId,
    pub gateway: Gateway,
    pub state: SubscriptionState,
    /// Time from which accepted messages are for this subscription.
    pub since: Timestamp,
    pub endpoint_mac: Vec<u8>,
    pub address: Vec<u8>,
    pub user_id: Option<String>,
    pub tags: Vec<String>,
    /// Attributes, for selecting subscriptions and for templates.
    pub attributes: Value,
    pub locale: Option<String>,
    pub timezone: Option<String>,
    pub expires_at: Option<Timestamp>,
    pub token_version: i32,
    /// Time at which a receipt first confirmed its keys. `None`: not confirmed.
    pub keys_proven_at: Option<Timestamp>,
    /// Whether a user token, an API key, an import or the subscription's token vouched for the keys.
    pub keys_vouched: bool,
    /// Day of the browser's last contact.
    pub last_seen: Timestamp,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Time of the person's consent. `None`: unknown.
    pub consent_at: Option<Timestamp>,
    pub consent_source: Option<String>,
    /// Time until which only transactional messages are sent. `None`: all are sent.
    pub muted_until: Option<Timestamp>,
}

impl SubscriptionRow {
    pub fn consent(&self) -> Consent {
        Consent { at: self.consent_at, source: self.consent_source.clone() }
    }

    /// Replaces the consent in memory.
    pub(crate) fn set_consent(&mut self, consent: Consent) {
        (self.consent_at, self.consent_source) = (consent.at, consent.source);
    }
}

/// Returns a browser's token for its subscription. It is derived from id and version, and not stored. Raising the version
/// revokes it.
pub fn token(vault: &Vault, id: SubscriptionId, version: i32) -> [u8; 32] {
    vault.mac(Purpose::BrowserToken, &[id.0.as_bytes(), &version.to_be_bytes()])
}

/// Maximum versions for which [`is_signed`] recognises a token.
const VERSIONS_LOOKED_AT: i32 = 32;

/// Whether this server signed the token for this subscription, revoked or not. It needs no query, so guesses are cheap. After
/// more than 31 changes of user, tokens are not recognised.
pub fn is_signed(vault: &Vault, id: SubscriptionId, shown: &[u8; 32]) -> bool {
    (1..=VERSIONS_LOOKED_AT).any(|version| shown.ct_eq(&token(vault, id, version)).into())
}

#[derive(Debug, Clone, Copy)]
pub enum Right<'a> {
    Server,
    /// Holder of a link to the preferences of this user.
    User(&'a str),
    /// A browser, with the token in the request if any.
    Browser(Option<&'a [u8; 32]>),
}

impl Right<'_> {
    pub fn covers(self, vault: &Vault, row: &SubscriptionRow) -> bool {
        match self {
            Right::Server => true,
            Right::User(user) => row.user_id.as_deref() == Some(user),
            Right::Browser(shown) => {
                shown.is_some_and(|shown| shown.ct_eq(&token(vault, row.id, row.token_version)).into())
            }
        }
    }
}

/// Requested changes of a subscription. `None` leaves a value unchanged.
#[derive(Debug, Clone)]
pub struct Changes {
    /// Caller. Values that it may not set are omitted.
    pub by: Speaker,
    /// User of the subscription. Inner `None`: no user.
    pub user_id: Option<Option<String>>,
    pub tags: Option<Vec<String>>,
    /// Attributes, and whether they are merged (RFC 7396) or replace all.
    pub attributes: Option<(Map<String, Value>, Merge)>,
    /// Names of all topics.
    pub topics: Option<Vec<String>>,
    pub locale: Option<Option<String>>,
    pub timezone: Option<Option<String>>,
    /// End of the time with only transactional messages. Inner `None`: all messages are sent.
    pub muted_until: Option<Option<Timestamp>>,
}

/// Treatment of attributes that the request does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// They stay. Null removes a named attribute.
    Patch,
    Replace,
}

impl Changes {
    /// Whether a browser states another user than the stored one. Servers are trusted to change users.
    pub(crate) fn changes_user(&self, before: &SubscriptionRow) -> bool {
        let says_another = self.user_id.as_ref().is_some_and(|user| *user != before.user_id);
        before.user_id.is_some() && says_another && self.by != Speaker::Server
    }

    /// Applies the changes to a row in memory, as far as the caller may. Returns `false` if its attributes would exceed
    /// [`ATTRIBUTES_MAX`].
    pub(crate) fn apply(&self, row: &mut SubscriptionRow) -> bool {
        fn set<T: Clone>(place: &mut T, wanted: &Option<T>) {
            if let Some(value) = wanted {
                place.clone_from(value);
            }
        }
        set(&mut row.user_id, &self.user_id);
        set(&mut row.locale, &self.locale);
        set(&mut row.timezone, &self.timezone);
        set(&mut row.muted_until, &self.muted_until);
        if self.by.may(BrowserRight::SetTags) {
            set(&mut row.tags, &self.tags);
        }
        if self.attributes.is_none() || !self.by.may(BrowserRight::SetAttributes) {
            return true;
        }
        row.attributes = self.attributes_from(&row.attributes);
        row.attributes.to_string().len() <= ATTRIBUTES_MAX
    }

    /// Returns the attributes after the change. `there` are the current ones.
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

    /// Returns the values that [`apply`](Self::apply) omitted, except those that the row already has.
    pub(crate) fn left_out(&self, row: &SubscriptionRow) -> Vec<RefusedField> {
        let tags = self.tags.as_ref().is_some_and(|tags| *tags != row.tags).then_some(RefusedField::Tags);
        let attributes = (self.attributes_from(&row.attributes) != row.attributes).then_some(RefusedField::Attributes);
        tags.into_iter().chain(attributes).collect()
    }
}

/// Returns an app's subscriptions with these ids, the newest first.
pub(crate) async fn read_all(
    executor: impl PgExecutor<'_>, app: AppId, ids: &[SubscriptionId],
) -> Result<Vec<SubscriptionRow>, sqlx::Error> {
    fetch_all!(
        executor,
        SubscriptionRow,
        r#"SELECT s.id, s.lane, l.vapid_key, l.gateway AS "gateway: Gateway", s.state AS "state: SubscriptionState", s.since, s.endpoint_mac, s.address, s.user_id, s.tags,
           s.attributes, s.locale, s.timezone, s.expires_at, s.token_version, s.keys_proven_at, s.keys_vouched, s.last_seen, s.created_at, s.ended_at, s.consent_at, s.consent_source, s.muted_until
         FROM unnest($2::smallint[], $3::uuid[]) AS t (shard, id)
         JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id JOIN lanes l ON l.id = s.lane
         WHERE s.app = $1 AND s.shard = ANY ($4) ORDER BY s.id DESC"#,
        (app.0, &shard_column(ids), ids as &[SubscriptionId], &engine::shards_of(ids))
    )
}

/// Reads a subscription, and locks it until the transaction ends.
pub(crate) async fn lock(
    conn: &mut PgConnection, app: AppId, id: SubscriptionId,
) -> Result<Option<SubscriptionRow>, sqlx::Error> {
    if engine::is_distributed() {
        // Citus locks rows of nothing but the one table.
        lock_in_order(conn, std::iter::once(id)).await?;
        return Ok(read_all(conn, app, &[id]).await?.pop());
    }
    fetch_optional!(
        conn,
        SubscriptionRow,
        r#"SELECT s.id, s.lane, l.vapid_key, l.gateway AS "gateway: Gateway", s.state AS "state: SubscriptionState", s.since, s.endpoint_mac, s.address, s.user_id, s.tags,
           s.attributes, s.locale, s.timezone, s.expires_at, s.token_version, s.keys_proven_at, s.keys_vouched, s.last_seen, s.created_at, s.ended_at, s.consent_at, s.consent_source, s.muted_until
         FROM subscriptions s JOIN lanes l ON l.id = s.lane WHERE s.shard = $1 AND s.id = $2 AND s.app = $3
         FOR NO KEY UPDATE OF s"#,
        (id.shard(), id.0, app.0)
    )
}

/// Locks subscriptions in the common order, because two that replace each other would otherwise deadlock. Missing ones are
/// omitted.
pub(crate) async fn lock_in_order(
    conn: &mut PgConnection, ids: impl Iterator<Item = SubscriptionId>,
) -> Result<(), sqlx::Error> {
    let SubscriptionKeys { shards, ids } = SubscriptionKeys::of(ids.collect());
    if engine::is_distributed() {
        // Citus locks rows in one shard at a time.
        for of_shard in ids.chunk_by(|a, b| a.shard() == b.shard()) {
            fetch_all!(
                &mut *conn,
                "SELECT id FROM subscriptions WHERE shard = $1 AND id = ANY ($2) ORDER BY id FOR NO KEY UPDATE",
                (of_shard[0].shard(), of_shard as &[SubscriptionId])
            )?;
        }
        return Ok(());
    }
    fetch_all!(
        conn,
        "SELECT id FROM subscriptions WHERE (shard, id) IN (SELECT * FROM unnest($1::smallint[], $2::uuid[]))
         ORDER BY shard, id FOR NO KEY UPDATE",
        (&shards, &ids as &[SubscriptionId])
    )?;
    Ok(())
}

/// Keys of subscriptions as parameters of a statement, in the common lock order.
pub(crate) struct SubscriptionKeys {
    pub shards: Vec<i16>,
    pub ids: Vec<SubscriptionId>,
}

impl SubscriptionKeys {
    pub(crate) fn of(mut ids: Vec<SubscriptionId>) -> Self {
        ids.sort_unstable_by_key(|id| (id.shard(), *id));
        Self { shards: ids.iter().map(|id| id.shard()).collect(), ids }
    }
}

/// Returns the subscriptions that a user has left, with the time.
pub(crate) async fn left_by_users(
    conn: &mut PgConnection, keys: &SubscriptionKeys,
) -> sqlx::Result<(Vec<SubscriptionId>, Vec<Timestamp>)> {
    let left = fetch_all!(
        conn,
        r#"SELECT s.id AS "id: SubscriptionId", s.user_left_at AS "at!"
           FROM unnest($1::smallint[], $2::uuid[]) AS k (shard, id) JOIN subscriptions s ON s.shard = k.shard AND s.id = k.id
           WHERE s.user_left_at IS NOT NULL AND s.shard = ANY ($3)"#,
        (&keys.shards, &keys.ids as &[SubscriptionId], &engine::shards_of(&keys.ids))
    )?;
    Ok(left.into_iter().map(|row| (row.id, row.at)).unzip())
}
