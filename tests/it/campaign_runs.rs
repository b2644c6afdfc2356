//! Results of each run of a recurring campaign, beside their sum.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::app::DAY;
use crate::support::campaigns::{HOUR, advance, create, order, plan, show, started};
use crate::support::json::assert_members;

/// Reports displays and clicks of so many deliveries of a run, past the API.
async fn click(app: &TestApp, run: i32, n: i64) {
    sqlx::query(
        "INSERT INTO receipt_counts (message, acknowledged, displayed, clicked)
         SELECT message, $2, $2, $2 FROM campaign_parts WHERE run = $1 ORDER BY part LIMIT 1
         ON CONFLICT (message) DO UPDATE SET clicked = excluded.clicked",
    )
    .bind(run)
    .bind(n)
    .execute(&app.pool)
    .await
    .unwrap();
}

async fn runs(app: &TestApp, query: &str) -> Value {
    app.get(&format!("/v1/apps/shop/campaigns/daily/runs{query}")).await
}

fn numbers(page: &Value) -> Vec<i64> {
    page["data"].as_array().unwrap().iter().map(|run| run["run"].as_i64().unwrap()).collect()
}

/// A daily campaign to 40 and then 60 browsers, whose first runs have clicks.
async fn daily() -> TestApp {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..40).await;
    started(&app, plan("daily", json!({"schedule": {"cron": "0 9 * * *", "timezone": "UTC"}}))).await;
    advance(&app, 2 * HOUR).await;
    click(&app, 1, 4).await;
    app.subscribe("fcm", 40..60).await;
    advance(&app, DAY).await;
    click(&app, 2, 30).await;
    app
}

#[tokio::test]
async fn run_figures_are_compared_with_the_previous() {
    let app = daily().await;
    let page = runs(&app, "").await;
    assert_eq!(numbers(&page), [2, 1], "the latest first");
    let [second, first] = &page["data"].as_array().unwrap()[..] else { panic!("{page}") };
    for (run, targeted, clicked) in [(second, 60, 30), (first, 40, 4)] {
        assert_eq!(
            (&run["total"]["targeted"], &run["total"]["accepted"]),
            (&json!(targeted), &json!(targeted)),
            "{run}"
        );
        assert_eq!(run["reports"]["clicked"], clicked, "{run}");
        assert_eq!(run["variants"][0]["counts"]["accepted"], targeted, "{run}");
        assert_eq!((&run["messages"], &run["messages_to_make"]), (&json!(1), &json!(0)), "{run}");
    }
    assert_eq!(first["before"], Value::Null);
    let before = &second["before"];
    assert_members(before, json!({"run": 1, "targeted": 20, "accepted": 20}));
    let near = |value: &Value, to: f64| (value.as_f64().unwrap() - to).abs() < 1e-3;
    assert!(near(&before["click_rate"], 0.4) && before["higher"].as_f64().unwrap() > 0.99, "{before}");
    assert_eq!(&app.get("/v1/apps/shop/campaigns/daily/runs/2").await, second);
    let whole = show(&app, "daily").await;
    assert_eq!(whole["progress"]["total"]["accepted"], 100, "the sum of both: {whole}");
    assert_eq!(app.get(whole["links"]["runs"].as_str().unwrap()).await, page);
    app.finish().await;
}

#[tokio::test]
async fn runs_are_paged_and_missing_ones_404() {
    let app = daily().await;
    advance(&app, DAY).await;
    let first = runs(&app, "?limit=2").await;
    assert_eq!(numbers(&first), [3, 2]);
    let next = format!("?limit=2&iterator={}", first["iterator"].as_str().unwrap());
    let second = runs(&app, &next).await;
    assert_eq!((numbers(&second), &second["done"]), (vec![1], &json!(true)));
    let back = runs(&app, &format!("?limit=2&iterator={}", second["prev_iterator"].as_str().unwrap())).await;
    assert_eq!(back["data"], first["data"]);
    for (run, status) in [("4", 404), ("0", 400), ("x", 400), ("4294967296", 400)] {
        let path = format!("/v1/apps/shop/campaigns/daily/runs/{run}");
        assert_eq!(app.call(Method::GET, &path, Value::Null).await.status, status, "{run}");
    }
    app.finish().await;
}

#[tokio::test]
async fn run_without_receipts_shows_unknown() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..2).await;
    let mut silent = plan("daily", json!({}));
    silent["message"] = json!({"to": {"all": true}, "payload": "for our own handler", "envelope": false});
    create(&app, silent).await;
    order(&app, "daily", "start").await.ok(200);
    advance(&app, HOUR).await;
    let page = runs(&app, "").await;
    assert_eq!(
        (&page["data"][0]["reports"], &page["data"][0]["total"]["accepted"]),
        (&Value::Null, &json!(2)),
        "{page}"
    );
    app.finish().await;
}
