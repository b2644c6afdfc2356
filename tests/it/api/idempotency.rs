//! `Idempotency-Key`: scope, conflicts, and what is stored. [`super::walk`] tests that every operation takes one.

use axum::http::Method;
use bellwire_core::scope::Scope;
use bellwire_store::keys::api_keys;
use bellwire_store::operations::idempotency;
use serde_json::{Value, json};

use crate::support::api::{Reply, TestApi};
use crate::support::app::PATIENCE;

const KEYS: &str = "/v1/apps/shop/identity-keys";

async fn make(api: &TestApi, bearer: &str, path: &str, body: Value) -> Reply {
    api.call_with(Method::POST, path, Some(bearer), Some(body), &[("idempotency-key", "k")]).await
}

async fn count(api: &TestApi, what: &'static str) -> i64 {
    sqlx::query_scalar(what).fetch_one(&api.pool).await.unwrap()
}

#[tokio::test]
async fn repeated_request_returns_the_sealed_secret_again() {
    let api = TestApi::start().await;
    let body = json!({"name": "backend", "scopes": ["send"]});
    let before = count(&api, "SELECT count(*) FROM api_keys").await;
    let first = make(&api, &api.key, "/v1/apps/shop/api-keys", body.clone()).await.ok(201);
    let again = make(&api, &api.key, "/v1/apps/shop/api-keys", body).await.ok(201);
    assert_eq!(first, again);
    assert_eq!(count(&api, "SELECT count(*) FROM api_keys").await, before + 1);
    assert!(!stored(&api).await.contains(first["secret"].as_str().unwrap()));
}

/// Every column of the only row, with `bytea` read as text.
async fn stored(api: &TestApi) -> String {
    let row = "SELECT concat_ws(' ', k::text, encode(k.fingerprint, 'escape'), encode(k.response, 'escape'))
               FROM idempotency_keys k WHERE k.response <> ''";
    sqlx::query_scalar(row).fetch_one(&api.pool).await.unwrap()
}

async fn send(api: &TestApi, bearer: &str, title: &str) -> Reply {
    let body = json!({"to": {"users": ["ann"]}, "content": {"title": title}});
    let headers = [("idempotency-key", "login-815442")];
    api.call_with(Method::POST, "/v1/apps/shop/messages", Some(bearer), Some(body), &headers).await
}

async fn other_key(api: &TestApi) -> String {
    let app = Some(api.app_id());
    api_keys::create(&api.pool, &api.vault, app, "other", &Scope::OF_APPS, None, &api.clock).await.unwrap().1
}

#[tokio::test]
async fn repeated_send_gets_the_same_bytes() {
    let api = TestApi::start().await;
    let first = send(&api, &api.key, "Your code").await;
    let again = send(&api, &api.key, "Your code").await;
    assert_eq!((first.status, &first.body), (202, &again.body));
    assert_eq!((again.status, again.header("idempotent-replayed")), (202, "true"));
}

#[tokio::test]
async fn repeated_send_survives_deletion_of_its_template() {
    let api = TestApi::start().await;
    let path = "/v1/apps/shop/templates/welcome";
    let stored = json!({"content": {"title": "Welcome"}});
    api.call(Method::PUT, path, Some(&api.key), Some(stored)).await.ok(201);
    let alone = json!({"to": {"users": ["ann"]}, "template": "welcome"});
    let mut keyed = alone.clone();
    keyed["idempotency_key"] = json!("in a batch");
    let in_batch = json!({"messages": [keyed]});
    let (sends, batches) = ("/v1/apps/shop/messages", "/v1/apps/shop/messages/batch");
    let first = make(&api, &api.key, sends, alone.clone()).await.ok(202);
    let first_batch = api.call(Method::POST, batches, Some(&api.key), Some(in_batch.clone())).await.ok(200);
    api.call(Method::DELETE, path, Some(&api.key), None).await.ok(204);

    assert_eq!(make(&api, &api.key, sends, alone.clone()).await.ok(202), first);
    let again = api.call(Method::POST, batches, Some(&api.key), Some(in_batch)).await.ok(200);
    assert_eq!(again["results"][0]["message"], first_batch["results"][0]["message"]);
    assert_eq!(again["results"][0]["replayed"], true);
    let unkeyed = api.call(Method::POST, sends, Some(&api.key), Some(alone)).await;
    assert_eq!(unkeyed.refusal().0, 422);
}

#[tokio::test]
async fn sends_leave_no_key_and_response_in_clear() {
    let api = TestApi::start().await;
    let id = send(&api, &api.key, "Your code").await.ok(202)["id"].clone();
    let stored = stored(&api).await;
    for clear in [id.as_str().unwrap(), "login-815442", "audience_estimate", "Your code"] {
        assert!(!stored.contains(clear), "{clear}: {stored}");
    }
}

