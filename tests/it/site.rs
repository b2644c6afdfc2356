//! Files that browsers load from the server itself, and the app of the example page.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Request, Version};
use bellwire::testkit::api::Example;
use bellwire::testkit::api::{ApiConfig, ApiState, EngineHandle, router};
use bellwire_core::id::SubscriptionId;
use bellwire_core::origin::PageAudience;
use bellwire_gateway::Gateways;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::api::{Reply, TestApi, fcm, high_rate_limits, registration};
use crate::support::app::until_waiting;

const HERE: &str = "http://localhost:8787";

const LOCAL: &str = "127.0.0.1:1";
const STRANGER: &str = "203.0.113.1:1";

async fn load(api: &TestApi, path: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap, String) {
    load_from(api, LOCAL, path, headers).await
}

async fn load_from(api: &TestApi, peer: &str, path: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap, String) {
    let peer: SocketAddr = peer.parse().unwrap();
    let mut request = Request::get(path).extension(ConnectInfo(peer));
    for (name, value) in
        [("host", "localhost:8787")].iter().filter(|_| headers.iter().all(|h| h.0 != "host")).chain(headers)
    {
        request = request.header(*name, *value);
    }
    let response = api.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, headers, String::from_utf8_lossy(&body).into_owned())
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
}

