//! Everything goes when its time is over, and nothing before.

use std::time::Duration;

use axum::http::Method;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::app::{DAY, Subscriber, scalar};
use crate::support::{TestApp, note};

const ROLLUP_OF_A_MINUTE: &str = "INSERT INTO rollups (step, message, lane, start, tier, gateway, facts, ns)
    VALUES (1, '00000000-0000-0000-0000-000000000000', 1, $1, 1, 'fcm', '{1}', '{1}')";
const ROLLUP_OF_AN_HOUR: &str = "INSERT INTO rollups (step, message, lane, start, tier, gateway, facts, ns)
    VALUES (2, '00000000-0000-0000-0000-000000000000', 1, $1, 1, 'fcm', '{1}', '{1}')";
const ROLLUP_OF_A_DAY: &str = "INSERT INTO rollups (step, message, lane, start, tier, gateway, facts, ns)
    VALUES (3, '00000000-0000-0000-0000-000000000000', 1, $1, 1, 'fcm', '{1}', '{1}')";

const PERSON: &str = "INSERT INTO habits (app, shard, person, noted_at, unclicked, recent, hours)
    SELECT id, 3, gen_random_uuid(), $1, 0, '', decode(repeat('00', 24), 'hex') FROM apps";
const TOLD: &str =
    "WITH w AS (INSERT INTO webhooks (id, app, name, url, events, heard, max_events, state, heard_from, secret,
      breaker_at, created_at, changed_at, created_by)
    SELECT gen_random_uuid(), id, 'w', '', '{delivery.gone}', 0, 1, 'active', $1, '', $1, $1, $1, 'local' FROM apps RETURNING id)
    INSERT INTO webhook_deliveries (id, webhook, state, events, subscriptions, due_at, created_at, ended_at)
    SELECT gen_random_uuid(), id, 'delivered', 1, '{}', $1, $1, $1 FROM w";
const NOT_TAKEN: &str =
    "INSERT INTO webhook_deliveries (id, webhook, state, events, body, subscriptions, due_at, created_at, ended_at)
    SELECT gen_random_uuid(), id, 'failed', 1, '', '{}', $1, $1, $1 FROM webhooks";

async fn count(app: &TestApp, table: &str) -> i64 {
    let counted = format!("SELECT count(*) FROM {table}");
    sqlx::query_scalar(AssertSqlSafe(counted)).fetch_one(&app.pool).await.unwrap()
}

/// Lets contents go: they are seen to have ended, and have had their grace.
async fn end_contents(app: &TestApp) {
    for _ in 0..3 {
        app.clock.advance(Duration::from_secs(301));
        app.sweep().await;
    }
}

