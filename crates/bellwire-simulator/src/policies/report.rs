//! Result of a simulation: account, times, and load on the gateway.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::Scenario;
use bellwire_rules::classify::DeadReason;
use bellwire_rules::policy::chart::{count, seconds};

/// Maximum buckets of the load. A bucket is one second in runs of up to nearly three hours.
const BUCKETS_MAX: usize = 10_000;
/// Seconds after an outage that are listed one by one.
const AFTER_S: usize = 10;
/// Seconds after an outage whose peak is reported.
const RECOVERY_S: usize = 60;

/// The result of a simulation. `deliveries` = `accepted_at_once` + `accepted_after_retry` + `gone` + `expired` + all of `dead`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = SimulationReport))]
pub struct SimulationReport {
    /// Number of simulated deliveries.
    pub deliveries: u64,
    /// Number of POSTs at the gateways.
    pub posts: u64,
    /// Average number of POSTs per delivery.
    pub posts_per_delivery: f64,
    /// Number of POSTs that the push service did not accept.
    pub posts_in_vain: u64,
    /// Deliveries that were accepted without a counted retry.
    pub accepted_at_once: u64,
    /// Deliveries that were accepted after a counted retry.
    pub accepted_after_retry: u64,
    /// Deliveries whose subscription was gone.
    pub gone: u64,
    /// Deliveries whose time to live ran out.
    pub expired: u64,
    /// Deliveries that became dead letters, by reason.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, u64>))]
    pub dead: BTreeMap<&'static str, u64>,
    /// Times from arrival to acceptance. Null if nothing was accepted.
    pub to_acceptance: Option<Quantiles>,
    /// Maximum number of POSTs in one second.
    pub peak_per_s: u32,
    /// Second of that maximum, counted from the start.
    pub peak_at_s: u32,
    /// Load after the last outage that ended. Null without one.
    pub recovery: Option<Recovery>,
    /// Number of times that a breaker opened.
    pub breaker_trips: u64,
    /// Number of times that throttling closed the lane.
    pub holds: u64,
    /// Number of times that a delivery was deferred without an attempt.
    pub deferrals: u64,
    /// Load on the gateway over time.
    pub load: LoadSeries,
}

/// Quantiles of a time in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Quantiles {
    /// Median: half of the deliveries took no longer.
    pub p50_s: f64,
    /// 95th percentile of the time.
    pub p95_s: f64,
    /// 99th percentile of the time.
    pub p99_s: f64,
    /// Maximum of the time.
    pub max_s: f64,
}

/// Load on the gateway after an outage.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Recovery {
    /// End of the outage in seconds from the start.
    pub at_s: f64,
    /// POSTs in each of the following 10 seconds.
    pub posts_per_s: Vec<u32>,
    /// Maximum number of POSTs in one second of the following minute.
    pub peak_per_s: u32,
    /// POSTs in the following minute that were not accepted.
    pub in_vain: u64,
}

/// Number of POSTs over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoadSeries {
    /// Seconds of one bucket.
    pub bucket_s: u32,
    /// Maximum number of POSTs in one second of each bucket.
    pub posts_per_s: Vec<u32>,
    /// Accepted POSTs in the same second.
    pub accepted_per_s: Vec<u32>,
}

/// Counters during a simulation.
pub(super) struct SimulationTally {
    deliveries: u64,
    recovery_s: Option<f64>,
    at_once: u64,
    after_retry: u64,
    gone: u64,
    expired: u64,
    dead: BTreeMap<DeadReason, u64>,
    took_ms: Vec<u32>,
    posts: Vec<u32>,
    accepted: Vec<u32>,
    pub deferred: u64,
    pub trips: u64,
    pub holds: u64,
}

fn count_at(series: &mut Vec<u32>, at_us: u64) {
    let second = (at_us / 1_000_000) as usize;
    if second >= series.len() {
        series.resize(second + 1, 0);
    }
    series[second] += 1;
}

