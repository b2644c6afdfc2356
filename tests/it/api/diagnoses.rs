//! Diagnoses: a browser begins and reports them by its token, and support finds them by their code.

use std::time::Duration;

use axum::http::Method;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::api::{TestApi, fcm, high_rate_limits};
use crate::support::receipts::{receipt_config, receipt_token, report_receipt};

/// Path of a subscription's diagnoses.
fn path(subscription: &Value) -> String {
    format!("/subscriptions/{}/diagnoses", subscription["id"].as_str().unwrap())
}

fn check(name: &str, found: &str) -> Value {
    json!({"name": name, "ok": false, "found": found, "advice": "Ask."})
}

#[tokio::test]
async fn support_finds_report_of_browser_by_code() {
    let api = TestApi::with(receipt_config(), None).await;
    let made = api.subscribe(&fcm("a"), json!({"topics": ["news", "sport"]})).await;
    let bearer = made["token"].as_str();
    let begun = api.browse(Method::POST, &path(&made), bearer, None).await.ok(200);
    let code = begun["code"].as_str().unwrap();
    assert_eq!(code.len(), 8, "{begun}");
    assert_eq!(begun["subscription"], made["id"]);
    assert_eq!(begun["created_at"], "2027-01-15T08:00:00Z");
    assert_eq!(begun["expires_at"], "2027-01-22T08:00:00Z");
    let server = &begun["server"];
    assert_eq!((&server["state"], &server["topics"]), (&json!("active"), &json!(2)), "{begun}");
    assert_eq!((&server["key_is_active"], &server["last_failure"]), (&json!(true), &Value::Null));
    assert_eq!(server["vapid_key_id"], made["vapid_key_id"]);
    assert_eq!(begun["test"]["state"], "queued");

    let message = begun["test"]["message"].as_str().unwrap();
    let sent = api.get(&format!("/messages/{message}")).await.ok(200);
    assert_eq!((&sent["tier"], &sent["to"]), (&json!("transactional"), &json!({"subscriptions": [made["id"]]})));
    let own = format!("/diagnoses/{code}");
    assert_eq!(api.browse(Method::GET, &own, bearer, None).await.ok(200)["test"]["displayed_at"], Value::Null);
    api.clock.advance(Duration::from_secs(2));
    let receipt =
        json!({"receipt": receipt_token(&api.vault, message, made["id"].as_str().unwrap()), "kind": "displayed"});
    assert_eq!(report_receipt(&api, receipt).await.status, 204);
    let shown = api.browse(Method::GET, &own, bearer, None).await.ok(200);
    assert_eq!(shown["test"]["displayed_at"], "2027-01-15T08:00:02Z", "{shown}");

    let checks =
        json!([check("permission", "denied"), {"name": "clock", "ok": true, "found": "0 ms off", "advice": null}]);
    let reported = api.browse(Method::PATCH, &own, bearer, Some(json!({"checks": checks}))).await;
    assert_eq!(reported.status, 204, "{}", reported.json);
    let viewer = api.teammate("ann@example.com", json!([{"role": "viewer", "app": "shop"}])).await;
    let typed = format!("{}-{}", &code[..4], &code[4..]).to_lowercase();
    let found = viewer.get(&format!("/v1/apps/shop/diagnoses/{typed}")).await.ok(200);
    assert_eq!((&found["checks"], &found["server"]), (&checks, &begun["server"]));
    assert_eq!((&found["code"], &found["test"]), (&json!(code), &shown["test"]));

    api.clock.advance(Duration::from_secs(7 * 86_400 - 2));
    let late = api.get(&format!("/diagnoses/{code}")).await;
    assert_eq!(late.refusal(), (404, "not_found", vec![]));
}

#[tokio::test]
async fn fourth_diagnosis_in_ten_minutes_waits() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let [one, other] = [api.subscribe(&fcm("a"), json!({})).await, api.subscribe(&fcm("b"), json!({})).await];
    let begin = async |of: &Value| api.browse(Method::POST, &path(of), of["token"].as_str(), None).await;
    for n in 0..3 {
        begin(&one).await.ok(200);
        api.clock.advance(Duration::from_secs(100 + n));
    }
    let refused = begin(&one).await;
    assert_eq!((refused.refusal(), refused.header("retry-after")), ((429, "rate_limited", vec![]), "298"));
    begin(&other).await.ok(200);
    api.clock.advance(Duration::from_secs(298));
    begin(&one).await.ok(200);
    assert_eq!(begin(&one).await.status, 429);
    let at_once = futures_util::future::join_all((0..6).map(|_| begin(&other))).await;
    assert_eq!(at_once.iter().filter(|reply| reply.status == 200).count(), 2, "requests at once are counted too");
}

#[tokio::test]
async fn subscription_keeps_its_last_ten_diagnoses() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let made = api.subscribe(&fcm("a"), json!({})).await;
    let mut codes = Vec::new();
    for _ in 0..12 {
        let begun = api.browse(Method::POST, &path(&made), made["token"].as_str(), None).await.ok(200);
        codes.push(begun["code"].as_str().unwrap().to_owned());
        api.clock.advance(Duration::from_secs(601));
    }
    for (n, code) in codes.iter().enumerate() {
        let status = api.get(&format!("/diagnoses/{code}")).await.status;
        assert_eq!(status, if n < 2 { 404 } else { 200 }, "{n}");
    }
}

