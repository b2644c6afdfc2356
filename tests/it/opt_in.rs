//! The opt-in funnel, and people who want only important messages.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::app::{DAY, Reply, pointers, scalar};

const CHROME: &str =
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36";

async fn report(app: &TestApp, steps: Value, more: Value) -> Reply {
    let mut body = json!({"steps": steps, "layout": "card", "page": "/"});
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    app.call_with(Method::POST, "/v1/apps/shop/prompt/steps", &app.key, body, &[("user-agent", CHROME)]).await
}

async fn funnel(app: &TestApp, query: &str) -> Value {
    app.get(&format!("/v1/apps/shop/prompt/funnel{query}")).await["groups"].clone()
}

async fn ab_test(app: &TestApp) {
    let variants = json!([{"name": "short"}, {"name": "long", "weight": 2, "layout": "bar"}]);
    app.call(Method::PUT, "/v1/apps/shop/prompt", json!({"variants": variants})).await.ok(200);
}

#[tokio::test]
async fn steps_are_counted_by_each_dimension() {
    let app = TestApp::start().await;
    ab_test(&app).await;
    let new = app.subscribe("fcm", 0..1).await.remove(0);
    for (steps, more) in [
        (json!(["shown"]), json!({"variant": "short"})),
        (json!(["shown"]), json!({"variant": "short", "page": "/cart"})),
        (json!(["accepted", "asked"]), json!({"variant": "short", "page": "/cart"})),
        (json!(["granted"]), json!({"variant": "short", "page": "/cart", "subscription": new.id})),
        (json!(["granted"]), json!({"variant": "short", "page": "/cart", "subscription": new.id})),
        (json!(["shown"]), json!({"variant": "long", "layout": "bar"})),
        (json!(["no"]), json!({"variant": "long", "layout": "bar"})),
        (json!(["accepted", "asked", "denied"]), json!({"layout": "preferences", "variant": "of another day"})),
    ] {
        report(&app, steps, more).await.ok(204);
    }
    let values = async |by: &str, count: &str| -> Vec<(Value, Value)> {
        let groups = funnel(&app, &format!("?by={by}")).await;
        groups.as_array().unwrap().iter().map(|group| (group["value"].clone(), group[count].clone())).collect()
    };
    let of = |pairs: &[(&str, i64)]| -> Vec<(Value, Value)> {
        pairs.iter().map(|(value, n)| (if value.is_empty() { Value::Null } else { json!(value) }, json!(n))).collect()
    };
    assert_eq!(values("variant", "shown").await, of(&[("short", 2), ("long", 1), ("", 0)]));
    assert_eq!(values("variant", "granted").await, of(&[("short", 1), ("long", 0), ("", 0)]));
    assert_eq!(values("page", "asked").await, of(&[("/", 1), ("/cart", 1)]));
    assert_eq!(values("layout", "no").await, of(&[("card", 0), ("bar", 1), ("preferences", 0)]));
    assert_eq!(values("browser", "shown").await, of(&[("chrome", 3)]));
    assert_eq!(values("day", "denied").await.len(), 1);
    let share = &funnel(&app, "").await[0]["granted_share"];
    assert_eq!(share["value"], 0.5);
    assert!(share["low"].as_f64().unwrap() > 0.0 && share["high"].as_f64().unwrap() < 1.0, "{share}");
    app.finish().await;
}

#[tokio::test]
async fn subscribers_are_checked_after_7_and_30_days() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..4).await;
    for subscriber in &all {
        report(&app, json!(["granted"]), json!({"subscription": subscriber.id})).await.ok(204);
    }
    let leave = async |id: &str| {
        app.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{id}"), Value::Null).await.ok(204);
    };
    let counts = async || {
        app.sweep().await;
        let group = funnel(&app, "?since=2027-01-01&until=2027-12-31").await[0].clone();
        ["due_7_days", "kept_7_days", "due_30_days", "kept_30_days"].map(|name| group[name].as_i64().unwrap())
    };
    leave(&all[0].id).await;
    // A browser whose subscription was replaced is still subscribed.
    app.come_back_with("fcm", 3, json!({"replaces": {"id": all[3].id}})).await;
    app.clock.advance(7 * DAY - Duration::from_secs(1));
    assert_eq!(counts().await, [0, 0, 0, 0]);
    app.clock.advance(Duration::from_secs(1));
    assert_eq!(counts().await, [4, 3, 0, 0]);
    leave(&all[1].id).await;
    app.clock.advance(23 * DAY);
    assert_eq!(counts().await, [4, 3, 4, 2]);
    for (step, n) in [("due_7_days", 4), ("kept_7_days", 3), ("due_30_days", 4), ("kept_30_days", 2)] {
        let line = format!("bellwire_opt_in_steps_total{{step=\"{step}\"}} {n}\n");
        assert!(app.metrics.render().contains(&line), "{line}");
    }
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM opt_in_subscribers").await, 0);
    app.finish().await;
}

