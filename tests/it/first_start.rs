//! The first start on a database: what it asks of it, and what it leaves alone.

use std::path::Path;
use std::process::{Command, Output};

use bellwire_store as store;
use bellwire_store::keys::data_keys;
use bellwire_store::operations::schema::{self, Contents, SchemaError};
use bellwire_vault::master_key::{MasterKey, MasterKeySource};
use sqlx::{AssertSqlSafe, PgPool};

use crate::support::app::PATIENCE;
use crate::support::{FaultProxy, START, Server, TempDir, TestApp, TestDatabase};

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
async fn first_start_creates_key_directory_and_schema() {
    let (database, dir) = (TestDatabase::empty().await, TempDir::new());
    let data_dir = dir.path().join("not/there/yet");
    let output = migrate(&data_dir, &[("DATABASE_URL", database.url())]).await;
    assert!(output.status.success(), "{output:?}");
    assert!(data_dir.join("master.key").exists());
    assert_eq!(names_in(&database.pool, "public").await, Vec::<String>::new());
    store::check_schema(&database.options()).await.expect("migrated");
}

#[tokio::test]
async fn failed_master_key_leaves_the_database_unchanged() {
    let (database, dir) = (TestDatabase::empty().await, TempDir::new());
    std::fs::write(dir.path().join("file"), "").expect("a file");
    let output = migrate(&dir.path().join("file/data"), &[("DATABASE_URL", database.url())]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("the master key cannot be made at"), "{output:?}");
    assert!(matches!(contents(&database).await, Contents::Nothing));
}

#[tokio::test]
async fn wrong_master_key_migrates_nothing() {
    let (database, dir) = (TestDatabase::create().await, TempDir::new());
    data_keys::open(&database.pool, &MasterKeySource::Given(MasterKey::generate()), START).await.expect("another key");
    MasterKey::generate().write(&dir.path().join("master.key")).expect("written");
    run(&database.pool, "DELETE FROM _sqlx_migrations WHERE version = 4").await;
    let output = migrate(dir.path(), &[("DATABASE_URL", database.url())]).await;
    assert!(
        said(&output)
            .contains(&format!("the master key in {} is not the one", dir.path().join("master.key").display())),
        "{output:?}"
    );
    let error = store::check_schema(&database.options()).await.expect_err("as it was");
    assert!(matches!(&error, SchemaError::Old { missing } if *missing == [4]), "{error}");
}

#[tokio::test]
async fn foreign_database_is_refused_unless_named() {
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
async fn foreign_schema_of_our_name_is_untouched() {
    let (database, dir) = (TestDatabase::empty().await, TempDir::new());
    run(&database.pool, "CREATE SCHEMA bellwire; CREATE TABLE bellwire.users (id bigint)").await;
    let output = migrate(dir.path(), &[("BELLWIRE_DATABASE_URL", database.url())]).await;
    assert!(said(&output).contains("holds bellwire.users, which Bellwire did not make"), "{output:?}");
    assert_eq!(names_in(&database.pool, "bellwire").await, ["users"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn start_survives_each_cut_connection() {
    let (app, proxy) = (TestApp::start().await, FaultProxy::start().await);
    let mut starts = 0;
    loop {
        proxy.cut_connection_after(starts);
        let mut server = Server::begin_on(&app, &["--roles", "worker"], &proxy.url(&app.database.name));
        server.until_started().await;
        let is_past = proxy.awaits_cut();
        server.terminate();
        assert!(server.end(PATIENCE).await.success(), "after {starts} connections");
        if is_past {
            break;
        }
        starts += 1;
    }
    assert!(starts > 3, "a start opens several connections before it serves, not {starts}");
    app.finish().await;
}
