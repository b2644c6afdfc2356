//! Sends that arrive together share a commit, and none of them pays for another. Keys are remembered for a moment, and
//! forgotten the moment they change.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::api::{ApiConfig, Work};
use bellwire_store::operations::idempotency;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{PgPool, Postgres, Transaction};
use uuid::Uuid;

use crate::support::api::{Reply, TestApi, content, fcm};
use crate::support::app::{PATIENCE, scalar, until_waiting};

async fn subscribers(api: &TestApi, n: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for i in 0..n {
        let made = api.subscribe(&fcm(&format!("sharing-{i}")), json!({"user_id": format!("user-{i}")})).await;
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    ids
}

fn to(subscription: &str) -> Value {
    json!({"to": {"subscriptions": [subscription]}, "content": content()})
}

/// Lets no message be written until the transaction ends.
async fn stall(pool: &PgPool) -> Transaction<'static, Postgres> {
    let mut stalled = pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE messages IN SHARE MODE").execute(&mut *stalled).await.unwrap();
    stalled
}

/// A send, under an idempotency key if there is one.
async fn post(api: &TestApi, key: Option<String>, body: Value) -> Reply {
    let headers: Vec<_> = key.iter().map(|key| ("idempotency-key", key.as_str())).collect();
    api.call_with(Method::POST, "/v1/apps/shop/messages", Some(&api.key), Some(body), &headers).await
}

/// Has these requests answered that arrive while nothing can be written.
async fn all_at_once(api: &TestApi, bodies: Vec<Value>) -> Vec<Reply> {
    all_under(api, bodies.into_iter().map(|body| (None, body)).collect()).await
}

/// The same with idempotency keys.
async fn all_under(api: &TestApi, requests: Vec<(Option<String>, Value)>) -> Vec<Reply> {
    api.get("").await.ok(200); // the key is cached from here on, so that no request waits for it
    let stalled = stall(&api.pool).await;
    let requests = join_all(requests.into_iter().map(|(key, body)| post(api, key, body)));
    let release = async {
        until_waiting(&api.pool, 1).await;
        stalled.rollback().await.unwrap();
    };
    tokio::join!(requests, release).0
}

#[tokio::test]
async fn sends_during_a_commit_share_the_next() {
    let api = TestApi::start().await;
    let ids = subscribers(&api, 4).await;
    let some = ids.iter().cycle().take(36).map(|id| to(id));
    let users = json!({"to": {"users": ["user-0", "user-1", "nobody"]}, "content": content()});
    let several = json!({"to": {"subscriptions": ids}, "content": content()});
    let replies = all_at_once(&api, some.chain([users, several]).collect()).await;
    let mut reached = Vec::new();
    for reply in replies {
        let sent = reply.ok(202);
        let counts = api.counts(sent["id"].as_str().unwrap()).await;
        assert_eq!((&counts["targeted"], &counts["queued"]), (&sent["audience_estimate"], &sent["audience_estimate"]));
        reached.push((sent["audience_estimate"].as_i64().unwrap(), sent["unreachable"].as_i64().unwrap()));
    }
    assert_eq!(reached[..36], [(1, 0); 36]);
    assert_eq!(reached[36..], [(2, 1), (4, 0)]);
    let commits = scalar(&api.pool, "SELECT count(DISTINCT xmin::text) FROM messages").await;
    assert!(commits <= 3, "{commits} commits for 38 messages");
}

#[tokio::test]
async fn idempotent_sends_share_commits() {
    let api = TestApi::start().await;
    let ids = subscribers(&api, 4).await;
    let keyed = |n: usize| {
        let to = if n.is_multiple_of(2) {
            to(&ids[n % 4])
        } else {
            json!({"to": {"users": ["user-1"]}, "content": content()})
        };
        (Some(format!("k{n}")), to)
    };
    let requests: Vec<_> = (0..36).map(keyed).chain([(None, to(&ids[0])), (None, to(&ids[1]))]).collect();
    let first = all_under(&api, requests.clone()).await;
    assert!(first.iter().all(|reply| reply.status == 202 && reply.header("idempotent-replayed").is_empty()));
    let commits = scalar(&api.pool, "SELECT count(DISTINCT xmin::text) FROM messages").await;
    assert!(commits <= 3, "{commits} commits for 38 messages");
    let again = join_all(requests.into_iter().take(36).map(|(key, body)| post(&api, key, body))).await;
    for (again, first) in again.iter().zip(&first) {
        assert_eq!((again.header("idempotent-replayed"), &again.json), ("true", &first.json));
    }
    assert_eq!(scalar(&api.pool, "SELECT count(*) FROM messages").await, 38);
}

