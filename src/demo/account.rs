//! Compares the server's result of every delivery with the requests recorded by the push services.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::campaign::{Record, TimelineEvent, message};
use super::faults::{self, Fate};
use super::received::Received;
use super::setup::Setup;
use super::site::{APP, host_of};
use super::subscribers::Browser;
use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::SimulatorReport;

/// Maximum deliveries whose result is requested one by one.
const EXPLAINED_MAX: usize = 1_000;

#[derive(Debug, Serialize)]
pub(super) struct Account {
    /// Whether every check holds.
    pub adds_up: bool,
    pub subscriptions: usize,
    /// Number of subscriptions registered per second.
    pub registered_per_s: f64,
    /// Server's counts of the campaign, and of the single messages.
    pub messages: [KindCounts; 2],
    /// Dead deliveries of the campaign by the push service's last response.
    pub dead: BTreeMap<String, u64>,
    /// Requests by push service.
    pub gateways: Vec<GatewayLine>,
    /// Seconds from the campaign's request to the end of its last delivery.
    pub campaign_s: f64,
    /// Peak rate: deliveries per second in the shortest period with half of the campaign.
    pub campaign_peak_per_s: f64,
    /// Time from request to POST of single messages at push services that neither throttled nor failed.
    pub latency: Latency,
    /// Pushes accepted twice, because the first response was lost in the outage.
    pub repeated: u64,
    pub events: Vec<TimelineEvent>,
    pub checks: Vec<Check>,
}

/// Counts of one kind of message, with the API's names. `targeted` is the sum of the others.
#[derive(Debug, Default, Serialize)]
pub(super) struct KindCounts {
    pub kind: &'static str,
    pub targeted: u64,
    pub accepted: u64,
    pub gone: u64,
    pub expired: u64,
    pub dead: u64,
    pub cancelled: u64,
    /// Deliveries that have not ended or are capped. 0 at the end.
    pub open: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct GatewayLine {
    pub gateway: Gateway,
    pub requests: u64,
    /// Number of responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Time from request to first POST of single messages.
    pub latency: Latency,
}

/// Percentiles (nearest rank) of the latency of single messages, in milliseconds.
#[derive(Debug, Default, Serialize)]
pub(super) struct Latency {
    pub messages: usize,
    pub p50_ms: i64,
    pub p99_ms: i64,
    pub max_ms: i64,
}

#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub what: &'static str,
    pub expected: u64,
    pub found: u64,
}

impl Check {
    pub(super) fn holds(&self) -> bool {
        self.expected == self.found
    }
}

