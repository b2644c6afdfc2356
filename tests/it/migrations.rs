//! The schema: every table and column is described, and only a database that this program can continue is migrated.

use std::collections::BTreeSet;
use std::fs;

use bellwire_store::{self as store, Beside, SchemaError};

use crate::support::TestDatabase;
use crate::support::app::scalar;
use crate::support::repository::migration_files;

/// Tables and columns that a `CREATE TABLE` describes: by `--` after a column, or on the lines above it.
fn described(sql: &str) -> BTreeSet<(String, String)> {
    let (mut found, mut table, mut above) = (BTreeSet::new(), None, false);
    for line in sql.lines() {
        if let Some(name) = line.strip_prefix("CREATE TABLE ") {
            table = name.split(' ').next();
        } else if line.starts_with(')') {
            table = None;
        } else if let (Some(table), Some(column)) = (table, line.split_whitespace().next()) {
            let (_, comment) = line.split_once("--").unwrap_or_default();
            let is_column = column.starts_with(|c: char| c.is_ascii_lowercase());
            if is_column && (above || comment.trim().len() > 2) {
                found.insert((table.to_owned(), column.to_owned()));
            }
            above = column == "--";
        }
    }
    found
}

#[test]
fn columns_without_comments_are_noticed() {
    let sql = "CREATE TABLE a (\n    b text, -- name\n    -- two\n    -- lines\n    c text,\n    d text,\n    CHECK (b = c)\n);\ne f -- g";
    let pair = |column: &str| ("a".to_owned(), column.to_owned());
    assert_eq!(described(sql), BTreeSet::from([pair("b"), pair("c")]));
}

#[tokio::test]
async fn every_table_and_column_is_described() {
    let database = TestDatabase::create().await;
    let ours = "c.relnamespace = 'bellwire'::regnamespace AND NOT c.relispartition AND c.relname <> '_sqlx_migrations'";
    let tables = format!(
        "SELECT relname::text, obj_description(oid, 'pg_class') FROM pg_class c WHERE {ours} AND relkind IN ('r', 'p', 'v')"
    );
    let columns = format!(
        "SELECT relname::text, attname::text, col_description(c.oid, attnum) FROM pg_class c JOIN pg_attribute ON attrelid = c.oid
         WHERE {ours} AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped"
    );
    let tables: Vec<(String, Option<String>)> =
        sqlx::query_as(sqlx::AssertSqlSafe(tables)).fetch_all(&database.pool).await.expect("tables");
    let columns: Vec<(String, String, Option<String>)> =
        sqlx::query_as(sqlx::AssertSqlSafe(columns)).fetch_all(&database.pool).await.expect("columns");
    assert!(tables.len() > 80 && columns.len() > 600, "{} tables, {} columns", tables.len(), columns.len());
    let commented: BTreeSet<_> =
        migration_files().iter().flat_map(|file| described(&fs::read_to_string(file).expect("a migration"))).collect();
    let tables = tables.into_iter().filter(|(_, comment)| comment.is_none()).map(|(table, _)| table);
    let columns = columns
        .into_iter()
        .filter(|(table, column, comment)| comment.is_none() && !commented.contains(&(table.clone(), column.clone())));
    let missing: Vec<_> = tables.chain(columns.map(|(table, column, _)| format!("{table}.{column}"))).collect();
    assert!(missing.is_empty(), "without a comment: {missing:?}");
}

#[tokio::test]
async fn databases_of_unreleased_builds_are_left_unchanged() {
    let database = TestDatabase::empty().await;
    sqlx::raw_sql(
        "CREATE SCHEMA bellwire; CREATE TABLE bellwire.apps (id uuid);
         CREATE TABLE bellwire._sqlx_migrations (version bigint PRIMARY KEY, description text NOT NULL,
           installed_on timestamptz NOT NULL DEFAULT now(), success boolean NOT NULL, checksum bytea NOT NULL, execution_time bigint NOT NULL);
         INSERT INTO bellwire._sqlx_migrations SELECT n, 'former', now(), true, sha384(n::text::bytea), 0
         FROM unnest('{1, 2, 3, 4, 5, 6, 7, 8, 61, 91}'::int[]) AS n",
    )
    .execute(&database.pool)
    .await
    .expect("a former schema");
    let options = database.options();
    for error in [
        store::check_schema(&options).await.expect_err("another chain"),
        store::migrate(&options, Beside::Refuse).await.expect_err("another chain"),
        store::migrate(&options, Beside::Force).await.expect_err("another chain"),
    ] {
        assert!(matches!(error, SchemaError::Changed { version: 1 }), "{error}");
        let text = error.to_string();
        assert!(
            ["unreleased", "bellwire export", "DROP SCHEMA bellwire"].iter().all(|word| text.contains(word)),
            "{text}"
        );
    }
    let tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'bellwire'::regnamespace AND relkind = 'r'";
    assert_eq!(scalar(&database.pool, tables).await, 2);
    assert_eq!(scalar(&database.pool, "SELECT count(*) FROM _sqlx_migrations").await, 10);
}

/// Removes what the last migration of the baseline created.
async fn undo_the_last(database: &TestDatabase) {
    sqlx::raw_sql(
        "DROP FUNCTION subscriptions_tell_new, subscriptions_tell_change CASCADE;
         DROP TABLE webhook_attempts, webhook_deliveries, webhook_cursor, webhook_notes, webhooks;
         DELETE FROM _sqlx_migrations WHERE version = 7",
    )
    .execute(&database.pool)
    .await
    .expect("undone");
}

#[tokio::test]
async fn migration_waits_for_older_workers_to_stop() {
    let database = TestDatabase::create().await;
    let options = database.options();
    let beat = async |ago_s: f64| {
        let beat = "INSERT INTO workers (id, started_at, beat_at, version, beats)
                    VALUES (uuid(lpad('1', 32, '0')), now(), now() - $1 * interval '1 second', '0.0.1', 1)
                    ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at";
        sqlx::query(beat).bind(ago_s).execute(&database.pool).await.expect("a beat");
    };
    beat(0.0).await;
    store::migrate(&options, Beside::Refuse).await.expect("nothing is missing, so nobody is in the way");
    undo_the_last(&database).await;
    let refused = store::migrate(&options, Beside::Refuse).await.expect_err("a worker lives");
    assert!(matches!(refused, SchemaError::InUse { workers: 1 }), "{refused}");
    assert!(refused.to_string().contains("bellwire migrate --force"), "{refused}");
    store::migrate(&options, Beside::Force).await.expect("somebody insists");
    undo_the_last(&database).await;
    beat(16.0).await;
    store::migrate(&options, Beside::Refuse).await.expect("it counts as dead");
    store::check_schema(&options).await.expect("all is there");
}
