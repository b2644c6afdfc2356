//! Messages: whom they reach, what is stored, and that a request made twice is answered as it was the first time.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::api::{ApiConfig, Work};
use bellwire_core::id::MessageId;
use bellwire_core::message::Content;
use bellwire_store::operations::idempotency::{self, Claim};
use bellwire_vault::CONTENT;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::api::{TestApi, content, fcm, high_rate_limits};
use crate::support::json::assert_members;

async fn count(api: &TestApi, table: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"))).fetch_one(&api.pool).await.unwrap()
}

async fn subscribers(api: &TestApi, n: usize, more: Value) -> Vec<String> {
    let mut ids = Vec::new();
    for i in 0..n {
        let made = api.subscribe(&fcm(&format!("{}-{i}", Uuid::now_v7())), more.clone()).await;
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    ids
}

#[tokio::test]
async fn named_subscriptions_users_topics_and_everyone_are_reached() {
    let api = TestApi::start().await;
    let ann = subscribers(&api, 2, json!({"user_id": "ann", "topics": ["news"]})).await;
    let bob = subscribers(&api, 1, json!({"user_id": "bob"})).await;
    let gone = subscribers(&api, 1, json!({"user_id": "cid", "topics": ["news"]})).await;
    api.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", gone[0]), Some(&api.key), None).await.ok(204);
    let cases = [
        (json!({"subscriptions": [ann[0], gone[0], ann[0]]}), 1, 1),
        (json!({"users": ["ann", "ann", "cid", "nobody"]}), 2, 2),
        (json!({"topic": "news"}), 2, 0),
        (json!({"topic": "nobody-joined"}), 0, 0),
        (json!({"all": true}), 3, 0),
    ];
    for (to, reached, unreachable) in cases {
        let body = json!({"to": to, "content": content()});
        let dry = api.post("/messages?dry_run=true", body.clone()).await.ok(200);
        assert_eq!((&dry["audience_estimate"], &dry["unreachable"]), (&json!(reached), &json!(unreachable)), "{to}");
        let sent = api.post("/messages", body).await.ok(202);
        assert_eq!((&sent["audience_estimate"], &sent["unreachable"]), (&json!(reached), &json!(unreachable)), "{to}");
        assert_eq!(sent["state"], if reached > 0 { "sending" } else { "done" }, "{to}");
        let id = sent["id"].as_str().unwrap();
        let counts = api.counts(id).await;
        assert_eq!((&counts["targeted"], &counts["queued"]), (&json!(reached), &json!(reached)), "{to}");
        let shown = api.get(&format!("/messages/{id}")).await.ok(200);
        assert_eq!((&shown["to"], &shown["expanded"], &shown["state"]), (&to, &json!(true), &sent["state"]));
        assert_eq!(
            api.call(Method::GET, sent["links"]["self"].as_str().unwrap(), Some(&api.key), None).await.status,
            200
        );
    }
    assert_eq!(count(&api, "queue").await, 1 + 2 + 2 + 3);
    assert!(!bob.is_empty());
    let listed = api.get("/messages?limit=2").await.ok(200);
    assert_eq!((listed["data"].as_array().unwrap().len(), listed["done"].as_bool()), (2, Some(false)));
    assert!(api.told().iter().filter(|work| matches!(work, Work::Due)).count() == 5, "once for each that was stored");
}

#[tokio::test]
async fn large_audience_becomes_one_cursor_per_lane() {
    let api = TestApi::with(high_rate_limits(), None).await;
    subscribers(&api, 99, json!({"topics": ["news"]})).await;
    let mozilla = "https://updates.push.services.mozilla.com/wpush/v2";
    let first = api.subscribe(&format!("{mozilla}/0"), json!({"topics": ["news"]})).await;
    assert_eq!(first["gateway"], "mozilla");
    let body = json!({"to": {"topic": "news"}, "content": content()});
    let small = api.post("/messages", body.clone()).await.ok(202);
    assert_eq!(api.counts(small["id"].as_str().unwrap()).await["queued"], 100);
    assert_eq!(count(&api, "cursors").await, 0);
    api.subscribe(&format!("{mozilla}/1"), json!({"topics": ["news"]})).await;
    let large = api.post("/messages", body).await.ok(202);
    assert_eq!((&large["audience_estimate"], &large["state"]), (&json!(101), &json!("sending")));
    let shown = api.get(&format!("/messages/{}", large["id"].as_str().unwrap())).await.ok(200);
    assert_eq!((&shown["expanded"], &shown["counts"]["targeted"]), (&json!(false), &json!(0)));
    let cursors =
        sqlx::query_as::<_, (i16, bool)>("SELECT tier, topic IS NOT NULL FROM cursors").fetch_all(&api.pool).await;
    assert_eq!(cursors.unwrap(), [(2, true), (2, true)], "fcm and mozilla");
    let everyone = json!({"to": {"all": true}, "content": content()});
    api.post("/messages", everyone).await.ok(202);
    assert_eq!(count(&api, "cursors").await, 4);
}

#[tokio::test]
async fn what_is_stored_is_sealed_and_complete() {
    let api = TestApi::start().await;
    let to = subscribers(&api, 1, json!({})).await;
    let body = json!({"to": {"subscriptions": to}, "content": {"title": "Secret", "body": "words"}, "tier": "transactional",
        "collapse_key": "order-7", "policy": {"maxAttempts": 2}, "ttl": 0});
    let sent = api.post("/messages", body).await.ok(202);
    let shown = api.get(&format!("/messages/{}", sent["id"].as_str().unwrap())).await.ok(200);
    assert_eq!(
        (&shown["ttl"], &shown["urgency"], &shown["tier"]),
        (&json!(0), &json!("high"), &json!("transactional"))
    );
    assert_eq!((shown["topic_header"].as_str().unwrap().len(), &shown["policy"]), (32, &json!({"maxAttempts": 2})));
    assert_eq!(shown["expires_at"], shown["accepted_at"]);
    let (id, sealed) =
        sqlx::query_as::<_, (Uuid, Vec<u8>)>("SELECT id, content FROM messages").fetch_one(&api.pool).await.unwrap();
    assert!(!sealed.windows(6).any(|window| window == b"Secret"));
    let content: Content = serde_json::from_slice(&api.vault.open(CONTENT, id, &sealed).unwrap()).unwrap();
    assert!(matches!(content, Content::Notification { content, .. } if content.title == "Secret"));
    let (seconds, _) = id.get_timestamp().unwrap().to_unix();
    assert_eq!(i64::try_from(seconds).unwrap(), api.clock.now().timestamp(), "history is partitioned by this");
    let defaults = json!({"to": {"subscriptions": to}, "payload": {"base64": "AAEC"}, "envelope": false});
    let sent = api.post("/messages", defaults).await.ok(202);
    let shown = api.get(&format!("/messages/{}", sent["id"].as_str().unwrap())).await.ok(200);
    assert_eq!(
        (&shown["ttl"], &shown["urgency"], &shown["tier"]),
        (&json!(86_400), &json!("normal"), &json!("promotional"))
    );
}

#[tokio::test]
async fn single_send_is_born_leased_with_room() {
    let lease = Uuid::now_v7();
    let api = TestApi::with(ApiConfig::default(), Some(lease)).await;
    let to = subscribers(&api, 2, json!({})).await;
    let sent = api.post("/messages", json!({"to": {"subscriptions": [to[0]]}, "content": content()})).await.ok(202);
    let told = api.told();
    let [Work::Born { lease: held, rows: born, .. }] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*held, born.len()), (lease, 1));
    assert_eq!(born[0].row.recipient.subscription.to_string(), to[0]);
    assert_eq!(born[0].row.message.to_string(), sent["id"].as_str().unwrap());
    let subscription = born[0].row.recipient.subscription;
    let address = api.vault.open(bellwire_vault::ADDRESS, subscription.0, &born[0].row.recipient.address).unwrap();
    assert!(address[81..].starts_with(b"https://fcm.googleapis.com/"));
    let counts = api.counts(sent["id"].as_str().unwrap()).await;
    assert_eq!((&counts["dispatching"], &counts["queued"]), (&json!(1), &json!(0)));
    let delivery = api.get(&format!("/messages/{}/deliveries/{}", sent["id"].as_str().unwrap(), to[0])).await.ok(200);
    assert_eq!(delivery["state"], "dispatching");
}

