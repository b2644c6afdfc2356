//! Registration of a subscription: a new one, a refresh, a return, or [a replacement](crate::audience::replacement). [`known`]
//! decides which requests may change a known one.

pub(crate) mod bulk;
mod citus;
mod consent;
mod insertion;
mod known;

use insertion::insert_all;
use known::{KeyRank, RegistrationVerdict, ReplacementCase};
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use crate::audience::lost_endpoint::{Lost, lost_endpoint_mac};
use crate::audience::replacement::{Heir, take_over};
use crate::audience::subscriptions::row::{Changes, Right, SubscriptionRow, lock, lock_in_order};
use crate::audience::subscriptions::{forget_what_servers_said, write_details};
use crate::keys::audit::{Actor, AuditAction, AuditEntry};
use crate::operations::retrying::retrying;
use crate::outcomes::ledger::closing::Closing;
use crate::outcomes::ledger::prune::prune;
use crate::outcomes::ledger::unsent::cancel_previous_users;
use crate::transactions;
use crate::triggers::observing::observe_browser;
use crate::{audience::membership, audience::user_shards, queue::lanes, queue::policies};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, LaneId, SubscriptionId, VapidKeyId};
use bellwire_core::lane::Gateway;
use bellwire_core::permission::{RefusedField, Speaker};
use bellwire_core::subscription::{BrowserKeys, Consent, Endpoint, SubscriptionState};
use bellwire_rules::campaign::trigger::Cause;
use bellwire_rules::policy::PolicyLevel;
use bellwire_vault::{ADDRESS, Purpose, Vault};

#[derive(Debug, Clone)]
pub struct Registration<'a> {
    /// New UUIDv7, the base of a new subscription's id.
    pub id: Uuid,
    pub app: AppId,
    pub endpoint: &'a Endpoint,
    pub keys: &'a BrowserKeys,
    pub gateway: Gateway,
    /// VAPID key that the browser subscribed with. For known subscriptions it matters only with `vapid_key_stated`.
    pub vapid_key: VapidKeyId,
    /// Whether the request named the VAPID key. Then a known subscription must have the same key.
    pub vapid_key_stated: bool,
    pub wanted: &'a Changes,
    /// `expirationTime` of the browser. `None`: none.
    pub expires_at: Option<Timestamp>,
    /// Credential for refreshing a known endpoint.
    pub right: Right<'a>,
    /// Subscription to replace, and the credential for it.
    pub replaces: Option<(SubscriptionId, Right<'a>)>,
    /// New delivery policy, and its author. `None`: unchanged.
    pub policy: Option<(&'a Value, Actor)>,
    /// Creation time on another server. Only for new subscriptions.
    pub created_at: Option<Timestamp>,
    /// Time and source of the person's consent. `None`: not in the request.
    pub consent: Option<&'a Consent>,
    /// Time at which the browser unsubscribed, from an imported file. A new subscription is then stored as unsubscribed, and a
    /// known one does not change.
    pub unsubscribed_at: Option<Timestamp>,
}

impl Registration<'_> {
    /// Whether the request vouches for its keys: by a credential for the subscription, or by proof of its user.
    fn vouches(&self, covered: bool) -> bool {
        covered || matches!(self.wanted.user_id, Some(Some(_)))
    }

    /// Whether the request has an API key or the subscription's token, also as the token of the replaced subscription.
    fn covers(&self, vault: &Vault, row: &SubscriptionRow) -> bool {
        let replaces = self.replaces.filter(|(id, _)| *id == row.id);
        self.right.covers(vault, row) || replaces.is_some_and(|(_, right)| right.covers(vault, row))
    }

    /// Returns the consent to store for a known subscription: see [`consent::decide`].
    fn consent(&self, kept: Consent, begins: bool, now: Timestamp) -> Consent {
        let by_server = self.wanted.by == Speaker::Server;
        consent::decide(consent::ConsentCase { kept, given: self.consent, by_server, begins }, now)
    }
}

