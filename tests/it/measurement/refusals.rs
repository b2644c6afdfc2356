use axum::http::Method;
use serde_json::{Value, json};

use super::convert;
use crate::support::TestApp;
use crate::support::api::{TestApi, fcm, registration};
use crate::support::app::{pointers, scalar};
use crate::support::campaigns::plan;

#[tokio::test]
async fn wrong_conversions_are_refused_together() {
    let app = TestApp::start().await;
    let wrong = [
        (json!({"name": "order", "value": -1, "currency": "EUR"}), "/value"),
        (json!({"name": "order", "value": 1e10, "currency": "EUR"}), "/value"),
        (json!({"name": "order", "value": 0.000_01, "currency": "EUR"}), "/value"),
        (json!({"name": "order", "value": 1, "currency": "euro"}), "/currency"),
        (json!({"name": "order", "value": 1}), "/currency"),
        (json!({"name": "order", "currency": "EUR"}), "/value"),
        (json!({"name": "or der"}), "/name"),
        (json!({"name": "order", "at": "2020-01-01T00:00:00Z"}), "/at"),
    ];
    let batch: Vec<Value> = wrong
        .iter()
        .map(|(it, _)| {
            let mut it = it.clone();
            it["user_id"] = json!("ann");
            it
        })
        .collect();
    let refused = convert(&app, json!(batch)).await.ok(422);
    let expected: Vec<String> =
        wrong.iter().enumerate().map(|(i, (_, member))| format!("/conversions/{i}{member}")).collect();
    let mut found = pointers(&refused);
    found.sort_unstable();
    assert_eq!(found, expected, "{refused}");
    assert_eq!(pointers(&convert(&app, json!([{"name": "order"}])).await.ok(422)), ["/conversions/0"]);
    assert_eq!(pointers(&convert(&app, json!([])).await.ok(422)), ["/conversions"]);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM user_events").await, 0);
    app.finish().await;
}

#[tokio::test]
async fn wrong_settings_name_the_member() {
    let app = TestApp::start().await;
    let cases = [
        (json!({"window": "59m"}), "/window"),
        (json!({"window": "31d"}), "/window"),
        (json!({"window": "a week"}), "/window"),
        (json!({"link_tags": {"hosts": []}}), "/link_tags/hosts"),
        (json!({"link_tags": {"hosts": ["https://shop.example"]}}), "/link_tags/hosts/0"),
        (json!({"link_tags": {"hosts": ["shop.example:8080"]}}), "/link_tags/hosts/0"),
        (json!({"link_tags": {"hosts": ["*"]}}), "/link_tags/hosts/0"),
        (json!({"link_tags": {"hosts": ["a.example"], "parameters": {"a b": "c"}}}), "/link_tags/parameters/a b"),
        (json!({"link_tags": {"hosts": ["a.example"], "parameters": {"a": ""}}}), "/link_tags/parameters/a"),
    ];
    for (settings, pointer) in cases {
        let refused = app.call(Method::PUT, "/v1/apps/shop/measurement", settings.clone()).await.ok(422);
        assert_eq!(pointers(&refused), [pointer], "{settings}");
    }
    let unknown = json!({"after": "opened"});
    app.call(Method::PUT, "/v1/apps/shop/measurement", unknown).await.ok(422);
    app.call(Method::GET, "/v1/apps/shop/results?quarter=2026-Q5", Value::Null).await.ok(400);
    app.finish().await;
}

#[tokio::test]
async fn browsers_need_permission_to_convert() {
    let api = TestApi::start().await;
    let made =
        api.browse(Method::POST, "/subscriptions", None, Some(registration(&fcm("ann"), json!({})))).await.ok(201);
    let path = format!("/subscriptions/{}/conversions", made["id"].as_str().unwrap());
    let token = made["token"].as_str();
    let order = json!({"id": "o-17", "name": "order", "value": 49.9, "currency": "EUR"});
    let convert = |body: Value| api.browse(Method::POST, &path, token, Some(body));
    let allow = async |rights: Value| {
        let rights = json!({"browsers_may": rights});
        api.call(Method::PATCH, "/v1/apps/shop", Some(&api.key), Some(rights)).await.ok(200);
    };
    allow(json!(["track_events"])).await;
    let refused = convert(order.clone()).await.ok(403);
    assert!(refused["detail"].as_str().unwrap().contains("report_conversions"), "{refused}");
    allow(json!(["report_conversions"])).await;
    for _ in 0..2 {
        convert(order.clone()).await.ok(204);
    }
    let sum = "SELECT sum(value)::bigint FROM conversions";
    assert_eq!(scalar(&api.pool, sum).await, 499_000, "repeated, but counted once");
    let replaces = json!({"replaces": {"id": made["id"], "token": made["token"]}});
    let renewed = registration(&fcm("ann-again"), replaces);
    let renewed = api.browse(Method::POST, "/subscriptions", None, Some(renewed)).await.ok(201);
    let of_renewed = format!("/subscriptions/{}/conversions", renewed["id"].as_str().unwrap());
    api.browse(Method::POST, &of_renewed, renewed["token"].as_str(), Some(order.clone())).await.ok(204);
    assert_eq!(scalar(&api.pool, sum).await, 499_000, "the same browser repeats it after a replacement");
    assert_eq!(pointers(&convert(json!({"name": "order", "value": 1})).await.ok(422)), ["/currency"]);
    assert_eq!(api.browse(Method::POST, &path, None, Some(order)).await.status, 401);
}

#[tokio::test]
async fn tests_by_conversions_need_measurement() {
    let app = TestApp::start().await;
    let variants = json!([{"name": "a", "message": {}}, {"name": "b", "message": {}}]);
    let test = json!({"share": 0.5, "after": 3600, "by": "order"});
    let more = json!({"variants": variants, "test": test, "link_parameters": {"a b": "c"}});
    let refused = app.call(Method::POST, "/v1/apps/shop/campaigns", plan("spring", more)).await.ok(422);
    assert_eq!(pointers(&refused), ["/test/by", "/link_parameters/a b"]);
    app.finish().await;
}
