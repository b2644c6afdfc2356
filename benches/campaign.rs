//! A campaign through the real server, over TLS, with durable outcomes: deliveries per second, and CPU per delivery of
//! server, Postgres and simulated gateways apart. `scripts/bench campaign`
//!
//! `N` subscriptions (200,000), `ROUNDS` campaigns (3), of which the median counts; `STOCK=1` on a Postgres
//! that plans by its default settings. Ends with an error if the account of
//! any of them does not add up.

use crate::support::cpu::per;
use crate::support::harness::{Campaign, Harness, notice};
use crate::support::seed;
use crate::support::setting;
use crate::support::table::{Bar, figure, heading, number};

pub async fn run() {
    let (n, rounds) = (setting("N", 200_000), setting("ROUNDS", 3).max(1));
    let harness = Harness::open().await;
    let app = harness.app("campaign").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    let mut campaigns = Vec::new();
    for _ in 0..rounds {
        campaigns.push(harness.campaign(app, n, &notice()).await);
    }
    let median = |figure: fn(&Campaign) -> f64| {
        let mut figures: Vec<f64> = campaigns.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let n = number(n.into());
    heading(&format!("A campaign to {n} over four gateways, durable; the median of {rounds} rounds"));
    figure("Deliveries per second", median(Campaign::rate), "/s", Bar::AtLeast(14_000.0));
    let us = "µs";
    figure("Server, CPU per delivery", median(|c| per(c.usage.server, c.deliveries)), us, Bar::AtMost(92.0));
    figure("Postgres, CPU per delivery", median(|c| per(c.usage.postgres, c.deliveries)), us, Bar::AtMost(7.0));
    figure("Simulated gateways, CPU per delivery", median(|c| per(c.usage.simulator, c.deliveries)), us, Bar::None);
}