#[tokio::test]
async fn idempotent_sends_are_refused_separately() {
    let api = TestApi::start().await;
    let ids = subscribers(&api, 2).await;
    sqlx::query("ALTER TABLE messages ADD CHECK (ttl_s <> 7)").execute(&api.pool).await.unwrap();
    let unknown = to("sub_019aa000-0000-7000-8000-000000000000");
    let impossible = json!({"to": {"subscriptions": [ids[0]]}, "content": content(), "ttl": 7});
    let key = |key: &str| Some(key.to_owned());
    let requests = vec![
        (key("a"), to(&ids[0])),
        (key("b"), unknown),
        (key("a"), to(&ids[0])),
        (key("a"), to(&ids[1])),
        (key("c"), impossible),
        (key("d"), to(&ids[1])),
        (None, to(&ids[1])),
    ];
    let replies = all_under(&api, requests).await;
    let status: Vec<_> = replies.iter().map(|reply| reply.status).collect();
    assert_eq!(status, [202, 422, 202, 422, 500, 202, 202]);
    assert_eq!((replies[2].header("idempotent-replayed"), &replies[2].json), ("true", &replies[0].json));
    assert_eq!((replies[1].refusal().1, replies[3].refusal().1), ("invalid", "idempotency_key_reused"));
    for unused in ["b", "c"] {
        let first = post(&api, key(unused), to(&ids[0])).await;
        assert_eq!((first.status, first.header("idempotent-replayed")), (202, ""), "{unused}");
    }
    assert_eq!(scalar(&api.pool, "SELECT count(*) FROM messages").await, 5);
}

#[tokio::test]
async fn long_key_holder_blocks_no_other_send() {
    let api = TestApi::start().await;
    let ids = subscribers(&api, 1).await;
    api.get("").await.ok(200);
    // Another process has a key of each kind, and comes to no end.
    let mut elsewhere = api.pool.begin().await.unwrap();
    let slow = api.keyed_request("POST /v1/apps/{app}/messages", "slow", &[]).await;
    idempotency::claim(&mut elsewhere, &[&slow], PATIENCE, api.clock.now()).await.unwrap();
    sqlx::query("INSERT INTO message_keys (app, key, message) SELECT id, 'reminder', gen_random_uuid() FROM apps")
        .execute(&mut *elsewhere)
        .await
        .unwrap();
    let mut named = to(&ids[0]);
    named["key"] = json!("reminder");
    let slow =
        join_all([(Some("slow".to_owned()), to(&ids[0])), (None, named)].map(|(key, body)| post(&api, key, body)));
    let others = join_all((0..20).map(|n| post(&api, (n % 2 == 0).then(|| format!("k{n}")), to(&ids[0]))));
    tokio::pin!(slow);
    tokio::select! {
        replies = &mut slow => panic!("{replies:?}"),
        replies = others => assert!(replies.iter().all(|reply| reply.status == 202), "{replies:?}"),
    }
    let slow = slow.await;
    assert_eq!((slow[0].refusal().1, slow[1].status), ("idempotency_key_in_progress", 503));
    elsewhere.rollback().await.unwrap();
    assert_eq!(scalar(&api.pool, "SELECT count(*) FROM messages").await, 20);
    post(&api, Some("slow".to_owned()), to(&ids[0])).await.ok(202);
}

#[tokio::test]
async fn a_message_that_is_refused_fails_alone() {
    let api = TestApi::start().await;
    let ids = subscribers(&api, 2).await;
    sqlx::query("ALTER TABLE messages ADD CHECK (ttl_s <> 7)").execute(&api.pool).await.unwrap();
    let unknown = to("sub_019aa000-0000-7000-8000-000000000000");
    let impossible = json!({"to": {"subscriptions": [ids[0]]}, "content": content(), "ttl": 7});
    let replies =
        all_at_once(&api, vec![to(&ids[0]), unknown.clone(), to(&ids[1]), impossible, to(&ids[0]), unknown]).await;
    let status: Vec<_> = replies.iter().map(|reply| reply.status).collect();
    assert_eq!(status, [202, 422, 202, 500, 202, 422]);
    assert_eq!(replies[5].refusal(), (422, "invalid", vec!["/to/subscriptions/0"]));
    for table in ["SELECT count(*) FROM messages", "SELECT count(*) FROM queue", "SELECT count(*) FROM message_counts"]
    {
        assert_eq!(scalar(&api.pool, table).await, 3, "{table}");
    }
}

