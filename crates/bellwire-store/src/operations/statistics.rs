//! Statistics of tables that have just begun to grow.
//!
//! Hot statements join their parameters with a table, by index. While Postgres assumes that the table has almost no rows, it
//! prefers reading all of it and comparing each row with all parameters. This is right for a few rows, and a hundred times the
//! work for thousands. Autovacuum corrects it, with default settings after a minute or more, in which a first campaign is over.

use crate::transactions::begin_with;
use sqlx::{AssertSqlSafe, PgPool};

/// Rows that are enough for all plans to use an index, with any parameters.
const SMALL: f32 = 1_000.0;
/// Another session may be analyzing or changing the table. Then nothing is to be done, or later.
const LOCK_TIMEOUT: &str = "BEGIN; SET LOCAL lock_timeout = '100ms'";

/// Analyzes tables that have outgrown what is known of them; statements under way are planned anew by that. Costs nothing to
/// speak of where there are none, and each table a few times in its life.
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
