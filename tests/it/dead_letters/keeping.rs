//! Retention of payloads, dead letters, the trail and events.

use std::time::Duration;

use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use super::{LETTERS, bury, export, letters_of, list, open_letters, post, to};
use crate::support::TestApp;
use crate::support::app::{DAY, scalar};

const GRACE: Duration = Duration::from_secs(300);

async fn deleted(app: &TestApp, message: &str) -> bool {
    app.sweep().await;
    app.message(message).await["content_deleted"].as_bool().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn payload_is_deleted_after_the_last_delivery() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..2).await;
    let done = app.send(to(&subscribers), json!({})).await;
    app.run_until_idle().await;
    app.simulator.add_rule(Rule::always(RuleAction::Unavailable { retry_after_s: None })).unwrap();
    let moving = app.send(to(&subscribers), json!({"tier": "engagement"})).await;
    app.run_until_idle().await;
    assert!(!deleted(&app, &done).await);
    app.clock.advance(GRACE);
    assert!(!deleted(&app, &done).await, "seen to have ended now: the grace begins");
    app.clock.advance(GRACE - Duration::from_secs(1));
    assert!(!deleted(&app, &done).await);
    app.clock.advance(Duration::from_secs(1));
    assert!(deleted(&app, &done).await);
    let counts = app.message(&done).await["counts"].clone();
    assert_eq!((&counts["awaiting_ack"], &counts["displayed"]), (&json!(2), &json!(0)), "receipts may still come");
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM messages WHERE content IS NULL").await, 1);

    assert!(!deleted(&app, &moving).await);
    app.steer(&moving, "cancel").await;
    for _ in 0..3 {
        app.clock.advance(Duration::from_secs(3_600));
        app.sweep().await;
    }
    assert!(deleted(&app, &moving).await);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_letter_keeps_its_payload() {
    let app = TestApp::start().await;
    let (_, message) = letters_of(&app, 2).await;
    for _ in 0..5 {
        app.clock.advance(DAY);
        assert!(!deleted(&app, &message).await);
    }
    let letter = list(&app, "").await.remove(0)["id"].as_str().unwrap().to_owned();
    assert_eq!(app.get(&format!("{LETTERS}/{letter}")).await["content_state"], "shown");
    let one = post(&app, "/replay", json!({"filter": {}, "cap": 1})).await.ok(200);
    let replay = one["messages"][0].as_str().unwrap().to_owned();
    app.run_until_idle().await;
    app.clock.advance(GRACE * 2);
    assert!(!deleted(&app, &message).await, "one letter is open still");
    app.clock.advance(GRACE);
    assert!(deleted(&app, &replay).await, "its copy served");
    post(&app, "/discard", json!({"filter": {}})).await.ok(200);
    assert!(!deleted(&app, &message).await);
    app.clock.advance(GRACE);
    assert!(deleted(&app, &message).await);
    let opened = app.get(&format!("{LETTERS}/{letter}")).await;
    assert_eq!((&opened["content_state"], &opened["content"]), (&json!("deleted"), &Value::Null));
    assert_eq!(opened["history"].as_array().unwrap().len(), 1, "the history stays");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trail_cannot_be_rewritten() {
    let app = TestApp::start().await;
    letters_of(&app, 1).await;
    export(&app, "?format=csv").await;
    for forbidden in [
        "UPDATE dead_letter_actions SET actor = 'somebody else'",
        "DELETE FROM dead_letter_actions",
        "TRUNCATE dead_letter_actions",
    ] {
        let refused = sqlx::query(forbidden).execute(&app.pool).await.unwrap_err().to_string();
        assert!(refused.contains("append-only"), "{forbidden}: {refused}");
    }
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM dead_letter_actions").await, 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_letters_go_with_trail_and_payload() {
    let app = TestApp::start().await;
    let (_, message) = letters_of(&app, 1).await;
    bury(&app, 10_050).await; // of the last 10,050 seconds
    export(&app, "?format=csv").await;
    app.clock.advance(DAY * 30 - Duration::from_secs(10_000));
    app.keep_house().await;
    let kept = open_letters(&app).await;
    assert!((10_000..=10_002).contains(&kept), "{kept} letters");
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM events").await, 1);
    app.clock.advance(Duration::from_secs(10_001));
    app.keep_house().await;
    for table in ["dead_letters", "dead_letter_actions", "events"] {
        let left: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}")))
            .fetch_one(&app.pool)
            .await
            .unwrap();
        assert_eq!(left, 0, "{table}");
    }
    assert!(!deleted(&app, &message).await, "it is seen to have ended");
    app.clock.advance(DAY + GRACE);
    assert!(deleted(&app, &message).await);
    app.finish().await;
}
