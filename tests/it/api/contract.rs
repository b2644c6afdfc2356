//! Rules that all operations share: locations, unknown parameters, resets, nulls in changes, warnings, and the event stream.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::delivery::Tier;
use bellwire_core::id::MessageId;
use bellwire_store::outcomes::events::{self, Event};
use chrono::TimeDelta;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::api::{Reply, TestApi};
use crate::support::generated_parts::compare_generated_parts;

async fn delete(api: &TestApi, path: &str) -> Reply {
    api.call(Method::DELETE, &format!("/v1/apps/shop{path}"), Some(&api.operator), None).await
}

async fn patch(api: &TestApi, path: &str, body: Value) -> Reply {
    api.call(Method::PATCH, path, Some(&api.operator), Some(body)).await
}

#[tokio::test]
async fn created_resources_have_a_location() {
    let api = TestApi::start().await;
    let plan = json!({"slug": "news", "message": {"to": {"all": true}, "content": {"title": "T"}}});
    for (path, body) in [
        ("/api-keys", json!({"name": "n", "scopes": ["send"]})),
        ("/identity-keys", json!({"name": "n"})),
        ("/vapid-keys", json!({})),
        ("/campaigns", plan),
    ] {
        let created = api.post(path, body).await;
        let location = created.header("location").to_owned();
        let id = created.ok(201)["id"].as_str().unwrap().to_owned();
        assert_eq!(location, format!("/v1/apps/shop{path}/{id}"));
    }
    let topic = api.put("/topics/sport", json!({})).await;
    assert_eq!((topic.status, topic.header("location")), (201, "/v1/apps/shop/topics/sport"));
}

#[tokio::test]
async fn replayed_creation_has_the_same_location() {
    let api = TestApi::start().await;
    let create = async || {
        let (path, body) = ("/v1/apps/shop/identity-keys", Some(json!({"name": "n"})));
        api.call_with(Method::POST, path, Some(&api.key), body, &[("idempotency-key", "k")]).await
    };
    let (first, again) = (create().await, create().await);
    assert_eq!((first.status, again.header("idempotent-replayed")), (201, "true"));
    assert_eq!((first.header("location"), &first.body), (again.header("location"), &again.body));
}

#[tokio::test]
async fn unknown_query_parameter_is_refused() {
    let api = TestApi::start().await;
    for path in ["/webhooks?state=active", "/topics?nmae=news", "/caps?x=1", "/messages?stat=done&limit=2"] {
        let refused = api.get(path).await;
        let name = path.split(['?', '=']).nth(1).unwrap();
        assert_eq!(refused.refusal(), (400, "invalid_parameter", vec![name]), "{path}");
    }
}

#[tokio::test]
async fn settings_are_reset_by_deleting_them() {
    let api = TestApi::start().await;
    for (path, set) in [
        ("/calendar", json!({"timezone": "Europe/Vienna", "quiet_hours": {"from": "22:00", "to": "07:00"}})),
        ("/caps", json!({"caps": [{"max": 2, "window": "1d"}]})),
        ("/prompt", json!({"visits": 2})),
        ("/slas", json!({"transactional": 10})),
        ("/guard", json!({"factor": 5})),
    ] {
        let before = api.get(path).await.ok(200);
        api.put(path, set).await.ok(200);
        assert_ne!(api.get(path).await.ok(200), before, "{path}");
        assert_eq!(delete(&api, path).await.status, 204, "{path}");
        assert_eq!(api.get(path).await.ok(200), before, "{path}");
    }
}

#[tokio::test]
async fn null_in_a_change_resets_or_is_refused() {
    let api = TestApi::start().await;
    let app = "/v1/apps/shop";
    patch(&api, app, json!({"weight": 7, "max_retries": 9})).await.ok(200);
    let reset = patch(&api, app, json!({"weight": null, "max_retries": null})).await.ok(200);
    assert_eq!((&reset["weight"], &reset["max_retries"]), (&json!(1), &json!(5)), "{reset}");
    let refused = patch(&api, app, json!({"name": null})).await;
    assert_eq!(refused.refusal(), (422, "invalid", vec!["/name"]));

    api.put("/topics/staff", json!({"join": "server"})).await.ok(201);
    let open = patch(&api, "/v1/apps/shop/topics/staff", json!({"join": null})).await.ok(200);
    assert_eq!(open["join"], "anyone");
}

