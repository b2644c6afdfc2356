//! Teammates: who they are, what they may do, and the one-time links by which they come in.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::model::clock::Timestamp;
use crate::model::id::AppId;
use crate::model::role::{Grant, Grants, Role};

/// A row of `teammates` with what belongs to it, without the password's hash.
#[derive(Debug, Clone)]
pub(crate) struct Teammate {
    /// Their id.
    pub id: Uuid,
    /// Their address, in lower case: what they sign in as.
    pub email: String,
    /// Whether they have set a password.
    pub has_password: bool,
    /// How many passkeys they have.
    pub passkeys: i64,
    /// Until when their one-time link works; none: there is none, or it has been used.
    pub link_expires_at: Option<Timestamp>,
    /// When they were invited.
    pub created_at: Timestamp,
    /// Since when they are not let in.
    pub disabled_at: Option<Timestamp>,
    /// What they may do.
    pub grants: Grants,
}

/// What is checked when somebody signs in by password.
pub(crate) struct Credentials {
    /// The teammate.
    pub id: Uuid,
    /// A PHC string; none: has no password.
    pub password_hash: Option<String>,
    /// Since when they are not let in.
    pub disabled_at: Option<Timestamp>,
}

/// Reads the roles of a teammate as two columns of the same order.
pub(crate) fn grants(roles: &[String], apps: &[Option<Uuid>]) -> Grants {
    let grant =
        |(role, app): (&String, &Option<Uuid>)| Some(Grant { role: Role::from_name(role)?, app: app.map(AppId) });
    Grants(roles.iter().zip(apps).filter_map(grant).collect())
}

struct Row {
    id: Uuid,
    email: String,
    has_password: bool,
    passkeys: i64,
    link_expires_at: Option<Timestamp>,
    created_at: Timestamp,
    disabled_at: Option<Timestamp>,
    roles: Vec<String>,
    apps: Vec<Option<Uuid>>,
}

/// Teammates with ids below `before`, the newest first.
pub(crate) async fn list(pool: &PgPool, before: Uuid, limit: i64) -> sqlx::Result<Vec<Teammate>> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT t.id, t.email, t.password_hash IS NOT NULL AS "has_password!", i.expires_at AS "link_expires_at?",
             t.created_at, t.disabled_at, (SELECT count(*) FROM passkeys WHERE teammate = t.id) AS "passkeys!",
             ARRAY(SELECT role FROM teammate_roles WHERE teammate = t.id ORDER BY app NULLS FIRST) AS "roles!: Vec<String>",
             ARRAY(SELECT app FROM teammate_roles WHERE teammate = t.id ORDER BY app NULLS FIRST) AS "apps!: Vec<Option<Uuid>>"
         FROM teammates t LEFT JOIN invitations i ON i.teammate = t.id
         WHERE t.id < $1 ORDER BY t.id DESC LIMIT $2"#,
        before,
        limit
    )
    .fetch_all(pool)
    .await?;
    let read = |row: Row| {
        let Row { id, email, has_password, passkeys, link_expires_at, created_at, disabled_at, roles, apps } = row;
        let grants = grants(&roles, &apps);
        Teammate { id, email, has_password, passkeys, link_expires_at, created_at, disabled_at, grants }
    };
    Ok(rows.into_iter().map(read).collect())
}

/// The teammate of that id.
pub(crate) async fn find(pool: &PgPool, id: Uuid) -> sqlx::Result<Option<Teammate>> {
    let above = Uuid::from_u128(id.as_u128().saturating_add(1));
    let first = list(pool, above, 1).await?.pop();
    Ok(first.filter(|teammate| teammate.id == id))
}

/// Adds a teammate without roles and without a password. False: another one has that address.
pub(crate) async fn add(conn: &mut PgConnection, id: Uuid, email: &str, now: Timestamp) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "INSERT INTO teammates (id, email, created_at) VALUES ($1, $2, $3) ON CONFLICT (email) DO NOTHING",
        id,
        email,
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Keeps others from changing a teammate until the transaction ends. False: there is no such teammate.
pub(crate) async fn lock(conn: &mut PgConnection, id: Uuid) -> sqlx::Result<bool> {
    let found = sqlx::query_scalar!("SELECT id FROM teammates WHERE id = $1 FOR UPDATE", id);
    Ok(found.fetch_optional(conn).await?.is_some())
}

