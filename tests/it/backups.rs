//! Backups, and what a server does that was restored from one: it sends nothing twice, and nothing that was cancelled since.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use bellwire_postgres::DATABASE;
use bellwire_store::operations::schema::{self, Contents};
use bellwire_store::{self as store, SchemaError};
use bellwire_vault::master_key::MasterKey;
use serde_json::{Value, json};

use crate::support::app::{MASTER_KEY, PATIENCE, scalar};
use crate::support::backups::{AGE_IDENTITY, AGE_RECIPIENT};
use crate::support::campaigns::{plan, started};
use crate::support::database::reconnect;
use crate::support::engine::without_engine_on;
use crate::support::simulator_rules::{held, hold_after, release, until_report};
use crate::support::{Cluster, Server, TempDir, TestApp, TestDatabase, seed};

/// Head of a backup whose schema this program does not have.
const UNKNOWN: &str = r#"bellwire-backup/1
{"id":"00000000-0000-0000-0000-000000000000","began_at":"2026-11-01T00:00:00Z","program":"0.1.0","migration":91,"postgres":150018,"pg_dump":15,"data_keys":[]}
"#;

/// A database that is not distributed is backed up: a cluster of Citus has its own means.
async fn on_plain_postgres() -> TestApp {
    without_engine_on(Some(TestDatabase::plain().await)).await
}

/// The program on a database, with the tests' master key.
fn bellwire(dir: &TempDir, database: &TestDatabase, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire"));
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.env("BELLWIRE_DATA_DIR", dir.path()).env("BELLWIRE_MASTER_KEY", MASTER_KEY).current_dir(dir.path());
    command.env("BELLWIRE_DATABASE_URL", database.url()).args(args);
    command
}

async fn run(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs")
}

