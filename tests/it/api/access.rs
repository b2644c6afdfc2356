//! Permissions: scopes, other apps, revocation, browsers, rate limits, and the common response headers.

use axum::body::{Body, Bytes};
use axum::http::request::Builder;
use axum::http::{Method, Request};
use bellwire::testkit::api::ApiConfig;
use bellwire::testkit::api::RequestRate;
use bellwire_core::scope::Scope;
use bellwire_store::keys::api_keys;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::support::api::{LOOPBACK, ORIGIN, Reply, TestApi, content, fcm, registration};

#[tokio::test]
async fn scopes_limit_a_key_to_its_app() {
    let api = TestApi::start().await;
    let mut keys = Vec::new();
    for scope in Scope::OF_APPS {
        let app = Some(api.app_id());
        let made = api_keys::create(&api.pool, &api.vault, app, "k", &[scope], None, &api.clock).await.unwrap();
        keys.push((scope, made.1));
    }
    let (_, stranger) = api.make_app("other").await;
    api.put("/topics/news", json!({})).await.ok(201);
    let message = json!({"to": {"all": true}, "content": content()});
    let cases = [
        (Method::POST, "/v1/apps/shop/messages", Some(message), Some(Scope::Send)),
        (Method::GET, "/v1/apps/shop/messages", None, Some(Scope::Read)),
        (Method::GET, "/v1/apps/shop", None, Some(Scope::Read)),
        (Method::PATCH, "/v1/apps/shop", Some(json!({})), Some(Scope::Settings)),
        (Method::GET, "/v1/apps/shop/subscriptions", None, Some(Scope::Read)),
        (Method::POST, "/v1/apps/shop/vapid-keys", Some(json!({})), Some(Scope::Keys)),
        (Method::DELETE, "/v1/apps/shop/users/u", None, Some(Scope::Subscribers)),
        (Method::PATCH, "/v1/apps/shop/topics/news", Some(json!({})), Some(Scope::Subscribers)),
        (Method::POST, "/v1/apps/shop/dead-letters/discard", Some(json!({"filter": {}})), Some(Scope::Messages)),
        (Method::GET, "/v1/apps/shop/dead-letters/export?format=ndjson", None, Some(Scope::Export)),
        (Method::GET, "/v1/apps/shop/export", None, Some(Scope::Export)),
        (Method::PUT, "/v1/apps/shop/policies/tiers/1", Some(json!({})), Some(Scope::Policies)),
        (Method::GET, "/v1/apps", None, None),
        (Method::GET, "/v1/gateways", None, None),
    ];
    for (method, path, body, needed) in cases {
        for (scope, key) in &keys {
            let reply = api.call(method.clone(), path, Some(key), body.clone()).await;
            let allowed = needed == Some(*scope);
            assert_eq!(reply.status < 300, allowed, "{method} {path} with {scope:?}: {}", reply.json);
            assert!(allowed || reply.status == 403, "{method} {path} with {scope:?}: {}", reply.json);
        }
        let nobody = api.call(method.clone(), path, None, body.clone()).await;
        assert_eq!((nobody.status, nobody.header("www-authenticate")), (401, "Bearer realm=\"bellwire\""), "{path}");
        if path.contains("shop") {
            let reply = api.call(method.clone(), path, Some(&stranger), body.clone()).await;
            assert_eq!(reply.refusal(), (404, "not_found", vec![]), "another app's key: {path}");
            let reply = api.call(method.clone(), &path.replace("shop", "none"), Some(&stranger), body.clone()).await;
            assert_eq!(reply.refusal(), (404, "not_found", vec![]), "an app that is not there looks the same");
        }
        let reply = api.call(method, path, Some(&api.operator), body).await;
        assert!(reply.status < 300, "an operator may do everything: {path}: {}", reply.json);
    }
}

