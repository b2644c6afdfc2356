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
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bellwire::id::{AppId, MessageId, SubscriptionId};
use bellwire::webpush::payload::delivery_id;
use serde_json::json;
use support::stage::{Stage, notice};
use support::table::{Bar, figure, heading, number};
use support::{seed, setting};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

const PER_SECOND: u32 = 200;
/// The campaign has found its speed by then.
const HEAD_START: Duration = Duration::from_secs(2);

fn main() {
    support::run(latency());
}

/// One single send.
struct Sent {
    message: MessageId,
    to: SubscriptionId,
    asked_ms: f64,
    answered_ms: f64,
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
        let sent = send_singles(&stage, app, &audience.sampled, seconds).await;
        (sent, stage.received().await - before, floor.join().expect("the disk takes it"))
    };
    // The campaigns never end by themselves.
    let (sent, received, mut floor) = tokio::select! {
        measured = single_sends => measured,
        () = campaigns(&stage, app, "promotional") => unreachable!("campaigns go on for ever"),
        () = campaigns(&stage, app, "engagement") => unreachable!("campaigns go on for ever"),
    };
    let mut answered: Vec<f64> = sent.iter().map(|sent| sent.answered_ms - sent.asked_ms).collect();
    let mut arrived = arrivals(&stage, &sent).await;
    let beside = number(f64::from(u32::try_from(received).expect("fewer")) / f64::from(seconds));
    heading(&format!(
        "{} single sends at {PER_SECOND}/s, beside two campaigns: {beside} deliveries/s in all",
        sent.len()
    ));
    report("Request to POST at the gateway", &mut arrived, [Bar::AtMost(5.0), Bar::AtMost(50.0)]);
    report("Request to the API's answer", &mut answered, [Bar::None; 2]);
    report("Floor: a few octets made durable", &mut floor, [Bar::None; 2]);
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

/// Sends at a steady rate, whether or not earlier requests were answered.
async fn send_singles(stage: &Stage, app: AppId, to: &[SubscriptionId], seconds: u32) -> Vec<Sent> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut requests = JoinSet::new();
    for subscription in to.iter().copied().cycle().take((PER_SECOND * seconds) as usize) {
        ticks.tick().await;
        let api = stage.api.clone();
        requests.spawn(async move {
            let content = json!({"title": "Your code is 123 456", "body": "It is good for ten minutes."});
            let to = json!({"subscriptions": [subscription]});
            let asked_ms = now_ms();
            let body = json!({"to": to, "tier": "transactional", "content": content});
            let taken = api.post(&format!("/v1/apps/{app}/messages"), &body).await;
            let message = taken["id"].as_str().and_then(|id| id.parse().ok()).expect("a message's id");
            Sent { message, to: subscription, asked_ms, answered_ms: now_ms() }
        });
    }
    requests.join_all().await
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

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64() * 1e3
}

/// From each request until its POST was there, by the simulator's records, in ms. These know whole milliseconds, of which
/// the middle is taken.
async fn arrivals(stage: &Stage, sent: &[Sent]) -> Vec<f64> {
    for sent in sent {
        stage.wait_for(sent.message).await;
    }
    let mut arrivals = Vec::with_capacity(sent.len());
    for Sent { message, to, asked_ms, .. } in sent {
        let id = URL_SAFE_NO_PAD.encode(delivery_id(&stage.vault, *message, to.0));
        let found = stage.gateways.get(&format!("/received?id={id}")).await;
        assert_eq!(found[0]["accepted"], 1, "{message} to {to} arrives exactly once");
        let at_ms = found[0]["attempts"][0]["at_ms"].as_f64().expect("a time");
        arrivals.push(at_ms + 0.5 - asked_ms);
    }
    arrivals
}

fn report(name: &str, ms: &mut [f64], [p50, p99]: [Bar; 2]) {
    ms.sort_by(f64::total_cmp);
    let at = |share: usize| ms[(ms.len() - 1) * share / 100];
    figure(&format!("{name}, p50"), at(50), "ms", p50);
    figure(&format!("{name}, p99"), at(99), "ms", p99);
    figure(&format!("{name}, max"), at(100), "ms", Bar::None);
}