#[tokio::test]
async fn aborted_send_leaves_no_unsent_delivery() {
    let lease = Uuid::now_v7();
    let api = TestApi::with(ApiConfig::default(), Some(lease)).await;
    let ids = subscribers(&api, 1).await;
    let stalled = stall(&api.pool).await;
    // Two are being written when their clients hang up, and the third waits for its turn.
    for n in [1, 2] {
        tokio::select! {
            reply = api.post("/messages", to(&ids[0])) => panic!("{reply:?}"),
            () = until_waiting(&api.pool, n) => {}
        }
    }
    let third = tokio::time::timeout(Duration::ZERO, api.post("/messages", to(&ids[0])));
    third.await.expect_err("nothing can be written");
    stalled.rollback().await.unwrap();
    api.post("/messages", to(&ids[0])).await.ok(202);
    let mut born = 0;
    let told = async {
        while born < 3 {
            for work in api.told() {
                let Work::Born { lease: held, rows, .. } = work else { panic!("{work:?}") };
                assert_eq!(held, lease);
                born += rows.len();
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("dispatch is told of all that was stored");
    assert_eq!(scalar(&api.pool, "SELECT count(*) FROM queue WHERE lease IS NOT NULL").await, 3);
    assert_eq!(scalar(&api.pool, "SELECT count(*) FROM messages").await, 3, "the third was not begun");
}

#[tokio::test]
async fn aborted_idempotent_send_leaves_no_delivery() {
    let api = TestApi::with(ApiConfig::default(), Some(Uuid::now_v7())).await;
    let ids = subscribers(&api, 1).await;
    let stalled = stall(&api.pool).await;
    let headers = [("idempotency-key", "k")];
    let send = || api.call_with(Method::POST, "/v1/apps/shop/messages", Some(&api.key), Some(to(&ids[0])), &headers);
    tokio::select! {
        reply = send() => panic!("{reply:?}"),
        () = until_waiting(&api.pool, 1) => {}
    }
    stalled.rollback().await.unwrap();
    let again = send().await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (202, "true"));
    // The answer to the second may overtake what dispatch is told of the first.
    let told = async {
        loop {
            match &api.told()[..] {
                [] => tokio::task::yield_now().await,
                told => break assert!(matches!(told, [Work::Born { .. }]), "{told:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("dispatch is told of what was stored");
}

#[tokio::test]
async fn full_waiting_line_is_refused() {
    let api = TestApi::with(ApiConfig { sends_waiting_max: 2, ..ApiConfig::default() }, None).await;
    let ids = subscribers(&api, 1).await;
    let bodies = (0..5).map(|_| to(&ids[0])).collect();
    let replies = all_at_once(&api, bodies).await;
    let status: Vec<_> = replies.iter().map(|reply| reply.status).collect();
    assert_eq!(status, [202, 202, 503, 503, 503]);
    assert_eq!((replies[4].refusal().1, replies[4].header("retry-after")), ("too_many_messages", "1"));
    api.post("/messages", to(&ids[0])).await.ok(202);
    assert_eq!(scalar(&api.pool, "SELECT count(*) FROM messages").await, 3);
}

#[tokio::test]
async fn cached_key_is_refused_after_revocation() {
    let api = TestApi::start().await;
    let ask = async |key: &str| api.call(Method::GET, "/v1/apps/shop", Some(key), None).await;
    let mut keys = Vec::new();
    for _ in 0..2 {
        let made = api.post("/api-keys", json!({"name": "n", "scopes": ["read"]})).await.ok(201);
        let secret = made["secret"].as_str().unwrap().to_owned();
        ask(&secret).await.ok(200);
        keys.push((made["id"].as_str().unwrap().to_owned(), secret));
    }
    let path = format!("/v1/apps/shop/api-keys/{}", keys[0].0);
    api.call(Method::DELETE, &path, Some(&api.key), None).await.ok(200);
    assert_eq!(ask(&keys[0].1).await.status, 401);
    ask(&keys[1].1).await.ok(200);
    // What another process does is known here a second later.
    sqlx::query("UPDATE api_keys SET revoked_at = now() WHERE name = 'n'").execute(&api.pool).await.unwrap();
    api.clock.advance(Duration::from_millis(999));
    ask(&keys[1].1).await.ok(200);
    api.clock.advance(Duration::from_millis(1));
    assert_eq!(ask(&keys[1].1).await.status, 401);
}

#[tokio::test]
async fn cached_app_shows_changes_at_once() {
    let api = TestApi::start().await;
    assert_eq!(api.get("").await.ok(200)["name"], "shop");
    let change = Some(json!({"name": "Shop"}));
    api.call(Method::PATCH, "/v1/apps/shop", Some(&api.operator), change).await.ok(200);
    assert_eq!(api.get("").await.ok(200)["name"], "Shop");
    let by_operator = async || api.call(Method::GET, "/v1/apps/shop", Some(&api.operator), None).await.status;
    assert_eq!(by_operator().await, 200);
    api.call(Method::DELETE, "/v1/apps/shop?confirm=shop", Some(&api.operator), None).await.ok(202);
    assert_eq!((by_operator().await, api.get("").await.status), (404, 401));
}
