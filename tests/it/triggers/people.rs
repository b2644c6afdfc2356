//! People of triggers: control group, audience, changes of user and browser, and their stored data.

use axum::http::Method;
use serde_json::{Value, json};

use super::{counts, did, report, shown, start, start_reminder};
use crate::support::TestApp;
use crate::support::app::scalar;
use crate::support::campaigns::{HOUR, MINUTE, advance, run_scheduler};

#[tokio::test]
async fn control_group_and_variants_divide_the_people() {
    let app = TestApp::start().await;
    let variants = json!([
        {"name": "a", "message": {"content": {"title": "A", "body": "-"}}},
        {"name": "b", "message": {"content": {"title": "B", "body": "-"}}},
    ]);
    start(&app, "welcome", json!({"on": "subscribed"}), json!({"variants": variants, "holdout": 0.5})).await;
    let subscribers = app.subscribe("fcm", 0..60).await;
    run_scheduler(&app).await;
    let [entered, .., held_out, _, _, sent] = counts(&app, "welcome").await;
    assert_eq!((entered, held_out + sent), (60, 60));
    assert!((15..=45).contains(&held_out), "{held_out}");
    let titles: Vec<String> = subscribers.iter().flat_map(|browser| shown(&app, browser)).collect();
    for title in ["A: -", "B: -"] {
        assert!(titles.iter().filter(|it| *it == title).count() >= 3, "{titles:?}");
    }
    app.finish().await;
}

#[tokio::test]
async fn audience_is_checked_when_the_message_is_due() {
    let app = TestApp::start().await;
    let fan = json!({"user_id": "ann", "topics": ["news"], "tags": ["fan"]});
    let ann = app.subscribe_with("fcm", 0..1, fan.clone()).await.remove(0);
    let ben = app.subscribe_with("fcm", 1..2, json!({"user_id": "ben", "topics": ["news"]})).await.remove(0);
    let cat = app.subscribe_with("fcm", 2..3, json!({"user_id": "cat", "tags": ["fan"]})).await.remove(0);
    let to = json!({"message": {"to": {"topic": "news", "segment": "tag(\"fan\")"}, "content": {"title": "Cart", "body": "-"}}});
    start_reminder(&app, to).await;
    for user in ["ann", "ben", "cat", "without-browser"] {
        did(&app, user, "cart_added").await;
    }
    advance(&app, 30 * MINUTE).await;
    let each: Vec<usize> = [&ann, &ben, &cat].map(|browser| shown(&app, browser).len()).to_vec();
    assert_eq!(each, [1, 0, 0]);
    assert_eq!(counts(&app, "reminder").await, [4, 0, 0, 0, 0, 3, 0, 1]);
    app.finish().await;
}

#[tokio::test]
async fn next_user_of_a_browser_gets_nothing() {
    let app = TestApp::start().await;
    let browser = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    start(&app, "welcome", json!({"on": "joined:news", "after": "10m"}), json!({})).await;
    let path = format!("/v1/apps/shop/subscriptions/{}", browser.id);
    app.call(Method::PATCH, &path, json!({"topics": ["news"]})).await.ok(200);
    app.call(Method::PATCH, &path, json!({"user_id": "ben"})).await.ok(200);
    advance(&app, 10 * MINUTE).await;
    assert_eq!(shown(&app, &browser), Vec::<String>::new());
    assert_eq!(counts(&app, "welcome").await, [1, 0, 0, 0, 0, 1, 0, 0]);
    app.finish().await;
}

#[tokio::test]
async fn segments_count_events_of_people() {
    let app = TestApp::start().await;
    for (index, user) in (0..).zip(["ann", "ben", "cat"]) {
        app.subscribe_with("fcm", index..index + 1, json!({"user_id": user})).await;
    }
    let ago = |days: i64| json!(app.clock.now() - chrono::TimeDelta::days(days));
    let bought = |user: &str, days| json!({"name": "bought", "user_id": user, "at": ago(days)});
    report(&app, json!([bought("ann", 40), bought("ann", 5), bought("ben", 5), bought("ben", 1)])).await.ok(200);
    for (expression, wanted) in [
        ("did(\"bought\")", 2),
        ("not did(\"bought\")", 1),
        ("did(\"bought\", 2)", 2),
        ("did(\"bought\", 2, 30d)", 1),
        ("did(\"bought\", 3)", 0),
        ("did(\"bought\", 2d) and user = \"ben\"", 1),
        ("did(\"looked\")", 0),
    ] {
        let preview =
            app.call(Method::POST, "/v1/apps/shop/segments/preview", json!({"segment": expression})).await.ok(200);
        assert_eq!(preview["reach"]["count"], wanted, "{expression}: {preview}");
    }
    for wrong in ["did(\"bought\", 0)", "did(\"bought\", 1001)", "did(\"bought\", 1.5)", "did()", "did(\"x\", 1d, 2)"] {
        app.call(Method::POST, "/v1/apps/shop/segments/preview", json!({"segment": wrong})).await.ok(422);
    }
    app.finish().await;
}

