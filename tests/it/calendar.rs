//! Quiet hours and off-peak windows: what may wait, waits, and what may not, never does.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::app::{TestApp, scalar};
use crate::support::counts;

const HOUR: Duration = Duration::from_secs(3_600);

async fn set(app: &TestApp, calendar: Value) {
    app.call(Method::PUT, "/v1/apps/shop/calendar", calendar).await.ok(200);
}

/// Tests begin on Friday, 2027-01-15 at 08:00 UTC: 09:00 in Berlin, 17:00 in Tokyo.
fn quiet_in_the_morning() -> Value {
    json!({"timezone": "Europe/Berlin", "quiet_hours": {"from": "22:00", "to": "10:30"}})
}

async fn accepted(app: &TestApp, message: &str) -> i64 {
    app.message(message).await["counts"]["accepted"].as_i64().unwrap()
}

#[tokio::test]
async fn quiet_hours_hold_by_the_recipients_zone() {
    let app = TestApp::start().await;
    set(&app, quiet_in_the_morning()).await;
    app.subscribe_with("fcm", 0..1, json!({"timezone": "Asia/Tokyo"})).await;
    app.subscribe_with("fcm", 1..2, json!({"timezone": "America/New_York"})).await;
    app.subscribe("fcm", 2..3).await;
    let to = json!({"all": true});
    let code = app.send(to.clone(), json!({"tier": "transactional"})).await;
    let offer = app.send(to, json!({"tier": "promotional"})).await;
    app.run_until_idle().await;
    assert_eq!((accepted(&app, &code).await, accepted(&app, &offer).await), (3, 1), "Tokyo is awake");
    app.advance(HOUR + HOUR / 2 - Duration::from_secs(1)).await;
    assert_eq!(accepted(&app, &offer).await, 1);
    app.advance(Duration::from_secs(1)).await;
    assert_eq!(accepted(&app, &offer).await, 2, "Berlin, the app's own, where the zone is unknown");
    app.advance(6 * HOUR).await;
    assert_eq!(accepted(&app, &offer).await, 3, "10:30 in New York");
    app.finish().await;
}

#[tokio::test]
async fn large_campaign_waits_for_each_zone() {
    let app = TestApp::start().await;
    set(&app, quiet_in_the_morning()).await;
    app.subscribe_with("fcm", 0..60, json!({"timezone": "Asia/Tokyo"})).await;
    app.subscribe("fcm", 60..120).await;
    let offer = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(
        app.counts(&offer).await,
        counts(&[("targeted", 120), ("accepted", 60), ("awaiting_ack", 60), ("queued", 60)])
    );
    app.advance(2 * HOUR).await;
    assert_eq!(accepted(&app, &offer).await, 120);
    app.finish().await;
}

#[tokio::test]
async fn delivery_expiring_in_quiet_hours_expires_now() {
    let app = TestApp::start().await;
    set(&app, quiet_in_the_morning()).await;
    let to = json!({"subscriptions": [app.subscribe("fcm", 0..1).await[0].id]});
    let brief = app.send(to, json!({"ttl": 600})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&brief).await, counts(&[("targeted", 1), ("expired", 1)]));
    assert_eq!(app.simulator.report().requests, 0);
    app.finish().await;
}

#[tokio::test]
async fn engagement_fans_out_in_its_off_peak_window() {
    let app = TestApp::start().await;
    set(&app, json!({"timezone": "Europe/Berlin", "off_peak": [{"days": ["fri"], "from": "12:00", "to": "14:00"}]}))
        .await;
    let first = app.subscribe("fcm", 0..120).await.remove(0);
    let digest = json!({"tier": "engagement"});
    let large = app.send(json!({"all": true}), digest.clone()).await;
    let single = app.send(json!({"subscriptions": [first.id]}), digest).await;
    let offer = app.send(json!({"all": true}), json!({"tier": "promotional"})).await;
    app.run_until_idle().await;
    assert_eq!(accepted(&app, &offer).await, 120);
    assert_eq!((accepted(&app, &large).await, accepted(&app, &single).await), (0, 0));
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM queue").await, 1, "a campaign waits as a whole");
    app.advance(3 * HOUR).await;
    assert_eq!((accepted(&app, &large).await, accepted(&app, &single).await), (120, 1));
    app.finish().await;
}

#[tokio::test]
async fn a_changed_calendar_holds_for_what_waits() {
    let app = TestApp::start().await;
    set(&app, quiet_in_the_morning()).await;
    let to = json!({"subscriptions": [app.subscribe("fcm", 0..1).await[0].id]});
    let offer = app.send(to, json!({})).await;
    app.run_until_idle().await;
    set(&app, json!({"timezone": "Europe/Berlin", "quiet_hours": {"from": "22:00", "to": "11:30"}})).await;
    app.advance(2 * HOUR).await;
    assert_eq!(accepted(&app, &offer).await, 0);
    app.advance(HOUR).await;
    assert_eq!(accepted(&app, &offer).await, 1);
    app.finish().await;
}

#[tokio::test]
async fn calendars_are_checked_and_shown() {
    let app = TestApp::start().await;
    let path = "/v1/apps/shop/calendar";
    assert_eq!(app.get(path).await, json!({"timezone": "UTC", "quiet_hours": null, "off_peak": []}));
    let calendar = json!({"timezone": "Asia/Kolkata", "quiet_hours": {"from": "21:00", "to": "07:00"},
        "off_peak": [{"days": ["sat", "sun"], "from": "10:00", "to": "16:00"}, {"from": "02:00", "to": "04:00"}]});
    set(&app, calendar.clone()).await;
    assert_eq!(app.get(path).await, calendar);
    let many = vec![json!({"from": "01:00", "to": "02:00"}); 51];
    for (pointer, wrong) in [
        ("/timezone", json!({"timezone": "Mars/Olympus_Mons"})),
        ("/quiet_hours/from", json!({"timezone": "UTC", "quiet_hours": {"from": "25:00", "to": "07:00"}})),
        ("/quiet_hours", json!({"timezone": "UTC", "quiet_hours": {"from": "07:00", "to": "07:00"}})),
        (
            "/off_peak/0/days/0",
            json!({"timezone": "UTC", "off_peak": [{"days": ["Monday"], "from": "01:00", "to": "02:00"}]}),
        ),
        ("/off_peak", json!({"timezone": "UTC", "off_peak": many})),
    ] {
        let reply = app.call(Method::PUT, path, wrong.clone()).await;
        assert_eq!(
            (reply.status, reply.json["errors"][0]["pointer"].as_str()),
            (422, Some(pointer)),
            "{wrong}: {}",
            reply.json
        );
    }
    app.finish().await;
}