#[tokio::test]
async fn revoked_expired_and_invented_keys_are_refused() {
    let api = TestApi::start().await;
    let made = api
        .post("/api-keys", json!({"name": "n", "scopes": ["read"], "expires_at": "2027-01-15T09:00:00Z"}))
        .await
        .ok(201);
    let secret = made["secret"].as_str().unwrap();
    assert!(secret.starts_with("bw_") && secret.starts_with(made["hint"].as_str().unwrap()));
    let listed = api.get("/api-keys").await.ok(200);
    assert!(!listed.to_string().contains(secret), "a secret is shown once");
    let ask = async |key: &str| api.call(Method::GET, "/v1/apps/shop", Some(key), None).await.status;
    assert_eq!(ask(secret).await, 200);
    api.clock.advance(std::time::Duration::from_secs(3_600 * 24));
    assert_eq!(ask(secret).await, 401, "expired");
    for made_up in ["bw_", "bw_AAAA", "x", ""] {
        assert_eq!(ask(made_up).await, 401, "{made_up}");
    }
    let made = api.post("/api-keys", json!({"name": "n", "scopes": ["read"]})).await.ok(201);
    let secret = made["secret"].as_str().unwrap();
    assert_eq!(ask(secret).await, 200);
    let path = format!("/v1/apps/shop/api-keys/{}", made["id"].as_str().unwrap());
    assert_eq!(api.call(Method::DELETE, &path, Some(&api.key), None).await.ok(200), json!({"revoked": 1}));
    assert_eq!(ask(secret).await, 401, "revoked");
    assert_eq!(api.call(Method::DELETE, &path, Some(&api.key), None).await.ok(200), json!({"revoked": 0}), "again");
}

#[tokio::test]
async fn browsers_come_from_the_apps_origins() {
    let api = TestApi::start().await;
    let preflight = async |origin: &str| {
        let headers = [("origin", origin), ("access-control-request-method", "POST")];
        api.call_with(Method::OPTIONS, "/v1/apps/shop/subscriptions", None, None, &headers).await
    };
    let allowed = preflight(ORIGIN).await;
    assert_eq!((allowed.status, allowed.header("access-control-allow-origin")), (204, ORIGIN));
    assert!(allowed.header("access-control-allow-headers").contains("Authorization"));
    assert!(allowed.header("access-control-allow-methods").contains("PATCH"));
    assert_eq!(allowed.header("vary"), "Origin");
    for elsewhere in ["https://evil.example", "https://shop.example.evil.example", "null"] {
        assert_eq!(preflight(elsewhere).await.header("access-control-allow-origin"), "", "{elsewhere}");
        let headers = [("origin", elsewhere)];
        let body = Some(registration(&fcm("a"), json!({})));
        for (method, path, body) in [(Method::POST, "subscriptions", body), (Method::GET, "config", None)] {
            let reply = api.call_with(method, &format!("/v1/apps/shop/{path}"), None, body, &headers).await;
            assert_eq!(reply.refusal(), (403, "origin_not_allowed", vec![]), "{path}");
            assert_eq!(reply.header("access-control-allow-origin"), elsewhere, "its author may read why");
            let remedy = format!("bellwire app change shop --add-origin {elsewhere}");
            let detail = reply.json["detail"].as_str().unwrap();
            assert_eq!(detail.contains(&remedy), elsewhere != "null", "{detail}");
        }
    }
    let unheard = api.call(Method::POST, "/v1/apps/shop/subscriptions", None, Some(json!({}))).await;
    assert_eq!(unheard.status, 403, "no page, and no subscription");
    let config = api.browse(Method::GET, "/config", None, None).await;
    assert_eq!(config.header("access-control-allow-origin"), ORIGIN);
    let config = config.ok(200);
    assert_eq!(config["application_server_key"], api.app["vapid_key"]["public_key"]);
    assert_eq!(config["vapid_key_id"], api.app["vapid_key"]["id"]);
    let refused = api.browse(Method::POST, "/subscriptions", None, Some(json!({}))).await;
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (422, ORIGIN), "pages may read why");
    let by_server =
        api.call_with(Method::GET, "/v1/apps/shop/subscriptions", Some(&api.key), None, &[("origin", ORIGIN)]).await;
    assert_eq!(
        (by_server.status, by_server.header("access-control-allow-origin")),
        (200, ""),
        "keys are not for browsers"
    );
    let anywhere = [("origin", "http://localhost:3000")];
    let none = api.call_with(Method::GET, "/v1/apps/none/config", None, None, &anywhere).await;
    assert_eq!(none.refusal(), (404, "not_found", vec![]));
    assert_eq!(none.json["detail"], "There is no app `none` on this server.");
    assert_eq!(none.header("access-control-allow-origin"), "http://localhost:3000", "who mistyped it may read so");
}

