//! Passkeys of teammates, and pending challenges.

use sqlx::{PgConnection, PgExecutor, PgPool};

use crate::keys::team::open_hash;
use crate::results::WriteOutcome;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{PasskeyId, SessionId, TeammateId};
use bellwire_vault::{LINK_PASSWORD, Vault};

pub const PASSKEYS_MAX: i64 = 10;
/// Rows that one transaction deletes.
const CHUNK: i64 = 10_000;

#[derive(Debug, Clone)]
pub struct Passkey {
    pub id: PasskeyId,
    /// Display name, 1 to 64 characters.
    pub name: String,
    /// Credential id from the authenticator, 1 to 1,023 bytes, unique among passkeys.
    pub credential_id: Vec<u8>,
    /// COSE public key, at most 2,048 bytes.
    pub public_key: Vec<u8>,
    /// Number of the COSE algorithm.
    pub algorithm: i32,
    /// Signature counter at the last use, 32 bits. 0: the authenticator has no counter.
    pub counter: i64,
    /// Transports of its authenticator.
    pub transports: Vec<String>,
    pub created_at: Timestamp,
    /// Time of the last sign-in with it. `None`: never.
    pub last_used_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddPasskeyResult {
    Done,
    /// The teammate has [`PASSKEYS_MAX`] passkeys.
    TooMany,
    Known,
}

pub async fn add(conn: &mut PgConnection, teammate: TeammateId, passkey: &Passkey) -> sqlx::Result<AddPasskeyResult> {
    // Concurrent additions wait: otherwise the limit could be exceeded.
    fetch_one!(&mut *conn, "SELECT id FROM teammates WHERE id = $1 FOR NO KEY UPDATE", (teammate.0))?;
    let count =
        fetch_one!(&mut *conn, scalar, r#"SELECT count(*) AS "n!" FROM passkeys WHERE teammate = $1"#, (teammate.0))?;
    if count >= PASSKEYS_MAX {
        return Ok(AddPasskeyResult::TooMany);
    }
    let done = rows_affected!(
        conn,
        "INSERT INTO passkeys (id, teammate, name, credential_id, public_key, algorithm, counter, transports, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (credential_id) DO NOTHING",
        (passkey.id.0, teammate.0, passkey.name, passkey.credential_id, passkey.public_key, passkey.algorithm),
        (passkey.counter, &passkey.transports, passkey.created_at)
    )?;
    Ok(if done == 1 { AddPasskeyResult::Done } else { AddPasskeyResult::Known })
}

pub async fn list(executor: impl PgExecutor<'_>, teammate: TeammateId) -> sqlx::Result<Vec<Passkey>> {
    fetch_all!(
        executor,
        Passkey,
        "SELECT id, name, credential_id, public_key, algorithm, counter, transports, created_at, last_used_at
         FROM passkeys WHERE teammate = $1 ORDER BY id DESC",
        (teammate.0)
    )
}

/// Returns a teammate's passkey by its credential id, locked until the transaction ends, because its counter is compared and
/// then written.
pub async fn lock(
    conn: &mut PgConnection, teammate: TeammateId, credential_id: &[u8],
) -> sqlx::Result<Option<Passkey>> {
    fetch_optional!(
        conn,
        Passkey,
        "SELECT id, name, credential_id, public_key, algorithm, counter, transports, created_at, last_used_at
         FROM passkeys WHERE teammate = $1 AND credential_id = $2 FOR UPDATE",
        (teammate.0, credential_id)
    )
}

/// Records a sign-in with a [locked](lock) passkey.
pub async fn note_use(conn: &mut PgConnection, id: PasskeyId, counter: u32, now: Timestamp) -> sqlx::Result<()> {
    execute!(conn, "UPDATE passkeys SET counter = $2, last_used_at = $3 WHERE id = $1", (id.0, i64::from(counter), now))
}

pub async fn rename(
    conn: &mut PgConnection, teammate: TeammateId, id: PasskeyId, name: &str,
) -> sqlx::Result<Option<Passkey>> {
    fetch_optional!(
        conn,
        Passkey,
        "UPDATE passkeys SET name = $3 WHERE id = $2 AND teammate = $1
         RETURNING id, name, credential_id, public_key, algorithm, counter, transports, created_at, last_used_at",
        (teammate.0, id.0, name)
    )
}

pub async fn remove(conn: &mut PgConnection, teammate: TeammateId, id: PasskeyId) -> sqlx::Result<WriteOutcome> {
    let done = rows_affected!(conn, "DELETE FROM passkeys WHERE id = $2 AND teammate = $1", (teammate.0, id.0))?;
    Ok(WriteOutcome::by(done))
}

/// Removes all passkeys of a teammate. Returns their number.
pub async fn remove_all(conn: &mut PgConnection, teammate: TeammateId) -> sqlx::Result<i64> {
    let done = rows_affected!(conn, "DELETE FROM passkeys WHERE teammate = $1", (teammate.0))?;
    Ok(i64::try_from(done).unwrap_or(i64::MAX))
}

/// Proof of a person before the passkey.
#[derive(Debug)]
pub enum FirstFactor {
    Password,
    Link(ShownLink),
    Oidc(ShownAccount),
}

/// An account at an OpenID provider. It is linked after the second factor, if it is not linked yet.
#[derive(Debug, Clone)]
pub struct ShownAccount {
    /// Issuer of the provider's tokens: 1 to 2,048 characters.
    pub issuer: String,
    /// Subject of the account in tokens: 1 to 255 characters.
    pub subject: String,
}

/// A one-time link. It is used up after the second factor.
#[derive(Clone)]
pub struct ShownLink {
    /// HMAC under which the link is stored.
    pub mac: [u8; 32],
    /// Hash of the new password, if the request contained one.
    pub password_hash: Option<String>,
}

impl std::fmt::Debug for ShownLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ShownLink(…)")
    }
}

