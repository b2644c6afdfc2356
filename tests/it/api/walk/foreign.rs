//! Resources of one app, requested under the path of another app with a credential of the latter.

use std::collections::BTreeMap;

use axum::http::Method;
use bellwire_core::clock::uuid_of;
use bellwire_core::id::{AppId, DeadLetterId, MessageId, SubscriptionId};
use bellwire_core::scope::Scope;
use bellwire_store::keys::api_keys;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::{request, text};
use crate::support::api::{TestApi, content, fcm, registration};
use crate::support::openapi::{METHODS, openapi_description, operations};
use crate::support::passkeys::passkey_config;

/// Parameters that are no ids: what they name is looked for in the app that the path names, and may be made there.
const NAMES: [&str; 7] = ["app", "key", "segment", "template", "tier", "topic", "user"];

/// Resources of an app, by the name of the path parameter.
type Things = BTreeMap<&'static str, String>;

/// One of everything that a path can name, of that app.
async fn things(api: &TestApi, app: &Value, key: &str) -> Things {
    let (slug, id) = (text(&app["slug"]), text(&app["id"]).parse::<AppId>().unwrap());
    let call = async |method: Method, path: &str, body: Value| {
        let body = Some(body).filter(|body| !body.is_null());
        let reply = api.call(method, &format!("/v1/apps/{slug}{path}"), Some(key), body).await;
        assert!((200..300).contains(&reply.status), "{path}: {}", reply.json);
        reply.json
    };
    let topic = format!("topic-of-{slug}");
    let body = registration(&fcm(&slug), json!({"topics": [topic], "user_id": format!("user-of-{slug}")}));
    let subscription = call(Method::POST, "/subscriptions", body).await;
    let body = json!({"to": {"subscriptions": [subscription["id"]]}, "content": content()});
    let message = text(&call(Method::POST, "/messages", body).await["id"]);
    let dead_letter = uuid_of(api.clock.now());
    sqlx::query(
        "INSERT INTO dead_letters (app, id, shard, message, subscription, lane, tier, reason, retries, at)
         SELECT app, $1, shard, $2, id, lane, 2, 'bad_request', 0, $3 FROM subscriptions WHERE id = $4",
    )
    .bind(dead_letter)
    .bind(message.parse::<MessageId>().unwrap().0)
    .bind(api.clock.now())
    .bind(text(&subscription["id"]).parse::<SubscriptionId>().unwrap().0)
    .execute(&api.pool)
    .await
    .unwrap();
    call(Method::PUT, "/segments/own", json!({"expression": "tag('beta')"})).await;
    call(Method::PUT, "/templates/own", json!({"content": content()})).await;
    let campaign = json!({"slug": "own", "message": {"to": {"all": true}, "content": content()}});
    let campaign = call(Method::POST, "/campaigns", campaign).await;
    let api_key = api_keys::create(&api.pool, &api.vault, Some(id), "k", &[Scope::Read], None, &api.clock).await;
    let webhook = json!({"name": "n", "url": "https://hooks.example.com/", "events": ["delivery.gone"]});
    let webhook = text(&call(Method::POST, "/webhooks", webhook).await["id"]);
    let webhook_delivery = text(&call(Method::POST, &format!("/webhooks/{webhook}/test"), Value::Null).await["id"]);
    let begin = format!("/subscriptions/{}/diagnoses", text(&subscription["id"]));
    let diagnosis = call(Method::POST, &begin, Value::Null).await;
    BTreeMap::from([
        ("code", text(&diagnosis["code"])),
        ("webhook", webhook),
        ("webhook_delivery", webhook_delivery),
        ("app", slug.clone()),
        ("tier", "promotional".to_owned()),
        ("user", format!("nobody-of-{slug}")),
        ("topic", topic),
        ("segment", "own".to_owned()),
        ("template", "own".to_owned()),
        ("key", "own".to_owned()),
        ("subscription", text(&subscription["id"])),
        ("token", text(&subscription["token"])),
        ("message", message),
        ("dead_letter", DeadLetterId(dead_letter).to_string()),
        ("vapid_key", text(&app["vapid_key"]["id"])),
        ("api_key", api_key.unwrap().0.id.to_string()),
        ("identity_key", text(&call(Method::POST, "/identity-keys", json!({"name": "k"})).await["id"])),
        ("campaign", text(&campaign["id"])),
        ("run", "1".to_owned()),
        ("import", text(&call(Method::POST, "/imports", json!([])).await["id"])),
        ("erasure", text(&call(Method::DELETE, "/users/erased", Value::Null).await["id"])),
    ])
}

/// Everything that the database holds in which that text stands, by table. Only the sequences are left out, and when a key was
/// last used.
async fn everything(api: &TestApi, text: &str) -> BTreeMap<String, String> {
    let tables =
        "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&api.pool).await.unwrap();
    let mut held = BTreeMap::new();
    for table in tables {
        let rows = format!(
            "SELECT coalesce(string_agg(row, E'\\n' ORDER BY row), '')
             FROM (SELECT (to_jsonb(t) - 'last_used_on')::text AS row FROM {table} t) rows WHERE strpos(row, $1) > 0"
        );
        held.insert(table, sqlx::query_scalar(AssertSqlSafe(rows)).bind(text).fetch_one(&api.pool).await.unwrap());
    }
    held
}

