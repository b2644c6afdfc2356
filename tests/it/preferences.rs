//! Hosted preferences of a user: a page behind a link, without a login.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::TestApp;
use crate::support::app::{DAY, pointers, scalar};

struct Page {
    status: u16,
    headers: axum::http::HeaderMap,
    html: String,
}

async fn request(app: &TestApp, request: Request<Body>) -> Page {
    let response = app.router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let html = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    Page { status: parts.status.as_u16(), headers: parts.headers, html }
}

async fn open(app: &TestApp, link: &str, language: &str) -> Page {
    let asked = Request::get(link).header(header::ACCEPT_LANGUAGE, language).body(Body::empty());
    request(app, asked.unwrap()).await
}

async fn submit(app: &TestApp, link: &str, form: &str) -> Page {
    let asked = Request::post(link).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    request(app, asked.body(Body::from(form.to_owned())).unwrap()).await
}

async fn link(app: &TestApp, user: &str, more: Value) -> String {
    let made = app.call(Method::POST, &format!("/v1/apps/shop/users/{user}/preferences-link"), more).await.ok(200);
    made["link"].as_str().unwrap().to_owned()
}

/// An app with two offered topics and a user with two browsers.
async fn start() -> (TestApp, [String; 2]) {
    let app = TestApp::start().await;
    for (name, display) in [
        ("news", json!({"title": "News & <more>", "texts": {"de": {"title": "Neuigkeiten"}}})),
        ("offers", json!({"title": "Offers"})),
    ] {
        app.call(Method::PUT, &format!("/v1/apps/shop/topics/{name}"), json!({"display": display})).await;
    }
    let of_ann = json!({"user_id": "ann", "topics": ["news", "orders"]});
    let browsers = app.subscribe_with("fcm", 0..2, of_ann).await;
    app.subscribe_with("fcm", 2..3, json!({"user_id": "ben", "topics": ["news"]})).await;
    (app, [0, 1].map(|n| browsers[n].id.clone()))
}

async fn subscription(app: &TestApp, id: &str) -> Value {
    app.get(&format!("/v1/apps/shop/subscriptions/{id}")).await
}

#[tokio::test]
async fn user_chooses_topics_and_frequency_for_all_browsers() {
    let (app, browsers) = start().await;
    let link = link(&app, "ann", json!({})).await;
    let page = open(&app, &link, "xx, de-AT;q=0.9, en").await;
    assert_eq!(page.status, 200, "{}", page.html);
    assert!(page.html.contains("Neuigkeiten") && page.html.contains("Nur wichtige"), "{}", page.html);
    let policy = page.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(page.headers[header::CACHE_CONTROL], "no-store");
    assert_eq!(page.headers[header::REFERRER_POLICY], "no-referrer");
    assert!(!link.contains("ann"), "the user is sealed: {link}");

    let saved = submit(&app, &link, "form=1&topic_before=news&topic=offers&topic=staff&pause=1").await;
    assert_eq!(saved.status, 303);
    let to = saved.headers[header::LOCATION].to_str().unwrap().to_owned();
    let page = open(&app, &format!("/preferences/{to}"), "en").await;
    assert!(page.html.contains("Saved.") && page.html.contains("News &amp; &lt;more&gt;"), "{}", page.html);
    let until = app.clock.now() + 7 * DAY;
    for id in &browsers {
        let row = subscription(&app, id).await;
        assert_eq!((&row["topics"], &row["muted"]), (&json!(["offers", "orders"]), &json!({"until": until})));
    }
    // A pause that is under way keeps its end.
    app.clock.advance(DAY);
    submit(&app, &link, "form=1&topic_before=offers&topic=offers&pause_before=1&pause=1").await;
    assert_eq!(subscription(&app, &browsers[0]).await["muted"], json!({"until": until}));
    submit(&app, &link, "form=1&topic_before=offers&pause_before=1&important=1").await;
    let row = subscription(&app, &browsers[1]).await;
    assert_eq!((&row["topics"], &row["muted"]), (&json!(["orders"]), &json!({"until": null})));
    app.finish().await;
}

#[tokio::test]
async fn user_unsubscribes_and_downloads_without_login() {
    let (app, browsers) = start().await;
    let link = link(&app, "ann", json!({"locale": "fr", "data": true})).await;
    let data = open(&app, &format!("{link}/data"), "en").await;
    let data: Value = serde_json::from_str(&data.html).unwrap();
    assert_eq!((&data["user_id"], data["subscriptions"].as_array().unwrap().len()), (&json!("ann"), 2));
    let response = submit(&app, &link, "List-Unsubscribe=One-Click").await;
    assert_eq!((response.status, response.headers.get(header::LOCATION)), (200, None), "no redirect (RFC 8058)");
    for id in &browsers {
        assert_eq!(subscription(&app, id).await["state"], "unsubscribed");
    }
    let page = open(&app, &link, "en").await;
    assert!(page.html.contains("lang=\"fr\"") && !page.html.contains("<form"), "{}", page.html);
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["targeted"], 1, "the other user is still subscribed");
    app.finish().await;
}

