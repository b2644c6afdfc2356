//! A refused body gets all of its faults at once, those of its shape and those of its values.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::api::TestApi;

/// Pointers and texts of a refusal.
async fn faults(api: &TestApi, method: Method, path: &str, body: Value) -> Vec<(String, String)> {
    let token = if path == "/v1/apps" { &api.operator } else { &api.key };
    let reply = api.call(method, path, Some(token), Some(body)).await;
    assert_eq!((reply.status, &reply.json["code"]), (422, &json!("invalid")), "{path}: {}", reply.json);
    let text = |error: &Value, member: &str| error[member].as_str().expect("a text").to_owned();
    let errors = reply.json["errors"].as_array().expect("errors");
    let mut errors: Vec<_> = errors.iter().map(|error| (text(error, "pointer"), text(error, "detail"))).collect();
    errors.sort();
    errors
}

#[tokio::test]
async fn shape_and_values_are_refused_together() {
    let api = TestApi::start().await;
    for (method, path, body, expected) in [
        (
            Method::POST,
            "/v1/apps/shop/messages",
            json!({"to": {"users": ["ann", 3]}, "content": {"title": 7, "url": "no url"}, "ttl": -1, "collapse_key": "", "nmae": 1}),
            vec!["/collapse_key", "/content/title", "/content/url", "/nmae", "/to/users/1", "/ttl"],
        ),
        (
            Method::POST,
            "/v1/apps/shop/campaigns",
            json!({"slug": "No Slug", "holdout": 3, "message": {"to": {"all": true}, "content": {"body": 2}, "ttl": -1}, "x": 1}),
            vec!["/holdout", "/message/content/body", "/message/content/title", "/message/ttl", "/slug", "/x"],
        ),
        (
            Method::POST,
            "/v1/apps",
            json!({"slug": "No Slug", "name": 3, "origins": ["nonsense"], "subject": "nobody"}),
            vec!["/name", "/origins/0", "/slug", "/subject"],
        ),
        (Method::PATCH, "/v1/apps/shop", json!({"weight": 0, "name": 3}), vec!["/name", "/weight"]),
        (
            Method::PUT,
            "/v1/apps/shop/segments/vip",
            json!({"expression": "plan =", "description": 7}),
            vec!["/description", "/expression"],
        ),
        (
            Method::POST,
            "/v1/apps/shop/webhooks",
            json!({"name": "", "url": "ftp://x", "events": "all", "max_events": 0}),
            vec!["/events", "/max_events", "/name", "/url"],
        ),
        (
            Method::POST,
            "/v1/apps/shop/api-keys",
            json!({"name": "", "scopes": ["fly"], "expires_at": "soon"}),
            vec!["/expires_at", "/name", "/scopes/0"],
        ),
        (
            Method::POST,
            "/v1/apps/shop/subscriptions",
            json!({"subscription": {"endpoint": "x", "keys": {"p256dh": 1}}, "vapid_key_id": "vk_1", "bogus": 1}),
            vec![
                "/bogus",
                "/subscription/endpoint",
                "/subscription/keys/auth",
                "/subscription/keys/p256dh",
                "/vapid_key_id",
            ],
        ),
        (
            Method::PUT,
            "/v1/apps/shop/slas",
            json!({"transactional": 0, "promotional": "x"}),
            vec!["/promotional", "/transactional"],
        ),
        (Method::PUT, "/v1/apps/shop/flow", json!({"rate": 0, "parallelism": "x"}), vec!["/parallelism", "/rate"]),
        (
            Method::PUT,
            "/v1/apps/shop/calendar",
            json!({"timezone": "Mars", "off_peak": 3}),
            vec!["/off_peak", "/timezone"],
        ),
    ] {
        let found = faults(&api, method, path, body).await;
        let pointers: Vec<_> = found.iter().map(|(pointer, _)| pointer.as_str()).collect();
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(pointers, expected, "{path}: {found:?}");
    }
}

#[tokio::test]
async fn refused_shape_has_no_effect() {
    let api = TestApi::start().await;
    let body = json!({"slug": "new", "name": "New", "origins": ["https://new.example"], "subject": "mailto:a@b.example", "x": 1});
    faults(&api, Method::POST, "/v1/apps", body).await;
    faults(&api, Method::PATCH, "/v1/apps/shop", json!({"name": "Other", "x": 1})).await;
    faults(&api, Method::PUT, "/v1/apps/shop/topics/new", json!({"x": 1})).await;
    faults(&api, Method::PUT, "/v1/apps/shop/slas", json!({"transactional": 5, "x": 1})).await;
    let apps = api.call(Method::GET, "/v1/apps", Some(&api.operator), None).await.ok(200);
    assert!(apps["data"].as_array().is_some_and(|apps| apps.len() == 1 && apps[0]["name"] != "Other"), "{apps}");
    assert_eq!(api.call(Method::GET, "/v1/apps/shop/topics/new", Some(&api.key), None).await.status, 404);
    let slas = api.call(Method::GET, "/v1/apps/shop/slas", Some(&api.key), None).await.ok(200);
    assert!(slas["transactional"].is_null(), "{slas}");
}

#[tokio::test]
async fn faults_show_values_but_no_secrets() {
    let api = TestApi::start().await;
    let body = json!({"to": {"all": true}, "content": {"title": ""}, "ttl": -1, "tier": "urgent"});
    let found = faults(&api, Method::POST, "/v1/apps/shop/messages", body).await;
    let detail = |at: &str| found.iter().find(|(pointer, _)| pointer == at).map_or("", |(_, detail)| detail);
    assert!(detail("/ttl").ends_with(" (found -1)") && detail("/tier").ends_with(" (found \"urgent\")"), "{found:?}");
    let body = json!({"name": "k", "algorithm": "HS256", "secret": "short-secret"});
    let found = faults(&api, Method::POST, "/v1/apps/shop/identity-keys", body).await;
    assert!(found.len() == 1 && !format!("{found:?}").contains("short-secret"), "{found:?}");
}
