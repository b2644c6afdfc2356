//! Pause, resume and cancel: both expansion and dispatch, at once, and the account adds up.

use axum::http::Method;
use bellwire::testkit::api::Work;
use bellwire_core::id::{MessageId, SubscriptionId};
use bellwire_store::queue::stops::StopKind;
use bellwire_store::{ChunkProgress, keys::audit, queue::steering};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::api::{TestApi, content, fcm, high_rate_limits, registration};

async fn sent(api: &TestApi, n: usize) -> String {
    let mut ids = Vec::new();
    for i in 0..n {
        ids.push(api.subscribe(&fcm(&i.to_string()), json!({})).await["id"].clone());
    }
    api.post("/messages", json!({"to": {"subscriptions": ids}, "content": content()})).await.ok(202)["id"]
        .as_str()
        .unwrap()
        .into()
}

fn uuid(message: &str) -> Uuid {
    message.parse::<MessageId>().unwrap().0
}

async fn due(api: &TestApi, table: &str) -> Vec<bool> {
    let query = format!("SELECT due_at <= $1 FROM {table}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(query)).bind(api.clock.now()).fetch_all(&api.pool).await.unwrap()
}

/// A cursor, as if the message were still being expanded.
async fn add_cursor(api: &TestApi, message: &str) {
    let insert = "INSERT INTO cursors SELECT $1, id, 2, NULL, '00000000-0000-0000-0000-000000000000', $2 FROM lanes";
    sqlx::query(insert).bind(uuid(message)).bind(api.clock.now()).execute(&api.pool).await.unwrap();
}

/// Puts one row of the message under a lease for a minute.
async fn lease_one(api: &TestApi, message: &str) -> SubscriptionId {
    let update = "UPDATE queue SET lease = gen_random_uuid(), leases = 1, due_at = $2 WHERE subscription =
        (SELECT subscription FROM queue WHERE message = $1 LIMIT 1) RETURNING subscription";
    let until = api.clock.now() + chrono::TimeDelta::minutes(1);
    SubscriptionId(sqlx::query_scalar(update).bind(uuid(message)).bind(until).fetch_one(&api.pool).await.unwrap())
}

fn kinds(told: &[Work]) -> Vec<StopKind> {
    told.iter().filter_map(|work| if let Work::Stop(stop) = work { Some(stop.kind) } else { None }).collect()
}

#[tokio::test]
async fn paused_message_waits_until_resumed() {
    let api = TestApi::start().await;
    let message = sent(&api, 3).await;
    add_cursor(&api, &message).await;
    let held = lease_one(&api, &message).await;
    api.told();
    for _ in 0..2 {
        assert_eq!(api.post(&format!("/messages/{message}/pause"), json!({})).await.ok(200)["state"], "paused");
    }
    assert_eq!(kinds(&api.told()), [StopKind::Pause], "said once");
    assert_eq!(due(&api, "cursors").await, [false]);
    assert_eq!(due(&api, "queue").await, [false; 3]);
    let counts = api.counts(&message).await;
    assert_eq!((&counts["queued"], &counts["dispatching"]), (&json!(2), &json!(1)), "a lease is left to its worker");
    let deliveries = api.get(&format!("/messages/{message}/deliveries")).await.ok(200);
    let parked = |row: &&Value| row["state"] == "queued" && row["due_at"].is_null();
    assert_eq!(deliveries["data"].as_array().unwrap().iter().filter(parked).count(), 2);
    let refused = api.post(&format!("/messages/{message}/deliveries/{held}/retry"), json!({})).await;
    assert_eq!(refused.refusal(), (409, "delivery_not_waiting", vec![]));

    api.clock.advance(std::time::Duration::from_secs(120));
    assert_eq!(api.post(&format!("/messages/{message}/resume"), json!({})).await.ok(200)["state"], "sending");
    assert_eq!(kinds(&api.told()), [StopKind::Resume]);
    assert_eq!(due(&api, "cursors").await, [true]);
    assert_eq!(due(&api, "queue").await, [true; 3]);
    let stops = sqlx::query_scalar::<_, String>("SELECT kind FROM stops ORDER BY seq").fetch_all(&api.pool).await;
    assert_eq!(stops.unwrap(), ["pause", "resume"]);
}

#[tokio::test]
async fn cancelled_message_ends_except_leased_deliveries() {
    let api = TestApi::start().await;
    let message = sent(&api, 3).await;
    add_cursor(&api, &message).await;
    let held = lease_one(&api, &message).await;
    api.told();
    let cancelled = api.post(&format!("/messages/{message}/cancel"), json!({})).await.ok(200);
    assert_eq!((&cancelled["state"], &cancelled["expanded"]), (&json!("cancelled"), &json!(true)));
    assert_eq!(kinds(&api.told()), [StopKind::Cancel]);
    let counts = api.counts(&message).await;
    assert_eq!((&counts["cancelled"], &counts["dispatching"]), (&json!(2), &json!(1)));
    let noted = sqlx::query_scalar::<_, i64>("SELECT n FROM rollup_notes WHERE fact = 6").fetch_all(&api.pool).await;
    assert_eq!(noted.unwrap(), [2]);
    for turn in ["pause", "resume"] {
        let reply = api.post(&format!("/messages/{message}/{turn}"), json!({})).await;
        assert_eq!(reply.refusal(), (409, "message_cancelled", vec![]));
    }
    assert_eq!(api.post(&format!("/messages/{message}/cancel"), json!({})).await.status, 200, "again");
    assert_eq!(api.post(&format!("/messages/{message}/deliveries/{held}/cancel"), json!({})).await.status, 409);
}

#[tokio::test]
async fn finished_or_missing_message_cannot_be_steered() {
    let api = TestApi::start().await;
    let nobody = json!({"to": {"topic": "nobody"}, "content": content()});
    let done = api.post("/messages", nobody).await.ok(202)["id"].as_str().unwrap().to_owned();
    let (_, stranger) = api.make_app("other").await;
    let running = sent(&api, 1).await;
    for turn in ["pause", "cancel"] {
        assert_eq!(
            api.post(&format!("/messages/{done}/{turn}"), json!({})).await.refusal(),
            (409, "message_done", vec![])
        );
        let path = format!("/v1/apps/other/messages/{running}/{turn}");
        assert_eq!(api.call(Method::POST, &path, Some(&stranger), None).await.status, 404, "another app's message");
    }
    let path = format!("/v1/apps/other/messages/{running}/deliveries");
    assert_eq!(api.call(Method::GET, &path, Some(&stranger), None).await.status, 404);
    assert_eq!(api.counts(&running).await["queued"], 1);
}

#[tokio::test]
async fn a_long_queue_is_turned_in_chunks() {
    let api = TestApi::start().await;
    let message = sent(&api, 1).await;
    let insert = "INSERT INTO queue (shard, subscription, message, lane, tier, due_at, scheduled_at, token)
        SELECT get_byte(uuid_send(id), 15) & 63, id, $1, 1, 2, $2, $2, '' FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, 24999)) s";
    sqlx::query(insert).bind(uuid(&message)).bind(api.clock.now()).execute(&api.pool).await.unwrap();
    let raise = "UPDATE message_counts SET targeted = 25000";
    sqlx::query(raise).execute(&api.pool).await.unwrap();
    let (app, id, now) = (api.app_id(), message.parse().unwrap(), api.clock.now());
    let entry = audit::AuditEntry::new(audit::Actor::LOCAL, Some(app), audit::AuditAction::MessagePaused, id);
    let first = steering::steer(&api.pool, app, id, steering::MessageOrder::Pause, &entry, now).await.unwrap();
    assert!(matches!(first, steering::Steered::Now { progress: ChunkProgress::More, .. }), "{first:?}");
    assert_eq!(due(&api, "queue").await.iter().filter(|due| !**due).count(), 10_000);
    assert_eq!(steering::go_on(&api.pool, id, now).await.unwrap(), ChunkProgress::More);
    assert_eq!(steering::go_on(&api.pool, id, now).await.unwrap(), ChunkProgress::Done);
    assert!(due(&api, "queue").await.iter().all(|due| !due));
    // A cancel comes while everything is parked: it takes the chunks from there.
    let cancel = steering::steer(&api.pool, app, id, steering::MessageOrder::Cancel, &entry, now).await.unwrap();
    assert!(matches!(cancel, steering::Steered::Now { progress: ChunkProgress::More, .. }), "{cancel:?}");
    assert_eq!(api.counts(&message).await["cancelled"], 10_000);
    while steering::go_on(&api.pool, id, now).await.unwrap() == ChunkProgress::More {}
    assert_eq!(api.counts(&message).await["cancelled"], 25_000);
}