async fn done(dir: &TempDir, database: &TestDatabase, args: &[&str]) -> Value {
    let output = run(bellwire(dir, database, &[args, &["--json"]].concat())).await;
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// Why it failed.
async fn refused(dir: &TempDir, database: &TestDatabase, args: &[&str]) -> String {
    let output = run(bellwire(dir, database, args)).await;
    assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn is_untouched(database: &TestDatabase) -> bool {
    matches!(schema::inspect(&database.options()).await.expect("it answers"), Contents::Nothing)
}

/// Runs a server on that database until it has sent so many requests more than now, then stops it in good order.
async fn serve_until(app: &TestApp, database: &TestDatabase, more: u64) {
    let before = app.simulator.report().accepted;
    let server = Server::on(app, &["--roles", "worker,maintenance"], &database.url()).await;
    until_report(app, |report| report.accepted >= before + more).await;
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
}

/// Held work, by type.
fn kinds(list: &Value) -> Vec<&str> {
    let mut kinds: Vec<_> =
        list["data"].as_array().expect("a list").iter().filter_map(|it| it["kind"].as_str()).collect();
    kinds.sort_unstable();
    kinds
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_deliveries_wait_for_the_operator() {
    const N: u32 = 600;
    let (app, dir) = (on_plain_postgres().await, TempDir::new());
    seed(&app, "fcm", 0..N).await;
    let named = app.subscribe("apple", 0..3).await;
    let all = u64::from(N) + 3;
    let rules = hold_after(&app, 150);
    let server = Server::start(&app).await;
    let campaign = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| report.accepted >= 150 && held(report) >= 20).await;
    let to = |n: usize| json!({"subscriptions": [named[n].id]});
    let later = app.send(to(0), json!({"send_at": app.clock.now() + std::time::Duration::from_secs(3_600)})).await;
    // For later subscribers: there are none yet.
    let to_nobody = json!({"send_at": app.clock.now() + std::time::Duration::from_secs(3_600)});
    let to_nobody = app.send(json!({"segment": "gateway = 'mozilla'"}), to_nobody).await;
    started(&app, plan("spring", json!({"schedule": {"cron": "0 9 * * *", "timezone": "UTC"}}))).await;
    let file = dir.path().join("backup.age");
    let file = file.to_str().expect("UTF-8");
    let backup = done(&dir, &app.database, &["backup", "--output", file, "--recipient", AGE_RECIPIENT]).await;
    assert_eq!(backup["encrypted"], true);
    assert_eq!(
        scalar(&app.pool, "SELECT count(*) FROM backups WHERE completed_at IS NOT NULL AND octets > 1000").await,
        1
    );

    // The world goes on.
    release(&app, rules);
    let report = until_report(&app, |report| report.deliveries >= all).await;
    assert_eq!(report.deliveries, all);
    app.steer(&later, "cancel").await;
    server.terminate();
    assert!(server.end(PATIENCE).await.success());

    // The disk is lost, and the backup is restored.
    let (restored, key) = (TestDatabase::empty().await, dir.path().join("key.txt"));
    fs::write(&key, format!("# made for this test\n{AGE_IDENTITY}\n")).expect("a file");
    let key = key.to_str().expect("UTF-8");
    let told = done(&dir, &restored, &["restore", file, "--identity", key]).await;
    assert_eq!((&told["backup"], &told["backed_up_at"]), (&backup["id"], &backup["began_at"]));
    assert_eq!((&told["pending"]["campaigns"], &told["pending"]["messages"]), (&json!(1), &json!(3)));
    store::check_schema(&restored.options()).await.expect("it is ready");
    assert_eq!(
        scalar(&restored.pool, "SELECT (SELECT count(*) FROM workers) + (SELECT count(*) FROM sessions)").await,
        0
    );

    // What is new is sent; what was pending is not.
    let code = [
        "send",
        "--app",
        "shop",
        "--title",
        "42",
        "--body",
        "x",
        "--tier",
        "transactional",
        "--subscription",
        &named[1].id,
    ];
    done(&dir, &restored, &code).await;
    serve_until(&app, &restored, 1).await;
    let report = app.simulator.report();
    assert_eq!(report.deliveries, all + 1, "only what is new");
    let list = done(&dir, &restored, &["held", "list"]).await;
    assert_eq!(kinds(&list), ["campaign", "message", "message", "message"]);
    let checks = run(bellwire(&dir, &restored, &["doctor", "--json"])).await;
    let checks: Value = serde_json::from_slice(&checks.stdout).expect("JSON");
    let restore = checks["findings"].as_array().expect("findings").iter().find(|it| it["check"] == "restore");
    assert_eq!(restore.expect("it is looked at")["health"], "warning");

    // An operator cancels one message, and resumes the others: repeats have the ids of the first.
    for message in [&later, &to_nobody] {
        done(&dir, &restored, &["message", "cancel", message]).await;
    }
    done(&dir, &restored, &["campaign", "cancel", "spring", "--app", "shop"]).await;
    assert_eq!(done(&dir, &restored, &["held", "resume"]).await, json!({"resumed": 1}));
    let accepted = scalar(&restored.pool, "SELECT coalesce(sum(accepted), 0)::bigint FROM message_counts").await;
    let left = all - (u64::try_from(accepted).expect("a count") - 1);
    serve_until(&app, &restored, left).await;
    let report = app.simulator.report();
    assert_eq!((report.deliveries, report.without_id), (all + 1, 0));
    let sums = "SELECT coalesce(sum(accepted), 0)::bigint FROM message_counts c JOIN messages m ON m.id = c.message
                WHERE m.tier <> 1 AND m.state = 'sending'";
    assert_eq!(scalar(&restored.pool, sums).await, i64::try_from(all).expect("few"), "{campaign}");
    assert_eq!(done(&dir, &restored, &["held", "list"]).await["data"], json!([]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn planned_move_sends_pending_deliveries_once() {
    let (app, dir) = (on_plain_postgres().await, TempDir::new());
    let subscribers = app.subscribe("mozilla", 0..3).await;
    let message =
        app.send(json!({"subscriptions": subscribers.iter().map(|it| &it.id).collect::<Vec<_>>()}), json!({})).await;
    let file = dir.path().join("backup");
    let file = file.to_str().expect("UTF-8");
    done(&dir, &app.database, &["backup", "--output", file]).await;
    let (restored, held) = (TestDatabase::empty().await, TestDatabase::empty().await);
    let told = done(&dir, &restored, &["restore", file, "--resume-pending"]).await;
    assert_eq!((&told["held_back"], &told["pending"]["deliveries"]), (&json!(false), &json!(3)));
    serve_until(&app, &restored, 3).await;
    assert_eq!(app.simulator.report().requests, 3);
    assert_eq!(scalar(&restored.pool, "SELECT sum(accepted)::bigint FROM message_counts").await, 3);

    // Held back and cancelled, nothing is sent, and the account adds up.
    done(&dir, &held, &["restore", file]).await;
    assert_eq!(done(&dir, &held, &["held", "cancel"]).await, json!({"cancelled": 1}));
    assert_eq!(scalar(&held.pool, "SELECT sum(cancelled)::bigint FROM message_counts").await, 3);
    app.steer(&message, "cancel").await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_or_foreign_backup_is_refused_unread() {
    let (app, dir) = (on_plain_postgres().await, TempDir::new());
    app.subscribe("fcm", 0..2).await;
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (plain, sealed, key) = (path("plain"), path("sealed"), path("key"));
    done(&dir, &app.database, &["backup", "--output", &plain]).await;
    done(&dir, &app.database, &["backup", "--output", &sealed, "--recipient", AGE_RECIPIENT]).await;
    assert_eq!(fs::metadata(&plain).expect("it is there").permissions().mode() & 0o777, 0o600);
    assert!(refused(&dir, &app.database, &["backup", "--output", &plain]).await.contains("exists already"));
    let empty = TestDatabase::empty().await;
    let whole = fs::read(&plain).expect("it is ours");
    let write = |name: &str, octets: &[u8]| {
        fs::write(path(name), octets).expect("a file");
        path(name)
    };
    let mut changed = whole.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    for (file, words) in [
        (write("cut", &whole[..whole.len() - 40]), "damaged, was cut off or tampered with"),
        (write("changed", &changed), "damaged, was cut off or tampered with"),
        (write("other", b"PGDMP, or so"), "this is not a backup"),
        (write("unknown", UNKNOWN.as_bytes()), "migration 91, which this program does not contain"),
        (write("half", &fs::read(&sealed).expect("it is ours")[..4_000]), "encrypted: give the identity"),
        (sealed.clone(), "encrypted: give the identity"),
        (path("none"), "cannot be read"),
    ] {
        let said = refused(&dir, &empty, &["restore", &file]).await;
        assert!(said.contains(words), "{file}: {said}");
    }
    fs::write(&key, AGE_IDENTITY.replace("QURSWPC8", "QURSWPC9")).expect("a file");
    assert!(refused(&dir, &empty, &["restore", &sealed, "--identity", &key]).await.contains("an identity must be"));
    fs::write(&key, AGE_IDENTITY).expect("a file");
    let half = path("half");
    assert!(refused(&dir, &empty, &["restore", &half, "--identity", &key]).await.contains("damaged, or was cut off"));
    let mut wrong = bellwire(&dir, &empty, &["restore", &plain]);
    let key_of_another = "CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk";
    wrong.env("BELLWIRE_MASTER_KEY", key_of_another);
    let output = run(wrong).await;
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be used with this master key"), "{output:?}");
    assert!(is_untouched(&empty).await);

    // Existing data is kept unless an argument allows its replacement.
    let said = refused(&dir, &app.database, &["restore", &plain]).await;
    assert!(said.contains("holds Bellwire's tables already"), "{said}");
    app.subscribe("fcm", 2..3).await;
    done(&dir, &app.database, &["restore", &plain, "--replace"]).await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM subscriptions").await, 2);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM pg_namespace WHERE nspname ~ 'bellwire'").await, 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_restore_blocks_servers_and_can_repeat() {
    let (app, dir) = (on_plain_postgres().await, TempDir::new());
    app.subscribe("fcm", 0..2).await;
    let file = dir.path().join("backup");
    let file = file.to_str().expect("UTF-8");
    done(&dir, &app.database, &["backup", "--output", file]).await;
    // As it stands when the machine crashes in the middle: what was there is aside, what comes is half there.
    sqlx::raw_sql(
        "ALTER SCHEMA bellwire RENAME TO bellwire_replaced; CREATE SCHEMA bellwire;
         CREATE TABLE bellwire.restore_under_way (begun_at timestamptz); CREATE TABLE bellwire.apps (id uuid)",
    )
    .execute(&app.pool)
    .await
    .expect("it is ours");
    let error = store::check_schema(&app.database.options()).await.expect_err("half of it");
    assert!(matches!(error, SchemaError::Restoring), "{error}");
    for verb in [&["migrate"][..], &["backup", "--output", "x"]] {
        let said = refused(&dir, &app.database, verb).await;
        assert!(said.contains("bellwire restore` again"), "{said}");
    }
    done(&dir, &app.database, &["restore", file, "--replace"]).await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM subscriptions").await, 2);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM pg_namespace WHERE nspname ~ 'bellwire'").await, 1);

    // One that succeeded, and whose process ended before it could forget what it had replaced, blocks nothing.
    let left = "CREATE SCHEMA bellwire_replaced; CREATE TABLE bellwire_replaced.apps (id uuid)";
    sqlx::raw_sql(left).execute(&app.pool).await.expect("it is ours");
    done(&dir, &app.database, &["restore", file, "--replace"]).await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM pg_namespace WHERE nspname ~ 'bellwire'").await, 1);

    // By `pg_restore`: workers are missing, and the backup's own row is not complete.
    sqlx::raw_sql(
        "INSERT INTO backups (id, kind, started_at) VALUES (gen_random_uuid(), 'dump', '2026-01-01T02:03:04Z')",
    )
    .execute(&app.pool)
    .await
    .expect("a backup that is being made");
    let told = done(&dir, &app.database, &["restore", "--in-place"]).await;
    assert_eq!(told["backed_up_at"], json!("2026-01-01T02:03:04Z"));

    // Brought back by other means, it is settled where it is.
    sqlx::raw_sql(
        "INSERT INTO workers (id, started_at, beat_at, version, beats)
         VALUES (gen_random_uuid(), 'epoch', '2026-01-02T03:04:05Z', '0.0.1', 1)",
    )
    .execute(&app.pool)
    .await
    .expect("a worker of before");
    let told = done(&dir, &app.database, &["restore", "--in-place"]).await;
    assert_eq!((&told["backup"], &told["backed_up_at"]), (&Value::Null, &json!("2026-01-02T03:04:05Z")));
    app.finish().await;
}

/// Starts a server and stops it in good order.
async fn serves(app: &TestApp, url: &str) {
    let server = Server::on(app, &["--roles", "api"], url).await;
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_restored_by_hand_serves_only_after_settling() {
    let (app, dir) = (on_plain_postgres().await, TempDir::new());
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let to = json!({"subscriptions": [subscriber.id]});
    app.send(to, json!({"send_at": app.clock.now() + std::time::Duration::from_secs(3_600)})).await;
    let backup = done(&dir, &app.database, &["backup", "--output", "backup"]).await;
    let restored = TestDatabase::empty().await;
    let by_hand = "tail -n +3 backup | pg_restore --no-owner --no-privileges --exit-on-error --dbname=\"$0\"";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", by_hand]).arg(restored.url()).current_dir(dir.path());
    let output = run(command).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let said = refused(&dir, &restored, &["serve", "--listen", "127.0.0.1:0"]).await;
    assert!(said.contains("bellwire restore --in-place`, then start again"), "{said}");
    assert_eq!(scalar(&restored.pool, "SELECT count(*) FROM workers").await, 0, "it was refused before it registered");
    let settled = done(&dir, &restored, &["restore", "--in-place"]).await;
    assert_eq!((&settled["backed_up_at"], &settled["pending"]["messages"]), (&backup["began_at"], &json!(1)));
    serves(&app, &restored.url()).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recovered_postgres_serves_only_after_settling() {
    let (mut cluster, dir) = (Cluster::place(), TempDir::new());
    cluster.init().await;
    let url = format!("postgres://postgres@{}/{DATABASE}", cluster.host());
    let app = without_engine_on(Some(TestDatabase::at(cluster.options(DATABASE), url.clone()).await)).await;
    serves(&app, &url).await;
    cluster.recover(None).await; // as a standby that was promoted
    reconnect(&app.pool).await;
    serves(&app, &url).await;

    cluster.recover(Some("recovery_target = 'immediate'")).await;
    reconnect(&app.pool).await;
    let said = refused(&dir, &app.database, &["serve", "--listen", "127.0.0.1:0"]).await;
    for part in ["recovery_target = immediate", "timeline 2, now 3", "restore --in-place --since TIME"] {
        assert!(said.contains(part), "{said}");
    }
    done(&dir, &app.database, &["restore", "--in-place", "--since", "2030-01-31T14:02:00Z"]).await;
    serves(&app, &url).await; // the setting is still there
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn held_counts_agree_during_a_running_campaign() {
    let (app, dir) = (on_plain_postgres().await, TempDir::new());
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let later = json!({"send_at": app.clock.now() + std::time::Duration::from_secs(3_600)});
    for _ in 0..2 {
        app.send(json!({"subscriptions": [subscriber.id]}), later.clone()).await;
    }
    started(&app, plan("spring", json!({"schedule": {"cron": "0 9 * * *", "timezone": "UTC"}}))).await;
    let of_campaign = "UPDATE messages SET campaign = (SELECT id FROM campaigns), variant = 0 WHERE id = (SELECT min(id::text)::uuid FROM messages)";
    sqlx::query(of_campaign).execute(&app.pool).await.expect("the statement is right");
    let told = done(&dir, &app.database, &["restore", "--in-place", "--since", "2030-01-31T14:02:00Z"]).await;
    assert_eq!((&told["pending"]["campaigns"], &told["pending"]["messages"]), (&json!(1), &json!(1)));
    let list = done(&dir, &app.database, &["held", "list"]).await;
    assert_eq!(kinds(&list), ["campaign", "message"]);
    let checks = run(bellwire(&dir, &app.database, &["doctor", "--offline", "--json"])).await;
    let checks: Value = serde_json::from_slice(&checks.stdout).expect("JSON");
    let restore = checks["findings"].as_array().expect("findings").iter().find(|it| it["check"] == "restore");
    let detail = restore.expect("it is looked at")["detail"].to_string();
    assert!(detail.contains("1 campaigns and 1 messages are held back"), "{detail}");
    app.finish().await;
}

/// The program with an embedded Postgres of its own.
fn embedded(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire"));
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.env("BELLWIRE_DATA_DIR", dir).current_dir(dir).args(args);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_postgres_is_restored_into_another_directory() {
    let (one, two) = (TempDir::new(), TempDir::new());
    let succeeds = async |command: Command| {
        let output = run(command).await;
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    succeeds(embedded(one.path(), &["init", "shop", "--origin", "https://shop.example"])).await;
    let mut backup = embedded(one.path(), &["backup"]);
    let file = two.path().join("backup");
    backup.stdout(fs::File::create(&file).expect("a file"));
    succeeds(backup).await;
    let file = file.to_str().expect("UTF-8");
    let output = run(embedded(two.path(), &["restore", file])).await;
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is none at"), "{output:?}");
    assert!(!two.path().join("postgres").exists(), "nothing was made");
    let key = two.path().join("master.key");
    fs::copy(one.path().join("master.key"), &key).expect("the master key, which is kept apart");
    fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("it is ours");
    succeeds(embedded(two.path(), &["restore", file])).await;
    assert!(succeeds(embedded(two.path(), &["app", "list"])).await.contains("shop"));
    assert!(MasterKey::read(&key).expect("readable").is_some());
}
