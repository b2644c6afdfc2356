//! The first start on a database: what it asks of it, and what it leaves alone.

use std::path::Path;
use std::process::{Command, Output};

use bellwire::testkit::store::keys::data_keys;
use bellwire::testkit::store::operations::schema::{self, Contents, SchemaError};
use bellwire::testkit::store::{self, operations::partitions};
use bellwire::testkit::vault::master_key::{MasterKey, Source};
use chrono::Days;
use sqlx::{AssertSqlSafe, PgPool};

use crate::support::{START, TempDir, TestDatabase};

/// `bellwire migrate` with nothing of our environment but these variables and the way to Postgres.
async fn migrate(data_dir: &Path, variables: &[(&str, String)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire"));
    command.arg("migrate").env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.env("BELLWIRE_DATA_DIR", data_dir).envs(variables.iter().cloned());
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn contents(database: &TestDatabase) -> Contents {
    schema::inspect(&database.options()).await.expect("it can be looked at")
}

async fn run(pool: &PgPool, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await.expect("it runs");
}

/// The tables, sequences and functions of a schema.
async fn names_in(pool: &PgPool, schema: &str) -> Vec<String> {
    let names = "SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace($1)
                 UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = to_regnamespace($1) ORDER BY 1";
    sqlx::query_scalar(names).bind(schema).fetch_all(pool).await.expect("names")
}

#[tokio::test]
async fn a_first_start_makes_the_directory_of_its_master_key_and_keeps_to_its_own_schema() {
    let (database, dir) = (TestDatabase::empty().await, TempDir::new());
    let data_dir = dir.path().join("not/there/yet");
    let output = migrate(&data_dir, &[("DATABASE_URL", database.url())]).await;
    assert!(output.status.success(), "{output:?}");
    assert!(data_dir.join("master.key").exists());
    assert_eq!(names_in(&database.pool, "public").await, Vec::<String>::new());
    store::check_schema(&database.options()).await.expect("migrated");
}

#[tokio::test]
async fn a_start_that_cannot_keep_a_master_key_leaves_the_database_as_it_was() {
    let (database, dir) = (TestDatabase::empty().await, TempDir::new());
    std::fs::write(dir.path().join("file"), "").expect("a file");
    let output = migrate(&dir.path().join("file/data"), &[("DATABASE_URL", database.url())]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("the master key cannot be made at"), "{output:?}");
    assert!(matches!(contents(&database).await, Contents::Nothing));
}

#[tokio::test]
async fn a_start_with_the_wrong_master_key_migrates_nothing() {
    let (database, dir) = (TestDatabase::create().await, TempDir::new());
    data_keys::open(&database.pool, &Source::Given(MasterKey::generate()), START).await.expect("another key");
    MasterKey::generate().write(&dir.path().join("master.key")).expect("written");
    run(&database.pool, "DELETE FROM _sqlx_migrations WHERE version = 4").await;
    let output = migrate(dir.path(), &[("DATABASE_URL", database.url())]).await;
    assert!(said(&output).contains("the master key is not the one"), "{output:?}");
    let error = store::check_schema(&database.options()).await.expect_err("as it was");
    assert!(matches!(&error, SchemaError::Old { missing } if *missing == [4]), "{error}");
}

#[tokio::test]
async fn another_applications_database_is_refused_with_words_unless_it_was_named_for_bellwire() {
    let (database, dir) = (TestDatabase::empty().await, TempDir::new());
    run(
        &database.pool,
        "CREATE TABLE public.users (id bigint); CREATE TABLE public._sqlx_migrations AS
         SELECT 1::bigint AS version, ''::bytea AS checksum",
    )
    .await;
    let output = migrate(dir.path(), &[("DATABASE_URL", database.url())]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for words in
        ["belongs to another application", "public._sqlx_migrations", "Unset DATABASE_URL", "BELLWIRE_DATABASE_URL"]
    {
        assert!(said(&output).contains(words), "{words} in {output:?}");
    }
    assert!(matches!(contents(&database).await, Contents::Others(_)));

    // Meant: it keeps to its schema, and later finds it by either variable.
    for variable in ["BELLWIRE_DATABASE_URL", "DATABASE_URL"] {
        let output = migrate(dir.path(), &[(variable, database.url())]).await;
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(names_in(&database.pool, "public").await, ["_sqlx_migrations", "users"]);
}

#[tokio::test]
async fn a_schema_of_our_name_that_somebody_else_made_is_left_alone() {
    let (database, dir) = (TestDatabase::empty().await, TempDir::new());
    run(&database.pool, "CREATE SCHEMA bellwire; CREATE TABLE bellwire.users (id bigint)").await;
    let output = migrate(dir.path(), &[("BELLWIRE_DATABASE_URL", database.url())]).await;
    assert!(said(&output).contains("holds bellwire.users, which Bellwire did not make"), "{output:?}");
    assert_eq!(names_in(&database.pool, "bellwire").await, ["users"]);
}

#[tokio::test]
async fn what_earlier_versions_made_in_public_is_moved_whole_and_nothing_else() {
    // There was no distributing yet.
    let (database, dir) = (TestDatabase::plain().await, TempDir::new());
    let key = MasterKey::generate();
    key.write(&dir.path().join("master.key")).expect("written");
    let source = Source::Given(key);
    data_keys::open(&database.pool, &source, START).await.expect("keys");
    let ours = names_in(&database.pool, "bellwire").await;
    run(
        &database.pool,
        "DROP SCHEMA public; ALTER SCHEMA bellwire RENAME TO public; CREATE TABLE public.theirs (id bigint)",
    )
    .await;

    let error = store::check_schema(&database.options()).await.expect_err("not where it belongs");
    assert!(matches!(error, SchemaError::Unmoved), "{error}");
    let variables = [("DATABASE_URL", database.url())];
    let (one, two) = tokio::join!(migrate(dir.path(), &variables), migrate(dir.path(), &variables));
    assert!(one.status.success() && two.status.success(), "replicas take turns: {one:?} {two:?}");

    assert_eq!(names_in(&database.pool, "public").await, ["theirs"]);
    let moved = names_in(&database.pool, "bellwire").await;
    assert!(ours.iter().all(|name| moved.contains(name)), "{ours:?} became {moved:?}");
    store::check_schema(&database.options()).await.expect("it is this program's");
    assert_eq!(data_keys::check(&database.pool, &source).await.expect("the same keys"), 2);
    let made = partitions::ensure(&database.pool, START + Days::new(1)).await.expect("parts find their tables");
    assert_eq!(made, 2, "one more day of each");
}