#[tokio::test]
async fn single_deliveries_are_hurried_cancelled_and_listed() {
    let api = TestApi::start().await;
    let message = sent(&api, 5).await;
    let later = "UPDATE queue SET retries = 1, due_at = due_at + interval '1 hour'";
    sqlx::query(later).execute(&api.pool).await.unwrap();
    let mut seen = Vec::new();
    let mut iterator = String::new();
    loop {
        let page = api.get(&format!("/messages/{message}/deliveries?limit=2{iterator}")).await.ok(200);
        for row in page["data"].as_array().unwrap() {
            assert_eq!(row["state"], "retrying");
            seen.push(row["subscription"].as_str().unwrap().to_owned());
        }
        match page["iterator"].as_str() {
            Some(next) => iterator = format!("&iterator={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 5);
    let path = format!("/messages/{message}/deliveries/{}", seen[0]);
    let hurried = api.post(&format!("{path}/retry"), json!({})).await.ok(202);
    assert_eq!(hurried["due_at"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap(), api.clock.now());
    let cancelled = api.post(&format!("{path}/cancel"), json!({})).await.ok(200);
    assert_eq!((&cancelled["state"], &cancelled["attempts"][0]["attempt"]), (&json!("cancelled"), &json!(1)));
    let again = api.post(&format!("{path}/cancel"), json!({})).await;
    assert_eq!(again.refusal(), (409, "delivery_not_waiting", vec![]));
    let counts = api.counts(&message).await;
    assert_eq!((&counts["retrying"], &counts["cancelled"]), (&json!(4), &json!(1)));
}

#[tokio::test]
async fn everything_at_once_neither_deadlocks_nor_loses_count() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let endpoints: Vec<_> =
        (0..4).map(|n| registration(&fcm(&n.to_string()), json!({"user_id": "u", "topics": ["t"]}))).collect();
    for body in &endpoints {
        api.post("/subscriptions", body.clone()).await.ok(201);
    }
    let ids: Vec<String> = api.get("/subscriptions").await.ok(200)["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["id"].as_str().unwrap().to_owned())
        .collect();
    let step = async |n: usize| {
        let (id, body) = (&ids[n % 4], &endpoints[n / 4 % 4]);
        let to = [json!({"users": ["u"]}), json!({"topic": "t"}), json!({"subscriptions": ids})][n % 3].clone();
        match n % 5 {
            0 => api.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{id}"), Some(&api.key), None).await,
            1 => api.post("/subscriptions", body.clone()).await,
            2 => {
                let mut body = body.clone();
                body["replaces"] = json!({"id": id});
                api.post("/subscriptions", body).await
            }
            _ => {
                let reply = api.post("/messages", json!({"to": to, "content": content()})).await;
                let message = reply.json["id"].as_str().unwrap_or_default().to_owned();
                if n.is_multiple_of(2) {
                    api.post(&format!("/messages/{message}/cancel"), json!({})).await
                } else {
                    reply
                }
            }
        }
    };
    let replies = futures_util::future::join_all((0..120).map(step)).await;
    assert!(replies.iter().all(|reply| reply.status < 500), "{:?}", replies.iter().find(|reply| reply.status >= 500));
    for message in api.get("/messages?limit=250").await.ok(200)["data"].as_array().unwrap() {
        api.counts(message["id"].as_str().unwrap()).await;
    }
}
