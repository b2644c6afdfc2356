//! Plans of campaigns: what is wrong is pointed to, and those in the guide are right.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::campaigns::{create, plan};

#[tokio::test]
async fn plan_faults_are_pointed_to_when_saved() {
    let app = TestApp::start().await;
    let two = json!([{"name": "a", "message": {}}, {"name": "b", "message": {}}]);
    for (more, pointer) in [
        (json!({"slug": "Spring"}), "/slug"),
        (json!({"message": {"to": {"all": true}, "content": {"title": ""}}}), "/message/content/title"),
        (json!({"message": {"to": {"topic": "a b"}, "content": {"title": "x"}}}), "/message/to/topic"),
        (json!({"message": {"to": {"users": ["ann"]}, "content": {"title": "x"}}}), "/message/to"),
        (json!({"message": {"to": {"all": true}, "content": {"title": "x"}, "key": "k"}}), "/message/key"),
        (
            json!({"variants": [{"name": "a", "message": {"content": {"title": ""}}}]}),
            "/variants/0/message/content/title",
        ),
        (json!({"variants": [{"name": "a", "message": {"to": {"all": true}}}]}), "/variants/0/message/to"),
        (json!({"variants": [{"name": "a", "message": {}}, {"name": "a", "message": {}}]}), "/variants/1/name"),
        (json!({"schedule": {}}), "/schedule"),
        (json!({"schedule": {"at": "2027-02-01T09:00"}}), "/schedule/at"),
        (json!({"schedule": {"at": "2020-02-01T09:00:00Z"}}), "/schedule/at"),
        (json!({"schedule": {"cron": "0 9 * *", "timezone": "UTC"}}), "/schedule/cron"),
        (json!({"schedule": {"cron": "*/4 * * * *", "timezone": "UTC"}}), "/schedule/cron"),
        (json!({"schedule": {"cron": "0 9 * * *"}}), "/schedule/timezone"),
        (json!({"schedule": {"at": "2027-02-01T09:00:00Z", "past": "skip"}}), "/schedule/past"),
        (json!({"pace": {}}), "/pace"),
        (json!({"pace": {"per_minute": 0}}), "/pace/per_minute"),
        (json!({"holdout": 0.6}), "/holdout"),
        (json!({"test": {"share": 0.2, "after": 3600}}), "/test"),
        (json!({"variants": two, "test": {"share": 0, "after": 3600}}), "/test/share"),
        (json!({"variants": two, "test": {"share": 0.2, "after": 1}}), "/test/after"),
        (json!({"follows": {"campaign": "nobody", "did_not": "click", "after": 3600}}), "/follows/campaign"),
        (json!({"expires_at": "2020-01-01T00:00:00Z"}), "/expires_at"),
        (json!({"shedule": {}}), "/shedule"),
    ] {
        let refused = app.call(Method::POST, "/v1/apps/shop/campaigns", plan("x", more.clone())).await.ok(422);
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{more}: {refused}");
    }
    let many = json!({
        "message": {"to": {"topic": "nwes"}, "content": {"title": "x"}},
        "schedule": {"cron": "0 25 * 13 *", "timezone": "Mars/Olympus"},
    });
    let refused = app.call(Method::POST, "/v1/apps/shop/campaigns", plan("x", many)).await.ok(422);
    let text = refused["errors"].to_string();
    for fault in [
        "the hour \\\"25\\\" must be 0 to 23; the month \\\"13\\\" must be 1 to 12",
        "must be an IANA time zone such as Europe/Vienna (found \\\"Mars/Olympus\\\")",
        "topic \\\"nwes\\\" does not exist in this app",
    ] {
        assert!(text.contains(fault), "{fault} in {text}");
    }
    create(&app, plan("taken", json!({}))).await;
    let again = app.call(Method::POST, "/v1/apps/shop/campaigns", plan("taken", json!({}))).await;
    assert_eq!(again.ok(409)["code"], "campaign_exists");
    app.finish().await;
}

#[tokio::test]
async fn guide_plans_are_accepted() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"topics": ["news"]})).await;
    let guide = [include_str!("../../docs/campaigns.md"), include_str!("../../docs/triggers.md")].concat();
    let whole = guide.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let typed = guide.split("<<'PLAN'\n").skip(1).filter_map(|rest| rest.split("\nPLAN").next());
    let plans: Vec<Value> = whole.chain(typed).map(|text| serde_json::from_str(text).expect("JSON")).collect();
    assert!(plans.len() >= 2);
    for (n, mut plan) in plans.into_iter().enumerate() {
        plan["slug"] = json!(format!("plan-{n}"));
        create(&app, plan).await;
    }
    // Schedules and paces stand in the text, each in its own backticks.
    for (member, beginning) in [("schedule", "`{\"at\""), ("schedule", "`{\"cron\"")] {
        for (n, rest) in guide.split(beginning).skip(1).enumerate() {
            let text = format!("{}{}", &beginning[1..], rest.split('`').next().unwrap());
            let value: Value = serde_json::from_str(&text).expect("JSON");
            create(&app, plan(&format!("said-{}-{n}", beginning.len()), json!({member: value}))).await;
        }
    }
    app.finish().await;
}
