//! Messages for later cost nothing until they are due: CPU time of an idle server and its Postgres, without and with a million
//! scheduled messages to single people. `scripts/bench scheduled`
//!
//! `SCHEDULED` messages (1,000,000) to `N` subscriptions (10,000), for `SECONDS` each (60).

use std::time::{Duration, Instant};

use bellwire::testkit::model::clock::Clock;
use bellwire::testkit::model::id::AppId;
use chrono::TimeDelta;
use serde_json::json;

use crate::support::harness::Harness;
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{seed, setting};

/// Messages of a request.
const BATCH: usize = 1_000;
/// How long the server is left alone before it is measured.
const SETTLES_FOR: Duration = Duration::from_secs(10);
/// How long vacuum may take for what was written before, at most.
const VACUUMED_WITHIN: Duration = Duration::from_secs(300);

pub async fn run() {
    let (n, seconds) = (setting("SCHEDULED", 1_000_000), setting("SECONDS", 60));
    let harness = Harness::open().await;
    let app = harness.app("scheduled").await;
    let audience = seed::subscriptions(&harness.pool, &harness.vault, app, setting("N", 10_000)).await;
    let before = at_rest(&harness, seconds).await;
    let began = Instant::now();
    schedule(&harness, app, &audience.all, n as usize).await;
    let rate = f64::from(n) / began.elapsed().as_secs_f64();
    let after = at_rest(&harness, seconds).await;
    heading(&format!("An idle server without and with {} messages for later", number(n.into())));
    figure("Scheduled per second", rate, "/s", Bar::None);
    figure("Server, CPU in a second without", before.0, "ms", Bar::None);
    figure("Server, CPU in a second with", after.0, "ms", Bar::AtMost(before.0 * 1.05 + 0.5));
    figure("Postgres, CPU in a second without", before.1, "ms", Bar::None);
    figure("Postgres, CPU in a second with", after.1, "ms", Bar::AtMost(before.1 * 1.05 + 0.5));
}

/// CPU milliseconds that server and Postgres use in a second in which nothing happens.
async fn at_rest(harness: &Harness, seconds: u32) -> (f64, f64) {
    settle(harness).await;
    let before = harness.usage();
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let used = harness.usage() - before;
    let ms = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(seconds.max(1));
    (ms(used.server), ms(used.postgres))
}

/// Does now what would be done later for what was written: that is what scheduling costs, and no part of waiting.
async fn settle(harness: &Harness) {
    let mut connection = harness.pool.acquire().await.expect("a connection");
    for statement in ["SET statement_timeout = 0", "VACUUM ANALYZE", "CHECKPOINT", "RESET statement_timeout"] {
        sqlx::query(statement).execute(&mut *connection).await.expect("maintenance");
    }
    tokio::time::sleep(SETTLES_FOR).await;
    let is_vacuumed = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'autovacuum worker')";
    let began = Instant::now();
    while !sqlx::query_scalar::<_, bool>(is_vacuumed).fetch_one(&harness.pool).await.expect("an answer") {
        assert!(began.elapsed() < VACUUMED_WITHIN, "vacuum does not end");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Schedules messages to single subscriptions, over the days of the next month.
async fn schedule(harness: &Harness, app: AppId, to: &[bellwire::testkit::model::id::SubscriptionId], n: usize) {
    let path = format!("/v1/apps/{app}/messages/batch");
    let tomorrow = Clock::system().now() + TimeDelta::days(1);
    for first in (0..n).step_by(BATCH) {
        let message = |i: usize| {
            let send_at = tomorrow + TimeDelta::seconds(i64::try_from(i % 2_500_000).unwrap_or(0));
            json!({"to": {"subscriptions": [to[i % to.len()]]}, "content": {"title": "Remember"}, "send_at": send_at,
                "key": format!("reminder-{i}")})
        };
        let messages: Vec<_> = (first..n.min(first + BATCH)).map(message).collect();
        let sent = harness.api.post(&path, &json!({"messages": messages})).await;
        assert_eq!(sent["refused"], 0, "{sent}");
    }
}
