//! Campaigns that events trigger: people enter, wait, and get one message, or none if an event ends the wait.

mod kills;
mod people;
mod races;
mod refusals;

use std::time::Duration;

use axum::http::Method;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::triggers::counts;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::app::{Reply, Subscriber};
use crate::support::campaigns::{HOUR, MINUTE, advance, order, run_scheduler, show};

/// Starts a campaign that events trigger.
async fn start(app: &TestApp, slug: &str, schedule: Value, more: Value) {
    let mut plan = json!({"slug": slug, "schedule": schedule,
        "message": {"to": {"all": true}, "content": {"title": "Your cart", "body": "It waits for you"}}});
    plan.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    app.call(Method::POST, "/v1/apps/shop/campaigns", plan).await.ok(201);
    order(app, slug, "start").await.ok(200);
}

/// Reminds of a cart after half an hour, unless something was bought.
async fn start_reminder(app: &TestApp, more: Value) {
    let schedule = json!({"on": "event:cart_added", "after": "30m", "unless": "event:bought"});
    start(app, "reminder", schedule, more).await;
}

/// Reminds again after an hour without a click.
async fn start_follow_up(app: &TestApp) {
    let follows = json!({"campaign": "reminder", "did_not": "click", "after": 3600});
    let plan = json!({"slug": "again", "follows": follows,
        "message": {"to": {"all": true}, "content": {"title": "Still there", "body": "Your cart"}}});
    app.call(Method::POST, "/v1/apps/shop/campaigns", plan).await.ok(201);
    order(app, "again", "start").await.ok(200);
}

async fn report(app: &TestApp, events: Value) -> Reply {
    app.call(Method::POST, "/v1/apps/shop/events", json!({"events": events})).await
}

/// Reports one event of a user.
async fn did(app: &TestApp, user: &str, name: &str) {
    report(app, json!([{"name": name, "user_id": user}])).await.ok(200);
}

/// Titles and bodies of the notifications that a browser got.
fn shown(app: &TestApp, subscriber: &Subscriber) -> Vec<String> {
    let received = app.simulator.received(&subscriber.endpoint).unwrap();
    let texts = received.into_iter().filter(|it| it.accepted > 0).map(|it| {
        let push: Value = serde_json::from_slice(it.plaintext.as_deref().expect("it was opened")).unwrap();
        format!(
            "{}: {}",
            push["notification"]["title"].as_str().unwrap(),
            push["notification"]["body"].as_str().unwrap()
        )
    });
    texts.collect()
}

/// Reports a click on the last notification of a browser.
async fn click(app: &TestApp, subscriber: &Subscriber) {
    let received = app.simulator.received(&subscriber.endpoint).unwrap();
    let last = received.last().and_then(|it| it.plaintext.as_deref()).expect("it was opened");
    let push: Value = serde_json::from_slice(last).unwrap();
    let receipt = &push["notification"]["data"]["bellwire"]["receipt"];
    let report = json!({"receipt": receipt, "kind": "clicked"});
    app.call(Method::POST, "/v1/apps/shop/receipts", report).await.ok(204);
}