#[derive(Debug)]
pub enum Registered {
    /// New subscription, its topics, and the omitted values.
    New(Box<SubscriptionRow>, Vec<String>, Vec<RefusedField>),
    Known(Box<SubscriptionRow>, Vec<String>, Vec<RefusedField>),
    /// The endpoint is stored with other keys, and the caller has no credential for it.
    Taken,
    /// The subscription of the endpoint belongs to a user, whom the request does not prove.
    BelongsToUser,
    /// The endpoint is stored under another VAPID key than the request names.
    OtherKey,
    /// The subscription to replace does not exist, or the caller may not replace it.
    ReplacesUnknown,
    TooManyTopics,
    TooLarge,
}

/// A subscription after its registration.
struct Stored {
    row: SubscriptionRow,
    new: bool,
    /// Whether its user has just subscribed: it is new, or had ended by a decision of the user or the browser.
    subscribes: bool,
}

enum Unregistered {
    Refused(Registered),
    Failed(sqlx::Error),
}

impl From<sqlx::Error> for Unregistered {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(error)
    }
}

/// Returns the shard of an endpoint: SHA-256(app, endpoint) mod 64.
pub fn shard_of(app: AppId, endpoint: &str) -> u8 {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    context.update(app.0.as_bytes());
    context.update(endpoint.as_bytes());
    context.finish().as_ref()[31] % bellwire_core::id::SHARDS
}

/// Returns the MAC under which the endpoint of a subscription is stored.
pub fn endpoint_mac(vault: &Vault, app: AppId, endpoint: &str) -> [u8; 32] {
    vault.mac(Purpose::Endpoint, &[app.0.as_bytes(), endpoint.as_bytes()])
}

/// Encodes the plaintext of `subscriptions.address`: p256dh (65 bytes), auth (16), endpoint.
pub fn address(keys: &BrowserKeys, endpoint: &Endpoint) -> Vec<u8> {
    [keys.p256dh.as_slice(), keys.auth.as_slice(), endpoint.expose().as_bytes()].concat()
}

/// Registers a subscription, with all changes that follow, in one transaction.
pub async fn register(
    pool: &PgPool, vault: &Vault, request: &Registration<'_>, now: Timestamp,
) -> Result<Registered, sqlx::Error> {
    retrying(|| async move {
        let mut tx = transactions::begin(pool).await?;
        match register_within(&mut tx, vault, request, now).await {
            Ok(registered) => tx.commit().await.map(|()| registered),
            Err(Unregistered::Refused(answer)) => Ok(answer),
            Err(Unregistered::Failed(error)) => Err(error),
        }
    })
    .await
}

async fn register_within(
    conn: &mut PgConnection, vault: &Vault, request: &Registration<'_>, now: Timestamp,
) -> Result<Registered, Unregistered> {
    let mac = endpoint_mac(vault, request.app, request.endpoint.expose());
    let shard = shard_of(request.app, request.endpoint.expose());
    let known = find_endpoint(conn, request.app, shard, &mac).await?;
    lock_in_order(conn, request.replaces.map(|(id, _)| id).into_iter().chain(known)).await?;
    let old = match request.replaces {
        None => None,
        Some((id, right)) => match lock(conn, request.app, id).await? {
            Some(old) if right.covers(vault, &old) => Some(old),
            _ => return Err(Unregistered::Refused(Registered::ReplacesUnknown)),
        },
    };
    let mut old = old.filter(|old| old.endpoint_mac != mac && old.state.has_heirs());
    if let Some(old) = old.as_mut().filter(|old| request.wanted.changes_user(old)) {
        forget_what_servers_said(conn, old).await?;
    }
    let Stored { row, new, subscribes } = match known {
        Some(id) => refresh_known(conn, vault, request, (id, &mac), now).await?,
        None => match insert(conn, vault, request, &mac, shard, old.as_ref(), now).await? {
            Some(row) => Stored { row, new: true, subscribes: true },
            // Another request registered it since we looked. Its transaction has ended: now it can be seen. Erased in the
            // same instant, it is a 500, and a retry helps.
            None => {
                let known = find_endpoint(conn, request.app, shard, &mac).await?.ok_or(sqlx::Error::RowNotFound)?;
                refresh_known(conn, vault, request, (known, &mac), now).await?
            }
        },
    };
    if let Some(old) = &old {
        // Deliveries addressed to a user are not handed on to a subscription of another user.
        if old.user_id.is_some() && old.user_id != row.user_id {
            cancel_previous_users(conn, old.id, now).await?;
        }
        take_over(conn, vault, request.app, old, Heir { row: &row, is_known: !new }, now).await?;
    }
    let Some(topics) = membership::set_topics(conn, request.app, &row, request.wanted, now).await? else {
        return Err(Unregistered::Refused(Registered::TooManyTopics));
    };
    let refused = topics.refused;
    if let Some((policy, by)) = request.policy {
        policies::set_subscription(&mut *conn, request.app, row.id, Some(policy)).await?;
        let target = format!("{}:{}", PolicyLevel::Subscription.name(), row.id);
        AuditEntry::new(by, Some(request.app), AuditAction::PolicySet, target).record(conn, 1, now).await?;
    }
    let names = membership::names_of(conn, row.id).await?;
    let causes = (subscribes && old.is_none()).then_some(Cause::Subscribed).into_iter();
    let causes = causes.chain(topics.joined.into_iter().map(Cause::Joined)).collect();
    observe_browser(conn, request.app, &row, causes, now).await?;
    let row = Box::new(row);
    Ok(if new { Registered::New(row, names, refused) } else { Registered::Known(row, names, refused) })
}

