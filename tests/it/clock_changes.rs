//! The clock of server and database is set back: what waits does not wait for as long as it went back.

use std::time::Duration;

use axum::http::Method;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::json;

use crate::support::app::{TestApp, scalar};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// Deliveries that the push service accepted. Counts that are zero are left out of the account.
async fn accepted(app: &TestApp, message: &str) -> i64 {
    app.counts(message).await.get("accepted").copied().unwrap_or_default()
}

fn unavailable() -> Rule {
    Rule::always(RuleAction::ServerError)
}

#[tokio::test]
async fn retries_keep_their_wait_when_clock_goes_back() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..3).await;
    let rule = app.simulator.add_rule(unavailable()).unwrap();
    let message = app.send(json!({"all": true}), json!({"ttl": 86_400, "tier": "transactional"})).await;
    app.run_until_idle().await;
    assert_eq!(accepted(&app, &message).await, 0);
    app.simulator.remove_rule(rule);
    let scheduled = app.send(json!({"all": true}), json!({"send_at": json!(app.clock.now() + HOUR * 2)})).await;

    app.clock.set_back(HOUR);
    app.run_until_idle().await;
    app.advance(MINUTE * 10).await;
    assert_eq!(accepted(&app, &message).await, 3);
    app.advance(MINUTE * 150).await;
    assert_eq!(app.message(&scheduled).await["state"], "scheduled", "its time is as it was chosen");
    app.advance(MINUTE * 20).await;
    assert_eq!(accepted(&app, &scheduled).await, 3);
    app.finish().await;
}

#[tokio::test]
async fn due_backlog_stays_due_when_clock_goes_back() {
    let app = TestApp::start().await;
    app.clock.advance(HOUR);
    app.subscribe("fcm", 0..3).await;
    app.subscribe("mozilla", 0..150).await;
    app.run_until_idle().await;
    let few = app.send(json!({"all": true}), json!({"ttl": 86_400})).await;
    app.clock.set_back(HOUR);
    app.run_until_idle().await;
    assert_eq!(accepted(&app, &few).await, 153);
    app.finish().await;
}

#[tokio::test]
async fn holds_keep_their_length_when_clock_goes_back() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..3).await;
    app.run_until_idle().await;
    let lane = scalar(&app.pool, "SELECT id::bigint FROM lanes").await;
    app.operate(Method::POST, &format!("/v1/gateways/{lane}/hold"), json!({"seconds": 60})).await.ok(200);
    let message = app.send(json!({"all": true}), json!({"ttl": 86_400})).await;
    app.run_until_idle().await;
    app.clock.set_back(HOUR);
    app.run_until_idle().await;
    assert_eq!(accepted(&app, &message).await, 0, "it is held still");
    app.advance(MINUTE * 3).await;
    assert_eq!(accepted(&app, &message).await, 3);
    app.finish().await;
}
