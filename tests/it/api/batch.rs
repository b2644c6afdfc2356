//! Many different messages in one request: each is answered for itself.

use axum::http::Method;
use bellwire::testkit::api::ApiConfig;
use bellwire::testkit::api::RequestRate;
use bellwire_store::operations::idempotency::{self, Claim};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::api::{Reply, TestApi, content, fcm};
use crate::support::app::scalar;

const ROUTE: &str = "POST /v1/apps/{app}/messages/batch";

async fn send(api: &TestApi, messages: &[Value]) -> Reply {
    api.post("/messages/batch", json!({"messages": messages})).await
}

/// The result of each message, if the batch was taken.
async fn results(api: &TestApi, messages: &[Value]) -> Vec<Value> {
    let sent = send(api, messages).await.ok(200);
    let results = sent["results"].as_array().unwrap().clone();
    assert_eq!(results.len(), messages.len());
    let refused = results.iter().filter(|result| result["problem"].is_object()).count();
    assert!(results.iter().all(|result| result["problem"].is_object() != result["message"].is_object()), "{sent}");
    assert_eq!((&sent["refused"], &sent["accepted"]), (&json!(refused), &json!(results.len() - refused)));
    results
}

fn status(results: &[Value]) -> Vec<i64> {
    results.iter().map(|result| result["status"].as_i64().unwrap()).collect()
}

/// Pointer of a result's first error.
fn pointer(result: &Value) -> &str {
    let problem = &result["problem"];
    let pointer = problem["errors"][0]["pointer"].as_str().unwrap();
    assert!(problem["detail"].as_str().unwrap().starts_with(&format!("{pointer}: ")), "{problem}");
    pointer
}

async fn subscriber(api: &TestApi) -> String {
    api.subscribe(&fcm("batch"), json!({"user_id": "ann"})).await["id"].as_str().unwrap().to_owned()
}

fn to(subscription: &str, more: Value) -> Value {
    let mut message = json!({"to": {"subscriptions": [subscription]}, "content": content()});
    message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    message
}

#[tokio::test]
async fn batch_items_are_accepted_or_refused_separately() {
    let api = TestApi::start().await;
    let id = subscriber(&api).await;
    let ann = json!({"to": {"users": ["ann", "bob"]}, "content": {"title": "Hi"}, "tier": "transactional", "ttl": 60});
    let messages = [
        to(&id, json!({})),
        to(&id, json!({"ttl": -1})),
        to("sub_019aa000-0000-7000-8000-000000000000", json!({})),
        ann,
        json!({"to": {"all": true}, "content": content()}),
        json!(3),
        json!([]),
        to(&id, json!({"x/y": 1})),
        to(&id, json!({"policy": {"retries": 1000}})),
        to(&id, json!({"idempotency_key": "ü"})),
        to(&id, json!({"policy": {"retries": 2}, "collapse_key": "k"})),
    ];
    let results = results(&api, &messages).await;
    assert_eq!(status(&results), [202, 422, 422, 202, 422, 422, 422, 422, 422, 422, 202]);
    for (place, expected) in [
        (1, "/messages/1/ttl"),
        (2, "/messages/2/to/subscriptions/0"),
        (4, "/messages/4/to"),
        (5, "/messages/5"),
        (6, "/messages/6"),
        (7, "/messages/7/x~1y"),
        (8, "/messages/8/policy/retries"),
        (9, "/messages/9/idempotency_key"),
    ] {
        assert_eq!(pointer(&results[place]), expected);
    }
    assert_eq!(
        (&results[3]["message"]["audience_estimate"], &results[3]["message"]["unreachable"]),
        (&json!(1), &json!(1))
    );
    for (place, tier, policy) in
        [(0, "promotional", Value::Null), (3, "transactional", Value::Null), (10, "promotional", json!({"retries": 2}))]
    {
        let message = results[place]["message"]["id"].as_str().unwrap();
        let shown = api.get(&format!("/messages/{message}")).await.ok(200);
        assert_eq!((&shown["tier"], &shown["policy"], &shown["to"]), (&json!(tier), &policy, &messages[place]["to"]));
        assert_eq!(api.counts(message).await["queued"], 1);
    }
    assert_eq!(scalar(&api.pool, "SELECT count(*) FROM messages").await, 3);
}

