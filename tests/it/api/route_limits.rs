//! Checks before every route: rate limits, size limits, CORS headers of refusals, and forbidden characters.

use axum::http::Method;
use bellwire::testkit::api::ApiConfig;
use bellwire::testkit::api::RequestRate;
use serde_json::{Value, json};

use crate::support::api::{ORIGIN, TestApi, fcm, high_rate_limits};

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
async fn nul_in_path_or_query_is_refused() {
    let api = TestApi::with(high_rate_limits(), None).await;
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
async fn guessed_keys_are_limited_valid_keys_not() {
    let guesses_per_client = RequestRate { burst: 60, per_minute: 1 };
    let api = TestApi::with(ApiConfig { guesses_per_client, ..ApiConfig::default() }, None).await;
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
async fn guessed_cookies_are_limited_valid_sessions_not() {
    let guesses_per_client = RequestRate { burst: 60, per_minute: 1 };
    let api = TestApi::with(ApiConfig { guesses_per_client, ..ApiConfig::default() }, None).await;
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
async fn subscribed_browsers_behind_one_address_go_on() {
    let per_client = RequestRate { burst: 20, per_minute: 1 };
    let api = TestApi::with(ApiConfig { per_client, ..high_rate_limits() }, None).await;
    let mut made = Vec::new();
    for n in 0..40 {
        made.push(api.subscribe(&fcm(&format!("{n}")), json!({})).await);
    }
    let place = |of: &Value| format!("/subscriptions/{}", of["id"].as_str().unwrap());
    for of in &made {
        let token = of["token"].as_str();
        let shown = api.browse(Method::GET, &place(of), token, None).await;
        assert_eq!(shown.status, 200, "{}", shown.json);
        assert!(shown.header("ratelimit").starts_with("\"subscription\";r=59"), "{:?}", shown.headers);
        assert_eq!(api.browse(Method::GET, "/config", token, None).await.status, 200, "a known token needs no id");
        assert_eq!(api.browse(Method::PATCH, &place(of), token, Some(json!({"topics": []}))).await.status, 200);
        let headers = [("origin", ORIGIN), ("access-control-request-method", "GET")];
        let preflight = api.call_with(Method::OPTIONS, "/v1/apps/shop/config", None, None, &headers).await;
        assert_eq!(preflight.status, 204);
    }
    let (one, other) = (&made[0], &made[1]);
    let own = place(one);
    let mine = (0..80).map(|_| api.browse(Method::GET, &own, one["token"].as_str(), None));
    let statuses: Vec<u16> = futures_util::future::join_all(mine).await.iter().map(|reply| reply.status).collect();
    assert!(statuses.contains(&200) && statuses.contains(&429), "each has a limit of its own: {statuses:?}");
    assert_eq!(api.browse(Method::GET, &place(other), other["token"].as_str(), None).await.status, 200);

    // Credentials without this server's signature count for the address.
    let made_up = format!("bt_{}", "A".repeat(43));
    let (mut refused, mut unknown) = (0, 0);
    for n in 0..40 {
        let token = if n % 2 == 0 { made_up.as_str() } else { one["token"].as_str().unwrap() };
        let of = if n % 2 == 0 { one } else { other };
        match api.browse(Method::GET, &place(of), Some(token), None).await.status {
            429 if n % 2 == 0 => refused += 1,
            404 if n % 2 == 0 => unknown += 1,
            status => assert!(matches!(status, 404 | 429), "another one's token: {status}"),
        }
    }
    assert_eq!((unknown, refused), (20, 0), "the burst of the address");
    assert_eq!(api.browse(Method::GET, &place(one), Some(&made_up), None).await.status, 429);
    assert_eq!(api.browse(Method::GET, "/config", None, None).await.status, 429);
    assert_eq!(api.browse(Method::GET, &place(other), other["token"].as_str(), None).await.status, 200);
}

#[tokio::test]
async fn revoked_token_costs_its_successor_nothing() {
    let api =
        TestApi::with(ApiConfig { per_client: RequestRate { burst: 1, per_minute: 1 }, ..high_rate_limits() }, None)
            .await;
    let made = api.subscribe(&fcm("a"), json!({"user_id": "ann"})).await;
    let place = format!("/subscriptions/{}", made["id"].as_str().unwrap());
    let renewed = api.subscribe(&fcm("a"), json!({"user_id": "bob"})).await;
    assert_ne!(made["token"], renewed["token"]);
    for _ in 0..70 {
        let status = api.browse(Method::GET, &place, made["token"].as_str(), None).await.status;
        assert!(matches!(status, 404 | 429), "{status}");
    }
    assert_eq!(api.browse(Method::GET, &place, renewed["token"].as_str(), None).await.status, 200);
}

#[tokio::test]
async fn advice_for_a_foreign_origin_works() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let config = async |origin: &str| {
        let refused = api.call_with(Method::GET, "/v1/apps/shop/config", None, None, &[("origin", origin)]).await;
        refused.json["detail"].as_str().unwrap_or_default().to_owned()
    };
    let add = async |origin: &str| {
        let body = Some(json!({"add_origins": [origin]}));
        api.call(Method::PATCH, "/v1/apps/shop", Some(&api.key), body).await
    };
    for origin in ["http://shop.localhost:3000", "http://localhost", "http://127.0.0.1:8080", "https://m.shop.example"]
    {
        assert!(config(origin).await.ends_with(&format!("--add-origin {origin}`")), "{origin}");
        assert!(add(origin).await.ok(200)["origins"].to_string().contains(origin));
        assert_eq!(config(origin).await, "", "{origin} is let in");
    }
    for origin in ["http://shop.example", "http://192.168.1.7:3000", "http://localhost.shop.example"] {
        let advice = config(origin).await;
        assert!(advice.contains("serve it over HTTPS") && !advice.contains("--add-origin"), "{advice}");
        let refused = add(origin).await;
        assert_eq!(refused.refusal(), (422, "invalid", vec!["/add_origins/0"]), "{origin}");
        assert!(refused.json.to_string().contains("serve it over HTTPS"), "{}", refused.json);
    }
}

#[tokio::test]
async fn pages_may_read_refusal_headers() {
    const EXPOSED: &str = "X-Request-Id, Retry-After, RateLimit, RateLimit-Policy";
    let tight = RequestRate { burst: 1, per_minute: 1 };
    let settings = ApiConfig {
        receipts_per_client: tight,
        per_client: RequestRate { burst: 2, per_minute: 1 },
        ..high_rate_limits()
    };
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

    let api = TestApi::with(ApiConfig { per_app: tight, ..high_rate_limits() }, None).await;
    api.browse(Method::GET, "/config", None, None).await.ok(200);
    let reply = api.browse(Method::GET, "/config", None, None).await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (429, ORIGIN), "the app's limit");
}