async fn apps(api: &TestApi) -> Vec<Value> {
    let listed = api.call(Method::GET, "/v1/apps", Some(&api.operator), None).await.ok(200);
    listed["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn sdk_is_served_with_types_to_all() {
    let api = TestApi::with(high_rate_limits(), None).await;
    for (path, kind, cached) in [
        ("/sdk/bellwire.js", "text/javascript; charset=utf-8", "public, max-age=600"),
        ("/sdk/bellwire.d.ts", "text/plain; charset=utf-8", "public, max-age=600"),
        ("/sdk/service-worker.js", "text/javascript; charset=utf-8", "no-cache"),
        ("/sdk/bellwire-web.tgz", "application/gzip", "public, max-age=600"),
    ] {
        let (status, headers, body) = load(&api, path, &[]).await;
        assert_eq!((status, body.is_empty()), (200, false), "{path}");
        assert_eq!((header(&headers, "content-type"), header(&headers, "cache-control")), (kind, cached), "{path}");
        assert_eq!(header(&headers, "x-content-type-options"), "nosniff");
        assert_eq!(header(&headers, "access-control-allow-origin"), "*", "modules are read across origins");
        assert_eq!(header(&headers, "service-worker-allowed"), "/");
        let (status, again, body) = load(&api, path, &[("if-none-match", header(&headers, "etag"))]).await;
        assert_eq!((status, body.as_str(), header(&again, "cache-control")), (304, "", cached));
    }
    let worker = load(&api, "/sdk/service-worker.js", &[]).await.1;
    let policy = header(&worker, "content-security-policy");
    assert!(policy.contains("connect-src *"), "it is the worker's own policy, which has to report: {policy}");
    for (accepted, coding) in [("gzip, deflate", "gzip"), ("gzip, deflate, br, zstd", "br")] {
        let (status, headers, _) = load(&api, "/example/example.js", &[("accept-encoding", accepted)]).await;
        assert_eq!((status, header(&headers, "content-encoding")), (200, coding));
        assert_eq!(header(&headers, "vary"), "Accept-Encoding");
        let octets: usize = header(&headers, "content-length").parse().unwrap();
        assert!(octets < 3_500, "{octets}");
    }
    for path in ["/sdk/bellwire-web.tgz", "/clients/bellwire-server.tgz"] {
        let (status, package, _) = load(&api, path, &[("accept-encoding", "gzip, br")]).await;
        assert_eq!((status, header(&package, "content-type")), (200, "application/gzip"), "{path}");
        assert_eq!(header(&package, "content-encoding"), "", "a saved file must be the archive itself");
    }
    for absent in ["/sdk/", "/sdk/nothing.js", "/sdk/../Cargo.toml", "/sdk/%2e%2e/Cargo.toml", "/example/nothing"] {
        assert_eq!(load(&api, absent, &[]).await.0, 404, "{absent}");
    }
}

#[tokio::test]
async fn example_page_is_strict_and_creates_its_app() {
    let api = TestApi::with(high_rate_limits(), None).await;
    assert_eq!(load(&api, "/example/icon.svg", &[]).await.0, 200);
    assert_eq!(apps(&api).await.len(), 1, "files alone make no app");
    let (status, headers, body) = load(&api, "/example/", &[]).await;
    assert_eq!((status, header(&headers, "content-type")), (200, "text/html; charset=utf-8"));
    assert!(body.contains("/example/") || body.contains("example.js"), "{body}");
    let policy = header(&headers, "content-security-policy");
    for part in
        ["default-src 'none'", "script-src 'self'", "style-src 'self'", "worker-src 'self'", "frame-ancestors 'none'"]
    {
        assert!(policy.contains(part), "{part} in {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(header(&headers, "referrer-policy"), "no-referrer");
    let redirected = load(&api, "/example", &[]).await;
    assert_eq!((redirected.0, header(&redirected.1, "location")), (308, "/example/"));

    let made = apps(&api).await;
    assert_eq!((&made[0]["slug"], &made[0]["origins"]), (&json!("example"), &json!([HERE])));
    let (status, _, config) = load(&api, "/example/config.json", &[]).await;
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!((status, &config["app"], &config["server"]), (200, &json!("example"), &json!(HERE)));
    assert_eq!(config["app_id"], made[0]["id"]);
    load(&api, "/example/", &[("host", "127.0.0.1:8787")]).await;
    let made = apps(&api).await;
    assert_eq!((made.len(), &made[0]["origins"]), (2, &json!([HERE, "http://127.0.0.1:8787"])), "it is made once");
    let (status, headers, shown) = load(&api, "/v1/apps/example/config", &[("origin", HERE)]).await;
    assert_eq!((status, header(&headers, "access-control-allow-origin")), (200, HERE));
    assert!(header(&headers, "cache-control").contains("max-age=60"));
    assert!(shown.contains("application_server_key") && shown.contains("vapid_key_id"));
}

#[tokio::test]
async fn playground_needs_no_app_and_requests_nothing() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let redirected = load(&api, "/docs/playground", &[]).await;
    assert_eq!((redirected.0, header(&redirected.1, "location")), (308, "/docs/playground/"));
    let (status, headers, _) = load_from(&api, STRANGER, "/docs/playground/", &[]).await;
    assert_eq!((status, header(&headers, "content-type")), (200, "text/html; charset=utf-8"));
    let policy = header(&headers, "content-security-policy");
    for part in ["default-src 'none'", "script-src 'self'", "trusted-types 'none'", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{part} in {policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains("connect-src"), "{policy}");
    for (file, kind) in [("stage.js", "text/javascript; charset=utf-8"), ("stage.css", "text/css; charset=utf-8")] {
        let (status, headers, _) = load(&api, &format!("/docs/playground/{file}"), &[]).await;
        assert_eq!((status, header(&headers, "content-type")), (200, kind), "{file}");
    }
    assert_eq!(load(&api, "/docs/playground/none.js", &[]).await.0, 404);
    assert_eq!(apps(&api).await.len(), 1);
}

#[tokio::test]
async fn admin_page_is_strict_at_each_address() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let redirected = load(&api, "/admin", &[]).await;
    assert_eq!((redirected.0, header(&redirected.1, "location")), (308, "/admin/"));
    let (_, _, page) = load(&api, "/admin/", &[]).await;
    for deep in ["/admin/", "/admin/lanes/3?app=shop", "/admin/invite", "/admin/%2e%2e/Cargo.toml"] {
        let (status, headers, body) = load_from(&api, STRANGER, deep, &[]).await;
        assert_eq!((status, header(&headers, "content-type")), (200, "text/html; charset=utf-8"), "{deep}");
        assert_eq!((body == page, header(&headers, "cache-control")), (true, "no-cache"), "{deep}");
        let policy = header(&headers, "content-security-policy");
        assert_eq!(
            policy.split("; ").collect::<Vec<_>>(),
            [
                "default-src 'none'",
                "script-src 'self'",
                "style-src 'self'",
                "connect-src 'self'",
                "img-src 'self'",
                "base-uri 'none'",
                "form-action 'self'",
                "frame-ancestors 'none'",
                "require-trusted-types-for 'script'",
                "trusted-types 'none'"
            ]
        );
        assert_eq!(header(&headers, "referrer-policy"), "no-referrer");
    }
    let asset = page.split('"').find(|text| text.starts_with("/admin/assets/")).expect("the page has a script");
    let (status, headers, _) = load(&api, asset, &[]).await;
    assert_eq!((status, header(&headers, "cache-control")), (200, "public, max-age=31536000, immutable"));
    assert_eq!(header(&headers, "access-control-allow-origin"), "", "it is nobody else's");
    for absent in ["/admin/assets/none.js", "/adminx", "/shared/", "/shared/none.css"] {
        assert_eq!(load(&api, absent, &[]).await.0, 404, "{absent}");
    }
    assert!(load(&api, "/shared/tokens.css", &[]).await.2.contains("--accepted"), "pages share their colours");
}

#[tokio::test]
async fn concurrent_example_pages_are_all_admitted() {
    let api = TestApi::with(high_rate_limits(), None).await;
    load(&api, "/example/", &[]).await;
    let mut held = api.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM apps FOR UPDATE").execute(&mut *held).await.unwrap();
    let others = ["127.0.0.1:8787", "[::1]:8787"];
    let pages = join_all(others.map(async |host| load(&api, "/example/", &[("host", host)]).await.0));
    let release = async {
        until_waiting(&api.pool, 2).await;
        held.rollback().await.unwrap();
    };
    assert_eq!(tokio::join!(pages, release).0, [200, 200]);
    for origin in [HERE, "http://127.0.0.1:8787", "http://[::1]:8787"] {
        let made = apps(&api).await;
        assert!(made[0]["origins"].as_array().unwrap().contains(&json!(origin)), "{origin} in {made:?}");
    }
}

#[tokio::test]
async fn disabled_example_has_no_page_nor_app() {
    let api = TestApi::with(ApiConfig { example: None, ..high_rate_limits() }, None).await;
    for path in ["/example", "/example/", "/example/index.html", "/example/config.json"] {
        assert_eq!(load(&api, path, &[]).await.0, 404, "{path}");
    }
    assert_eq!(wish(&api, HERE, Some("bt_x"), "sub_019aa000-0000-7000-8000-000000000000").await.status, 404);
    assert_eq!(apps(&api).await.len(), 1);
    assert_eq!(load(&api, "/sdk/bellwire.js", &[]).await.0, 200);
}

#[tokio::test]
async fn remote_example_page_needs_a_public_url() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let elsewhere = [("host", "push.example.com")];
    assert_eq!(load(&api, "/example/", &elsewhere).await.0, 200);
    assert_eq!(apps(&api).await.len(), 1, "whoever names a host gets no origin let in");
    let (status, _, told) = load(&api, "/example/config.json", &elsewhere).await;
    assert!(status == 409 && told.contains("example_unavailable") && told.contains("BELLWIRE_PUBLIC_URL"), "{told}");

    let public_url = Some("https://push.bellwire.dev/".parse().unwrap());
    let api = TestApi::with(
        ApiConfig { example: Some(Example { public_url, ..Example::default() }), ..high_rate_limits() },
        None,
    )
    .await;
    assert_eq!(load(&api, "/example/", &[]).await.0, 200);
    assert_eq!(apps(&api).await[0]["origins"], json!(["https://push.bellwire.dev"]));
}

#[tokio::test]
async fn operator_app_of_that_name_is_untouched() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let (before, _) = api.make_app("example").await;
    assert_eq!(load(&api, "/example/", &[]).await.0, 200);
    assert_eq!(load(&api, "/example/config.json", &[]).await.0, 409);
    let after = apps(&api).await;
    assert_eq!((after.len(), &after[0]["origins"]), (2, &before["origins"]));
}

