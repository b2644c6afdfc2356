//! `If-Match` and `If-None-Match` where two people may edit. [`super::walk`] tests that all routes support them.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::api::ApiConfig;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};

use crate::support::api::{Reply, TestApi, content};
use crate::support::app::until_waiting;

const SEGMENT: &str = "/v1/apps/shop/segments/beta";

async fn set(api: &TestApi, expression: &str, headers: &[(&str, &str)]) -> Reply {
    api.call_with(Method::PUT, SEGMENT, Some(&api.key), Some(json!({"expression": expression})), headers).await
}

async fn show(api: &TestApi) -> Reply {
    api.call(Method::GET, SEGMENT, Some(&api.key), None).await
}

#[tokio::test]
async fn stale_edit_is_refused() {
    let api = TestApi::start().await;
    set(&api, "tag(\"a\")", &[]).await.ok(201);
    let seen = show(&api).await.header("etag").to_owned();
    let mine = set(&api, "tag(\"b\")", &[("if-match", &seen)]).await;
    assert_eq!((mine.status, mine.header("etag")), (200, show(&api).await.header("etag")));
    let yours = set(&api, "tag(\"c\")", &[("if-match", &seen)]).await;
    assert_eq!(yours.refusal(), (412, "precondition_failed", vec![]));
    assert_eq!(yours.header("etag"), mine.header("etag"), "it tells what is there");
    assert_eq!(show(&api).await.json["expression"], "tag(\"b\")");
    let next = set(&api, "tag(\"d\")", &[("if-match", mine.header("etag"))]).await;
    assert_eq!(next.status, 200, "on goes who made the last change");
}

#[tokio::test]
async fn one_of_many_concurrent_edits_wins() {
    let api = TestApi::start().await;
    set(&api, "tag(\"a\")", &[]).await.ok(201);
    let seen = show(&api).await.header("etag").to_owned();
    let condition = [("if-match", seen.as_str())];
    let expressions: Vec<String> = (0..6).map(|n| format!("tag(\"t{n}\")")).collect();
    let all = expressions.iter().map(|expression| set(&api, expression, &condition));
    let statuses: Vec<u16> = futures_util::future::join_all(all).await.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 412].contains(status)), "{statuses:?}");
}

#[tokio::test]
async fn something_new_can_be_made_without_overwriting() {
    let api = TestApi::start().await;
    let missing = set(&api, "tag(\"a\")", &[("if-match", "*")]).await;
    assert_eq!(missing.refusal(), (412, "precondition_failed", vec![]));
    assert_eq!(set(&api, "tag(\"a\")", &[("if-none-match", "*")]).await.status, 201);
    assert_eq!(set(&api, "tag(\"b\")", &[("if-none-match", "*")]).await.status, 412);
    assert_eq!(set(&api, "tag(\"b\")", &[("if-match", "*")]).await.status, 200);
}

#[tokio::test]
async fn conditional_request_reveals_no_unreadable_resource() {
    let api = TestApi::start().await;
    set(&api, "tag(\"a\")", &[]).await.ok(201);
    let (_, stranger) = api.make_app("other").await;
    // What is another app's is not told from what does not exist.
    for (bearer, status) in [(None, 401), (Some(stranger.as_str()), 412)] {
        let body = Some(json!({"expression": "tag(\"b\")"}));
        let reply = api.call_with(Method::PUT, SEGMENT, bearer, body, &[("if-match", "\"x\"")]).await;
        assert_eq!(reply.status, status, "{}", reply.json);
        assert_eq!(reply.header("etag"), "");
    }
}

#[tokio::test]
async fn what_has_not_changed_is_not_sent_again() {
    let api = TestApi::start().await;
    set(&api, "tag(\"a\")", &[]).await.ok(201);
    let tag = show(&api).await.header("etag").to_owned();
    let again = api.call_with(Method::GET, SEGMENT, Some(&api.key), None, &[("if-none-match", &tag)]).await;
    assert_eq!((again.status, &again.json, again.header("etag")), (304, &Value::Null, &*tag));
}

#[tokio::test]
async fn waiting_edits_do_not_block_other_apps() {
    let api = TestApi::with(ApiConfig { place_patience: Duration::ZERO, ..ApiConfig::default() }, None).await;
    let (_, other) = api.make_app("other").await;
    set(&api, "tag(\"a\")", &[]).await.ok(201);
    let mut held = api.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM segments FOR UPDATE").execute(&mut *held).await.unwrap();
    let mut waiting = FuturesUnordered::new();
    // As many as one app may make at a time.
    let refused = loop {
        waiting.push(set(&api, "tag(\"b\")", &[("if-match", "*")]));
        let n = waiting.len() as i64;
        tokio::select! {
            refused = waiting.next() => break refused.unwrap(),
            () = until_waiting(&api.pool, n) => {}
        }
    };
    assert_eq!(refused.refusal(), (503, "edits_busy", vec![]));
    let make = async |path: &str, body: Value| {
        let path = format!("/v1/apps/other{path}");
        api.call_with(Method::PUT, &path, Some(&other), Some(body), &[("if-none-match", "*")]).await
    };
    let same_kind = make("/segments/beta", json!({"expression": "tag(\"a\")"})).await;
    let another_kind = make("/templates/hello", json!({"content": content()})).await;
    held.rollback().await.unwrap();
    while let Some(reply) = waiting.next().await {
        reply.ok(200);
    }
    same_kind.ok(201);
    another_kind.ok(201);
}

#[tokio::test]
async fn foreign_app_name_takes_none_of_its_turns() {
    let api = TestApi::with(ApiConfig { place_patience: Duration::ZERO, ..ApiConfig::default() }, None).await;
    let (_, stranger) = api.make_app("other").await;
    set(&api, "tag(\"a\")", &[]).await.ok(201);
    let mut held = api.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM segments FOR UPDATE").execute(&mut *held).await.unwrap();
    let own = set(&api, "tag(\"b\")", &[("if-match", "*")]);
    let meanwhile = async {
        until_waiting(&api.pool, 1).await;
        let body = Some(json!({"expression": "tag(\"c\")"}));
        let reply = api.call_with(Method::PUT, SEGMENT, Some(&stranger), body, &[("if-none-match", "*")]).await;
        held.rollback().await.unwrap();
        assert_eq!(reply.refusal(), (404, "not_found", vec![]), "it waits for nobody");
    };
    tokio::join!(own, meanwhile).0.ok(200);
}
