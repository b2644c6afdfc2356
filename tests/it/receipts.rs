//! Reports of browsers are accepted once, counted exactly, and stored before the response.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use bellwire::testkit::api::ApiConfig;
use bellwire::testkit::api::RequestRate;
use bellwire::testkit::receipts;
use bellwire_core::id::MessageId;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::operations::partitions;
use bellwire_vault::Vault;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::api::{ORIGIN, TestApi, content, fcm};
use crate::support::json::assert_members;
use crate::support::receipts::{receipt_config, receipt_token, report_receipt};
use crate::support::simulator_rules::{held, until_report};

/// A message that was accepted by the gateways of `n` subscriptions, whose ids come with it.
async fn accepted(api: &TestApi, n: usize) -> (String, Vec<String>) {
    let mut subscriptions = Vec::new();
    for i in 0..n {
        let made = api.subscribe(&fcm(&format!("r{i}")), json!({})).await;
        subscriptions.push(made["id"].as_str().unwrap().to_owned());
    }
    let message = send(api, &subscriptions, json!({"content": content(), "ttl": 60})).await;
    for statement in [
        "DELETE FROM queue WHERE message = $1",
        "UPDATE message_counts SET accepted = targeted WHERE message = $1",
        "INSERT INTO attempts (message, subscription, attempt, shard, at, ending, status)
         SELECT $1, id, 0, shard, now(), 1, 201 FROM subscriptions",
    ] {
        let id = message.parse::<MessageId>().unwrap().0;
        sqlx::query(statement).bind(id).execute(&api.pool).await.unwrap();
    }
    (message, subscriptions)
}

async fn send(api: &TestApi, to: &[String], more: Value) -> String {
    let mut body = json!({"to": {"subscriptions": to}});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    api.post("/messages", body).await.ok(202)["id"].as_str().unwrap().to_owned()
}

/// acknowledged, displayed, clicked, closed.
async fn reported(api: &TestApi, message: &str) -> [i64; 4] {
    let counts = api.counts(message).await;
    ["acknowledged", "displayed", "clicked", "closed"].map(|name| counts[name].as_i64().unwrap())
}

#[tokio::test]
async fn first_report_counts_repeats_change_nothing() {
    let api = TestApi::with(receipt_config(), None).await;
    let (message, to) = accepted(&api, 3).await;
    let [one, two] = [0, 1].map(|i| receipt_token(&api.vault, &message, &to[i]));
    assert_eq!(report_receipt(&api, json!({"receipt": one, "kind": "displayed"})).await.status, 204);
    assert_eq!(reported(&api, &message).await, [1, 1, 0, 0]);
    api.clock.advance(Duration::from_secs(5));
    let click = json!({"receipt": one, "kind": "clicked", "action": "open"});
    for _ in 0..2 {
        assert_eq!(report_receipt(&api, json!({"receipt": one, "kind": "displayed"})).await.status, 204);
        assert_eq!(report_receipt(&api, click.clone()).await.status, 204);
    }
    assert_eq!(report_receipt(&api, json!({"receipt": one, "kind": "clicked", "action": "other"})).await.status, 204);
    assert_eq!(reported(&api, &message).await, [1, 1, 1, 0]);
    let batch = json!([
        {"receipt": two, "kind": "closed"}, {"receipt": two, "kind": "closed"}, {"receipt": two, "kind": "displayed"},
        {"receipt": one, "kind": "displayed"}
    ]);
    assert_eq!(report_receipt(&api, batch).await.ok(202), json!({"accepted": 4, "refused": 0}));
    assert_eq!(reported(&api, &message).await, [2, 2, 1, 1]);
    let counts = api.counts(&message).await;
    assert_eq!((&counts["awaiting_ack"], &counts["unconfirmed"]), (&json!(1), &json!(0)));

    let delivery = api.get(&format!("/messages/{message}/deliveries/{}", to[0])).await.ok(200);
    assert_eq!((&delivery["state"], &delivery["confirmation"]), (&json!("accepted"), &json!("acknowledged")));
    let receipts = delivery["receipts"].as_array().unwrap();
    let told: Vec<_> = receipts.iter().map(|receipt| (receipt["kind"].as_str().unwrap(), &receipt["action"])).collect();
    assert_eq!(told, [("displayed", &Value::Null), ("clicked", &json!("open"))]);
    assert_eq!(
        (&receipts[0]["at"], &receipts[1]["at"]),
        (&json!("2027-01-15T08:00:00Z"), &json!("2027-01-15T08:00:05Z"))
    );

    let silent = format!("/messages/{message}/deliveries/{}", to[2]);
    assert_eq!(api.get(&silent).await.ok(200)["confirmation"], "awaiting_ack");
    api.clock.advance(Duration::from_secs(60));
    assert_eq!(api.get(&silent).await.ok(200)["confirmation"], "unconfirmed");
    assert_eq!(api.counts(&message).await["unconfirmed"], 1);
}

