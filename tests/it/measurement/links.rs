use axum::http::Method;
use serde_json::{Value, json};

use super::{measure, receipt};
use crate::support::TestApp;
use crate::support::campaigns::{plan, run_scheduler, started};

#[tokio::test]
async fn receipts_answer_with_link_parameters() {
    let app = TestApp::start().await;
    let ann = app.subscribe("fcm", 0..1).await.remove(0);
    measure(&app, json!({"window": null, "link_tags": {"hosts": ["Shop.example", "*.shop.example"]}})).await;
    let variants = json!([{"name": "a", "message": {}}, {"name": "b", "message": {}}]);
    let own = json!({"utm_medium": "app", "ref": "{campaign}"});
    started(&app, plan("spring", json!({"variants": variants, "link_parameters": own}))).await;
    run_scheduler(&app).await;
    let answer = receipt(&app, &ann, "displayed").await.ok(200);
    let parameters = &answer["link_tags"]["parameters"];
    assert_eq!(answer["link_tags"]["hosts"], json!(["shop.example", "*.shop.example"]));
    let variant = parameters["utm_content"].as_str().unwrap();
    assert!(["a", "b"].contains(&variant));
    let expected = json!({"utm_source": "push", "utm_medium": "app", "utm_campaign": "spring", "utm_content": variant,
        "ref": "spring"});
    assert_eq!(parameters, &expected);
    assert_eq!(receipt(&app, &ann, "displayed").await.ok(200), answer, "a repeat gets the same");
    receipt(&app, &ann, "clicked").await.ok(204);
    app.finish().await;
}

#[tokio::test]
async fn messages_without_campaign_get_what_applies() {
    let app = TestApp::start().await;
    let ann = app.subscribe("fcm", 0..1).await.remove(0);
    measure(&app, json!({"link_tags": {"hosts": ["shop.example"], "parameters": {"a": "{campaign}", "b": "push"}}}))
        .await;
    app.send(json!({"subscriptions": [ann.id]}), json!({})).await;
    app.run_until_idle().await;
    let answer = receipt(&app, &ann, "displayed").await.ok(200);
    assert_eq!(answer["link_tags"]["parameters"], json!({"b": "push"}));
    app.finish().await;
}

#[tokio::test]
async fn apps_without_link_tags_get_no_content() {
    let app = TestApp::start().await;
    let ann = app.subscribe("fcm", 0..1).await.remove(0);
    measure(&app, json!({})).await;
    app.send(json!({"subscriptions": [ann.id]}), json!({})).await;
    app.run_until_idle().await;
    receipt(&app, &ann, "displayed").await.ok(204);
    app.call(Method::DELETE, "/v1/apps/shop/measurement", Value::Null).await.ok(204);
    let none = json!({"window": null, "after": "clicked", "attribution": "last", "link_tags": null});
    assert_eq!(app.get("/v1/apps/shop/measurement").await, none);
    app.finish().await;
}
