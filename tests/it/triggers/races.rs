//! Races of events with due messages, and of replicas: every person gets one message or none, and the counts add up.

use axum::http::Method;
use bellwire::testkit::server::triggers;
use serde_json::{Value, json};

use super::{counts, did, report, start_reminder};
use crate::support::TestApp;
use crate::support::app::scalar;
use crate::support::campaigns::{MINUTE, run_scheduler};

const ROUNDS: u32 = 500;
/// People in one race.
const PEOPLE: u32 = 20;

async fn send_due(app: &TestApp) {
    // A step that meets a lock leaves the rest to the next look.
    triggers::send_due(&app.pool, &app.vault, &app.clock).await.expect("the database answers");
}

async fn with_people(app: &TestApp) {
    for index in 0..PEOPLE {
        app.subscribe_with("fcm", index..index + 1, json!({"user_id": format!("u{index}")})).await;
    }
}

/// Events of all people.
fn all_did(name: &str, round: u32) -> Value {
    (0..PEOPLE)
        .map(|n| json!({"id": format!("{name}-{round}-{n}"), "name": name, "user_id": format!("u{n}")}))
        .collect()
}

/// Messages of the campaign.
async fn messages(app: &TestApp) -> i64 {
    scalar(&app.pool, "SELECT count(*) FROM messages WHERE campaign IS NOT NULL").await
}

#[tokio::test]
async fn committed_purchase_always_prevents_the_reminder() {
    let app = TestApp::start().await;
    with_people(&app).await;
    start_reminder(&app, json!({})).await;
    for round in 0..ROUNDS / PEOPLE {
        report(&app, all_did("cart_added", round)).await.ok(200);
        app.clock.advance(30 * MINUTE);
        let before = counts(&app, "reminder").await;
        tokio::join!(report(&app, all_did("bought", round)), send_due(&app), send_due(&app));
        send_due(&app).await;
        let [_, waiting, cancelled, .., sent] = counts(&app, "reminder").await;
        assert_eq!(waiting, 0);
        assert_eq!(cancelled + sent, before[2] + before[7] + i64::from(PEOPLE));
        assert_eq!(messages(&app).await, sent, "no message of a cancelled entry, and one of each other");
    }
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test]
async fn replicas_send_each_message_once() {
    let app = TestApp::start().await;
    with_people(&app).await;
    start_reminder(&app, json!({})).await;
    for round in 0..ROUNDS / PEOPLE {
        // The same batch twice at once, as after a lost response.
        let events = all_did("cart_added", round);
        let (first, second) = tokio::join!(report(&app, events.clone()), report(&app, events));
        let recorded = [first, second].map(|reply| reply.ok(200)["recorded"].as_i64().unwrap());
        assert_eq!(recorded.iter().sum::<i64>(), i64::from(PEOPLE));
        app.clock.advance(30 * MINUTE);
        tokio::join!(send_due(&app), send_due(&app), send_due(&app));
        send_due(&app).await;
        let sent = i64::from(PEOPLE * (round + 1));
        assert_eq!(counts(&app, "reminder").await, [sent, 0, 0, 0, 0, 0, 0, sent]);
        assert_eq!(messages(&app).await, sent);
    }
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test]
async fn cancelled_campaign_sends_nothing_more() {
    for _ in 0..10 {
        let app = TestApp::start().await;
        with_people(&app).await;
        start_reminder(&app, json!({})).await;
        report(&app, all_did("cart_added", 0)).await.ok(200);
        app.clock.advance(30 * MINUTE);
        let cancel = app.call(Method::POST, "/v1/apps/shop/campaigns/reminder/cancel", Value::Null);
        let (cancelled, ()) = tokio::join!(cancel, send_due(&app));
        cancelled.ok(200);
        let made = messages(&app).await;
        run_scheduler(&app).await;
        app.sweep().await;
        assert_eq!(messages(&app).await, made);
        assert_eq!(counts(&app, "reminder").await[7], made);
        app.run_until_idle().await;
        app.finish().await;
    }
}

#[tokio::test]
async fn failed_transaction_leaves_the_person_waiting() {
    let app = TestApp::start().await;
    with_people(&app).await;
    start_reminder(&app, json!({})).await;
    did(&app, "u1", "cart_added").await;
    app.clock.advance(30 * MINUTE);
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'crash'; END $$;
         CREATE TRIGGER refused BEFORE INSERT ON queue FOR EACH ROW EXECUTE FUNCTION refuse()";
    sqlx::raw_sql(refuse).execute(&app.pool).await.unwrap();
    send_due(&app).await;
    assert_eq!(counts(&app, "reminder").await, [1, 1, 0, 0, 0, 0, 0, 0]);
    sqlx::raw_sql("DROP TRIGGER refused ON queue; DROP FUNCTION refuse").execute(&app.pool).await.unwrap();
    app.clock.advance(2 * MINUTE);
    run_scheduler(&app).await;
    assert_eq!(counts(&app, "reminder").await, [1, 0, 0, 0, 0, 0, 0, 1]);
    app.finish().await;
}
