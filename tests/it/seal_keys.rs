//! Seal keys are rotated, and the master key is replaced, while servers run.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::server::maintenance;
use bellwire_core::id::SubscriptionId;
use bellwire_store::keys::data_keys::{self, TAKES_OVER_AFTER};
use bellwire_store::keys::resealing;
use bellwire_vault::master_key::{MasterKey, MasterKeySource};
use bellwire_vault::{CONTENT, Vault};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::app::{MASTER_KEY, scalar};
use crate::support::{TestApp, seed};

fn master_key() -> MasterKey {
    MasterKey::parse(MASTER_KEY).expect("32 octets")
}

/// Number of the seal key that a vault uses.
fn sealed_by(vault: &Vault) -> u8 {
    vault.seal(CONTENT, Uuid::nil(), b"x")[1]
}

async fn add(app: &TestApp) {
    let mut tx = app.pool.begin().await.expect("a transaction");
    data_keys::add_seal_key(&mut tx, &master_key(), app.clock.now()).await.expect("a key");
    tx.commit().await.expect("committed");
}

#[tokio::test]
async fn new_seal_key_takes_over_when_known_everywhere() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..1_200).await;
    let source = MasterKeySource::Given(master_key());
    let other = data_keys::open(&app.pool, &source, app.clock.now()).await.expect("another process");
    let late = data_keys::open(&app.pool, &source, app.clock.now()).await.expect("one that does not look");
    add(&app).await;
    let now = || app.clock.now();
    for vault in [&app.vault, &other] {
        assert!(data_keys::refresh(&app.pool, &source, vault, now()).await.expect("it answers"));
        assert!(!data_keys::refresh(&app.pool, &source, vault, now()).await.expect("it answers"), "nothing is new");
        assert_eq!(sealed_by(vault), 1, "others may not have heard of it yet");
    }
    app.clock.advance(TAKES_OVER_AFTER);
    assert!(data_keys::refresh(&app.pool, &source, &app.vault, now()).await.expect("it answers"));
    assert_eq!(sealed_by(&app.vault), 2);
    assert_eq!(sealed_by(&other), 1);
    assert_eq!(sealed_by(&late), 1);
    let sealed = app.vault.seal(CONTENT, Uuid::nil(), b"x");
    assert!(other.open(CONTENT, Uuid::nil(), &sealed).is_ok() && late.open(CONTENT, Uuid::nil(), &sealed).is_err());
    assert_eq!(sealed_by(&data_keys::open(&app.pool, &source, now()).await.expect("a start")), 2);

    let count = "SELECT count(*) FROM subscriptions WHERE get_byte(address, 1) = 1";
    maintenance::reseal(&app.pool, &app.vault, now()).await.expect("it answers");
    assert_eq!(scalar(&app.pool, count).await, 1_200, "who seals under the key of before may still do");
    app.clock.advance(TAKES_OVER_AFTER);
    maintenance::reseal(&app.pool, &app.vault, now()).await.expect("it answers");
    let keys = resealing::seal_keys(&app.pool).await.expect("it answers");
    assert_eq!(keys.iter().map(|key| (key.number, key.sealed > 0)).collect::<Vec<_>>(), [(1, false), (2, true)]);
    assert!(keys[1].resealed_at.is_some());

    // What was sealed anew is what it was.
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], 1_200);
    app.finish().await;
}