#[tokio::test]
async fn few_recipients_are_born_leased_by_any_address() {
    let api = TestApi::with(ApiConfig::default(), Some(Uuid::now_v7())).await;
    let ann = subscribers(&api, 2, json!({"user_id": "ann"})).await;
    let ben = subscribers(&api, 3, json!({"user_id": "ben"})).await;
    subscribers(&api, 1, json!({"user_id": "cid", "topics": ["news"]})).await;
    let (four, five) = ([&ann[..], &ben[..2]].concat(), [&ann[..], &ben[..]].concat());
    for (to, n, more) in [
        (json!({"users": ["ann"]}), 2, json!({})),
        (json!({"users": ["ann", "cid", "nobody"]}), 3, json!({})),
        (json!({"subscriptions": four}), 4, json!({})),
        (json!({"subscriptions": five}), 0, json!({})),
        (json!({"users": ["ann", "ben"]}), 0, json!({})),
        (json!({"topic": "news"}), 0, json!({})),
        (json!({"users": ["ann"]}), 0, json!({"tier": "promotional"})),
        (json!({"users": ["ann"]}), 0, json!({"send_at": (api.clock.now() + Duration::from_secs(60)).to_rfc3339()})),
    ] {
        let mut body = json!({"to": to, "tier": "transactional", "content": content()});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let sent = api.post("/messages", body).await.ok(202);
        let (told, mut born) = (api.told(), 0);
        for work in &told {
            let Work::Born { rows, .. } = work else { continue };
            assert!(
                rows.iter()
                    .all(|born| born.row.message.to_string() == sent["id"] && !born.row.recipient.address.is_empty())
            );
            born += rows.len();
        }
        assert_eq!((born, told.len()), (n, 1), "{to}");
        assert_eq!(api.counts(sent["id"].as_str().unwrap()).await["dispatching"], n, "{to}");
    }
}