impl SimulationTally {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            deliveries: scenario.arrival.deliveries.into(),
            recovery_s: scenario.recovery_s(),
            at_once: 0,
            after_retry: 0,
            gone: 0,
            expired: 0,
            dead: BTreeMap::new(),
            took_ms: Vec::new(),
            posts: Vec::new(),
            accepted: Vec::new(),
            deferred: 0,
            trips: 0,
            holds: 0,
        }
    }

    pub(super) fn posted(&mut self, now_us: u64) {
        count_at(&mut self.posts, now_us);
    }

    /// Counts an acceptance. `posted_at_us` is the start of the POST, `took_us` the time since the arrival.
    pub(super) fn accepted(&mut self, posted_at_us: u64, took_us: u64, retries: u32) {
        count_at(&mut self.accepted, posted_at_us);
        *(if retries == 0 { &mut self.at_once } else { &mut self.after_retry }) += 1;
        self.took_ms.push(u32::try_from(took_us / 1_000).unwrap_or(u32::MAX));
    }

    pub(super) fn gone(&mut self) {
        self.gone += 1;
    }

    pub(super) fn expired(&mut self) {
        self.expired += 1;
    }

    pub(super) fn dead(&mut self, reason: DeadReason) {
        *self.dead.entry(reason).or_default() += 1;
    }

    pub(super) fn report(mut self) -> SimulationReport {
        let dead: BTreeMap<_, _> = self.dead.iter().map(|(reason, n)| (reason.name(), *n)).collect();
        let ended = self.at_once + self.after_retry + self.gone + self.expired + dead.values().sum::<u64>();
        assert_eq!(ended, self.deliveries, "every delivery has exactly one ending");
        self.took_ms.sort_unstable();
        let posts: u64 = self.posts.iter().map(|n| u64::from(*n)).sum();
        let peak = self.posts.iter().copied().zip(0..).max_by_key(|(n, at_s)| (*n, u32::MAX - at_s)).unwrap_or((0, 0));
        SimulationReport {
            deliveries: self.deliveries,
            posts,
            posts_per_delivery: posts as f64 / self.deliveries as f64,
            posts_in_vain: posts - self.at_once - self.after_retry,
            accepted_at_once: self.at_once,
            accepted_after_retry: self.after_retry,
            gone: self.gone,
            expired: self.expired,
            dead,
            to_acceptance: quantiles(&self.took_ms),
            peak_per_s: peak.0,
            peak_at_s: peak.1,
            recovery: self.recovery_s.map(|at_s| self.recovery(at_s)),
            breaker_trips: self.trips,
            holds: self.holds,
            deferrals: self.deferred,
            load: load(self.posts, self.accepted),
        }
    }

    fn recovery(&self, at_s: f64) -> Recovery {
        let first = at_s.ceil() as usize;
        let minute = |series: &[u32]| -> Vec<u32> {
            (first..first + RECOVERY_S).map(|second| series.get(second).copied().unwrap_or(0)).collect()
        };
        let (posts, accepted) = (minute(&self.posts), minute(&self.accepted));
        let sum = |series: &[u32]| series.iter().map(|n| u64::from(*n)).sum::<u64>();
        Recovery {
            at_s,
            posts_per_s: posts[..AFTER_S].to_vec(),
            peak_per_s: posts.iter().copied().max().unwrap_or(0),
            in_vain: sum(&posts) - sum(&accepted),
        }
    }
}

fn quantiles(sorted_ms: &[u32]) -> Option<Quantiles> {
    let last = sorted_ms.len().checked_sub(1)?;
    let of = |share: f64| f64::from(sorted_ms[(last as f64 * share).ceil() as usize]) / 1_000.0;
    Some(Quantiles { p50_s: of(0.5), p95_s: of(0.95), p99_s: of(0.99), max_s: of(1.0) })
}

fn load(posts: Vec<u32>, mut accepted: Vec<u32>) -> LoadSeries {
    accepted.resize(posts.len(), 0);
    LoadSeries { bucket_s: 1, posts_per_s: posts, accepted_per_s: accepted }.in_at_most(BUCKETS_MAX)
}

