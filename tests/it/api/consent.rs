//! Time and place of consent: kept from the registration until a new consent.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::api::{TestApi, fcm, high_rate_limits, push_subscription, registration};
use crate::support::imports::import_line;

const START: &str = "2027-01-15T08:00:00Z";

fn path(subscription: &Value) -> String {
    format!("/subscriptions/{}", subscription["id"].as_str().unwrap())
}

#[tokio::test]
async fn registration_records_consent_once_until_unsubscribed() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let post = async |body: &Value| api.browse(Method::POST, "/subscriptions", None, Some(body.clone())).await;
    let body = registration(&fcm("a"), json!({"consent": {"source": "footer button"}}));
    let made = post(&body).await.ok(201);
    let first = json!({"at": START, "source": "footer button"});
    assert_eq!(made["consent"], first);
    api.clock.advance(Duration::from_secs(86_400));
    let mut again = body.clone();
    again["consent"] = json!({"source": "another"});
    assert_eq!(post(&again).await.ok(200)["consent"], first, "it only came back");
    let token = made["token"].as_str();
    api.browse(Method::DELETE, &path(&made), token, None).await;
    assert_eq!(api.get(&path(&made)).await.ok(200)["consent"], first, "that it did agree is not forgotten");
    again.as_object_mut().unwrap().remove("consent");
    let back = post(&again).await.ok(200);
    assert_eq!(back["consent"], json!({"at": "2027-01-16T08:00:00Z", "source": "browser"}));

    let dated = json!({"consent": {"at": START, "source": "x"}});
    let made_at_once = post(&registration(&fcm("b"), dated)).await.ok(201);
    assert_eq!(made_at_once["refused"][0]["pointer"], "/consent/at", "browsers give it as they register");
    for (n, source) in [String::new(), "x".repeat(201)].into_iter().enumerate() {
        let body = registration(&fcm(&format!("b-{n}")), json!({"consent": {"source": source}}));
        let without = post(&body).await.ok(201);
        assert_eq!(without["refused"][0]["pointer"], "/consent/source", "{source:?}");
    }
    let refused = post(&registration(&fcm("b-2"), json!({"consent": {"source": "a\u{0}b"}}))).await;
    assert_eq!(refused.refusal(), (422, "invalid", vec!["/consent/source"]));
    let replaced = json!({"replaces": {"id": made["id"], "token": back["token"]}});
    let new = post(&registration(&fcm("c"), replaced)).await.ok(201);
    assert_eq!(new["consent"], back["consent"], "another endpoint of the same person");
}

#[tokio::test]
async fn server_consent_keeps_unknown_members_unknown() {
    let api = TestApi::start().await;
    let silent = registration(&fcm("silent"), json!({}));
    assert_eq!(api.post("/subscriptions", silent.clone()).await.ok(201)["consent"], Value::Null);
    let said = async |consent: Value| {
        let mut body = silent.clone();
        body["consent"] = consent;
        api.post("/subscriptions", body).await
    };
    let form = json!({"at": "2026-05-01T10:00:00Z", "source": "order form"});
    assert_eq!(said(form.clone()).await.ok(200)["consent"], form);
    let earlier = json!({"at": "2025-05-01T10:00:00Z", "source": "old list"});
    assert_eq!(said(earlier).await.ok(200)["consent"], form, "a later one is known");
    assert_eq!(said(json!({"source": "kiosk"})).await.ok(200)["consent"], json!({"at": START, "source": "kiosk"}));
    let ahead = said(json!({"at": "2027-01-15T08:00:01Z"})).await;
    assert_eq!(ahead.ok(200)["refused"][0]["pointer"], "/consent/at");
    // The browser now belongs to another user, by its own registration: their consent is unknown.
    let kept = api.subscribe(&fcm("ann"), json!({"user_id": "ann", "consent": form})).await;
    let body = json!({"user_id": null});
    let left = api.browse(Method::PATCH, &path(&kept), kept["token"].as_str(), Some(body)).await.ok(200);
    assert_eq!(left["consent"], Value::Null);
}

#[tokio::test]
async fn imports_read_consent_by_several_names() {
    let api = TestApi::start().await;
    let line = |name: &str, more: Value| {
        let mut line = push_subscription(&fcm(name));
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line
    };
    let dated = json!({"consented_at": "2025-03-01T10:00:00Z", "consent_source": "checkout"});
    assert_eq!(import_line(&api, line("a", dated.clone())).await["added"], 1);
    let nested =
        json!({"created_at": "2025-01-01T00:00:00Z", "consent": {"at": "2025-03-01T10:00:00Z", "source": "checkout"}});
    assert_eq!(import_line(&api, line("b", nested)).await["added"], 1);
    assert_eq!(import_line(&api, line("c", json!({"consent": true}))).await["added"], 1);
    let all = api.get("/subscriptions").await.ok(200);
    let shown: Vec<_> = all["data"].as_array().unwrap().iter().map(|it| (&it["consent"], &it["created_at"])).collect();
    let consent = json!({"at": "2025-03-01T10:00:00Z", "source": "checkout"});
    assert_eq!(
        shown,
        [
            (&Value::Null, &json!(START)),
            (&consent, &json!("2025-01-01T00:00:00Z")),
            (&consent, &json!("2025-03-01T10:00:00Z"))
        ]
    );
    for (more, field) in [
        (json!({"consent_at": "2028-01-01T00:00:00Z"}), "consent_at"),
        (json!({"consent_source": "x".repeat(201)}), "consent_source"),
    ] {
        let read = import_line(&api, line("d", more)).await;
        assert_eq!((&read["warned"], &read["warnings"][0]["field"]), (&json!(1), &json!(field)), "{read}");
    }
}
