//! Migrations change databases that are in use.

use std::fs;
use std::path::Path;

use sqlx::{AssertSqlSafe, PgPool};

use crate::support::TestDatabase;

/// A database as migrations up to that number left it.
async fn before(number: u32) -> TestDatabase {
    let database = TestDatabase::create().await;
    sqlx::raw_sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public").execute(&database.pool).await.expect("emptied");
    for earlier in 1..number {
        migrate(&database.pool, earlier).await;
    }
    database
}

async fn migrate(pool: &PgPool, number: u32) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let files = fs::read_dir(directory).expect("the migrations").map(|file| file.expect("a file").path());
    let prefix = format!("{number:04}_");
    let mut files =
        files.filter(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)));
    let Some(file) = files.next() else { return };
    let sql = fs::read_to_string(file).expect("a migration");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.expect("it applies");
}

#[tokio::test]
async fn keys_of_before_scopes_were_split_keep_what_they_could_do() {
    let database = before(11).await;
    sqlx::raw_sql(
        "INSERT INTO apps (id, slug, name, created_at) VALUES ('00000000-0000-7000-8000-000000000001', 'shop', 'x', now());
         INSERT INTO api_keys (id, app, secret_mac, hint, name, scopes, created_at)
         SELECT gen_random_uuid(), CASE WHEN name <> 'd' THEN '00000000-0000-7000-8000-000000000001'::uuid END,
                sha256(name::bytea), 'bw_', name, scopes::text[], now()
         FROM (VALUES ('a', '{manage,read,send}'), ('b', '{send}'), ('c', '{read}'), ('d', '{operator}')) AS k (name, scopes)",
    )
    .execute(&database.pool)
    .await
    .expect("keys");
    migrate(&database.pool, 11).await;
    let scopes = sqlx::query_scalar::<_, String>("SELECT array_to_string(scopes, ' ') FROM api_keys ORDER BY name");
    let expected = [
        "export keys messages policies read send settings subscribers",
        "messages send", // it could stop what it had sent
        "read",
        "operator",
    ];
    assert_eq!(scopes.fetch_all(&database.pool).await.expect("keys"), expected);
    for wrong in ["'{manage}'", "'{operator}'", "'{metrics}'"] {
        let update = format!("UPDATE api_keys SET scopes = {wrong} WHERE app IS NOT NULL");
        sqlx::raw_sql(AssertSqlSafe(update)).execute(&database.pool).await.expect_err("no app's key has it");
    }
}
