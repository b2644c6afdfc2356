//! Sending letters again, and putting them aside.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::Method;
use bellwire_core::id::AppId;
use bellwire_store::operations::idempotency::{self, KeyScope, KeyedRequest};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{LETTERS, bury, letter_of, letters_of, list, open_letters, post, refusing, to};
use crate::support::app::{Subscriber, scalar};
use crate::support::json::assert_members;
use crate::support::seed::seed;
use crate::support::{TestApp, counts};

#[tokio::test(flavor = "multi_thread")]
async fn replay_is_a_new_message_with_same_ids() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..3).await;
    let rule = app.simulator.add_rule(refusing(0..3)).unwrap();
    let options =
        json!({"tier": "transactional", "ttl": 900, "urgency": "low", "collapse_key": "k", "policy": {"retries": 1}});
    let message = app.send(to(&subscribers), options).await;
    app.run_until_idle().await;
    app.advance(Duration::from_secs(3_600)).await;
    app.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", subscribers[2].id), Value::Null).await.ok(204);

    let counted = post(&app, "/replay", json!({"filter": {}, "dry_run": true})).await.ok(200);
    assert_members(&counted, json!({"dry_run": true, "matched": 3, "unreachable": 1}));
    assert_members(&counted, json!({"handled": 0, "remaining": 2, "id": null}));
    assert_eq!(
        (&counted["by_reason"][0]["key"], &counted["by_reason"][0]["count"]),
        (&json!("bad_request"), &json!(3))
    );
    assert_eq!((&counted["by_message"][0]["key"], &counted["by_message"][0]["count"]), (&json!(message), &json!(3)));
    assert_eq!(open_letters(&app).await, 3, "nothing was done");

    // It dies once more: a replay of the replay has the same root.
    let done = post(&app, "/replay", json!({"filter": {"reason": "bad_request"}})).await.ok(200);
    assert_members(&done, json!({"handled": 2, "unreachable": 1, "remaining": 0}));
    let replay = done["messages"][0].as_str().unwrap().to_owned();
    app.run_until_idle().await;
    assert_eq!(app.counts(&replay).await, counts(&[("targeted", 2), ("dead", 2)]));
    app.simulator.remove_rule(rule);
    let again = post(&app, "/replay", json!({"filter": {"message": replay}, "ttl": 60})).await.ok(200);
    let last = again["messages"][0].as_str().unwrap().to_owned();
    app.run_until_idle().await;
    assert_eq!(app.counts(&last).await, counts(&[("targeted", 2), ("accepted", 2), ("awaiting_ack", 2)]));

    let [first, second, third] = [app.message(&message).await, app.message(&replay).await, app.message(&last).await];
    assert_eq!(
        (&first["replay_of"], &second["replay_of"], &third["replay_of"]),
        (&Value::Null, &json!(message), &json!(message))
    );
    for name in ["tier", "urgency", "topic_header", "policy"] {
        assert_eq!((&first[name], &first[name]), (&second[name], &third[name]), "{name}");
    }
    assert_eq!((&second["ttl"], &third["ttl"]), (&json!(900), &json!(60)));
    assert_eq!(second["to"]["subscriptions"].as_array().unwrap().len(), 2);
    for subscriber in &subscribers[..2] {
        let received = app.simulator.received(&subscriber.endpoint).unwrap();
        assert_eq!((received.len(), received[0].attempts.len()), (1, 3), "one delivery, three requests");
        let letters = list(&app, &format!("?subscription={}", subscriber.id)).await;
        assert_eq!((&letters[0]["replay"], &letters[1]["replay"]), (&json!(last), &json!(replay)));
        assert!(letters.iter().all(|letter| letter["state"] == "replayed"));
    }
    assert_eq!(letter_of(&app, &subscribers[2]).await["state"], "open", "it cannot be reached, and stays");
    let nothing = post(&app, "/replay", json!({"filter": {}})).await.ok(200);
    assert_members(&nothing, json!({"matched": 1, "handled": 0, "unreachable": 1}));
    let alone = format!("{LETTERS}/{}/replay", letter_of(&app, &subscribers[2]).await["id"].as_str().unwrap());
    let reply = app.call(Method::POST, &alone, Value::Null).await;
    assert_eq!((reply.status, &reply.json["code"]), (409, &json!("unreachable")));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_takes_thousands_up_to_the_cap() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..1_150).await;
    let rule = app.simulator.add_rule(refusing(0..1_150)).unwrap();
    let campaign = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    app.advance(Duration::from_secs(1)).await;
    let subscriber = app.subscribe("mozilla", 0..1).await;
    let single = app.send(to(&subscriber), json!({})).await;
    app.run_until_idle().await;
    app.simulator.remove_rule(rule);
    assert_eq!(open_letters(&app).await, 1_151);

    let some = post(&app, "/replay", json!({"filter": {}, "cap": 100})).await.ok(200);
    assert_eq!((&some["handled"], &some["remaining"]), (&json!(100), &json!(1_051)));
    assert_eq!(some["messages"].as_array().unwrap().len(), 1, "of the oldest message");
    let rest = post(&app, "/replay", json!({"filter": {}})).await.ok(200);
    assert_eq!((&rest["handled"], &rest["remaining"]), (&json!(1_051), &json!(0)));
    let messages: Vec<&str> = rest["messages"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    let mut sizes = Vec::new();
    app.run_until_idle().await;
    for message in &messages {
        let shown = app.message(message).await;
        assert_eq!(shown["counts"]["accepted"], shown["counts"]["targeted"]);
        sizes.push((shown["replay_of"].as_str().unwrap().to_owned(), shown["counts"]["targeted"].as_i64().unwrap()));
    }
    assert_eq!(sizes, [(campaign.clone(), 1_000), (campaign, 50), (single, 1)]);
    assert_eq!(open_letters(&app).await, 0);

    let trail = app.get(&format!("{LETTERS}/audit")).await["data"].clone();
    assert_eq!(
        (&trail[0]["action"], &trail[0]["count"], &trail[1]["count"]),
        (&json!("replay"), &json!(1_051), &json!(100))
    );
    assert_eq!((&trail[0]["id"], &trail[1]["id"]), (&rest["id"], &some["id"]));
    let log = app.get("/v1/apps/shop/audit-log?action=dead_letters.replayed").await["data"].clone();
    let logged = |operation: &Value| {
        let parts = log.as_array().unwrap().iter().filter(|entry| &entry["target"] == operation);
        parts.map(|entry| entry["n"].as_i64().unwrap()).sum::<i64>()
    };
    assert_eq!((logged(&rest["id"]), logged(&some["id"])), (1_051, 100), "the audit log counts the same");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_replays_take_each_letter_once() {
    let app = TestApp::start().await;
    let (subscribers, _) = letters_of(&app, 40).await;
    let replay = || post(&app, "/replay", json!({"filter": {}}));
    let all = futures_util::future::join_all((0..6).map(|_| replay())).await;
    let handled: i64 = all.into_iter().map(|reply| reply.ok(200)["handled"].as_i64().unwrap()).sum();
    // What one of them held when the others looked is open or theirs: never both.
    let after = replay().await.ok(200)["handled"].as_i64().unwrap();
    assert_eq!((handled + after, open_letters(&app).await), (40, 0));
    app.run_until_idle().await;
    for subscriber in &subscribers {
        let received = app.simulator.received(&subscriber.endpoint).unwrap();
        assert_eq!((received.len(), received[0].attempts.len()), (1, 2), "died once, sent again once");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn next_replay_completes_an_interrupted_one() {
    let app = TestApp::start().await;
    let (_, _) = letters_of(&app, 5).await;
    // A transaction that has marked two letters and made no message yet: its process dies.
    let mut broken = app.pool.begin().await.unwrap();
    let marked = sqlx::query(
        "UPDATE dead_letters SET state = 'replayed', settled_at = $1, replay = gen_random_uuid()
         WHERE id IN (SELECT id FROM dead_letters ORDER BY id LIMIT 2)",
    )
    .bind(app.clock.now());
    assert_eq!(marked.execute(&mut *broken).await.unwrap().rows_affected(), 2);
    let beside = post(&app, "/replay", json!({"filter": {}})).await.ok(200);
    assert_eq!((&beside["handled"], &beside["remaining"]), (&json!(3), &json!(2)));
    broken.rollback().await.unwrap();
    let next = post(&app, "/replay", json!({"filter": {}})).await.ok(200);
    assert_eq!((&next["handled"], &next["remaining"]), (&json!(2), &json!(0)));
    let messages = "SELECT count(DISTINCT replay) FROM dead_letters WHERE state = 'replayed'";
    assert_eq!(scalar(&app.pool, messages).await, 2);
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_letter_is_replayed_or_discarded_once() {
    let app = TestApp::start().await;
    let (subscribers, message) = letters_of(&app, 2).await;
    let [first, second] = [letter_of(&app, &subscribers[0]).await, letter_of(&app, &subscribers[1]).await];
    let path = |letter: &Value, what: &str| format!("{LETTERS}/{}{what}", letter["id"].as_str().unwrap());
    let replayed = app.call(Method::POST, &path(&first, "/replay?ttl=77"), Value::Null).await.ok(200);
    assert_eq!(replayed["state"], "replayed");
    let replay = app.message(replayed["replay"].as_str().unwrap()).await;
    assert_eq!((&replay["replay_of"], &replay["ttl"]), (&json!(message), &json!(77)));
    let discarded = app.call(Method::POST, &path(&second, "/discard"), Value::Null).await.ok(200);
    assert_eq!((&discarded["state"], &discarded["replay"]), (&json!("discarded"), &Value::Null));
    assert!(discarded["settled_at"].is_string());
    for letter in [&first, &second] {
        for what in ["/replay", "/discard"] {
            let reply = app.call(Method::POST, &path(letter, what), Value::Null).await;
            assert_eq!((reply.status, &reply.json["code"]), (409, &json!("dead_letter_settled")));
        }
    }
    let reply = app.call(Method::POST, &path(&first, "/replay?ttl=-1"), Value::Null).await;
    assert_eq!((reply.status, &reply.json["errors"][0]["parameter"]), (400, &json!("ttl")));
    let trail = app.get(&format!("{LETTERS}/audit")).await["data"].clone();
    let told: BTreeSet<_> = trail.as_array().unwrap().iter().map(|action| action["filter"]["id"].to_string()).collect();
    assert_eq!(told, BTreeSet::from([first["id"].to_string(), second["id"].to_string()]));
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_with_two_letters_is_replayed_once() {
    let app = TestApp::start().await;
    let (subscribers, _) = letters_of(&app, 2).await;
    // As when a row that had ended was put back by hand.
    let again = "INSERT INTO dead_letters (shard, id, app, message, subscription, lane, tier, reason, retries, at)
                 SELECT shard, $1, app, message, subscription, lane, tier, 'replayed', retries, at
                 FROM dead_letters LIMIT 1";
    sqlx::query(again).bind(bellwire_core::clock::uuid_of(app.clock.now())).execute(&app.pool).await.unwrap();
    let replayed = post(&app, "/replay", json!({"filter": {}})).await.ok(200);
    assert_eq!((&replayed["handled"], &replayed["remaining"]), (&json!(3), &json!(0)));
    let replay = app.message(replayed["messages"][0].as_str().unwrap()).await;
    assert_eq!((&replay["counts"]["targeted"], &replay["to"]), (&json!(2), &sorted(&subscribers)));
    app.run_until_idle().await;
    app.finish().await;
}

fn sorted(subscribers: &[crate::support::app::Subscriber]) -> Value {
    let ids: BTreeSet<_> = subscribers.iter().map(|subscriber| &subscriber.id).collect();
    json!({"subscriptions": ids})
}

#[tokio::test(flavor = "multi_thread")]
async fn discard_stops_at_cap_and_later_letters() {
    let app = TestApp::start().await;
    let (_, message) = letters_of(&app, 3).await;
    bury(&app, 10_500).await;
    let counted = post(&app, "/discard", json!({"filter": {}, "dry_run": true})).await.ok(200);
    assert_eq!((&counted["matched"], &counted["remaining"]), (&json!(10_503), &json!(10_503)));
    assert_eq!(counted["by_message"].as_array().unwrap().len(), 1_000, "the largest groups");
    assert_eq!(counted["by_message"][0]["key"], json!(message));
    let some = post(&app, "/discard", json!({"filter": {"gateway": "fcm"}})).await.ok(200);
    assert_eq!((&some["handled"], &some["remaining"]), (&json!(10_000), &json!(503)));
    assert_eq!(list(&app, &format!("?message={message}&state=open")).await.len(), 3, "the oldest come first");
    let rest = post(&app, "/discard", json!({"filter": {}, "cap": 100_000})).await.ok(200);
    assert_eq!((&rest["handled"], &rest["remaining"]), (&json!(503), &json!(0)));
    let nothing = post(&app, "/discard", json!({"filter": {}})).await.ok(200);
    assert_eq!((&nothing["matched"], &nothing["handled"]), (&json!(0), &json!(0)));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_never_reaches_the_next_user() {
    let app = TestApp::start().await;
    let anns = app.subscribe_with("fcm", 0..3, json!({"user_id": "ann", "topics": ["news"]})).await;
    let rule = app.simulator.add_rule(refusing(0..3)).unwrap();
    let to_ann = app.send(json!({"users": ["ann"]}), json!({})).await;
    app.send(to(&anns), json!({})).await;
    app.send(json!({"topic": "news"}), json!({})).await;
    app.run_until_idle().await;
    app.advance(Duration::from_secs(1)).await;
    let path = |subscriber: &Subscriber| format!("/v1/apps/shop/subscriptions/{}", subscriber.id);
    let login = async |subscriber: &Subscriber| {
        app.call(Method::PATCH, &path(subscriber), json!({"user_id": "bob"})).await.ok(200);
    };
    login(&anns[0]).await;
    app.subscribe_with("fcm", 9..10, json!({"user_id": "bob", "replaces": {"id": anns[1].id}})).await;

    let told = |reply: &Value| {
        ["matched", "unreachable", "user_left", "handled", "remaining"].map(|name| reply[name].as_i64().unwrap())
    };
    let counted = post(&app, "/replay", json!({"filter": {}, "dry_run": true})).await.ok(200);
    assert_eq!(
        told(&counted),
        [9, 3, 2, 0, 4],
        "the replaced one's follow nobody; of bob's only the topic's is for him"
    );
    let hers = list(&app, &format!("?message={to_ann}&subscription={}", anns[0].id)).await;
    let alone = format!("{LETTERS}/{}/replay", hers[0]["id"].as_str().unwrap());
    let refused = app.call(Method::POST, &alone, Value::Null).await;
    assert_eq!((refused.status, &refused.json["code"]), (409, &json!("user_left")));
    let done = post(&app, "/replay", json!({"filter": {}})).await.ok(200);
    assert_eq!(told(&done), [9, 3, 2, 4, 0]);
    app.run_until_idle().await;

    // They died again. A replay names subscriptions, but is for whom the message was that was sent first.
    app.advance(Duration::from_secs(1)).await;
    login(&anns[2]).await;
    app.advance(Duration::from_secs(1)).await;
    app.send(json!({"users": ["bob"]}), json!({})).await;
    app.run_until_idle().await;
    app.simulator.remove_rule(rule);
    app.advance(Duration::from_secs(1)).await;
    let last = post(&app, "/replay", json!({"filter": {}})).await.ok(200);
    assert_eq!(told(&last), [11, 3, 4, 4, 0], "the topic's to both, and bob's own");
    app.run_until_idle().await;
    let discarded = post(&app, "/discard", json!({"filter": {}})).await.ok(200);
    assert_eq!(told(&discarded), [7, 3, 4, 7, 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_skips_a_browser_changing_users() {
    let app = TestApp::start().await;
    let (subscribers, _) = letters_of(&app, 2).await;
    let mut changing = app.pool.begin().await.unwrap();
    let id = subscribers[0].id.parse::<bellwire_core::id::SubscriptionId>().unwrap();
    let lock = "UPDATE subscriptions SET proven = proven WHERE id = $1";
    sqlx::query(lock).bind(id.0).execute(&mut *changing).await.unwrap();
    let beside = post(&app, "/replay", json!({"filter": {}})).await.ok(200);
    assert_eq!((&beside["handled"], &beside["remaining"]), (&json!(1), &json!(1)));
    let left = "UPDATE subscriptions SET user_left_at = $2 WHERE id = $1";
    sqlx::query(left).bind(id.0).bind(app.clock.now()).execute(&mut *changing).await.unwrap();
    changing.commit().await.unwrap();
    let next = post(&app, "/replay", json!({"filter": {}})).await.ok(200);
    assert_members(&next, json!({"handled": 0, "user_left": 1, "remaining": 0}));
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_replay_completes_the_interrupted_one() {
    let app = TestApp::start().await;
    letters_of(&app, 12).await;
    let body = |cap: i64| json!({"filter": {}, "cap": cap});
    let replay = async |key: &str, cap: i64| {
        let path = format!("{LETTERS}/replay");
        app.call_with(Method::POST, &path, &app.key, body(cap), &[("idempotency-key", key)]).await
    };
    let first = replay("a", 5).await.ok(200);
    assert_eq!((&first["handled"], open_letters(&app).await), (&json!(5), 7));
    assert_eq!(replay("a", 5).await.ok(200), first, "the same answer");
    assert_eq!(open_letters(&app).await, 7, "and nothing is done");
    let reused = replay("a", 6).await;
    assert_eq!((reused.status, &reused.json["code"]), (422, &json!("idempotency_key_reused")));

    // Its first request has replayed some and is cut off, answer unwritten.
    let known = "SELECT id FROM idempotency_keys";
    let known: Vec<Uuid> = sqlx::query_scalar(known).fetch_all(&app.pool).await.unwrap();
    replay("b", 3).await.ok(200);
    let added = sqlx::query("DELETE FROM idempotency_keys WHERE id <> ALL($1)").bind(&known);
    assert_eq!(added.execute(&app.pool).await.unwrap().rows_affected(), 1);
    let rest = replay("b", 3).await.ok(200);
    assert_eq!((&rest["handled"], open_letters(&app).await), (&json!(3), 1));

    // Another request runs under the key: a repeat waits, and then gets its result.
    let mut other = app.pool.acquire().await.unwrap();
    other.close_on_drop();
    let keys: (Uuid, Uuid) =
        sqlx::query_as("SELECT id, app FROM api_keys WHERE app IS NOT NULL").fetch_one(&app.pool).await.unwrap();
    let route = "POST /v1/apps/{app}/dead-letters/replay";
    let scope = KeyScope { caller: keys.0, app: Some(AppId(keys.1)), route };
    let request = KeyedRequest::new(&app.vault, scope, "c", &[]);
    assert!(idempotency::hold(&mut other, &request, Duration::ZERO).await.unwrap());
    let waiting = replay("c", 1).await;
    assert_eq!((waiting.status, &waiting.json["code"]), (409, &json!("idempotency_key_in_progress")));
    assert_eq!(open_letters(&app).await, 1);
    other.close().await.unwrap();
    replay("c", 1).await.ok(200);
    assert_eq!(open_letters(&app).await, 0);
    app.run_until_idle().await;
    app.finish().await;
}