async fn wish(api: &TestApi, origin: &str, token: Option<&str>, subscription: &str) -> Reply {
    let headers = [("origin", origin), ("host", "localhost:8787")];
    let body = json!({"subscription": subscription});
    api.call_with(Method::POST, "/example/send", token, Some(body), &headers).await
}

/// Registers as the example page does; answers id and token.
async fn visitor(api: &TestApi, name: &str) -> (String, String) {
    let body = registration(&fcm(name), json!({}));
    let path = "/v1/apps/example/subscriptions";
    let made = api.call_with(Method::POST, path, None, Some(body), &[("origin", HERE)]).await.ok(201);
    (made["id"].as_str().unwrap().to_owned(), made["token"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn example_visitor_sends_only_to_itself() {
    let api = TestApi::with(high_rate_limits(), None).await;
    load(&api, "/example/", &[]).await;
    let ((ann, ann_token), (bob, _)) = (visitor(&api, "ann").await, visitor(&api, "bob").await);
    let shops = api.subscribe(&fcm("shop"), json!({})).await;
    for (origin, token, to, expected) in [
        (HERE, None, ann.as_str(), (401, "unauthorized")),
        (HERE, Some(ann_token.as_str()), bob.as_str(), (404, "not_found")),
        ("https://evil.example", Some(&ann_token), &ann, (403, "forbidden")),
    ] {
        let refused = wish(&api, origin, token, to).await;
        assert_eq!((refused.refusal().0, refused.refusal().1), expected, "{to}");
    }
    let (shop, token) = (shops["id"].as_str().unwrap(), shops["token"].as_str());
    assert_eq!(wish(&api, HERE, token, shop).await.status, 404, "another app's");
    let sent = wish(&api, HERE, Some(&ann_token), &ann).await.ok(202);
    assert!(sent["id"].as_str().unwrap().starts_with("msg_"));
    let queued: Vec<uuid::Uuid> =
        sqlx::query_scalar("SELECT subscription FROM queue").fetch_all(&api.pool).await.unwrap();
    assert_eq!(queued, [ann.parse::<SubscriptionId>().unwrap().0]);
    assert_eq!(wish(&api, HERE, Some(&ann_token), &ann).await.status, 202);
    let seventh = wish(&api, HERE, Some(&ann_token), &ann).await;
    assert_eq!(seventh.refusal(), (429, "rate_limited", vec![]), "refused wishes count as well");
}

#[tokio::test]
async fn strangers_need_permission_to_see_the_example() {
    let public = PageAudience::Everybody;
    for (settings, peer, headers, expected) in [
        (high_rate_limits(), LOCAL, vec![], 200),
        (high_rate_limits(), "[::ffff:127.0.0.1]:1", vec![], 200),
        (high_rate_limits(), STRANGER, vec![], 404),
        (high_rate_limits(), LOCAL, vec![("x-forwarded-for", "127.0.0.1")], 404),
        (ApiConfig { trusted_proxies: 1, ..high_rate_limits() }, LOCAL, vec![], 404),
        (
            ApiConfig { example: Some(Example { audience: public, public_url: None }), ..high_rate_limits() },
            STRANGER,
            vec![],
            200,
        ),
    ] {
        let api = TestApi::with(settings, None).await;
        let (status, ..) = load_from(&api, peer, "/example/", &headers).await;
        assert_eq!(status, expected, "{peer} {headers:?}");
        let written = apps(&api).await.len() - 1;
        assert_eq!(written, usize::from(expected == 200 && peer != STRANGER), "{peer} {headers:?}");
    }
    // A proxy that adds nothing, as nginx comes.
    let api = TestApi::with(high_rate_limits(), None).await;
    let peer: SocketAddr = LOCAL.parse().unwrap();
    let request = Request::builder().version(Version::HTTP_10).uri("/example/").header("host", "localhost:8787");
    let request = request.extension(ConnectInfo(peer)).body(Body::empty()).unwrap();
    assert_eq!(api.router.clone().oneshot(request).await.unwrap().status(), 404);
}

#[tokio::test]
async fn example_origins_are_limited_per_minute() {
    let mut api = TestApi::with(high_rate_limits(), None).await;
    let mut limited = 0;
    for n in 1..=300 {
        limited += usize::from(load(&api, "/example/", &[("host", &format!("localhost:{n}"))]).await.0 == 429);
    }
    assert!(limited > 280, "{limited} of 300 were limited");
    let origins: Vec<_> = (1..=50).map(|n| format!("https://{n}.example")).collect();
    let body = json!({"origins": origins});
    api.call(Method::PATCH, "/v1/apps/example", Some(&api.operator), Some(body)).await.ok(200);

    let fresh = ApiState::new(
        api.pool.clone(),
        api.pool.clone(),
        api.vault.clone(),
        api.clock.clone(),
        Gateways::new(Default::default()).unwrap(),
        EngineHandle::none(),
        high_rate_limits(),
    );
    api.router = router(fresh);
    let (status, _, told) = load(&api, "/example/config.json", &[]).await;
    assert!(status == 409 && told.contains("example_unavailable"), "{status} {told}");
    assert_eq!(apps(&api).await[0]["origins"], json!(origins));
}

#[tokio::test]
async fn first_run_page_is_public_and_strict() {
    let api = TestApi::with(high_rate_limits(), None).await;
    for (path, kind) in [
        ("/try/?app=shop", "text/html; charset=utf-8"),
        ("/try/try.js", "text/javascript; charset=utf-8"),
        ("/try/try.css", "text/css; charset=utf-8"),
        ("/try/service-worker.js", "text/javascript; charset=utf-8"),
    ] {
        let (status, headers, _) = load_from(&api, STRANGER, path, &[]).await;
        assert_eq!((status, header(&headers, "content-type")), (200, kind), "{path}");
        assert_eq!(header(&headers, "access-control-allow-origin"), "", "{path}");
        let policy = header(&headers, "content-security-policy");
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part) && !policy.contains("unsafe"), "{path}: {part} in {policy}");
        }
    }
    assert_eq!(apps(&api).await.len(), 1, "it makes no app");
    assert_eq!(load(&api, "/try/nothing", &[]).await.0, 404);
}
