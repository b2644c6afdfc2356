//! Tools of the Model Context Protocol at `/mcp`: scopes, access, confirmation of sends, redaction, and the audit log.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use bellwire::testkit::api::ApiConfig;
use bellwire::testkit::config::McpAccess;
use bellwire_core::scope::Scope;
use bellwire_store::keys::api_keys;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::api::{ORIGIN, Reply, TestApi, content, fcm, read_reply, same_browser};

const ACCEPT: [(&str, &str); 1] = [("accept", "application/json, text/event-stream")];

async fn api(mcp: McpAccess) -> TestApi {
    TestApi::with(ApiConfig { mcp, ..ApiConfig::default() }, None).await
}

async fn key(api: &TestApi, scopes: &[Scope]) -> String {
    let app = Some(api.app_id());
    api_keys::create(&api.pool, &api.vault, app, "model", scopes, None, &api.clock).await.unwrap().1
}

fn message(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

async fn post(api: &TestApi, path: &str, key: Option<&str>, body: Value) -> Reply {
    api.call_with(Method::POST, path, key, Some(body), &ACCEPT).await
}

/// Names of the tools that a key gets at a path.
async fn tools_at(api: &TestApi, path: &str, key: &str) -> BTreeSet<String> {
    let reply = post(api, path, Some(key), message(1, "tools/list", json!({}))).await.ok(200);
    let tools = reply["result"]["tools"].as_array().unwrap_or_else(|| panic!("{reply}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Calls a tool. An error of the tool is `Err`.
async fn call(api: &TestApi, key: &str, name: &str, arguments: Value) -> Result<Value, String> {
    let params = json!({"name": name, "arguments": arguments});
    let reply = post(api, "/mcp", Some(key), message(1, "tools/call", params)).await.ok(200);
    let text = reply["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{reply}"));
    match reply["result"]["isError"] == true {
        true => Err(text.to_owned()),
        false => Ok(serde_json::from_str(text).expect("JSON")),
    }
}

async fn calls(api: &TestApi) -> Vec<Value> {
    let log = api.get("/audit-log?action=tool.called").await.ok(200);
    log["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn tools_follow_the_scopes_of_the_key() {
    let api = api(McpAccess::Write).await;
    let reader = tools_at(&api, "/mcp", &key(&api, &[Scope::Read]).await).await;
    assert!(reader.contains("messages_list") && reader.contains("segments_preview"), "{reader:?}");
    assert!(!reader.contains("messages_send") && !reader.contains("topics_set"), "{reader:?}");
    let sender = tools_at(&api, "/mcp", &key(&api, &[Scope::Send]).await).await;
    assert!(sender.contains("messages_send") && !sender.contains("messages_list"), "{sender:?}");
    let operator = tools_at(&api, "/mcp", &api.operator).await;
    assert!(operator.is_superset(&reader) && operator.contains("apps_list"), "{operator:?}");
    let metrics = [Scope::Metrics];
    let scraper = api_keys::create(&api.pool, &api.vault, None, "scraper", &metrics, None, &api.clock).await.unwrap().1;
    assert!(tools_at(&api, "/mcp", &scraper).await.is_empty());
}

#[tokio::test]
async fn command_line_has_all_tools() {
    let api = api(McpAccess::Write).await;
    let request = Request::builder().method(Method::POST).uri("/mcp").header(ACCEPT[0].0, ACCEPT[0].1);
    let body = Body::from(message(1, "tools/list", json!({})).to_string());
    let request = request.header("content-type", "application/json").body(body).unwrap();
    let reply = read_reply(api.local.clone().oneshot(request).await.unwrap()).await.ok(200);
    let tools = reply["result"]["tools"].as_array().unwrap();
    assert!(["apps_create", "messages_send"].iter().all(|name| tools.iter().any(|tool| tool["name"] == *name)));
}

#[tokio::test]
async fn tools_only_read_by_default() {
    let api = TestApi::start().await;
    let tools = tools_at(&api, "/mcp", &api.key).await;
    assert!(tools.contains("messages_list") && !tools.contains("messages_send") && !tools.contains("topics_set"));
    let refused = call(&api, &api.key, "topics_set", json!({"topic": "sport", "body": {}})).await.unwrap_err();
    assert!(refused.contains("read-only"), "{refused}");
    assert_eq!(api.get("/topics/sport").await.status, 404);
}

#[tokio::test]
async fn connection_may_ask_for_reading_only() {
    let api = api(McpAccess::Write).await;
    let (all, reading) = (tools_at(&api, "/mcp", &api.key).await, tools_at(&api, "/mcp?access=read", &api.key).await);
    assert!(reading.is_subset(&all) && all.contains("messages_send") && !reading.contains("messages_send"));
    let list = message(1, "tools/list", json!({}));
    assert_eq!(post(&api, "/mcp?access=write", Some(&api.key), list).await.status, 400);
}

#[tokio::test]
async fn route_does_not_exist_when_off() {
    let api = api(McpAccess::Off).await;
    let list = message(1, "tools/list", json!({}));
    assert_eq!(post(&api, "/mcp", Some(&api.key), list).await.refusal().0, 404);
}

#[tokio::test]
async fn wrong_keys_sessions_and_pages_are_refused() {
    let api = api(McpAccess::Write).await;
    let list = message(1, "tools/list", json!({}));
    for wrong in [None, Some("bw_wrong"), Some("bt_wrong")] {
        let reply = post(&api, "/mcp", wrong, list.clone()).await;
        assert!(reply.status == 401 && reply.header("www-authenticate").starts_with("Bearer"), "{}", reply.json);
    }
    let admin = api.teammate("admin@example.com", json!([{"role": "admin"}])).await;
    let own = [("cookie", admin.cookie.as_str()), ("sec-fetch-site", "same-origin"), ACCEPT[0]];
    assert_eq!(api.call_with(Method::POST, "/mcp", None, Some(list.clone()), &own).await.status, 401);
    for origin in ["https://evil.example", "null", ORIGIN] {
        let headers = [("origin", origin), ACCEPT[0]];
        let reply = api.call_with(Method::POST, "/mcp", Some(&api.key), Some(list.clone()), &headers).await;
        assert_eq!(reply.refusal().0, 403, "{origin}");
    }
    assert_eq!(api.call(Method::GET, "/mcp", Some(&api.key), None).await.status, 405);
}

#[tokio::test]
async fn large_bodies_are_refused() {
    let api = TestApi::with(ApiConfig { body_max_bytes: 16_384, ..ApiConfig::default() }, None).await;
    let long = message(1, "tools/list", json!({"x": "x".repeat(20_000)}));
    assert_eq!(post(&api, "/mcp", Some(&api.key), long).await.refusal().0, 413);
}

#[tokio::test]
async fn send_needs_the_present_count() {
    let api = api(McpAccess::Write).await;
    api.subscribe(&fcm("a"), json!({"topics": ["news"]})).await;
    let send = |expected: Value| json!({"body": {"to": {"topic": "news"}, "content": content()}, "expected_recipients": expected});
    let sent = async || api.get("/messages").await.ok(200)["data"].as_array().unwrap().len();

    let counted = call(&api, &api.key, "messages_send", send(Value::Null)).await.unwrap();
    assert!(counted["sent"] == false && counted["recipients"] == 1 && sent().await == 0, "{counted}");
    api.subscribe(&fcm("b"), json!({"topics": ["news"]})).await;
    let changed = call(&api, &api.key, "messages_send", send(json!(1))).await.unwrap();
    assert!(changed["sent"] == false && changed["recipients"] == 2 && sent().await == 0, "{changed}");
    let accepted = call(&api, &api.key, "messages_send", send(json!(2))).await.unwrap();
    assert!(accepted["id"].as_str().is_some_and(|id| id.starts_with("msg_")) && sent().await == 1, "{accepted}");
    call(&api, &api.key, "messages_send", send(json!(2))).await.unwrap();
    assert_eq!(sent().await, 2, "an equal call after a response is another send");
}

#[tokio::test]
async fn campaign_starts_only_when_confirmed() {
    let api = api(McpAccess::Write).await;
    api.subscribe(&fcm("a"), json!({"topics": ["news"]})).await;
    let plan = json!({"slug": "spring", "message": {"to": {"topic": "news"}, "content": content()}});
    call(&api, &api.key, "campaigns_create", json!({"body": plan})).await.unwrap();
    let state = async || api.get("/campaigns/spring").await.ok(200)["state"].clone();
    let draft = state().await;
    let counted = call(&api, &api.key, "campaigns_start", json!({"campaign": "spring"})).await.unwrap();
    assert!(counted["recipients"] == 1 && state().await == draft, "{counted}");
    call(&api, &api.key, "campaigns_start", json!({"campaign": "spring", "expected_recipients": 1})).await.unwrap();
    assert_ne!(state().await, draft);
}

#[tokio::test]
async fn writes_have_an_idempotency_key() {
    let api = api(McpAccess::Write).await;
    let keys = "SELECT count(*) FROM idempotency_keys";
    let count = async || sqlx::query_scalar::<_, i64>(keys).fetch_one(&api.pool).await.unwrap();
    let before = count().await;
    let plan = json!({"slug": "spring", "message": {"to": {"topic": "news"}, "content": content()}});
    call(&api, &api.key, "campaigns_create", json!({"body": plan})).await.unwrap();
    assert_eq!(count().await, before + 1);
}

#[tokio::test]
async fn every_call_is_in_the_audit_log() {
    let api = api(McpAccess::Write).await;
    let reader = key(&api, &[Scope::Read]).await;
    call(&api, &reader, "topics_list", json!({})).await.unwrap();
    api.clock.advance(Duration::from_secs(1));
    call(&api, &reader, "topics_set", json!({"topic": "sport", "body": {}})).await.unwrap_err();
    api.clock.advance(Duration::from_secs(1));
    call(&api, &api.operator, "topics_list", json!({"app": "shop"})).await.unwrap();
    let logged = calls(&api).await;
    let targets: Vec<_> = logged.iter().map(|entry| (entry["target"].as_str().unwrap(), &entry["detail"])).collect();
    let (none, refused) = (json!({}), json!({"refused": true}));
    assert_eq!(targets, [("topics_list", &none), ("topics_set", &refused), ("topics_list", &none)]);
    let actors: BTreeSet<_> = logged.iter().map(|entry| entry["actor"].as_str().unwrap()).collect();
    assert!(actors.len() == 2 && actors.iter().all(|actor| actor.starts_with("ak_")), "{actors:?}");
    assert_eq!(logged[1]["address"], "127.0.0.1");
}

#[tokio::test]
async fn secrets_are_not_returned() {
    let api = api(McpAccess::Write).await;
    let body = json!({"subscription": same_browser(&fcm("a"))});
    let made = call(&api, &api.key, "subscriptions_register", json!({"body": body})).await.unwrap();
    assert!(made["token"] == "[redacted]" && made["id"].is_string(), "{made}");
    let tools = tools_at(&api, "/mcp", &api.key).await;
    for hidden in ["api_keys_create", "webhooks_create", "vapid_keys_export"] {
        assert!(!tools.contains(hidden), "{hidden}");
        let params = json!({"name": hidden, "arguments": {}});
        let reply = post(&api, "/mcp", Some(&api.key), message(1, "tools/call", params)).await.ok(200);
        assert_eq!(reply["error"]["code"], -32602, "{reply}");
    }
}

#[tokio::test]
async fn refusals_of_the_api_reach_the_model() {
    let api = api(McpAccess::Write).await;
    let missing = call(&api, &api.key, "topics_show", json!({"topic": "nwes"})).await.unwrap_err();
    assert!(missing.contains("not_found"), "{missing}");
    let stranger = call(&api, &api.key, "topics_list", json!({"app": "other"})).await.unwrap_err();
    assert!(stranger.contains("not_found"), "{stranger}");
    let typo = call(&api, &api.key, "topics_list", json!({"limt": 1})).await.unwrap_err();
    assert!(typo.contains("\"limt\" does not exist"), "{typo}");
    let nameless = call(&api, &api.operator, "topics_list", json!({})).await.unwrap_err();
    assert!(nameless.contains("\"app\" is missing"), "{nameless}");
}

#[tokio::test]
async fn old_and_new_clients_are_greeted() {
    let api = api(McpAccess::Read).await;
    let client = json!({"name": "test", "version": "1"});
    for version in ["2024-11-05", "2025-03-26", "2025-06-18"] {
        let hello = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
        let reply = post(&api, "/mcp", Some(&api.key), message(1, "initialize", hello)).await;
        assert!(reply.header("mcp-session-id").is_empty(), "no session is kept");
        let reply = reply.ok(200);
        assert_eq!(reply["result"]["protocolVersion"], version, "{reply}");
        assert_eq!(reply["result"]["serverInfo"]["name"], "bellwire");
    }
    let started = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(post(&api, "/mcp", Some(&api.key), started).await.status, 202);
}
