//! Shares of the tiers under scarcity: three campaigns to the same browsers, one of each tier, until the first ends. While all three have
//! work, deliveries are in the ratio 8 : 3 : 1. Either sealing is scarce (fast gateways) or the permits of lanes (slow gateways).
//! `scripts/bench tiers`
//!
//! `N` subscriptions (60,000). What it costs a one-time code to pass two campaigns is measured by `latency`.

use std::time::Duration;

use bellwire_core::id::{AppId, MessageId};
use serde_json::json;

use crate::support::harness::{Harness, notice};
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{seed, setting};

/// Shares of the tiers, in the order of their numbers.
const WEIGHTS: [f64; 3] = [8.0, 3.0, 1.0];
const TIERS: [&str; 3] = ["transactional", "promotional", "engagement"];
/// Delay of gateways in the permit case: the permits of a lane allow a tenth of the sealing rate.
const SLOW_MS: u32 = 200;

pub async fn run() {
    let n = setting("N", 60_000);
    let harness = Harness::open().await;
    let app = harness.app("tiers").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    share(&harness, app, n, "sealing is scarce").await;
    harness.gateways.post("/rules", &json!({"delay_ms": SLOW_MS, "action": "behave"})).await;
    share(&harness, app, n, "permits are scarce").await;
}

async fn share(harness: &Harness, app: AppId, n: u32, scarce: &str) {
    let mut messages = Vec::new();
    // The one with the greatest weight last, so that the others are under way when it begins.
    for tier in TIERS.into_iter().rev() {
        let mut body = notice();
        body["tier"] = json!(tier);
        messages.insert(0, harness.send(app, &body).await);
    }
    while harness.is_expanding(messages[0]).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for message in &messages {
        harness.wait_for(*message).await;
    }
    let counts = counts(harness, &messages).await;
    let all: f64 = counts.iter().sum();
    heading(&format!(
        "Three campaigns to {} at once while {scarce}: {} deliveries while all of them had work",
        number(n.into()),
        number(all)
    ));
    for ((tier, weight), count) in TIERS.into_iter().zip(WEIGHTS).zip(counts) {
        let wanted = weight / WEIGHTS.iter().sum::<f64>();
        let off = ((count / all / wanted) - 1.0).abs() * 100.0;
        figure(
            &format!("{tier}: {:.2} % of them, {:.2} % by weight; off by", count / all * 100.0, wanted * 100.0),
            off,
            "%",
            Bar::AtMost(5.0),
        );
    }
}

/// Deliveries accepted per message in the middle of the period in which the first message was active. The first and last tenth are
/// excluded, since not all messages may have had work.
async fn counts(harness: &Harness, messages: &[MessageId]) -> Vec<f64> {
    let ids: Vec<_> = messages.iter().map(|message| message.0).collect();
    let counts: Vec<i64> = sqlx::query_scalar(
        "WITH span AS (
             SELECT percentile_disc(0.1) WITHIN GROUP (ORDER BY at) AS a, percentile_disc(0.9) WITHIN GROUP (ORDER BY at) AS b
             FROM attempts WHERE message = $1)
         SELECT (SELECT count(*) FROM attempts, span WHERE message = m.id AND at BETWEEN span.a AND span.b)
         FROM unnest($2::uuid[]) WITH ORDINALITY AS m (id, place) ORDER BY m.place",
    )
    .bind(ids[0])
    .bind(&ids)
    .fetch_all(&harness.pool)
    .await
    .expect("the log of attempts");
    counts.into_iter().map(|n| n as f64).collect()
}
