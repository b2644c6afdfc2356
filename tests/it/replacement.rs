//! A browser with a new endpoint: messages for the old one reach the new one, once, in any state of the delivery.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::Method;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{LaneId, SubscriptionId};
use bellwire_core::lane::Gateway;
use bellwire_dispatch::DispatchConfig;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::queue::claims::{self, DueSpan, LEASE, TakeBatchResult};
use serde_json::{Value, json};

use crate::support::app::{Setup, Subscriber, TestApp, scalar, until_waiting};
use crate::support::citus::cluster;
use crate::support::engine::{claim_and_crash, until_changes_read};
use crate::support::push_service::{Browser, PushService};
use crate::support::simulator_rules::{IN_FLIGHT, hold_all, release_until_idle};
use crate::support::{counts, seed_together};

fn one_batch() -> DispatchConfig {
    DispatchConfig { batch_min: 200, batch_max: 200, ..DispatchConfig::default() }
}

/// A browser with a new endpoint takes the place of that subscription.
async fn replace(app: &TestApp, old: &Subscriber, index: u32) -> Subscriber {
    app.subscribe_with("fcm", index..index + 1, json!({"replaces": {"id": old.id}})).await.remove(0)
}

fn received(app: &TestApp, subscriber: &Subscriber) -> usize {
    app.simulator.received(&subscriber.endpoint).unwrap().len()
}

/// Exactly that status.
fn answer(status: u16) -> RuleAction {
    RuleAction::Answer { status, headers: Vec::new(), body: String::new() }
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_follows_the_replacement_out_of_batches() {
    let app = TestApp::with(Setup { dispatch: one_batch(), ..Setup::default() }).await;
    let old = seed_together(&app, "fcm", 0..120).await;
    let later = Rule { endpoints: Some([5].into()), ..Rule::always(answer(503)) };
    app.simulator.add_rule(later).unwrap();
    let rule = hold_all(&app);
    let message = app.send(json!({"all": true}), json!({})).await;
    app.until_held(rule, IN_FLIGHT).await;
    let new = replace(&app, &old[5], 500).await;
    release_until_idle(&app, rule).await;
    assert_eq!(app.counts(&message).await["retrying"], 1);
    app.advance(Duration::from_secs(60)).await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 120), ("accepted", 120), ("awaiting_ack", 120)]));
    let delivery = app.delivery(&message, &new.id).await;
    assert_eq!((&delivery["state"], &delivery["attempts"][0]["attempt"]), (&json!("accepted"), &json!(1)));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_endpoint_gets_no_late_push() {
    let app = TestApp::with(Setup { dispatch: one_batch(), ..Setup::default() }).await;
    let all = app.subscribe("fcm", 0..120).await;
    // The one that the campaign comes to last: on Citus shards follow one another, elsewhere ids do.
    let shard = |it: &&Subscriber| it.id.parse::<SubscriptionId>().expect("an id").shard();
    let old = if cluster().is_some() { all.iter().max_by_key(shard).expect("some") } else { &all[119] };
    let rule = hold_all(&app);
    let campaign = app.send(json!({"all": true}), json!({})).await;
    app.until_held(rule, IN_FLIGHT).await;
    let mut single = Vec::new();
    for _ in 0..5 {
        single.push(app.send(json!({"subscriptions": [old.id]}), json!({})).await);
    }
    let new = replace(&app, old, 500).await;
    until_changes_read(&app).await;
    release_until_idle(&app, rule).await;
    assert_eq!((received(&app, old), received(&app, &new)), (0, 6));
    assert_eq!(app.counts(&campaign).await, counts(&[("targeted", 120), ("accepted", 120), ("awaiting_ack", 120)]));
    for message in &single {
        assert_eq!(app.delivery(message, &new.id).await["state"], "accepted");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gone_replaced_endpoint_loses_nothing() {
    let service = PushService::start(&[("fcm.wire.test", Gateway::Fcm)]).await;
    let others = (service.hosts.clone(), service.ca_pem.clone());
    let app = TestApp::with(Setup { others, ..Setup::default() }).await;
    let [first, second] = ["first", "second"].map(|name| Browser::new("fcm.wire.test", name));
    let register = async |browser: &Browser, more: Value| {
        let mut body = json!({"subscription": browser.to_json()});
        body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        app.call(Method::POST, "/v1/apps/shop/subscriptions", body).await.ok(201)["id"].clone()
    };
    let old = register(&first, json!({})).await;
    service.hold(true);
    service.answer_next(&[410]);
    let message = app.send(json!({"subscriptions": [old]}), json!({"tier": "transactional"})).await;
    service.until_pushed(1).await;
    let new = register(&second, json!({"replaces": {"id": old}})).await;
    until_changes_read(&app).await;
    service.hold(false);
    app.advance(Duration::from_secs(1)).await;
    assert_eq!((service.pushed_to(&first).len(), service.pushed_to(&second).len()), (1, 1));
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("accepted", 1), ("awaiting_ack", 1)]));
    assert_eq!(app.delivery(&message, new.as_str().unwrap()).await["state"], "accepted");
    app.finish().await;
}

