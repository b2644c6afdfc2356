//! Link checks: the status of a page, and no request to a private network.

use axum::http::Method;
use bellwire_core::lane::Gateway;
use serde_json::json;

use crate::support::TestApp;
use crate::support::app::Setup;
use crate::support::push_service::PushService;

const HOST: &str = "pages.example.test";
const CHECK: &str = "/v1/apps/shop/link-check";

async fn with_pages() -> (TestApp, PushService) {
    let pages = PushService::start(&[(HOST, Gateway::Other)]).await;
    let app = TestApp::with(Setup { others: (pages.hosts.clone(), pages.ca_pem.clone()), ..Setup::default() }).await;
    own(&app, &format!("https://{HOST}")).await;
    (app, pages)
}

/// Sets the only origin of the app.
async fn own(app: &TestApp, origin: &str) {
    app.operate(Method::PATCH, "/v1/apps/shop", json!({"origins": [origin]})).await.ok(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn link_check_reports_the_status() {
    let (app, pages) = with_pages().await;
    for status in [200, 404, 500] {
        pages.answer_next(&[status]);
        let url = format!("https://{HOST}/sale?a=b#top");
        let checked = app.call(Method::POST, CHECK, json!({"url": url})).await.ok(200);
        let expected = json!({"url": format!("https://{HOST}/sale?a=b"), "status": status, "failure": null});
        assert_eq!(checked, expected);
    }
    let asked = pages.pushed();
    assert_eq!((asked.len(), asked[0].path.as_str(), asked[0].body.len()), (3, "/sale?a=b", 0));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn link_check_asks_public_servers_only() {
    let (app, pages) = with_pages().await;
    for url in [
        "https://10.0.0.1/",
        "https://169.254.169.254/latest",
        "https://192.168.1.1/",
        "http://pages.example.test/",
        "ftp://x/",
        "https://fcm.googleapis.com/fcm/send/x",
    ] {
        let reply = app.call(Method::POST, CHECK, json!({"url": url})).await;
        assert_eq!((reply.status, &reply.json["errors"][0]["pointer"]), (422, &json!("/url")), "{url}: {}", reply.json);
    }
    // The operator has mapped the host to a private address, which is for the site of the host alone.
    own(&app, "https://shop.example.com").await;
    let mapped = app.call(Method::POST, CHECK, json!({"url": format!("https://{HOST}/")})).await;
    assert_eq!((mapped.status, &mapped.json["errors"][0]["pointer"]), (422, &json!("/url")), "{}", mapped.json);
    let read = app.call(Method::POST, "/v1/apps/shop/api-keys", json!({"name": "n", "scopes": ["read"]})).await.ok(201);
    let key = read["secret"].as_str().unwrap();
    let url = json!({"url": format!("https://{HOST}/")});
    assert_eq!(app.call_as(Method::POST, CHECK, key, url).await.status, 403, "only senders may check");
    assert_eq!(pages.pushed().len(), 0);
    app.finish().await;
}
