//! Effects of orders, expiry and failures on campaigns in progress.

use axum::http::Method;
use bellwire::testkit::server::campaigns;
use futures_util::future::{Either, select};
use serde_json::{Value, json};
use std::time::Duration;

use crate::support::app::{DAY, scalar, until_waiting};
use crate::support::campaigns::{HOUR, MINUTE, accepted, advance, create, order, plan, run_scheduler, show, started};
use crate::support::database::until_stored;
use crate::support::engine::until_changes_read;
use crate::support::{START, TestApp, seed};

async fn look(app: &TestApp) {
    campaigns::advance(&app.pool, &app.vault, &app.clock).await.expect("the database answers");
}

/// Holds the push service, or releases it. The engine knows it afterwards: what is made from now on is sent under the new state.
async fn turn_gateway(app: &TestApp, verb: &str) {
    let gateway = format!("/v1/gateways/{}/{verb}", app.lane("fcm").await);
    app.operate(Method::POST, &gateway, Value::Null).await.ok(200);
    until_changes_read(app).await;
}

async fn execute(app: &TestApp, sql: &'static str) {
    sqlx::raw_sql(sql).execute(&app.pool).await.expect("the statement is right");
}

fn two_variants() -> Value {
    json!([{"name": "a", "message": {}}, {"name": "b", "message": {}}])
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_campaign_cancels_a_message_being_made() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..3).await;
    turn_gateway(&app, "hold").await;
    started(&app, plan("spring", json!({"pace": {"per_minute": 60}}))).await;
    // The step gets as far as its message, and no further.
    let mut other = app.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE campaigns_in_motion IN SHARE MODE").execute(&mut *other).await.unwrap();
    let cancelled = async {
        until_waiting(&app.pool, 1).await;
        order(&app, "spring", "cancel").await.ok(200)["state"].clone()
    };
    let let_go = async {
        until_waiting(&app.pool, 2).await;
        other.rollback().await.unwrap();
    };
    let ((), state, ()) = tokio::join!(look(&app), cancelled, let_go);
    assert_eq!(state, "cancelled");
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM messages WHERE state = 'cancelled'").await, 1);
    turn_gateway(&app, "release").await;
    for _ in 0..10 {
        app.advance(Duration::from_secs(1)).await;
    }
    assert_eq!(accepted(&show(&app, "spring").await), 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn last_of_two_concurrent_orders_wins() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..300).await;
    turn_gateway(&app, "hold").await;
    let variants: Vec<Value> = (0..8).map(|n| json!({"name": n.to_string(), "message": {}})).collect();
    started(&app, plan("spring", json!({"variants": variants}))).await;
    look(&app).await;
    // A pause of its messages is blocked at the first one.
    let mut other = app.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM messages FOR UPDATE").execute(&mut *other).await.unwrap();
    let paused = async { order(&app, "spring", "pause").await.ok(200) };
    let resumed = async {
        until_waiting(&app.pool, 1).await;
        order(&app, "spring", "resume").await.ok(200)
    };
    let let_go = async {
        until_waiting(&app.pool, 2).await;
        other.rollback().await.unwrap();
    };
    let _ = tokio::join!(paused, resumed, let_go);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM messages WHERE state = 'paused'").await, 0);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM campaigns WHERE unsteered").await, 0);
    turn_gateway(&app, "release").await;
    run_scheduler(&app).await;
    assert_eq!(accepted(&show(&app, "spring").await), 300);
    app.finish().await;
}

#[tokio::test]
async fn repeated_order_waits_for_its_messages() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..3).await;
    turn_gateway(&app, "hold").await;
    started(&app, plan("spring", json!({}))).await;
    look(&app).await;
    for (broken_off, verb, followed) in [
        (
            "UPDATE campaigns SET state = 'paused', next_at = NULL, unsteered = true",
            "pause",
            "SELECT count(*) FROM messages WHERE state = 'paused'",
        ),
        (
            "UPDATE campaigns SET state = 'cancelled', next_at = NULL, unsteered = true",
            "cancel",
            "SELECT count(*) FROM messages WHERE state = 'cancelled'",
        ),
    ] {
        // As a request leaves it that ended once its order was written down.
        execute(&app, broken_off).await;
        order(&app, "spring", verb).await.ok(200);
        assert_eq!(scalar(&app.pool, followed).await, 1, "{verb}");
        assert_eq!(scalar(&app.pool, "SELECT count(*) FROM campaigns WHERE unsteered").await, 0, "{verb}");
    }
    turn_gateway(&app, "release").await;
    run_scheduler(&app).await;
    assert_eq!(accepted(&show(&app, "spring").await), 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_survives_a_client_that_disconnects() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..3).await;
    turn_gateway(&app, "hold").await;
    started(&app, plan("spring", json!({}))).await;
    look(&app).await;
    let mut other = app.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM messages FOR UPDATE").execute(&mut *other).await.unwrap();
    {
        let (paused, waiting) =
            (std::pin::pin!(order(&app, "spring", "pause")), std::pin::pin!(until_waiting(&app.pool, 1)));
        assert!(matches!(select(paused, waiting).await, Either::Right(_)), "it is held up at the message");
    }
    other.rollback().await.unwrap();
    until_stored(&app, "SELECT count(*) FROM campaigns WHERE state = 'paused' AND NOT unsteered").await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM messages WHERE state = 'paused'").await, 1);
    order(&app, "spring", "cancel").await.ok(200);
    turn_gateway(&app, "release").await;
    run_scheduler(&app).await;
    app.finish().await;
}

