//! Checks that a small installation fits in a small machine: memory of the server and of all of Postgres during campaigns, and the share of
//! a core that both use when idle. `scripts/bench footprint`
//!
//! Campaigns to `N` subscribers (10,000), `ROUNDS` of them (5), then `SECONDS` of rest (60), as on a machine of `MEMORY_MIB` (256;
//! 0: this one's). Unlike other benchmarks it fails where it misses its bars: 256 MiB, and 0.3 % of a core.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::cpu;
use crate::support::harness::{Harness, notice};
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{seed, setting};

const MEMORY_MIB: f64 = 256.0;
const CORE_PERCENT: f64 = 0.3;
/// Time after changes during which the embedded Postgres checks often for dead rows.
const CALM_AFTER: Duration = Duration::from_secs(70);
/// Interval of memory samples.
const LOOK: Duration = Duration::from_millis(100);

/// Memory at the moment when the sum was greatest.
#[derive(Clone, Copy, Default)]
struct Memory {
    server_mib: f64,
    postgres_mib: f64,
}

impl Memory {
    fn sum(self) -> f64 {
        self.server_mib + self.postgres_mib
    }
}

pub async fn run() {
    let (n, rounds, seconds) = (setting("N", 10_000), setting("ROUNDS", 5), setting("SECONDS", 60));
    let memory_mib = setting("MEMORY_MIB", 256);
    let harness = Harness::embedded(memory_mib).await;
    let app = harness.app("footprint").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    let watch = Watch::begin(&harness);
    for _ in 0..rounds {
        harness.campaign(app, n, &notice()).await;
    }
    let most = watch.end().await;
    harness.settle().await;
    tokio::time::sleep(CALM_AFTER).await;
    let at_rest = look(harness.server(), harness.postmaster());
    let before = harness.usage();
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let used = harness.usage() - before;
    drop(harness);
    let percent = |time: Duration| time.as_secs_f64() * 100.0 / f64::from(seconds.max(1));
    let idle = percent(used.server) + percent(used.postgres);
    heading(&format!("{} subscribers, on a machine of {} MiB", number(n.into()), number(memory_mib.into())));
    figure("Server, memory in a campaign (PSS)", most.server_mib, "MiB", Bar::None);
    figure("Postgres, memory in a campaign (PSS)", most.postgres_mib, "MiB", Bar::None);
    figure("Both, memory in a campaign (PSS)", most.sum(), "MiB", Bar::AtMost(MEMORY_MIB));
    figure("Server, memory at rest (PSS)", at_rest.server_mib, "MiB", Bar::None);
    figure("Postgres, memory at rest (PSS)", at_rest.postgres_mib, "MiB", Bar::None);
    figure("Both, memory at rest (PSS)", at_rest.sum(), "MiB", Bar::AtMost(MEMORY_MIB));
    figure("Server, CPU at rest, of a core", percent(used.server), "%", Bar::None);
    figure("Postgres, CPU at rest, of a core", percent(used.postgres), "%", Bar::None);
    figure("Both, CPU at rest, of a core", idle, "%", Bar::AtMost(CORE_PERCENT));
    assert!(most.sum() <= MEMORY_MIB && at_rest.sum() <= MEMORY_MIB, "it takes more memory than {MEMORY_MIB} MiB");
    assert!(idle <= CORE_PERCENT, "it takes more than {CORE_PERCENT} % of a core when nothing happens");
}

fn look(server: i32, postmaster: i32) -> Memory {
    // Postgres is below the server that started it.
    Memory { server_mib: cpu::pss_of_process(server), postgres_mib: cpu::pss_of_tree(postmaster) }
}

/// Thread that samples memory until it is stopped.
struct Watch {
    ended: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Memory>,
}

impl Watch {
    fn begin(harness: &Harness) -> Self {
        let (server, postmaster) = (harness.server(), harness.postmaster());
        let ended = Arc::<AtomicBool>::default();
        let told = ended.clone();
        let thread = std::thread::spawn(move || {
            let mut most = Memory::default();
            while !told.load(Ordering::Relaxed) {
                let now = look(server, postmaster);
                most = if now.sum() > most.sum() { now } else { most };
                std::thread::sleep(LOOK);
            }
            most
        });
        Self { ended, thread }
    }

    async fn end(self) -> Memory {
        self.ended.store(true, Ordering::Relaxed);
        tokio::task::spawn_blocking(|| self.thread.join()).await.expect("it ends").expect("it does not panic")
    }
}
