//! Backups beside a campaign: what they cost it, and how long they take. `scripts/bench backups`
//!
//! Sends `ROUNDS` campaigns (3) to `N` subscriptions (200,000) in each of three conditions, in turns: alone, beside backups at full speed,
//! and beside backups at `RATE` MiB/s (4). Prints medians. During a campaign one backup follows another, the worst case of a schedule. Ends
//! with an error if a backup fails or the counts of a campaign do not add up.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bellwire_core::id::AppId;

use crate::support::cpu::per;
use crate::support::harness::{Campaign, Harness, notice};
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{median, seed, setting};

/// A campaign beside backups goes at least at this part of its rate.
const RATE_BESIDE: f64 = 0.9;

pub async fn run() {
    let (n, rounds) = (setting("N", 200_000), setting("ROUNDS", 3).max(1));
    let rate = setting("RATE", 4).to_string();
    let harness = Harness::open().await;
    let app = harness.app("shop").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    harness.campaign(app, n, &notice()).await; // until then nothing is remembered, and little is to be backed up
    let (mut alone, mut hurried, mut modest) = (Vec::new(), Beside::default(), Beside::default());
    for _ in 0..rounds {
        alone.push(harness.campaign(app, n, &notice()).await);
        hurried.campaign(&harness, app, n, &[]).await;
        modest.campaign(&harness, app, n, &["--max-rate", &rate]).await;
    }
    let by_itself = backup(&harness, &[]).await;
    let per_second = median(&alone, Campaign::rate);
    heading(&format!("A campaign to {}, alone and beside backups; medians of {rounds}", number(n.into())));
    figure("Deliveries per second, alone", per_second, "/s", Bar::None);
    figure("Server, CPU per delivery", cost(&alone), "µs", Bar::None);
    heading("Beside backups as fast as they go");
    hurried.show(Bar::None);
    heading(&format!("Beside backups of {rate} MiB a second"));
    modest.show(Bar::AtLeast(RATE_BESIDE * per_second));
    heading("A backup by itself");
    figure("It takes", by_itself.took.as_secs_f64(), "s", Bar::None);
    figure("Its size", by_itself.octets as f64 / f64::from(1 << 20), "MiB", Bar::None);
}

fn cost(campaigns: &[Campaign]) -> f64 {
    median(campaigns, |campaign| per(campaign.usage.server, campaign.deliveries))
}

/// Campaigns, and the backups that were made while they ran.
#[derive(Default)]
struct Beside {
    campaigns: Vec<Campaign>,
    backups: Vec<Backup>,
}

impl Beside {
    /// One more; its last backup may outlast it.
    async fn campaign(&mut self, harness: &Harness, app: AppId, n: u32, how: &[&str]) {
        let notice = notice();
        let campaign = harness.campaign(app, n, &notice);
        tokio::pin!(campaign);
        loop {
            let backup = backup(harness, how);
            tokio::pin!(backup);
            tokio::select! {
                campaign = &mut campaign => {
                    self.campaigns.push(campaign);
                    self.backups.push(backup.await);
                    return;
                }
                done = &mut backup => self.backups.push(done),
            }
        }
    }

    fn show(&self, bar: Bar) {
        figure("Deliveries per second", median(&self.campaigns, Campaign::rate), "/s", bar);
        figure("Server, CPU per delivery", cost(&self.campaigns), "µs", Bar::None);
        figure("A backup takes", median(&self.backups, |backup| backup.took.as_secs_f64()), "s", Bar::None);
    }
}

/// A backup that was made.
#[derive(Clone, Copy)]
struct Backup {
    took: Duration,
    octets: u64,
}

async fn backup(harness: &Harness, how: &[&str]) -> Backup {
    let file: PathBuf = harness.dir().join("backup");
    let began = Instant::now();
    let arguments = [&["backup", "--output", file.to_str().expect("UTF-8")], how].concat();
    let said = harness.bellwire(&arguments).await;
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let took = began.elapsed();
    let octets = size(&file);
    std::fs::remove_file(&file).expect("it is there");
    Backup { took, octets }
}

fn size(file: &Path) -> u64 {
    file.metadata().expect("it is there").len()
}
