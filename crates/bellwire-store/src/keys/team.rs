//! Teammates with their roles, passwords and one-time links.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{PgConnection, PgExecutor, PgPool};
use utoipa::ToSchema;

use crate::keyset::{Keyset, paged};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, TeammateId};
use bellwire_core::role::{Grant, Grants, Role};
use bellwire_vault::{Column, PASSWORD, Vault};

/// Teammate of the server.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = TeammateResponse)]
pub struct Teammate {
    /// Id of the teammate.
    pub id: TeammateId,
    /// E-mail address for signing in, in lower case.
    pub email: String,
    /// Roles of the teammate. Empty: no permissions.
    #[schema(value_type = Vec<Grant>)]
    pub roles: Grants,
    /// Whether the teammate has a password. Without one they sign in by one-time link or OpenID provider.
    pub has_password: bool,
    /// Number of passkeys. If there are any, sign-in by password, link or OpenID provider also requires one of them.
    pub passkeys: i64,
    /// Expiry of the one-time link. Null: no link, or it was used.
    pub link_expires_at: Option<DateTime<Utc>>,
    /// Time at which the account at the OpenID provider was linked. Null: not linked.
    pub oidc_linked_at: Option<DateTime<Utc>>,
    /// Time of the invitation.
    pub created_at: DateTime<Utc>,
    /// Start of the suspension. Null: active.
    pub disabled_at: Option<DateTime<Utc>>,
}

/// Stored values to verify a password.
pub struct Credentials {
    pub id: TeammateId,
    /// Password hash (PHC string). `None`: no password.
    pub password_hash: Option<String>,
    /// Start of their suspension. `None`: not suspended.
    pub disabled_at: Option<Timestamp>,
}

/// Account state of a teammate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TeammateStatus {
    pub id: TeammateId,
    pub is_disabled: bool,
}

/// Returns teammates beyond the page's key, the nearest ids first.
pub async fn list(executor: impl PgExecutor<'_>, page: Keyset) -> sqlx::Result<Vec<Teammate>> {
    paged!(executor, page, Teammate,
        [r#"SELECT t.id, t.email, (t.password_sealed IS NOT NULL) AS "has_password!", i.expires_at AS "link_expires_at?",
             (SELECT max(linked_at) FROM oidc_accounts WHERE teammate = t.id) AS "oidc_linked_at?", t.created_at, t.disabled_at,
             (SELECT count(*) FROM passkeys WHERE teammate = t.id) AS "passkeys!",
             ARRAY(SELECT (role, app) FROM teammate_roles WHERE teammate = t.id ORDER BY app NULLS FIRST)
               AS "roles!: Vec<(String, Option<AppId>)>"
         FROM teammates t LEFT JOIN invitations i ON i.teammate = t.id
         WHERE t.id"# < "$1 ORDER BY t.id" DESC "LIMIT $2"],
        (page.beyond, page.limit)
    )
}

pub async fn find(executor: impl PgExecutor<'_>, id: TeammateId) -> sqlx::Result<Option<Teammate>> {
    let first = list(executor, Keyset::from(id)).await?.pop();
    Ok(first.filter(|teammate| teammate.id == id))
}

/// Adds a teammate without roles and password. Returns `false` if the e-mail address is taken.
pub async fn add(conn: &mut PgConnection, id: TeammateId, email: &str, now: Timestamp) -> sqlx::Result<bool> {
    let done = rows_affected!(
        conn,
        "INSERT INTO teammates (id, email, created_at) VALUES ($1, $2, $3) ON CONFLICT (email) DO NOTHING",
        (id.0, email, now)
    )?;
    Ok(done == 1)
}

/// Whether a teammate is an active admin for all apps. Locks out other changes of the team, so that two admins cannot remove
/// each other.
pub async fn may_change_team(conn: &mut PgConnection, id: TeammateId) -> sqlx::Result<bool> {
    execute!(&mut *conn, scalar, "SELECT pg_advisory_xact_lock(hashtextextended('bellwire.team', 0))")?;
    fetch_one!(
        conn,
        scalar,
        r#"SELECT EXISTS (SELECT FROM teammates t JOIN teammate_roles r ON r.teammate = t.id
           WHERE t.id = $1 AND t.disabled_at IS NULL AND r.app IS NULL AND r.role = $2) AS "may!""#,
        (id.0, Role::Admin.name())
    )
}