#[tokio::test]
async fn the_public_is_limited_and_servers_are_not() {
    let per_client = RequestRate { burst: 3, per_minute: 1 };
    let api = TestApi::with(ApiConfig { per_client, ..ApiConfig::default() }, None).await;
    for left in [2, 1, 0] {
        let reply = api.browse(Method::GET, "/config", None, None).await;
        assert_eq!(reply.status, 200);
        assert!(reply.header("ratelimit").starts_with(&format!("\"client\";r={left};t=")), "{:?}", reply.headers);
    }
    let reply = api.browse(Method::GET, "/config", None, None).await;
    assert_eq!(reply.refusal(), (429, "rate_limited", vec![]));
    assert!((50..=61).contains(&reply.header("retry-after").parse::<u32>().unwrap()));
    assert_eq!(reply.header("ratelimit-policy"), "\"client\";q=3;w=180");
    let servers = api.get("/subscriptions").await;
    assert_eq!((servers.status, servers.header("ratelimit")), (200, "\"key\";r=39999;t=1"));
    let per_app = RequestRate { burst: 2, per_minute: 1 };
    let api = TestApi::with(ApiConfig { per_app, ..ApiConfig::default() }, None).await;
    for expected in [200, 200, 429] {
        assert_eq!(api.browse(Method::GET, "/config", None, None).await.status, expected);
    }
}

#[tokio::test]
async fn each_key_has_a_rate_of_its_own() {
    let per_key = RequestRate { burst: 2, per_minute: 1 };
    let api = TestApi::with(ApiConfig { per_key, ..ApiConfig::default() }, None).await;
    for left in [1, 0] {
        let reply = api.get("").await;
        assert_eq!(reply.header("ratelimit"), format!("\"key\";r={left};t=61"), "{}", reply.json);
        assert_eq!(reply.header("ratelimit-policy"), "\"key\";q=2;w=120");
    }
    let reply = api.get("").await;
    assert_eq!(
        (reply.refusal(), reply.header("ratelimit-policy")),
        ((429, "rate_limited", vec![]), "\"key\";q=2;w=120")
    );
    assert!((50..=61).contains(&reply.header("retry-after").parse::<u32>().unwrap()));
    assert_eq!(api.call(Method::GET, "/v1/apps/shop", Some(&api.operator), None).await.status, 200, "another key");
}

#[tokio::test]
async fn responses_carry_request_id_and_security_headers() {
    let api = TestApi::start().await;
    let reply = api.call_with(Method::GET, "/healthz", None, None, &[("x-request-id", "abc-1")]).await;
    assert_eq!((reply.status, reply.header("x-request-id")), (200, "abc-1"));
    let reply = api.call_with(Method::GET, "/v1/none", None, None, &[("x-request-id", "not loggable")]).await;
    let id = reply.header("x-request-id");
    assert!(id.len() == 36 && reply.json["request_id"] == id, "a fresh one, told in the problem too: {}", reply.json);
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    assert_eq!(reply.header("cache-control"), "no-store");
    assert!(reply.header("content-security-policy").contains("default-src 'none'"));
    assert_eq!(api.call(Method::GET, "/readyz", None, None).await.ok(200), json!({"status": "ok"}));
    api.pool.close().await;
    assert_eq!(api.call(Method::GET, "/readyz", None, None).await.status, 200, "the database is asked once a second");
    api.clock.advance(std::time::Duration::from_secs(1));
    let down = api.call(Method::GET, "/readyz", None, None).await;
    assert_eq!(down.refusal(), (503, "database_unavailable", vec![]));
    assert_eq!(api.call(Method::GET, "/healthz", None, None).await.status, 200);
}