#[tokio::test]
async fn failing_step_blocks_no_other_campaign() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..2).await;
    started(&app, plan("broken", json!({}))).await;
    execute(
        &app,
        "DO $$ BEGIN EXECUTE format('ALTER TABLE campaign_runs ADD CONSTRAINT broken CHECK (campaign <> %L)',
           (SELECT id FROM campaigns)); END $$",
    )
    .await;
    app.clock.advance(Duration::from_secs(1));
    started(&app, plan("fine", json!({}))).await;
    run_scheduler(&app).await;
    assert_eq!([accepted(&show(&app, "broken").await), accepted(&show(&app, "fine").await)], [0, 2]);
    execute(&app, "ALTER TABLE campaign_runs DROP CONSTRAINT broken").await;
    advance(&app, MINUTE).await;
    assert_eq!(accepted(&show(&app, "broken").await), 2);
    app.finish().await;
}

#[tokio::test]
async fn test_is_decided_after_a_message_expired() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..40).await;
    let test = json!({"share": 0.5, "after": 3600, "otherwise": "first"});
    started(&app, plan("spring", json!({"variants": two_variants(), "test": test}))).await;
    run_scheduler(&app).await;
    execute(&app, "DELETE FROM campaign_parts WHERE part = 1").await;
    advance(&app, HOUR).await;
    assert_eq!(accepted(&show(&app, "spring").await), 40);
    app.finish().await;
}

#[tokio::test]
async fn a_pause_does_not_shorten_a_test() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..40).await;
    let test = json!({"share": 0.5, "after": 3600, "otherwise": "first"});
    started(&app, plan("spring", json!({"variants": two_variants(), "test": test}))).await;
    run_scheduler(&app).await;
    let tested = accepted(&show(&app, "spring").await);
    assert!((1..40).contains(&tested), "{tested}");
    advance(&app, HOUR / 2).await;
    order(&app, "spring", "pause").await.ok(200);
    advance(&app, 3 * HOUR).await;
    order(&app, "spring", "resume").await.ok(200);
    advance(&app, HOUR / 2 - MINUTE).await;
    assert_eq!(accepted(&show(&app, "spring").await), tested, "half an hour of its time was left");
    advance(&app, MINUTE).await;
    assert_eq!(accepted(&show(&app, "spring").await), 40);
    app.finish().await;
}

#[tokio::test]
async fn zero_ttl_ends_with_its_campaign() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..3).await;
    let at_once = json!({"to": {"all": true}, "content": {"title": "Now"}, "ttl": 0});
    let brief = json!({"message": at_once, "expires_at": json!(START + HOUR / 2)});
    // A hold lasts an hour.
    turn_gateway(&app, "hold").await;
    started(&app, plan("held", brief.clone())).await;
    started(&app, plan("paused", brief)).await;
    run_scheduler(&app).await;
    order(&app, "paused", "pause").await.ok(200);
    advance(&app, HOUR / 2).await;
    // A step that meets the engine at work is undone, and made again seconds later.
    for _ in 0..10 {
        advance(&app, MINUTE).await;
        if show(&app, "held").await["progress"]["total"]["cancelled"] == 3 {
            break;
        }
    }
    assert_eq!(order(&app, "paused", "resume").await.ok(409)["code"], "campaign_past");
    assert_eq!(order(&app, "paused", "cancel").await.ok(200)["state"], "cancelled");
    turn_gateway(&app, "release").await;
    run_scheduler(&app).await;
    advance(&app, MINUTE).await;
    for (slug, state) in [("held", "done"), ("paused", "cancelled")] {
        let campaign = show(&app, slug).await;
        let total = &campaign["progress"]["total"];
        assert_eq!((&total["accepted"], &total["cancelled"]), (&json!(0), &json!(3)), "{campaign}");
        assert_eq!(campaign["state"], state);
    }
    // Of what expires within a second nothing is made: its messages would be sent whenever they could.
    let end = app.clock.now() + Duration::from_millis(900);
    started(&app, plan("late", json!({"expires_at": json!(end)}))).await;
    run_scheduler(&app).await;
    let late = show(&app, "late").await;
    assert_eq!((&late["state"], &late["progress"]["total"]["targeted"]), (&json!("done"), &json!(0)));
    app.finish().await;
}