/// Sends to an endpoint that answers 410. Its replacement commits after that answer and before the settling of it, so the worker cannot
/// have read of it. Of `subscribers`, the first is replaced.
async fn replaced_before_gone_is_settled(subscribers: u32, to_all: bool) {
    let app = TestApp::with(Setup { dispatch: one_batch(), ..Setup::default() }).await;
    let old = seed_together(&app, "fcm", 0..subscribers).await;
    app.simulator.add_rule(Rule { endpoints: Some([0].into()), ..Rule::always(answer(410)) }).unwrap();
    let mut gate = app.pool.begin().await.unwrap();
    let locked = "SELECT id FROM subscriptions WHERE shard = $1 AND id = $2 FOR UPDATE";
    let id: SubscriptionId = old[0].id.parse().unwrap();
    sqlx::query(locked).bind(id.shard()).bind(id.0).execute(&mut *gate).await.unwrap();
    let answered = async {
        until_waiting(&app.pool, 1).await;
        let to = if to_all { json!({"all": true}) } else { json!({"subscriptions": [old[0].id]}) };
        let message = app.send(to, json!({})).await;
        until_waiting(&app.pool, 2).await;
        gate.commit().await.unwrap();
        message
    };
    let (new, message) = tokio::join!(replace(&app, &old[0], 500), answered);
    app.run_until_idle().await;
    app.advance(Duration::from_secs(1)).await;
    let n = i64::from(subscribers);
    assert_eq!(app.counts(&message).await, counts(&[("targeted", n), ("accepted", n), ("awaiting_ack", n)]));
    let delivery = app.delivery(&message, &new.id).await;
    assert_eq!((&delivery["state"], &delivery["attempts"][0]["attempt"]), (&json!("accepted"), &json!(1)));
    // The delivery keeps its id, so the simulator lists it where it came first. That endpoint never accepts.
    let received = app.simulator.received(&old[0].endpoint).unwrap();
    let statuses: Vec<_> = received.iter().flat_map(|it| &it.attempts).map(|attempt| attempt.status).collect();
    assert_eq!(statuses, [Some(410), Some(201)]);
    let pruned = "SELECT count(*) FROM subscriptions WHERE state = 'gone'";
    assert_eq!(scalar(&app.pool, pruned).await, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gone_row_goes_to_an_unread_successor() {
    replaced_before_gone_is_settled(1, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gone_in_batch_goes_to_unread_successor() {
    replaced_before_gone_is_settled(120, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_in_flight_ends_by_its_response() {
    let app = TestApp::start().await;
    let old = app.subscribe("fcm", 0..1).await.remove(0);
    let rule = hold_all(&app);
    let message = app.send(json!({"subscriptions": [old.id]}), json!({})).await;
    app.until_held(rule, 1).await;
    let new = replace(&app, &old, 1).await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("dispatching", 1)]));
    release_until_idle(&app, rule).await;
    assert_eq!((received(&app, &old), received(&app, &new)), (1, 0));
    assert_eq!(app.delivery(&message, &old.id).await["state"], "accepted");
    assert_eq!(app.metrics.settle_fenced.get(), 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn send_during_replacement_is_signed_for_successor() {
    let app = TestApp::start().await;
    app.dispatcher.stop(Duration::ZERO).await; // so that rows wait
    let old = app.subscribe("fcm", 0..1).await.remove(0);
    let before = app.send(json!({"subscriptions": [old.id]}), json!({})).await;
    // The replacement waits for this row; meanwhile another one comes.
    let mut blocker = app.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM queue FOR UPDATE").execute(&mut *blocker).await.unwrap();
    let replacing = replace(&app, &old, 1);
    let meanwhile = async {
        until_waiting(&app.pool, 1).await;
        let message = app.send(json!({"subscriptions": [old.id]}), json!({})).await;
        blocker.commit().await.unwrap();
        message
    };
    let (new, between) = tokio::join!(replacing, meanwhile);
    app.worker(app.clock.clone()).await.run_until_idle().await;
    for message in [&before, &between] {
        assert_eq!(app.counts(message).await, counts(&[("targeted", 1), ("accepted", 1), ("awaiting_ack", 1)]));
    }
    assert_eq!((received(&app, &old), received(&app, &new)), (0, 2));
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM dead_letters").await, 0, "nobody forged anything");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_workers_rows_reach_the_last_successor() {
    let app = TestApp::start().await;
    app.dispatcher.stop(Duration::ZERO).await;
    let all = app.subscribe("fcm", 0..120).await;
    let single = app.send(json!({"subscriptions": [all[0].id]}), json!({})).await;
    let campaign = app.send(json!({"all": true}), json!({})).await;
    claim_and_crash(&app, Tier::Promotional).await;
    let next = replace(&app, &all[0], 500).await;
    let last = replace(&app, &next, 501).await;
    app.clock.advance(LEASE + Duration::from_secs(1));
    app.worker(app.clock.clone()).await.run_until_idle().await;
    let end = |n: i64| counts(&[("targeted", n), ("accepted", n), ("awaiting_ack", n)]);
    assert_eq!((app.counts(&single).await, app.counts(&campaign).await), (end(1), end(120)));
    assert_eq!([&all[0], &next, &last].map(|subscriber| received(&app, subscriber)), [0, 0, 2]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_or_foreign_successor_inherits_nothing() {
    let app = TestApp::start().await;
    app.dispatcher.stop(Duration::ZERO).await;
    let all = app.subscribe_with("fcm", 0..2, json!({"user_id": "ann"})).await;
    let to_ann = app.send(json!({"users": ["ann"]}), json!({})).await;
    claim_and_crash(&app, Tier::Promotional).await;
    let ended = replace(&app, &all[0], 500).await;
    app.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", ended.id), Value::Null).await.ok(204);
    assert_eq!(app.come_back("fcm", 500).await, ended.id);
    let bobs = json!({"replaces": {"id": all[1].id}, "user_id": "bob"});
    let bobs = app.subscribe_with("fcm", 501..502, bobs).await.remove(0);
    app.clock.advance(LEASE + Duration::from_secs(1));
    app.worker(app.clock.clone()).await.run_until_idle().await;
    assert_eq!(app.counts(&to_ann).await, counts(&[("targeted", 2), ("cancelled", 2)]));
    assert_eq!([&ended, &bobs].map(|subscriber| received(&app, subscriber)), [0, 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn returned_browser_keeps_its_topics() {
    let app = TestApp::start().await;
    let all = app.subscribe_with("fcm", 0..4, json!({"topics": ["news", "sport"]})).await;
    app.simulator.add_rule(Rule { count: Some(3), ..Rule::always(answer(410)) }).unwrap();
    let ids: Vec<_> = all[..3].iter().map(|subscriber| &subscriber.id).collect();
    app.send(json!({"subscriptions": ids}), json!({})).await;
    app.run_until_idle().await;
    let members = async || app.get("/v1/apps/shop/topics/news").await["members"].clone();
    assert_eq!(members().await, 1, "who is gone is not counted");
    let topics = async |id: &str| app.get(&format!("/v1/apps/shop/subscriptions/{id}")).await["topics"].clone();
    let new = replace(&app, &all[0], 500).await;
    assert_eq!(topics(&new.id).await, json!(["news", "sport"]));
    // Taken out of one while it was gone, by the site; and one that left for good.
    let sport = format!("/v1/apps/shop/topics/sport/subscriptions/{}", all[1].id);
    app.call(Method::DELETE, &sport, Value::Null).await.ok(204);
    assert_eq!(app.come_back("fcm", 1).await, all[1].id);
    assert_eq!(topics(&all[1].id).await, json!(["news"]));
    app.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", all[2].id), Value::Null).await.ok(204);
    app.come_back("fcm", 2).await;
    assert_eq!(topics(&all[2].id).await, json!([]));
    let message = app.send(json!({"topic": "news"}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 3), ("accepted", 3), ("awaiting_ack", 3)]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_delivery_moves_to_the_successor() {
    let app = TestApp::start().await;
    app.dispatcher.stop(Duration::ZERO).await; // so that rows wait
    let old = app.subscribe("fcm", 0..1).await.remove(0);
    let message = app.send(json!({"subscriptions": [old.id]}), json!({})).await;
    app.steer(&message, "pause").await;
    let new = replace(&app, &old, 1).await;
    let worker = app.worker(app.clock.clone()).await;
    worker.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("queued", 1)]));
    app.steer(&message, "resume").await;
    app.clock.advance(Duration::from_secs(3));
    worker.run_until_idle().await;
    assert_eq!(app.delivery(&message, &new.id).await["state"], "accepted");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn successor_gets_no_message_twice() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..2).await;
    let later = Rule { endpoints: Some([1].into()), ..Rule::always(answer(503)) };
    app.simulator.add_rule(later).unwrap();
    let message = app.send(json!({"subscriptions": [all[0].id, all[1].id]}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["retrying"], 1);
    let body = json!({"replaces": {"id": all[1].id}});
    assert_eq!(app.come_back_with("fcm", 0, body).await, all[0].id, "a known one takes the place");
    app.advance(Duration::from_secs(3600)).await;
    let end = counts(&[("targeted", 2), ("accepted", 1), ("awaiting_ack", 1), ("cancelled", 1)]);
    assert_eq!(app.counts(&message).await, end);
    assert_eq!((received(&app, &all[0]), scalar(&app.pool, "SELECT count(*) FROM alerts").await), (1, 0));
    app.finish().await;
}

/// Sends a message whose fan-out comes to 50 recipients a second, the first of them when an engine starts.
async fn send_slowly(app: &TestApp, to: Value) -> String {
    let message = app.send(to, json!({})).await;
    sqlx::query("UPDATE cursors SET pace_us = 20000").execute(&app.pool).await.unwrap();
    message
}

/// The counts of a message of which so many deliveries have ended so, and no other.
fn ended(accepted: i64, cancelled: i64) -> BTreeMap<String, i64> {
    let targeted = accepted + cancelled;
    let ended = [("targeted", targeted), ("accepted", accepted), ("awaiting_ack", accepted), ("cancelled", cancelled)];
    counts(&ended).into_iter().filter(|(_, n)| *n != 0).collect()
}

/// 100 subscriptions, and one that a fan-out comes to after them, with its index: on Citus shards follow one another, elsewhere ids do.
async fn seed_and_last(app: &TestApp) -> (Vec<Subscriber>, Subscriber, u32) {
    let all = seed_together(app, "fcm", 0..100).await;
    let place = |it: &Subscriber| {
        let id: SubscriptionId = it.id.parse().expect("an id");
        (cluster().map(|_| id.shard()), id)
    };
    for index in 100.. {
        let next = app.subscribe("fcm", index..index + 1).await.remove(0);
        if place(&next) > place(&all[99]) {
            return (all, next, index);
        }
        app.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", next.id), Value::Null).await.ok(204);
    }
    unreachable!("one comes last")
}

#[tokio::test(flavor = "multi_thread")]
async fn unreached_known_successor_is_sent_once() {
    // What waits for the old one has been attempted, or is deferred.
    for is_attempted in [true, false] {
        let app = TestApp::start().await;
        app.dispatcher.stop(Duration::ZERO).await;
        let (all, known, index) = seed_and_last(&app).await;
        let old = &all[5];
        if is_attempted {
            let later = Rule { endpoints: Some([5].into()), ..Rule::always(answer(503)) };
            app.simulator.add_rule(later).unwrap();
        } else {
            // It is 17:00 in Tokyo, and 09:00 in Berlin.
            let quiet = json!({"timezone": "Asia/Tokyo", "quiet_hours": {"from": "22:00", "to": "10:30"}});
            app.call(Method::PUT, "/v1/apps/shop/calendar", quiet).await.ok(200);
            let path = format!("/v1/apps/shop/subscriptions/{}", old.id);
            app.call(Method::PATCH, &path, json!({"timezone": "Europe/Berlin"})).await.ok(200);
        }
        let message = send_slowly(&app, json!({"all": true})).await;
        let worker = app.worker(app.clock.clone()).await;
        worker.run_until_idle().await;
        assert_eq!(app.counts(&message).await["accepted"], 49);
        let body = json!({"replaces": {"id": old.id}});
        assert_eq!(app.come_back_with("fcm", index, body).await, known.id);
        for wait_s in [0, 1, 1, 7200] {
            app.clock.advance(Duration::from_secs(wait_s));
            worker.run_until_idle().await;
        }
        assert_eq!((app.counts(&message).await, received(&app, &known)), (ended(100, 1), 1));
        assert_eq!(scalar(&app.pool, "SELECT count(*) FROM alerts").await, 0, "nobody forged anything");
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn known_successor_in_open_batch_sends_once() {
    let app = TestApp::start().await;
    app.dispatcher.stop(Duration::ZERO).await;
    let (all, known, index) = seed_and_last(&app).await;
    let old = &all[5];
    app.simulator.add_rule(Rule { endpoints: Some([5].into()), ..Rule::always(answer(503)) }).unwrap();
    let message = send_slowly(&app, json!({"all": true})).await;
    let worker = app.worker(app.clock.clone()).await;
    worker.run_until_idle().await;
    app.clock.advance(Duration::from_secs(1));
    worker.run_until_idle().await;
    worker.dispatcher.stop(Duration::ZERO).await;
    // A worker that dies of the last batch.
    app.clock.advance(Duration::from_secs(1));
    let lane = LaneId(i32::try_from(app.lane("fcm").await).unwrap());
    let (span, until) = (DueSpan::all(lane, Tier::Promotional, app.clock.now()), app.clock.now() + LEASE);
    let taken = claims::take_batch(&app.pool, span, 500, app.clock.uuid(), until).await.unwrap();
    assert!(matches!(taken, TakeBatchResult::Batch(batch) if batch.recipients.len() == 1), "it is alone in it");
    let next = app.send(json!({"all": true}), json!({})).await;
    app.come_back_with("fcm", index, json!({"replaces": {"id": old.id}})).await;
    assert_eq!(app.counts(&next).await, counts(&[("targeted", 1), ("queued", 1)]), "of the two that it was for");
    let open = [("targeted", 101), ("accepted", 99), ("awaiting_ack", 99), ("dispatching", 1), ("cancelled", 1)];
    assert_eq!(app.counts(&message).await, counts(&open));
    let worker = app.worker(app.clock.clone()).await;
    for wait in [Duration::ZERO, LEASE, LEASE, LEASE] {
        app.clock.advance(wait);
        worker.run_until_idle().await;
    }
    assert_eq!((app.counts(&message).await, app.counts(&next).await), (ended(100, 1), ended(100, 0)));
    assert_eq!(received(&app, &known), 2, "once by each message");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn passed_known_successor_is_reached_instead() {
    // It was no member of the topic, or it was unsubscribed.
    for is_member in [false, true] {
        let app = TestApp::start().await;
        app.dispatcher.stop(Duration::ZERO).await;
        let all = seed_together(&app, "fcm", 0..120).await;
        let (known, old) = (&all[0], &all[119]);
        for subscriber in all.iter().skip(usize::from(!is_member)) {
            let path = format!("/v1/apps/shop/topics/news/subscriptions/{}", subscriber.id);
            app.call(Method::PUT, &path, Value::Null).await.ok(204);
        }
        if is_member {
            app.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", known.id), Value::Null).await.ok(204);
        }
        let message = send_slowly(&app, json!({"topic": "news"})).await;
        let worker = app.worker(app.clock.clone()).await;
        worker.run_until_idle().await;
        assert_eq!(app.counts(&message).await, ended(50, 0));
        let body = json!({"replaces": {"id": old.id}});
        assert_eq!(app.come_back_with("fcm", 0, body).await, known.id);
        for wait_s in [0, 1, 1] {
            app.clock.advance(Duration::from_secs(wait_s));
            worker.run_until_idle().await;
        }
        assert_eq!(app.counts(&message).await, ended(119, 0));
        assert_eq!((received(&app, old), received(&app, known)), (0, 1));
        app.finish().await;
    }
}