/// Sets all roles of a teammate that is [locked](lock) or new.
pub(crate) async fn set_grants(conn: &mut PgConnection, id: Uuid, grants: &Grants) -> sqlx::Result<()> {
    let roles: Vec<String> = grants.0.iter().map(|grant| grant.role.name().to_owned()).collect();
    let apps: Vec<Option<Uuid>> = grants.0.iter().map(|grant| grant.app.map(|app| app.0)).collect();
    sqlx::query!("DELETE FROM teammate_roles WHERE teammate = $1", id).execute(&mut *conn).await?;
    sqlx::query!(
        "INSERT INTO teammate_roles (teammate, app, role)
         SELECT $1, app, role FROM unnest($2::uuid[], $3::text[]) AS given (app, role)",
        id,
        apps.as_slice() as &[Option<Uuid>],
        &roles
    )
    .execute(conn)
    .await
    .map(drop)
}

/// Lets a teammate in again (none), or not any more from then on.
pub(crate) async fn set_disabled(conn: &mut PgConnection, id: Uuid, at: Option<Timestamp>) -> sqlx::Result<()> {
    // When that began stays.
    sqlx::query!(
        "UPDATE teammates SET disabled_at = CASE WHEN $2::timestamptz IS NULL THEN NULL ELSE coalesce(disabled_at, $2) END
         WHERE id = $1",
        id,
        at
    )
    .execute(conn)
    .await
    .map(drop)
}

/// Removes a teammate with roles, link, passkeys and sessions. The audit log keeps their id.
pub(crate) async fn remove(conn: &mut PgConnection, id: Uuid) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM teammates WHERE id = $1", id).execute(conn).await.map(drop)
}

/// Makes a one-time link work until then; the one before does not any more.
pub(crate) async fn set_link(
    conn: &mut PgConnection,
    id: Uuid,
    token_mac: &[u8; 32],
    now: Timestamp,
    expires_at: Timestamp,
) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO invitations (teammate, token_mac, created_at, expires_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (teammate) DO UPDATE
         SET token_mac = excluded.token_mac, created_at = excluded.created_at, expires_at = excluded.expires_at",
        id,
        token_mac.as_slice(),
        now,
        expires_at
    )
    .execute(conn)
    .await
    .map(drop)
}

/// Whose link that is, if it works.
pub(crate) async fn link_of(pool: &PgPool, token_mac: &[u8; 32], now: Timestamp) -> sqlx::Result<Option<Uuid>> {
    sqlx::query_scalar!(
        "SELECT i.teammate FROM invitations i JOIN teammates t ON t.id = i.teammate
         WHERE i.token_mac = $1 AND i.expires_at > $2 AND t.disabled_at IS NULL",
        token_mac.as_slice(),
        now
    )
    .fetch_optional(pool)
    .await
}

/// Uses up a link. Returns whose it was; none: it does not work, or not any more.
pub(crate) async fn use_link(
    conn: &mut PgConnection,
    token_mac: &[u8; 32],
    now: Timestamp,
) -> sqlx::Result<Option<Uuid>> {
    sqlx::query_scalar!(
        "DELETE FROM invitations i USING teammates t
         WHERE i.token_mac = $1 AND i.expires_at > $2 AND t.id = i.teammate AND t.disabled_at IS NULL
         RETURNING i.teammate",
        token_mac.as_slice(),
        now
    )
    .fetch_optional(conn)
    .await
}

/// What to check a password by.
pub(crate) async fn credentials(pool: &PgPool, email: &str) -> sqlx::Result<Option<Credentials>> {
    sqlx::query_as!(Credentials, "SELECT id, password_hash, disabled_at FROM teammates WHERE email = $1", email)
        .fetch_optional(pool)
        .await
}

/// Sets a password's hash, or forgets it. What was asked of passkeys after the password before was shown does not count any more.
pub(crate) async fn set_password(conn: &mut PgConnection, id: Uuid, hash: Option<&str>) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM passkey_challenges WHERE teammate = $1", id).execute(&mut *conn).await?;
    sqlx::query!("UPDATE teammates SET password_hash = $2 WHERE id = $1", id, hash).execute(conn).await.map(drop)
}
