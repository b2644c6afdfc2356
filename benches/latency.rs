//! Latency of one-time codes beside campaigns of both other tiers: from the request to the REST API until the POST arrives at the gateway.
//! `scripts/bench latency`
//!
//! `N` subscribers of the campaigns (100,000), sent to again and again; `SECONDS` (20) of single sends at 200/s, to
//! subscribers of the same lanes. Beside it runs a floor: as often, a bare client inserts and commits what a send does, on
//! the same Postgres. Ends with an error if one of the codes does not arrive exactly once.

use std::time::Duration;

use bellwire_core::id::AppId;
use serde_json::json;

use crate::support::codes::{self, Sent};
use crate::support::harness::{Harness, notice};
use crate::support::table::{Bar, heading, number, percentiles};
use crate::support::{seed, setting};

const PER_SECOND: u32 = 200;
/// Maximum latency at the 99th percentile, as a multiple of the bare client's commit.
const TIMES_BARE: f64 = 2.0;
/// Maximum median latency, in ms.
const P50_MS: f64 = 3.0;
const P99_MS: f64 = 20.0;
/// The campaign has found its speed by then.
const HEAD_START: Duration = Duration::from_secs(2);

pub async fn run() {
    let (n, seconds) = (setting("N", 100_000), setting("SECONDS", 20));
    let harness = Harness::open().await;
    let app = harness.app("latency").await;
    let audience = seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    let bare = harness.bare().await;
    let single_sends = async {
        tokio::time::sleep(HEAD_START).await;
        let before = harness.received().await;
        let (sent, floor) = tokio::join!(
            codes::send(&harness, app, &audience.sampled, PER_SECOND, seconds),
            bare.insert(PER_SECOND, seconds)
        );
        (sent, harness.received().await - before, floor)
    };
    // The campaigns never end by themselves.
    let (sent, received, mut floor) = tokio::select! {
        measured = single_sends => measured,
        () = campaigns(&harness, app, "promotional") => unreachable!("campaigns go on for ever"),
        () = campaigns(&harness, app, "engagement") => unreachable!("campaigns go on for ever"),
    };
    let mut answered: Vec<f64> = sent.iter().map(Sent::answered_within_ms).collect();
    let mut arrived = codes::arrivals(&harness, &sent).await;
    let beside = number(f64::from(u32::try_from(received).expect("fewer")) / f64::from(seconds));
    heading(&format!(
        "{} single sends at {PER_SECOND}/s, beside two campaigns: {beside} deliveries/s in all",
        sent.len()
    ));
    let floor = percentiles("Floor: a bare client's commit", &mut floor, [Bar::None; 2]);
    let bars = [Bar::AtMost(P50_MS), Bar::AtMost((floor * TIMES_BARE).max(P99_MS))];
    percentiles("Request to POST at the gateway", &mut arrived, bars);
    percentiles("Request to the API's answer", &mut answered, [Bar::None; 2]);
}

/// Sends to everybody, and again as soon as the last batch is taken.
async fn campaigns(harness: &Harness, app: AppId, tier: &str) {
    let mut body = notice();
    body["tier"] = json!(tier);
    loop {
        let message = harness.send(app, &body).await;
        while harness.is_expanding(message).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
