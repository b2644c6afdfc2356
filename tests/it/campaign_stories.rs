//! Explanations of deliveries outside a campaign's audience: zones, and the audience of follow-ups.

use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::app::{DAY, Subscriber};
use crate::support::campaigns::{HOUR, advance, plan, run_scheduler, show, started};

/// Why a message was not for a subscription, which it must not have been.
async fn why(app: &TestApp, message: &str, to: &Subscriber) -> Value {
    let story = app.get(&format!("/v1/apps/shop/messages/{message}/deliveries/{}/explain", to.id)).await;
    let told = story["story"].as_array().unwrap().iter().find(|told| told["code"] == "not_targeted");
    told.unwrap_or_else(|| panic!("{story:#}")).clone()
}

/// The messages of an app that have been made, the oldest first.
async fn messages(app: &TestApp) -> Vec<String> {
    let page = app.get("/v1/apps/shop/messages?limit=250").await;
    page["data"].as_array().unwrap().iter().rev().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn local_time_story_names_the_later_zone() {
    let app = TestApp::start().await; // on a Friday, at 08:00 UTC
    let tokyo = app.subscribe_with("fcm", 0..1, json!({"timezone": "Asia/Tokyo"})).await.remove(0);
    let lima = app.subscribe_with("fcm", 1..2, json!({"timezone": "America/Lima"})).await.remove(0);
    let unknown = app.subscribe("fcm", 2..3).await.remove(0);
    let zones = json!({"at": "2027-01-15T18:00", "timezone": "recipient", "past": "skip"});
    started(&app, plan("around", json!({"schedule": zones}))).await;
    run_scheduler(&app).await;
    advance(&app, 2 * HOUR).await;
    // Messages are due before there are any of zones in the west: of those in the east the last is that of Tokyo.
    let mut of_tokyo = None;
    for message in messages(&app).await {
        let story = app.get(&format!("/v1/apps/shop/messages/{message}/deliveries/{}/explain", tokyo.id)).await;
        if story["state"] == "accepted" {
            of_tokyo = Some(message);
        }
    }
    let of_tokyo = of_tokyo.expect("it is 19:00 in Tokyo");
    let told = why(&app, &of_tokyo, &lima).await;
    assert_eq!(
        (&told["facts"]["timezone"], &told["facts"]["due_at"]),
        (&json!("America/Lima"), &json!("2027-01-15T23:00:00Z"))
    );
    let told = why(&app, &of_tokyo, &unknown).await;
    assert_eq!((&told["facts"]["timezone"], &told["facts"]["due_at"]), (&Value::Null, &json!("2027-01-15T18:00:00Z")));
    app.finish().await;
}

#[tokio::test]
async fn follow_up_story_names_its_audience() {
    let app = TestApp::start().await;
    let both = app.subscribe("fcm", 0..2).await;
    let (clicked, silent) = (&both[0], &both[1]);
    started(&app, plan("spring", json!({}))).await;
    run_scheduler(&app).await;
    sqlx::query(
        "INSERT INTO receipts (message, subscription, shard, kind, at)
         SELECT m.id, s.id, s.shard, 2, $2 FROM messages m, subscriptions s WHERE s.id = $1",
    )
    .bind(clicked.id.parse::<bellwire_core::id::SubscriptionId>().unwrap().0)
    .bind(app.clock.now())
    .execute(&app.pool)
    .await
    .unwrap();
    let follows = json!({"follows": {"campaign": "spring", "did_not": "click", "after": 3600}});
    started(&app, plan("again", follows)).await;
    let late = app.subscribe("fcm", 2..3).await.remove(0);
    advance(&app, DAY).await;
    assert_eq!(show(&app, "again").await["progress"]["total"]["accepted"], 1, "{} has not clicked", silent.id);
    let message = messages(&app).await.pop().unwrap();
    for (to, received, did) in [(clicked, true, true), (&late, false, false)] {
        let told = why(&app, &message, to).await;
        let facts = json!({"follows": "spring", "did_not": "click", "received": received, "did": did});
        assert_eq!(told["facts"], facts, "{told}");
    }
    sqlx::query("DELETE FROM receipts").execute(&app.pool).await.unwrap();
    app.finish().await;
}