#[tokio::test]
async fn batch_size_counts_as_its_messages() {
    let per_key = RequestRate { burst: 8, per_minute: 1 };
    let api = TestApi::with(ApiConfig { per_key, body_max_bytes: 1_000, ..ApiConfig::default() }, None).await;
    let one = json!({"to": {"users": ["ann"]}, "content": content()});
    assert_eq!(send(&api, &[]).await.refusal(), (422, "invalid", vec!["/messages"]));
    assert_eq!(send(&api, &vec![json!(0); 1_001]).await.refusal(), (422, "invalid", vec!["/messages"]));
    assert_eq!(send(&api, &vec![one.clone(); 9]).await.refusal(), (422, "invalid", vec!["/messages"]), "never");
    let long = json!({"to": {"users": ["ann"]}, "content": {"title": "x".repeat(8_000)}});
    assert_eq!(send(&api, &[long]).await.refusal(), (413, "body_too_large", vec![]), "eight bodies' worth");
    let keyed = send_under(&api, "", std::slice::from_ref(&one)).await;
    assert_eq!(keyed.refusal(), (400, "invalid_header", vec!["Idempotency-Key"]));
    // Five requests were refused, each of which counts as one; three are left.
    assert_eq!(send(&api, &vec![one.clone(); 4]).await.refusal(), (429, "rate_limited", vec![]));
    assert_eq!(status(&results(&api, &vec![one.clone(); 2]).await), [202; 2]);
    assert_eq!(send(&api, &[one]).await.refusal(), (429, "rate_limited", vec![]));
    assert_eq!(scalar(&api.pool, "SELECT count(*) FROM messages").await, 2, "a refused batch leaves nothing");
}

async fn send_under(api: &TestApi, key: &str, messages: &[Value]) -> Reply {
    let (path, body) = ("/v1/apps/shop/messages/batch", json!({"messages": messages}));
    api.call_with(Method::POST, path, Some(&api.key), Some(body), &[("idempotency-key", key)]).await
}

#[tokio::test]
async fn header_gives_keys_to_messages_without_one() {
    let api = TestApi::start().await;
    let message = json!({"to": {"users": ["ann"]}, "content": content()});
    let mut own = message.clone();
    own["idempotency_key"] = "mine".into();
    let batch = [message.clone(), message.clone(), own.clone()];
    let ids = |reply: Value| -> Vec<(Value, bool)> {
        let results = reply["results"].as_array().unwrap().iter();
        results.map(|it| (it["message"]["id"].clone(), it["replayed"] == true)).collect()
    };
    let first = ids(send_under(&api, "17", &batch).await.ok(200));
    assert_eq!(first.iter().filter(|(_, replayed)| *replayed).count(), 0, "equal messages at two places are two");
    let again = ids(send_under(&api, "17", &batch).await.ok(200));
    assert_eq!(again, first.iter().map(|(id, _)| (id.clone(), true)).collect::<Vec<_>>());
    let other = ids(send_under(&api, "18", &batch).await.ok(200));
    assert_eq!(other.iter().map(|(_, replayed)| *replayed).collect::<Vec<_>>(), [false, false, true]);
    let changed = json!({"to": {"users": ["bob"]}, "content": content()});
    let reused = send_under(&api, "17", &[changed]).await.ok(200);
    assert_eq!(reused["results"][0]["problem"]["code"], "idempotency_key_reused");
    assert_eq!(scalar(&api.pool, "SELECT count(*) FROM messages").await, 5);
}

#[tokio::test]
async fn retry_headers_apply_to_each_batch_item() {
    let api = TestApi::start().await;
    let id = subscriber(&api).await;
    let messages = [to(&id, json!({})), to(&id, json!({"policy": {"retries": 4, "retryDelay": "1000"}}))];
    let (path, body) = ("/v1/apps/shop/messages/batch", Some(json!({"messages": messages})));
    let headers = [("bellwire-retries", "2")];
    let sent = api.call_with(Method::POST, path, Some(&api.key), body, &headers).await.ok(200);
    for (result, policy) in sent["results"]
        .as_array()
        .unwrap()
        .iter()
        .zip([json!({"retries": 2}), json!({"retries": 2, "retryDelay": "1000"})])
    {
        let shown = api.get(&format!("/messages/{}", result["message"]["id"].as_str().unwrap())).await.ok(200);
        assert_eq!(shown["policy"], policy);
    }
}

#[tokio::test]
async fn repeated_batch_item_gets_its_first_response() {
    let api = TestApi::start().await;
    let id = subscriber(&api).await;
    let unknown = "sub_019aa000-0000-7000-8000-000000000000";
    let keyed = |key: &str, title: &str| to(&id, json!({"idempotency_key": key, "content": {"title": title}}));
    let batch = [
        keyed("a", "1"),
        to(&id, json!({})),
        keyed("b", "1"),
        keyed("a", "1"),
        keyed("b", "2"),
        to(unknown, json!({"idempotency_key": "c"})),
    ];
    let first = results(&api, &batch).await;
    assert_eq!(status(&first), [202, 202, 202, 202, 422, 422]);
    assert_eq!(
        (&first[3]["message"], &first[3]["replayed"]),
        (&first[0]["message"], &json!(true)),
        "twice in one batch"
    );
    assert_eq!(first[4]["problem"]["code"], "idempotency_key_reused");
    assert_eq!(pointer(&first[5]), "/messages/5/to/subscriptions/0");
    assert_eq!(scalar(&api.pool, "SELECT count(*) FROM messages").await, 3);

    let again = results(&api, &[keyed("c", "1"), keyed("b", "1"), keyed("a", "2"), keyed("a", "1")]).await;
    assert_eq!(status(&again), [202, 202, 422, 422]);
    assert!(again[0]["replayed"].is_null(), "what was refused used up no key");
    assert_eq!((&again[1]["message"], &again[1]["replayed"]), (&first[2]["message"], &json!(true)));
    assert_eq!(again[2]["problem"]["code"], "idempotency_key_reused");
    assert_eq!(scalar(&api.pool, "SELECT count(*) FROM messages").await, 4);
}

