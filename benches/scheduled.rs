//! Checks that scheduled messages cost nothing until they are due: CPU time of an idle server and its Postgres, with and without a million
//! scheduled messages to single people. `scripts/bench scheduled`
//!
//! `SCHEDULED` messages (1,000,000) to `N` subscriptions (10,000), for `SECONDS` each (60).

use std::time::{Duration, Instant};

use bellwire_core::clock::Clock;
use bellwire_core::id::AppId;
use chrono::TimeDelta;
use serde_json::json;

use crate::support::harness::Harness;
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{seed, setting};

/// Messages of a request.
const BATCH: usize = 1_000;

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
    harness.settle().await;
    let before = harness.usage();
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let used = harness.usage() - before;
    let ms = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(seconds.max(1));
    (ms(used.server), ms(used.postgres))
}

/// Schedules messages to single subscriptions, over the days of the next month.
async fn schedule(harness: &Harness, app: AppId, to: &[bellwire_core::id::SubscriptionId], n: usize) {
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