#[tokio::test]
async fn wrong_steps_are_named() {
    let app = TestApp::start().await;
    let other = app.subscribe("fcm", 0..1).await.remove(0);
    for (steps, more, pointer) in [
        (json!([]), json!({}), "/steps"),
        (json!(["clicked"]), json!({}), "/steps/0"),
        (json!(["granted"]), json!({}), "/subscription"),
        (json!(["shown"]), json!({"page": "https://shop.example/"}), "/page"),
        (json!(["shown"]), json!({"page": "/search?q=gift for ann"}), "/page"),
        (json!(["shown"]), json!({"page": format!("/{}", "x".repeat(200))}), "/page"),
        (json!(["shown"]), json!({"subscription": other.id}), "/subscription"),
        (json!(["granted"]), json!({"subscription": "sub_019a0000-0000-7000-8000-000000000000"}), "/subscription"),
        (json!(["shown"]), json!({"user_id": "ann"}), "/user_id"),
    ] {
        let refused = report(&app, steps, more).await.ok(422);
        assert_eq!(pointers(&refused), [pointer]);
    }
    assert_eq!(funnel(&app, "").await, json!([]), "nothing is counted");
    let query = "/v1/apps/shop/prompt/funnel?since=2026-05-01&until=2026-04-30";
    assert_eq!(app.call(Method::GET, query, Value::Null).await.ok(400)["errors"][0]["parameter"], "since");
    app.finish().await;
}

#[tokio::test]
async fn invented_pages_are_counted_together() {
    let app = TestApp::start().await;
    for n in 0..203 {
        report(&app, json!(["shown"]), json!({"page": format!("/{}", letters(n))})).await.ok(204);
    }
    let pages = funnel(&app, "?by=page").await;
    assert_eq!(pages.as_array().unwrap().len(), 201);
    assert_eq!((&pages[0]["value"], &pages[0]["shown"]), (&Value::Null, &json!(3)));
    // Pages of the day before are counted by themselves, even if strangers came first.
    app.clock.advance(DAY);
    for n in 203..403 {
        report(&app, json!(["shown"]), json!({"page": format!("/{}", letters(n))})).await.ok(204);
    }
    report(&app, json!(["shown"]), json!({"page": format!("/{}", letters(7))})).await.ok(204);
    let today = app.clock.now().date_naive();
    let pages = funnel(&app, &format!("?by=page&since={today}")).await;
    assert_eq!(pages.as_array().unwrap().len(), 201, "{pages}");
    assert!(pages.as_array().unwrap().iter().all(|page| !page["value"].is_null()), "{pages}");
    app.finish().await;
}

/// Spells a number by letters.
fn letters(n: u32) -> String {
    n.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect()
}

#[tokio::test]
async fn parts_of_paths_that_identify_are_not_stored() {
    let app = TestApp::start().await;
    for page in
        ["/users/ann@example.com/orders/17", "/users/ben/orders/18", "/b/%C3%BC", "/reset/abcdefghijklmnopqrstuvwxyz"]
    {
        report(&app, json!(["shown", "shown"]), json!({"page": page})).await.ok(204);
    }
    let pages = funnel(&app, "?by=page").await;
    let pages: Vec<&str> = pages.as_array().unwrap().iter().map(|page| page["value"].as_str().unwrap()).collect();
    assert_eq!(pages, ["/b/*", "/reset/*", "/users/*/orders/*", "/users/ben/orders/*"]);
    assert_eq!(scalar(&app.pool, "SELECT sum(shown)::bigint FROM opt_in_counts").await, 4, "a step counts once");
    app.finish().await;
}

#[tokio::test]
async fn variants_of_the_prompt_are_checked() {
    let app = TestApp::start().await;
    let put = |body: Value| app.call(Method::PUT, "/v1/apps/shop/prompt", body);
    let variants = json!([
        {"name": "a b"}, {"name": "x", "weight": 0}, {"name": "x"},
        {"name": "y", "texts": {"de": {"titel": "x"}, "no language!": {}}}, {"name": "z"}, {"name": "more"},
    ]);
    let refused = put(json!({"variants": variants})).await.ok(422);
    let mut found = pointers(&refused);
    found.sort_unstable();
    let named = [
        "/variants",
        "/variants/0/name",
        "/variants/1/weight",
        "/variants/2/name",
        "/variants/3/texts/de/titel",
        "/variants/3/texts/no language!",
    ];
    assert_eq!(found, named);
    ab_test(&app).await;
    let config = app.get("/v1/apps/shop/config").await;
    assert_eq!(config["prompt"]["variants"][1], json!({"name": "long", "weight": 2, "layout": "bar", "texts": {}}));
    app.finish().await;
}

