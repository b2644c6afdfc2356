//! The id of a replaced subscription is an alias of its successor, but never of another person's subscription.

use axum::http::Method;
use bellwire_core::id::SubscriptionId;
use serde_json::{Value, json};
use std::time::Duration;

use crate::support::app::{Subscriber, TestApp, scalar};
use crate::support::{counts, seed_together};

fn path(id: &str) -> String {
    format!("/v1/apps/shop/subscriptions/{id}")
}

async fn replace(app: &TestApp, old: &Subscriber, index: u32, mut more: Value) -> Subscriber {
    more["replaces"] = json!({"id": old.id});
    app.subscribe_with("fcm", index..index + 1, more).await.remove(0)
}

async fn leads_to(app: &TestApp, id: &str) -> Value {
    app.get(&path(id)).await["replaced_by"].clone()
}

fn received(app: &TestApp, subscriber: &Subscriber) -> usize {
    app.simulator.received(&subscriber.endpoint).unwrap().len()
}

/// A chain of three subscriptions of one browser, the last of them active.
async fn chain(app: &TestApp) -> [Subscriber; 3] {
    let first = app.subscribe_with("fcm", 0..1, json!({"topics": ["news"]})).await.remove(0);
    let second = replace(app, &first, 1, json!({})).await;
    let third = replace(app, &second, 2, json!({})).await;
    [first, second, third]
}