async fn find_endpoint(
    conn: &mut PgConnection, app: AppId, shard: u8, mac: &[u8; 32],
) -> Result<Option<SubscriptionId>, sqlx::Error> {
    let id = fetch_optional!(
        conn,
        scalar,
        "SELECT id FROM subscriptions WHERE app = $1 AND endpoint_mac = $2 AND shard = $3",
        (app.0, mac.as_slice(), i16::from(shard))
    )?;
    Ok(id.map(SubscriptionId))
}

async fn refresh_known(
    conn: &mut PgConnection, vault: &Vault, request: &Registration<'_>, (mut id, mac): (SubscriptionId, &[u8; 32]),
    now: Timestamp,
) -> Result<Stored, Unregistered> {
    while let Some(before) = lock(conn, request.app, id).await? {
        if before.endpoint_mac == mac {
            let subscribes = matches!(before.state, SubscriptionState::Unsubscribed | SubscriptionState::Expired);
            let row = refresh(conn, vault, request, before, now).await?;
            let new = row.id != id;
            return Ok(Stored { row, new, subscribes: subscribes && !new });
        }
        // Another transaction gave the endpoint to a new subscription before this one got the lock.
        let Some(holder) =
            find_endpoint(conn, request.app, shard_of(request.app, request.endpoint.expose()), mac).await?
        else {
            break;
        };
        id = holder;
    }
    Err(Unregistered::Refused(Registered::Taken))
}

