//! Connections, schema and data keys of the store.

use std::collections::BTreeMap;

use bellwire_store::keys::data_keys;
use bellwire_store::{self as store, SchemaError, operations::partitions};
use bellwire_vault::CONTENT;
use bellwire_vault::master_key::{MasterKey, MasterKeySource};
use chrono::{DateTime, Days, Utc};
use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use crate::support::citus::{cluster, partition_of_a_row};
use crate::support::{FaultProxy, Moment, START, TempDir, TestDatabase};

async fn stops(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM stops").fetch_one(pool).await.expect("a count")
}

/// Inserts a row in a transaction and commits it.
async fn insert_and_commit(pool: &PgPool) -> Result<(), sqlx::Error> {
    let mut tx = pool.begin().await?;
    sqlx::query("INSERT INTO stops (at, kind, target) VALUES ('epoch', 'cancel', gen_random_uuid())")
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

#[tokio::test]
async fn each_test_has_an_empty_migrated_database() {
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
async fn cut_after_commit_keeps_the_work() {
    let (database, proxy) = (TestDatabase::create().await, FaultProxy::start().await);
    let pool = store::connect(proxy.connect_options(&database.name), 2).await.expect("a pool");
    proxy.cut_at(Moment::After, "commit");
    let error = insert_and_commit(&pool).await.expect_err("the connection was cut");
    assert!(store::is_transient(&error), "{error}");
    assert_eq!((proxy.sprung(), stops(&database.pool).await), (1, 1));
}

#[tokio::test]
async fn cut_after_prepared_statement_keeps_the_work() {
    let (database, proxy) = (TestDatabase::create().await, FaultProxy::start().await);
    let pool = store::connect(proxy.connect_options(&database.name), 2).await.expect("a pool");
    let insert = "INSERT INTO stops (at, kind, target) VALUES ($1, 'cancel', gen_random_uuid())";
    let at = chrono::DateTime::UNIX_EPOCH;
    sqlx::query(insert).bind(at).execute(&pool).await.expect("prepared once");
    proxy.cut_at(Moment::After, "insert into stops");
    sqlx::query(insert).bind(at).execute(&pool).await.expect_err("the connection was cut");
    proxy.until_sprung(1).await;
    assert_eq!(stops(&database.pool).await, 2);
}

#[tokio::test]
async fn refused_and_cut_connections_are_transient() {
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
async fn only_the_own_schema_is_accepted() {
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
    let error = store::migrate(&database.options(), store::Beside::Refuse).await.expect_err("newer");
    assert!(matches!(error, SchemaError::Foreign { version: 9999 }), "{error}");
    sqlx::query("DROP TABLE _sqlx_migrations").execute(&database.pool).await.expect("gone");
    let error = store::check_schema(&database.options()).await.expect_err("somebody else's");
    assert!(matches!(&error, SchemaError::Taken { table } if table == "bellwire.acme_accounts"), "{error}");
    let empty = TestDatabase::empty().await;
    let error = store::check_schema(&empty.options()).await.expect_err("empty");
    assert!(matches!(&error, SchemaError::Old { missing } if missing.len() >= 4), "{error}");
}

#[tokio::test]
async fn later_starts_need_the_same_master_key() {
    let (database, dir) = (TestDatabase::create().await, TempDir::new());
    let source = MasterKeySource::File(dir.path().join("master.key"));
    assert_eq!(data_keys::check(&database.pool, &source).await.expect("an empty database needs no key"), 0);
    // Replicas that start together.
    let (one, two) =
        tokio::join!(data_keys::open(&database.pool, &source, START), data_keys::open(&database.pool, &source, START));
    let row = Uuid::now_v7();
    let sealed = one.expect("made").seal(CONTENT, row, b"secret");
    assert_eq!(two.expect("made once").open(CONTENT, row, &sealed).as_deref(), Ok(b"secret".as_slice()));

    assert_eq!(data_keys::check(&database.pool, &source).await.expect("the right key"), 2);

    let wrong = MasterKeySource::Given(MasterKey::generate());
    let error = data_keys::open(&database.pool, &wrong, START).await.expect_err("another key");
    assert!(matches!(error, data_keys::Error::Wrong(_)), "{error}");
    let elsewhere = MasterKeySource::File(dir.path().join("lost.key"));
    let error = data_keys::open(&database.pool, &elsewhere, START).await.expect_err("no key");
    assert!(matches!(error, data_keys::Error::Missing(_)), "{error}");
    assert!(!dir.path().join("lost.key").exists(), "no key is made for a database that has one");
}

#[tokio::test]
async fn new_master_key_replaces_the_old() {
    let database = TestDatabase::create().await;
    let (old, new) = (MasterKey::generate(), MasterKey::generate());
    let old = MasterKeySource::Given(old);
    let row = Uuid::now_v7();
    let sealed = data_keys::open(&database.pool, &old, START).await.expect("made").seal(CONTENT, row, b"secret");
    let MasterKeySource::Given(old_key) = &old else { unreachable!("just made") };
    let mut connection = database.pool.acquire().await.expect("a connection");
    data_keys::rotate_master(&mut connection, old_key, &new).await.expect("rotated");
    let error = data_keys::open(&database.pool, &old, START).await.expect_err("the old key");
    assert!(matches!(error, data_keys::Error::Wrong(_)), "{error}");
    let vault = data_keys::open(&database.pool, &MasterKeySource::Given(new), START).await.expect("the new key");
    assert_eq!(vault.open(CONTENT, row, &sealed).as_deref(), Ok(b"secret".as_slice()));
}

#[tokio::test]
async fn used_database_gets_no_new_keys() {
    let (database, dir) = (TestDatabase::create().await, TempDir::new());
    sqlx::query("INSERT INTO apps (id, slug, name, created_at) VALUES (gen_random_uuid(), 'a', 'a', 'epoch')")
        .execute(&database.pool)
        .await
        .expect("an app");
    let path = dir.path().join("master.key");
    let error = data_keys::open(&database.pool, &MasterKeySource::File(path.clone()), START).await.expect_err("in use");
    assert!(matches!(error, data_keys::Error::Lost), "{error}");
    assert!(!path.exists());
}

#[test]
fn readable_master_key_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new();
    let path = dir.path().join("master.key");
    MasterKey::generate().write(&path).expect("written");
    assert!(MasterKey::read(&path).expect("mode 0600").is_some());
    MasterKey::generate().write(&path).expect_err("a key is never overwritten");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("opened");
    let error = MasterKey::read(&path).expect_err("open to the group");
    assert_eq!(
        error.to_string(),
        format!("{} may be read or written by other users (mode 640): chmod 600 it", path.display())
    );
}

fn id_at(at: DateTime<Utc>) -> Uuid {
    Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, at.timestamp() as u64, 0))
}

