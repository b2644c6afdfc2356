//! Analyzes tables that have just started to grow.
//!
//! Frequent statements join their parameters with a table by index. While Postgres assumes that the table is almost empty, it
//! reads the whole table for all parameters. That is right for a few rows, and a hundred times slower for thousands. Autovacuum
//! corrects it only after a minute or more, when a first campaign is over.

use crate::transactions::begin_with;
use sqlx::{AssertSqlSafe, PgPool};

/// Number of rows from which all plans use an index, with any parameters.
const SMALL: f32 = 1_000.0;
/// Begins a transaction with a short lock timeout. If another session analyzes or changes the table, the analysis is skipped.
const LOCK_TIMEOUT: &str = "BEGIN; SET LOCAL lock_timeout = '100ms'";

/// Analyzes tables that have outgrown their statistics, after which statements are planned again. It costs almost nothing if
/// there are none. Each table is analyzed a few times in its life.
pub async fn refresh(pool: &PgPool) -> sqlx::Result<()> {
    let grown = fetch_all!(
        pool,
        scalar,
        r#"SELECT format('%I.%I', relnamespace::regnamespace::text, relname) AS "table!" FROM pg_class
           WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND relkind = 'r' AND reltuples < $1
             AND pg_stat_get_live_tuples(oid) >= $1 AND pg_stat_get_mod_since_analyze(oid) >= $1"#,
        (SMALL)
    )?;
    for table in grown {
        let mut tx = begin_with(pool, LOCK_TIMEOUT).await?;
        sqlx::query(AssertSqlSafe(format!("ANALYZE {table}"))).execute(&mut *tx).await?;
        tx.commit().await?;
    }
    Ok(())
}
