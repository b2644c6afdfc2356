//! A worker that lost its lease, or has an unknown commit result, writes nothing twice and repeats nothing.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::clock::Clock;
use bellwire_core::delivery::Tier;
use bellwire_core::hook::WebhookKinds;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::outcomes::ledger::{self, Attempt, Delivery, End, Fate, MessageOrigin, RowSettlement, Settlement};
use bellwire_store::queue::claims::{self, ClaimedRow, DueSpan, LEASE, TakeBatchResult};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::app::{PATIENCE, scalar};
use crate::support::batches::{AFTER_LEASE, BATCH_SIZE, SETTLE_BATCH, all_accepted, single_batch};
use crate::support::simulator_rules::{held, until_report};
use crate::support::{Moment, START, Setup, TestApp, counts, seed, seed_together};

/// Statement that settles rows.
const SETTLE_ROWS: &str = "/* settle_rows */";
/// Statement that reads messages for sending.
const LOAD_MESSAGES: &str = "/* load_messages */";
/// Statement that reads active recipients before an old delivery is signed again.
const READ_ACTIVE: &str = "/* read_active */";
/// Statement that reads an app's settings for a tier.
const LOAD_CONDITIONS: &str = "/* load_conditions */";

/// A batch whose settling loses its connection at the commit.
async fn lose_the_commit_of_a_batch(moment: Moment) -> (TestApp, u64) {
    let app = TestApp::with(Setup { through_proxy: true, dispatch: single_batch(), ..Setup::default() }).await;
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    seed_together(&app, "fcm", 0..BATCH_SIZE).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| held(report) == 31).await;
    app.proxy().cut_at_commit_of(moment, SETTLE_BATCH);
    app.simulator.remove_rule(hold);
    app.run_until_idle().await;
    assert_eq!(app.proxy().sprung(), 1);
    assert_eq!(app.metrics.settle_retries.get(), 1);
    app.advance(AFTER_LEASE).await;
    assert_eq!(app.counts(&message).await, all_accepted());
    assert_eq!(app.simulator.report().requests, u64::from(BATCH_SIZE), "nothing was sent again");
    let fenced = app.metrics.settle_fenced.get();
    (app, fenced)
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_with_lost_commit_is_settled_again() {
    let (app, fenced) = lose_the_commit_of_a_batch(Moment::Before).await;
    assert_eq!(fenced, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_with_unconfirmed_commit_counts_once() {
    let (app, fenced) = lose_the_commit_of_a_batch(Moment::After).await;
    assert_eq!(fenced, u64::from(BATCH_SIZE), "the second try found the batch settled");
    app.finish().await;
}

/// A single send whose settling loses its connection where it is committed. Returns how many settlings were fenced out.
async fn lose_the_settling_of_a_row(moment: Moment, action: RuleAction, state: &str) -> u64 {
    let app = TestApp::with(Setup { through_proxy: true, ..Setup::default() }).await;
    app.simulator.add_rule(Rule::always(action)).unwrap();
    let subscriber = &app.subscribe("wns", 0..1).await[0];
    // The first acceptance is settled with more than one statement. On plain Postgres any other one is a transaction by itself.
    sqlx::query("UPDATE subscriptions SET proven = true").execute(&app.pool).await.unwrap();
    app.proxy().cut_at_commit_of(moment, SETTLE_ROWS);
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({"tier": "transactional"})).await;
    app.run_until_idle().await;
    assert_eq!((app.proxy().sprung(), app.metrics.settle_retries.get()), (1, 1));
    app.advance(AFTER_LEASE).await;
    assert_eq!(app.delivery(&message, &subscriber.id).await["state"], state);
    assert_eq!(app.simulator.report().requests, 1, "nothing was sent again");
    let fenced = app.metrics.settle_fenced.get();
    app.finish().await;
    fenced
}

#[tokio::test(flavor = "multi_thread")]
async fn row_with_lost_settlement_is_settled_again() {
    assert_eq!(lose_the_settling_of_a_row(Moment::Before, RuleAction::Behave, "accepted").await, 0);
    assert_eq!(lose_the_settling_of_a_row(Moment::Before, RuleAction::Gone, "gone").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_with_unconfirmed_settlement_counts_once() {
    assert_eq!(lose_the_settling_of_a_row(Moment::After, RuleAction::Behave, "accepted").await, 1);
    assert_eq!(lose_the_settling_of_a_row(Moment::After, RuleAction::Gone, "gone").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusing_postgres_costs_no_delivery() {
    let app = TestApp::with(Setup { through_proxy: true, ..Setup::default() }).await;
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    seed(&app, "apple", 0..BATCH_SIZE).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| held(report) == 31).await;
    app.proxy().refuse(true);
    app.proxy().cut();
    app.simulator.remove_rule(hold);
    // The lane goes on with what it has in memory until the stops that it read are a second old.
    until_report(&app, |report| report.accepted >= 31).await;
    let away = async {
        let mut tries = 10;
        app.proxy().until_refused(tries).await;
        while app.dispatcher.is_ready() {
            tries += 1;
            app.proxy().until_refused(tries).await;
        }
    };
    timeout(PATIENCE, away).await.expect("the engine tries again, and takes no more work");
    app.proxy().refuse(false);
    let idle = async { while app.dispatcher.run_until_idle().await.is_err() {} };
    timeout(PATIENCE, idle).await.expect("the engine recovers");
    app.advance(AFTER_LEASE).await;
    assert_eq!(app.counts(&message).await, all_accepted());
    assert_eq!(app.simulator.report().requests, u64::from(BATCH_SIZE), "nothing was sent again");
    assert!(app.metrics.settle_retries.get() > 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_claim_is_released_at_once() {
    for read in [LOAD_MESSAGES, LOAD_CONDITIONS] {
        let app = TestApp::with(Setup { through_proxy: true, dispatch: single_batch(), ..Setup::default() }).await;
        app.subscribe("fcm", 0..BATCH_SIZE).await;
        app.proxy().cut_at(Moment::Before, read);
        let message = app.send(json!({"all": true}), json!({"tier": "transactional"})).await;
        app.run_until_idle().await;
        assert_eq!(app.proxy().sprung(), 1);
        assert_eq!(app.counts(&message).await, all_accepted());
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsignable_claim_is_released_at_once() {
    let app = TestApp::with(Setup { through_proxy: true, ..Setup::default() }).await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let steer = async |turn: &str| {
        app.call(Method::POST, &format!("/v1/apps/shop/flow/{turn}"), Value::Null).await.ok(200);
    };
    steer("pause").await;
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({"ttl": 86_400})).await;
    app.advance(Duration::from_secs(3_600)).await;
    app.proxy().cut_at(Moment::Before, READ_ACTIVE);
    steer("resume").await;
    app.run_until_idle().await;
    assert_eq!(app.proxy().sprung(), 1);
    assert_eq!(app.counts(&message).await["accepted"], 1, "it waits for no lease to run out");
    app.finish().await;
}

/// Runs on one thread, so that both messages are in one group: otherwise the first would have loaded the app's settings for their tier.
#[tokio::test]
async fn refused_message_delays_no_neighbour() {
    let app = TestApp::with(Setup { through_proxy: true, ..Setup::default() }).await;
    let to = |id: &str| json!({"to": {"subscriptions": [id]}, "tier": "transactional", "content": {"title": "A code"}});
    let unknown = SubscriptionId(uuid::Uuid::from_u128(1)).to_string();
    let batch = json!({"messages": [to(&unknown), to(&app.subscribe("fcm", 0..1).await[0].id)]});
    app.proxy().cut_at(Moment::Before, LOAD_CONDITIONS);
    let sent = app.call(Method::POST, "/v1/apps/shop/messages/batch", batch).await.ok(200);
    assert_eq!((&sent["refused"], &sent["accepted"]), (&json!(1), &json!(1)), "{sent}");
    app.run_until_idle().await;
    assert_eq!(app.proxy().sprung(), 1, "it is given back, and read again");
    let message = sent["results"][1]["message"]["id"].as_str().unwrap_or_else(|| panic!("{sent}"));
    assert_eq!(app.counts(message).await["accepted"], 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn future_message_is_neither_read_nor_claimed() {
    let app = TestApp::with(Setup { through_proxy: true, ..Setup::default() }).await;
    let browsers = app.subscribe_with("fcm", 0..2, json!({"user_id": "ann"})).await;
    let (one, ann) = (json!({"subscriptions": [browsers[0].id]}), json!({"users": ["ann"]}));
    for (to, n) in [(one, 1), (ann, 2)] {
        for read in [LOAD_MESSAGES, LOAD_CONDITIONS] {
            app.proxy().cut_at(Moment::Before, read);
            let message = app.send(to.clone(), json!({"tier": "transactional"})).await;
            app.run_until_idle().await;
            assert_eq!((app.counts(&message).await["accepted"], app.proxy().sprung()), (n, 0), "{to} {read}");
        }
    }
    assert_eq!(app.metrics.claims.get(), 0);
    app.finish().await;
}

/// The deliveries in flight of one engine are taken over with its lease by another engine, whose clock is ahead. Then both get their
/// responses. Returns the message id.
async fn take_over(app: &TestApp, to: Value, n: u64) -> String {
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    let message = app.send(to, json!({"tier": "transactional"})).await;
    let at_once = n.min(32);
    until_report(app, |report| held(report) == at_once).await;
    let other = app.worker(Clock::stub(START + AFTER_LEASE)).await;
    until_report(app, |report| held(report) == 2 * at_once).await;
    app.simulator.remove_rule(hold);
    app.run_until_idle_with(&other).await;
    assert_eq!((app.metrics.settle_fenced.get(), other.metrics.settle_fenced.get()), (n, 0));
    let report = app.simulator.report();
    assert_eq!((report.deliveries, report.duplicates), (n, n), "every repeat carries the same id");
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_over_batch_is_settled_by_new_holder() {
    let app = TestApp::with(Setup { dispatch: single_batch(), ..Setup::default() }).await;
    seed_together(&app, "fcm", 0..BATCH_SIZE).await;
    let message = take_over(&app, json!({"all": true}), BATCH_SIZE.into()).await;
    assert_eq!(app.counts(&message).await, all_accepted());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_over_row_is_settled_by_new_holder() {
    let app = TestApp::start().await;
    let subscriber = &app.subscribe("other", 0..1).await[0];
    let message = take_over(&app, json!({"subscriptions": [subscriber.id]}), 1).await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("accepted", 1), ("awaiting_ack", 1)]));
    let delivery = app.delivery(&message, &subscriber.id).await;
    assert_eq!(delivery["attempts"].as_array().map(Vec::len), Some(1), "{delivery}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_leased_three_times_is_sent_singly() {
    let app = TestApp::start().await;
    app.dispatcher.stop(Duration::ZERO).await;
    seed_together(&app, "apple", 0..BATCH_SIZE).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    let lane = LaneId(i32::try_from(scalar(&app.pool, "SELECT lane::bigint FROM cursors").await).unwrap());
    // Two workers that die of it.
    let (pool, tier, now) = (&app.pool, Tier::Promotional, app.clock.now());
    let cut =
        claims::take_batch(pool, DueSpan::all(lane, tier, now), 200, app.clock.uuid(), now + LEASE).await.unwrap();
    assert!(matches!(cut, TakeBatchResult::Batch(batch) if batch.leases == 1));
    app.clock.advance(AFTER_LEASE);
    let now = app.clock.now();
    let leased = claims::lease_lost_batch(pool, DueSpan::all(lane, tier, now), &[], app.clock.uuid(), now + LEASE)
        .await
        .unwrap();
    assert_eq!(leased.map(|batch| batch.leases), Some(2));
    assert_eq!(
        app.counts(&message).await,
        counts(&[("targeted", BATCH_SIZE.into()), ("dispatching", BATCH_SIZE.into())])
    );

    app.clock.advance(AFTER_LEASE);
    let worker = app.worker(app.clock.clone()).await;
    worker.run_until_idle().await;
    assert_eq!(
        (worker.metrics.claims.get(), worker.metrics.batches_taken.get()),
        (BATCH_SIZE.into(), 0),
        "each of them as a row"
    );
    assert_eq!(app.counts(&message).await, all_accepted());
    assert_eq!(app.simulator.report().requests, u64::from(BATCH_SIZE));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_leased_five_times_ends_dead() {
    let app = TestApp::start().await;
    app.dispatcher.stop(Duration::ZERO).await;
    let subscriber = &app.subscribe("apple", 0..1).await[0];
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
    let lane = LaneId(i32::try_from(scalar(&app.pool, "SELECT lane::bigint FROM queue").await).unwrap());
    for leases in 1..=4 {
        let (now, lease) = (app.clock.now(), app.clock.uuid());
        let rows = claims::claim_rows(&app.pool, DueSpan::all(lane, Tier::Promotional, now), 10, lease, now + LEASE)
            .await
            .unwrap();
        assert_eq!(rows.iter().map(|row| row.leases).collect::<Vec<_>>(), [leases]);
        app.clock.advance(AFTER_LEASE);
    }
    app.worker(app.clock.clone()).await.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("dead", 1)]));
    let buried = "SELECT count(*) FROM dead_letters WHERE reason = 'lease_exhausted'";
    assert_eq!((scalar(&app.pool, buried).await, app.simulator.report().requests), (1, 0));
    app.finish().await;
}

/// A batch was lost `lost` times. A queue row waits for one of its recipients, handed on by a subscription that the recipient replaced.
async fn meet_what_was_handed_on(lost: usize) {
    let app = TestApp::start().await;
    app.dispatcher.stop(Duration::ZERO).await;
    seed_together(&app, "apple", 0..BATCH_SIZE).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    let (pool, tier) = (&app.pool, Tier::Promotional);
    let lane = LaneId(i32::try_from(scalar(pool, "SELECT lane::bigint FROM cursors").await).unwrap());
    let due = |now| (DueSpan::all(lane, tier, now), now + LEASE);
    let (span, until) = due(app.clock.now());
    claims::take_batch(pool, span, 200, app.clock.uuid(), until).await.unwrap();
    for _ in 1..lost {
        app.clock.advance(AFTER_LEASE);
        let (span, until) = due(app.clock.now());
        claims::lease_lost_batch(pool, span, &[], app.clock.uuid(), until).await.unwrap();
    }
    let handed_on = "WITH counted AS (UPDATE message_counts SET targeted = targeted + 1)
        INSERT INTO queue (shard, subscription, message, lane, tier, due_at, scheduled_at, token)
        SELECT get_byte(uuid_send(id), 15) & 63, id, message, lane, tier, 'infinity', 'epoch', ''
        FROM (SELECT unnest(recipients) AS id, message, lane, tier FROM batches LIMIT 1) p";
    sqlx::query(handed_on).execute(pool).await.unwrap();
    let unavailable = RuleAction::Answer { status: 503, headers: Default::default(), body: String::new() };
    let rule = app.simulator.add_rule(Rule::always(unavailable)).unwrap();
    app.clock.advance(AFTER_LEASE);
    let worker = app.worker(app.clock.clone()).await;
    worker.run_until_idle().await;
    assert_eq!(app.counts(&message).await["targeted"], i64::from(BATCH_SIZE), "{lost}");
    assert_eq!(scalar(pool, "SELECT count(*) FROM queue").await, i64::from(BATCH_SIZE), "each waits once");
    if lost == 1 {
        // The row that was handed on knew nothing of the attempt, and would have looked replayed.
        app.simulator.remove_rule(rule);
        app.clock.advance(Duration::from_secs(60));
        worker.run_until_idle().await;
        assert_eq!(app.counts(&message).await["accepted"], i64::from(BATCH_SIZE));
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_settles_although_a_row_was_handed_on() {
    meet_what_was_handed_on(1).await;
    meet_what_was_handed_on(2).await;
}

/// A batch is settled when the attempt of one of its recipients is already logged, by a queue row handed on to that recipient. In the
/// batch, the POST results in `action`.
async fn settle_beside_what_is_logged(action: RuleAction) {
    let app = TestApp::with(Setup { dispatch: single_batch(), ..Setup::default() }).await;
    let to: SubscriptionId = seed_together(&app, "fcm", 0..BATCH_SIZE).await[5].id.parse().unwrap();
    for (index, action) in [(5, action), (7, RuleAction::Gone)] {
        app.simulator.add_rule(Rule { endpoints: Some([index].into()), ..Rule::always(action) }).unwrap();
    }
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| held(report) >= 30).await;
    let logged =
        "INSERT INTO attempts (message, subscription, attempt, shard, at, ending) VALUES ($1, $2, 0, $3, $4, 1)";
    let (id, now) = (message.parse::<MessageId>().unwrap(), app.clock.now());
    sqlx::query(logged).bind(id.0).bind(to.0).bind(to.shard()).bind(now).execute(&app.pool).await.unwrap();
    for counted in [
        "UPDATE message_counts SET targeted = targeted + 1, accepted = accepted + 1",
        "INSERT INTO rollup_notes (minute, lane, tier, message, fact, n) SELECT 'epoch', lane, tier, message, 1, 1 FROM batches",
    ] {
        sqlx::query(counted).execute(&app.pool).await.unwrap();
    }
    app.simulator.remove_rule(hold);
    app.run_until_idle().await;
    let (n, reached) = (i64::from(BATCH_SIZE), i64::from(BATCH_SIZE) - 1);
    let end = counts(&[("targeted", n), ("accepted", reached), ("awaiting_ack", reached), ("gone", 1)]);
    assert_eq!(app.counts(&message).await, end, "nothing waits for a lease to run out");
    app.advance(AFTER_LEASE).await;
    assert_eq!((app.counts(&message).await, app.simulator.report().requests), (end, u64::from(BATCH_SIZE)));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logged_attempt_does_not_block_batch_settling() {
    settle_beside_what_is_logged(RuleAction::Behave).await;
    settle_beside_what_is_logged(RuleAction::Answer { status: 503, headers: Vec::new(), body: String::new() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_settled_under_two_leases_counts_once() {
    let app = TestApp::start().await;
    app.dispatcher.stop(Duration::ZERO).await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let lane = LaneId(i32::try_from(app.lane("fcm").await).unwrap());
    // For any result of the worker that lost its lease.
    let attempt = |at| Attempt { number: 0, at, status: None, took_ms: Some(1), reason: None };
    for lost in [
        Fate::Ended(attempt(app.clock.now()), End::Accepted),
        Fate::Ended(attempt(app.clock.now()), End::Gone),
        Fate::Retry { failed: attempt(app.clock.now()), retries: 1, due: app.clock.now() },
    ] {
        let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({"ttl": 3_600})).await;
        let mut rows = Vec::new();
        for fate in [lost, Fate::Ended(attempt(app.clock.now()), End::Accepted)] {
            let (lease, now) = (app.clock.uuid(), app.clock.now());
            let claimed =
                claims::claim_rows(&app.pool, DueSpan::all(lane, Tier::Promotional, now), 9, lease, now + LEASE)
                    .await
                    .unwrap();
            assert_eq!(claimed.len(), 1);
            rows.push(RowSettlement { lease, settlement: settlement(&app, lane, &claimed[0], fate).await });
            app.clock.advance(AFTER_LEASE);
        }
        assert_eq!(
            ledger::settle_rows(&app.pool, &app.vault, &rows, app.clock.now()).await.unwrap(),
            1,
            "one is fenced out"
        );
        assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("accepted", 1), ("awaiting_ack", 1)]));
        assert_eq!(scalar(&app.pool, "SELECT count(*) FROM dead_letters").await, 0);
    }
    app.finish().await;
}

/// Settlement of a delivery to a new subscription.
async fn settlement(app: &TestApp, lane: LaneId, row: &ClaimedRow, fate: Fate) -> Settlement {
    let delivery = Delivery {
        subscription: row.recipient.subscription,
        message: row.message,
        app: AppId(sqlx::query_scalar("SELECT id FROM apps").fetch_one(&app.pool).await.unwrap()),
        lane,
        tier: Tier::Promotional,
        life: row.recipient.life,
        proven: false,
        origin: MessageOrigin {
            free_at: app.clock.now(),
            enveloped: true,
            charted: false,
            heard: WebhookKinds::default(),
        },
        sla: None,
    };
    Settlement::new(delivery, fate)
}