impl Latency {
    fn of(mut all_ms: Vec<i64>) -> Self {
        all_ms.sort_unstable();
        // The nearest rank: the smallest that so many per cent do not exceed.
        let rank = |percent: usize| all_ms.get((all_ms.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        let [p50_ms, p99_ms, max_ms] = [50, 99, 100].map(|percent| rank(percent).unwrap_or(0));
        Self { messages: all_ms.len(), p50_ms, p99_ms, max_ms }
    }
}

impl KindCounts {
    fn add(&mut self, counts: &Value) {
        let n = |name: &str| counts[name].as_u64().unwrap_or(0);
        self.targeted += n("targeted");
        self.accepted += n("accepted");
        self.gone += n("gone");
        self.expired += n("expired");
        self.dead += n("dead");
        self.cancelled += n("cancelled");
        self.open += n("queued") + n("dispatching") + n("retrying") + n("capped");
    }

    fn sum(&self) -> u64 {
        self.accepted + self.gone + self.expired + self.dead + self.cancelled + self.open
    }
}

/// Reads the results of server and simulator, and compares them.
pub(super) async fn settle(
    setup: &Setup, browsers: &[Browser], registering: Duration, record: Record, received: Received,
) -> anyhow::Result<Account> {
    let mut messages = ["campaign", "single messages"].map(|kind| KindCounts { kind, ..KindCounts::default() });
    messages[0].add(&counts(setup, &record.campaign).await?);
    for single in &record.singles {
        messages[1].add(&counts(setup, &single.message).await?);
    }
    let pruned = pruned(setup).await?;
    let report = setup.simulator.report();
    let checks = checks(browsers, &record, &received, &messages, pruned, &report);
    let calm = |gateway: &Gateway| ![faults::THROTTLING, faults::DOWN].contains(gateway);
    let latency = |wanted: &dyn Fn(&Gateway) -> bool| {
        let all = received.latency_ms.iter().filter(|(gateway, _)| wanted(gateway));
        Latency::of(all.flat_map(|(_, ms)| ms).copied().collect())
    };
    let line = |gateway: Gateway| {
        let host = report.hosts.get(&host_of(gateway));
        GatewayLine {
            gateway,
            requests: host.map_or(0, |host| host.requests),
            statuses: host.map(|host| host.statuses.clone()).unwrap_or_default(),
            latency: latency(&|other| *other == gateway),
        }
    };
    Ok(Account {
        adds_up: checks.iter().all(Check::holds),
        subscriptions: browsers.len(),
        registered_per_s: browsers.len() as f64 / registering.as_secs_f64(),
        dead: reasons(setup, browsers, &record, &received).await?,
        gateways: Gateway::ALL.map(line).into(),
        campaign_s: record.took.as_secs_f64(),
        campaign_peak_per_s: peak_per_s(&received.taken_at_ms),
        latency: latency(&calm),
        messages,
        repeated: received.repeated,
        events: record.events,
        checks,
    })
}

async fn counts(setup: &Setup, id: &str) -> anyhow::Result<Value> {
    Ok(setup.api.get(setup.server(), &message(id)).await?["counts"].take())
}

async fn pruned(setup: &Setup) -> anyhow::Result<u64> {
    let list = format!("/v1/apps/{APP}/subscriptions?state=gone&limit=250");
    let (mut pruned, mut next) = (0, list.clone());
    loop {
        let page = setup.api.get(setup.server(), &next).await?;
        pruned += page["data"].as_array().map_or(0, Vec::len) as u64;
        match page["iterator"].as_str() {
            Some(iterator) => next = format!("{list}&iterator={iterator}"),
            None => return Ok(pruned),
        }
    }
}

/// Returns the server's reasons for deliveries of the campaign that no push service accepted.
async fn reasons(
    setup: &Setup, browsers: &[Browser], record: &Record, received: &Received,
) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut reasons = BTreeMap::new();
    for place in received.without_campaign.iter().take(EXPLAINED_MAX) {
        let path = format!("{}/deliveries/{}", message(&record.campaign), browsers[*place].id);
        let delivery = setup.api.get(setup.server(), &path).await?;
        let attempts = delivery["attempts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let last = attempts.last().unwrap_or(&Value::Null);
        let answer = last["status"].as_u64().map_or("no answer".to_owned(), |status| status.to_string());
        let state = delivery["state"].as_str().unwrap_or("unknown");
        *reasons.entry(format!("{state}: {answer} at attempt {}", attempts.len())).or_default() += 1;
    }
    Ok(reasons)
}

fn checks(
    browsers: &[Browser], record: &Record, received: &Received, [campaign, singles]: &[KindCounts; 2], pruned: u64,
    report: &SimulatorReport,
) -> Vec<Check> {
    let fated = |fate| browsers.iter().filter(|browser| browser.fate == fate).count() as u64;
    let (all, gone, dies) = (browsers.len() as u64, fated(Fate::Gone), fated(Fate::Dies));
    let sent = record.singles.len() as u64;
    let lane = |gateway, what| {
        let of_gateway = |event: &&TimelineEvent| event.origin.ends_with(&host_of(gateway)) && event.what == what;
        u64::from(record.events.iter().any(|event| of_gateway(&event)))
    };
    let faults = report.faults.values().map(|fault| fault.count).sum();
    let check = |what, expected, found| Check { what, expected, found };
    vec![
        check("browsers that the campaign targeted", all, campaign.targeted),
        check("sum of what became of the campaign", campaign.targeted, campaign.sum()),
        check("campaign deliveries accepted", all - gone - dies, campaign.accepted),
        check("campaign deliveries gone", gone, campaign.gone),
        check("campaign deliveries dead", dies, campaign.dead),
        check("people that single messages targeted", sent, singles.targeted),
        check("sum of what became of the single messages", singles.targeted, singles.sum()),
        check("single messages accepted", sent, singles.accepted),
        check("campaign deliveries that gateways took", campaign.accepted, received.campaign),
        check("single messages that gateways took", singles.accepted, received.singles),
        check("pushes that gateways took", received.campaign + received.singles + received.repeated, report.accepted),
        check("pushes taken twice without cause", 0, received.repeated_without_cause),
        check("delivery ids that two browsers got", 0, received.shared_ids),
        check("payloads that do not open to what was sent", 0, received.misread),
        check(
            "payloads made smaller after a 413",
            fated(Fate::Shrinks).saturating_sub(received.refusals_lost),
            received.shrunk,
        ),
        check("requests that gateways found fault with", 0, faults),
        check("subscriptions pruned", gone, pruned),
        check("requests to a subscription after it was gone", 0, received.after_gone),
        check("throttling gateway's lane was held", 1, lane(faults::THROTTLING, "held")),
        check("breaker of the gateway that was down opened", 1, lane(faults::DOWN, "opened")),
        check("and closed again", 1, lane(faults::DOWN, "closed")),
    ]
}

/// Peak rate: deliveries per second over the shortest time with half of them.
fn peak_per_s(taken_at_ms: &[i64]) -> f64 {
    let mut times = taken_at_ms.to_vec();
    times.sort_unstable();
    let half = times.len() / 2;
    let last = half.saturating_sub(1);
    let shortest_ms = times.iter().zip(times.iter().skip(last)).map(|(from, to)| to - from).min();
    shortest_ms.map_or(0.0, |ms| half as f64 * 1_000.0 / ms.max(1) as f64)
}

#[cfg(test)]
#[path = "../../tests/unit/demo/account.rs"]
mod tests;