#[tokio::test]
async fn muted_people_get_only_transactional_messages() {
    let app = TestApp::start().await;
    let (muted, other) = {
        let mut all = app.subscribe_with("fcm", 0..2, json!({"topics": ["news"]})).await;
        (all.remove(0), all.remove(0))
    };
    let path = format!("/v1/apps/shop/subscriptions/{}", muted.id);
    let mute = |body: Value| app.call(Method::PATCH, &path, json!({"muted": body}));
    let send = async |to: Value, tier: &str| {
        let message = app.send(to, json!({"tier": tier})).await;
        app.run_until_idle().await;
        let counts = app.counts(&message).await;
        let of = |name: &str| counts.get(name).copied().unwrap_or_default();
        assert_eq!(of("targeted"), of("accepted") + of("capped"), "{counts:?}");
        (message, of("accepted"), of("capped"))
    };
    let until = app.clock.now() + 7 * DAY;
    assert_eq!(mute(json!({"until": until})).await.ok(200)["muted"], json!({"until": until}));
    let (message, accepted, capped) = send(json!({"all": true}), "promotional").await;
    assert_eq!((accepted, capped), (1, 1));
    let story = app.get(&format!("/v1/apps/shop/messages/{message}/deliveries/{}/explain", muted.id)).await;
    assert!(story.to_string().contains("wants only transactional messages"), "{story}");
    for (to, tier, expected) in [
        (json!({"topic": "news"}), "engagement", (1, 1)),
        (json!({"subscriptions": [muted.id, other.id]}), "promotional", (1, 1)),
        (json!({"segment": "not tag('vip')"}), "promotional", (1, 1)),
        (json!({"all": true}), "transactional", (2, 0)),
        (json!({"subscriptions": [muted.id]}), "transactional", (1, 0)),
    ] {
        let (_, accepted, capped) = send(to.clone(), tier).await;
        assert_eq!((accepted, capped), expected, "{to} {tier}");
    }
    app.clock.advance(7 * DAY);
    assert_eq!(app.get(&path).await["muted"], Value::Null);
    assert_eq!(send(json!({"all": true}), "promotional").await.1, 2, "the week is over");
    assert_eq!(mute(json!({})).await.ok(200)["muted"], json!({"until": null}));
    let new = app.come_back_with("fcm", 0, json!({"replaces": {"id": muted.id}})).await;
    let new = app.get(&format!("/v1/apps/shop/subscriptions/{new}")).await;
    assert_eq!(new["muted"], json!({"until": null}), "a replacement keeps it: {new}");
    assert_eq!(send(json!({"all": true}), "promotional").await.2, 1);
    let back = app.come_back_with("fcm", 0, json!({})).await;
    assert_eq!(app.get(&format!("/v1/apps/shop/subscriptions/{back}")).await["muted"], json!({"until": null}));
    assert_eq!(mute(Value::Null).await.ok(200)["muted"], Value::Null);
    assert_eq!(send(json!({"all": true}), "promotional").await.2, 0);
    app.finish().await;
}

#[tokio::test]
async fn new_subscription_after_leaving_is_not_muted() {
    let app = TestApp::start().await;
    let person = app.subscribe("fcm", 0..1).await.remove(0);
    let path = format!("/v1/apps/shop/subscriptions/{}", person.id);
    app.call(Method::PATCH, &path, json!({"muted": {}})).await.ok(200);
    app.call(Method::DELETE, &path, Value::Null).await.ok(204);
    let id = app.come_back("fcm", 0).await;
    assert_eq!(app.get(&format!("/v1/apps/shop/subscriptions/{id}")).await["muted"], Value::Null);
    app.finish().await;
}

#[tokio::test]
async fn removal_reaches_muted_people() {
    let app = TestApp::start().await;
    let person = app.subscribe("fcm", 0..1).await.remove(0);
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let path = format!("/v1/apps/shop/subscriptions/{}", person.id);
    app.call(Method::PATCH, &path, json!({"muted": {}})).await.ok(200);
    app.call(Method::POST, &format!("/v1/apps/shop/messages/{message}/withdraw"), Value::Null).await.ok(200);
    app.sweep().await;
    app.run_until_idle().await;
    assert_eq!(app.simulator.received(&person.endpoint).unwrap().len(), 2, "the message and its removal");
    app.finish().await;
}

#[tokio::test]
async fn wrong_mute_is_refused() {
    let app = TestApp::start().await;
    let person = app.subscribe("fcm", 0..1).await.remove(0);
    let path = format!("/v1/apps/shop/subscriptions/{}", person.id);
    for (muted, pointer) in [
        (json!({"until": app.clock.now() + 367 * DAY}), "/muted/until"),
        (json!({"until": "next week"}), "/muted/until"),
        (json!({"till": null}), "/muted/till"),
        (json!(true), "/muted"),
    ] {
        let refused = app.call(Method::PATCH, &path, json!({"muted": muted})).await.ok(422);
        assert_eq!(pointers(&refused), [pointer], "{muted}");
    }
    assert_eq!(app.get(&path).await["muted"], Value::Null);
    app.finish().await;
}