/// Decrypts a password hash.
pub(super) fn open_hash(
    vault: &Vault, column: Column, id: TeammateId, sealed: Option<Vec<u8>>,
) -> sqlx::Result<Option<String>> {
    let opened = sealed.map(|sealed| vault.open(column, id, &sealed)).transpose();
    let octets = opened.map_err(|error| sqlx::Error::Decode(error.into()))?;
    octets.map(|octets| String::from_utf8(octets).map_err(|error| sqlx::Error::Decode(error.into()))).transpose()
}

/// Whether a teammate is not suspended and has this password hash. Both are locked until the transaction ends.
pub async fn keep_credentials(
    conn: &mut PgConnection, vault: &Vault, id: TeammateId, hash: Option<&str>,
) -> sqlx::Result<bool> {
    let found = fetch_optional!(
        conn,
        scalar,
        "SELECT password_sealed FROM teammates WHERE id = $1 AND disabled_at IS NULL FOR UPDATE",
        (id.0)
    )?;
    let Some(sealed) = found else { return Ok(false) };
    Ok(open_hash(vault, PASSWORD, id, sealed)?.as_deref() == hash)
}

/// Locks a teammate until the transaction ends. Returns `false` if the teammate does not exist.
pub async fn lock(conn: &mut PgConnection, id: TeammateId) -> sqlx::Result<bool> {
    let found = fetch_optional!(conn, scalar, "SELECT id FROM teammates WHERE id = $1 FOR UPDATE", (id.0))?;
    Ok(found.is_some())
}

/// Returns the teammate with an e-mail address, [locked](lock).
pub async fn lock_by_email(conn: &mut PgConnection, email: &str) -> sqlx::Result<Option<TeammateStatus>> {
    fetch_optional!(
        conn,
        TeammateStatus,
        r#"SELECT id, disabled_at IS NOT NULL AS "is_disabled!" FROM teammates WHERE email = $1 FOR UPDATE"#,
        (email)
    )
}

/// Sets all roles of a teammate that is [locked](lock) or new.
pub async fn set_grants(conn: &mut PgConnection, id: TeammateId, grants: &Grants) -> sqlx::Result<()> {
    let roles: Vec<String> = grants.0.iter().map(|grant| grant.role.name().to_owned()).collect();
    let apps: Vec<Option<AppId>> = grants.0.iter().map(|grant| grant.app).collect();
    execute!(&mut *conn, "DELETE FROM teammate_roles WHERE teammate = $1", (id.0))?;
    execute!(
        conn,
        "INSERT INTO teammate_roles (teammate, app, role)
         SELECT $1, app, role FROM unnest($2::uuid[], $3::text[]) AS given (app, role)",
        (id.0, &apps as &[Option<AppId>], &roles)
    )
}

/// Ends a teammate's suspension (`None`), or sets its start.
pub async fn set_disabled(conn: &mut PgConnection, id: TeammateId, at: Option<Timestamp>) -> sqlx::Result<()> {
    // When that began stays.
    execute!(
        conn,
        "UPDATE teammates SET disabled_at = CASE WHEN $2::timestamptz IS NULL THEN NULL ELSE coalesce(disabled_at, $2) END
         WHERE id = $1",
        (id.0, at)
    )
}

/// Removes a teammate with roles, link, passkeys and sessions. The audit log keeps their id.
pub async fn remove(conn: &mut PgConnection, id: TeammateId) -> sqlx::Result<()> {
    execute!(conn, "DELETE FROM teammates WHERE id = $1", (id.0))
}

/// HMACs that identify a removed person.
#[derive(Debug)]
pub struct Removed {
    /// HMAC of the e-mail address.
    pub email: [u8; 32],
    /// HMACs of the linked provider accounts.
    pub accounts: Vec<[u8; 32]>,
}