/// Refreshes a known, locked subscription, or reactivates an ended one with a new `since`. Other keys create a new subscription
/// if they may take over the endpoint. An unchanged row that was seen within a day is not written.
async fn refresh(
    conn: &mut PgConnection, vault: &Vault, request: &Registration<'_>, before: SubscriptionRow, now: Timestamp,
) -> Result<SubscriptionRow, Unregistered> {
    let refused = |answer| Err(Unregistered::Refused(answer));
    let given = address(request.keys, request.endpoint);
    let same_keys = vault.open(ADDRESS, before.id, &before.address).is_ok_and(|there| there.ct_eq(&given).into());
    let covered = request.covers(vault, &before);
    let rank = KeyRank::of(before.keys_vouched, before.keys_proven_at.is_some());
    let verdict = known::judge(&ReplacementCase {
        covered,
        same_keys,
        rank,
        state: before.state,
        user: before.user_id.as_deref(),
        wanted: request.wanted.user_id.as_ref().map(Option::as_deref),
    });
    match verdict {
        RegistrationVerdict::Taken => return refused(Registered::Taken),
        RegistrationVerdict::BelongsToUser => return refused(Registered::BelongsToUser),
        RegistrationVerdict::TakesOver { keeps } => {
            return take_endpoint(conn, vault, request, before, keeps, now).await;
        }
        RegistrationVerdict::GoesOn | RegistrationVerdict::BeginsAnew => {}
    }
    if request.vapid_key_stated && before.vapid_key != request.vapid_key {
        return refused(Registered::OtherKey);
    }
    let mut row = before.clone();
    if verdict == RegistrationVerdict::BeginsAnew {
        begin_anew(conn, &mut row, now).await?;
    } else if request.wanted.changes_user(&before) {
        forget_what_servers_said(conn, &mut row).await?;
    }
    let had_left = row.state == SubscriptionState::Unsubscribed;
    if had_left {
        row.muted_until = None; // an earlier wish must not silence a new subscription
    }
    if !request.wanted.apply(&mut row) {
        return refused(Registered::TooLarge);
    }
    let vouches = request.vouches(covered);
    // A receipt confirms keys, not the expiry: a vouched one is the best there is.
    if vouches || rank == KeyRank::Unproven || before.state != SubscriptionState::Active {
        row.expires_at = request.expires_at;
    }
    row.keys_vouched |= vouches;
    let kept = if had_left { Consent::default() } else { row.consent() };
    row.set_consent(request.consent(kept, had_left, now));
    if row.state != SubscriptionState::Active {
        row.state = SubscriptionState::Active;
        row.since = now;
        row.ended_at = None;
        revive(conn, &row).await?;
    }
    if row != before || now - row.last_seen >= chrono::TimeDelta::days(1) {
        row.last_seen = now;
        write_details(conn, request.app, &before, &mut row, now).await?;
    } else {
        // It should be known: see there.
        user_shards::note(conn, request.app, row.user_id.as_deref().map(|user| (row.id, user)).into_iter()).await?;
    }
    Ok(row)
}

/// Adds a new subscription for an endpoint that is stored with other keys. The previous subscription keeps its id, but gets no
/// pushes from now on. With `keeps` the new one inherits details, topics and running fan-outs to topics and to all.
async fn take_endpoint(
    conn: &mut PgConnection, vault: &Vault, request: &Registration<'_>, mut before: SubscriptionRow, keeps: bool,
    now: Timestamp,
) -> Result<SubscriptionRow, Unregistered> {
    let nowhere = lost_endpoint_mac(vault, before.id, Lost::Taken);
    let life = fetch_one!(
        &mut *conn,
        scalar,
        "UPDATE subscriptions SET endpoint_mac = $3 WHERE shard = $1 AND id = $2 RETURNING life",
        (before.id.shard(), before.id.0, nowhere.as_slice())
    )?;
    if request.wanted.changes_user(&before) {
        forget_what_servers_said(conn, &mut before).await?;
    }
    let old = Some(&before).filter(|old| keeps && old.state.has_heirs());
    match old {
        Some(old) => cancel_previous_users(conn, old.id, now).await?,
        // Its browser, which still has the token, reads `gone`, subscribes anew and replaces it.
        None => {
            let mut closing = Closing::default();
            prune(conn, &[(before.id, life)], &mut closing, now).await?;
            closing.write(conn, now).await?;
        }
    }
    let mac = endpoint_mac(vault, request.app, request.endpoint.expose());
    let shard = shard_of(request.app, request.endpoint.expose());
    // Another request may have registered the endpoint meanwhile, had this one been erased: the next attempt finds it.
    let row = insert(conn, vault, request, &mac, shard, old, now).await?.ok_or(sqlx::Error::RowNotFound)?;
    if let Some(old) = old {
        take_over(conn, vault, request.app, old, Heir { row: &row, is_known: false }, now).await?;
    }
    Ok(row)
}

