//! Withdrawals while servers are killed.

use std::time::SystemTime;

use axum::http::Method;
use serde_json::json;

use super::{Push, pushes, shows_nothing, withdraw};
use bellwire_simulator::gateways::{Rule, RuleAction};

use crate::support::app::{PATIENCE, Subscriber};
use crate::support::database::until_stored;
use crate::support::engine::{expire_leases, without_engine};
use crate::support::simulator_rules::{held, hold_after, release, until_report};
use crate::support::{Server, TestApp, seed_together};

/// More than become rows of the queue at once.
const BROWSERS: u32 = 120;
const ROUNDS: u64 = 8;
/// Time after the response in which a POST of a withdrawn message may start.
const BOUND_MS: i64 = 1_000;
const IDLE: &str = "SELECT ((SELECT count(*) FROM withdrawals WHERE ended_at IS NULL) + (SELECT count(*) FROM cursors)
                          + (SELECT count(*) FROM batches) + (SELECT count(*) FROM queue) = 0)::int::bigint";

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("milliseconds")
}

/// Time of the last request with this title that a push service accepted.
fn last_shown_ms(app: &TestApp, subscribers: &[Subscriber], title: &str) -> Option<i64> {
    let of =
        |subscriber: &Subscriber| app.simulator.received(&subscriber.endpoint).expect("a browser of the simulator");
    let is_shown = |plaintext: &[u8]| {
        let push: serde_json::Value = serde_json::from_slice(plaintext).expect("JSON");
        push["notification"]["title"] == title && push["notification"]["data"]["bellwire"]["withdraws"].is_null()
    };
    let all = subscribers.iter().flat_map(of).filter(|delivery| delivery.plaintext.as_deref().is_some_and(is_shown));
    all.flat_map(|delivery| delivery.attempts).filter(|attempt| attempt.status == Some(201)).map(|it| it.at_ms).max()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_shown_after_kills_and_withdrawals() {
    let app = without_engine().await;
    let subscribers = seed_together(&app, "fcm", 0..BROWSERS).await;
    let mut servers = vec![Server::start(&app).await, Server::start(&app).await];
    let mut shown = 0;
    for round in 0..ROUNDS {
        let title = format!("Round {round}");
        let before = app.simulator.report().accepted;
        let id = app.send(json!({"all": true}), json!({"content": {"title": title}})).await;
        // From before the first push to after the last.
        until_report(&app, |report| report.accepted >= before + round * u64::from(BROWSERS) / (ROUNDS - 1)).await;
        withdraw(&app, &id).await.ok(200);
        let answered_ms = now_ms();
        // The other one goes on.
        servers.remove(0).kill().await;
        expire_leases(&app.pool).await;
        servers.push(Server::start(&app).await);
        until_stored(&app, IDLE).await;
        let last_ms = last_shown_ms(&app, &subscribers, &title);
        shown += u32::from(last_ms.is_some());
        let late_ms = last_ms.map_or(0, |last_ms| last_ms - answered_ms);
        assert!(late_ms <= BOUND_MS, "round {round}: a POST {late_ms} ms after the response");
        for subscriber in &subscribers {
            let pushes: Vec<Push> = pushes(&app, subscriber);
            assert!(shows_nothing(&pushes), "round {round}: {} pushes", pushes.len());
        }
        let withdrawn = app.call(Method::GET, &format!("/v1/apps/shop/messages/{id}"), json!(null)).await.ok(200);
        assert!(withdrawn["counts"]["withdrawal"]["ended_at"].is_string(), "{withdrawn}");
        app.message(&id).await; // which checks the sum of its counts
    }
    assert!(shown > 0, "some were sent before");
    for server in servers {
        server.terminate();
        assert!(server.end(PATIENCE).await.success());
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn throttled_batch_of_a_killed_server_is_removed() {
    let app = without_engine().await;
    let subscribers = seed_together(&app, "fcm", 0..300).await;
    let rules = hold_after(&app, 60);
    let server = Server::start(&app).await;
    let id = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| report.accepted >= 60 && held(report) >= 30).await;
    server.kill().await;
    // The pushes arrive, and the next server that has the batch is refused.
    release(&app, rules);
    let throttled = app.simulator.add_rule(Rule::always(RuleAction::Throttled { retry_after_s: Some(5) })).unwrap();
    expire_leases(&app.pool).await;
    let server = Server::start(&app).await;
    let is_queued = "SELECT (NOT EXISTS (SELECT FROM batches) AND EXISTS (SELECT FROM queue))::int::bigint";
    until_stored(&app, is_queued).await;
    withdraw(&app, &id).await.ok(200);
    assert!(app.simulator.remove_rule(throttled));
    until_stored(&app, IDLE).await;
    let all: Vec<Vec<Push>> = subscribers.iter().map(|subscriber| pushes(&app, subscriber)).collect();
    assert!(all.iter().filter(|pushes| !pushes.is_empty()).count() >= 90);
    assert!(all.iter().all(|pushes| shows_nothing(pushes)));
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}
