//! Accounts at an OpenID provider, and the teammates that they belong to.

use sqlx::PgConnection;

use crate::keys::team::TeammateStatus;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::TeammateId;

#[derive(Debug, Clone, Copy)]
pub struct ProviderAccount<'a> {
    /// Issuer of the provider's tokens: 1 to 2,048 characters.
    pub issuer: &'a str,
    /// Subject of the account in tokens: 1 to 255 characters.
    pub subject: &'a str,
}

/// Returns the teammate of an account, if it is linked.
pub async fn owner(conn: &mut PgConnection, account: ProviderAccount<'_>) -> sqlx::Result<Option<TeammateStatus>> {
    fetch_optional!(
        conn,
        TeammateStatus,
        r#"SELECT t.id, t.disabled_at IS NOT NULL AS "is_disabled!"
         FROM oidc_accounts a JOIN teammates t ON t.id = a.teammate WHERE a.issuer = $1 AND a.subject = $2"#,
        (account.issuer, account.subject)
    )
}

/// Returns issuer and subject of a teammate's linked accounts.
pub async fn accounts(conn: &mut PgConnection, teammate: TeammateId) -> sqlx::Result<Vec<(String, String)>> {
    let rows = fetch_all!(conn, "SELECT issuer, subject FROM oidc_accounts WHERE teammate = $1", (teammate.0))?;
    Ok(rows.into_iter().map(|row| (row.issuer, row.subject)).collect())
}

/// Links an account to a teammate. Returns `false` if it is linked to another teammate, or the teammate has another account at
/// that provider.
pub async fn link(
    conn: &mut PgConnection, teammate: TeammateId, account: ProviderAccount<'_>, now: Timestamp,
) -> sqlx::Result<bool> {
    let done = rows_affected!(
        conn,
        "INSERT INTO oidc_accounts (teammate, issuer, subject, linked_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        (teammate.0, account.issuer, account.subject, now)
    )?;
    Ok(done == 1)
}

/// Unlinks all accounts of a teammate. Returns `false` if there are none. Pending passkey challenges of OpenID sign-ins become
/// invalid.
pub async fn unlink(conn: &mut PgConnection, teammate: TeammateId) -> sqlx::Result<bool> {
    execute!(
        &mut *conn,
        "DELETE FROM passkey_challenges WHERE teammate = $1 AND oidc_issuer IS NOT NULL",
        (teammate.0)
    )?;
    let done = rows_affected!(conn, "DELETE FROM oidc_accounts WHERE teammate = $1", (teammate.0))?;
    Ok(done > 0)
}
