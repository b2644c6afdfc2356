//! Keys with which a backend signs user tokens. Secrets are encrypted.

use sqlx::{PgConnection, PgExecutor, PgPool};

use crate::keys::api_keys;
use crate::results::WriteOutcome;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{ApiKeyId, AppId, IdentityKeyId};

/// Maximum identity keys of one app: enough to rotate, few enough to try them all.
pub const KEYS_MAX: i64 = 10;

#[derive(Debug, Clone)]
pub struct IdentityKey {
    pub id: IdentityKeyId,
    pub name: String,
    /// Signature algorithm: `HS256` or `ES256`.
    pub algorithm: String,
    /// Form of the proof: `jwt` or, with HS256 only, `hmac`.
    pub form: String,
    /// Encrypted secret, for HS256 only.
    pub secret: Option<Vec<u8>>,
    /// Public key as an uncompressed point, for ES256 only.
    pub public_key: Option<Vec<u8>>,
    /// API key that created it, whose revocation deletes it. `None`: the command line.
    pub made_by: Option<ApiKeyId>,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddIdentityKeyResult {
    Done,
    /// The app has [`KEYS_MAX`] identity keys.
    TooMany,
    Revoked,
}

/// Adds a key. If an API key creates it, call it in a transaction that locks out other creations and revocations. So a
/// revocation sees all keys created with the revoked one, and a revoked key creates none.
pub async fn add(conn: &mut PgConnection, app: AppId, key: &IdentityKey) -> sqlx::Result<AddIdentityKeyResult> {
    // Concurrent additions wait: otherwise the limit could be exceeded.
    let app = fetch_one!(&mut *conn, scalar, "SELECT id FROM apps WHERE id = $1 FOR NO KEY UPDATE", (app.0))?;
    if let Some(maker) = key.made_by {
        api_keys::take_turns(conn).await?;
        let valid = fetch_one!(
            &mut *conn,
            scalar,
            r#"SELECT EXISTS (SELECT FROM api_keys WHERE id = $1 AND revoked_at IS NULL) AS "valid!""#,
            (maker.0)
        )?;
        if !valid {
            return Ok(AddIdentityKeyResult::Revoked);
        }
    }
    let done = rows_affected!(
        conn,
        "INSERT INTO identity_keys (id, app, name, algorithm, form, secret, public_key, created_at, made_by)
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $10 WHERE (SELECT count(*) FROM identity_keys WHERE app = $2) < $9",
        (key.id.0, app, key.name, key.algorithm, key.form, key.secret, key.public_key, key.created_at, KEYS_MAX),
        (key.made_by.map(|key| key.0))
    )?;
    Ok(if done == 1 { AddIdentityKeyResult::Done } else { AddIdentityKeyResult::TooMany })
}

pub async fn list(pool: &PgPool, app: AppId) -> sqlx::Result<Vec<IdentityKey>> {
    fetch_all!(
        pool,
        IdentityKey,
        r#"SELECT id, name, algorithm, form, secret, public_key, made_by AS "made_by: ApiKeyId", created_at FROM identity_keys WHERE app = $1
         ORDER BY id DESC"#,
        (app.0)
    )
}

/// Deletes a key: its signatures are invalid from now on.
pub async fn remove(executor: impl PgExecutor<'_>, app: AppId, id: IdentityKeyId) -> sqlx::Result<WriteOutcome> {
    let done = rows_affected!(executor, "DELETE FROM identity_keys WHERE app = $1 AND id = $2", (app.0, id.0))?;
    Ok(WriteOutcome::by(done))
}
