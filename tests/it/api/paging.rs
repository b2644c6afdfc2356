//! Lists are read forward and back: the same rows in the same order, despite rows added meanwhile.

use axum::body::Body;
use axum::http::{Method, Request};
use bellwire_store::outcomes::alerts::{self, Alert, AlertKind};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::api::{LOOPBACK, TestApi, fcm, registration};

/// Page of a list, with its rows as text.
struct Page {
    rows: Vec<String>,
    next: Option<String>,
    previous: Option<String>,
}

async fn page(api: &TestApi, path: &str, iterator: Option<&str>) -> Page {
    let sign = if path.contains('?') { '&' } else { '?' };
    let more = iterator.map_or_else(String::new, |iterator| format!("&iterator={iterator}"));
    let path = format!("{path}{sign}limit=2{more}");
    // No key lists the team; the command line does.
    let reply = match path.starts_with("/v1/team") {
        true => api.locally(Method::GET, &path, Value::Null).await,
        false => api.call(Method::GET, &path, Some(&api.operator), None).await,
    };
    let shown = reply.ok(200);
    let list = if shown["data"].is_null() { &shown["topics"] } else { &shown };
    let text = |name: &str| list[name].as_str().map(str::to_owned);
    let name_of = |row: &Value| {
        ["id", "operation", "lane", "subscription", "name", "topic"]
            .iter()
            .find_map(|name| row.get(*name).filter(|name| !name.is_null()))
            .unwrap_or(row)
            .to_string()
    };
    let rows = list["data"].as_array().unwrap_or_else(|| panic!("{path}: {shown}")).iter().map(name_of).collect();
    assert_eq!(list["done"], list["iterator"].is_null(), "{path}");
    Page { rows, next: text("iterator"), previous: text("prev_iterator") }
}

/// Reads a list to its end and back to its start. Returns how many rows it has.
async fn forward_and_back(api: &TestApi, path: &str) -> usize {
    let mut forward = vec![page(api, path, None).await];
    assert_eq!(forward[0].previous, None, "{path}: nothing is before the first page");
    while let Some(next) = forward.last().and_then(|last| last.next.clone()) {
        forward.push(page(api, path, Some(&next)).await);
        assert!(forward.len() < 50, "{path} has no end");
    }
    let rows: Vec<&Vec<String>> = forward.iter().map(|page| &page.rows).collect();
    let mut back = Vec::new();
    let mut previous = forward.last().and_then(|last| last.previous.clone());
    while let Some(iterator) = previous {
        let page = page(api, path, Some(&iterator)).await;
        assert!(page.next.is_some(), "{path}: the page that it came from is behind it");
        previous = page.previous.clone();
        back.push(page.rows);
        assert!(back.len() < 50, "{path} has no start");
    }
    back.reverse();
    assert_eq!(back.iter().collect::<Vec<_>>(), rows[..rows.len() - 1], "{path}");
    rows.iter().map(|rows| rows.len()).sum()
}

/// Takes the shop's subscriptions out.
async fn take_out(api: &TestApi) {
    let request = Request::get("/v1/apps/shop/export?only=subscriptions");
    let request = request
        .header("authorization", format!("Bearer {}", api.operator))
        .extension(LOOPBACK)
        .body(Body::empty())
        .unwrap();
    let answer = api.router.clone().oneshot(request).await.unwrap();
    axum::body::to_bytes(answer.into_body(), usize::MAX).await.expect("it ends well");
}

