//! Campaigns through one, two, four and eight servers on one Postgres, all on this machine. Measures the cost of a delivery for servers and
//! Postgres, the distribution of the work, and the cost of idle servers. `scripts/bench replicas`
//!
//! `N` subscriptions (100,000), `ROUNDS` campaigns for each number of servers (3), medians; `REST` seconds without work (10). Servers that
//! share cores cannot increase the rate: the cost per delivery shows contention.

use std::time::Duration;

use crate::support::cpu::per;
use crate::support::harness::{Campaign, Harness, Settings, notice};
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{median, seed, setting};

/// So many connections each: what eight servers have is what an embedded Postgres takes.
const FEW: Settings = &[("BELLWIRE_DATABASE_CONNECTIONS", "12")];
/// Numbers of servers, in the order in which they are added.
const SERVERS: [usize; 4] = [1, 2, 4, 8];

/// Result for a number of servers.
struct Measured {
    campaigns: Vec<Campaign>,
    /// Of each campaign, the smallest and the largest share of the servers' CPU that one of them had.
    shares: Vec<(f64, f64)>,
    /// CPU per second without work, of all servers, and of Postgres, in ms.
    at_rest: (f64, f64),
    /// Connections to Postgres.
    connections: i64,
}

impl Measured {
    fn median(&self, value: impl Fn(&Campaign) -> f64) -> f64 {
        median(&self.campaigns, value)
    }
}

pub async fn run() {
    let (n, rounds, rest_s) = (setting("N", 100_000), setting("ROUNDS", 3).max(1), setting("REST", 10).max(1));
    let mut harness = Harness::open_with(FEW).await;
    let app = harness.app("replicas").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    harness.campaign(app, n, &notice()).await; // the first finds everything cold
    let mut alone = None;
    for servers in SERVERS {
        harness.replicate(servers).await;
        let at_rest = rest(&harness, rest_s).await;
        let mut measured =
            Measured { campaigns: Vec::new(), shares: Vec::new(), at_rest, connections: harness.connections().await };
        for _ in 0..rounds {
            let before = harness.servers();
            measured.campaigns.push(harness.campaign(app, n, &notice()).await);
            let used: Vec<Duration> =
                harness.servers().iter().zip(before).map(|(after, before)| *after - before).collect();
            measured.shares.push(least_and_most(&used));
        }
        show(servers, n, &measured, alone.as_ref());
        alone = alone.or(Some(measured));
    }
}

/// CPU per second of all servers and of Postgres, in ms, while nothing is to be done.
async fn rest(harness: &Harness, seconds: u32) -> (f64, f64) {
    tokio::time::sleep(Duration::from_secs(3)).await; // what was begun with comes to rest
    let before = harness.usage();
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let used = harness.usage() - before;
    let ms = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(seconds);
    (ms(used.server), ms(used.postgres))
}

fn show(servers: usize, n: u32, measured: &Measured, alone: Option<&Measured>) {
    let server = |campaign: &Campaign| per(campaign.usage.server, campaign.deliveries);
    let postgres = |campaign: &Campaign| per(campaign.usage.postgres, campaign.deliveries);
    let most = |value: fn(&Campaign) -> f64, factor: f64| {
        alone.map_or(Bar::None, |alone| Bar::AtMost(alone.median(value) * factor))
    };
    heading(&format!("A campaign to {} through {servers} servers", number(n.into())));
    figure("Deliveries per second", measured.median(Campaign::rate), "/s", Bar::None);
    figure("Servers, CPU per delivery", measured.median(server), "µs", most(server, 1.1));
    figure("Postgres, CPU per delivery", measured.median(postgres), "µs", most(postgres, 1.25));
    let (least, greatest): (Vec<f64>, Vec<f64>) = measured.shares.iter().copied().unzip();
    figure("Smallest share of a server", 100.0 * median(&least, |share| *share), "%", Bar::None);
    figure("Largest share of a server", 100.0 * median(&greatest, |share| *share), "%", Bar::None);
    figure("At rest, CPU per second of all servers", measured.at_rest.0, "ms", Bar::None);
    figure("At rest, CPU per second of Postgres", measured.at_rest.1, "ms", Bar::None);
    figure("Connections of all servers", measured.connections as f64, "", Bar::None);
}

/// The smallest and the largest share of a whole.
fn least_and_most(parts: &[Duration]) -> (f64, f64) {
    let all: Duration = parts.iter().sum();
    let share = |part: Option<&Duration>| part.map_or(0.0, |part| part.as_secs_f64() / all.as_secs_f64().max(1e-9));
    (share(parts.iter().min()), share(parts.iter().max()))
}