#[tokio::test]
async fn resealing_keeps_changes_and_unreadable_values() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..3).await;
    let damage = "UPDATE subscriptions SET address = '\\x0001deadbeef' WHERE id = $1";
    let one: SubscriptionId = subscribers[0].id.parse().expect("an id");
    sqlx::query(damage).bind(one.0).execute(&app.pool).await.expect("one is damaged");
    add(&app).await;
    app.clock.advance(TAKES_OVER_AFTER * 2 + Duration::from_secs(1));
    let source = MasterKeySource::Given(master_key());
    data_keys::refresh(&app.pool, &source, &app.vault, app.clock.now()).await.expect("it answers");
    maintenance::reseal(&app.pool, &app.vault, app.clock.now()).await.expect("it answers");
    let by = async |key: i64| {
        let count = "SELECT count(*) FROM subscriptions WHERE get_byte(address, 1) = $1";
        sqlx::query_scalar::<_, i64>(count).bind(key).fetch_one(&app.pool).await.expect("a count")
    };
    assert_eq!((by(1).await, by(2).await), (1, 2));
    assert_eq!(subscribers.len(), 3);
    app.finish().await;
}

#[tokio::test]
async fn running_server_survives_master_key_rotation() {
    let app = TestApp::start().await;
    let new = MasterKey::generate();
    let mut connection = app.pool.acquire().await.expect("a connection");
    data_keys::rotate_master(&mut connection, &master_key(), &new).await.expect("rotated");
    drop(connection);
    let mut tx = app.pool.begin().await.expect("a transaction");
    data_keys::add_seal_key(&mut tx, &new, app.clock.now()).await.expect("a key");
    tx.commit().await.expect("committed");
    let (before, after) = (MasterKeySource::Given(master_key()), MasterKeySource::Given(new));
    let error = data_keys::refresh(&app.pool, &before, &app.vault, app.clock.now()).await.expect_err("the old one");
    assert!(matches!(error, data_keys::Error::Wrong(_)), "{error}");
    assert_eq!(sealed_by(&app.vault), 1, "it goes on with what it has");
    assert!(data_keys::refresh(&app.pool, &after, &app.vault, app.clock.now()).await.expect("the new one"));
    app.finish().await;
}

#[tokio::test]
async fn sealed_values_are_counted_under_their_key() {
    let app = TestApp::start().await;
    let source = MasterKeySource::Given(master_key());
    let vault = data_keys::open(&app.pool, &source, app.clock.now()).await.expect("another process");
    let count = async |number: i16| -> i64 {
        let count = sqlx::query_scalar("SELECT sealed_values FROM data_keys WHERE number = $1").bind(number);
        count.fetch_one(&app.pool).await.expect("a key")
    };
    let before = count(1).await;
    assert_eq!(data_keys::count_sealed(&app.pool, &vault).await.expect("it answers"), None, "nothing is sealed yet");
    (0..7).for_each(|_| drop(vault.seal(CONTENT, Uuid::nil(), b"x")));
    assert_eq!(data_keys::count_sealed(&app.pool, &vault).await.expect("it answers"), Some(before + 7));
    assert_eq!(data_keys::count_sealed(&app.pool, &vault).await.expect("it answers"), None);
    vault.seal(CONTENT, Uuid::nil(), b"x");
    add(&app).await;
    app.clock.advance(TAKES_OVER_AFTER);
    data_keys::refresh(&app.pool, &source, &vault, app.clock.now()).await.expect("it answers");
    vault.seal(CONTENT, Uuid::nil(), b"x");
    data_keys::count_sealed(&app.pool, &vault).await.expect("it answers");
    assert_eq!((count(1).await, count(2).await), (before + 8, 1), "a key that takes over loses no count");

    let finding = async |values: i64| {
        let set = "UPDATE data_keys SET sealed_values = $1 WHERE number = 2";
        sqlx::query(set).bind(values).execute(&app.pool).await.expect("it is set");
        let checks = app.operate(Method::GET, "/v1/checks", Value::Null).await.ok(200);
        let all = checks["data"].as_array().expect("findings");
        all.iter().find(|finding| finding["check"] == "seal key").expect("one of the seal key").clone()
    };
    assert_eq!(finding((1 << 31) - 1).await["health"], "ok");
    let warned = finding(1 << 31).await;
    assert_eq!((&warned["health"], &warned["line"]), (&json!("warning"), &json!("bellwire keys rotate")), "{warned}");
    app.finish().await;
}