/// Stores a challenge to add a passkey in a session until a time, in place of an earlier one.
pub async fn put_challenge_to_add(
    pool: &PgPool, challenge_mac: &[u8; 32], teammate: TeammateId, session: SessionId, expires_at: Timestamp,
) -> sqlx::Result<()> {
    execute!(
        pool,
        "WITH before AS (DELETE FROM passkey_challenges WHERE session = $3)
         INSERT INTO passkey_challenges (challenge_mac, teammate, session, expires_at) VALUES ($1, $2, $3, $4)",
        (challenge_mac.as_slice(), teammate.0, session.0, expires_at)
    )
}

pub async fn put_challenge_to_sign_in(
    pool: &PgPool, vault: &Vault, challenge_mac: &[u8; 32], teammate: TeammateId, shown: &FirstFactor,
    expires_at: Timestamp,
) -> sqlx::Result<()> {
    let (link, account) = match shown {
        FirstFactor::Password => (None, None),
        FirstFactor::Link(link) => (Some(link), None),
        FirstFactor::Oidc(account) => (None, Some(account)),
    };
    let hash = link.and_then(|link| link.password_hash.as_deref());
    execute!(
        pool,
        "INSERT INTO passkey_challenges
           (challenge_mac, teammate, link_mac, password_sealed, oidc_issuer, oidc_subject, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        (challenge_mac.as_slice(), teammate.0, link.map(|link| link.mac.as_slice())),
        (hash.map(|hash| vault.seal(LINK_PASSWORD, teammate, hash.as_bytes()))),
        (account.map(|account| &*account.issuer), account.map(|account| &*account.subject), expires_at)
    )
}

/// Uses a challenge to add a passkey in that session. Returns false if it does not exist or expired.
pub async fn take_challenge_to_add(
    conn: &mut PgConnection, challenge_mac: &[u8; 32], session: SessionId, now: Timestamp,
) -> sqlx::Result<bool> {
    let done = rows_affected!(
        conn,
        "DELETE FROM passkey_challenges WHERE challenge_mac = $1 AND session = $2 AND expires_at > $3",
        (challenge_mac.as_slice(), session.0, now)
    )?;
    Ok(done == 1)
}

/// Uses a challenge to sign in. Returns its teammate and earlier proof. `None`: it does not exist, expired, or its teammate is
/// suspended.
pub async fn take_challenge_to_sign_in(
    pool: &PgPool, vault: &Vault, challenge_mac: &[u8; 32], now: Timestamp,
) -> sqlx::Result<Option<(TeammateId, FirstFactor)>> {
    let taken = fetch_optional!(
        pool,
        "DELETE FROM passkey_challenges c USING teammates t
         WHERE c.challenge_mac = $1 AND c.session IS NULL AND c.expires_at > $2
           AND t.id = c.teammate AND t.disabled_at IS NULL
         RETURNING c.teammate, c.link_mac, c.password_sealed, c.oidc_issuer, c.oidc_subject",
        (challenge_mac.as_slice(), now)
    )?;
    let Some(row) = taken else { return Ok(None) };
    let id = TeammateId(row.teammate);
    let mac = row.link_mac.and_then(|mac| <[u8; 32]>::try_from(mac).ok());
    let shown = match (mac, row.oidc_issuer, row.oidc_subject) {
        (Some(mac), ..) => {
            let password_hash = open_hash(vault, LINK_PASSWORD, id, row.password_sealed)?;
            FirstFactor::Link(ShownLink { mac, password_hash })
        }
        (None, Some(issuer), Some(subject)) => FirstFactor::Oidc(ShownAccount { issuer, subject }),
        (None, ..) => FirstFactor::Password,
    };
    Ok(Some((id, shown)))
}

/// Returns a pending challenge to sign in after an OpenID provider: its teammate and its expiry. It is not used.
pub async fn find_challenge_after_oidc(
    pool: &PgPool, challenge_mac: &[u8; 32], now: Timestamp,
) -> sqlx::Result<Option<(TeammateId, Timestamp)>> {
    let found = fetch_optional!(
        pool,
        "SELECT teammate, expires_at FROM passkey_challenges
         WHERE challenge_mac = $1 AND oidc_issuer IS NOT NULL AND expires_at > $2",
        (challenge_mac.as_slice(), now)
    )?;
    Ok(found.map(|row| (TeammateId(row.teammate), row.expires_at)))
}

/// Deletes a chunk of expired challenges, and returns their number.
pub async fn clear_challenges(pool: &PgPool, now: Timestamp) -> sqlx::Result<u64> {
    let done = rows_affected!(
        pool,
        "DELETE FROM passkey_challenges WHERE challenge_mac = ANY (ARRAY(
           SELECT challenge_mac FROM passkey_challenges WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2
           FOR UPDATE SKIP LOCKED))",
        (now, CHUNK)
    )?;
    Ok(done)
}
