//! Start-up checks of an external database: a pooler in between must keep sessions together, and commits must be confirmed.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;
use uuid::Uuid;

use super::tls;

/// Name of a custom setting that Postgres stores but does not use.
const MARK: &str = "bellwire.session";
/// Text of PgBouncer's error about a transaction in statement mode.
const STATEMENT_MODE: &str = "statement pooling mode";
/// Number of tests, because a pooler may return the right session by chance.
const TRIES: usize = 3;
/// Maximum wait for a second connection of a pooler. A pooler with a single connection keeps sessions together.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether settings of a connection apply only to it, for its whole life. That fails with a PgBouncer in transaction or
/// statement mode, which lends a session to one client after another. Settings, prepared statements and advisory locks then
/// belong to any client.
pub async fn keeps_sessions(options: &PgConnectOptions) -> sqlx::Result<bool> {
    let connect = || async { tls::connect(options).await };
    let mut ours = connect().await?;
    let mut other = match timeout(PATIENCE, connect()).await {
        Ok(Ok(other)) => other,
        _ => return Ok(true), // there is none to spare, for anybody
    };
    for _ in 0..TRIES {
        let mark = Uuid::now_v7().to_string();
        let set = format!("SELECT set_config('{MARK}', '{mark}', false)");
        // The simple protocol: named statements are just what may not work.
        sqlx::raw_sql(sqlx::AssertSqlSafe(set)).execute(&mut ours).await?;
        // It keeps the session that it is lent while we ask for ours.
        match timeout(PATIENCE, sqlx::raw_sql("BEGIN").execute(&mut other)).await {
            Ok(Err(sqlx::Error::Database(refused))) if refused.message().contains(STATEMENT_MODE) => return Ok(false),
            Ok(begun) => begun.map(|_| ())?,
            Err(_) => return Ok(true),
        }
        let leaked = marked(&mut other).await? == mark;
        let kept = timeout(PATIENCE, marked(&mut ours)).await;
        sqlx::raw_sql("ROLLBACK").execute(&mut other).await?;
        let is_kept = match kept {
            Ok(kept) => kept? == mark,
            Err(_) => false, // it waits for a session, having had one
        };
        if leaked || !is_kept {
            return Ok(false);
        }
    }
    other.close().await?;
    ours.close().await?;
    Ok(true)
}

async fn marked(connection: &mut PgConnection) -> sqlx::Result<String> {
    use sqlx::Row as _;
    let read = format!("SELECT coalesce(current_setting('{MARK}', true), '')");
    sqlx::raw_sql(sqlx::AssertSqlSafe(read)).fetch_one(connection).await?.try_get(0)
}

/// Returns `synchronous_standby_names`: the standbys that commits wait for. `None`: commits wait for none.
pub async fn awaited_standbys(options: &PgConnectOptions) -> sqlx::Result<Option<String>> {
    let mut connection = tls::connect(options).await?;
    let names = fetch_optional!(
        &mut connection,
        scalar,
        r#"SELECT nullif(current_setting('synchronous_standby_names'), '')
           WHERE current_setting('synchronous_commit') NOT IN ('off', 'local')"#
    )?;
    let names = names.flatten();
    connection.close().await?;
    Ok(names)
}

/// Commits a transaction without effect. Returns when the commit is confirmed, which may never happen.
pub async fn commit(options: &PgConnectOptions) -> sqlx::Result<()> {
    let mut connection = tls::connect(options).await?;
    fetch_one!(&mut connection, scalar, r#"SELECT pg_logical_emit_message(true, 'bellwire', '')::text"#)?;
    connection.close().await
}