#[tokio::test]
async fn order_reaches_messages_made_much_earlier() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..3).await;
    turn_gateway(&app, "hold").await;
    started(&app, plan("spring", json!({}))).await;
    look(&app).await;
    let copies = "INSERT INTO messages SELECT (jsonb_populate_record(m, jsonb_build_object('id',
        'ffffffff-0000-7000-8000-' || lpad(to_hex(n), 12, '0')))).* FROM messages m, generate_series(1, 2100) n";
    execute(&app, copies).await;
    order(&app, "spring", "cancel").await.ok(200);
    let waiting = "SELECT count(*) FROM messages m WHERE state <> 'cancelled'
        AND (EXISTS (SELECT FROM queue WHERE message = m.id) OR EXISTS (SELECT FROM cursors WHERE message = m.id))";
    assert_eq!(scalar(&app.pool, waiting).await, 0);
    execute(&app, "DELETE FROM messages WHERE id > 'ffffffff-0000-0000-0000-000000000000'").await;
    turn_gateway(&app, "release").await;
    run_scheduler(&app).await;
    assert_eq!(accepted(&show(&app, "spring").await), 0);
    app.finish().await;
}

#[tokio::test]
async fn follow_up_of_recurring_campaign_uses_one_run() {
    let app = TestApp::start().await; // at 08:00 UTC
    app.subscribe("fcm", 0..2).await;
    started(&app, plan("daily", json!({"schedule": {"cron": "0 9 * * *", "timezone": "UTC"}}))).await;
    run_scheduler(&app).await;
    advance(&app, HOUR).await;
    advance(&app, HOUR).await;
    let after = json!({"campaign": "daily", "did_not": "click", "after": 3 * 86_400});
    let slug = started(&app, plan("reminder", json!({"follows": after}))).await;
    for _ in 0..2 {
        advance(&app, DAY).await;
    }
    advance(&app, 22 * HOUR).await;
    assert_eq!(accepted(&show(&app, &slug).await), 0, "two days and 23 hours after the run before it was started");
    advance(&app, HOUR).await;
    assert_eq!(accepted(&show(&app, &slug).await), 2);
    app.finish().await;
}

#[tokio::test]
async fn follow_up_ends_with_a_never_run_campaign() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    for slug in ["first", "second"] {
        started(&app, plan(slug, json!({"schedule": {"at": json!(START + HOUR)}}))).await;
        let follows = json!({"campaign": slug, "did_not": "click", "after": 86_400});
        started(&app, plan(&format!("after-{slug}"), json!({"follows": follows}))).await;
    }
    run_scheduler(&app).await;
    assert_eq!(show(&app, "after-first").await["state"], "scheduled");
    for slug in ["first", "second"] {
        order(&app, slug, "cancel").await.ok(200);
    }
    app.call(Method::DELETE, "/v1/apps/shop/campaigns/second", Value::Null).await.ok(204);
    advance(&app, MINUTE).await;
    for slug in ["after-first", "after-second"] {
        let over = show(&app, slug).await;
        assert_eq!((&over["state"], &over["next_at"], accepted(&over)), (&json!("done"), &Value::Null, 0), "{slug}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_is_repeated_after_a_deadlock() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..2).await;
    // Postgres ends the one that waits first, unless it was too slow to see both wait.
    for _ in 0..10 {
        if deletion_was_repeated(&app).await {
            return app.finish().await;
        }
    }
    panic!("the deletion was never the one that Postgres ended");
}

/// Deletes a campaign while another transaction locks its parts in the opposite order, as retention may. Returns whether Postgres
/// ended the deletion, not the other transaction.
async fn deletion_was_repeated(app: &TestApp) -> bool {
    started(app, plan("spring", json!({"variants": two_variants()}))).await;
    run_scheduler(app).await;
    advance(app, MINUTE).await;
    assert_eq!(show(app, "spring").await["state"], "done");
    let mut other = app.pool.begin().await.unwrap();
    let lock = "SELECT FROM campaign_parts WHERE campaign = (SELECT id FROM campaigns) AND part = $1 FOR UPDATE";
    sqlx::query(lock).bind(2).execute(&mut *other).await.unwrap();
    let deleted = app.call(Method::DELETE, "/v1/apps/shop/campaigns/spring", Value::Null);
    let block = async {
        until_waiting(&app.pool, 1).await;
        let survived = sqlx::query(lock).bind(1).execute(&mut *other).await.is_ok();
        other.rollback().await.unwrap();
        survived
    };
    let (deleted, survived) = tokio::join!(deleted, block);
    assert_eq!(deleted.status, 204, "{deleted:?}");
    survived
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_in_the_database_have_their_own_codes() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    create(&app, plan("spring", json!({}))).await;
    for (state, code) in [
        ("55P03", "database_conflict"),
        ("40P01", "database_conflict"),
        ("40001", "database_conflict"),
        ("57014", "database_timeout"),
        ("53300", "database_unavailable"),
        ("57P01", "database_unavailable"),
    ] {
        let fail = format!(
            "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '{state}'; END $$;
             CREATE OR REPLACE TRIGGER fail BEFORE DELETE ON campaigns FOR EACH ROW EXECUTE FUNCTION fail()"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(fail)).execute(&app.pool).await.unwrap();
        let refused = app.call(Method::DELETE, "/v1/apps/shop/campaigns/spring", Value::Null).await.ok(503);
        assert_eq!(refused["code"], code, "{state}");
    }
    app.finish().await;
}
