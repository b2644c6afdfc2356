//! Export of an app, and its import into another app.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use axum::response::Response;
use bellwire::testkit::api::ApiConfig;
use bellwire_webpush::keys::SigningKey;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::ServiceExt as _;

use crate::support::api::{LOOPBACK, Reply, TestApi, content, fcm, push_subscription};
use crate::support::app::PATIENCE;

fn request(method: Method, path: &str, key: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {key}"));
    request.extension(LOOPBACK).body(body.into()).unwrap()
}

/// An export, byte for byte.
async fn taken_out(api: &TestApi, query: &str) -> String {
    let request = request(Method::GET, &format!("/v1/apps/shop/export{query}"), &api.key, Body::empty());
    let answer = api.router.clone().oneshot(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let kind = answer.headers()["content-disposition"].to_str().unwrap().to_owned();
    assert!(kind.starts_with("attachment; filename=\"shop-2027-01-15."), "{kind}");
    let octets = axum::body::to_bytes(answer.into_body(), usize::MAX).await.expect("it ends well");
    String::from_utf8(octets.to_vec()).unwrap()
}

fn lines(file: &str) -> Vec<Value> {
    file.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

/// An app that has the VAPID pair of another, and its key.
async fn twin(api: &TestApi, file: &str) -> String {
    let (_, key) = api.make_app("twin").await;
    for pair in of(&lines(file), "vapid_key") {
        let body = json!({"private_key": pair["private_key"], "state": pair["state"]});
        api.call(Method::POST, "/v1/apps/twin/vapid-keys", Some(&key), Some(body)).await.ok(201);
    }
    key
}

async fn taken_in(api: &TestApi, key: &str, query: &str, file: impl Into<Body>) -> Value {
    let path = format!("/v1/apps/twin/imports{query}");
    api.send(request(Method::POST, &path, key, file)).await.ok(201)
}

fn counts(import: &Value) -> [i64; 5] {
    ["lines", "added", "known", "left_out", "refused"].map(|name| import[name].as_i64().unwrap())
}

/// Subscriptions of an app in a comparable form.
async fn subscriptions(api: &TestApi, app: &str, key: &str) -> Vec<Value> {
    let path = format!("/v1/apps/{app}/subscriptions?limit=250");
    let list = api.call(Method::GET, &path, Some(key), None).await.ok(200);
    let common = |row: &Value| {
        let members = [
            "state",
            "gateway",
            "user_id",
            "tags",
            "attributes",
            "topics",
            "locale",
            "timezone",
            "created_at",
            "consent",
        ];
        members
            .into_iter()
            .map(|member| (member.to_owned(), row[member].clone()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let mut all: Vec<Value> = list["data"].as_array().unwrap().iter().map(common).collect();
    all.sort_by_key(Value::to_string);
    all
}

async fn exports(api: &TestApi) -> Vec<Value> {
    api.get("/exports").await.ok(200)["data"].as_array().unwrap().clone()
}

/// Subscribes browsers with all optional members, and one that has unsubscribed.
async fn furnish(api: &TestApi) {
    let pair = json!({"private_key": *SigningKey::generate().expose_raw()});
    api.subscribe(&fcm("before"), json!({"topics": ["news"]})).await;
    api.post("/vapid-keys", pair).await.ok(201);
    let said = json!({"user_id": "=ann, \"quoted\"", "tags": ["vip", "a b"], "attributes": {"plan": "pro", "n": 3.5, "b": true},
        "topics": ["sports", "news"], "locale": "de-AT", "timezone": "Europe/Vienna", "policy": {"retries": 2}, "muted": {},
        "consent": {"at": "2026-05-04T12:00:00Z", "source": "=form, \"spring\""}});
    api.subscribe(&fcm("after"), said).await;
    api.subscribe(&fcm("bare"), json!({})).await;
    let left = api.subscribe(&fcm("left"), json!({"user_id": "ben"})).await;
    let path = format!("/v1/apps/shop/subscriptions/{}", left["id"].as_str().unwrap());
    api.call(Method::DELETE, &path, Some(&api.key), None).await.ok(204);
}

#[tokio::test]
async fn export_is_ordered_complete_and_resumable() {
    let api = TestApi::start().await;
    furnish(&api).await;
    let put = async |path: &str, body: Value| {
        let path = format!("/v1/apps/shop{path}");
        api.call(Method::PUT, &path, Some(&api.operator), Some(body)).await
    };
    put("/segments/pro", json!({"expression": "plan = 'pro'"})).await.ok(201);
    put("/templates/hello", json!({"content": content()})).await.ok(201);
    put("/policies/tiers/promotional", json!({"retries": 1})).await.ok(200);
    put("/policies/topics/news", json!({"retries": 2})).await.ok(200);
    put("/calendar", json!({"timezone": "Europe/Berlin"})).await.ok(200);
    put("/prompt", json!({"visits": 2})).await.ok(200);
    put("/caps", json!({"caps": [{"tiers": ["promotional"], "max": 2, "window": "1d"}]})).await.ok(200);
    put("/flow", json!({"rate": 10, "period": "1m"})).await.ok(200);
    let identity = api.post("/identity-keys", json!({"name": "backend"})).await.ok(201);
    let hook = json!({"name": "CRM", "url": "https://hooks.example.com/x", "events": ["delivery.gone"]});
    let hook = api.post("/webhooks", hook).await.ok(201);
    let campaign = json!({"slug": "spring", "message": {"to": {"all": true}, "content": content()}});
    api.post("/campaigns", campaign.clone()).await.ok(201);
    let started = json!({"slug": "started", "message": campaign["message"]});
    api.post("/campaigns", started).await.ok(201);
    api.post("/campaigns/started/start", json!({})).await.ok(200);
    let follows = json!({"campaign": "started", "did_not": "click", "after": 3600});
    let follow = json!({"slug": "follow", "message": campaign["message"], "follows": follows});
    api.post("/campaigns", follow).await;

    let file = lines(&taken_out(&api, "").await);
    let mut kinds: Vec<&str> = file.iter().map(|line| line["type"].as_str().unwrap()).collect();
    kinds.dedup();
    assert_eq!(
        kinds,
        [
            "app",
            "vapid_key",
            "identity_key",
            "prompt",
            "calendar",
            "frequency_caps",
            "slas",
            "guard",
            "flow",
            "policy",
            "topic",
            "policy",
            "topic",
            "segment",
            "template",
            "webhook",
            "campaign",
            "subscription",
            "end"
        ]
    );
    let secrets = (&of(&file, "identity_key")[0]["secret"], &of(&file, "webhook")[0]["secret"]);
    assert_eq!(secrets, (&identity["secret"], &hook["secret"]));
    let states: Vec<_> = of(&file, "vapid_key").iter().map(|key| key["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["active", "retired"], "the app begins with the active one");
    let campaigns: Vec<_> = of(&file, "campaign").iter().map(|it| it["plan"]["slug"].as_str().unwrap()).collect();
    assert_eq!(campaigns, ["spring"], "what was started goes out here, and what follows it stays");
    let end = file.last().unwrap();
    assert_eq!((&end["counts"]["subscription"], &end["counts"]["topic"]), (&json!(4), &json!(2)));
    assert!(end["counts"]["end"].is_null());
    let whole = exports(&api).await.remove(0);
    assert_eq!((&whole["state"], &whole["lines"]), (&json!("complete"), &json!(file.len())));
    assert!(whole["by"].as_str().unwrap().starts_with("ak_") && whole["ended_at"].is_string(), "{whole}");
}

#[tokio::test]
async fn exported_subscriptions_import_into_another_app() {
    let api = TestApi::start().await;
    furnish(&api).await;
    let whole = taken_out(&api, "").await;
    let key = twin(&api, &whole).await;
    let before = subscriptions(&api, "shop", &api.key).await;
    let n = whole.lines().count() as i64;
    let import = taken_in(&api, &key, "?format=ndjson", whole).await;
    assert_eq!((counts(&import), &import["ignored"]), ([n, 3, 0, n - 3, 0], &json!([])), "{import}");
    assert_eq!(subscriptions(&api, "twin", &key).await, before);
    for (query, format) in [("?only=subscriptions", "ndjson"), ("?only=subscriptions&format=csv", "csv")] {
        let file = taken_out(&api, query).await;
        let import = taken_in(&api, &key, &format!("?format={format}"), file.clone()).await;
        let (added, known) = (import["added"].as_i64(), import["known"].as_i64());
        assert_eq!((added, known, &import["refused"]), (Some(0), Some(3), &json!(0)), "{format}: {import}");
        assert_eq!(subscriptions(&api, "twin", &key).await, before, "{format} says the same");
    }
    let policies = "SELECT count(*) FROM subscriptions WHERE policy = '{\"retries\": 2}'";
    assert_eq!(sqlx::query_scalar::<_, i64>(policies).fetch_one(&api.pool).await.unwrap(), 2);
    let signed = "SELECT count(DISTINCT k.public_key) FROM subscriptions s JOIN lanes l ON l.id = s.lane JOIN vapid_keys k ON k.id = l.vapid_key";
    assert_eq!(sqlx::query_scalar::<_, i64>(signed).fetch_one(&api.pool).await.unwrap(), 2, "each under its key");
}

#[tokio::test]
async fn import_does_not_restore_the_unsubscribed() {
    let api = TestApi::start().await;
    furnish(&api).await;
    let file = taken_out(&api, "?only=subscriptions").await;
    let left: Vec<Value> = lines(&file).into_iter().filter(|line| line["state"] == "unsubscribed").collect();
    assert_eq!((left.len(), left[0]["user_id"].as_str()), (1, Some("ben")), "so that ben can be erased there, too");
    let key = twin(&api, &taken_out(&api, "").await).await;
    taken_in(&api, &key, "?format=ndjson", file).await;
    let older = json!({"endpoint": left[0]["endpoint"], "keys": left[0]["keys"], "vapid_key": left[0]["vapid_key"]});
    let import = taken_in(&api, &key, "?format=ndjson", format!("{older}\n")).await;
    assert_eq!(counts(&import), [1, 0, 0, 1, 0]);
    let all = subscriptions(&api, "twin", &key).await;
    assert_eq!(all.iter().filter(|row| row["state"] == "active").count(), 3);
    let list = api.call(Method::GET, "/v1/apps/twin/subscriptions?state=unsubscribed", Some(&key), None).await.ok(200);
    assert_eq!(list["data"][0]["user_id"], "ben");
    let active =
        "SELECT coalesce(sum(n), 0)::bigint FROM audiences a JOIN lanes l ON l.id = a.lane JOIN apps ON apps.id = l.app
                  WHERE apps.slug = 'twin' AND a.topic = 0";
    assert_eq!(
        sqlx::query_scalar::<_, i64>(active).fetch_one(&api.pool).await.unwrap(),
        3,
        "who left counts as nobody"
    );
}

#[tokio::test]
async fn interrupted_export_resumes_after_last_subscription() {
    let api = TestApi::start().await;
    furnish(&api).await;
    let whole = taken_out(&api, "?only=subscriptions").await;
    let all = lines(&whole);
    let part: String = whole.lines().take(2).map(|line| format!("{line}\n")).collect();
    let key = twin(&api, &taken_out(&api, "").await).await;
    let import = taken_in(&api, &key, "?format=ndjson", part.clone()).await;
    let active = all[..2].iter().filter(|line| line["state"].is_null()).count() as i64;
    assert_eq!(counts(&import), [2, active, 0, 2 - active, 1]);
    assert_eq!((&import["faults"][0]["line"], &import["faults"][0]["field"]), (&json!(3), &json!("type")), "{import}");
    let rest = lines(&taken_out(&api, &format!("?after={}", all[1]["id"].as_str().unwrap())).await);
    assert_eq!(rest[..rest.len() - 1], all[2..all.len() - 1], "no settings, and nobody twice");
    assert_eq!(rest.last().unwrap()["counts"], json!({"subscription": 2}));
    let rest: String = rest.iter().map(|line| format!("{line}\n")).collect();
    let import = taken_in(&api, &key, "?format=ndjson", part + &rest).await;
    assert_eq!(counts(&import), [5, 3 - active, active, 2, 0], "{import}");
}

#[tokio::test]
async fn csv_export_covers_subscriptions_with_scope() {
    let api = TestApi::start().await;
    let refusal = |reply: &Reply| (reply.status, reply.json["code"].as_str().unwrap().to_owned());
    assert_eq!(refusal(&api.get("/export?format=csv").await), (400, "invalid_parameter".to_owned()));
    let body = json!({"name": "all else", "scopes": ["send", "read", "subscribers", "messages", "policies", "settings", "keys"]});
    let key = api.post("/api-keys", body).await.ok(201)["secret"].as_str().unwrap().to_owned();
    let reply = api.call(Method::GET, "/v1/apps/shop/export", Some(&key), None).await;
    assert_eq!(refusal(&reply), (403, "forbidden".to_owned()));
    assert_eq!(exports(&api).await, Vec::<Value>::new());
}

#[tokio::test]
async fn slow_export_client_costs_little_memory() {
    const N: usize = 12_000;
    let api = TestApi::start().await;
    let file: String = (0..N).map(|n| format!("{}\n", push_subscription(&fcm(&n.to_string())))).collect();
    let path = "/v1/apps/shop/imports?format=ndjson";
    assert_eq!(api.send(request(Method::POST, path, &api.key, file)).await.ok(201)["added"], N);
    let answer = request(Method::GET, "/v1/apps/shop/export?only=subscriptions", &api.key, Body::empty());
    let mut parts = api.router.clone().oneshot(answer).await.unwrap().into_body().into_data_stream();
    let first = parts.next().await.unwrap().unwrap();
    assert!(first.len() < 1_000_000, "{} octets", first.len());
    // It waits for the client: whenever one looks, it has handed over no more than a few parts.
    for _ in 0..50 {
        let running = exports(&api).await.remove(0);
        assert_eq!(running["state"], "running");
        assert!(running["lines"].as_i64().unwrap() <= 4_000, "{running}");
        tokio::task::yield_now().await;
    }
    drop(parts);
    let broken = loop {
        let row = exports(&api).await.remove(0);
        if row["state"] != "running" {
            break row;
        }
    };
    assert_eq!(broken["state"], "broken_off");
    assert!(broken["ended_at"].is_string() && broken["lines"].as_i64().unwrap() <= 4_000, "{broken}");
}

#[tokio::test]
async fn crashed_export_is_marked_broken_off() {
    let api = TestApi::start().await;
    taken_out(&api, "").await;
    sqlx::query("UPDATE exports SET ended_at = NULL, complete = false").execute(&api.pool).await.unwrap();
    assert_eq!(exports(&api).await[0]["state"], "running");
    api.clock.clone().advance(std::time::Duration::from_secs(181));
    let lost = exports(&api).await.remove(0);
    assert_eq!((&lost["state"], &lost["ended_at"]), (&json!("broken_off"), &Value::Null));
    for _ in 0..100 {
        taken_out(&api, "?only=subscriptions").await;
    }
    let page = api.get("/exports?limit=250").await.ok(200);
    assert_eq!(page["data"].as_array().unwrap().len(), 100);
    assert!(page["data"].as_array().unwrap().iter().all(|row| row["id"] != lost["id"]));
}

/// Routes that stream content of any length.
const ENDLESS: [&str; 3] = ["/export", "/dead-letters/export?format=ndjson", "/users/ann/export"];

/// An export of which nothing has been read yet.
async fn begun(api: &TestApi, app: &str, key: &str, path: &str) -> Response {
    let request = request(Method::GET, &format!("/v1/apps/{app}{path}"), key, Body::empty());
    api.router.clone().oneshot(request).await.unwrap()
}

/// The same, once earlier exports that were dropped have given their places back.
async fn begins(api: &TestApi, app: &str, key: &str, path: &str) -> Response {
    let begins = async {
        loop {
            let answer = begun(api, app, key, path).await;
            if answer.status() == 200 {
                return answer;
            }
            assert_eq!(answer.status(), 503, "{path}");
        }
    };
    timeout(PATIENCE, begins).await.expect("places come back")
}

#[tokio::test]
async fn one_app_uses_half_the_export_slots() {
    let api = TestApi::with(ApiConfig { place_patience: Duration::ZERO, ..ApiConfig::default() }, None).await;
    let (_, other) = api.make_app("other").await;
    for path in ENDLESS {
        let held = [begins(&api, "shop", &api.key, path).await, begins(&api, "shop", &api.key, path).await];
        for more in ENDLESS {
            assert_eq!(api.get(more).await.refusal(), (503, "transfers_busy", vec![]), "{more} beside two of {path}");
            drop(begins(&api, "other", &other, more).await);
        }
        drop(held);
    }
}

#[tokio::test]
async fn stalled_export_client_loses_its_slot() {
    let settings = ApiConfig { part_timeout: Duration::from_millis(50), ..ApiConfig::default() };
    let api = TestApi::with(settings, None).await;
    for path in ENDLESS {
        let held = [begun(&api, "shop", &api.key, path).await, begun(&api, "shop", &api.key, path).await];
        assert_eq!(begun(&api, "shop", &api.key, path).await.status(), 200, "{path}: it waits for its place");
        let mut cut = 0;
        for answer in held {
            cut += usize::from(axum::body::to_bytes(answer.into_body(), usize::MAX).await.is_err());
        }
        assert!(cut > 0, "{path}: nobody takes a part for the whole");
    }
}

#[tokio::test]
async fn export_ends_with_the_permission_of_its_user() {
    const N: usize = 2_500;
    let api = TestApi::start().await;
    let line = |n: usize| {
        let mut line = push_subscription(&fcm(&n.to_string()));
        line["user_id"] = json!("ann");
        format!("{line}\n")
    };
    let file: String = (0..N).map(line).collect();
    let path = "/v1/apps/shop/imports?format=ndjson";
    assert_eq!(api.send(request(Method::POST, path, &api.key, file)).await.ok(201)["added"], N);
    let made = api.post("/api-keys", json!({"name": "n", "scopes": ["export"]})).await.ok(201);
    let answer = begun(&api, "shop", made["secret"].as_str().unwrap(), "/users/ann/export").await;
    let mut parts = answer.into_body().into_data_stream();
    parts.next().await.unwrap().unwrap();
    let key = format!("/v1/apps/shop/api-keys/{}", made["id"].as_str().unwrap());
    api.call(Method::DELETE, &key, Some(&api.key), None).await.ok(200);
    let mut had = 0;
    let broke_off = loop {
        match parts.next().await {
            Some(Ok(part)) => had += String::from_utf8_lossy(&part).matches("endpoint_origin").count(),
            Some(Err(_)) => break true,
            None => break false,
        }
    };
    assert!(broke_off && had < N / 2, "{had} subscriptions");
}

#[tokio::test]
async fn csv_cells_are_no_formulas_and_read_back() {
    let api = TestApi::start().await;
    let users = ["=cmd|' /C calc'!A0", "+1", "-2", "@SUM(A1)", "'=x", "''-y", "'plain", "plain"];
    for (i, user) in users.iter().enumerate() {
        let more =
            json!({"user_id": user, "attributes": {"a": "=1"}, "tags": [], "consent": {"source": "=HYPERLINK(1)"}});
        api.subscribe(&fcm(&format!("formula-{i}")), more).await;
    }
    let settings = taken_out(&api, "").await;
    let key = twin(&api, &settings).await;
    let cells = |file: &str| -> Vec<String> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(file.as_bytes());
        reader.records().flat_map(|row| row.unwrap().iter().map(str::to_owned).collect::<Vec<_>>()).collect()
    };
    let neutral = taken_out(&api, "?only=subscriptions&format=csv").await;
    for cell in cells(&neutral) {
        assert!(!cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']), "{cell}");
    }
    let raw = taken_out(&api, "?only=subscriptions&format=csv&raw=true").await;
    assert!(users.iter().all(|user| cells(&raw).iter().any(|cell| cell == user)), "{raw}");
    for file in [neutral, raw] {
        let path = "/v1/apps/twin/imports?format=csv";
        let import = api.send(request(Method::POST, path, &key, file)).await.ok(201);
        assert_eq!(counts(&import)[4], 0, "{import}");
        let list = api.call(Method::GET, "/v1/apps/twin/subscriptions", Some(&key), None).await.ok(200);
        let read =
            |member: &str| list["data"].as_array().unwrap().iter().map(|row| row[member].clone()).collect::<Vec<_>>();
        for user in users {
            assert!(read("user_id").contains(&json!(user)), "{user} in {list}");
        }
        assert!(read("consent").iter().all(|consent| consent["source"] == "=HYPERLINK(1)"), "{list}");
        sqlx::query("UPDATE subscriptions SET user_id = NULL WHERE app = (SELECT id FROM apps WHERE slug = 'twin')")
            .execute(&api.pool)
            .await
            .unwrap();
    }
    let reply = api.get("/export?raw=true").await;
    assert_eq!(reply.refusal(), (400, "invalid_parameter", vec!["raw"]), "lines of JSON are raw anyway");
}
