//! VAPID key pairs. A retired key still signs for the subscriptions that were created with it, so keys are never deleted.

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};
use sqlx::{PgConnection, PgExecutor, PgPool};
use utoipa::ToSchema;

use crate::keyset::{Keyset, paged};
use crate::results::WriteOutcome;
use bellwire_core::base64url;
use bellwire_core::id::{AppId, VapidKeyId};
use bellwire_core::named;

named! {
    /// State of a key.
    #[derive(Default)]
    #[schema(as = VapidKeyRole)]
    pub enum Role {
        /// Key for new subscriptions. Each app has exactly one. Creating or importing another active key retires it.
        #[default]
        Active = "active",
        /// Key that only signs for its existing subscriptions. It never becomes active again.
        Retired = "retired",
    }
}

/// A VAPID key, without its private key.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = VapidKeyResponse)]
pub struct VapidKey {
    /// Id of the key.
    pub id: VapidKeyId,
    #[serde(skip)]
    pub app: AppId,
    /// Public key in base64url: `applicationServerKey` for pages.
    #[serde(serialize_with = "in_base64url")]
    #[schema(value_type = String)]
    pub public_key: Vec<u8>,
    /// `sub` claim: contact for push services.
    pub subject: String,
    /// State of the key: active or retired.
    pub state: Role,
    /// Time of creation or import.
    pub created_at: DateTime<Utc>,
    /// Time at which another key replaced it. Null: active.
    pub retired_at: Option<DateTime<Utc>>,
    /// Number of active subscriptions that use this key. Only in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscriptions: Option<i64>,
}

fn in_base64url<S: Serializer>(octets: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&base64url::encode(octets))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddVapidKeyResult {
    Done,
    Known,
}

/// Adds a key pair. If it is active, the previous active key is retired. `private_key` is encrypted with
/// [`bellwire_vault::VAPID_PRIVATE`] and the key's id.
pub async fn add(
    conn: &mut PgConnection, key: &VapidKey, private_key: &[u8],
) -> Result<AddVapidKeyResult, sqlx::Error> {
    if key.state == Role::Active {
        // Rotations of one app take turns here, so that the later one finds what the earlier one made.
        fetch_optional!(&mut *conn, "SELECT id FROM apps WHERE id = $1 FOR NO KEY UPDATE", (key.app.0))?;
        let known = fetch_one!(
            &mut *conn,
            scalar,
            r#"SELECT EXISTS (SELECT 1 FROM vapid_keys WHERE app = $1 AND public_key = $2) AS "known!""#,
            (key.app.0, &key.public_key)
        )?;
        if known {
            return Ok(AddVapidKeyResult::Known);
        }
        execute!(
            &mut *conn,
            "UPDATE vapid_keys SET state = 'retired', retired_at = $2 WHERE app = $1 AND state = 'active'",
            (key.app.0, key.created_at)
        )?;
    }
    let done = rows_affected!(
        conn,
        "INSERT INTO vapid_keys (id, app, public_key, private_key, subject, state, created_at, retired_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (app, public_key) DO NOTHING",
        (key.id.0, key.app.0, &key.public_key, private_key, key.subject, key.state.name(), key.created_at),
        (key.retired_at)
    )?;
    Ok(if done == 1 { AddVapidKeyResult::Done } else { AddVapidKeyResult::Known })
}

/// Returns the key for new subscriptions. Every app has one.
pub async fn active(pool: &PgPool, app: AppId) -> Result<VapidKey, sqlx::Error> {
    fetch_one!(
        pool,
        VapidKey,
        r#"SELECT id, app, public_key, subject, state AS "state: Role", created_at, retired_at, NULL::bigint AS subscriptions
         FROM vapid_keys
         WHERE app = $1 AND state = 'active'"#,
        (app.0)
    )
}

pub async fn find(pool: &PgPool, app: AppId, id: VapidKeyId) -> Result<Option<VapidKey>, sqlx::Error> {
    fetch_optional!(
        pool,
        VapidKey,
        r#"SELECT id, app, public_key, subject, state AS "state: Role", created_at, retired_at, NULL::bigint AS subscriptions
         FROM vapid_keys
         WHERE app = $1 AND id = $2"#,
        (app.0, id.0)
    )
}

/// Returns the app's key pair with this public key.
pub async fn find_public(pool: &PgPool, app: AppId, public_key: &[u8]) -> Result<Option<VapidKeyId>, sqlx::Error> {
    fetch_optional!(
        pool,
        scalar,
        r#"SELECT id AS "id: VapidKeyId" FROM vapid_keys WHERE app = $1 AND public_key = $2"#,
        (app.0, public_key)
    )
}

/// Returns an app's keys beyond the page's key, the nearest ids first, each with its number of active subscriptions.
pub async fn list(pool: &PgPool, app: AppId, page: Keyset) -> Result<Vec<VapidKey>, sqlx::Error> {
    paged!(pool, page, VapidKey,
        [r#"SELECT k.id, k.app, k.public_key, k.subject, k.state AS "state: Role", k.created_at, k.retired_at, (SELECT coalesce(sum(a.n), 0)::bigint
             FROM lanes l JOIN audiences a ON a.topic = 0 AND a.lane = l.id WHERE l.vapid_key = k.id) AS subscriptions
         FROM vapid_keys k WHERE k.app = $1 AND k.id"# < "$2 ORDER BY k.id" DESC "LIMIT $3"],
        (app.0, page.beyond, page.limit)
    )
}

/// Returns the encrypted private key, for export to another server.
pub async fn private_key(
    executor: impl PgExecutor<'_>, app: AppId, id: VapidKeyId,
) -> Result<Option<Vec<u8>>, sqlx::Error> {
    fetch_optional!(executor, scalar, "SELECT private_key FROM vapid_keys WHERE app = $1 AND id = $2", (app.0, id.0))
}

/// Changes the contact of a key. Workers use it when their cached tokens are renewed.
pub async fn set_subject(
    executor: impl PgExecutor<'_>, app: AppId, id: VapidKeyId, subject: &str,
) -> Result<WriteOutcome, sqlx::Error> {
    let done = rows_affected!(
        executor,
        "UPDATE vapid_keys SET subject = $3 WHERE app = $1 AND id = $2",
        (app.0, id.0, subject)
    )?;
    Ok(WriteOutcome::by(done))
}
