//! Lock for conditional changes (`If-Match`).

use std::time::Duration;

use sqlx::PgConnection;

use bellwire_core::id::AppId;

/// Locks out other conditional changes of a kind of resource, of an app or (`None`) the server, in all processes, until the
/// transaction ends. Returns `false` after `patience`; the transaction has then failed.
pub async fn take_turn(
    conn: &mut PgConnection, app: Option<AppId>, kind: &str, patience: Duration,
) -> sqlx::Result<bool> {
    let kind = app.map_or_else(|| kind.to_owned(), |app| format!("{kind} {app}"));
    let patience = crate::milliseconds(patience);
    fetch_one!(&mut *conn, scalar, "SELECT set_config('lock_timeout', $1, true)", (patience))?;
    let turn =
        query!(scalar, "SELECT pg_advisory_xact_lock(hashtextextended('bellwire.edits ' || $1::text, 0))", (kind));
    match turn.fetch_one(conn).await {
        Ok(_) => Ok(true),
        Err(error) if crate::is_lock_timeout(&error) => Ok(false),
        Err(error) => Err(error),
    }
}