/// Five of everything that a shop makes by itself.
async fn fill(api: &TestApi) {
    for n in 0..5 {
        api.make_app(&format!("app{n}")).await;
        let path = format!("/v1/apps/app{n}/subscriptions");
        let body = registration(&fcm(&format!("of-{n}")), json!({}));
        api.call(Method::POST, &path, Some(&api.operator), Some(body)).await.ok(201);
        let topic = api.put(&format!("/topics/topic{n}"), json!({})).await.ok(201);
        let policy = format!("/policies/topics/{}", topic["name"].as_str().unwrap());
        let path = format!("/v1/apps/shop{policy}");
        let plain = json!({"retries": 1, "retryDelay": "1000"});
        let set = api.call(Method::PUT, &path, Some(&api.operator), Some(plain)).await;
        assert!(set.status < 300, "{}", set.json);
        for (path, body) in [
            ("/segments/s", json!({"expression": "tag('x')"})),
            ("/templates/t", json!({"content": {"title": "Hello"}})),
        ] {
            let path = format!("/v1/apps/shop{path}{n}");
            let set = api.call(Method::PUT, &path, Some(&api.operator), Some(body)).await;
            assert!(set.status < 300, "{path}: {}", set.json);
        }
        let body = registration(&fcm(&format!("shop-{n}")), json!({"topics": ["topic0"]}));
        api.post("/subscriptions", body).await.ok(201);
        api.post("/api-keys", json!({"name": "k", "scopes": ["read"]})).await.ok(201);
        api.post("/vapid-keys", json!({})).await.ok(201);
        api.post("/identity-keys", json!({"name": "n"})).await.ok(201);
        let hook = json!({"name": "n", "url": "https://hooks.example.com/", "events": ["delivery.gone"]});
        api.post("/webhooks", hook).await.ok(201);
        let message = json!({"to": {"all": true}, "tier": "transactional", "content": {"title": "Hello"}});
        api.post("/messages", message).await.ok(202);
        take_out(api).await;
        let (subject, detail) = (&*format!("lane {n}"), "It is down.");
        let alert = Alert { app: None, kind: AlertKind::Webhook, subject, detail };
        alerts::raise(&mut api.pool.acquire().await.unwrap(), &alert, api.clock.now()).await.unwrap();
        api.teammate(&format!("t{n}@example.com"), json!([{"role": "viewer", "app": "shop"}])).await;
    }
    // Not the oldest ones: open alerts come first.
    let resolve = "UPDATE alerts SET resolved_at = last_at WHERE subject IN ('lane 2', 'lane 4')";
    sqlx::query(resolve).execute(&api.pool).await.expect("they are ours");
}

#[tokio::test]
async fn every_list_is_the_same_back_as_forward() {
    let api = TestApi::start().await;
    fill(&api).await;
    for (path, least) in [
        ("/v1/apps", 6),
        ("/v1/team", 5),
        ("/v1/gateways", 6),
        ("/v1/audit-log", 5),
        ("/v1/apps/shop/audit-log", 5),
        ("/v1/apps/shop/audit-log?action=api_key.created", 5),
        ("/v1/apps/shop/topics", 5),
        ("/v1/apps/shop/policies/topics", 5),
        ("/v1/apps/shop/identity-keys", 5),
        ("/v1/apps/shop/webhooks", 5),
        ("/v1/apps/shop/segments", 5),
        ("/v1/apps/shop/templates", 5),
        ("/v1/apps/shop/subscriptions", 5),
        ("/v1/apps/shop/subscriptions?state=active", 5),
        ("/v1/apps/shop/subscriptions?topic=topic0", 5),
        ("/v1/apps/shop/subscriptions?segment=topic('topic0')", 5),
        ("/v1/apps/shop/api-keys", 5),
        ("/v1/apps/shop/vapid-keys", 5),
        ("/v1/apps/shop/messages", 5),
        ("/v1/apps/shop/messages?tier=transactional", 5),
        ("/v1/alerts", 5),
        ("/v1/apps/shop/campaigns", 0),
        ("/v1/apps/shop/events", 0),
        ("/v1/apps/shop/dead-letters", 0),
        ("/v1/apps/shop/dead-letters/audit", 0),
        ("/v1/apps/shop/imports", 0),
        ("/v1/apps/shop/exports", 5),
    ] {
        let rows = forward_and_back(&api, path).await;
        assert!(rows >= least, "{path}: {rows} rows");
    }
}

#[tokio::test]
async fn new_rows_appear_before_the_first_page() {
    let api = TestApi::start().await;
    for n in 0..4 {
        api.put(&format!("/topics/old{n}"), json!({})).await.ok(201);
    }
    let path = "/v1/apps/shop/topics";
    let first = page(&api, path, None).await;
    for n in 0..3 {
        api.put(&format!("/topics/new{n}"), json!({})).await.ok(201);
    }
    let second = page(&api, path, first.next.as_deref()).await;
    assert_eq!(second.rows.len(), 2);
    let back = page(&api, path, second.previous.as_deref()).await;
    assert_eq!(back.rows, first.rows, "the page before is what it was");
    let newer = page(&api, path, back.previous.as_deref()).await;
    let newest = page(&api, path, newer.previous.as_deref()).await;
    assert_eq!((newer.rows.len(), newest.rows.len(), &newest.previous), (2, 1, &None));
    assert_eq!(page(&api, path, newest.next.as_deref()).await.rows, newer.rows);
}