async fn attempt(pool: &PgPool, message: Uuid) {
    sqlx::query(
        "INSERT INTO attempts (message, subscription, attempt, shard, at, ending) VALUES ($1, $1, 0, 0, 'epoch', 0)",
    )
    .bind(message)
    .execute(pool)
    .await
    .expect("no attempt is refused");
}

async fn attempts_in(pool: &PgPool) -> Vec<(String, i64)> {
    let counted = format!("SELECT {}, count(*) FROM attempts GROUP BY 1 ORDER BY 1", partition_of_a_row());
    sqlx::query_as(AssertSqlSafe(counted)).fetch_all(pool).await.expect("rows")
}

#[tokio::test]
async fn late_partition_takes_its_rows_back() {
    let database = TestDatabase::create().await;
    let (pool, now) = (&database.pool, START + Days::new(100)); // 25 April, far from the days that the template has
    let (one, two) = tokio::join!(partitions::ensure(pool, now), partitions::ensure(pool, now));
    assert_eq!(one.expect("made") + two.expect("made"), 20, "10 days for each of 2 tables, made once");
    assert_eq!(partitions::ensure(pool, now).await.expect("nothing to do"), 0);

    attempt(pool, id_at(now)).await;
    attempt(pool, id_at(now - Days::new(40))).await;
    attempt(pool, id_at(now + Days::new(9))).await;
    assert_eq!(attempts_in(pool).await, [("attempts_20270425".to_owned(), 1), ("attempts_default".to_owned(), 2)]);

    // On Citus a day stays in the default partition that has rows there already.
    let (made, late) = if cluster().is_some() { (1, "attempts_default") } else { (2, "attempts_20270504") };
    assert_eq!(partitions::ensure(pool, now + Days::new(1)).await.expect("the next day"), made);
    let by_day = |rows: &[&str]| {
        let mut n = BTreeMap::new();
        rows.iter().for_each(|day| *n.entry((*day).to_owned()).or_insert(0) += 1);
        n.into_iter().collect::<Vec<(String, i64)>>()
    };
    assert_eq!(attempts_in(pool).await, by_day(&["attempts_20270425", late, "attempts_default"]));

    // Retention: the template's ten days and 24 April go, and what lies before in the default partition; the 25th stays.
    assert_eq!(partitions::drop_before(pool, now).await.expect("dropped"), 2 * 11);
    assert_eq!(partitions::clear_defaults(pool, now).await.expect("cleared"), 1);
    assert_eq!(attempts_in(pool).await, by_day(&["attempts_20270425", late]));
}
