//! `Idempotency-Key` on requests that make something. That all of them know it is in [`super::walk`].

use axum::http::Method;
use bellwire::testkit::store::keys::api_keys::{self, Scope};
use serde_json::{Value, json};

use super::{Reply, TestApi};

const TOPICS: &str = "/v1/apps/shop/topics";

async fn make(api: &TestApi, bearer: &str, path: &str, body: Value) -> Reply {
    api.call_with(Method::POST, path, Some(bearer), Some(body), &[("idempotency-key", "k")]).await
}

async fn count(api: &TestApi, what: &'static str) -> i64 {
    sqlx::query_scalar(what).fetch_one(&api.pool).await.unwrap()
}

#[tokio::test]
async fn a_repeat_shows_the_secret_again_which_is_nowhere_in_the_clear() {
    let api = TestApi::start().await;
    let body = json!({"name": "backend", "scopes": ["send"]});
    let before = count(&api, "SELECT count(*) FROM api_keys").await;
    let first = make(&api, &api.key, "/v1/apps/shop/api-keys", body.clone()).await.ok(201);
    let again = make(&api, &api.key, "/v1/apps/shop/api-keys", body).await.ok(201);
    assert_eq!(first, again);
    assert_eq!(count(&api, "SELECT count(*) FROM api_keys").await, before + 1);
    let stored: Vec<u8> = sqlx::query_scalar("SELECT answer FROM first_answers").fetch_one(&api.pool).await.unwrap();
    let secret = first["secret"].as_str().unwrap().as_bytes();
    assert!(!stored.is_empty() && !stored.windows(secret.len()).any(|part| part == secret));
}

#[tokio::test]
async fn a_key_counts_for_whoever_used_it_and_for_that_request() {
    let api = TestApi::start().await;
    let app = Some(api.app_id());
    let made = api_keys::create(&api.pool, &api.vault, app, "other", &Scope::OF_APPS, None, &api.clock).await;
    let other = made.unwrap().1;
    make(&api, &api.key, TOPICS, json!({"name": "news"})).await.ok(201);
    let reused = make(&api, &api.key, TOPICS, json!({"name": "sport"})).await;
    assert_eq!(reused.refusal(), (422, "idempotency_key_reused", vec![]));
    let elsewhere = make(&api, &api.key, &format!("{TOPICS}?x=1"), json!({"name": "news"})).await;
    assert_eq!(elsewhere.refusal(), (422, "idempotency_key_reused", vec![]));
    make(&api, &api.key, "/v1/apps/shop/vapid-keys", json!({})).await.ok(201);
    make(&api, &other, TOPICS, json!({"name": "sport"})).await.ok(201);
    assert_eq!(make(&api, &other, TOPICS, json!({"name": "news"})).await.status, 422);
}

#[tokio::test]
async fn what_was_refused_may_be_tried_again_with_the_same_key() {
    let api = TestApi::start().await;
    api.post("/topics", json!({"name": "news"})).await.ok(201);
    let refused = make(&api, &api.key, TOPICS, json!({"name": "news"})).await;
    assert_eq!(refused.refusal(), (409, "topic_exists", vec![]));
    api.call(Method::DELETE, &format!("{TOPICS}/news"), Some(&api.key), None).await.ok(204);
    let made = make(&api, &api.key, TOPICS, json!({"name": "news"})).await;
    assert_eq!((made.status, made.header("idempotent-replayed")), (201, ""));
}

#[tokio::test]
async fn who_is_not_let_in_any_more_hears_no_answer_of_before() {
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
async fn a_repeat_hears_that_the_first_is_still_under_way() {
    let api = TestApi::start().await;
    // The first one has claimed the key, and its transaction has no end yet.
    let mut first = api.pool.begin().await.unwrap();
    sqlx::query(
        "INSERT INTO first_answers (caller, route, key, id, request_hash, status, answer, created_at)
         SELECT id, 'POST /v1/apps/{app}/topics', 'k', id, sha256(''), 0, '', now() FROM api_keys",
    )
    .execute(&mut *first)
    .await
    .unwrap();
    let second = make(&api, &api.key, TOPICS, json!({"name": "news"})).await;
    assert_eq!(second.refusal(), (409, "idempotency_key_in_progress", vec![]));
    assert_eq!(second.header("retry-after"), "1");
    first.rollback().await.unwrap();
    make(&api, &api.key, TOPICS, json!({"name": "news"})).await.ok(201);
}

#[tokio::test]
async fn of_two_at_once_one_makes_it_and_both_hear_the_same() {
    let api = TestApi::start().await;
    let body = json!({"name": "news"});
    let (one, other) =
        tokio::join!(make(&api, &api.key, TOPICS, body.clone()), make(&api, &api.key, TOPICS, body.clone()));
    let mut replayed = [one.header("idempotent-replayed").to_owned(), other.header("idempotent-replayed").to_owned()];
    replayed.sort();
    assert_eq!(replayed, ["", "true"]);
    assert_eq!(one.ok(201), other.ok(201));
}
