//! Received pushes: those that the simulator recorded, decrypted with their browsers' keys as a service worker would.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::campaign::{CAMPAIGN_TITLE, Record};
use super::faults::{self, Fate};
use super::setup::Setup;
use super::subscribers::Browser;
use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{Delivery, RecordedAttempt};

#[derive(Debug, Default)]
pub(super) struct Received {
    /// Accepted deliveries of the campaign, each counted once.
    pub campaign: u64,
    /// Time of each one's first acceptance, in milliseconds since 1970.
    pub taken_at_ms: Vec<i64>,
    pub shrunk: u64,
    /// Deliveries accepted in full size, because the outage lost one of their two refusals.
    pub refusals_lost: u64,
    /// Accepted single messages, each counted once.
    pub singles: u64,
    /// Milliseconds from each single message's request to its first POST, by push service.
    pub latency_ms: HashMap<Gateway, Vec<i64>>,
    pub repeated: u64,
    /// Repeated pushes that the outage does not explain.
    pub repeated_without_cause: u64,
    pub shared_ids: u64,
    /// Plaintexts that are neither the campaign nor the message to this person.
    pub misread: u64,
    /// Requests to a subscription after its push service reported it as gone.
    pub after_gone: u64,
    /// Indexes of browsers that never accepted the campaign.
    pub without_campaign: Vec<usize>,
}

pub(super) fn read(setup: &Setup, browsers: &[Browser], record: &Record) -> anyhow::Result<Received> {
    let mut received = Received::default();
    let mut ids: HashSet<Box<str>> = HashSet::new();
    let codes: HashMap<(usize, &str), i64> =
        record.singles.iter().map(|single| ((single.browser, single.code.as_str()), single.asked_at_ms)).collect();
    for (place, browser) in browsers.iter().enumerate() {
        let before = received.campaign;
        for delivery in setup.simulator.received(&browser.endpoint)? {
            received.shared_ids += u64::from(delivery.id.clone().is_none_or(|id| !ids.insert(id)));
            received.count_repeats(browser, &delivery, record);
            let (title, body, whole) = words(&delivery).unwrap_or_default();
            if title == CAMPAIGN_TITLE {
                received.count_campaign(browser, &delivery, whole, record);
            } else if let Some(asked_at_ms) = codes.get(&(place, body.as_str())) {
                received.singles += u64::from(delivery.accepted > 0);
                let first = delivery.attempts.first().map_or(0, |attempt| attempt.at_ms);
                received.latency_ms.entry(browser.gateway).or_default().push((first - asked_at_ms).max(0));
            } else {
                received.misread += 1;
            }
        }
        if received.campaign == before && browser.fate != Fate::Gone {
            received.without_campaign.push(place);
        }
    }
    Ok(received)
}

/// Returns title, body, and whether the optional part is present.
fn words(delivery: &Delivery) -> Option<(String, String, bool)> {
    let json: Value = serde_json::from_slice(delivery.plaintext.as_deref()?).ok()?;
    let notification = &json["notification"];
    let text = |member: &str| notification[member].as_str().unwrap_or_default().to_owned();
    Some((text("title"), text("body"), notification["data"].get("items").is_some()))
}

fn was_taken(attempt: &&RecordedAttempt) -> bool {
    attempt.status.is_some_and(|status| (200..300).contains(&status))
}

/// Whether a response sent then may have been lost at the start of the outage, which cuts connections.
fn was_cut(browser: &Browser, at_ms: i64, record: &Record) -> bool {
    browser.gateway == faults::DOWN && (record.down_at_ms - 1_000..=record.down_at_ms + 1_000).contains(&at_ms)
}

impl Received {
    /// Counts the requests of a campaign delivery. A 413 in flight at the start of the outage is lost: the sender sees one 413
    /// instead of two, and its next attempt, only without padding, is accepted.
    fn count_campaign(&mut self, browser: &Browser, delivery: &Delivery, whole: bool, record: &Record) {
        let Some(taken) = delivery.attempts.iter().find(was_taken) else { return };
        self.campaign += 1;
        self.taken_at_ms.push(taken.at_ms);
        self.shrunk += u64::from(!whole);
        let cut = |attempt: &RecordedAttempt| attempt.status == Some(413) && was_cut(browser, attempt.at_ms, record);
        self.refusals_lost += u64::from(whole && delivery.attempts.iter().any(cut));
    }

    /// Counts repeats. A response in flight at the start of the outage is lost, so the delivery is sent again under the same id, which the
    /// browser drops. Any other delivery accepted twice is an error.
    fn count_repeats(&mut self, browser: &Browser, delivery: &Delivery, record: &Record) {
        let statuses = delivery.attempts.iter().map(|attempt| attempt.status);
        self.after_gone += statuses.skip_while(|status| !matches!(status, Some(404 | 410))).skip(1).count() as u64;
        if delivery.accepted < 2 {
            return;
        }
        self.repeated += 1;
        let first = delivery.attempts.iter().find(was_taken);
        let first_was_cut = first.is_some_and(|attempt| was_cut(browser, attempt.at_ms, record));
        self.repeated_without_cause += u64::from(!(first_was_cut && delivery.accepted == 2));
    }
}
