//! A campaign through the real server, over TLS, with durable outcomes: deliveries per second, and CPU per delivery of
//! server, Postgres and simulated gateways apart. `scripts/bench campaign`
//!
//! `N` subscriptions (200,000), `ROUNDS` campaigns (3), of which the median counts; `STOCK=1` on a Postgres
//! that plans by its default settings. Ends with an error if the account of
//! any of them does not add up.
//!
//! With AVX-512 IFMA, a second server that seals eight payloads at a time runs the same campaigns in turns with the first. The
//! benchmark prints the ratio of both.

use bellwire_core::id::AppId;
use bellwire_webpush::sealer::Sealer;

use crate::support::cpu::per;
use crate::support::harness::{Campaign, Harness, notice};
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{median, seed, setting};

/// Deliveries per second eight at a time, divided by those one at a time.
const ACCELERATED: Bar = Bar::AtLeast(1.7);

pub async fn run() {
    let (n, rounds) = (setting("N", 200_000), setting("ROUNDS", 3).max(1));
    let plain = Site::open(Harness::open().await, n).await;
    let accelerated = match Sealer::fastest().is_accelerated() {
        true => Some(Site::open(Harness::accelerated().await, n).await),
        false => None,
    };
    let (mut campaigns, mut others) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        campaigns.push(plain.harness.campaign(plain.app, n, &notice()).await);
        if let Some(Site { harness, app }) = &accelerated {
            others.push(harness.campaign(*app, n, &notice()).await);
        }
    }
    heading(&format!("A campaign to {} over four gateways, durable; the median of {rounds} rounds", number(n.into())));
    let rate = show(&campaigns);
    if accelerated.is_some() {
        heading(&format!("The same, sealed {}", Sealer::fastest()));
        let faster = show(&others) / rate;
        figure("eight at a time: deliveries per second, of one at a time", faster, "×", ACCELERATED);
    }
}

/// A server with an app whose subscriptions are there.
struct Site {
    harness: Harness,
    app: AppId,
}

impl Site {
    async fn open(harness: Harness, n: u32) -> Self {
        let app = harness.app("campaign").await;
        seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
        Self { harness, app }
    }
}

/// Shows the medians. Returns deliveries per second.
fn show(campaigns: &[Campaign]) -> f64 {
    let median = |figure: fn(&Campaign) -> f64| median(campaigns, figure);
    let rate = median(Campaign::rate);
    figure("Deliveries per second", rate, "/s", Bar::AtLeast(14_000.0));
    let us = "µs";
    figure("Server, CPU per delivery", median(|c| per(c.usage.server, c.deliveries)), us, Bar::AtMost(92.0));
    figure("Postgres, CPU per delivery", median(|c| per(c.usage.postgres, c.deliveries)), us, Bar::AtMost(7.0));
    figure("Simulated gateways, CPU per delivery", median(|c| per(c.usage.simulator, c.deliveries)), us, Bar::None);
    rate
}
