//! Claims: no lane waits for another lane, in any state of the latter.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::delivery::Tier;
use bellwire_core::id::LaneId;
use bellwire_simulator::gateways::{Rule, RuleAction, SimulatorReport};
use bellwire_store as store;
use bellwire_store::queue::claims::{self, DueSpan, LEASE};
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::support::app::{PATIENCE, Subscriber, scalar};
use crate::support::simulator_rules::until_report;
use crate::support::{TestApp, counts, seed};

/// Subscribers with a VAPID key each, and so in as many lanes.
async fn in_lanes_of_their_own(app: &TestApp, n: u32) -> Vec<Subscriber> {
    let mut subscribers = Vec::new();
    for index in 0..n {
        let key = app.call(Method::POST, "/v1/apps/shop/vapid-keys", json!({})).await.ok(201);
        let public = bellwire_core::base64url::decode_any(key["public_key"].as_str().unwrap()).unwrap();
        subscribers.extend(app.subscribe_by(&public, "fcm", index..index + 1, json!({})).await);
    }
    subscribers
}

async fn flow(app: &TestApp, turn: &str) {
    app.call(Method::POST, &format!("/v1/apps/shop/flow/{turn}"), Value::Null).await.ok(200);
}

fn accepted(n: u64) -> impl Fn(&SimulatorReport) -> bool {
    move |report| report.accepted == n
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_lanes_block_no_other_lane() {
    let app = TestApp::start().await;
    let subscribers = in_lanes_of_their_own(&app, 301).await;
    let spoil = "UPDATE vapid_keys v SET private_key = '\\x00' FROM lanes l WHERE l.vapid_key = v.id AND l.id = 7";
    sqlx::query("CREATE TABLE kept AS SELECT id, private_key FROM vapid_keys").execute(&app.pool).await.unwrap();
    sqlx::query(spoil).execute(&app.pool).await.unwrap();
    flow(&app, "pause").await;
    let mut messages = Vec::new();
    for some in subscribers[..300].chunks(100) {
        let ids: Vec<_> = some.iter().map(|subscriber| &subscriber.id).collect();
        messages.push(app.send(json!({"subscriptions": ids}), json!({"ttl": 86_400})).await);
    }
    let to = json!({"subscriptions": [subscribers[300].id]});
    let code = app.send(to, json!({"tier": "transactional", "ttl": 86_400})).await;
    app.run_until_idle().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM queue WHERE lease IS NULL").await, 301);
    sqlx::query("UPDATE queue SET leases = 32767 WHERE lane = 40").execute(&app.pool).await.unwrap();
    flow(&app, "resume").await;
    until_report(&app, accepted(299)).await;
    assert_eq!(app.delivery(&code, &subscribers[300].id).await["state"], "accepted");

    // Both are found again, once they can be sent.
    sqlx::query("UPDATE queue SET leases = 1 WHERE lane = 40").execute(&app.pool).await.unwrap();
    until_report(&app, accepted(300)).await;
    let mend = "UPDATE vapid_keys v SET private_key = k.private_key FROM kept k WHERE k.id = v.id";
    sqlx::query(mend).execute(&app.pool).await.unwrap();
    app.run_until_idle().await;
    for message in messages {
        assert_eq!(app.counts(&message).await, counts(&[("targeted", 100), ("accepted", 100), ("awaiting_ack", 100)]));
    }
    let report = app.simulator.report();
    assert_eq!((report.accepted, report.requests), (301, 301));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_campaign_claims_do_not_delay_codes() {
    const HANG: &str = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '/* insert_batch */%'";
    let app = TestApp::start().await;
    for gateway in ["fcm", "mozilla", "apple"] {
        seed(&app, gateway, 0..101).await;
    }
    let own = in_lanes_of_their_own(&app, 1).await.remove(0);
    let lane = scalar(&app.pool, "SELECT max(lane)::bigint FROM subscriptions").await;
    let order = async |order: &str, body: Value| {
        app.operate(Method::POST, &format!("/v1/gateways/{lane}/{order}"), body).await.ok(200);
    };
    order("hold", json!({"seconds": 3_600})).await;
    let code = app.send(json!({"subscriptions": [own.id]}), json!({"tier": "transactional", "ttl": 3_600})).await;
    app.run_until_idle().await;
    let put_off = "SELECT count(*) FROM queue WHERE due_at > scheduled_at";
    assert_eq!(scalar(&app.pool, put_off).await, 1, "it waits in the database, where it has to be found");

    let kept_back = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    let mut hang = app.pool.begin().await.unwrap();
    let campaigns = [
        app.send(json!({"all": true}), json!({"tier": "promotional"})).await,
        app.send(json!({"all": true}), json!({"tier": "engagement"})).await,
    ];
    // Taking a batch writes there.
    sqlx::query("LOCK TABLE message_counts IN EXCLUSIVE MODE").execute(&mut *hang).await.unwrap();
    let hanging = tokio::time::timeout(PATIENCE, async {
        while scalar(&app.pool, HANG).await < 2 {
            app.dispatcher.kick();
            tokio::task::yield_now().await;
        }
    });
    hanging.await.expect("claims of campaigns");
    app.simulator.remove_rule(kept_back);
    app.clock.advance(Duration::from_secs(1));
    order("release", Value::Null).await;
    let arrived = tokio::time::timeout(PATIENCE, async {
        while app.simulator.received(&own.endpoint).unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    });
    arrived.await.expect("the code");
    let beaten = tokio::time::timeout(PATIENCE, async {
        while scalar(&app.pool, "SELECT count(*) FROM workers WHERE beat_at >= to_timestamp(1800000001)").await == 0 {
            tokio::task::yield_now().await;
        }
    });
    beaten.await.expect("a heartbeat");
    assert!(app.dispatcher.is_ready(), "it has heard of the last stops");
    assert!(scalar(&app.pool, HANG).await >= 2, "all of this while claims hang");
    hang.rollback().await.unwrap();
    app.run_until_idle().await;
    assert_eq!(app.counts(&code).await, counts(&[("targeted", 1), ("accepted", 1), ("awaiting_ack", 1)]));
    for campaign in campaigns {
        assert_eq!(app.message(&campaign).await["counts"]["accepted"], 304);
    }
    app.finish().await;
}

/// Entries read so far of the index for claims of queue rows.
async fn entries_read(pool: &PgPool) -> i64 {
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(pool).await.unwrap();
    scalar(pool, "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'queue_due'").await
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_skips_dead_rows_of_long_snapshots() {
    const DEAD: i64 = 500;
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    flow(&app, "pause").await;
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({"ttl": 86_400})).await;
    app.run_until_idle().await;
    // A backup has no time-out.
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL idle_in_transaction_session_timeout = 0";
    let mut backup = app.pool.begin_with(begin).await.unwrap();
    sqlx::query("SELECT FROM queue").execute(&mut *backup).await.unwrap();
    let churn = "DO $$ BEGIN FOR n IN 1..500 LOOP
        UPDATE queue SET due_at = to_timestamp(1799990000) + n * interval '1 ms', lease = NULL, leases = 0; END LOOP; END $$";
    // Statistics are told by the session that made them: so one has to do everything.
    let pool = store::connect(store::by_index_only(app.database.options()), 1).await.unwrap();
    let (lane, now) = (LaneId(1), app.clock.now());
    let claim = async |span: DueSpan| {
        let before = entries_read(&pool).await;
        let claimed = claims::claim_rows(&pool, span, 500, app.clock.uuid(), now + LEASE).await.unwrap();
        assert_eq!(claimed.len(), 1);
        entries_read(&pool).await - before
    };
    sqlx::query(churn).execute(&app.pool).await.unwrap();
    assert!(claim(DueSpan::all(lane, Tier::Promotional, now)).await >= DEAD, "they are there");
    sqlx::query(churn).execute(&app.pool).await.unwrap();
    let [due] = claims::due_lanes(&pool, now).await.unwrap()[..] else { panic!("one lane has something due") };
    let since = due.sources.queue.expect("in the queue");
    let walked = claim(DueSpan { lane: due.lane, tier: due.tier, since, now }).await;
    assert!(walked < 10, "{walked}");

    // What falls due before is what the next look finds first.
    sqlx::query("UPDATE queue SET due_at = to_timestamp(1799980000), lease = NULL, leases = 0")
        .execute(&app.pool)
        .await
        .unwrap();
    let found = claims::due_lanes(&pool, now).await.unwrap()[0].sources.queue.expect("in the queue");
    assert!(found < since);
    backup.rollback().await.unwrap();
    pool.close().await;
    flow(&app, "resume").await;
    app.run_until_idle().await;
    assert_eq!(app.delivery(&message, &subscriber.id).await["state"], "accepted");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_of_unknown_tier_blocks_no_work() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    sqlx::query(
        "INSERT INTO queue (shard, subscription, message, lane, tier, due_at, scheduled_at, token)
         SELECT shard, id, id, lane, 9, 'epoch', 'epoch', '' FROM subscriptions",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], 1);
    let kept = scalar(&app.pool, "SELECT count(*) FROM queue WHERE tier = 9 AND lease IS NULL").await;
    assert_eq!(kept, 1, "nobody has touched it");
    app.finish().await;
}