#[tokio::test]
async fn saving_keeps_choices_of_single_browsers() {
    let (app, browsers) = start().await;
    let link = link(&app, "ann", json!({})).await;
    let change = |id: &str, body: Value| {
        let path = format!("/v1/apps/shop/subscriptions/{id}");
        let app = &app;
        async move { app.call(Method::PATCH, &path, body).await.ok(200) }
    };
    change(&browsers[0], json!({"muted": {}, "topics": []})).await;
    let page = open(&app, &link, "en").await;
    assert!(
        page.html.contains("name=\"topic_before\" value=\"news\"") && !page.html.contains("before=\"pause"),
        "{}",
        page.html
    );
    submit(&app, &link, "form=1&topic_before=news&topic=news&topic=offers").await;
    let [phone, laptop] = [subscription(&app, &browsers[0]).await, subscription(&app, &browsers[1]).await];
    assert_eq!((&phone["topics"], &phone["muted"]), (&json!(["offers"]), &json!({"until": null})));
    assert_eq!((&laptop["topics"], &laptop["muted"]), (&json!(["news", "offers", "orders"]), &Value::Null));
    for foreign in ["", "topic=news", "------X\r\nContent-Disposition: form-data; name=\"form\"\r\n\r\n1"] {
        assert_eq!(submit(&app, &link, foreign).await.status, 422, "{foreign}");
    }
    assert_eq!(subscription(&app, &browsers[1]).await["topics"], laptop["topics"], "nothing was changed");
    assert_eq!(open(&app, &format!("{link}/data"), "en").await.status, 404, "the link offers no data");
    app.finish().await;
}

#[tokio::test]
async fn link_to_data_needs_the_right_to_export() {
    let app = TestApp::start().await;
    let body = json!({"name": "mailer", "scopes": ["subscribers"]});
    let key = app.call(Method::POST, "/v1/apps/shop/api-keys", body).await.ok(201);
    let key = key["secret"].as_str().unwrap().to_owned();
    let path = "/v1/apps/shop/users/ann/preferences-link";
    app.call_as(Method::POST, path, &key, json!({})).await.ok(200);
    let refused = app.call_as(Method::POST, path, &key, json!({"data": true})).await.ok(403);
    assert!(refused["detail"].as_str().unwrap().contains("export"), "{refused}");
    let logged = "SELECT count(*) FROM audit_log WHERE action = 'user.exported'";
    assert_eq!(scalar(&app.pool, logged).await, 0);
    app.call(Method::POST, path, json!({"data": true})).await.ok(200);
    assert_eq!(scalar(&app.pool, logged).await, 1);
    app.finish().await;
}

#[tokio::test]
async fn forged_and_expired_links_show_nothing() {
    let (app, _) = start().await;
    let good = link(&app, "ann", json!({"expires_in": "1h"})).await;
    let mut forged = good.clone();
    let last = if forged.ends_with('A') { 'B' } else { 'A' };
    forged.replace_range(forged.len() - 1.., &last.to_string());
    let mut other = good.clone();
    other.replace_range(20..21, if &good[20..21] == "x" { "y" } else { "x" });
    for bad in [forged.as_str(), other.as_str(), "/preferences/ann", &format!("/preferences/{}", "A".repeat(5_000))] {
        for page in [open(&app, bad, "en").await, submit(&app, bad, "unsubscribe=1").await] {
            assert_eq!(page.status, 404, "{bad}");
            assert!(page.html.contains("Ask the sender for a new one"), "{}", page.html);
        }
    }
    assert!(open(&app, "/preferences/ann", "ja").await.html.contains("期限切れ"));
    assert_eq!(open(&app, &good, "en").await.status, 200);
    app.clock.advance(Duration::from_secs(3_600));
    assert_eq!(open(&app, &good, "en").await.status, 404);
    assert_eq!(open(&app, &format!("{good}/data"), "en").await.status, 404);
    for (more, pointer) in [
        (json!({"expires_in": "367d"}), "/expires_in"),
        (json!({"expires_in": "soon"}), "/expires_in"),
        (json!({"locale": "no language!"}), "/locale"),
    ] {
        let path = "/v1/apps/shop/users/ann/preferences-link";
        assert_eq!(pointers(&app.call(Method::POST, path, more).await.ok(422)), [pointer]);
    }
    app.finish().await;
}

#[tokio::test]
async fn mail_programs_unsubscribe_in_several_parts() {
    let (app, browsers) = start().await;
    app.call(Method::PUT, "/v1/apps/shop/prompt", json!({"texts": {"de": {"preferences": "Unsere Post"}}}))
        .await
        .ok(200);
    let link = link(&app, "ann", json!({})).await;
    let page = open(&app, &link, "de").await;
    assert!(page.html.contains("Unsere Post") && page.html.contains("Nur wichtige"), "{}", page.html);
    // A suspended browser would get messages again after its next visit.
    let id = browsers[0].strip_prefix("sub_").unwrap();
    let suspend = format!("UPDATE subscriptions SET state = 'suspended', ended_at = now() WHERE id = '{id}'");
    sqlx::raw_sql(sqlx::AssertSqlSafe(suspend)).execute(&app.pool).await.unwrap();
    let body = "--x\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--x--\r\n";
    // Mail providers ask for many users from one address.
    for _ in 0..100 {
        let asked = Request::post(&link).header(header::CONTENT_TYPE, "multipart/form-data; boundary=x");
        let response = request(&app, asked.body(Body::from(body)).unwrap()).await;
        assert_eq!(response.status, 200, "{}", response.html);
    }
    for id in &browsers {
        assert_eq!(subscription(&app, id).await["state"], "unsubscribed");
    }
    app.finish().await;
}