#[tokio::test(flavor = "multi_thread")]
async fn old_ids_name_and_reach_the_successor() {
    let app = TestApp::start().await;
    let [first, second, third] = chain(&app).await;
    for (id, expected) in [(&first, json!(third.id)), (&second, json!(third.id)), (&third, Value::Null)] {
        assert_eq!(leads_to(&app, &id.id).await, expected);
    }
    let listed = app.get("/v1/apps/shop/subscriptions?state=replaced").await;
    let named: Vec<&Value> = listed["data"].as_array().unwrap().iter().map(|row| &row["replaced_by"]).collect();
    assert_eq!(named, [&json!(third.id), &json!(third.id)]);
    let all = json!({"subscriptions": [first.id, second.id, third.id]});
    let body = json!({"to": all, "content": {"title": "Hello"}});
    let dry = app.call(Method::POST, "/v1/apps/shop/messages?dry_run=true", body).await.ok(200);
    assert_eq!((&dry["audience_estimate"], &dry["unreachable"]), (&json!(1), &json!(0)));
    let campaign = app.send(all, json!({})).await;
    let code = app.send(json!({"subscriptions": [first.id]}), json!({"tier": "transactional"})).await;
    app.run_until_idle().await;
    for message in [&campaign, &code] {
        assert_eq!(app.counts(message).await, counts(&[("targeted", 1), ("accepted", 1), ("awaiting_ack", 1)]));
        for id in [&first.id, &third.id] {
            let delivery = app.delivery(message, id).await;
            assert_eq!((&delivery["state"], &delivery["subscription"]), (&json!("accepted"), &json!(third.id)));
        }
    }
    assert_eq!([&first, &second, &third].map(|subscriber| received(&app, subscriber)), [0, 0, 2]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_reaches_successors_beside_other_recipients() {
    let app = TestApp::start().await;
    let [first, _, third] = chain(&app).await;
    let other = app.subscribe("fcm", 7..8).await.remove(0);
    let message = |ids: Value| json!({"to": {"subscriptions": ids}, "content": {"title": "Hello"}});
    let batch = json!([message(json!([other.id])), message(json!([first.id, other.id])), message(json!([first.id]))]);
    let body = json!({"messages": batch});
    let answer = app.call(Method::POST, "/v1/apps/shop/messages/batch", body).await.ok(200);
    app.run_until_idle().await;
    let sent: Vec<&str> =
        answer["results"].as_array().unwrap().iter().map(|one| one["message"]["id"].as_str().unwrap()).collect();
    for (message, n) in sent.iter().zip([1, 2, 1]) {
        assert_eq!(app.counts(message).await, counts(&[("targeted", n), ("accepted", n), ("awaiting_ack", n)]));
    }
    assert_eq!((received(&app, &other), received(&app, &third)), (2, 2));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduled_message_to_old_id_awaits_successor() {
    let app = TestApp::start().await;
    let [first, _, third] = chain(&app).await;
    let send_at = app.clock.now() + Duration::from_secs(3600);
    let message = app.send(json!({"subscriptions": [first.id]}), json!({"send_at": send_at})).await;
    let last = replace(&app, &third, 3, json!({})).await;
    app.advance(Duration::from_secs(3600)).await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("accepted", 1), ("awaiting_ack", 1)]));
    assert_eq!((received(&app, &third), received(&app, &last)), (0, 1));
    assert_eq!(app.delivery(&message, &first.id).await["subscription"], last.id);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_by_an_old_id_concern_the_successor() {
    let app = TestApp::start().await;
    let [first, _, third] = chain(&app).await;
    let sport = format!("/v1/apps/shop/topics/sport/subscriptions/{}", first.id);
    app.call(Method::PUT, &sport, Value::Null).await.ok(204);
    let changed = app.call(Method::PATCH, &path(&first.id), json!({"tags": ["blue"]})).await.ok(200);
    assert_eq!((&changed["id"], &changed["topics"]), (&json!(third.id), &json!(["news", "sport"])));
    let policy = format!("/v1/apps/shop/policies/subscriptions/{}", first.id);
    let set = app.call(Method::PUT, &policy, json!({"retries": 1})).await.ok(200);
    assert_eq!((&set["name"], &app.get(&policy).await["name"]), (&json!(third.id), &json!(third.id)));
    app.call(Method::DELETE, &sport, Value::Null).await.ok(204);
    let shown = app.get(&path(&third.id)).await;
    assert_eq!((&shown["topics"], &shown["tags"]), (&json!(["news"]), &json!(["blue"])));
    app.call(Method::DELETE, &path(&first.id), Value::Null).await.ok(204);
    assert_eq!(app.get(&path(&third.id)).await["state"], "unsubscribed");
    let message = app.send(json!({"subscriptions": [first.id, third.id]}), json!({})).await;
    app.run_until_idle().await;
    let targeted = app.message(&message).await["counts"]["targeted"].clone();
    assert_eq!((targeted, received(&app, &third)), (json!(0), 0));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alias_ends_where_another_person_begins() {
    let app = TestApp::start().await;
    let anns = app.subscribe_with("fcm", 0..4, json!({"user_id": "ann"})).await;
    let bobs = replace(&app, &anns[0], 10, json!({"user_id": "bob"})).await;
    let logged_out = replace(&app, &anns[1], 11, json!({"user_id": null})).await;
    let still_anns = replace(&app, &anns[2], 12, json!({})).await;
    // The same endpoint with other keys, which a server vouches for.
    let minted = app.simulator.mint("fcm.bellwire.test", 99, Some(&app.application_server_key)).unwrap();
    let keys = json!({"p256dh": minted.p256dh, "auth": minted.auth});
    let body = json!({"subscription": {"endpoint": anns[3].endpoint, "keys": keys}});
    let taker = app.call(Method::POST, "/v1/apps/shop/subscriptions", body).await.ok(201);
    assert_eq!(app.get(&path(&anns[3].id)).await["state"], "replaced");
    assert_eq!(taker["user_id"], "ann");
    for (old, expected) in anns.iter().zip([Value::Null, Value::Null, json!(still_anns.id), Value::Null]) {
        assert_eq!(leads_to(&app, &old.id).await, expected);
    }
    let ids: Vec<&String> = anns.iter().map(|old| &old.id).collect();
    let body = json!({"to": {"subscriptions": ids}, "content": {"title": "Hello"}});
    let sent = app.call(Method::POST, "/v1/apps/shop/messages", body).await.ok(202);
    assert_eq!((&sent["audience_estimate"], &sent["unreachable"]), (&json!(1), &json!(3)));
    app.run_until_idle().await;
    let counted = app.counts(sent["id"].as_str().unwrap()).await;
    assert_eq!(counted, counts(&[("targeted", 1), ("accepted", 1), ("awaiting_ack", 1)]));
    assert_eq!([&bobs, &logged_out, &still_anns].map(|new| received(&app, new)), [0, 0, 1]);
    assert_eq!(received(&app, &anns[3]), 0, "the endpoint is the taker's");
    for old in [&anns[0], &anns[3]] {
        app.call(Method::DELETE, &path(&old.id), Value::Null).await.ok(204);
    }
    let active = "SELECT count(*) FROM subscriptions WHERE state = 'active'";
    assert_eq!(scalar(&app.pool, active).await, 4, "other people's subscriptions go on");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chain_beyond_the_limit_leads_nowhere() {
    let app = TestApp::start().await;
    let all = seed_together(&app, "fcm", 0..102).await;
    for pair in all.windows(2) {
        let [old, new] = [&pair[0], &pair[1]].map(|one| one.id.parse::<SubscriptionId>().unwrap());
        let replaced =
            "UPDATE subscriptions SET state = 'replaced', ended_at = since, replaced_by = $3, replaced_by_life = 0
                        WHERE shard = $1 AND id = $2";
        sqlx::query(replaced).bind(old.shard()).bind(old.0).bind(new.0).execute(&app.pool).await.unwrap();
    }
    assert_eq!(leads_to(&app, &all[1].id).await, json!(all[101].id), "100 replacements");
    assert_eq!(leads_to(&app, &all[0].id).await, Value::Null, "101 replacements");
    let to = json!({"to": {"subscriptions": [all[0].id, all[1].id]}, "content": {"title": "Hello"}});
    let sent = app.call(Method::POST, "/v1/apps/shop/messages", to).await.ok(202);
    assert_eq!((&sent["audience_estimate"], &sent["unreachable"]), (&json!(1), &json!(1)));
    app.run_until_idle().await;
    assert_eq!(received(&app, &all[101]), 1);
    app.finish().await;
}
