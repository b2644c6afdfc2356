//! Races of events with due messages, and of replicas: every person gets one message or none, and the counts add up.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::server::triggers;
use serde_json::{Value, json};

use super::{counts, did, report, start, start_reminder};
use crate::support::TestApp;
use crate::support::app::scalar;
use crate::support::campaigns::{MINUTE, run_scheduler};

const ROUNDS: i64 = 500;
const SECOND: Duration = Duration::from_secs(1);

async fn send_due(app: &TestApp) {
    // A step that meets a lock leaves the rest to the next look.
    triggers::send_due(&app.pool, &app.vault, &app.clock).await.expect("the database answers");
}

/// Starts a reminder that is due after a second.
async fn start_soon(app: &TestApp, slug: &str) {
    start(app, slug, json!({"on": "event:cart_added", "after": "1s", "unless": "event:bought"}), json!({})).await;
}

/// Event of this round.
fn event(name: &str, round: i64) -> Value {
    json!([{"id": format!("{name}-{round}"), "name": name, "user_id": "ann"}])
}

/// Messages of the campaigns.
async fn messages(app: &TestApp) -> i64 {
    scalar(&app.pool, "SELECT count(*) FROM messages WHERE campaign IS NOT NULL").await
}

#[tokio::test]
async fn committed_purchase_always_prevents_the_reminder() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    start_soon(&app, "reminder").await;
    for round in 1..=ROUNDS {
        report(&app, event("cart_added", round)).await.ok(200);
        app.clock.advance(SECOND);
        tokio::join!(report(&app, event("bought", round)), send_due(&app), send_due(&app));
        send_due(&app).await;
        let [entered, waiting, cancelled, .., sent] = counts(&app, "reminder").await;
        assert_eq!((entered, waiting, cancelled + sent), (round, 0, round));
        assert_eq!(messages(&app).await, sent, "no message of a cancelled entry, and one of each other");
    }
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test]
async fn replicas_send_each_message_once() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    start_soon(&app, "reminder").await;
    for round in 1..=ROUNDS {
        // The same batch twice at once, as after a lost response.
        let events = event("cart_added", round);
        let (first, second) = tokio::join!(report(&app, events.clone()), report(&app, events));
        let recorded = [first, second].map(|reply| reply.ok(200)["recorded"].as_i64().unwrap());
        assert_eq!(recorded.iter().sum::<i64>(), 1);
        app.clock.advance(SECOND);
        tokio::join!(send_due(&app), send_due(&app), send_due(&app));
        send_due(&app).await;
        assert_eq!(counts(&app, "reminder").await, [round, 0, 0, 0, 0, 0, 0, round]);
        assert_eq!(messages(&app).await, round);
    }
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test]
async fn cancelled_campaign_sends_nothing_more() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    for round in 1..=ROUNDS {
        let slug = format!("reminder-{round}");
        start_soon(&app, &slug).await;
        report(&app, event("cart_added", round)).await.ok(200);
        app.clock.advance(SECOND);
        let path = format!("/v1/apps/shop/campaigns/{slug}/cancel");
        let cancel = app.call(Method::POST, &path, Value::Null);
        let (cancelled, ()) = tokio::join!(cancel, send_due(&app));
        cancelled.ok(200);
        let made = messages(&app).await;
        send_due(&app).await;
        assert_eq!(messages(&app).await, made);
    }
    for _ in 0..3 {
        app.sweep().await;
        app.run_until_idle().await;
    }
    let sent = scalar(&app.pool, "SELECT sum(sent)::bigint FROM trigger_counts").await;
    assert_eq!((messages(&app).await, counts(&app, "reminder-1").await[1]), (sent, 0));
    app.finish().await;
}

#[tokio::test]
async fn failed_transaction_leaves_the_person_waiting() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    start_reminder(&app, json!({})).await;
    did(&app, "ann", "cart_added").await;
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
