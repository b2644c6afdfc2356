//! Exports: what a line costs, and whether memory grows with an app. `scripts/bench exports`
//!
//! `N` subscriptions (1,000,000). Ends with an error if a line is missing.

use std::time::{Duration, Instant};

use bellwire_core::id::AppId;
use http_body_util::BodyExt as _;

use crate::support::cpu::{self, Usage, per};
use crate::support::harness::Harness;
use crate::support::seed;
use crate::support::setting;
use crate::support::table::{Bar, figure, heading, number};

/// Lines that are at least given out in a second.
const RATE: f64 = 50_000.0;
/// Maximum additional memory of an export.
const MEMORY_MIB: f64 = 64.0;

pub async fn run() {
    let n = setting("N", 1_000_000);
    let harness = Harness::open().await;
    let app = harness.app("shop").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    for format in ["ndjson", "csv"] {
        let resident = resident_mib(&harness);
        let Export { took, usage, octets, lines } = export(&harness, app, format).await;
        assert_eq!(lines, u64::from(n) + 1, "a line for each, and the end or the heading");
        heading(&format!("{} subscriptions as {format}", number(n.into())));
        figure("Lines per second", f64::from(n) / took.as_secs_f64(), "/s", Bar::AtLeast(RATE));
        figure("Server, CPU per line", per(usage.server, n), "µs", Bar::None);
        figure("Postgres, CPU per line", per(usage.postgres, n), "µs", Bar::None);
        figure("Octets per line", octets as f64 / f64::from(n), "", Bar::None);
        let grew = cpu::peak_mib(harness.server()) - resident;
        figure("Most memory beside what was resident before", grew, "MiB", Bar::AtMost(MEMORY_MIB));
    }
}

fn resident_mib(harness: &Harness) -> f64 {
    cpu::forget_peak(harness.server());
    cpu::peak_mib(harness.server())
}

/// Result of an export.
struct Export {
    took: Duration,
    usage: Usage,
    octets: usize,
    lines: u64,
}

async fn export(harness: &Harness, app: AppId, format: &str) -> Export {
    let (before, began, mut octets, mut lines) = (harness.usage(), Instant::now(), 0, 0);
    let mut body = harness.api.open(&format!("/v1/apps/{app}/export?only=subscriptions&format={format}")).await;
    while let Some(frame) = body.frame().await {
        let frame = frame.expect("the export does not break off");
        let Some(part) = frame.data_ref() else { continue };
        octets += part.len();
        lines += part.iter().filter(|octet| **octet == b'\n').count() as u64;
    }
    Export { took: began.elapsed(), usage: harness.usage() - before, octets, lines }
}
