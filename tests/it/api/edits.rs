//! `If-Match` and `If-None-Match` where two people may edit. That everything knows them is in [`super::walk`].

use axum::http::Method;
use serde_json::{Value, json};

use super::{Reply, TestApi};

const SEGMENT: &str = "/v1/apps/shop/segments/beta";

async fn set(api: &TestApi, expression: &str, headers: &[(&str, &str)]) -> Reply {
    api.call_with(Method::PUT, SEGMENT, Some(&api.key), Some(json!({"expression": expression})), headers).await
}

async fn show(api: &TestApi) -> Reply {
    api.call(Method::GET, SEGMENT, Some(&api.key), None).await
}

#[tokio::test]
async fn whoever_has_not_seen_the_last_change_does_not_undo_it() {
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
async fn of_many_who_have_seen_the_same_one_makes_the_change() {
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
async fn a_condition_tells_nobody_what_they_may_not_read() {
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