#[tokio::test]
async fn report_outside_its_bounds_is_rejected() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let made = api.subscribe(&fcm("a"), json!({})).await;
    let begun = api.browse(Method::POST, &path(&made), made["token"].as_str(), None).await.ok(200);
    let own = format!("/diagnoses/{}", begun["code"].as_str().unwrap());
    let patch = async |body: Value| api.browse(Method::PATCH, &own, made["token"].as_str(), Some(body)).await;
    for (checks, pointer) in [
        (json!(vec![check("a", "b"); 21]), "/checks"),
        (json!([check("a", "b"), check("", "b")]), "/checks/1/name"),
        (json!([check(&"a".repeat(41), "b")]), "/checks/0/name"),
        (json!([check("a", &"b".repeat(1_001))]), "/checks/0/found"),
        (json!([check("a", "b\u{7}")]), "/checks/0/found"),
        (json!([{"name": "a", "ok": false, "found": "b", "advice": ""}]), "/checks/0/advice"),
    ] {
        assert_eq!(patch(json!({"checks": checks})).await.refusal(), (422, "invalid", vec![pointer]), "{checks}");
    }
    assert_eq!(patch(json!({"checks": vec![check("a", &"b".repeat(1_000)); 20]})).await.status, 413);
    assert_eq!(patch(json!({"checks": vec![check("a", "b"); 20]})).await.status, 204);
}

#[tokio::test]
async fn only_own_token_reaches_a_diagnosis() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let [one, other] = [api.subscribe(&fcm("a"), json!({})).await, api.subscribe(&fcm("b"), json!({})).await];
    let begun = api.browse(Method::POST, &path(&one), one["token"].as_str(), None).await.ok(200);
    let code = begun["code"].as_str().unwrap();
    let stranger = other["token"].as_str();
    for (bearer, status) in [(None, 401), (stranger, 404), (Some("bt_x"), 401)] {
        assert_eq!(api.browse(Method::POST, &path(&one), bearer, None).await.status, status, "{bearer:?}");
        let place = format!("/diagnoses/{code}");
        assert_eq!(api.browse(Method::GET, &place, bearer, None).await.status, status, "{bearer:?}");
        let body = Some(json!({"checks": []}));
        assert_eq!(api.browse(Method::PATCH, &place, bearer, body).await.status, status, "{bearer:?}");
    }
    assert_eq!(api.get(&format!("/diagnoses/{code}")).await.ok(200)["checks"], json!([]));
}

#[tokio::test]
async fn code_is_found_however_it_is_typed() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let insert = "INSERT INTO diagnoses (app, code, subscription, created_at) SELECT id, '01101ABC', id, $1 FROM apps";
    sqlx::query(insert).bind(api.clock.now()).execute(&api.pool).await.unwrap();
    for typed in ["01101ABC", "0110-1abc", "oil0-1abc", "OlIo1AbC", "01%2010%201ABC"] {
        assert_eq!(api.get(&format!("/diagnoses/{typed}")).await.ok(200)["code"], "01101ABC", "{typed}");
    }
    assert_eq!(api.get("/diagnoses/01101ABD").await.status, 404);
    for typed in ["0110", "01101ABCD", "01101ABU", "%C3%8401ABCDE"] {
        assert_eq!(
            api.get(&format!("/diagnoses/{typed}")).await.refusal(),
            (400, "invalid_parameter", vec!["code"]),
            "{typed}"
        );
    }
}

#[tokio::test]
async fn ended_subscription_is_diagnosed_without_test() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let made = api.subscribe(&fcm("a"), json!({})).await;
    let end = format!("/subscriptions/{}", made["id"].as_str().unwrap());
    assert_eq!(api.browse(Method::DELETE, &end, made["token"].as_str(), None).await.status, 204);
    let begun = api.browse(Method::POST, &path(&made), made["token"].as_str(), None).await.ok(200);
    assert_eq!((&begun["server"]["state"], &begun["test"]), (&json!("unsubscribed"), &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn diagnosis_names_last_acceptance_and_failure() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let path = format!("/v1/apps/shop/subscriptions/{}/diagnoses", subscriber.id);
    let begun = app.call(Method::POST, &path, Value::Null).await.ok(200);
    assert_eq!(begun["server"]["last_accepted_at"], Value::Null);
    app.run_until_idle().await;
    let shown = app.get(&format!("/v1/apps/shop/diagnoses/{}", begun["code"].as_str().unwrap())).await;
    assert_eq!((&shown["test"]["state"], &shown["test"]["status"]), (&json!("accepted"), &json!(201)), "{shown}");
    let refusing = RuleAction::Answer { status: 400, headers: Vec::new(), body: String::new() };
    app.simulator.add_rule(Rule::always(refusing)).unwrap();
    app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
    app.run_until_idle().await;
    let server = app.call(Method::POST, &path, Value::Null).await.ok(200)["server"].clone();
    assert!(server["last_accepted_at"].is_string(), "{server}");
    assert_eq!((&server["last_failure"]["state"], &server["last_failure"]["status"]), (&json!("dead"), &json!(400)));
    app.run_until_idle().await;
    app.finish().await;
}