async fn refusal(app: &TestApp, path: &str) -> String {
    let refused = app.call(Method::GET, path, Value::Null).await.ok(404);
    refused["detail"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_messages_go_with_their_history() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let to = json!({"subscriptions": [subscriber.id]});
    let old = app.send(to.clone(), json!({})).await;
    app.run_until_idle().await;
    sqlx::query("INSERT INTO receipt_counts (message) SELECT id FROM messages").execute(&app.pool).await.unwrap();
    end_contents(&app).await;

    app.clock.advance(DAY * 35);
    app.keep_house().await;
    assert_eq!((count(&app, "messages").await, count(&app, "attempts").await), (1, 1), "its day is not past yet");
    app.clock.advance(DAY);
    let recent = app.send(to, json!({})).await;
    app.run_until_idle().await;
    app.keep_house().await;
    for table in ["messages", "message_counts", "attempts"] {
        assert_eq!(count(&app, table).await, 1, "{table}");
    }
    assert_eq!(count(&app, "receipt_counts").await, 0);
    assert_eq!(app.counts(&recent).await["accepted"], 1);
    let words = refusal(&app, &format!("/v1/apps/shop/messages/{old}")).await;
    assert!(words.contains("kept for 35 days"), "{words}");
    let words = refusal(&app, &format!("/v1/apps/shop/messages/{old}/deliveries")).await;
    assert!(words.contains("kept for 35 days"), "{words}");
    let made_up = recent.replace(&recent[recent.len() - 4..], "0000");
    let words = refusal(&app, &format!("/v1/apps/shop/messages/{made_up}")).await;
    assert_eq!(words, "There is no such message.", "nobody says that it was");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn message_stays_for_its_open_letter() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let refusing = RuleAction::Answer { status: 400, headers: Vec::new(), body: String::new() };
    app.simulator.add_rule(Rule::always(refusing)).unwrap();
    app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
    app.run_until_idle().await;
    // The archive of this server is kept for longer than its history.
    let kept =
        bellwire::testkit::server::maintenance::Retention { archive: DAY * 60, ..crate::support::app::RETENTION };
    let keep = async || {
        end_contents(&app).await;
        bellwire::testkit::server::maintenance::keep_house(&app.pool, app.clock.now(), kept).await.unwrap();
    };
    app.clock.advance(DAY * 40);
    keep().await;
    assert_eq!((count(&app, "messages").await, count(&app, "dead_letters").await), (1, 1));
    app.clock.advance(DAY * 21);
    keep().await;
    assert_eq!((count(&app, "messages").await, count(&app, "dead_letters").await), (1, 0));
    app.clock.advance(DAY);
    keep().await;
    assert_eq!(count(&app, "messages").await, 0, "its letter is gone, and its content after it");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_subscriptions_expire_active_ones_stay() {
    let app = TestApp::start().await;
    let mut subscribers = app.subscribe_with("fcm", 0..6, json!({"topics": ["news"]})).await;
    let end = async |subscriber: &Subscriber, state: &'static str| {
        let id: bellwire_core::id::SubscriptionId = subscriber.id.parse().unwrap();
        sqlx::query("UPDATE subscriptions SET state = $2, ended_at = $3 WHERE id = $1")
            .bind(id.0)
            .bind(state)
            .bind(app.clock.now())
            .execute(&app.pool)
            .await
            .unwrap();
    };
    for state in ["gone", "unsubscribed", "replaced", "expired", "suspended"] {
        end(&subscribers.remove(0), state).await;
    }
    let lane = i32::try_from(app.lane("fcm").await).unwrap();
    note(&mut app.pool.acquire().await.unwrap(), lane, -5, app.clock.now()).await;
    app.clock.advance(DAY * 90);
    app.keep_house().await;
    assert_eq!(count(&app, "subscriptions").await, 6);
    app.clock.advance(Duration::from_secs(1));
    app.keep_house().await;
    assert_eq!(count(&app, "subscriptions").await, 2, "one lives, one is only suspended");
    assert_eq!(count(&app, "topic_members").await, 2);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_things_go_too_each_in_its_time() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    // (table, how long its rows are kept, a row of the present)
    let hour = Duration::from_secs(3_600);
    let tables = [
        ("stops", hour, "INSERT INTO stops (at, kind, target) VALUES ($1, 'cancel', gen_random_uuid())"),
        ("throttles", hour, "INSERT INTO throttles (shard, subscription, next_at) VALUES (3, gen_random_uuid(), $1)"),
        (
            "idempotency_keys",
            DAY * 2,
            "INSERT INTO idempotency_keys (app, id, fingerprint, status, response, created_at)
             SELECT id, gen_random_uuid(), sha256(''), 202, '', $1 FROM apps",
        ),
        (
            "reliability_counts",
            DAY * 2,
            "INSERT INTO reliability_counts (minute, lane, tier, metric, n) VALUES ($1, 1, 1, 1, 1)",
        ),
        // So that the first step of a range is whole: it may begin an hour or a day before the range.
        ("rollups", DAY * 2 + hour, ROLLUP_OF_A_MINUTE),
        ("rollups", DAY * 91, ROLLUP_OF_AN_HOUR),
        ("rollups", DAY * 1_826, ROLLUP_OF_A_DAY),
        ("habits", DAY * 400, PERSON),
        ("webhook_deliveries", DAY * 3, TOLD),
        ("webhook_deliveries", DAY * 30, NOT_TAKEN),
        (
            "gone_suspects",
            DAY,
            "INSERT INTO gone_suspects (subscription, lane, first_at) VALUES (gen_random_uuid(), 1, $1)",
        ),
        (
            "diagnoses",
            DAY * 7,
            "INSERT INTO diagnoses (app, code, subscription, created_at) SELECT id, 'ABCDEFGH', gen_random_uuid(), $1 FROM apps",
        ),
        ("breaker_trips", DAY * 2, "INSERT INTO breaker_trips (minute, lane, n) VALUES ($1, 1, 1)"),
        (
            "alerts",
            DAY * 30,
            "INSERT INTO alerts (id, kind, subject, detail, first_at, last_at, resolved_at)
             VALUES (gen_random_uuid(), 'sli', $1::text, 'd', $1, $1, $1)",
        ),
        (
            "erasures",
            DAY * 30,
            "INSERT INTO erasures (id, app, actor, requested_at, completed_at)
             SELECT '00000000-0000-7000-8000-000000000000', id, 'local', $1, $1 FROM apps",
        ),
    ];
    sqlx::query(
        "INSERT INTO alerts (id, kind, subject, detail, first_at, last_at) VALUES (gen_random_uuid(), 'sli', 's', 'd', $1, $1)",
    )
    .bind(app.clock.now())
    .execute(&app.pool)
    .await
    .unwrap();
    for (table, kept, insert) in tables {
        sqlx::query(AssertSqlSafe(insert)).bind(app.clock.now()).execute(&app.pool).await.unwrap();
        let open = i64::from(table == "alerts");
        app.clock.advance(kept);
        app.keep_house().await;
        assert_eq!(count(&app, table).await, 1 + open, "{table} after {kept:?}");
        app.clock.advance(Duration::from_secs(1));
        app.keep_house().await;
        assert_eq!(count(&app, table).await, open, "{table} after {kept:?} and a second");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_works_in_chunks_around_held_rows() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    let now = app.clock.now();
    let ids: Vec<_> = (0..5_000).map(|_| bellwire_core::clock::uuid_of(now)).collect();
    sqlx::query(
        "INSERT INTO messages (id, app, tier, state, audience, content, ttl_s, urgency, audience_estimate, accepted_at, expires_at)
         SELECT t.id, a.id, 2, 'sending', '{\"all\": true}', CASE WHEN t.n % 1000 = 0 THEN '\\x00'::bytea END, 0, 1, 1, $2, $2
         FROM apps a, unnest($1::uuid[]) WITH ORDINALITY AS t (id, n)",
    )
    .bind(&ids)
    .bind(now)
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::query("INSERT INTO message_counts (message, lane) SELECT id, 1 FROM messages")
        .execute(&app.pool)
        .await
        .unwrap();
    app.clock.advance(DAY * 37);
    app.keep_house().await;
    assert_eq!((count(&app, "messages").await, count(&app, "message_counts").await), (5, 5), "those with content stay");
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM messages WHERE content IS NULL").await, 0);
    app.finish().await;
}