/// Counts of a trigger: entered, waiting, cancelled, limited, held out, excluded, expired, sent. They add up.
async fn counts(app: &TestApp, slug: &str) -> [i64; 8] {
    let campaign = show(app, slug).await;
    let counts = &campaign["progress"]["trigger"];
    let names = ["entered", "waiting", "cancelled", "limited", "held_out", "excluded", "expired", "sent"];
    let each = names.map(|name| counts[name].as_i64().unwrap_or_else(|| panic!("{name} in {counts}")));
    let [entered, waiting, cancelled, _, held_out, excluded, expired, sent] = each;
    assert_eq!(entered, waiting + cancelled + held_out + excluded + expired + sent);
    let id = campaign["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(counts::waiting(&app.pool, id).await.unwrap(), waiting, "one row for each who waits");
    each
}

#[tokio::test]
async fn new_subscriber_is_welcomed_in_one_browser() {
    let app = TestApp::start().await;
    let before = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    let schedule = json!({"on": "subscribed", "after": "1m", "at_most": "once"});
    start(&app, "welcome", schedule, json!({})).await;
    let new = app.subscribe_with("fcm", 1..2, json!({"user_id": "ann"})).await.remove(0);
    run_scheduler(&app).await;
    assert!(shown(&app, &new).is_empty(), "it waits for a minute");
    advance(&app, MINUTE).await;
    assert_eq!((shown(&app, &new).len(), shown(&app, &before).len()), (1, 0));
    let third = app.subscribe_with("fcm", 2..3, json!({"user_id": "ann"})).await.remove(0);
    app.come_back("fcm", 1).await;
    advance(&app, HOUR).await;
    assert_eq!((shown(&app, &new).len(), shown(&app, &third).len()), (1, 0), "ann was welcomed");
    assert_eq!(counts(&app, "welcome").await, [1, 0, 0, 1, 0, 0, 0, 1]);
    app.finish().await;
}

#[tokio::test]
async fn purchase_ends_the_wait_for_a_reminder() {
    let app = TestApp::start().await;
    let ann = app.subscribe_with("fcm", 0..2, json!({"user_id": "ann"})).await;
    let ben = app.subscribe_with("fcm", 2..3, json!({"user_id": "ben"})).await.remove(0);
    start_reminder(&app, json!({})).await;
    for user in ["ann", "ben"] {
        did(&app, user, "cart_added").await;
    }
    did(&app, "ann", "looked_around").await;
    advance(&app, 29 * MINUTE).await;
    did(&app, "ben", "bought").await;
    assert_eq!(counts(&app, "reminder").await, [2, 1, 1, 0, 0, 0, 0, 0]);
    advance(&app, MINUTE).await;
    let each: Vec<usize> = ann.iter().map(|browser| shown(&app, browser).len()).collect();
    assert_eq!((each, shown(&app, &ben).len()), (vec![1, 1], 0));
    assert_eq!(counts(&app, "reminder").await, [2, 0, 1, 0, 0, 0, 0, 1]);
    app.finish().await;
}

#[tokio::test]
async fn order_of_reports_changes_nothing() {
    let app = TestApp::start().await;
    let [ann, ben] = app.subscribe("fcm", 0..2).await.try_into().unwrap_or_else(|_| panic!("two"));
    start_reminder(&app, json!({})).await;
    let at = |minutes: u64| json!(app.clock.now() - Duration::from_secs(60 * minutes));
    // Ann bought after she added; Ben had bought before.
    report(&app, json!([{"name": "bought", "subscription": ann.id, "at": at(5)}])).await.ok(200);
    report(&app, json!([{"name": "cart_added", "subscription": ann.id, "at": at(10)}])).await.ok(200);
    report(&app, json!([{"name": "cart_added", "subscription": ben.id, "at": at(5)}])).await.ok(200);
    report(&app, json!([{"name": "bought", "subscription": ben.id, "at": at(10)}])).await.ok(200);
    assert_eq!(counts(&app, "reminder").await, [2, 1, 1, 0, 0, 0, 0, 0]);
    advance(&app, 25 * MINUTE).await;
    assert_eq!((shown(&app, &ann).len(), shown(&app, &ben).len()), (0, 1));
    app.finish().await;
}

#[tokio::test]
async fn repeated_events_count_once() {
    let app = TestApp::start().await;
    let ann = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    start(&app, "receipt", json!({"on": "event:bought"}), json!({})).await;
    let order = json!({"id": "o-17", "name": "bought", "user_id": "ann"});
    let first = report(&app, json!([order, order])).await.ok(200);
    assert_eq!(first, json!({"recorded": 1, "repeated": 1}));
    run_scheduler(&app).await;
    assert_eq!(report(&app, json!([order])).await.ok(200), json!({"recorded": 0, "repeated": 1}));
    run_scheduler(&app).await;
    assert_eq!(shown(&app, &ann).len(), 1);
    app.finish().await;
}

#[tokio::test]
async fn properties_select_and_fill_the_template() {
    let app = TestApp::start().await;
    let ann = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    let template = json!({"content": {"title": "{{ data.product }}", "body": "{{ data.total }} EUR"}});
    let data = json!({"product": "Your cart", "total": 0});
    let message = json!({"message": {"to": {"all": true}, "template": template, "data": data}});
    let schedule = json!({"on": "event:cart_added", "where": "total >= 50 and product != \"gift\""});
    start(&app, "reminder", schedule, message).await;
    for (product, total) in [("socks", 9), ("gift", 90), ("coat", 90)] {
        let properties = json!({"product": product, "total": total});
        report(&app, json!([{"name": "cart_added", "user_id": "ann", "properties": properties}])).await.ok(200);
        run_scheduler(&app).await;
    }
    assert_eq!(shown(&app, &ann), ["coat: 90 EUR"]);
    app.finish().await;
}

#[tokio::test]
async fn dry_run_applies_the_trigger_to_past_events() {
    let app = TestApp::start().await;
    let at = |minutes: u64| json!(app.clock.now() - Duration::from_secs(60 * minutes));
    let event = |user: &str, name: &str, minutes| json!({"name": name, "user_id": user, "at": at(minutes)});
    let events = json!([
        event("ann", "cart_added", 300),
        event("ann", "bought", 290),
        event("ben", "cart_added", 200),
        event("ben", "cart_added", 100),
        event("cat", "cart_added", 5),
        event("cat", "looked_around", 4),
    ]);
    report(&app, events).await.ok(200);
    let schedule =
        json!({"on": "event:cart_added", "after": "30m", "unless": "event:bought", "at_most": "once per 7d"});
    start(&app, "reminder", schedule, json!({})).await;
    let trial = app.call(Method::POST, "/v1/apps/shop/campaigns/reminder/dry-run", Value::Null).await.ok(200);
    let trial = &trial["trigger"];
    let sums = ["entered", "cancelled", "limited"].map(|name| trial[name].as_i64().unwrap());
    assert_eq!((sums, &trial["has_more"]), ([3, 1, 1], &json!(false)), "{trial}");
    let examples = trial["examples"].as_array().unwrap();
    assert!(examples.len() == 4 && examples[0].as_str().unwrap().contains("no message: \"bought\""), "{examples:?}");
    assert_eq!(counts(&app, "reminder").await, [0; 8]);
    app.finish().await;
}

#[tokio::test]
async fn joining_a_topic_triggers_and_imports_do_not() {
    let app = TestApp::start().await;
    start(&app, "hello", json!({"on": "joined:news"}), json!({})).await;
    start(&app, "welcome", json!({"on": "subscribed"}), json!({})).await;
    let [news, other] = ["news", "sport"].map(|topic| json!({"topics": [topic]}));
    let news = app.subscribe_with("fcm", 0..1, news).await.remove(0);
    let other = app.subscribe_with("fcm", 1..2, other).await.remove(0);
    run_scheduler(&app).await;
    assert_eq!((shown(&app, &news).len(), shown(&app, &other).len()), (2, 1));
    let change = json!({"topics": ["news", "sport"]});
    let path = format!("/v1/apps/shop/subscriptions/{}", other.id);
    app.call(Method::PATCH, &path, change.clone()).await.ok(200);
    app.call(Method::PATCH, &path, change).await.ok(200);
    app.call(Method::PUT, &format!("{path}/topics/late"), Value::Null).await;
    run_scheduler(&app).await;
    assert_eq!(shown(&app, &other).len(), 2);
    app.finish().await;
}

#[tokio::test]
async fn follow_up_reaches_who_did_not_click() {
    let app = TestApp::start().await;
    let [ann, ben, cat] = ["ann", "ben", "cat"];
    let mut browsers = Vec::new();
    for (index, user) in (0..).zip([ann, ben, cat]) {
        browsers.push(app.subscribe_with("fcm", index..index + 1, json!({"user_id": user})).await.remove(0));
    }
    start_reminder(&app, json!({})).await;
    let follows = json!({"campaign": "reminder", "did_not": "click", "after": 3600});
    let plan = json!({"slug": "again", "follows": follows,
        "message": {"to": {"all": true}, "content": {"title": "Still there", "body": "Your cart"}}});
    app.call(Method::POST, "/v1/apps/shop/campaigns", plan.clone()).await.ok(201);
    let later = json!({"slug": "later", "schedule": {"on": "subscribed"}, "message": plan["message"]});
    app.call(Method::POST, "/v1/apps/shop/campaigns", later.clone()).await.ok(201);
    let mut of_draft = plan.clone();
    (of_draft["slug"], of_draft["follows"]["campaign"]) = (json!("of-draft"), json!("later"));
    app.call(Method::POST, "/v1/apps/shop/campaigns", of_draft).await.ok(201);
    assert_eq!(order(&app, "of-draft", "start").await.status, 409, "the first step is a draft");
    app.call(Method::PUT, "/v1/apps/shop/campaigns/later", json!({"slug": "later", "message": later["message"]}))
        .await
        .ok(200);
    assert_eq!(order(&app, "of-draft", "start").await.status, 409, "the first step has a schedule by now");
    order(&app, "again", "start").await.ok(200);
    for user in [ann, ben, cat] {
        did(&app, user, "cart_added").await;
    }
    advance(&app, 30 * MINUTE).await;
    assert_eq!(counts(&app, "again").await[..2], [3, 3]);
    click(&app, &browsers[0]).await;
    did(&app, ben, "bought").await;
    advance(&app, HOUR).await;
    let each: Vec<usize> = browsers.iter().map(|browser| shown(&app, browser).len()).collect();
    assert_eq!(each, [1, 1, 2], "ann clicked, ben bought");
    assert_eq!(counts(&app, "again").await, [3, 0, 1, 0, 0, 1, 0, 1]);
    app.finish().await;
}

#[tokio::test]
async fn caps_and_quiet_hours_hold_triggered_messages() {
    let app = TestApp::start().await;
    let [ann, ben] = ["ann", "ben"];
    let of_ann = app.subscribe_with("fcm", 0..1, json!({"user_id": ann})).await.remove(0);
    let of_ben = app.subscribe_with("fcm", 1..2, json!({"user_id": ben})).await.remove(0);
    let caps = json!({"caps": [{"max": 1, "window": "1d"}]});
    app.call(Method::PUT, "/v1/apps/shop/caps", caps).await.ok(200);
    let calendar = json!({"timezone": "UTC", "quiet_hours": {"from": "22:00", "to": "07:00"}});
    app.call(Method::PUT, "/v1/apps/shop/calendar", calendar).await.ok(200);
    start(&app, "receipt", json!({"on": "event:bought"}), json!({})).await;
    for _ in 0..2 {
        did(&app, ann, "bought").await;
        advance(&app, MINUTE).await;
    }
    assert_eq!(shown(&app, &of_ann).len(), 1, "one a day");
    advance(&app, 15 * HOUR).await; // 23:02
    did(&app, ben, "bought").await;
    advance(&app, MINUTE).await;
    assert_eq!(shown(&app, &of_ben).len(), 0, "it is night");
    advance(&app, 8 * HOUR).await;
    assert_eq!(shown(&app, &of_ben).len(), 1);
    assert_eq!(show(&app, "receipt").await["progress"]["total"]["capped"], 1);
    app.finish().await;
}

#[tokio::test]
async fn withdrawn_message_has_no_follow_up() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    start_reminder(&app, json!({})).await;
    start_follow_up(&app).await;
    did(&app, "ann", "cart_added").await;
    advance(&app, 30 * MINUTE).await;
    let sent = app.get("/v1/apps/shop/messages").await["data"][0]["id"].as_str().unwrap().to_owned();
    app.call(Method::POST, &format!("/v1/apps/shop/messages/{sent}/withdraw"), Value::Null).await.ok(200);
    advance(&app, HOUR).await;
    assert_eq!(counts(&app, "again").await, [1, 0, 0, 0, 0, 1, 0, 0], "it is excluded");
    app.finish().await;
}