pub async fn remember_removed(conn: &mut PgConnection, removed: &Removed, now: Timestamp) -> sqlx::Result<()> {
    let accounts: Vec<&[u8]> = removed.accounts.iter().map(<[u8; 32]>::as_slice).collect();
    execute!(
        conn,
        "INSERT INTO removed_teammates (email_mac, account_mac, removed_at)
         SELECT $1, account, $3 FROM (SELECT unnest($2::bytea[]) UNION ALL SELECT NULL WHERE cardinality($2::bytea[]) = 0) AS a (account)",
        (removed.email.as_slice(), &accounts as &[&[u8]], now)
    )
}

/// Whether a person with this e-mail address or account was removed.
pub async fn was_removed(conn: &mut PgConnection, email: &[u8; 32], account: &[u8; 32]) -> sqlx::Result<bool> {
    fetch_one!(
        conn,
        scalar,
        r#"SELECT EXISTS (SELECT FROM removed_teammates WHERE email_mac = $1)
               OR EXISTS (SELECT FROM removed_teammates WHERE account_mac = $2) AS "was!""#,
        (email.as_slice(), account.as_slice())
    )
}

/// Deletes the record of a removed person and their accounts.
pub async fn forget_removed(conn: &mut PgConnection, email: &[u8; 32]) -> sqlx::Result<()> {
    execute!(conn, "DELETE FROM removed_teammates WHERE email_mac = $1", (email.as_slice()))
}

/// Creates a one-time link that is valid until a time. The previous one becomes invalid.
pub async fn set_link(
    conn: &mut PgConnection, id: TeammateId, token_mac: &[u8; 32], now: Timestamp, expires_at: Timestamp,
) -> sqlx::Result<()> {
    execute!(
        conn,
        "INSERT INTO invitations (teammate, token_mac, created_at, expires_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (teammate) DO UPDATE
         SET token_mac = excluded.token_mac, created_at = excluded.created_at, expires_at = excluded.expires_at",
        (id.0, token_mac.as_slice(), now, expires_at)
    )
}

/// Returns the teammate of a valid link.
pub async fn link_of(pool: &PgPool, token_mac: &[u8; 32], now: Timestamp) -> sqlx::Result<Option<TeammateId>> {
    fetch_optional!(
        pool,
        scalar,
        r#"SELECT i.teammate AS "teammate: TeammateId" FROM invitations i JOIN teammates t ON t.id = i.teammate
         WHERE i.token_mac = $1 AND i.expires_at > $2 AND t.disabled_at IS NULL"#,
        (token_mac.as_slice(), now)
    )
}

/// Uses up a link, and returns its teammate. `None`: the link is invalid.
pub async fn use_link(
    conn: &mut PgConnection, token_mac: &[u8; 32], now: Timestamp,
) -> sqlx::Result<Option<TeammateId>> {
    fetch_optional!(
        conn,
        scalar,
        r#"DELETE FROM invitations i USING teammates t
         WHERE i.token_mac = $1 AND i.expires_at > $2 AND t.id = i.teammate AND t.disabled_at IS NULL
         RETURNING i.teammate AS "teammate: TeammateId""#,
        (token_mac.as_slice(), now)
    )
}

/// Returns the stored values to verify a password. `None`: unknown e-mail address.
pub async fn credentials(pool: &PgPool, vault: &Vault, email: &str) -> sqlx::Result<Option<Credentials>> {
    let found = fetch_optional!(
        pool,
        r#"SELECT id AS "id: TeammateId", password_sealed, disabled_at FROM teammates WHERE email = $1"#,
        (email)
    )?;
    let Some(row) = found else { return Ok(None) };
    let password_hash = open_hash(vault, PASSWORD, row.id, row.password_sealed)?;
    Ok(Some(Credentials { id: row.id, password_hash, disabled_at: row.disabled_at }))
}

/// Sets or deletes a password hash. Pending passkey challenges of password sign-ins become invalid.
pub async fn set_password(
    conn: &mut PgConnection, vault: &Vault, id: TeammateId, hash: Option<&str>,
) -> sqlx::Result<()> {
    let sealed = hash.map(|hash| vault.seal(PASSWORD, id, hash.as_bytes()));
    execute!(&mut *conn, "DELETE FROM passkey_challenges WHERE teammate = $1", (id.0))?;
    execute!(conn, "UPDATE teammates SET password_sealed = $2 WHERE id = $1", (id.0, sealed))
}
