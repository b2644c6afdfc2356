//! Retry tokens: rows changed by hand in the database are never sent, and operators get an alert.

use std::time::Duration;

use axum::http::Method;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use crate::support::app::{TestApp, scalar};
use crate::support::counts;

const LATER: Duration = Duration::from_secs(60);

fn unavailable() -> Rule {
    let action = RuleAction::Answer { status: 503, headers: Default::default(), body: String::new() };
    Rule { count: Some(1), ..Rule::always(action) }
}

/// An app with one delivery that waits for its first retry.
async fn with_a_retry() -> (TestApp, String, String) {
    let app = TestApp::start().await;
    app.simulator.add_rule(unavailable()).unwrap();
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("retrying", 1)]));
    (app, message, subscriber.id)
}

async fn run(app: &TestApp, sql: &'static str) -> u64 {
    sqlx::query(sql).execute(&app.pool).await.expect("the statement is right").rows_affected()
}

fn posts(app: &TestApp) -> u64 {
    app.simulator.report().requests
}

fn faults(app: &TestApp, fault: &str) -> bool {
    app.metrics.render().contains(&format!("bellwire_retry_token_faults_total{{fault=\"{fault}\"}} 1\n"))
}

#[tokio::test]
async fn a_row_changed_by_hand_is_never_sent() {
    for change in [
        "UPDATE queue SET retries = 0",
        "UPDATE queue SET retries = 2",
        "UPDATE queue SET scheduled_at = scheduled_at - interval '1 microsecond'",
        "UPDATE queue SET token = set_byte(token, 5, 255 - get_byte(token, 5))",
        "UPDATE queue SET token = ''",
        "UPDATE queue SET tier = 1",
    ] {
        let (app, message, subscription) = with_a_retry().await;
        app.call(Method::PUT, "/v1/apps/shop/slas", json!({"promotional": 60})).await.ok(200);
        assert_eq!(run(&app, change).await, 1, "{change}");
        app.advance(LATER).await;
        assert_eq!(posts(&app), 1, "{change}");
        assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("dead", 1)]), "{change}");
        let delivery = app.delivery(&message, &subscription).await;
        assert_eq!(delivery["attempts"][1]["reason"], "tampered", "{change}: {delivery}");
        let letters = scalar(&app.pool, "SELECT count(*) FROM dead_letters WHERE reason = 'tampered'").await;
        assert_eq!((letters, faults(&app, "tampered")), (1, true), "{change}");
        let noted = scalar(&app.pool, "SELECT coalesce(sum(n), 0)::bigint FROM rollup_notes WHERE fact = 5").await;
        assert_eq!(noted, 1, "{change}");
        let missed = scalar(&app.pool, "SELECT count(*) FROM events WHERE kind = 'sla.missed'").await;
        assert_eq!(missed, 1, "whatever died was not accepted in time: {change}");
        let alerts = app.operate(Method::GET, "/v1/alerts", Value::Null).await.ok(200);
        assert_eq!((&alerts["data"][0]["kind"], &alerts["data"][0]["subject"]), (&json!("tampered"), &json!(message)));
        app.finish().await;
    }
}

#[tokio::test]
async fn row_of_another_message_is_never_sent() {
    let (app, _, _) = with_a_retry().await;
    let stranger = app.subscribe("fcm", 1..2).await.remove(0);
    let uuid = stranger.id.strip_prefix("sub_").unwrap();
    sqlx::query("UPDATE queue SET subscription = $1::uuid, shard = get_byte(uuid_send($1::uuid), 15) & 63")
        .bind(uuid::Uuid::parse_str(uuid).unwrap())
        .execute(&app.pool)
        .await
        .unwrap();
    app.advance(LATER).await;
    assert_eq!((posts(&app), faults(&app, "tampered")), (1, true));
    app.finish().await;
}

#[tokio::test]
async fn settled_row_put_back_is_not_resent() {
    let (app, message, _) = with_a_retry().await;
    run(&app, "CREATE TABLE kept AS TABLE queue").await;
    app.advance(LATER).await;
    assert_eq!(app.counts(&message).await.get("accepted"), Some(&1));
    assert_eq!(run(&app, "INSERT INTO queue SELECT * FROM kept").await, 1);
    app.advance(LATER).await;
    assert_eq!(posts(&app), 2);
    let expected = counts(&[("targeted", 1), ("accepted", 1), ("awaiting_ack", 1)]);
    assert_eq!(app.counts(&message).await, expected, "it had ended, and ends only once");
    let letters = scalar(&app.pool, "SELECT count(*) FROM dead_letters WHERE reason = 'replayed'").await;
    assert_eq!((letters, faults(&app, "replayed")), (1, true));
    app.finish().await;
}

#[tokio::test]
async fn row_with_lowered_retry_count_ends() {
    let (app, message, _) = with_a_retry().await;
    app.simulator.add_rule(unavailable()).unwrap();
    run(&app, "CREATE TABLE kept AS TABLE queue").await;
    app.advance(LATER).await;
    assert_eq!(app.counts(&message).await.get("retrying"), Some(&1));
    let back = "UPDATE queue q SET retries = k.retries, scheduled_at = k.scheduled_at, token = k.token FROM kept k";
    assert_eq!(run(&app, back).await, 1);
    app.advance(LATER).await;
    assert_eq!(posts(&app), 2);
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("dead", 1)]));
    assert!(faults(&app, "replayed"));
    app.finish().await;
}

#[tokio::test]
async fn a_late_retry_is_signed_again_and_sent() {
    let (app, message, _) = with_a_retry().await;
    app.advance(Duration::from_secs(3_600)).await;
    assert_eq!(app.counts(&message).await.get("accepted"), Some(&1));
    assert!(faults(&app, "late"));
    app.finish().await;
}

#[tokio::test]
async fn retry_stays_valid_after_replacement() {
    let (app, message, old) = with_a_retry().await;
    app.subscribe_with("fcm", 1..2, json!({"replaces": {"id": old}})).await;
    app.advance(LATER).await;
    assert_eq!(app.counts(&message).await.get("accepted"), Some(&1));
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM dead_letters").await, 0);
    app.finish().await;
}
