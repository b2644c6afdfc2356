//! Workload of the demo: a campaign to all browsers, single messages beside it, and faults of push services.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use chrono::TimeDelta;
use futures_util::future::{try_join, try_join3};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::client::Caller;
use super::faults::{self, Fate};
use super::progress::Progress;
use super::setup::Setup;
use super::site::{APP, host_of, text};
use super::subscribers::Browser;
use bellwire_core::clock::Timestamp;

/// Messages to single people per second.
const PACE: f64 = 80.0;
/// The outage begins when the push service has accepted one part in this many of its campaign deliveries.
const OUTAGE_AT: u64 = 5;
/// Interval between polls of the server.
const LOOK: Duration = Duration::from_millis(200);
/// Interval between polls of the simulator, which runs in this process.
const GLANCE: Duration = Duration::from_millis(2);
/// Timeout after which the demo fails.
const DEADLINE: Duration = Duration::from_secs(120);
/// Title of the campaign, by which its pushes are identified.
pub(super) const CAMPAIGN_TITLE: &str = "The winter catalogue is here";

/// A message to one person.
#[derive(Debug)]
pub(super) struct Single {
    pub message: String,
    /// Index of the browser.
    pub browser: usize,
    /// Code in the message, which only this person can read.
    pub code: String,
    /// Start of the request, in milliseconds since 1970.
    pub asked_at_ms: i64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct TimelineEvent {
    /// Seconds since the campaign was sent.
    pub at_s: f64,
    pub origin: String,
    pub what: &'static str,
    /// Duration of the hold or the opening in seconds.
    pub for_s: Option<f64>,
}

#[derive(Debug)]
pub(super) struct Record {
    pub campaign: String,
    /// Time from the request to the end of its last delivery, measured by polling.
    pub took: Duration,
    /// Start of the outage, in milliseconds since 1970.
    pub down_at_ms: i64,
    pub singles: Vec<Single>,
    pub events: Vec<TimelineEvent>,
}

/// Sends everything and waits until every delivery has ended.
pub(super) async fn run(
    setup: &Setup, browsers: &[Browser], singles: u32, progress: &Progress,
) -> anyhow::Result<Record> {
    for rule in faults::lasting() {
        setup.simulator.add_rule(rule)?;
    }
    let total = browsers.len() as u64 + u64::from(singles);
    setup.simulator.add_rule(faults::burst((total / 400).max(12)))?;
    progress.begin("delivering", browsers.len() as u64);
    let began = Instant::now();
    let sent = setup.api.post(setup.server(), &messages(), &campaign()).await?;
    let campaign = text(&sent, "id")?.to_owned();
    progress.say(&format!("campaign sent to {} browsers; messages to single people follow", browsers.len()));
    let over = AtomicBool::new(false);
    let deliver = async {
        let (singles, down_at_ms, done_at) = try_join3(
            send_singles(setup, browsers, singles),
            cut_off(setup, browsers, progress),
            wait_until_done(setup, &campaign, progress),
        )
        .await?;
        progress.begin("single messages", singles.len() as u64);
        for (n, single) in singles.iter().enumerate() {
            wait_for(setup, &single.message, |_| {}).await?;
            progress.reach(n as u64 + 1, || "ended".to_owned());
        }
        over.store(true, Ordering::Relaxed);
        Ok((singles, down_at_ms, done_at))
    };
    let work = try_join(deliver, watch(setup, &over, began, progress));
    let ((singles, down_at_ms, done_at), events) =
        timeout(DEADLINE, work).await.context("not every delivery comes to its end")??;
    Ok(Record { campaign, took: done_at - began, down_at_ms, singles, events })
}

fn messages() -> String {
    format!("/v1/apps/{APP}/messages")
}

pub(super) fn message(id: &str) -> String {
    format!("{}/{id}", messages())
}

/// Returns the campaign: large enough that a push service refuses it first, and with short retries.
fn campaign() -> Value {
    let items: Vec<Value> =
        (0..80).map(|n| json!({"sku": format!("W-{n:04}"), "name": format!("Winter coat {n}")})).collect();
    json!({
        "to": {"all": true},
        "tier": "promotional",
        "content": {
            "title": CAMPAIGN_TITLE,
            "body": "Eighty new coats, and free returns until the end of January.",
            "url": "https://shop.example/winter",
            "image": "https://shop.example/images/winter.jpg",
            "tag": "catalogue",
            "data": {"items": items},
            "data_optional": true,
        },
        "ttl": 3600,
        "collapse_key": "catalogue",
        "policy": {"baseDelayMs": 500, "maxDelayMs": 4000, "maxAttempts": 8, "jitterPercent": 0.2},
    })
}

/// Sends messages to single people at a steady rate, without waiting for responses.
async fn send_singles(setup: &Setup, browsers: &[Browser], n: u32) -> anyhow::Result<Vec<Single>> {
    let reachable = |(place, browser): (usize, &Browser)| {
        let user = browser.user.clone().filter(|_| browser.fate == Fate::Fine)?;
        Some((place, user))
    };
    let people: Vec<(usize, String)> = browsers.iter().enumerate().filter_map(reachable).collect();
    if people.is_empty() {
        bail!("no browser belongs to anybody");
    }
    let mut ticks = interval(Duration::from_secs_f64(1.0 / PACE));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut sending = JoinSet::new();
    for k in 0..n as usize {
        ticks.tick().await;
        // Steps of a prime: people in a row have browsers of one gateway.
        let (browser, user) = people[k * 7919 % people.len()].clone();
        let (api, key) = (setup.api.clone(), setup.key.clone());
        let code = format!("Your code is {:06}", 100_000 + k);
        sending.spawn(async move {
            let content = json!({"title": "Sign in", "body": code, "tag": "sign-in", "require_interaction": true});
            let body = json!({"to": {"users": [user]}, "tier": "transactional", "content": content});
            let asked_at_ms = chrono::Utc::now().timestamp_millis();
            let sent = api.post(Caller::Key(&key), &messages(), &body).await?;
            anyhow::Ok(Single { message: text(&sent, "id")?.to_owned(), browser, code, asked_at_ms })
        });
    }
    sending.join_all().await.into_iter().collect()
}

/// Stops one push service in the middle of the campaign. Returns the time.
async fn cut_off(setup: &Setup, browsers: &[Browser], progress: &Progress) -> anyhow::Result<i64> {
    let (host, share) = (host_of(faults::DOWN), browsers.iter().filter(|it| it.gateway == faults::DOWN).count() as u64);
    while setup.simulator.report().hosts.get(&host).is_none_or(|host| host.accepted < share / OUTAGE_AT) {
        sleep(GLANCE).await;
    }
    let at_ms = chrono::Utc::now().timestamp_millis();
    setup.simulator.add_rule(faults::outage())?;
    progress.say(&format!("{host}: down for {} s, connections refused", faults::DOWN_MS / 1_000));
    Ok(at_ms)
}

async fn wait_until_done(setup: &Setup, id: &str, progress: &Progress) -> anyhow::Result<Instant> {
    let show = |counts: &Value| {
        let n = |name: &str| counts[name].as_u64().unwrap_or(0);
        let ended = ["accepted", "gone", "expired", "dead", "cancelled"].map(n).iter().sum();
        let waiting = n("queued") + n("dispatching");
        progress.reach(ended, || format!("ended, {waiting} waiting, {} to be retried", n("retrying")));
    };
    wait_for(setup, id, show).await
}

/// Waits until a message is done, and returns the time.
async fn wait_for(setup: &Setup, id: &str, show: impl Fn(&Value)) -> anyhow::Result<Instant> {
    loop {
        let shown = setup.api.get(setup.server(), &message(id)).await?;
        show(&shown["counts"]);
        if shown["state"] == "done" {
            return Ok(Instant::now());
        }
        sleep(LOOK).await;
    }
}

/// Records holds and breakers of lanes until everything has ended.
async fn watch(
    setup: &Setup, over: &AtomicBool, began: Instant, progress: &Progress,
) -> anyhow::Result<Vec<TimelineEvent>> {
    let (mut seen, mut events) = (LaneStates::new(), Vec::new());
    loop {
        // Looked at before the lanes are, so that nothing that happened until the end is missed.
        let last = over.load(Ordering::Relaxed);
        let lanes = setup.api.get(Caller::Key(&setup.operator), "/v1/gateways").await?;
        let origins = lanes["data"].as_array().into_iter().flatten().flat_map(|lane| lane["origins"].as_array());
        for origin in origins.flatten() {
            for event in changes(origin, &mut seen, began.elapsed().as_secs_f64()) {
                progress.say(&event.to_string());
                events.push(event);
            }
        }
        if last {
            return Ok(events);
        }
        sleep(LOOK).await;
    }
}

/// Last state of each lane and origin: end of the hold, end of the open breaker.
type LaneStates = BTreeMap<String, (Option<Timestamp>, Option<Timestamp>)>;

/// Changes of a lane's state at one origin since the last poll.
fn changes(origin: &Value, seen: &mut LaneStates, at_s: f64) -> Vec<TimelineEvent> {
    let time = |member: &str| origin[member].as_str()?.parse::<Timestamp>().ok();
    let name = origin["origin"].as_str().unwrap_or_default();
    let (held, open) = (time("held_until"), time("open_until").filter(|_| origin["breaker"] == "open"));
    let last = seen.insert(name.to_owned(), (held, open)).unwrap_or_default();
    let mut events = Vec::new();
    let mut tell = |what, until: Option<Timestamp>| {
        let changed_at = time("changed_at").unwrap_or_default();
        let for_s = until.map(|until| (until - changed_at).as_seconds_f64().max(0.0));
        events.push(TimelineEvent { at_s, origin: name.to_owned(), what, for_s });
    };
    // Every answer of one burst asks for the pause anew; that is one pause.
    if held.is_some_and(|held| last.0.is_none_or(|last| held - last > TimeDelta::seconds(1))) {
        tell("held", held);
    }
    match (last.1, open) {
        (before, Some(_)) if before != open => tell("opened", open),
        (Some(_), None) => tell("closed", None),
        _ => {}
    }
    events
}

impl std::fmt::Display for TimelineEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = self.origin.trim_start_matches("https://");
        let for_s = self.for_s.unwrap_or(0.0);
        match self.what {
            "held" => write!(f, "{host}: asked for a pause of {for_s:.1} s; its lane is held, no other"),
            "opened" => write!(f, "{host}: the circuit breaker opened for {for_s:.1} s"),
            _ => write!(f, "{host}: a probe got through, the circuit breaker closed"),
        }
    }
}