#[tokio::test]
async fn the_description_names_every_route_and_its_problems() {
    let api = TestApi::start().await;
    let description = api.call(Method::GET, "/openapi.json", None, None).await.ok(200);
    assert!(description["openapi"].as_str().unwrap().starts_with("3.1"), "{}", description["openapi"]);
    let paths = description["paths"].as_object().unwrap();
    let operations: Vec<_> =
        paths.iter().flat_map(|(path, item)| item.as_object().unwrap().iter().map(move |op| (path, op))).collect();
    assert!(operations.len() >= 34, "{}", operations.len());
    for (path, (method, operation)) in &operations {
        assert!(operation["responses"]["default"].is_object(), "{method} {path}");
        assert!(operation["summary"].is_string(), "{method} {path}");
        let named = operation["parameters"].as_array().map_or(0, |p| p.iter().filter(|p| p["in"] == "path").count());
        assert_eq!(named, path.matches('{').count(), "{method} {path} describes what stands in its path");
    }
    let text = description.to_string();
    let schemas = description["components"]["schemas"].as_object().unwrap();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name} is referred to and not described");
    }
}

/// Makes a request whose body comes only after that has happened, which begins once the request was let in.
async fn held_back(api: &TestApi, request: Builder, body: Value, meanwhile: impl AsyncFnOnce()) -> Reply {
    let ((asked, was_asked), (let_go, may_go)) = (oneshot::channel(), oneshot::channel());
    let octets = stream::once(async move {
        asked.send(()).expect("somebody waits for that");
        may_go.await.map(|()| Bytes::from(body.to_string()))
    });
    let request = request.extension(LOOPBACK).header("content-type", "application/json");
    let reply = api.send(request.body(Body::from_stream(octets)).unwrap());
    let revoked = async {
        was_asked.await.expect("the body is read");
        meanwhile().await;
        let_go.send(()).expect("the request waits for its body");
    };
    tokio::join!(reply, revoked).0
}

#[tokio::test]
async fn permission_is_rechecked_after_the_body() {
    let api = TestApi::start().await;
    let ann = api.teammate("ann@example.com", json!([{"role": "admin"}])).await;
    let roles = |roles: Value| {
        let (api, path) = (&api, format!("/v1/team/{}", ann.teammate()));
        async move || drop(api.locally(Method::PATCH, &path, json!({"roles": roles})).await.ok(200))
    };
    let of_ann = |path: &str| {
        let request = Request::builder().method(Method::POST).uri(path).header("cookie", &ann.cookie);
        request.header("sec-fetch-site", "same-origin")
    };
    let key = json!({"name": "mine", "scopes": ["read"]});
    let reply = held_back(&api, of_ann("/v1/apps/shop/api-keys"), key.clone(), async || {}).await;
    assert_eq!(reply.status, 201, "as long as nothing has happened");
    let invitation = json!({"email": "thief@example.com", "roles": [{"role": "admin"}]});
    let demoted = roles(json!([{"role": "viewer"}]));
    let reply = held_back(&api, of_ann("/v1/team"), invitation, demoted).await;
    assert_eq!(reply.status, 401);
    roles(json!([{"role": "admin"}]))().await;
    let demoted = roles(json!([{"role": "viewer", "app": "shop"}]));
    let reply = held_back(&api, of_ann("/v1/apps/shop/api-keys"), key, demoted).await;
    assert_eq!(reply.status, 401);
    let team = api.locally(Method::GET, "/v1/team", Value::Null).await.ok(200);
    assert_eq!(team["data"].as_array().unwrap().len(), 1);

    let send = Request::builder().method(Method::POST).uri("/v1/apps/shop/messages");
    let send = send.header("authorization", format!("Bearer {}", api.key));
    let keys = api.get("/api-keys").await.ok(200);
    let id = keys["data"].as_array().unwrap().iter().find(|key| key["name"] != "mine").unwrap()["id"].clone();
    let revoked = async || {
        let path = format!("/v1/apps/shop/api-keys/{}", id.as_str().unwrap());
        api.call(Method::DELETE, &path, Some(&api.operator), None).await.ok(200);
    };
    let reply = held_back(&api, send, json!({"to": {"all": true}, "content": content()}), revoked).await;
    assert_eq!(reply.status, 401);
}