#[tokio::test]
async fn wrong_receipt_is_refused_silently_and_alone() {
    let api = TestApi::with(receipt_config(), None).await;
    let (message, to) = accepted(&api, 1).await;
    let good = receipt_token(&api.vault, &message, &to[0]);
    let foreign = receipt_token(&Vault::new([(1, [1; 32])], &[1; 32]), &message, &to[0]);
    for wrong in [foreign.as_str(), "", "x", &good[1..]] {
        let refused = report_receipt(&api, json!({"receipt": wrong, "kind": "displayed"})).await;
        assert_eq!(refused.refusal(), (400, "invalid_receipt", vec![]), "{wrong}");
        assert_eq!(refused.json["detail"], "This server did not issue the receipt.");
    }
    for (body, pointer) in [
        (json!({"receipt": good, "kind": "seen"}), "/kind"),
        (json!({"receipt": good, "kind": "clicked", "action": "x".repeat(201)}), "/action"),
        (json!({"receipt": good, "kind": "clicked", "action": "a\u{0}"}), "/action"),
        (json!({"receipt": good, "kind": "clicked", "when": 1}), "/when"),
        (json!(vec![json!({"receipt": good, "kind": "displayed"}); 101]), ""),
    ] {
        assert_eq!(report_receipt(&api, body.clone()).await.refusal(), (422, "invalid", vec![pointer]), "{body}");
    }
    let mixed = json!([
        {"receipt": foreign, "kind": "displayed"}, 7, {"receipt": good, "kind": "seen"}, {"receipt": good, "kind": "clicked"}
    ]);
    assert_eq!(report_receipt(&api, mixed).await.ok(202), json!({"accepted": 1, "refused": 3}));
    assert_eq!(report_receipt(&api, json!([])).await.ok(202), json!({"accepted": 0, "refused": 0}));
    assert_eq!(reported(&api, &message).await, [1, 0, 1, 0]);
}

#[tokio::test]
async fn beacon_needs_no_preflight_nor_secret() {
    let api = TestApi::with(receipt_config(), None).await;
    let (message, to) = accepted(&api, 1).await;
    let body = json!({"receipt": receipt_token(&api.vault, &message, &to[0]), "kind": "closed"}).to_string();
    let request = |kind: &str, origin: &str| {
        let request = Request::post("/v1/apps/shop/receipts").header("content-type", kind).header("origin", origin);
        request.body(Body::from(body.clone())).unwrap()
    };
    let beacon = api.send(request("text/plain;charset=UTF-8", ORIGIN)).await;
    assert_eq!((beacon.status, beacon.header("access-control-allow-origin")), (204, ORIGIN));
    let elsewhere = "https://elsewhere.example";
    let stranger = api.send(request("application/json", elsewhere)).await;
    assert_eq!(stranger.status, 204, "the token is the right");
    assert_eq!(stranger.header("access-control-allow-origin"), elsewhere, "else it would report again and again");
    assert_eq!(reported(&api, &message).await, [1, 0, 0, 1]);
    let preflight = Request::options("/v1/apps/shop/receipts").header("origin", ORIGIN).body(Body::empty()).unwrap();
    assert_eq!(api.send(preflight).await.status, 204);
    let lost = Request::post("/v1/apps/nobody/receipts").body(Body::from(body)).unwrap();
    assert_eq!(api.send(lost).await.refusal(), (404, "not_found", vec![]));
}

#[tokio::test]
async fn concurrent_reports_count_once_each() {
    let receipts =
        receipts::ReceiptConfig { linger: Duration::from_millis(5), batch: 8, ..receipts::ReceiptConfig::default() };
    let api = TestApi::with(ApiConfig { receipts, ..receipt_config() }, None).await;
    let (message, to) = accepted(&api, 20).await;
    let kinds = ["displayed", "clicked", "closed", "displayed"];
    let bodies = to
        .iter()
        .flat_map(|to| kinds.map(|kind| json!({"receipt": receipt_token(&api.vault, &message, to), "kind": kind})));
    let replies = futures_util::future::join_all(bodies.map(|body| report_receipt(&api, body))).await;
    assert!(replies.iter().all(|reply| reply.status == 204), "{replies:?}");
    assert_eq!(reported(&api, &message).await, [20, 20, 20, 20]);
}

