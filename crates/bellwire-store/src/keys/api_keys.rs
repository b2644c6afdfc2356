//! API keys: 32 random bytes with the prefix `bw_`, stored only as an HMAC.

use std::collections::HashSet;

use aws_lc_rs::rand;
use chrono::NaiveDate;
use serde_json::json;
use sqlx::{PgConnection, PgPool};

use crate::keys::apps::App;
use crate::keys::audit::{Actor, AuditAction, AuditEntry, Who};
use crate::keyset::{Keyset, paged};
use crate::transactions::begin;
use bellwire_core::base64url;
use bellwire_core::clock::{Clock, Timestamp};
use bellwire_core::id::{ApiKeyId, AppId, TeammateId};
use bellwire_core::scope::Scope;
use bellwire_vault::{Purpose, Vault};

/// Prefix of each key's secret.
pub const PREFIX: &str = "bw_";

/// A row of `api_keys`, without its secret's HMAC.
#[derive(Debug, Clone)]
pub struct ApiKey {
    /// Id of the key.
    pub id: ApiKeyId,
    /// App of the key. `None`: the server's own key.
    pub app: Option<AppId>,
    /// The first characters of the secret.
    pub hint: String,
    /// Display name of the key.
    pub name: String,
    /// Names of the scopes.
    pub scopes: Vec<String>,
    /// Time of the creation.
    pub created_at: Timestamp,
    /// Time from which the key is invalid. `None`: never.
    pub expires_at: Option<Timestamp>,
    /// Time of the revocation. `None`: not revoked.
    pub revoked_at: Option<Timestamp>,
    /// Day (UTC) of the last request with the key. `None`: never used.
    pub last_used_on: Option<NaiveDate>,
    /// Key that created it.
    pub made_by: Option<ApiKeyId>,
    /// Teammate who created it. If this and `made_by` are `None`, the command line did.
    pub made_by_teammate: Option<TeammateId>,
}

impl ApiKey {
    /// Returns the creator of the key.
    pub fn maker(&self) -> Who {
        let by_key = self.made_by.map(Who::ApiKey);
        by_key.or(self.made_by_teammate.map(Who::Teammate)).unwrap_or(Who::Local)
    }
}

impl ApiKey {
    /// Whether this key has the scope.
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|held| held == scope.name() || held == Scope::Operator.name())
    }
}

#[derive(Debug, Clone, Copy)]
pub struct NewKey<'a> {
    /// App of the key. `None`: the server's own key.
    pub app: Option<AppId>,
    pub name: &'a str,
    /// Any of [`Scope::OF_APPS`] with an app, otherwise one of [`Scope::OF_SERVER`]. The database refuses others.
    pub scopes: &'a [Scope],
    /// Time from which the key is invalid. `None`: never.
    pub expires_at: Option<Timestamp>,
}

/// Creates a key for the command line, whose permission cannot be revoked.
pub async fn create(
    pool: &PgPool, vault: &Vault, app: Option<AppId>, name: &str, scopes: &[Scope], expires_at: Option<Timestamp>,
    clock: &Clock,
) -> Result<(ApiKey, String), sqlx::Error> {
    let new = NewKey { app, name, scopes, expires_at };
    let mut tx = begin(pool).await?;
    let made = make(&mut tx, vault, new, Actor::LOCAL, clock).await?;
    tx.commit().await?;
    made.ok_or(sqlx::Error::RowNotFound)
}

/// Creates a key. Returns its row and its secret, which is not stored. `None`: the creator's key was revoked or has expired, or
/// the teammate was suspended. Call it in a transaction that locks out other creations and revocations of keys.
pub async fn make(
    conn: &mut PgConnection, vault: &Vault, new: NewKey<'_>, maker: Actor, clock: &Clock,
) -> Result<Option<(ApiKey, String)>, sqlx::Error> {
    let mut octets = [0; 32];
    rand::fill(&mut octets).expect("the system's randomness");
    let secret = format!("{PREFIX}{}", base64url::encode(octets));
    let key = ApiKey {
        id: ApiKeyId(clock.uuid()),
        app: new.app,
        hint: secret[..PREFIX.len() + 4].to_owned(),
        name: new.name.to_owned(),
        scopes: new.scopes.iter().map(|scope| scope.name().to_owned()).collect(),
        created_at: clock.now(),
        expires_at: new.expires_at,
        revoked_at: None,
        last_used_on: None,
        made_by: maker.who.key(),
        made_by_teammate: maker.who.teammate(),
    };
    let secret_mac = mac(vault, &secret);
    let detail = json!({"name": key.name, "scopes": key.scopes, "expires_at": key.expires_at});
    let entry = AuditEntry::new(maker, key.app, AuditAction::ApiKeyCreated, key.id).with(detail);
    take_turns(conn).await?;
    let done = rows_affected!(
        &mut *conn,
        "INSERT INTO api_keys
           (id, app, secret_mac, hint, name, scopes, created_at, expires_at, made_by, made_by_teammate)
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $11 WHERE $10
           OR EXISTS (
             SELECT FROM api_keys WHERE id = $9 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $7))
           OR EXISTS (SELECT FROM teammates WHERE id = $11 AND disabled_at IS NULL)",
        (key.id.0, key.app.map(|app| app.0), secret_mac.as_slice(), key.hint, key.name, &key.scopes, key.created_at),
        (key.expires_at, key.made_by.map(|key| key.0), maker.who == Who::Local),
        (key.made_by_teammate.map(|teammate| teammate.0))
    )?;
    if done == 0 {
        return Ok(None);
    }
    entry.record(conn, 1, key.created_at).await?;
    Ok(Some((key, secret)))
}