#[tokio::test]
async fn purchase_reported_late_ends_the_follow_up() {
    let app = TestApp::start().await;
    let ann = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    start_reminder(&app, json!({})).await;
    start_follow_up(&app).await;
    did(&app, "ann", "cart_added").await;
    let bought_at = app.clock.now() + Duration::from_secs(600);
    advance(&app, 30 * MINUTE).await;
    report(&app, json!([{"name": "bought", "user_id": "ann", "at": bought_at}])).await.ok(200);
    advance(&app, HOUR).await;
    assert_eq!((shown(&app, &ann).len(), counts(&app, "again").await[2]), (1, 1));
    app.finish().await;
}

#[tokio::test]
async fn events_of_one_moment_are_shown_apart() {
    let app = TestApp::start().await;
    let ann = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    start(&app, "shipped", json!({"on": "event:shipped"}), json!({})).await;
    let at = app.clock.now();
    for order in ["o-1", "o-2"] {
        report(&app, json!([{"id": order, "name": "shipped", "user_id": "ann", "at": at}])).await.ok(200);
        run_scheduler(&app).await;
    }
    let received = app.simulator.received(&ann.endpoint).unwrap();
    let ids: std::collections::BTreeSet<String> = received
        .iter()
        .map(|it| {
            let push: Value = serde_json::from_slice(it.plaintext.as_deref().expect("it was opened")).unwrap();
            push["notification"]["data"]["bellwire"]["id"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 2, "browsers drop repeats by id");
    app.finish().await;
}

#[tokio::test]
async fn follow_up_needs_an_accepted_message() {
    let app = TestApp::start().await;
    let ann = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    start_reminder(&app, json!({})).await;
    start_follow_up(&app).await;
    let rule = app.simulator.add_rule(Rule::always(RuleAction::BadRequest)).unwrap();
    did(&app, "ann", "cart_added").await;
    advance(&app, 30 * MINUTE).await;
    assert!(app.simulator.remove_rule(rule));
    advance(&app, HOUR).await;
    assert_eq!((shown(&app, &ann).len(), counts(&app, "again").await[5]), (0, 1));
    app.finish().await;
}

#[tokio::test]
async fn pause_and_cancel_hold_for_people_who_wait() {
    let app = TestApp::start().await;
    let ann = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    let ttl = json!({"message": {"to": {"all": true}, "ttl": 7200, "content": {"title": "Cart", "body": "-"}}});
    start_reminder(&app, ttl).await;
    did(&app, "ann", "cart_added").await;
    order(&app, "reminder", "pause").await.ok(200);
    advance(&app, HOUR).await;
    assert_eq!((shown(&app, &ann).len(), counts(&app, "reminder").await[1]), (0, 1), "she waits");
    order(&app, "reminder", "resume").await.ok(200);
    run_scheduler(&app).await;
    assert_eq!(shown(&app, &ann).len(), 1);
    // A long pause outlasts the time to live.
    did(&app, "ann", "cart_added").await;
    order(&app, "reminder", "pause").await.ok(200);
    advance(&app, 3 * HOUR).await;
    order(&app, "reminder", "resume").await.ok(200);
    run_scheduler(&app).await;
    assert_eq!(counts(&app, "reminder").await, [2, 0, 0, 0, 0, 0, 1, 1]);
    did(&app, "ann", "cart_added").await;
    order(&app, "reminder", "cancel").await.ok(200);
    app.call(Method::DELETE, "/v1/apps/shop/campaigns/reminder", Value::Null).await.ok(409);
    advance(&app, HOUR).await;
    app.sweep().await;
    assert_eq!((shown(&app, &ann).len(), counts(&app, "reminder").await[2]), (1, 1));
    did(&app, "ann", "cart_added").await;
    assert_eq!(counts(&app, "reminder").await[0], 3, "no person enters any more");
    app.finish().await;
}

#[tokio::test]
async fn campaign_ends_at_its_expiry() {
    let app = TestApp::start().await;
    let ann = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    let expires_at = app.clock.now() + Duration::from_secs(600);
    start_reminder(&app, json!({"expires_at": expires_at})).await;
    run_scheduler(&app).await;
    assert_eq!(show(&app, "reminder").await["state"], "sending");
    did(&app, "ann", "cart_added").await;
    advance(&app, HOUR).await;
    app.sweep().await;
    assert_eq!((show(&app, "reminder").await["state"].clone(), shown(&app, &ann).len()), (json!("done"), 0));
    assert_eq!(counts(&app, "reminder").await, [1, 0, 1, 0, 0, 0, 0, 0]);
    app.call(Method::DELETE, "/v1/apps/shop/campaigns/reminder", Value::Null).await.ok(204);
    app.finish().await;
}

#[tokio::test]
async fn send_rate_spreads_the_messages() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..30).await;
    start(&app, "slow", json!({"on": "subscribed"}), json!({"pace": {"per_minute": 60}})).await;
    for index in 30..40 {
        app.subscribe("fcm", index..index + 1).await;
    }
    run_scheduler(&app).await;
    let first = counts(&app, "slow").await[7];
    assert!((1..=2).contains(&first), "{first}");
    for _ in 0..5 {
        advance(&app, Duration::from_secs(1)).await;
    }
    let sixth = counts(&app, "slow").await[7];
    assert!((5..=8).contains(&sixth), "{sixth}");
    app.finish().await;
}
