//! What stands before every route: limits of rate and size, CORS of what they refuse, and what no value may hold.

use axum::http::Method;
use bellwire::testkit::api::Settings;
use bellwire::testkit::api::limits::Rate;
use serde_json::{Value, json};

use super::{ORIGIN, TestApi, fcm, roomy};

/// Every combination of a route's parameters in which one is NUL, percent-encoded, and the others are plausible.
fn with_nul(path: &str, operation: &Value) -> Vec<String> {
    let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
    let of = |place: &str| -> Vec<String> {
        let named = parameters.iter().filter(|parameter| parameter["in"] == place);
        named.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect()
    };
    let filled = |nul: Option<&str>| {
        of("path").iter().fold(path.to_owned(), |path, name| {
            let value = match (nul == Some(name), name.as_str()) {
                (true, _) => "a%00b",
                (false, "app") => "shop",
                (false, "topic") => "news",
                (false, _) => "1",
            };
            path.replace(&format!("{{{name}}}"), value)
        })
    };
    let in_path = of("path").into_iter().map(|name| filled(Some(&name)));
    let in_query = of("query").into_iter().map(|name| format!("{}?{name}=a%00b", filled(None)));
    in_path.chain(in_query).collect()
}

#[tokio::test]
async fn nul_in_any_path_or_query_is_refused_and_never_our_fault() {
    let api = TestApi::with(roomy(), None).await;
    let description = api.call(Method::GET, "/openapi.json", None, None).await.ok(200);
    let mut tried = 0;
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let method: Method = method.to_uppercase().parse().unwrap();
            for uri in with_nul(path, operation) {
                for key in [None, Some(&*api.key), Some(&*api.operator)] {
                    let body = (method != Method::GET).then(|| json!({}));
                    let reply = api.call_with(method.clone(), &uri, key, body, &[("origin", ORIGIN)]).await;
                    assert!((400..500).contains(&reply.status), "{method} {uri}: {} {}", reply.status, reply.json);
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 500, "{tried}");
    let reply = api.call(Method::GET, "/v1/apps/%00/config", None, None).await;
    assert_eq!(reply.refusal(), (400, "invalid_parameter", vec!["app"]));
    let reply = api.get("/dead-letters?topic=a%00b").await;
    assert_eq!(reply.refusal(), (400, "invalid_parameter", vec!["topic"]));
}

#[tokio::test]
async fn whoever_makes_up_keys_is_soon_refused_and_valid_keys_are_not() {
    let guesses_per_client = Rate { burst: 60, per_minute: 1 };
    let api = TestApi::with(Settings { guesses_per_client, ..Settings::default() }, None).await;
    let ask = async |path: &str, key: &str| api.call(Method::GET, path, Some(key), None).await;
    assert_eq!(api.get("").await.status, 200);
    let mut refused = 0;
    for n in 0..200 {
        let path = ["/v1/apps/shop/config", "/v1/apps/shop/messages", "/v1/gateways"][n % 3];
        let reply = ask(path, &format!("bw_{n}")).await;
        assert!(matches!(reply.status, 401 | 429), "{path}: {} {}", reply.status, reply.json);
        refused += usize::from(reply.status == 429);
    }
    assert!(refused >= 140, "only {refused} of 200 were refused");
    let reply = ask("/v1/apps/shop/config", "bw_x").await;
    assert_eq!(reply.refusal(), (429, "rate_limited", vec![]));
    assert!(!reply.header("retry-after").is_empty() && reply.header("ratelimit").starts_with("\"keys\";r=0;"));
    assert_eq!(api.get("").await.status, 200, "a key that is known to be good is not held up");
}

#[tokio::test]
async fn whoever_makes_up_cookies_is_soon_refused_and_whoever_is_signed_in_is_not() {
    let guesses_per_client = Rate { burst: 60, per_minute: 1 };
    let api = TestApi::with(Settings { guesses_per_client, ..Settings::default() }, None).await;
    let ann = api.teammate("ann@example.com", json!([{"role": "viewer"}])).await;
    let gone = api.teammate("gone@example.com", json!([{"role": "viewer"}])).await;
    assert!(ann.is_in().await);
    gone.call(Method::DELETE, "/v1/session", None).await;
    let ask = async |n: usize, cookie: &str, site: &str| {
        let path = ["/v1/apps/shop/config", "/v1/apps/shop/subscriptions/sub_x", "/v1/session"][n % 3];
        api.call_with(Method::GET, path, None, None, &[("cookie", cookie), ("sec-fetch-site", site)]).await
    };
    let mut refused = 0;
    for n in 0..240 {
        let reply = match n % 4 {
            0 => ask(n, "bellwire=x", "same-origin").await,
            1 => ask(n, &format!("bellwire={n}"), "same-origin").await,
            2 => ask(n, &gone.cookie, "same-origin").await,
            _ => ask(n, &ann.cookie, "cross-site").await,
        };
        assert!(matches!(reply.status, 401 | 403 | 429), "{n}: {} {}", reply.status, reply.json);
        refused += usize::from(reply.status == 429);
    }
    assert!(refused >= 175, "only {refused} of 240 were refused");
    let reply = ask(0, "bellwire=x", "same-origin").await;
    assert_eq!(reply.refusal(), (429, "rate_limited", vec![]));
    assert!(!reply.header("retry-after").is_empty() && reply.header("ratelimit").starts_with("\"keys\";r=0;"));
    assert!(ann.is_in().await, "a session that is known to live is not held up");
}

#[tokio::test]
async fn browsers_send_small_bodies_and_servers_larger_ones() {
    let api = TestApi::start().await;
    let large = |octets: usize| json!({"subscription": {}, "user_token": "x".repeat(octets)});
    let id = api.subscribe(&fcm("a"), json!({})).await["id"].as_str().unwrap().to_owned();
    for (method, path) in [(Method::POST, "/subscriptions".to_owned()), (Method::PATCH, format!("/subscriptions/{id}"))]
    {
        let reply = api.browse(method, &path, None, Some(large(16_384))).await;
        assert_eq!(reply.refusal(), (413, "body_too_large", vec![]), "{path}");
        assert!(reply.json["detail"].as_str().unwrap().contains("16384 octets"), "{}", reply.json);
        assert_eq!(reply.header("access-control-allow-origin"), ORIGIN);
    }
    assert_eq!(api.post("/subscriptions", large(16_384)).await.status, 422, "servers keep theirs");
    assert_eq!(api.post("/subscriptions", large(1 << 20)).await.status, 413);
    let report = json!({"receipt": "x".repeat(64), "kind": "clicked", "action": "\u{1F514}".repeat(200)});
    let reply = api.browse(Method::POST, "/receipts", None, Some(json!(vec![report.clone(); 100]))).await;
    assert_eq!(reply.ok(202)["refused"], 100, "the longest list that there may be fits");
    let reply = api.browse(Method::POST, "/receipts", None, Some(json!(vec![report; 200]))).await;
    assert_eq!(reply.refusal(), (413, "body_too_large", vec![]));
}

#[tokio::test]
async fn pages_may_read_why_and_until_when_they_are_refused() {
    const EXPOSED: &str = "X-Request-Id, Retry-After, RateLimit, RateLimit-Policy";
    let tight = Rate { burst: 1, per_minute: 1 };
    let settings = Settings { receipts_per_client: tight, per_client: Rate { burst: 2, per_minute: 1 }, ..roomy() };
    let api = TestApi::with(settings, None).await;
    let config = api.browse(Method::GET, "/config", None, None).await;
    assert_eq!((config.status, config.header("access-control-expose-headers")), (200, EXPOSED));
    api.browse(Method::GET, "/config", None, None).await.ok(200);
    api.browse(Method::POST, "/receipts", None, Some(json!({}))).await.ok(422);
    for (method, path) in [(Method::GET, "/config"), (Method::POST, "/subscriptions"), (Method::POST, "/receipts")] {
        let reply = api.browse(method.clone(), path, None, Some(json!({}))).await;
        assert_eq!(reply.refusal(), (429, "rate_limited", vec![]), "{path}");
        assert_eq!(reply.header("access-control-allow-origin"), ORIGIN, "{path}");
        assert_eq!(reply.header("access-control-expose-headers"), EXPOSED, "{path}");
        assert!(!reply.header("retry-after").is_empty() && !reply.header("ratelimit").is_empty(), "{path}");
        let path = format!("/v1/apps/shop{path}");
        let elsewhere = api.call_with(method, &path, None, None, &[("origin", "https://evil.example")]).await;
        assert_eq!((elsewhere.status, elsewhere.header("access-control-allow-origin")), (429, ""));
    }

    let api = TestApi::with(Settings { per_app: tight, ..roomy() }, None).await;
    api.browse(Method::GET, "/config", None, None).await.ok(200);
    let reply = api.browse(Method::GET, "/config", None, None).await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (429, ORIGIN), "the app's limit");
}
