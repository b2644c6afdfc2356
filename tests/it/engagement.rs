//! Engagement: shares with correct denominators, and warnings for large sends.

use axum::http::Method;
use bellwire::testkit::server::maintenance;
use bellwire_core::delivery::{Ending, ReceiptKind};
use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::support::TestApp;

/// The number of a fact among those of figures over time: endings by their own, and what was asked and reported after 20.
const ASKED: i16 = 20;

fn reported(kind: ReceiptKind) -> i16 {
    ASKED + kind as i16
}

/// Notes for a lane what happened so many days ago, as settlings and receipts do.
async fn note(app: &TestApp, gateway: &str, days_ago: i64, facts: &[(i16, i64)]) {
    let lane = i32::try_from(app.lane(gateway).await).unwrap();
    for (fact, n) in facts {
        sqlx::query("INSERT INTO rollup_notes (minute, lane, tier, fact, n) VALUES ($1, $2, 2, $3, $4)")
            .bind(app.clock.now() - TimeDelta::days(days_ago))
            .bind(lane)
            .bind(fact)
            .bind(n)
            .execute(&app.pool)
            .await
            .unwrap();
    }
    maintenance::fold_metrics(&app.pool).await.expect("the database answers");
}

async fn shown(app: &TestApp, gateway: &str) -> Value {
    let shown = app.get("/v1/apps/shop/engagement").await;
    let gateways = shown["gateways"].as_array().unwrap();
    let found = gateways.iter().find(|found| found["gateway"] == gateway);
    found.unwrap_or_else(|| panic!("no {gateway} in {shown}")).clone()
}

async fn dry_run(app: &TestApp, to: Value, tier: &str) -> Value {
    let body = json!({"to": to, "tier": tier, "content": {"title": "Hello"}});
    app.call(Method::POST, "/v1/apps/shop/messages?dry_run=true", body).await.ok(200)["warnings"].clone()
}

#[tokio::test]
async fn engagement_shares_are_by_push_service() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    app.subscribe("apple", 0..1).await;
    app.subscribe("mozilla", 0..1).await;
    let accepted = Ending::Accepted as i16;
    let [displayed, clicked, closed, ..] = ReceiptKind::ALL.map(reported);
    let days = [
        (0, vec![(accepted, 900), (ASKED, 800), (displayed, 500), (clicked, 10), (closed, 100)]),
        (27, vec![(accepted, 100), (displayed, 100), (clicked, 5)]),
        (28, vec![(accepted, 1_000), (ASKED, 1_000), (displayed, 600), (clicked, 60)]),
        (56, vec![(accepted, 9_999)]), // before both
    ];
    for (days_ago, facts) in days {
        note(&app, "fcm", days_ago, &facts).await;
    }
    note(&app, "apple", 1, &[(accepted, 700), (ASKED, 700)]).await;
    note(&app, "mozilla", 0, &[(accepted, 900), (ASKED, 900), (displayed, 800), (clicked, 80), (closed, 720)]).await;
    let firefox = shown(&app, "mozilla").await;
    let unknown = ["closed", "ignored", "close_share", "ignored_share"].map(|name| &firefox["now"][name]);
    assert_eq!(unknown, [&Value::Null; 4], "Firefox cannot tell a person from a timeout: {firefox}");
    assert_eq!((&firefox["level"], &firefox["now"]["click_share"]), (&json!("fine"), &json!(0.1)));
    let fcm = shown(&app, "fcm").await;
    let now = json!({
        "accepted": 1_000, "receipts_asked": 800, "displayed": 600, "clicked": 15, "closed": 100, "ignored": 485,
        "display_share": 0.75, "click_share": 0.025, "close_share": 100.0 / 600.0, "ignored_share": 485.0 / 600.0,
    });
    assert_eq!(fcm["now"], now);
    assert_eq!((&fcm["before"]["click_share"], &fcm["before"]["closed"]), (&json!(0.1), &Value::Null), "{fcm}");
    assert_eq!(fcm["level"], "watch", "clicks fell to a quarter");
    let apple = shown(&app, "apple").await;
    let told = ["displayed", "closed", "display_share", "click_share", "ignored_share"].map(|name| &apple["now"][name]);
    assert_eq!(told, [&json!(0), &Value::Null, &Value::Null, &Value::Null, &Value::Null]);
    assert_eq!(apple["level"], "unknown");
    for wrong in ["0", "367", "x"] {
        let path = format!("/v1/apps/shop/engagement?days={wrong}");
        assert_eq!(app.call(Method::GET, &path, Value::Null).await.status, 400, "{wrong}");
    }
    app.finish().await;
}

#[tokio::test]
async fn broadcast_warns_of_low_permission() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann", "topics": ["news"]})).await;
    let (everybody, promotional) = (json!({"all": true}), "promotional");
    assert_eq!(dry_run(&app, everybody.clone(), promotional).await, Value::Null);
    let [displayed, clicked, closed, ..] = ReceiptKind::ALL.map(reported);
    note(&app, "fcm", 3, &[(ASKED, 2_000), (displayed, 1_000), (clicked, 4), (closed, 700)]).await;
    assert_eq!(shown(&app, "fcm").await["level"], "warning");
    let warnings = dry_run(&app, everybody.clone(), promotional).await;
    let told = "of the 1000 notifications that browsers of fcm displayed in the last 28 days 0.4 % were clicked and 70.0 % \
                closed: one more to everybody may make browsers throttle this site, and people block it";
    assert_eq!(warnings, json!([{"pointer": "/to", "detail": told}]));
    let body = json!({"to": {"topic": "news"}, "content": {"title": "Hello"}});
    let sent = app.call(Method::POST, "/v1/apps/shop/messages", body).await.ok(202);
    assert_eq!(sent["warnings"], warnings, "it goes out all the same");
    app.run_until_idle().await;
    assert_eq!(dry_run(&app, json!({"users": ["ann"]}), promotional).await, Value::Null);
    assert_eq!(dry_run(&app, everybody, "transactional").await, Value::Null);
    app.finish().await;
}