#[tokio::test]
async fn aged_receipts_keep_the_time_of_the_event() {
    let api = TestApi::with(receipt_config(), None).await;
    let (message, to) = accepted(&api, 3).await;
    let start = api.clock.now();
    api.clock.advance(Duration::from_secs(7_200));
    let tokens: Vec<String> = to.iter().map(|id| receipt_token(&api.vault, &message, id)).collect();
    let list = json!([
        {"receipt": tokens[0], "kind": "displayed", "age": 3_600}, {"receipt": tokens[1], "kind": "clicked", "age": u32::MAX},
        {"receipt": tokens[2], "kind": "displayed", "age": -1}, {"receipt": tokens[2], "kind": "clicked"},
    ]);
    assert_eq!(report_receipt(&api, list).await.ok(202), json!({"accepted": 3, "refused": 1}));
    for (id, seconds) in to.iter().zip([3_600, 0, 7_200]) {
        let delivery = api.get(&format!("/messages/{message}/deliveries/{id}")).await.ok(200);
        let at: chrono::DateTime<chrono::Utc> = delivery["receipts"][0]["at"].as_str().unwrap().parse().unwrap();
        assert_eq!((at - start).num_seconds(), seconds, "{delivery}");
    }
}

/// Two processes report on the same deliveries at the same time: only one of them saw the first receipt of each.
#[tokio::test(flavor = "multi_thread")]
async fn writers_of_two_processes_count_a_delivery_once() {
    let api = TestApi::with(receipt_config(), None).await;
    let (message, to) = accepted(&api, 30).await;
    let app = api.app_id();
    let (now, kept_since) = (api.clock.now(), bellwire_store::outcomes::receipts::kept_since(api.clock.now(), 35));
    let batch = |kind| {
        let message: MessageId = message.parse().unwrap();
        let of = |to: &String| bellwire_store::outcomes::receipts::Receipt {
            message,
            subscription: to.parse().unwrap(),
            kind,
            action: None,
            at: now,
        };
        to.iter().map(|to| (app, of(to))).collect::<Vec<_>>()
    };
    use bellwire_core::delivery::ReceiptKind::{Clicked, Closed, Displayed};
    let (displayed, clicked, closed) = (batch(Displayed), batch(Clicked), batch(Closed));
    let write = |batch| bellwire_store::outcomes::receipts::write(&api.pool, batch, kept_since, now);
    let (a, b, c, d) = tokio::join!(write(&displayed), write(&clicked), write(&closed), write(&displayed));
    assert!([a, b, c, d].iter().all(Result::is_ok));
    assert_eq!(reported(&api, &message).await, [30, 30, 30, 30]);
}

#[tokio::test]
async fn unknown_figures_are_null() {
    let api = TestApi::with(receipt_config(), None).await;
    let to = api.subscribe(&fcm("a"), json!({})).await["id"].as_str().unwrap().to_owned();
    let untouched = send(&api, std::slice::from_ref(&to), json!({"payload": "x", "envelope": false})).await;
    let counts = api.get(&format!("/messages/{untouched}")).await.ok(200)["counts"].clone();
    for name in ["awaiting_ack", "acknowledged", "unconfirmed", "displayed", "clicked", "closed"] {
        assert_eq!(counts[name], Value::Null, "{name}");
    }
    assert_eq!(counts["accepted"], 0);
    let delivery = api.get(&format!("/messages/{untouched}/deliveries/{to}")).await.ok(200);
    assert_eq!((&delivery["confirmation"], &delivery["receipts"]), (&Value::Null, &json!([])));
    let wrapped = send(&api, &[to], json!({"payload": "x"})).await;
    assert_eq!(reported(&api, &wrapped).await, [0; 4]);
}

#[tokio::test]
async fn foreign_or_expired_receipts_change_nothing() {
    let api = TestApi::with(receipt_config(), None).await;
    let (message, to) = accepted(&api, 1).await;
    api.make_app("other").await;
    let receipt = json!({"receipt": receipt_token(&api.vault, &message, &to[0]), "kind": "displayed"});
    let reply = api.call(Method::POST, "/v1/apps/other/receipts", None, Some(receipt.clone())).await;
    assert_eq!(reply.status, 204);
    assert_eq!(reported(&api, &message).await, [0; 4], "it came under another app");
    api.clock.advance(Duration::from_secs(36 * 86_400));
    partitions::ensure(&api.pool, api.clock.now()).await.unwrap();
    assert_eq!(report_receipt(&api, receipt).await.status, 204);
    assert_eq!(reported(&api, &message).await, [0; 4], "it came too late");
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM receipts").fetch_one(&api.pool).await.unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn receipt_burst_does_not_block_subscribing() {
    let receipts_per_client = RequestRate { burst: 3, per_minute: 1 };
    let receipts_per_app = RequestRate { burst: 5, per_minute: 1 };
    let api = TestApi::with(
        ApiConfig { receipts_per_client, receipts_per_app, trusted_proxies: 1, ..receipt_config() },
        None,
    )
    .await;
    let (message, to) = accepted(&api, 1).await;
    let body = json!({"receipt": receipt_token(&api.vault, &message, &to[0]), "kind": "displayed"});
    let from = async |address: &str| {
        let headers = [("origin", ORIGIN), ("x-forwarded-for", address)];
        api.call_with(Method::POST, "/v1/apps/shop/receipts", None, Some(body.clone()), &headers).await
    };
    for _ in 0..3 {
        assert_eq!(from("192.0.2.1").await.status, 204);
    }
    let refused = from("192.0.2.1").await;
    assert_eq!(refused.refusal(), (429, "rate_limited", vec![]));
    assert!(refused.header("retry-after").parse::<u32>().unwrap() > 0);
    for expected in [204, 204, 429] {
        assert_eq!(from("192.0.2.2").await.status, expected, "the app has five in all");
    }
    assert_eq!(api.browse(Method::GET, "/config", None, None).await.status, 200);
}

