//! Audience counts are exact after every change of subscriptions, and are read without counting rows. `TestApp::finish` compares them with
//! the rows at the end of every test.

use std::time::Duration;

use axum::http::Method;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::ChunkProgress;
use bellwire_store::audience::audience_counts;
use serde_json::{Value, json};

use crate::support::app::{DAY, PATIENCE, TestApp, scalar};
use crate::support::seed;

#[tokio::test(flavor = "multi_thread")]
async fn large_audience_is_counted_without_reading_subscriptions() {
    const N: u32 = 150;
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..N, json!({"topics": ["news"]})).await;
    seed(&app, "mozilla", 0..N).await;
    app.dispatcher.stop(Duration::ZERO).await;
    let mut locked = app.pool.begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE subscriptions, topic_members IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *locked)
        .await
        .unwrap();

    let counted = async {
        for (to, n) in [(json!({"all": true}), 2 * N), (json!({"topic": "news"}), N)] {
            let message = json!({"to": to, "payload": "x"});
            let sent = app.call(Method::POST, "/v1/apps/shop/messages", message).await.ok(202);
            assert_eq!(sent["audience_estimate"], n, "{sent}");
        }
        assert_eq!(app.get("/v1/apps/shop/topics").await["data"][0]["members"], N);
        let lanes = app.operate(Method::GET, "/v1/gateways", Value::Null).await.ok(200);
        let subscriptions =
            lanes["data"].as_array().unwrap().iter().map(|lane| lane["subscriptions"].as_u64().unwrap());
        assert_eq!(subscriptions.sum::<u64>(), 2 * u64::from(N));
    };
    tokio::time::timeout(PATIENCE, counted).await.expect("nothing waits for the lock");
    locked.rollback().await.unwrap();
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folding_changes_no_count_and_drops_zeros() {
    let app = TestApp::start().await;
    let news = json!({"topics": ["news"]});
    let all = app.subscribe_with("fcm", 0..8, news.clone()).await;
    for index in 0..2 {
        let minted = app.simulator.mint("apple.bellwire.test", index, Some(&app.application_server_key)).unwrap();
        let body = json!({"subscription": {
            "endpoint": minted.endpoint,
            "keys": {"p256dh": minted.p256dh, "auth": minted.auth},
            "expirationTime": app.clock.now().timestamp_millis() + 3_600_000,
        }});
        app.call(Method::POST, "/v1/apps/shop/subscriptions", body).await.ok(201);
    }
    let active = async || {
        let lanes = audience_counts::by_gateway(&app.pool).await.unwrap();
        lanes.into_iter().map(|(_, n)| n).sum::<i64>()
    };
    let members = async || app.get("/v1/apps/shop/topics").await["data"][0]["members"].as_i64().unwrap();
    assert_eq!((active().await, members().await), (10, 8));
    app.sweep().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM audience_changes").await, 0, "it was folded");
    assert_eq!((active().await, members().await), (10, 8));

    // One of each way to leave.
    let path = |at: usize| format!("/v1/apps/shop/subscriptions/{}", all[at].id);
    app.call(Method::DELETE, &path(0), Value::Null).await.ok(204);
    app.simulator.add_rule(Rule { endpoints: Some([1].into()), ..Rule::always(RuleAction::Gone) }).unwrap();
    app.send(json!({"subscriptions": [all[1].id]}), json!({})).await;
    app.run_until_idle().await;
    app.subscribe_with("fcm", 100..101, json!({"replaces": {"id": all[2].id}})).await;
    assert_eq!((active().await, members().await), (8, 6), "a successor takes its place");
    app.advance(DAY).await;
    app.sweep().await;
    assert_eq!((active().await, members().await), (6, 6), "two have expired");
    // And back.
    app.come_back("fcm", 1).await;
    app.sweep().await;
    assert_eq!((active().await, members().await), (7, 7), "with its topics");
    app.call(Method::DELETE, "/v1/apps/shop/topics/news", Value::Null).await.ok(204);
    for _ in 0..2 {
        app.sweep().await;
    }
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM audience_counts WHERE topic > 0 OR n = 0").await, 0);
    assert_eq!(active().await, 7);

    // However much is noted all the time, a sweep comes to its end: it goes on only after a full chunk.
    let note = "INSERT INTO audience_changes SELECT 0, 1, 0 FROM generate_series(1, 10001)";
    sqlx::query(note).execute(&app.pool).await.unwrap();
    assert_eq!(audience_counts::fold(&app.pool).await.unwrap(), ChunkProgress::More, "there may be more");
    assert_eq!(
        audience_counts::fold(&app.pool).await.unwrap(),
        ChunkProgress::Done,
        "one is no reason to go on at once"
    );
    app.finish().await;
}