/// Locks out other creations and revocations of keys until the transaction ends. So a revocation sees all keys created with the
/// revoked one, and a revoked key creates none. Requests that only use a key do not wait.
pub(super) async fn take_turns(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    execute!(conn, "LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE")
}

pub type SecretMac = [u8; 32];

pub fn mac(vault: &Vault, secret: &str) -> SecretMac {
    vault.mac(Purpose::ApiKey, &[secret.as_bytes()])
}

/// Finds a valid key by its secret's HMAC, and the app in the request, in one round trip. `None`: the key is unknown, expired
/// or revoked.
pub async fn authenticate(
    pool: &PgPool, secret_mac: &SecretMac, app_id: Option<AppId>, app_slug: Option<&str>, now: Timestamp,
) -> Result<Option<(ApiKey, Option<App>)>, sqlx::Error> {
    let found = fetch_optional!(
        pool,
        r#"SELECT k.id, k.app, k.hint, k.name, k.scopes, k.created_at, k.expires_at, k.last_used_on, k.made_by,
             k.made_by_teammate, a.id AS "app_id?", a.slug AS "slug?",
             a.name AS "app_name?", a.origins AS "origins?", a.allow_other_gateways AS "allow_other?",
             a.browsers_may AS "browsers_may?",
             a.max_retries AS "max_retries?", a.weight AS "weight?", a.created_at AS "app_created_at?",
             coalesce(jsonb_typeof(a.measurement->'link_tags') = 'object', false) AS "has_link_tags!"
         FROM api_keys k LEFT JOIN apps a ON (a.id = $2 OR a.slug = $3) AND a.id = coalesce(k.app, a.id)
             AND a.deleting_at IS NULL
         WHERE k.secret_mac = $1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $4)"#,
        (secret_mac.as_slice(), app_id.map(|app| app.0), app_slug, now)
    )?;
    Ok(found.map(|row| {
        let app = (|| {
            Some(App {
                id: AppId(row.app_id?),
                slug: row.slug?,
                name: row.app_name?,
                origins: row.origins?,
                allow_other_gateways: row.allow_other?,
                browsers_may: row.browsers_may?.into(),
                max_retries: row.max_retries?,
                weight: row.weight?,
                has_link_tags: row.has_link_tags,
                created_at: row.app_created_at?,
                deleting_at: None,
            })
        })();
        let key = ApiKey {
            id: ApiKeyId(row.id),
            app: row.app.map(AppId),
            hint: row.hint,
            name: row.name,
            scopes: row.scopes,
            created_at: row.created_at,
            expires_at: row.expires_at,
            revoked_at: None,
            last_used_on: row.last_used_on,
            made_by: row.made_by.map(ApiKeyId),
            made_by_teammate: row.made_by_teammate.map(TeammateId),
        };
        (key, app)
    }))
}

/// Records the day on which a key was used.
pub async fn note_use(pool: &PgPool, id: ApiKeyId, on: NaiveDate) -> Result<(), sqlx::Error> {
    execute!(
        pool,
        "UPDATE api_keys SET last_used_on = $2 WHERE id = $1 AND (last_used_on < $2) IS NOT FALSE",
        (id.0, on)
    )
}