#[tokio::test]
async fn only_reachable_recipients_are_born() {
    let api = TestApi::with(ApiConfig::default(), Some(Uuid::now_v7())).await;
    let ids = subscribers(&api, 3, json!({"user_id": "ann"})).await;
    sqlx::query("UPDATE subscriptions SET expires_at = $1 WHERE id = (SELECT max(id::text)::uuid FROM subscriptions)")
        .bind(api.clock.now())
        .execute(&api.pool)
        .await
        .unwrap();
    for to in [json!({"users": ["ann"]}), json!({"subscriptions": ids})] {
        let sent =
            api.post("/messages", json!({"to": to, "tier": "transactional", "content": content()})).await.ok(202);
        assert_eq!((&sent["audience_estimate"], &sent["unreachable"]), (&json!(2), &json!(1)), "{to}");
        let told = api.told();
        assert!(matches!(&told[..], [Work::Born { rows, .. }] if rows.len() == 2), "{told:?}");
        assert_eq!(api.counts(sent["id"].as_str().unwrap()).await["dispatching"], 2);
    }
    let unknown = "sub_019aa000-0000-7000-8000-000000000000";
    let to = json!({"subscriptions": [&ids[0], unknown]});
    api.post("/messages", json!({"to": to, "content": content()})).await.ok(422);
    assert!(api.told().is_empty(), "nothing of it is born");
}

