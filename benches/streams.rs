//! Codes beside a campaign to a push service with few concurrent streams: 4 and 24 streams in total, on four connections, with a response
//! after 50 ms. `scripts/bench streams`. The gateway's records contain that delay, which is subtracted.
//!
//! `N` subscribers of the campaign (20,000), sent to again and again; `SECONDS` (20) of single sends at 5/s. A code takes the
//! stream that is kept for it, or waits for the next one: less than two answers in any case. Ends with an error if a code does
//! not arrive exactly once.

use std::time::Duration;

use bellwire_core::id::AppId;

use crate::support::codes;
use crate::support::harness::{Harness, notice};
use crate::support::table::{Bar, heading, number, percentiles};
use crate::support::{seed, setting};

const PER_SECOND: u32 = 5;
const ANSWER_MS: u32 = 50;
const P50_MS: f64 = 10.0;
const P99_MS: f64 = 100.0;
const HEAD_START: Duration = Duration::from_secs(2);

pub async fn run() {
    let (n, seconds) = (setting("N", 20_000), setting("SECONDS", 20));
    for (streams, per_connection) in [(4, "1"), (24, "6")] {
        let harness = Harness::before(&["--streams", per_connection, "--latency-ms", &ANSWER_MS.to_string()]).await;
        let app = harness.app("streams").await;
        let audience = seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
        let single_sends = async {
            tokio::time::sleep(HEAD_START).await;
            let before = harness.received().await;
            let sent = codes::send(&harness, app, &audience.sampled, PER_SECOND, seconds).await;
            (sent, harness.received().await - before)
        };
        let (sent, received) = tokio::select! {
            measured = single_sends => measured,
            () = campaign(&harness, app) => unreachable!("the campaign goes on for ever"),
        };
        let mut arrived = codes::arrivals(&harness, &sent).await;
        arrived.iter_mut().for_each(|ms| *ms -= f64::from(ANSWER_MS));
        let beside = number(f64::from(u32::try_from(received).expect("fewer")) / f64::from(seconds));
        heading(&format!(
            "Codes at {PER_SECOND}/s beside a campaign at {streams} streams: {beside} deliveries/s in all"
        ));
        percentiles("Request to POST at the gateway", &mut arrived, [Bar::AtMost(P50_MS), Bar::AtMost(P99_MS)]);
    }
}

/// Sends to everybody, and again as soon as the last message is fanned out.
async fn campaign(harness: &Harness, app: AppId) {
    loop {
        let message = harness.send(app, &notice()).await;
        while harness.is_expanding(message).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