#[tokio::test]
async fn unsubscribing_ends_the_wait_for_good() {
    let app = TestApp::start().await;
    let browser = app.subscribe("fcm", 0..1).await.remove(0);
    start_reminder(&app, json!({})).await;
    report(&app, json!([{"name": "cart_added", "subscription": browser.id}])).await.ok(200);
    app.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", browser.id), Value::Null).await.ok(204);
    app.come_back("fcm", 0).await;
    advance(&app, HOUR).await;
    assert_eq!((shown(&app, &browser).len(), counts(&app, "reminder").await[5]), (0, 1));
    app.finish().await;
}

#[tokio::test]
async fn only_new_subscribers_are_welcomed() {
    let app = TestApp::start().await;
    let browser = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    start(&app, "welcome", json!({"on": "subscribed"}), json!({})).await;
    app.come_back_with("fcm", 0, json!({"user_id": null})).await;
    app.come_back_with("fcm", 0, json!({"user_id": "ben"})).await;
    run_scheduler(&app).await;
    assert_eq!(counts(&app, "welcome").await[0], 0, "logins and logouts");
    app.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", browser.id), Value::Null).await.ok(204);
    app.come_back("fcm", 0).await;
    run_scheduler(&app).await;
    assert_eq!((counts(&app, "welcome").await[7], shown(&app, &browser).len()), (1, 1), "it subscribed again");
    app.finish().await;
}

#[tokio::test]
async fn purchase_ends_an_anonymous_wait() {
    let app = TestApp::start().await;
    let browser = app.subscribe("fcm", 0..1).await.remove(0);
    start_reminder(&app, json!({})).await;
    report(&app, json!([{"name": "cart_added", "subscription": browser.id}])).await.ok(200);
    let path = format!("/v1/apps/shop/subscriptions/{}", browser.id);
    app.call(Method::PATCH, &path, json!({"user_id": "ann"})).await.ok(200);
    did(&app, "ann", "bought").await;
    assert_eq!(counts(&app, "reminder").await[..3], [1, 0, 1]);
    app.finish().await;
}

#[tokio::test]
async fn best_hour_postpones_the_message() {
    let app = TestApp::start().await; // at 08:00 UTC
    let ann = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann", "timezone": "UTC"})).await.remove(0);
    // Clicks at 20:00 on several evenings.
    for _ in 0..6 {
        app.clock.advance(12 * HOUR);
        app.send(json!({"users": ["ann"]}), json!({})).await;
        app.run_until_idle().await;
        super::click(&app, &ann).await;
        app.clock.advance(12 * HOUR);
    }
    bellwire::testkit::server::maintenance::fold_habits(&app.pool, &app.clock).await.unwrap();
    let before = shown(&app, &ann).len();
    start(&app, "reminder", json!({"on": "event:cart_added", "hour": "best"}), json!({})).await;
    did(&app, "ann", "cart_added").await;
    advance(&app, 11 * HOUR).await;
    assert_eq!(shown(&app, &ann).len(), before);
    advance(&app, HOUR).await;
    assert_eq!(shown(&app, &ann).len(), before + 1);
    app.finish().await;
}

#[tokio::test]
async fn person_sees_and_takes_along_what_is_stored() {
    let app = TestApp::start().await;
    let browser = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    start_reminder(&app, json!({})).await;
    let properties = json!({"product": "coat"});
    report(&app, json!([{"name": "cart_added", "user_id": "ann", "properties": properties}])).await.ok(200);
    let entries = app.get("/v1/apps/shop/trigger-entries?user_id=ann").await["data"].clone();
    assert_eq!((&entries[0]["slug"], &entries[0]["cause"]), (&json!("reminder"), &json!("event:cart_added")));
    let by_browser = app.get(&format!("/v1/apps/shop/trigger-entries?subscription={}", browser.id)).await;
    assert_eq!(by_browser["data"], entries);
    let export = app.get("/v1/apps/shop/users/ann/export").await;
    assert_eq!(export["events"][0]["name"], "cart_added");
    assert_eq!(export["events"][0]["properties"], properties);
    app.call(Method::DELETE, "/v1/apps/shop/users/ann", Value::Null).await.ok(200);
    assert_eq!(counts(&app, "reminder").await[..3], [1, 0, 1]);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM user_events").await, 0);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM trigger_entries").await, 0);
    advance(&app, HOUR).await;
    app.finish().await;
}

