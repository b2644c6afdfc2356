//! Access of listeners: their number, and the end of their permission.

use axum::http::Method;
use bellwire::testkit::live::LiveConfig;
use serde_json::{Value, json};

use super::{SHOP, start, write};
use crate::support::api::{TestApi, high_rate_limits};
use crate::support::event_stream::{
    EventStream, SERVER_STREAM, SHORT_INTERVALS, listen, open_stream, open_stream_with,
};
use crate::support::{Setup, TestApp};

#[tokio::test(flavor = "multi_thread")]
async fn listeners_are_limited_per_key_and_process() {
    let app = start().await;
    let mut ears = Vec::new();
    for _ in 0..3 {
        ears.push(listen(&app, SERVER_STREAM).await);
    }
    let code = async |key: &str| {
        let refused = open_stream(&app.router, SHOP, key, None).await.err();
        refused.map(|(status, problem)| (status, problem["code"].as_str().unwrap().to_owned()))
    };
    assert_eq!(code(&app.operator).await, Some((429, "key_listeners_full".to_owned())));
    ears.push(open_stream(&app.router, SHOP, &app.key, None).await.unwrap());
    assert_eq!(code(&app.key).await, Some((503, "listeners_full".to_owned())));
    ears.pop();
    assert_eq!(code(&app.key).await, None);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_apps_leave_listener_slots_for_others() {
    let live = LiveConfig { listeners_max: 20, listeners_per_app: 8, listeners_per_key: 20, ..SHORT_INTERVALS };
    let app = TestApp::with(Setup { live, ..Setup::default() }).await;
    let mut ears = Vec::new();
    for (slug, places) in [("shop", 8), ("second", 6), ("third", 3), ("fourth", 2)] {
        if slug != "shop" {
            let other = json!({"slug": slug, "name": slug, "subject": "mailto:ops@example.com"});
            app.operate(Method::POST, "/v1/apps", other).await.ok(201);
        }
        let path = format!("/v1/apps/{slug}/events/stream");
        let refused = loop {
            match open_stream(&app.router, &path, &app.operator, None).await {
                Ok(ear) => ears.push((slug, ear)),
                Err((status, problem)) => break (status, problem["code"].clone()),
            }
        };
        assert_eq!(refused, (429, json!("app_listeners_full")), "{slug}");
        assert_eq!(ears.iter().filter(|(of, _)| *of == slug).count(), places, "{slug}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn app_listeners_are_limited_operators_find_room() {
    let live = LiveConfig { places_for_operators: 1, listeners_per_app: 2, ..SHORT_INTERVALS };
    let app = TestApp::with(Setup { live, ..Setup::default() }).await;
    let other = json!({"slug": "other", "name": "Other", "subject": "mailto:ops@example.com"});
    app.operate(Method::POST, "/v1/apps", other).await.ok(201);
    let code = async |path: &str, key: &str| {
        let refused = open_stream(&app.router, path, key, None).await.err();
        refused.map(|(status, problem)| (status, problem["code"].as_str().unwrap().to_owned()))
    };
    let _shop = [listen(&app, SHOP).await, open_stream(&app.router, SHOP, &app.key, None).await.unwrap()];
    assert_eq!(code(SHOP, &app.key).await, Some((429, "app_listeners_full".to_owned())));
    let others = "/v1/apps/other/events/stream";
    let _other = listen(&app, others).await;
    assert_eq!(code(others, &app.operator).await, Some((503, "listeners_full".to_owned())));
    assert_eq!(code(SERVER_STREAM, &app.operator).await, None, "a place is kept");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_key_is_revoked() {
    let app = start().await;
    let key = json!({"name": "reader", "scopes": ["read"]});
    let key = app.call(Method::POST, "/v1/apps/shop/api-keys", key).await.ok(201);
    let mut ear = open_stream(&app.router, SHOP, key["secret"].as_str().unwrap(), None).await.unwrap();
    let mut other = listen(&app, SHOP).await;
    let path = format!("/v1/apps/shop/api-keys/{}", key["id"].as_str().unwrap());
    app.call(Method::DELETE, &path, Value::Null).await.ok(200);
    let end = ear.hear().await;
    assert_eq!((&*end.name, &end.data["reason"]), ("end", &json!("key_revoked")));
    assert!(ear.next().await.is_none());
    write(&app, 1, "alert.raised").await;
    assert_eq!(other.hear().await.name, "alert.raised", "nobody else is concerned");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_key_stops_its_stream() {
    let app = start().await;
    let key = json!({"name": "reader", "scopes": ["read"]});
    let key = app.call(Method::POST, "/v1/apps/shop/api-keys", key).await.ok(201);
    let secret = key["secret"].as_str().unwrap();
    let mut ear = open_stream(&app.router, SHOP, secret, None).await.unwrap();
    write(&app, 1, "alert.raised").await;
    let first = ear.hear().await.id;
    write(&app, 1_000, "alert.raised").await;
    let mut late = open_stream(&app.router, SHOP, secret, first.as_deref()).await.unwrap();
    for n in 1..=50 {
        assert_eq!(late.hear().await.data["data"]["n"], n);
    }
    let path = format!("/v1/apps/shop/api-keys/{}", key["id"].as_str().unwrap());
    app.call(Method::DELETE, &path, Value::Null).await.ok(200);
    // Once one that keeps up is told, so is everybody who listens with that key.
    let end = loop {
        let heard = ear.hear().await;
        if heard.name == "end" {
            break heard;
        }
    };
    assert_eq!(end.data["reason"], "key_revoked");
    let end = late.hear().await;
    assert_eq!((&*end.name, &end.data["reason"]), ("end", &json!("key_revoked")));
    assert!(late.next().await.is_none());
    app.finish().await;
}

#[tokio::test]
async fn session_stream_follows_current_permissions() {
    let api =
        TestApi::with(bellwire::testkit::api::ApiConfig { live: SHORT_INTERVALS, ..high_rate_limits() }, None).await;
    let ann = api.teammate("ann@example.com", json!([{"role": "viewer"}])).await;
    let shown = [("cookie", ann.cookie.as_str()), ("sec-fetch-site", "same-origin")];
    let told_to_come_back = async |mut ear: EventStream| {
        let end = ear.hear().await;
        assert_eq!((&*end.name, &end.data["reason"]), ("end", &json!("renew")));
        assert!(ear.next().await.is_none());
    };
    let ear = open_stream_with(&api.router, SERVER_STREAM, &shown, None).await.unwrap();
    let path = format!("/v1/team/{}", ann.teammate());
    let roles = json!({"roles": [{"role": "viewer", "app": "shop"}]});
    api.locally(Method::PATCH, &path, roles).await.ok(200);
    told_to_come_back(ear).await;
    let ear = open_stream_with(&api.router, SERVER_STREAM, &shown, None).await.unwrap();
    assert_eq!(ann.call(Method::DELETE, "/v1/session", None).await.status, 204);
    told_to_come_back(ear).await;
    assert_eq!(open_stream_with(&api.router, SERVER_STREAM, &shown, None).await.err().unwrap().0, 401);

    let ben = api.teammate("ben@example.com", json!([{"role": "viewer", "app": "shop"}])).await;
    let shown = [("cookie", ben.cookie.as_str()), ("sec-fetch-site", "same-origin")];
    let ear = open_stream_with(&api.router, SHOP, &shown, None).await.unwrap();
    let path = format!("/v1/team/{}", ben.teammate());
    api.locally(Method::PATCH, &path, json!({"disabled": true})).await.ok(200);
    told_to_come_back(ear).await;
    // A session that acts as an operator's key ends with that.
    let operator = api.sign_in(json!({"api_key": api.operator})).await;
    let shown = [("cookie", operator.cookie.as_str()), ("sec-fetch-site", "same-origin")];
    let ear = open_stream_with(&api.router, SERVER_STREAM, &shown, None).await.unwrap();
    sqlx::query("UPDATE api_keys SET revoked_at = created_at WHERE app IS NULL").execute(&api.pool).await.unwrap();
    told_to_come_back(ear).await;
}
