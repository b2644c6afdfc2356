//! How long a one-time code takes while campaigns of both other tiers run: from the request to the REST API until its POST has arrived at
//! the gateway. `cargo bench --bench latency`
//!
//! `N` subscribers of the campaigns (100,000), sent to again and again; `SECONDS` (20) of single sends at 200/s, to
//! subscribers of the same lanes. Beside it runs a floor: as often, a few octets are appended to a file on the same disk and
//! made durable, which each send has to do at least once before it is answered. Ends with an error if one of the codes does
//! not arrive exactly once.
#![allow(clippy::print_stdout, reason = "a benchmark's table is its result")]

mod support;

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use bellwire::id::AppId;
use serde_json::json;
use support::codes::{self, Sent};
use support::stage::{Stage, notice};
use support::table::{Bar, heading, number, percentiles};
use support::{seed, setting};

const PER_SECOND: u32 = 200;
/// The campaign has found its speed by then.
const HEAD_START: Duration = Duration::from_secs(2);

fn main() {
    support::run(latency());
}

async fn latency() {
    let (n, seconds) = (setting("N", 100_000), setting("SECONDS", 20));
    let stage = Stage::open().await;
    let app = stage.app("latency").await;
    let audience = seed::subscriptions(&stage.pool, &stage.vault, app, n).await;
    let single_sends = async {
        tokio::time::sleep(HEAD_START).await;
        let before = stage.received().await;
        let floor = std::thread::spawn({
            let file = stage.directory().join("floor");
            move || write_durably(&file, PER_SECOND * seconds)
        });
        let sent = codes::send(&stage, app, &audience.sampled, PER_SECOND, seconds).await;
        (sent, stage.received().await - before, floor.join().expect("the disk takes it"))
    };
    // The campaigns never end by themselves.
    let (sent, received, mut floor) = tokio::select! {
        measured = single_sends => measured,
        () = campaigns(&stage, app, "promotional") => unreachable!("campaigns go on for ever"),
        () = campaigns(&stage, app, "engagement") => unreachable!("campaigns go on for ever"),
    };
    let mut answered: Vec<f64> = sent.iter().map(Sent::answered_within_ms).collect();
    let mut arrived = codes::arrivals(&stage, &sent).await;
    let beside = number(f64::from(u32::try_from(received).expect("fewer")) / f64::from(seconds));
    heading(&format!(
        "{} single sends at {PER_SECOND}/s, beside two campaigns: {beside} deliveries/s in all",
        sent.len()
    ));
    percentiles("Request to POST at the gateway", &mut arrived, [Bar::AtMost(5.0), Bar::AtMost(50.0)]);
    percentiles("Request to the API's answer", &mut answered, [Bar::None; 2]);
    percentiles("Floor: a few octets made durable", &mut floor, [Bar::None; 2]);
}

/// Sends to everybody, and again as soon as the last page is cut.
async fn campaigns(stage: &Stage, app: AppId, tier: &str) {
    let mut body = notice();
    body["tier"] = json!(tier);
    loop {
        let message = stage.send(app, &body).await;
        while stage.is_expanding(message).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Appends to a file and makes it durable, at the rate of the sends; how long each time took, in ms.
fn write_durably(file: &Path, times: u32) -> Vec<f64> {
    let mut file = File::create(file).expect("a file beside Postgres's");
    let began = Instant::now();
    (0..times)
        .map(|n| {
            std::thread::sleep(
                (began + Duration::from_secs(1) / PER_SECOND * n).saturating_duration_since(Instant::now()),
            );
            let began = Instant::now();
            file.write_all(&[0; 200]).and_then(|()| file.sync_data()).expect("the disk takes it");
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect()
}