/// A path with what it names of one's own, but for one parameter, which is the other app's.
fn filled(template: &str, foreign: &str, own: &Things, others: &Things) -> String {
    let segments = template.split('/').map(|segment| {
        let Some(name) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else { return segment };
        let things = if name == foreign { others } else { own };
        things.get(name).unwrap_or_else(|| panic!("{template}: say in `things` how a {name} is made"))
    });
    segments.collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn foreign_resources_are_not_found_nor_changed() {
    let api = TestApi::with(passkey_config(), None).await;
    let (other, stranger) = api.make_app("other").await;
    let (own, others) = (things(&api, &api.app, &api.key).await, things(&api, &other, &stranger).await);
    let admin = api.teammate("admin@example.com", json!([{"role": "admin", "app": "shop"}])).await;
    let operations = operations(&openapi_description(&api).await);
    let before = everything(&api, "").await;
    assert!(before["subscriptions"].contains(&others["subscription"]["sub_".len()..]), "it is all there");
    let (mut tried, mut surprises) = (0, Vec::new());
    for (template, method, operation) in &operations {
        assert!(METHODS.contains(method));
        let Some(rest) = template.strip_prefix("/v1/apps/{app}/") else { continue };
        let named = rest.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
        for name in named.filter(|name| !NAMES.contains(name)) {
            let (query, body) = request(&format!("{method} {template}"), tried);
            let path = format!("{}{query}", filled(template, name, &own, &others));
            let body = Some(body).filter(|body| !body.is_null());
            let mut replies = vec![
                ("a key", api.call(method.clone(), &path, Some(&api.key), body.clone()).await),
                ("an operator", api.call(method.clone(), &path, Some(&api.operator), body.clone()).await),
                ("an admin", admin.call(method.clone(), &path, body.clone()).await),
            ];
            if operation["security"].to_string().contains("browser_token") {
                replies.push(("its browser", api.call(method.clone(), &path, Some(&others["token"]), body).await));
            }
            for (who, reply) in replies {
                tried += 1;
                if reply.status != 404 {
                    surprises.push(format!("{method} {path} by {who}: {} {}", reply.status, reply.json));
                }
            }
        }
    }
    assert!(surprises.is_empty(), "{} surprises:\n{}", surprises.len(), surprises.join("\n"));
    assert!(tried > 80, "{tried}");
    let after = everything(&api, "").await;
    let changed: Vec<_> = before.keys().filter(|table| before[*table] != after[*table]).collect();
    assert!(changed.is_empty(), "{changed:?} have changed");
}

#[tokio::test]
async fn equal_names_in_apps_are_distinct() {
    let api = TestApi::with(passkey_config(), None).await;
    let (other, stranger) = api.make_app("other").await;
    let (own, mut others) = (things(&api, &api.app, &api.key).await, things(&api, &other, &stranger).await);
    others.insert("user", "user-of-other".to_owned());
    let operations = operations(&openapi_description(&api).await);
    let theirs = async || {
        let subscription = everything(&api, &others["subscription"]["sub_".len()..]).await;
        (everything(&api, &text(&other["id"])["app_".len()..]).await, subscription)
    };
    let before = theirs().await;
    assert!(before.0["topics"].contains("topic-of-other"), "it is all there");
    let mut tried = 0;
    for (template, method, _) in &operations {
        for name in ["topic", "user"] {
            if !template.starts_with("/v1/apps/{app}/") || !template.contains(&format!("{{{name}}}")) {
                continue;
            }
            let (query, body) = request(&format!("{method} {template}"), tried);
            let path = format!("{}{query}", filled(template, name, &own, &others));
            let body = Some(body).filter(|body| !body.is_null());
            let reply = api.call(method.clone(), &path, Some(&api.key), body).await;
            assert!(reply.status < 500, "{method} {path}: {}", reply.json);
            tried += 1;
        }
    }
    assert!(tried >= 8, "{tried}");
    assert_eq!(theirs().await, before);
}

#[tokio::test]
async fn foreign_ids_in_queries_are_not_found() {
    let api = TestApi::with(passkey_config(), None).await;
    let (other, stranger) = api.make_app("other").await;
    let others = things(&api, &other, &stranger).await;
    let of = |name: &str| others[name].as_str();
    for (query, status) in
        [(format!("/deliveries?message={}", of("message")), 404), (format!("/messages?topic={}", of("topic")), 400)]
    {
        let reply = api.get(&query).await;
        assert_eq!(reply.status, status, "{query}: {}", reply.json);
    }
    for query in [
        format!("/deliveries?subscription={}", of("subscription")),
        "/deliveries?user_id=user-of-other".to_owned(),
        "/subscriptions?user_id=user-of-other".to_owned(),
        format!("/subscriptions?topic={}", of("topic")),
        format!("/dead-letters?message={}", of("message")),
        format!("/dead-letters?subscription={}", of("subscription")),
    ] {
        assert_eq!(api.get(&query).await.ok(200)["data"], json!([]), "{query}");
    }
    for to in [json!({"subscriptions": [of("subscription")]}), json!({"topic": of("topic")})] {
        let reply = api.post("/messages", json!({"to": to, "content": content()})).await;
        assert!(reply.status == 422 || reply.json["audience_estimate"] == 0, "{to}: {}", reply.json);
    }
    let to = json!({"users": ["user-of-other"]});
    assert_eq!(api.post("/messages", json!({"to": to, "content": content()})).await.ok(202)["audience_estimate"], 0);
    let filter = json!({"filter": {"message": of("message")}});
    assert_eq!(api.post("/dead-letters/discard", filter).await.ok(200)["handled"], 0);
}