#[tokio::test]
async fn next_user_takes_along_only_own_events() {
    let app = TestApp::start().await;
    let browser = app.subscribe("fcm", 0..1).await.remove(0);
    start_reminder(&app, json!({})).await;
    let looked = json!([{"name": "cart_added", "subscription": browser.id}]);
    report(&app, looked.clone()).await.ok(200);
    let path = format!("/v1/apps/shop/subscriptions/{}", browser.id);
    for user in [json!("ann"), Value::Null] {
        app.clock.advance(MINUTE);
        app.call(Method::PATCH, &path, json!({"user_id": user})).await.ok(200);
    }
    app.clock.advance(MINUTE);
    report(&app, looked).await.ok(200);
    assert_eq!(counts(&app, "reminder").await[..3], [2, 1, 1], "the next person waits, the first no longer");
    app.call(Method::PATCH, &path, json!({"user_id": "ben"})).await.ok(200);
    let export = app.get("/v1/apps/shop/users/ben/export").await;
    assert_eq!(export["events"].as_array().unwrap().len(), 1, "{export}");
    app.finish().await;
}

#[tokio::test]
async fn replaced_browser_keeps_no_former_user() {
    let app = TestApp::start().await;
    let old = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    let new = app.subscribe_with("fcm", 1..2, json!({"user_id": "ann", "replaces": {"id": old.id}})).await.remove(0);
    start_reminder(&app, json!({})).await;
    app.clock.advance(MINUTE);
    app.call(Method::PATCH, &format!("/v1/apps/shop/subscriptions/{}", new.id), json!({"user_id": null})).await.ok(200);
    app.clock.advance(MINUTE);
    // The next person, by an id that the site remembers from before.
    report(&app, json!([{"name": "cart_added", "subscription": old.id}])).await.ok(200);
    let export = app.get("/v1/apps/shop/users/ann/export").await;
    assert_eq!((&export["events"], &export["waits"]), (&json!([]), &json!([])), "{export}");
    did(&app, "ann", "bought").await;
    assert_eq!(counts(&app, "reminder").await, [1, 1, 0, 0, 0, 0, 0, 0], "ann ends no wait of the next person");
    advance(&app, 30 * MINUTE).await;
    assert_eq!((shown(&app, &new).len(), shown(&app, &old).len()), (0, 0), "the id leads to no one else");
    app.finish().await;
}

#[tokio::test]
async fn control_group_is_limited_as_others_are() {
    let app = TestApp::start().await;
    let users: Vec<String> = (0..8).map(|n| format!("u{n}")).collect();
    for (n, user) in (0..).zip(&users) {
        app.subscribe_with("fcm", n..n + 1, json!({"user_id": user})).await;
    }
    let schedule = json!({"on": "event:bought", "at_most": "once per 7d"});
    start(&app, "receipt", schedule, json!({"holdout": 0.5})).await;
    for _ in 0..3 {
        for user in &users {
            did(&app, user, "bought").await;
        }
        run_scheduler(&app).await;
    }
    let [entered, _, _, limited, held_out, _, _, sent] = counts(&app, "receipt").await;
    assert_eq!((entered, limited, held_out + sent), (8, 16, 8));
    assert!(held_out > 0);
    app.finish().await;
}

#[tokio::test]
async fn old_events_and_limits_are_deleted() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    start(&app, "receipt", json!({"on": "event:bought", "at_most": "once per 7d"}), json!({})).await;
    did(&app, "ann", "bought").await;
    run_scheduler(&app).await;
    for _ in 0..2 {
        app.clock.advance(HOUR);
        app.sweep().await;
    }
    app.keep_house().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM trigger_entries").await, 1);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM user_events").await, 1);
    app.clock.advance(91 * 24 * HOUR);
    app.keep_house().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM trigger_entries").await, 0);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM user_events").await, 0);
    app.finish().await;
}