#[tokio::test]
async fn concurrent_equal_batches_send_each_message_once() {
    let api = TestApi::start().await;
    let id = subscriber(&api).await;
    let mut batch: Vec<_> = (0..150).map(|n| to(&id, json!({"idempotency_key": format!("k{n}")}))).collect();
    let forwards = batch.clone();
    batch.reverse();
    let all = join_all((0..6).map(|n| results(&api, if n % 2 == 0 { &forwards } else { &batch }))).await;
    for (n, mut results) in all.iter().cloned().enumerate() {
        if n % 2 == 1 {
            results.reverse();
        }
        assert_eq!(status(&results), [202; 150]);
        assert!(results.iter().zip(&all[0]).all(|(one, other)| one["message"]["id"] == other["message"]["id"]));
    }
    assert_eq!(scalar(&api.pool, "SELECT count(*) FROM messages").await, 150);

    // A first request that takes too long: the second is told to come again, in its place.
    let slow = api.keyed_request(ROUTE, "slow", &[]).await;
    let mut tx = api.pool.begin().await.unwrap();
    let patience = std::time::Duration::from_secs(1);
    let claimed = idempotency::claim(&mut tx, &[&slow], patience, api.clock.now()).await.unwrap();
    assert!(matches!(claimed.unwrap()[..], [Claim::First]));
    let keyed = |key: &str| to(&id, json!({"idempotency_key": key}));
    let results = results(&api, &[keyed("x"), keyed("slow"), keyed("y")]).await;
    assert_eq!(status(&results), [202, 409, 202]);
    assert_eq!(results[1]["problem"]["code"], "idempotency_key_in_progress");
}

#[tokio::test]
async fn first_accepted_item_gets_the_shared_key() {
    let api = TestApi::start().await;
    let id = subscriber(&api).await;
    let unknown = "sub_019aa000-0000-7000-8000-000000000000";
    let keyed = |to_whom: &str, n: &str| to(to_whom, json!({"key": "booking/7", "idempotency_key": n}));
    let batch = [keyed(unknown, "1"), keyed(unknown, "2"), keyed(&id, "3"), keyed(&id, "4")];
    let results = results(&api, &batch).await;
    assert_eq!(status(&results), [422, 422, 202, 409]);
    let (taken, problem) = (&results[2]["message"]["id"], &results[3]["problem"]);
    assert_eq!(problem["code"], "message_key_taken");
    assert!(problem["detail"].as_str().unwrap().contains(taken.as_str().unwrap()), "{problem}");
    assert_eq!(scalar(&api.pool, "SELECT count(*) FROM messages").await, 1);
}

#[tokio::test]
async fn idempotency_wait_precedes_the_message_key_wait() {
    let api = TestApi::start().await;
    let id = subscriber(&api).await;
    let [mut slow, mut other] = [api.pool.begin().await.unwrap(), api.pool.begin().await.unwrap()];
    let first = api.keyed_request(ROUTE, "slow", &[]).await;
    idempotency::claim(&mut slow, &[&first], std::time::Duration::from_secs(1), api.clock.now()).await.unwrap();
    let claim = "INSERT INTO message_keys (app, key, message) VALUES ($1, 'booking/7', gen_random_uuid())";
    sqlx::query(claim).bind(api.app_id().0).execute(&mut *other).await.unwrap();
    let batch =
        [to(&id, json!({"idempotency_key": "slow"})), to(&id, json!({"idempotency_key": "x", "key": "booking/7"}))];
    let mut sent = std::pin::pin!(results(&api, &batch));
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '/* claim_message_keys */%'";
    tokio::select! {
        results = &mut sent => panic!("it did not wait: {results:?}"),
        () = async { while scalar(&api.pool, waiting).await == 0 {} } => other.rollback().await.unwrap(),
    }
    assert_eq!(status(&sent.await), [409, 202]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_a_batch_goes_out_once() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..20).await;
    let message = |n: usize| {
        let to = json!({"subscriptions": [subscribers[n % 20].id]});
        let key = n.is_multiple_of(3).then(|| format!("k{n}"));
        json!({"to": to, "tier": "transactional", "content": {"title": n.to_string()}, "idempotency_key": key})
    };
    let batch: Vec<_> = (0..300).map(message).collect();
    let path = "/v1/apps/shop/messages/batch";
    let sent = app.call(Method::POST, path, json!({"messages": batch})).await.ok(200);
    assert_eq!(sent["accepted"], 300, "{sent}");
    app.run_until_idle().await;
    assert_eq!(app.simulator.report().accepted, 300);
    for result in sent["results"].as_array().unwrap().iter().step_by(50) {
        assert_eq!(app.counts(result["message"]["id"].as_str().unwrap()).await["accepted"], 1);
    }
    app.finish().await;
}
