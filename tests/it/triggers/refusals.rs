//! Refused plans and events: each fault names its member, and nothing is stored.

use axum::http::Method;
use serde_json::{Value, json};

use super::report;
use crate::support::TestApp;
use crate::support::api::{TestApi, fcm, registration};
use crate::support::app::scalar;

/// Faults of a plan with this schedule.
async fn faults(app: &TestApp, schedule: Value, more: Value) -> Vec<String> {
    let mut plan = json!({"slug": "x", "schedule": schedule,
        "message": {"to": {"all": true}, "content": {"title": "Cart", "body": "-"}}});
    plan.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    let refused = app.call(Method::POST, "/v1/apps/shop/campaigns", plan).await.ok(422);
    let errors = refused["errors"].as_array().expect("faults").iter();
    errors.map(|error| error["pointer"].as_str().expect("a pointer").to_owned()).collect()
}

#[tokio::test]
async fn every_fault_of_a_trigger_is_named() {
    let app = TestApp::start().await;
    for (member, wrong) in [
        ("on", json!("bought")),
        ("on", json!("event:a b")),
        ("on", json!("sent:cmp_01920000-0000-7000-8000-000000000001")),
        ("where", json!("total >")),
        ("where", json!("tag(\"fan\")")),
        ("where", json!("user = \"ann\"")),
        ("after", json!("soon")),
        ("after", json!("91d")),
        ("unless", json!("bought")),
        ("unless", json!("event:cart_added")),
        ("unless", json!([])),
        ("at_most", json!("twice")),
        ("at_most", json!("once per 1s")),
    ] {
        let mut schedule = json!({"on": "event:cart_added"});
        schedule[member] = wrong.clone();
        assert_eq!(faults(&app, schedule, json!({})).await, [format!("/schedule/{member}")], "{wrong}");
    }
    let with_where = json!({"on": "subscribed", "where": "total > 1"});
    assert_eq!(faults(&app, with_where, json!({})).await, ["/schedule/where"]);
    let at = json!({"on": "subscribed", "at": "2030-01-01T00:00:00Z"});
    assert_eq!(faults(&app, at, json!({})).await, ["/schedule/on"]);
    let orphans = json!({"at": app.clock.now() + chrono::TimeDelta::days(1), "after": "1m", "unless": "event:bought"});
    assert_eq!(faults(&app, orphans, json!({})).await, ["/schedule/after", "/schedule/unless"]);
    let pace = json!({"pace": {"spread_over": 600}});
    assert_eq!(faults(&app, json!({"on": "subscribed"}), pace).await, ["/pace/spread_over"]);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM triggers").await, 0);
    app.finish().await;
}

#[tokio::test]
async fn one_wrong_event_stores_none_of_its_batch() {
    let app = TestApp::start().await;
    let unknown = "sub_01920000-0000-7000-8000-000000000001";
    let now = app.clock.now();
    let wrong = json!([
        {"name": "fine", "user_id": "ann"},
        {"name": "a b", "user_id": "ann"},
        {"name": "x"},
        {"name": "x", "user_id": "ann", "subscription": unknown},
        {"name": "x", "user_id": "a".repeat(256)},
        {"name": "x", "user_id": "ann", "id": "a b"},
        {"name": "x", "user_id": "ann", "at": now + chrono::TimeDelta::hours(1)},
        {"name": "x", "user_id": "ann", "at": now - chrono::TimeDelta::days(366)},
        {"name": "x", "user_id": "ann", "properties": {"text": "a".repeat(2_048)}},
    ]);
    let refused = report(&app, wrong).await.ok(422);
    let errors = refused["errors"].as_array().expect("faults").iter();
    let mut pointers: Vec<&str> = errors.map(|error| error["pointer"].as_str().unwrap()).collect();
    pointers.sort_unstable();
    let expected = [
        "/events/1/name",
        "/events/2",
        "/events/3",
        "/events/3/subscription",
        "/events/4/user_id",
        "/events/5/id",
        "/events/6/at",
        "/events/7/at",
        "/events/8/properties",
    ];
    assert_eq!(pointers, expected);
    let many: Value = (0..1_001).map(|_| json!({"name": "x", "user_id": "ann"})).collect();
    assert_eq!(report(&app, many).await.ok(422)["errors"][0]["pointer"], "/events");
    assert_eq!(report(&app, json!([])).await.ok(422)["errors"][0]["pointer"], "/events");
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM user_events").await, 0);
    let thousand: Value =
        (0..1_000).map(|_| json!({"name": "x", "user_id": "ann", "properties": {"text": "a".repeat(2_000)}})).collect();
    assert_eq!(report(&app, thousand).await.ok(200)["recorded"], 1_000);
    app.finish().await;
}

#[tokio::test]
async fn browsers_report_only_their_own_events() {
    let api = TestApi::start().await;
    let mut made = Vec::new();
    for name in ["a", "b"] {
        let body = registration(&fcm(name), json!({}));
        made.push(api.browse(Method::POST, "/subscriptions", None, Some(body)).await.ok(201));
    }
    let path = format!("/subscriptions/{}/events", made[0]["id"].as_str().unwrap());
    let event = json!({"id": "e-1", "name": "cart_added"});
    let track = |token: Option<String>| {
        let (api, path, event) = (&api, path.clone(), event.clone());
        async move { api.browse(Method::POST, &path, token.as_deref(), Some(event)).await }
    };
    let token = |place: usize| made[place]["token"].as_str().map(str::to_owned);
    let allow =
        |rights: Value| api.call(Method::PATCH, "/v1/apps/shop", Some(&api.key), Some(json!({"browsers_may": rights})));
    allow(json!(["set_tags"])).await.ok(200);
    assert_eq!(track(token(0)).await.status, 403, "the app does not allow it");
    allow(json!(["track_events"])).await.ok(200);
    assert_eq!(track(token(0)).await.status, 204);
    assert_eq!(track(token(0)).await.status, 204, "a repeat");
    assert_eq!(track(token(1)).await.status, 404, "of another browser");
    assert_eq!(track(None).await.status, 401);
    let long = json!({"id": "x".repeat(64), "name": "cart_added"});
    api.browse(Method::POST, &path, token(0).as_deref(), Some(long)).await.ok(204);
    let own = path.strip_suffix("/events").unwrap();
    api.browse(Method::DELETE, own, token(0).as_deref(), None).await.ok(204);
    assert_eq!(track(token(0)).await.status, 409, "it has unsubscribed");
    assert_eq!(scalar(&api.pool, "SELECT count(*) FROM user_events").await, 2);
}
