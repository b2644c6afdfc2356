//! Lists and figures as CSV and NDJSON, by `Accept`.

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::{Value, json};

use crate::support::api::{Reply, TestApi, content, fcm};

async fn accepting(api: &TestApi, path: &str, media_type: &str) -> Reply {
    let request = Request::get(format!("/v1/apps/shop{path}"))
        .header(header::AUTHORIZATION, format!("Bearer {}", api.key))
        .header(header::ACCEPT, media_type);
    api.send(request.body(Body::empty()).unwrap()).await
}

fn text(reply: &Reply) -> String {
    String::from_utf8(reply.body.to_vec()).unwrap()
}

#[tokio::test]
async fn list_is_written_as_a_table() {
    let api = TestApi::start().await;
    api.subscribe(&fcm("ann"), json!({})).await;
    api.put("/segments/formula", json!({"expression": "tag('a')", "description": "=1+1, \"x\""})).await.ok(201);
    let csv = accepting(&api, "/segments", "text/csv, */*;q=0.1").await;
    assert_eq!((csv.status, csv.header("content-type")), (200, "text/csv; charset=utf-8"));
    let (csv, row) = (text(&csv), "\"'=1+1, \"\"x\"\"\"");
    assert!(csv.starts_with("changed_at,created_at,description,expression,name\n") && csv.contains(row), "{csv}");
    let lines = accepting(&api, "/segments", "application/x-ndjson").await;
    assert_eq!(lines.header("content-type"), "application/x-ndjson");
    let line: Value = serde_json::from_str(text(&lines).trim_end()).unwrap();
    assert_eq!(line["description"], "=1+1, \"x\"");

    api.post("/messages", json!({"to": {"all": true}, "content": content()})).await.ok(202);
    api.post("/messages", json!({"to": {"all": true}, "content": content()})).await.ok(202);
    let page = accepting(&api, "/messages?limit=1", "text/csv").await;
    assert!(page.header("link").contains("rel=\"next\""), "which leads to the next page");
    assert!(text(&page).lines().next().unwrap().contains("progress.targeted"), "{}", text(&page));
}

#[tokio::test]
async fn figures_and_variants_are_tables() {
    let api = TestApi::start().await;
    let chart = accepting(&api, "/metrics?measures=accepted,dead&step=1m", "text/csv").await;
    let chart = text(&chart);
    assert_eq!(chart.lines().next(), Some("metrics.accepted,metrics.dead,time_bucket"));
    assert_eq!(chart.lines().count(), 61, "{chart}");
    let variant = |name: &str| json!({"name": name, "message": {"content": {"title": name}}});
    let variants = [variant("a"), variant("b")];
    let plan = json!({"slug": "spring", "message": {"to": {"all": true}, "content": content()}, "variants": variants});
    api.post("/campaigns", plan).await.ok(201);
    let table = text(&accepting(&api, "/campaigns/spring/variants", "text/csv").await);
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.lines().next().unwrap().contains("counts.targeted,"), "{table}");
    let one = text(&accepting(&api, "/campaigns/spring", "application/x-ndjson").await);
    assert_eq!(one.lines().count(), 1);
}

#[tokio::test]
async fn refusals_and_other_types_stay_json() {
    let api = TestApi::start().await;
    let refused = accepting(&api, "/messages?limit=0", "text/csv").await;
    assert_eq!((refused.status, refused.header("content-type")), (400, "application/problem+json"));
    for media_type in ["*/*", "application/json, text/csv", "text/html"] {
        assert_eq!(accepting(&api, "/messages", media_type).await.header("content-type"), "application/json");
    }
}