#[tokio::test]
async fn problem_has_the_title_of_its_code() {
    let api = TestApi::start().await;
    let unknown = api.get("/topics/nwes").await.ok(404);
    assert_eq!((&unknown["title"], &unknown["code"]), (&json!("Not found"), &json!("not_found")));
    let array = api.post("/api-keys", json!([])).await.ok(422);
    assert_eq!(array["detail"], "The body must be an object");
}

#[tokio::test]
async fn wrong_key_is_told_from_a_missing_one() {
    let api = TestApi::start().await;
    let ask = async |key: Option<&str>| api.call(Method::GET, "/v1/apps/shop/topics", key, None).await;
    let missing = ask(None).await;
    assert_eq!((missing.status, missing.header("www-authenticate")), (401, r#"Bearer realm="bellwire""#));
    let wrong = ask(Some("bw_0000000000000000000000000000000000000000000")).await;
    assert_eq!(wrong.status, 401);
    assert_eq!(wrong.header("www-authenticate"), r#"Bearer realm="bellwire", error="invalid_token""#);
}

#[tokio::test]
async fn message_without_recipients_warns() {
    let api = TestApi::start().await;
    api.put("/topics/empty", json!({})).await.ok(201);
    for to in [json!({"topic": "empty"}), json!({"users": ["new-user"]})] {
        let body = json!({"to": to, "content": {"title": "T"}});
        let sent = api.post("/messages", body.clone()).await.ok(202);
        assert_eq!(sent["warnings"][0]["pointer"], "/to", "{sent}");
        let tried = api.post("/messages?dry_run=true", body).await.ok(200);
        assert_eq!(tried["warnings"][0]["pointer"], "/to", "{tried}");
    }
}

#[tokio::test]
async fn links_name_the_app_by_its_slug() {
    let api = TestApi::start().await;
    let body = json!({"to": {"users": ["ann"]}, "content": {"title": "T"}});
    let sent = api.post("/messages", body).await.ok(202);
    let own = sent["links"]["self"].as_str().unwrap();
    assert!(own.starts_with("/v1/apps/shop/messages/msg_"), "{own}");
}

/// Records a missed SLA of that tier, as a transaction that began so long ago.
async fn miss_sla(api: &TestApi, ago: TimeDelta, tier: Tier) {
    let event = Event::sla_missed(api.app_id(), tier, 30, MessageId(Uuid::now_v7()), 1);
    let mut conn = api.pool.acquire().await.unwrap();
    events::record(&mut conn, vec![event], api.clock.now() - ago).await.unwrap();
}

/// The lines of the stream after a cursor, as tier and count, and the cursor of the last line.
async fn streamed(api: &TestApi, after: &str) -> (Vec<(String, i64)>, String) {
    let reply = api.get(&format!("/events?after={after}")).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/x-ndjson"));
    let lines = reply.body.split(|octet| *octet == b'\n').filter(|line| !line.is_empty());
    let lines: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
    let cursor = lines.last().map_or(after.to_owned(), |line| line["cursor"].as_str().unwrap().to_owned());
    let shown = |line: &Value| (line["data"]["tier"].as_str().unwrap().to_owned(), line["count"].as_i64().unwrap());
    (lines.iter().map(shown).collect(), cursor)
}

fn once(tiers: &[&str]) -> Vec<(String, i64)> {
    tiers.iter().map(|tier| ((*tier).to_owned(), 1)).collect()
}

#[tokio::test]
async fn event_stream_continues_at_its_cursor() {
    let api = TestApi::start().await;
    miss_sla(&api, TimeDelta::minutes(30), Tier::Transactional).await;
    miss_sla(&api, TimeDelta::minutes(20), Tier::Promotional).await;
    miss_sla(&api, TimeDelta::seconds(5), Tier::Engagement).await;
    let (lines, cursor) = streamed(&api, "0").await;
    assert_eq!(lines, once(&["transactional", "promotional"]), "the newest may still grow");
    assert_eq!(streamed(&api, &cursor).await, (vec![], cursor.clone()));
    api.clock.advance(Duration::from_secs(300));
    assert_eq!(streamed(&api, &cursor).await.0, once(&["engagement"]));
    assert_eq!(streamed(&api, "0").await.0, once(&["transactional", "promotional", "engagement"]));
    assert_eq!(api.get("/events").await.ok(200)["data"].as_array().unwrap().len(), 3);
    for wrong in ["after=x", "after=-1", "after=0&limit=5"] {
        assert_eq!(api.get(&format!("/events?{wrong}")).await.refusal().0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn late_event_joins_the_stream_behind_the_cursor() {
    let api = TestApi::start().await;
    miss_sla(&api, TimeDelta::minutes(20), Tier::Promotional).await;
    let (_, cursor) = streamed(&api, "0").await;
    // A worker was paused, or its transaction took long: the event is older than the cursor.
    miss_sla(&api, TimeDelta::minutes(60), Tier::Transactional).await;
    let (lines, cursor) = streamed(&api, &cursor).await;
    assert_eq!(lines, once(&["transactional"]));
    // So did another of the same minute: its count is sent again.
    miss_sla(&api, TimeDelta::minutes(60), Tier::Transactional).await;
    assert_eq!(streamed(&api, &cursor).await.0, [("transactional".to_owned(), 2)]);
}

#[tokio::test]
async fn uncommitted_event_is_not_skipped() {
    let api = TestApi::start().await;
    let mut slow = api.pool.begin().await.unwrap();
    let first = Event::sla_missed(api.app_id(), Tier::Transactional, 30, MessageId(Uuid::now_v7()), 1);
    events::record(&mut slow, vec![first], api.clock.now() - TimeDelta::minutes(30)).await.unwrap();
    miss_sla(&api, TimeDelta::minutes(20), Tier::Promotional).await;
    let (lines, cursor) = streamed(&api, "0").await;
    assert_eq!(lines, once(&["promotional"]));
    slow.commit().await.unwrap();
    assert_eq!(streamed(&api, &cursor).await.0, once(&["transactional"]));
}

/// Whether a schema is a page of a list: an object with rows, also in parts.
fn has_rows(description: &Value, schema: &Value) -> bool {
    let named = schema["$ref"].as_str().and_then(|name| description.pointer(name.trim_start_matches('#')));
    let schema = named.unwrap_or(schema);
    let parts = schema["allOf"].as_array().into_iter().flatten();
    let properties = &schema["properties"];
    let is_page = properties["data"]["type"] == "array" && properties["iterator"].is_object();
    is_page || parts.into_iter().any(|part| has_rows(description, part))
}

/// Whether a path below a list belongs to its row: the list itself, a row, or an action on either.
fn is_of_list(below: &str) -> bool {
    let segments: Vec<&str> = below.split('/').skip(1).collect();
    match segments.as_slice() {
        [] | [_] => true,
        [row, _] => row.starts_with('{') && *row != "{app}",
        _ => false,
    }
}

/// Returns the guide's table of lists: filters, and the operations below each list.
fn table_of_lists(description: &Value) -> String {
    let paths = description["paths"].as_object().expect("paths");
    let rows = |path: &str| {
        has_rows(
            description,
            &description["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"],
        )
    };
    let mut table = "|list|filters|other operations|\n|---|---|---|\n".to_owned();
    for (path, item) in paths {
        if !rows(path) {
            continue;
        }
        let parameters = item["get"]["parameters"].as_array().into_iter().flatten();
        let filters = parameters.filter(|parameter| parameter["in"] == "query").filter_map(|it| it["name"].as_str());
        let filters: Vec<String> =
            filters.filter(|name| !["limit", "iterator"].contains(name)).map(|name| format!("`{name}`")).collect();
        let mut others = Vec::new();
        for (other, item) in paths {
            let below = other.strip_prefix(path.as_str()).filter(|rest| rest.is_empty() || rest.starts_with('/'));
            let Some(below) = below.filter(|rest| is_of_list(rest) && (rest.is_empty() || !rows(other))) else {
                continue;
            };
            let methods = item.as_object().expect("operations").keys().map(|method| method.to_uppercase());
            let methods: Vec<String> = methods.filter(|method| !(below.is_empty() && method == "GET")).collect();
            if !methods.is_empty() {
                others.push(format!("{} `{}`", methods.join(", "), if below.is_empty() { "/" } else { below }));
            }
        }
        table.push_str(&format!("|`{}`|{}|{}|\n", path, filters.join(", "), others.join("; ")));
    }
    table
}

#[tokio::test]
async fn guide_has_the_table_of_lists() {
    let api = TestApi::start().await;
    let description = api.call(Method::GET, "/openapi.json", None, None).await.ok(200);
    let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md");
    let lists = |kind: &str, _: &[&str]| (kind == "lists").then(|| table_of_lists(&description));
    assert_eq!(compare_generated_parts(&guide, lists), Ok(1));
}
