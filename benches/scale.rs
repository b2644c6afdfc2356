//! Whether a delivery costs the same in small and large campaigns, and how much memory the server takes, also with many
//! retries waiting. `scripts/bench scale`
//!
//! Campaigns to 10,000 and 100,000 with 100,000 retries waiting; with `SCALE=full` also to 1,000,000, and with 1,000,000
//! waiting, which takes some minutes.

use bellwire_core::id::AppId;

use crate::support::cpu::{self, per};
use crate::support::harness::{Harness, notice};
use crate::support::seed;
use crate::support::table::{Bar, figure, heading, number};

/// Each size is sent so often, that what is measured is not lost in the grain of the kernel's clock.
const SIZES: [(u32, u32); 3] = [(10_000, 20), (100_000, 2), (1_000_000, 1)];
/// Maximum cost per delivery of a larger campaign, relative to the smallest.
const FLAT: f64 = 1.15;
const MEMORY_MIB: f64 = 150.0;

/// Cost of deliveries of one campaign size.
#[derive(Clone, Copy)]
struct Cost {
    server_us: f64,
    postgres_us: f64,
    peak_mib: f64,
    rate: f64,
}

pub async fn run() {
    let full = std::env::var("SCALE").is_ok_and(|scale| scale == "full");
    let (sizes, retries) = if full { (&SIZES[..], 1_000_000) } else { (&SIZES[..2], 100_000) };
    let harness = Harness::open().await;
    let mut costs = Vec::new();
    let mut last_app = None;
    for (n, rounds) in sizes {
        let app = harness.app(&format!("scale-{n}")).await;
        seed::subscriptions(&harness.pool, &harness.vault, app, *n).await;
        let cost = measure(&harness, app, *n, *rounds).await;
        heading(&format!("{} recipients", number((*n).into())));
        report(cost, costs.first().copied());
        costs.push(cost);
        if *n <= 100_000 {
            last_app = Some((app, *n));
        }
    }
    let (app, n) = last_app.expect("there are sizes up to 100,000");
    seed::retries(&harness.pool, app, retries).await;
    let cost = measure(&harness, app, n, 2).await;
    heading(&format!("{} recipients, with {} retries waiting", number(n.into()), number(retries.into())));
    report(cost, costs.first().copied());
}

async fn measure(harness: &Harness, app: AppId, n: u32, rounds: u32) -> Cost {
    cpu::forget_peak(harness.server());
    let mut cost = Cost { server_us: 0.0, postgres_us: 0.0, peak_mib: 0.0, rate: 0.0 };
    for _ in 0..rounds {
        let campaign = harness.campaign(app, n, &notice()).await;
        cost.server_us += per(campaign.usage.server, n) / f64::from(rounds);
        cost.postgres_us += per(campaign.usage.postgres, n) / f64::from(rounds);
        cost.rate += campaign.rate() / f64::from(rounds);
    }
    Cost { peak_mib: cpu::peak_mib(harness.server()), ..cost }
}

fn report(cost: Cost, smallest: Option<Cost>) {
    let bar = |of: fn(Cost) -> f64| smallest.map_or(Bar::None, |smallest| Bar::AtMost(of(smallest) * FLAT));
    figure("Server, CPU per delivery", cost.server_us, "µs", bar(|cost| cost.server_us));
    figure("Postgres, CPU per delivery", cost.postgres_us, "µs", bar(|cost| cost.postgres_us));
    figure("Server, most memory resident", cost.peak_mib, "MiB", Bar::AtMost(MEMORY_MIB));
    figure("Deliveries per second", cost.rate, "/s", Bar::None);
}