/// Returns keys of an app, or of the server (`None`), beyond the page's key, the nearest ids first.
pub async fn list(pool: &PgPool, app: Option<AppId>, page: Keyset) -> Result<Vec<ApiKey>, sqlx::Error> {
    paged!(pool, page, ApiKey,
        [r#"SELECT id, app AS "app: AppId", hint, name, scopes, created_at, expires_at, revoked_at, last_used_on,
             made_by AS "made_by: ApiKeyId", made_by_teammate AS "made_by_teammate: TeammateId"
         FROM api_keys WHERE app IS NOT DISTINCT FROM $1 AND id"# < "$2 ORDER BY id" DESC "LIMIT $3"],
        (app.map(|app| app.0), page.beyond, page.limit)
    )
}

pub async fn find_valid_of_server(pool: &PgPool, id: ApiKeyId, now: Timestamp) -> Result<Option<ApiKey>, sqlx::Error> {
    let found = find(pool, None, id).await?;
    Ok(found.filter(|key| key.revoked_at.is_none() && key.expires_at.is_none_or(|end| end > now)))
}

/// Returns those of these keys that are valid, of any app.
pub async fn valid(pool: &PgPool, ids: &[ApiKeyId], now: Timestamp) -> Result<HashSet<ApiKeyId>, sqlx::Error> {
    let valid = fetch_all!(
        pool,
        scalar,
        r#"SELECT id AS "id: ApiKeyId" FROM api_keys
           WHERE id = ANY ($1) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)"#,
        (ids as &[ApiKeyId], now)
    )?;
    Ok(valid.into_iter().collect())
}

/// Returns a key of an app, or of the server (`None`).
pub async fn find(pool: &PgPool, app: Option<AppId>, id: ApiKeyId) -> Result<Option<ApiKey>, sqlx::Error> {
    let first = list(pool, app, Keyset::from(id)).await?.pop();
    Ok(first.filter(|key| key.id == id))
}

/// Revokes a key permanently. Unless they are to be kept, also revokes the keys created with it, and so on, and deletes their
/// identity keys. Returns the number of API keys; 0 if all were revoked already. `None`: the app has no such key.
///
/// Each app that loses keys gets an audit entry.
pub async fn revoke(
    pool: &PgPool, app: Option<AppId>, id: ApiKeyId, keep_descendants: bool, by: Actor, now: Timestamp,
) -> Result<Option<i64>, sqlx::Error> {
    let mut tx = begin(pool).await?;
    take_turns(&mut tx).await?;
    let known = fetch_optional!(
        &mut *tx,
        "SELECT id FROM api_keys WHERE id = $1 AND app IS NOT DISTINCT FROM $2",
        (id.0, app.map(|app| app.0))
    )?;
    if known.is_none() {
        return Ok(None);
    }
    let revoked = fetch_all!(
        &mut *tx,
        r#"WITH RECURSIVE line (id) AS (
             SELECT $1::uuid UNION SELECT k.id FROM api_keys k JOIN line ON k.made_by = line.id WHERE NOT $2
           ), revoked AS (
             UPDATE api_keys SET revoked_at = $3 WHERE id IN (SELECT id FROM line) AND revoked_at IS NULL RETURNING app
           )
           SELECT app, count(*) AS "n!" FROM revoked GROUP BY app"#,
        (id.0, keep_descendants, now)
    )?;
    for of_app in &revoked {
        let entry = AuditEntry::new(by, of_app.app.map(AppId), AuditAction::ApiKeyRevoked, id);
        entry.with(json!({"keep_descendants": keep_descendants})).record(&mut tx, of_app.n, now).await?;
    }
    if !keep_descendants {
        remove_identity_keys(&mut tx, id, by, now).await?;
    }
    tx.commit().await?;
    Ok(Some(revoked.iter().map(|of_app| of_app.n).sum()))
}

/// Deletes the identity keys that a key and its descendants created.
async fn remove_identity_keys(
    conn: &mut PgConnection, id: ApiKeyId, by: Actor, now: Timestamp,
) -> Result<(), sqlx::Error> {
    let removed = fetch_all!(
        &mut *conn,
        r#"WITH RECURSIVE line (id) AS (SELECT $1::uuid UNION SELECT k.id FROM api_keys k JOIN line ON k.made_by = line.id),
             removed AS (DELETE FROM identity_keys WHERE made_by IN (SELECT id FROM line) RETURNING app)
           SELECT app, count(*) AS "n!" FROM removed GROUP BY app"#,
        (id.0)
    )?;
    for of_app in removed {
        let entry = AuditEntry::new(by, Some(AppId(of_app.app)), AuditAction::IdentityKeyRemoved, id);
        entry.with(json!({"with": "the API key that made them"})).record(&mut *conn, of_app.n, now).await?;
    }
    Ok(())
}