#[tokio::test]
async fn repeated_request_gets_the_first_response() {
    let api = TestApi::start().await;
    let to = subscribers(&api, 1, json!({})).await;
    let body = json!({"to": {"subscriptions": to}, "content": content()});
    let send = async |key: &str, body: &Value| {
        let headers = [("idempotency-key", key)];
        api.call_with(Method::POST, "/v1/apps/shop/messages", Some(&api.key), Some(body.clone()), &headers).await
    };
    let first = send("k1", &body).await;
    assert_eq!(first.header("idempotent-replayed"), "");
    let again = send("k1", &body).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (202, "true"));
    assert_eq!(again.json, first.json);
    let other = send("k1", &json!({"to": {"all": true}, "content": content()})).await;
    assert_eq!(other.refusal(), (422, "idempotency_key_reused", vec![]));
    assert_ne!(send("k2", &body).await.ok(202)["id"], first.json["id"]);

    let at_once = futures_util::future::join_all((0..8).map(|_| send("k3", &body))).await;
    assert_eq!(at_once.iter().filter(|reply| reply.header("idempotent-replayed").is_empty()).count(), 1);
    assert!(at_once.iter().all(|reply| reply.status == 202 && reply.json["id"] == at_once[0].json["id"]));
    assert_eq!(count(&api, "messages").await, 3);

    // A first request that takes too long: the second waits for a while, then is told to come again.
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, body.to_string().as_bytes());
    let slow = api.keyed_request("POST /v1/apps/{app}/messages", "slow", &[hash.as_ref()]).await;
    let mut tx = api.pool.begin().await.unwrap();
    let claimed = idempotency::claim(&mut tx, &[&slow], Duration::from_secs(1), api.clock.now()).await.unwrap();
    assert!(matches!(claimed.unwrap()[..], [Claim::First]));
    let waited = send("slow", &body).await;
    assert_eq!((waited.refusal(), waited.header("retry-after")), ((409, "idempotency_key_in_progress", vec![]), "1"));
    idempotency::store(&mut tx, &api.vault, &[(&slow, r#"{"id":"the first one's"}"#)], 202).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(send("slow", &body).await.ok(202)["id"], "the first one's");

    let unknown = json!({"to": {"subscriptions": ["sub_019aa000-0000-7000-8000-000000000000"]}, "content": content()});
    assert_eq!(send("k4", &unknown).await.status, 422);
    assert_eq!(send("k4", &body).await.status, 202, "what was refused used up no key");
}

#[tokio::test]
async fn account_adds_up_over_all_records() {
    let api = TestApi::start().await;
    let to = subscribers(&api, 4, json!({})).await;
    let body = json!({"to": {"subscriptions": to}, "content": content(), "ttl": 60});
    let message = api.post("/messages", body).await.ok(202)["id"].as_str().unwrap().to_owned();
    let id = message.parse::<MessageId>().unwrap().0;
    // What a worker would have written: two rows became a page, one was accepted, one waits for a retry.
    for statement in [
        "DELETE FROM queue WHERE message = $1 AND subscription <> (SELECT min(subscription::text)::uuid FROM queue WHERE message = $1)",
        "UPDATE queue SET retries = 2 WHERE message = $1",
        "INSERT INTO batches (id, message, lane, tier, recipients, lease, due_at)
         SELECT gen_random_uuid(), $1, 1, 2, (array_agg(id))[1:2], gen_random_uuid(), now() FROM subscriptions",
        "UPDATE message_counts SET accepted = 1 WHERE message = $1",
        "INSERT INTO receipt_counts (message, acknowledged, displayed, clicked) VALUES ($1, 1, 1, 1)",
    ] {
        sqlx::query(statement).bind(id).execute(&api.pool).await.unwrap();
    }
    let counts = api.counts(&message).await;
    assert_members(&counts, json!({"targeted": 4, "dispatching": 2, "retrying": 1, "accepted": 1, "queued": 0}));
    let reported = json!({"acknowledged": 1, "awaiting_ack": 0, "displayed": 1, "clicked": 1, "closed": 0});
    assert_members(&counts, reported);
    sqlx::query("DELETE FROM receipt_counts WHERE message = $1").bind(id).execute(&api.pool).await.unwrap();
    assert_eq!(api.counts(&message).await["awaiting_ack"], 1);
    api.clock.advance(Duration::from_secs(60));
    assert_eq!(api.counts(&message).await["unconfirmed"], 1, "derived once it has expired, never swept");
}
