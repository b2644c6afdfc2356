//! Delivery search by recipient, message and state, page by page.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::api::ApiConfig;
use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::api::TestApi;
use crate::support::app::until_waiting;

type Pair = (String, String);

async fn search(app: &TestApp, query: &str) -> Value {
    app.get(&format!("/v1/apps/shop/deliveries?{query}")).await
}

/// Message and subscription of each row.
fn pairs(page: &Value) -> Vec<Pair> {
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    page["data"].as_array().unwrap().iter().map(|row| (text(row, "message"), text(row, "subscription"))).collect()
}

/// In the order of lists: ids are times.
fn newest_first(mut pairs: Vec<Pair>) -> Vec<Pair> {
    pairs.sort();
    pairs.reverse();
    pairs
}

/// Everything that a search finds, a row at a time; the same, whether forward or back.
async fn row_by_row(app: &TestApp, query: &str) -> Vec<Pair> {
    let mut page = search(app, &format!("{query}&limit=1")).await;
    assert_eq!(page["prev_iterator"], Value::Null, "nothing is before the first page");
    let mut all = pairs(&page);
    while let Some(next) = page["iterator"].as_str() {
        page = search(app, &format!("{query}&limit=1&iterator={next}")).await;
        all.extend(pairs(&page));
        assert_eq!(page["done"], page["iterator"].is_null(), "{page}");
    }
    let mut back = pairs(&page);
    while let Some(previous) = page["prev_iterator"].as_str() {
        page = search(app, &format!("{query}&limit=1&iterator={previous}")).await;
        back.splice(0..0, pairs(&page));
        assert_eq!(page["done"], false, "{page}");
    }
    assert_eq!(back, all, "{query}");
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_of_a_person_are_searchable() {
    let app = TestApp::start().await;
    let phone = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0).id;
    let desk = app.subscribe_with("mozilla", 1..2, json!({"user_id": "ann"})).await.remove(0).id;
    let of_bob = app.subscribe_with("fcm", 2..3, json!({"user_id": "bob"})).await.remove(0).id;
    let ill = Rule { gateway: Some(Gateway::Mozilla), ..Rule::always(RuleAction::ServerError) };
    app.simulator.add_rule(ill).unwrap();
    let patient = |tier: &str| json!({"tier": tier, "ttl": 86_400, "policy": {"retries": 4, "retryDelay": "3600000"}});
    let first = app.send(json!({"users": ["ann"]}), patient("transactional")).await;
    app.run_until_idle().await;
    app.advance(Duration::from_secs(60)).await;
    let between = app.clock.now().to_rfc3339().replace('+', "%2B");
    let second = app.send(json!({"all": true}), patient("promotional")).await;
    app.run_until_idle().await;
    app.advance(Duration::from_secs(60)).await;
    let third = app.send(json!({"subscriptions": [of_bob]}), json!({})).await;
    app.run_until_idle().await;

    let pair = |message: &str, subscription: &str| (message.to_owned(), subscription.to_owned());
    let of_ann = vec![pair(&first, &phone), pair(&first, &desk), pair(&second, &phone), pair(&second, &desk)];
    let (of_first, of_second) = of_ann.split_at(2);
    let of_phone = vec![pair(&first, &phone), pair(&second, &phone)];
    let of_desk = vec![pair(&first, &desk), pair(&second, &desk)];
    let to_bob = vec![pair(&second, &of_bob), pair(&third, &of_bob)];
    let of_all = [of_second, &to_bob[..1]].concat();
    let lane = app.lane("fcm").await;
    for (query, wanted) in [
        ("user_id=ann".to_owned(), of_ann.clone()),
        ("user_id=ann&state=retrying".into(), of_desk),
        ("user_id=ann&state=accepted".into(), of_phone.clone()),
        ("user_id=ann&state=dead".into(), vec![]),
        ("user_id=ann&tier=transactional".into(), of_first.to_vec()),
        (format!("user_id=ann&lane={lane}"), of_phone),
        (format!("user_id=ann&since={between}"), of_second.to_vec()),
        (format!("user_id=ann&until={between}"), of_first.to_vec()),
        ("user_id=nobody".into(), vec![]),
        (format!("subscription={of_bob}"), to_bob),
        (format!("message={second}"), of_all),
        (format!("message={second}&state=retrying"), vec![pair(&second, &desk)]),
        (format!("message={second}&state=accepted"), vec![pair(&second, &phone), pair(&second, &of_bob)]),
        (format!("message={second}&lane={lane}"), vec![pair(&second, &phone), pair(&second, &of_bob)]),
        (format!("message={second}&user_id=ann"), of_second.to_vec()),
        (format!("message={third}&user_id=ann"), vec![]),
    ] {
        let page = search(&app, &query).await;
        assert_eq!(pairs(&page), newest_first(wanted.clone()), "{query}");
        assert_eq!((&page["done"], &page["looked_back_to"]), (&json!(true), &Value::Null), "{query}");
        assert_eq!(row_by_row(&app, &query).await, newest_first(wanted), "{query}, row by row");
    }

    let found = search(&app, &format!("subscription={desk}&message={second}")).await["data"][0].clone();
    let told = app.delivery(&second, &desk).await;
    for same in ["subscription", "state", "due_at"] {
        assert_eq!(found[same], told[same], "{same}");
    }
    assert_eq!(found["last_attempt"], told["attempts"][0]);
    let about = json!([found["user_id"], found["tier"], found["gateway"], found["lane"]]);
    assert_eq!(about, json!(["ann", "promotional", "mozilla", app.lane("mozilla").await]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_before_its_first_attempt_is_found() {
    let app = TestApp::start().await;
    let id = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0).id;
    let lane = app.lane("fcm").await;
    app.operate(Method::POST, &format!("/v1/gateways/{lane}/hold"), Value::Null).await.ok(200);
    let message = app.send(json!({"users": ["ann"]}), json!({})).await;
    app.run_until_idle().await;
    for query in
        ["user_id=ann".to_owned(), format!("message={message}&state=queued"), "user_id=ann&state=queued".into()]
    {
        assert_eq!(pairs(&search(&app, &query).await), [(message.clone(), id.clone())], "{query}");
    }
    app.operate(Method::POST, &format!("/v1/gateways/{lane}/release"), Value::Null).await.ok(200);
    app.advance(Duration::from_secs(60)).await;
    assert_eq!(pairs(&search(&app, &format!("message={message}&state=queued")).await), []);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn search_without_subject_is_refused_by_name() {
    let app = TestApp::start().await;
    let message = app.send(json!({"users": ["ann"]}), json!({})).await;
    let subscription = "sub_01890000-0000-7000-8000-000000000000";
    for (query, parameter) in [
        ("state=dead".to_owned(), "user_id"),
        (format!("user_id=ann&subscription={subscription}"), "subscription"),
        ("user_id=".into(), "user_id"),
        ("user_id=a%09b".into(), "user_id"),
        (format!("message={message}&since=2027-01-01T00:00:00Z"), "since"),
        (format!("message={message}&until=2027-01-01T00:00:00Z"), "until"),
        ("user_id=ann&state=sleeping".into(), "state"),
        ("user_id=ann&limit=251".into(), "limit"),
        ("user_id=ann&iterator=AAAA".into(), "iterator"),
        ("subscription=sub_7".into(), "subscription"),
        ("user_id=ann&sort=asc".into(), "sort"),
    ] {
        let reply = app.call(Method::GET, &format!("/v1/apps/shop/deliveries?{query}"), Value::Null).await;
        assert_eq!((reply.status, &reply.json["errors"][0]["parameter"]), (400, &json!(parameter)), "{query}");
    }
    let unknown = format!("message=msg_01890000-0000-7000-8000-000000000000&subscription={subscription}");
    app.call(Method::GET, &format!("/v1/apps/shop/deliveries?{unknown}"), Value::Null).await.ok(404);
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test]
async fn busy_searcher_delays_no_other_app() {
    let settings = ApiConfig { searches_at_once: 2, place_patience: Duration::ZERO, ..ApiConfig::default() };
    let api = TestApi::with(settings, None).await;
    let (_, other) = api.make_app("other").await;
    let elsewhere = async || api.call(Method::GET, "/v1/apps/other/deliveries?user_id=ann", Some(&other), None).await;
    elsewhere().await.ok(200);
    for query in [
        "/deliveries?user_id=ann",
        "/messages?state=done",
        "/messages?tier=promotional",
        "/dead-letters?reason=gone",
        "/dead-letters/groups?by=reason",
    ] {
        let mut held = api.pool.begin().await.unwrap();
        sqlx::query("LOCK TABLE subscriptions").execute(&mut *held).await.unwrap();
        let meanwhile = async {
            until_waiting(&api.pool, 1).await;
            let refused = api.get(query).await;
            assert_eq!(refused.refusal(), (503, "searches_busy", vec![]), "{query}");
            assert_eq!(refused.header("retry-after"), "5");
            api.get("/messages").await.ok(200);
            api.get("/dead-letters").await.ok(200);
            let release = async {
                until_waiting(&api.pool, 2).await;
                held.rollback().await.unwrap();
            };
            tokio::join!(elsewhere(), release).0
        };
        let (first, elsewhere) = tokio::join!(api.get("/deliveries?user_id=ann"), meanwhile);
        first.ok(200);
        elsewhere.ok(200);
        api.get(query).await.ok(200);
    }
}

#[tokio::test]
async fn audience_scans_take_search_slots() {
    let settings = ApiConfig { searches_at_once: 2, place_patience: Duration::ZERO, ..ApiConfig::default() };
    let api = TestApi::with(settings, None).await;
    let message = json!({"to": {"all": true}, "content": {"title": "T"}});
    api.post("/campaigns", json!({"slug": "spring", "message": message})).await.ok(201);
    let check = json!({"template": {"content": {"title": "T"}}, "to": {"all": true}});
    let costly = [
        ("/subscriptions?tag=vip", None),
        ("/subscriptions?topic=news", None),
        ("/subscriptions?state=active", None),
        ("/subscriptions?gateway=fcm", None),
        ("/subscriptions?segment=tag(%22vip%22)", None),
        ("/segments/preview", Some(json!({"segment": "tag(\"vip\")"}))),
        ("/segments/preview", Some(json!({"segment": "tag(\"vip\")", "exact": true}))),
        ("/campaigns/spring/locales", None),
        ("/campaigns/spring/gateways", None),
        ("/templates/check", Some(check)),
    ];
    let ask = async |(path, body): &(&str, Option<Value>)| {
        let method = if body.is_some() { Method::POST } else { Method::GET };
        api.call(method, &format!("/v1/apps/shop{path}"), Some(&api.key), body.clone()).await
    };
    let mut held = api.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE subscriptions").execute(&mut *held).await.unwrap();
    let meanwhile = async {
        until_waiting(&api.pool, 1).await;
        for request in &costly {
            let refused = ask(request).await;
            assert_eq!(refused.refusal(), (503, "searches_busy", vec![]), "{request:?}");
        }
        tokio::select! {
            reply = api.get("/subscriptions?user_id=ann") => panic!("it takes no place: {}", reply.json),
            () = until_waiting(&api.pool, 2) => {}
        }
        held.rollback().await.unwrap();
    };
    tokio::join!(api.get("/deliveries?user_id=ann"), meanwhile).0.ok(200);
    for request in &costly {
        ask(request).await.ok(200);
    }
}