impl LoadSeries {
    /// Merges buckets, so that at most `entries` remain.
    #[must_use]
    pub fn in_at_most(self, entries: usize) -> Self {
        let together = self.posts_per_s.len().div_ceil(entries.max(1)).max(1);
        let seconds: Vec<(u32, u32)> = self.posts_per_s.into_iter().zip(self.accepted_per_s).collect();
        let busiest = |entry: &[(u32, u32)]| entry.iter().copied().max().unwrap_or_default();
        let (posts_per_s, accepted_per_s) = seconds.chunks(together).map(busiest).unzip();
        let bucket_s = u32::try_from(together).unwrap_or(u32::MAX).saturating_mul(self.bucket_s);
        Self { bucket_s, posts_per_s, accepted_per_s }
    }
}

/// A row of the comparison: its name, and the function for its cell.
type Sli = (&'static str, fn(&SimulationReport) -> String);

fn share(n: u64, of: u64) -> String {
    format!("{:.2} %", n as f64 * 100.0 / of.max(1) as f64)
}

fn quantile(report: &SimulationReport, pick: fn(&Quantiles) -> f64) -> String {
    report.to_acceptance.as_ref().map_or("-".to_owned(), |quantiles| seconds(pick(quantiles)))
}

fn recovery(report: &SimulationReport, write: fn(&Recovery) -> String) -> String {
    report.recovery.as_ref().map_or("-".to_owned(), write)
}

const FIGURES: [Sli; 18] = [
    ("deliveries", |r| count(r.deliveries)),
    ("POSTs", |r| count(r.posts)),
    ("… per delivery", |r| format!("{:.3}", r.posts_per_delivery)),
    ("… in vain", |r| count(r.posts_in_vain)),
    ("accepted at once", |r| share(r.accepted_at_once, r.deliveries)),
    ("… after a retry", |r| share(r.accepted_after_retry, r.deliveries)),
    ("expired", |r| share(r.expired, r.deliveries)),
    ("gone", |r| share(r.gone, r.deliveries)),
    ("dead", |r| share(r.dead.values().sum(), r.deliveries)),
    ("to acceptance, p50", |r| quantile(r, |q| q.p50_s)),
    ("… p95", |r| quantile(r, |q| q.p95_s)),
    ("… p99", |r| quantile(r, |q| q.p99_s)),
    ("… at most", |r| quantile(r, |q| q.max_s)),
    ("peak, POSTs/s", |r| format!("{} at {}", count(r.peak_per_s.into()), seconds(r.peak_at_s.into()))),
    ("peak after the outage", |r| recovery(r, |after| count(after.peak_per_s.into()))),
    ("… in vain", |r| recovery(r, |after| count(after.in_vain))),
    ("breaker trips", |r| count(r.breaker_trips)),
    ("holds", |r| count(r.holds)),
];

/// Formats the figures of several simulations side by side, each under its name. Dead letters by reason follow below.
pub fn compare(reports: &[(String, SimulationReport)]) -> String {
    let mut rows: Vec<Vec<String>> =
        vec![std::iter::once(String::new()).chain(reports.iter().map(|(name, _)| name.clone())).collect()];
    let mut row = |name: String, cell: &dyn Fn(&SimulationReport) -> String| {
        rows.push(std::iter::once(name).chain(reports.iter().map(|(_, report)| cell(report))).collect());
    };
    for (name, cell) in FIGURES {
        row(name.to_owned(), &cell);
        if name == "dead" {
            let reasons: std::collections::BTreeSet<_> = reports.iter().flat_map(|(_, r)| r.dead.keys()).collect();
            for reason in reasons {
                row(format!("… {reason}"), &|r| count(r.dead.get(*reason).copied().unwrap_or(0)));
            }
        }
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..=reports.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let _ = write!(text, "{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    for (name, report) in reports {
        if let Some(after) = &report.recovery {
            let seconds: Vec<_> = after.posts_per_s.iter().map(|n| count((*n).into())).collect();
            let _ = writeln!(text, "POSTs in each second after the outage, {name}: {}", seconds.join(" "));
        }
    }
    text
}
