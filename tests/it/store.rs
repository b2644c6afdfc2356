//! What the store promises about connections, the schema and the data keys.

use bellwire::store::{self, SchemaError};
use sqlx::postgres::PgPool;
use sqlx::{Connection, PgConnection};

use crate::support::{FaultProxy, Moment, TestDatabase};

async fn stops(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM stops").fetch_one(pool).await.expect("a count")
}

/// Inserts a row in a transaction and commits it.
async fn insert_and_commit(pool: &PgPool) -> Result<(), sqlx::Error> {
    let mut tx = pool.begin().await?;
    sqlx::query(
        "INSERT INTO stops (id, at, kind, target) VALUES (gen_random_uuid(), 'epoch', 'message', gen_random_uuid())",
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}

#[tokio::test]
async fn every_test_has_an_empty_migrated_database_of_its_own() {
    let (one, two) = (TestDatabase::create().await, TestDatabase::create().await);
    insert_and_commit(&one.pool).await.expect("a commit");
    assert_eq!((stops(&one.pool).await, stops(&two.pool).await), (1, 0));
}

#[tokio::test]
async fn a_connection_cut_before_a_commit_leaves_nothing() {
    let (database, proxy) = (TestDatabase::create().await, FaultProxy::start().await);
    let pool = store::connect(proxy.connect_options(&database.name), 2).await.expect("a pool");
    proxy.cut_at(Moment::Before, "commit");
    let error = insert_and_commit(&pool).await.expect_err("the connection was cut");
    assert!(store::is_transient(&error), "{error}");
    assert_eq!((proxy.sprung(), stops(&database.pool).await), (1, 0));
    insert_and_commit(&pool).await.expect("the trap springs once");
    assert_eq!(stops(&database.pool).await, 1);
}

#[tokio::test]
async fn a_connection_cut_after_a_commit_leaves_its_work_and_an_ignorant_client() {
    let (database, proxy) = (TestDatabase::create().await, FaultProxy::start().await);
    let pool = store::connect(proxy.connect_options(&database.name), 2).await.expect("a pool");
    proxy.cut_at(Moment::After, "commit");
    let error = insert_and_commit(&pool).await.expect_err("the connection was cut");
    assert!(store::is_transient(&error), "{error}");
    assert_eq!((proxy.sprung(), stops(&database.pool).await), (1, 1));
}

#[tokio::test]
async fn a_single_prepared_statement_is_cut_after_it_took_effect() {
    let (database, proxy) = (TestDatabase::create().await, FaultProxy::start().await);
    let pool = store::connect(proxy.connect_options(&database.name), 2).await.expect("a pool");
    let insert =
        "INSERT INTO stops (id, at, kind, target) VALUES (gen_random_uuid(), $1, 'message', gen_random_uuid())";
    let at = chrono::DateTime::UNIX_EPOCH;
    sqlx::query(insert).bind(at).execute(&pool).await.expect("prepared once");
    proxy.cut_at(Moment::After, "insert into stops");
    sqlx::query(insert).bind(at).execute(&pool).await.expect_err("the connection was cut");
    proxy.until_sprung(1).await;
    assert_eq!(stops(&database.pool).await, 2);
}

#[tokio::test]
async fn connections_that_are_refused_and_cut_are_transient_errors_and_heal() {
    let (database, proxy) = (TestDatabase::create().await, FaultProxy::start().await);
    let options = proxy.connect_options(&database.name);
    let mut connection = PgConnection::connect_with(&options).await.expect("a connection");
    proxy.refuse(true);
    proxy.cut();
    let error = store::database_now(&mut connection).await.expect_err("it was cut");
    assert!(store::is_transient(&error), "{error}");
    let error = PgConnection::connect_with(&options).await.expect_err("it is refused");
    assert!(store::is_transient(&error), "{error}");
    proxy.refuse(false);
    let mut connection = PgConnection::connect_with(&options).await.expect("it heals");
    store::database_now(&mut connection).await.expect("the time");
}

#[tokio::test]
async fn only_the_schema_of_this_program_is_accepted_without_migrating() {
    let database = TestDatabase::create().await;
    store::check_schema(&database.options()).await.expect("just migrated");
    sqlx::query("UPDATE _sqlx_migrations SET checksum = 'x' WHERE version = 2")
        .execute(&database.pool)
        .await
        .expect("1 row");
    let error = store::check_schema(&database.options()).await.expect_err("changed");
    assert!(matches!(error, SchemaError::Changed { version: 2 }), "{error}");
    sqlx::query("DELETE FROM _sqlx_migrations WHERE version IN (2, 4)").execute(&database.pool).await.expect("2 rows");
    let error = store::check_schema(&database.options()).await.expect_err("old");
    assert!(matches!(&error, SchemaError::Old { missing } if *missing == [2, 4]), "{error}");
    sqlx::query("UPDATE _sqlx_migrations SET version = 9999 WHERE version = 3")
        .execute(&database.pool)
        .await
        .expect("1 row");
    let error = store::check_schema(&database.options()).await.expect_err("newer");
    assert!(matches!(error, SchemaError::Foreign { version: 9999 }), "{error}");
    let error = store::migrate(&database.options()).await.expect_err("newer");
    assert!(matches!(error, SchemaError::Foreign { version: 9999 }), "{error}");
    sqlx::query("DROP TABLE _sqlx_migrations").execute(&database.pool).await.expect("gone");
    let error = store::check_schema(&database.options()).await.expect_err("empty");
    assert!(matches!(&error, SchemaError::Old { missing } if missing.len() >= 4), "{error}");
}
