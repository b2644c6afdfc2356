//! Withdrawals for one person: a key or tag, clicks that clear other browsers, and former users of a browser.

use axum::http::Method;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use super::{HOUR, pushes, shows_nothing, update};
use crate::support::TestApp;
use crate::support::app::{Reply, Subscriber, scalar};

/// Registers browsers of a user.
async fn of_user(app: &TestApp, user: &str, indices: std::ops::Range<u32>) -> Vec<Subscriber> {
    app.subscribe_with("fcm", indices, json!({"user_id": user})).await
}

/// Reports a click in a browser on its first push.
async fn click_first(app: &TestApp, browser: &Subscriber) {
    let receipt = pushes(app, browser).remove(0).notification["data"]["bellwire"]["receipt"].clone();
    let click = json!({"receipt": receipt, "kind": "clicked"});
    app.call(Method::POST, "/v1/apps/shop/receipts", click).await.ok(204);
}

#[tokio::test]
async fn click_of_a_former_user_clears_nothing() {
    let app = TestApp::start().await;
    let shared = of_user(&app, "ann", 0..1).await.remove(0);
    let bob = of_user(&app, "bob", 1..2).await.remove(0);
    app.send(json!({"all": true}), json!({"clear_on_click": true})).await;
    app.run_until_idle().await;
    app.clock.advance(HOUR);
    app.come_back_with("fcm", 0, json!({"user_id": "bob"})).await;
    click_first(&app, &shared).await;
    app.sweep().await;
    app.run_until_idle().await;
    assert_eq!(pushes(&app, &bob).len(), 1, "the click was on a message from before");
    app.finish().await;
}

#[tokio::test]
async fn updated_message_stays_with_its_user() {
    let app = TestApp::start().await;
    let browsers = of_user(&app, "ann", 0..2).await;
    app.send(json!({"users": ["ann"]}), json!({"key": "invoice", "clear_on_click": true})).await;
    app.run_until_idle().await;
    app.clock.advance(HOUR);
    app.come_back_with("fcm", 0, json!({"user_id": "bob"})).await;
    update(&app, "invoice", json!({"content": {"title": "Ann's invoice, corrected"}})).await.ok(200);
    app.run_until_idle().await;
    assert_eq!(pushes(&app, &browsers[0]).len(), 1, "the browser belongs to bob now");
    assert_eq!(pushes(&app, &browsers[1]).len(), 2);
    app.finish().await;
}

async fn withdraw_from(app: &TestApp, user: &str, what: Value) -> Reply {
    app.call(Method::POST, &format!("/v1/apps/shop/users/{user}/withdraw"), what).await
}

#[tokio::test]
async fn one_user_loses_a_message_others_keep() {
    let app = TestApp::start().await;
    let (ann, bob) = (of_user(&app, "ann", 0..2).await, of_user(&app, "bob", 2..3).await);
    app.send(json!({"all": true}), json!({"key": "news-7"})).await;
    app.run_until_idle().await;
    let removed = withdraw_from(&app, "ann", json!({"key": "news-7"})).await.ok(200);
    assert!(removed["removal"].is_string());
    app.run_until_idle().await;
    assert!(ann.iter().all(|browser| shows_nothing(&pushes(&app, browser))));
    assert_eq!(pushes(&app, &bob[0]).len(), 1);
    let repeated = withdraw_from(&app, "ann", json!({"key": "news-7"})).await.ok(200);
    assert_eq!(repeated["removal"], Value::Null);
    app.finish().await;
}

#[tokio::test]
async fn tag_is_cleared_for_a_user() {
    let app = TestApp::start().await;
    let ann = of_user(&app, "ann", 0..2).await;
    withdraw_from(&app, "ann", json!({"tag": "chat-7"})).await.ok(200);
    app.run_until_idle().await;
    for browser in &ann {
        let pushes = pushes(&app, browser);
        assert_eq!(pushes[0].withdraws.as_deref(), Some(&*pushes[0].id), "it withdraws itself");
        assert_eq!(pushes[0].notification["tag"], "chat-7");
    }
    assert_eq!(withdraw_from(&app, "nobody", json!({"tag": "x"})).await.ok(200)["removal"], Value::Null);
    for wrong in [json!({}), json!({"key": "a", "tag": "b"}), json!({"tag": ""})] {
        assert_eq!(withdraw_from(&app, "ann", wrong).await.ok(422)["code"], "invalid");
    }
    assert_eq!(withdraw_from(&app, "ann", json!({"key": "unknown"})).await.status, 404);
    app.finish().await;
}

#[tokio::test]
async fn message_on_its_way_is_refused() {
    let app = TestApp::start().await;
    of_user(&app, "ann", 0..1).await;
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    app.send(json!({"users": ["ann"]}), json!({"key": "code"})).await;
    app.until_held(hold, 1).await;
    let refused = withdraw_from(&app, "ann", json!({"key": "code"})).await.ok(409);
    assert_eq!(refused["code"], "message_sending");
    assert!(app.simulator.remove_rule(hold));
    app.run_until_idle().await;
    assert!(withdraw_from(&app, "ann", json!({"key": "code"})).await.ok(200)["removal"].is_string());
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test]
async fn click_before_fan_out_ends_delays_no_other() {
    let app = TestApp::start().await;
    let (ann, eve) = (of_user(&app, "ann", 0..2).await, app.subscribe("fcm", 2..3).await);
    let clicks = "SELECT count(*) FROM click_clears";
    let at = app.clock.now() + HOUR;
    let later = app.send(json!({"all": true}), json!({"clear_on_click": true, "send_at": at})).await;
    let clicked = async |browser: &Subscriber| {
        sqlx::query("INSERT INTO click_clears (message, subscription) VALUES ($1::uuid, $2::uuid)")
            .bind(later.trim_start_matches("msg_"))
            .bind(browser.id.trim_start_matches("sub_"))
            .execute(&app.pool)
            .await
            .unwrap();
    };
    clicked(&eve[0]).await;
    app.sweep().await;
    assert_eq!(scalar(&app.pool, clicks).await, 0, "eve has no other browser");
    for browser in &ann {
        clicked(browser).await;
    }
    app.sweep().await;
    assert_eq!(scalar(&app.pool, clicks).await, 2);
    app.advance(HOUR).await;
    app.sweep().await;
    app.run_until_idle().await;
    assert_eq!(scalar(&app.pool, clicks).await, 0);
    assert!(ann.iter().all(|browser| pushes(&app, browser).len() == 2));
    assert_eq!(pushes(&app, &eve[0]).len(), 1);
    app.finish().await;
}

#[tokio::test]
async fn click_clears_the_other_browsers_of_the_person() {
    let app = TestApp::start().await;
    let (ann, bob) = (of_user(&app, "ann", 0..3).await, of_user(&app, "bob", 3..4).await);
    app.send(json!({"all": true}), json!({"clear_on_click": true})).await;
    app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    click_first(&app, &ann[0]).await;
    app.sweep().await;
    app.run_until_idle().await;
    assert_eq!(pushes(&app, &ann[0]).len(), 2, "the browser that was clicked");
    for other in &ann[1..] {
        let pushes = pushes(&app, other);
        assert_eq!(pushes.len(), 3, "one of the messages is removed");
        assert_eq!(pushes[2].withdraws.as_deref(), Some(&*pushes[0].id));
    }
    assert_eq!(pushes(&app, &bob[0]).len(), 2);
    app.sweep().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM click_clears").await, 0);
    app.finish().await;
}
