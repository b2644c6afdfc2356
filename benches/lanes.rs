//! Many lanes with little work beside one-time codes: apps with ten VAPID keys and four gateways per key, all due at the same moment.
//! Measures the total time, the cost per delivery when most claims return one or two rows, and the effect on the codes. `scripts/bench
//! lanes`
//!
//! `LANES` (10,000) in apps of 40, `EACH` (2) deliveries in each. Codes go at `RATE` (100) a second to another app, from a second
//! before the lanes begin until they are done. Ends with an error if a delivery is missing or comes twice.

use std::time::{Duration, Instant};

use bellwire_core::id::{AppId, MessageId};
use serde_json::{Value, json};

use crate::support::codes::{self, Sent};
use crate::support::cpu::per;
use crate::support::harness::{Harness, notice};
use crate::support::seed::{GATEWAYS, Seeder};
use crate::support::setting;
use crate::support::table::{Bar, figure, heading, number, percentiles};

const KEYS_PER_APP: u32 = 10;
/// Subscribers of the app that sends codes; the simulator records the requests of one in a hundred.
const CODES_TO: u32 = 10_000;
/// First number of the simulated browsers for codes; no other app uses this range.
const CODES_FROM: u32 = 100_000_000;
const HEAD_START: Duration = Duration::from_secs(1);

pub async fn run() {
    let (lanes, each, rate) = (setting("LANES", 10_000), setting("EACH", 2), setting("RATE", 100));
    let harness = Harness::open().await;
    let seeder = Seeder::start(&harness.pool, &harness.vault).await;
    let codes_app = harness.app("codes").await;
    let to = seeder.subscribe(codes_app, CODES_FROM..CODES_FROM + CODES_TO).await.sampled;
    let apps = seed_apps(&harness, &seeder, lanes, each).await;
    seeder.finish().await;
    let deliveries = u32::try_from(apps.len()).expect("fewer") * KEYS_PER_APP * GATEWAYS * each;
    let lanes = deliveries / each;

    // Held back, so that all of it becomes due at once.
    flow(&harness, &apps, "pause").await;
    let mut messages = Vec::new();
    for app in &apps {
        messages.push(harness.send(*app, &notice()).await);
    }
    let received = harness.received().await;
    let (done, until_done) = tokio::sync::watch::channel(false);
    let all = async {
        tokio::time::sleep(HEAD_START).await;
        let (before, began) = (harness.usage(), Instant::now());
        flow(&harness, &apps, "resume").await;
        wait_for(&harness, &messages).await;
        let (took, usage) = (began.elapsed(), harness.usage() - before);
        done.send_replace(true);
        (took, usage)
    };
    let sending = async {
        let mut sent = Vec::new();
        while !*until_done.borrow() {
            sent.extend(codes::send(&harness, codes_app, &to, rate, 1).await);
        }
        sent
    };
    let ((took, usage), sent) = tokio::join!(all, sending);
    let mut arrived = codes::arrivals(&harness, &sent).await;
    let came = harness.received().await - received;
    assert_eq!(came, u64::from(deliveries) + sent.len() as u64, "taken by the simulator");

    heading(&format!(
        "{} lanes of {} apps with {each} deliveries each, beside {} codes at {rate}/s",
        number(lanes.into()),
        apps.len(),
        sent.len()
    ));
    figure("Until all are delivered and written down", took.as_secs_f64(), "s", Bar::None);
    figure("Deliveries per second", f64::from(deliveries) / took.as_secs_f64(), "/s", Bar::None);
    figure("Server, CPU per delivery, codes included", per(usage.server, deliveries), "µs", Bar::None);
    figure("Postgres, CPU per delivery, codes included", per(usage.postgres, deliveries), "µs", Bar::None);
    percentiles("A code, request to POST at the gateway", &mut arrived, [Bar::AtMost(5.0), Bar::AtMost(50.0)]);
    let mut answered: Vec<f64> = sent.iter().map(Sent::answered_within_ms).collect();
    percentiles("A code, request to the API's answer", &mut answered, [Bar::None; 2]);
}

/// Makes apps with ten keys, each with subscribers at every gateway.
async fn seed_apps(harness: &Harness, seeder: &Seeder<'_>, lanes: u32, each: u32) -> Vec<AppId> {
    let (mut apps, mut number) = (Vec::new(), 0);
    for n in 0..lanes.div_ceil(KEYS_PER_APP * GATEWAYS) {
        let app = harness.app(&format!("app-{n}")).await;
        for key in 0..KEYS_PER_APP {
            if key > 0 {
                harness.api.post(&format!("/v1/apps/{app}/vapid-keys"), &json!({})).await;
            }
            seeder.subscribe(app, number..number + GATEWAYS * each).await;
            number += GATEWAYS * each;
        }
        apps.push(app);
    }
    apps
}

/// Pauses the flow of each app, or resumes it.
async fn flow(harness: &Harness, apps: &[AppId], turn: &str) {
    for app in apps {
        harness.api.post(&format!("/v1/apps/{app}/flow/{turn}"), &Value::Null).await;
    }
}

async fn wait_for(harness: &Harness, messages: &[MessageId]) {
    for message in messages {
        harness.wait_for(*message).await;
    }
}