/// Starts a new life of an ended subscription, so that workers do not send it deliveries of an earlier life.
async fn revive(conn: &mut PgConnection, row: &SubscriptionRow) -> Result<(), sqlx::Error> {
    let shard = row.id.shard();
    execute!(
        &mut *conn,
        "UPDATE subscriptions SET life = life + 1, revived = life + 1, replaced_by = NULL, replaced_by_life = NULL
         WHERE shard = $1 AND id = $2",
        (shard, row.id.0)
    )?;
    membership::return_to(conn, row.id, row.lane).await
}

/// Deletes all data of the former user from a locked subscription, and ends deliveries to that user.
async fn begin_anew(conn: &mut PgConnection, row: &mut SubscriptionRow, now: Timestamp) -> Result<(), sqlx::Error> {
    (row.user_id, row.locale, row.timezone, row.muted_until) = (None, None, None, None);
    row.tags.clear();
    row.attributes = serde_json::json!({});
    row.set_consent(Consent::default());
    row.since = now;
    membership::leave_all(conn, row.id).await?;
    cancel_previous_users(conn, row.id, now).await
}

/// Returns the row of a new subscription, with values inherited from the replaced one. The requested values are not applied
/// yet.
fn begin(
    vault: &Vault, request: &Registration<'_>, (id, lane): (SubscriptionId, LaneId), mac: &[u8; 32],
    old: Option<&SubscriptionRow>, now: Timestamp,
) -> SubscriptionRow {
    // A browser proves whose a subscription is each time: a token to replace one by does not.
    let by_server = matches!(request.right, Right::Server);
    let consent = request.consent(old.map(SubscriptionRow::consent).unwrap_or_default(), old.is_none(), now);
    SubscriptionRow {
        id,
        lane,
        vapid_key: request.vapid_key,
        gateway: request.gateway,
        state: request.unsubscribed_at.map_or(SubscriptionState::Active, |_| SubscriptionState::Unsubscribed),
        since: now,
        endpoint_mac: mac.to_vec(),
        address: vault.seal(ADDRESS, id, &address(request.keys, request.endpoint)),
        user_id: old.filter(|_| by_server).and_then(|old| old.user_id.clone()),
        tags: old.map(|old| old.tags.clone()).unwrap_or_default(),
        attributes: old.map_or_else(|| serde_json::json!({}), |old| old.attributes.clone()),
        locale: old.and_then(|old| old.locale.clone()),
        timezone: old.and_then(|old| old.timezone.clone()),
        expires_at: request.expires_at,
        token_version: 1,
        keys_proven_at: None,
        keys_vouched: old.is_some() || request.replaces.is_some() || request.vouches(by_server),
        last_seen: now,
        created_at: request.created_at.unwrap_or(now),
        ended_at: request.unsubscribed_at,
        consent_at: consent.at,
        consent_source: consent.source,
        muted_until: old.and_then(|old| old.muted_until),
    }
}

/// Inserts a new subscription. `None`: its endpoint was registered concurrently.
async fn insert(
    conn: &mut PgConnection, vault: &Vault, request: &Registration<'_>, mac: &[u8; 32], shard: u8,
    old: Option<&SubscriptionRow>, now: Timestamp,
) -> Result<Option<SubscriptionRow>, Unregistered> {
    let id = SubscriptionId::new(request.id, shard);
    let lane = lanes::ensure(conn, request.app, request.vapid_key, request.gateway, now).await?;
    let mut row = begin(vault, request, (id, lane), mac, old, now);
    if !request.wanted.apply(&mut row) {
        return Err(Unregistered::Refused(Registered::TooLarge));
    }
    let origin = match old {
        Some(old) => origin_of(conn, old.id).await?,
        None => None,
    };
    let added = insert_all(conn, request.app, &[(&row, origin)]).await?;
    Ok(added.contains(&id).then_some(row))
}

/// Returns the first subscription of a browser, which stays the same when the subscription is replaced.
pub async fn origin_of(conn: &mut PgConnection, id: SubscriptionId) -> sqlx::Result<Option<SubscriptionId>> {
    fetch_optional!(
        conn,
        scalar,
        r#"SELECT origin_id AS "origin: SubscriptionId" FROM subscriptions WHERE shard = $1 AND id = $2"#,
        (id.shard(), id.0)
    )
}
