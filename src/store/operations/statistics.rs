//! Statistics of tables that have just begun to grow.
//!
//! Hot statements join what they are handed with a table, by index. While Postgres believes that the table has next to no rows, it finds it
//! cheaper to read all of it and compare each row with everything that was handed over: right for a few rows, and a hundred times the work
//! once there are thousands. Autovacuum puts that right when its turn comes, with default settings after a minute or more, in which a first
//! campaign is over.

use crate::store::transactions::begin_with;
use sqlx::{AssertSqlSafe, PgPool};

/// So many rows are enough for every plan to go by index, whatever is handed over.
const SMALL: f32 = 1_000.0;
/// Somebody else may be analyzing the table, or changing it: then nothing is to be done, or later.
const LOCK_TIMEOUT: &str = "BEGIN; SET LOCAL lock_timeout = '100ms'";

/// Analyzes tables that have outgrown what is known of them; statements under way are planned anew by that. Costs nothing to
/// speak of where there are none, and each table a few times in its life.
pub(crate) async fn refresh(pool: &PgPool) -> sqlx::Result<()> {
    let grown = sqlx::query_scalar!(
        r#"SELECT format('%I.%I', relnamespace::regnamespace::text, relname) AS "table!" FROM pg_class
           WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND relkind = 'r' AND reltuples < $1
             AND pg_stat_get_live_tuples(oid) >= $1 AND pg_stat_get_mod_since_analyze(oid) >= $1"#,
        SMALL
    )
    .fetch_all(pool)
    .await?;
    for table in grown {
        let mut tx = begin_with(pool, LOCK_TIMEOUT).await?;
        sqlx::query(AssertSqlSafe(format!("ANALYZE {table}"))).execute(&mut *tx).await?;
        tx.commit().await?;
    }
    Ok(())
}