#[tokio::test]
async fn unstored_receipt_is_not_acknowledged() {
    let full = receipts::ReceiptConfig { waiting_max: 1, ..receipt_config().receipts };
    let api = TestApi::with(ApiConfig { receipts: full, ..receipt_config() }, None).await;
    let (message, to) = accepted(&api, 1).await;
    let one = json!({"receipt": receipt_token(&api.vault, &message, &to[0]), "kind": "displayed"});
    let two = json!([one, one]);
    let refused = report_receipt(&api, two).await;
    assert_eq!((refused.refusal(), refused.header("retry-after")), ((503, "too_many_receipts", vec![]), "1"));
    sqlx::query("ALTER TABLE receipts RENAME TO elsewhere").execute(&api.pool).await.unwrap();
    assert_eq!(report_receipt(&api, one.clone()).await.refusal(), (503, "database_unavailable", vec![]));
    sqlx::query("ALTER TABLE elsewhere RENAME TO receipts").execute(&api.pool).await.unwrap();
    assert_eq!(report_receipt(&api, one).await.status, 204, "reported again, it is taken");
    assert_eq!(reported(&api, &message).await, [1, 1, 0, 0]);
}

#[tokio::test]
async fn receipt_ends_a_waiting_delivery_as_accepted() {
    let api = TestApi::with(receipt_config(), None).await;
    let to: Vec<String> = [
        api.subscribe(&fcm("a"), json!({})).await["id"].as_str().unwrap().to_owned(),
        api.subscribe(&fcm("b"), json!({})).await["id"].as_str().unwrap().to_owned(),
    ]
    .into();
    let message = send(&api, &to, json!({"content": content()})).await;
    // Its push timed out, but had arrived.
    sqlx::query("UPDATE queue SET retries = 1").execute(&api.pool).await.unwrap();
    let receipt = json!({"receipt": receipt_token(&api.vault, &message, &to[0]), "kind": "clicked"});
    assert_eq!(report_receipt(&api, receipt).await.status, 204);
    let counts = api.counts(&message).await;
    assert_members(&counts, json!({"accepted": 1, "acknowledged": 1, "retrying": 1, "clicked": 1}));
    let delivery = api.get(&format!("/messages/{message}/deliveries/{}", to[0])).await.ok(200);
    assert_eq!((&delivery["state"], &delivery["confirmation"]), (&json!("accepted"), &json!("acknowledged")));
    let attempt = &delivery["attempts"][0];
    assert_eq!((&attempt["attempt"], &attempt["status"]), (&json!(1), &Value::Null));
    assert_eq!(attempt["reason"], "a receipt came");
}

/// The worker that holds the row gets the gateway's response later and finds the delivery already settled.
#[tokio::test(flavor = "multi_thread")]
async fn early_receipt_is_not_counted_twice() {
    let app = TestApp::start().await;
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    let subscriber = &app.subscribe("mozilla", 0..1).await[0];
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({"tier": "transactional"})).await;
    until_report(&app, |report| held(report) == 1).await;
    let body = json!({"receipt": receipt_token(&app.vault, &message, &subscriber.id), "kind": "displayed"});
    assert_eq!(app.call(Method::POST, "/v1/apps/shop/receipts", body).await.status, 204);
    assert_eq!(app.delivery(&message, &subscriber.id).await["state"], "accepted");
    app.simulator.remove_rule(hold);
    app.run_until_idle().await;
    assert_eq!(app.metrics.settle_fenced.get(), 1, "the worker's row was gone");
    let counts = &app.message(&message).await["counts"];
    assert_members(counts, json!({"targeted": 1, "accepted": 1, "acknowledged": 1, "displayed": 1}));
    app.finish().await;
}
