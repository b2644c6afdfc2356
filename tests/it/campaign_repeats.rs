//! Campaign runs that are repeated because a restored backup or a failover has lost them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::app::{DAY, Subscriber};
use crate::support::campaigns::{HOUR, MINUTE, advance, order, plan, run_scheduler, show, started};
use crate::support::{START, TestApp};

/// Puts a campaign back to how it stood before its run, as a backup restored since has it.
async fn restore(app: &TestApp, slug: &str) {
    for statement in [
        "DELETE FROM campaign_runs WHERE campaign = (SELECT id FROM campaigns WHERE slug = $1)",
        "UPDATE campaigns c SET state = s.state, next_at = s.next_at, runs = s.runs, unsteered = s.unsteered
         FROM saved_campaigns s WHERE s.id = c.id AND c.slug = $1",
    ] {
        sqlx::query(statement).bind(slug).execute(&app.pool).await.unwrap();
    }
}

/// Returns the delivery ids that each browser received, with how often each was accepted.
fn received(app: &TestApp, people: &[Subscriber]) -> Vec<BTreeMap<String, u32>> {
    let of = |person: &Subscriber| {
        let all = app.simulator.received(&person.endpoint).unwrap_or_default().into_iter();
        all.map(|delivery| (delivery.id.expect("an envelope").into_string(), delivery.accepted)).collect()
    };
    people.iter().map(of).collect()
}

/// Lets a campaign run, forgets the run, and lets it run again later: both times each browser gets the same id.
async fn check(app: &TestApp, people: &[Subscriber], slug: &str, more: Value, passes: &[Duration]) {
    started(app, plan(slug, more)).await;
    sqlx::raw_sql("DROP TABLE IF EXISTS saved_campaigns; CREATE TABLE saved_campaigns AS TABLE campaigns")
        .execute(&app.pool)
        .await
        .unwrap();
    let run = async || {
        run_scheduler(app).await;
        for pass in passes {
            advance(app, *pass).await;
        }
    };
    let before = received(app, people);
    run().await;
    let once = received(app, people);
    restore(app, slug).await;
    advance(app, 7 * MINUTE).await;
    run().await;
    for ((before, once), twice) in before.iter().zip(&once).zip(&received(app, people)) {
        assert_eq!(once.len(), before.len() + 1, "{slug}: one delivery for each browser");
        assert!(once.keys().eq(twice.keys()), "{slug}: the repeat has the same ids: {once:?} {twice:?}");
        assert!(twice.iter().any(|(id, n)| !before.contains_key(id) && *n == 2), "{slug} ran twice: {twice:?}");
    }
    assert!(show(app, slug).await["runs"].as_i64() >= Some(1));
    order(app, slug, "cancel").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_run_keeps_its_delivery_ids() {
    let app = TestApp::start().await;
    let people = app.subscribe("fcm", 0..6).await;
    let variants = json!([{"name": "a", "message": {}}, {"name": "b", "message": {"content": {"title": "B"}}}]);
    let test = json!({"share": 0.5, "after": 3600});
    check(&app, &people, "now", json!({"variants": variants}), &[]).await;
    check(&app, &people, "at", json!({"schedule": {"at": json!(START + HOUR)}}), &[HOUR]).await;
    let zones = json!({"at": "2027-01-15T12:00", "timezone": "recipient", "past": "tomorrow"});
    check(&app, &people, "zones", json!({"schedule": zones}), &[4 * HOUR]).await;
    check(&app, &people, "test", json!({"variants": variants, "test": test}), &[HOUR]).await;
    let follows = json!({"campaign": "now", "did_not": "click", "after": 60});
    check(&app, &people, "follows", json!({"follows": follows}), &[MINUTE]).await;
    let cron = json!({"cron": "0 9 * * *", "timezone": "UTC"});
    check(&app, &people, "daily", json!({"schedule": cron}), &[13 * HOUR]).await; // not as far as the run after
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_recurring_run_has_its_own_ids() {
    let app = TestApp::start().await;
    let people = app.subscribe("fcm", 0..2).await;
    started(&app, plan("daily", json!({"schedule": {"cron": "0 9 * * *", "timezone": "UTC"}}))).await;
    for _ in 0..3 {
        advance(&app, DAY).await;
    }
    assert!(received(&app, &people).iter().all(|ids| ids.len() == 3));
    app.finish().await;
}