#[tokio::test]
async fn callers_do_not_share_keys_of_sends() {
    let api = TestApi::start().await;
    let other = other_key(&api).await;
    let first = send(&api, &api.key, "Your code").await.ok(202);
    let second = send(&api, &other, "Your code").await;
    assert_eq!((second.status, second.header("idempotent-replayed")), (202, ""));
    assert_ne!(second.json["id"], first["id"]);
    assert_eq!(send(&api, &api.key, "Another code").await.refusal(), (422, "idempotency_key_reused", vec![]));
}

#[tokio::test]
async fn key_counts_for_one_app() {
    let api = TestApi::start().await;
    api.make_app("blog").await;
    for path in [KEYS, "/v1/apps/blog/identity-keys"] {
        let made = make(&api, &api.operator, path, json!({"name": "news"})).await;
        assert_eq!((made.status, made.header("idempotent-replayed")), (201, ""), "{path}");
    }
}

#[tokio::test]
async fn key_counts_per_caller_and_request() {
    let api = TestApi::start().await;
    let other = other_key(&api).await;
    make(&api, &api.key, KEYS, json!({"name": "news"})).await.ok(201);
    let reused = make(&api, &api.key, KEYS, json!({"name": "sport"})).await;
    assert_eq!(reused.refusal(), (422, "idempotency_key_reused", vec![]));
    make(&api, &api.key, "/v1/apps/shop/vapid-keys", json!({})).await.ok(201);
    make(&api, &other, KEYS, json!({"name": "sport"})).await.ok(201);
    assert_eq!(make(&api, &other, KEYS, json!({"name": "news"})).await.status, 422);
}

#[tokio::test]
async fn refused_request_may_be_retried_with_its_key() {
    let api = TestApi::start().await;
    let path = "/v1/apps/shop/campaigns";
    let plan = json!({"slug": "news", "message": {"to": {"all": true}, "content": {"title": "T"}}});
    api.post("/campaigns", plan.clone()).await.ok(201);
    let refused = make(&api, &api.key, path, plan.clone()).await;
    assert_eq!(refused.refusal(), (409, "campaign_exists", vec![]));
    api.call(Method::DELETE, &format!("{path}/news"), Some(&api.key), None).await.ok(204);
    let made = make(&api, &api.key, path, plan).await;
    assert_eq!((made.status, made.header("idempotent-replayed")), (201, ""));
}

#[tokio::test]
async fn caller_without_access_gets_no_earlier_response() {
    let api = TestApi::start().await;
    let app = Some(api.app_id());
    let made = api_keys::create(&api.pool, &api.vault, app, "stolen", &Scope::OF_APPS, None, &api.clock).await;
    let (key, secret) = made.unwrap();
    let body = json!({"name": "n", "scopes": ["send"]});
    make(&api, &secret, "/v1/apps/shop/api-keys", body.clone()).await.ok(201);
    api.call(Method::DELETE, &format!("/v1/apps/shop/api-keys/{}", key.id), Some(&api.key), None).await.ok(200);
    let again = make(&api, &secret, "/v1/apps/shop/api-keys", body).await;
    assert_eq!(again.refusal(), (401, "unauthorized", vec![]));
}

#[tokio::test]
async fn repeat_during_first_request_gets_a_conflict() {
    let api = TestApi::start().await;
    // The first one has claimed the key, and its transaction has no end yet.
    let mut first = api.pool.begin().await.unwrap();
    let request = api.keyed_request("POST /v1/apps/{app}/identity-keys", "k", &[]).await;
    idempotency::claim(&mut first, &[&request], PATIENCE, api.clock.now()).await.unwrap();
    let second = make(&api, &api.key, KEYS, json!({"name": "news"})).await;
    assert_eq!(second.refusal(), (409, "idempotency_key_in_progress", vec![]));
    assert_eq!(second.header("retry-after"), "1");
    first.rollback().await.unwrap();
    make(&api, &api.key, KEYS, json!({"name": "news"})).await.ok(201);
}

#[tokio::test]
async fn concurrent_repeats_create_once_with_equal_responses() {
    let api = TestApi::start().await;
    let body = json!({"name": "news"});
    let (one, other) = tokio::join!(make(&api, &api.key, KEYS, body.clone()), make(&api, &api.key, KEYS, body.clone()));
    let mut replayed = [one.header("idempotent-replayed").to_owned(), other.header("idempotent-replayed").to_owned()];
    replayed.sort();
    assert_eq!(replayed, ["", "true"]);
    assert_eq!(one.ok(201), other.ok(201));
}
