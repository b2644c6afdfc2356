//! Requests that a simulator received: counters for all, and records for the decrypted ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;

use super::browsers::BrowsersReport;
use super::check::RequestFault;
use super::script::RuleReport;
use bellwire_core::lane::Gateway;

/// Maximum number of records. Further requests are counted, and [`SimulatorReport::records_dropped`] has their number.
#[derive(Debug, Clone, Copy)]
pub struct LogbookLimits {
    pub deliveries: usize,
    pub plaintexts: usize,
}

const ATTEMPTS_MAX: usize = 200;
/// Maximum examples for one kind of fault.
const SAMPLES_MAX: usize = 5;
const FIRST_STATUS: usize = 200;

/// One request for a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedAttempt {
    /// Time of the decision in milliseconds since 1970.
    pub at_ms: i64,
    /// Status of the response. Null without one (reset, hang, closed, lost response).
    pub status: Option<u16>,
    /// Value of `TTL` in seconds.
    pub ttl: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urgency: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<Box<str>>,
}

/// One delivery, identified by the id in its plaintext. Without an id every request is a delivery.
#[derive(Debug, Clone, Serialize)]
pub struct Delivery {
    /// `notification.data.bellwire.id` or `bellwire.id` of the plaintext.
    pub id: Option<Box<str>>,
    /// Host and index of the first subscription of the delivery.
    pub host: Box<str>,
    pub index: u32,
    /// Requests for the delivery, at most the first 200.
    pub attempts: Vec<RecordedAttempt>,
    /// Number of accepted requests. More than one means that the browser received the message twice.
    pub accepted: u32,
    /// Plaintext of the first accepted request or, before that, of the first request; while there is room.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub plaintext: Option<Bytes>,
}

fn as_text<S: serde::Serializer>(bytes: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_some(&bytes.as_deref().map(String::from_utf8_lossy))
}

/// Number of occurrences of a fault, and the first examples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FaultReport {
    pub count: u64,
    /// `host #index`, and a detail if the kind alone is not enough.
    pub samples: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostReport {
    pub gateway: Gateway,
    pub requests: u64,
    pub accepted: u64,
    /// Requests by the status of their response.
    pub statuses: BTreeMap<u16, u64>,
    pub unanswered: u64,
    pub connections: u64,
    pub open_connections: u64,
    /// Maximum open streams of one connection.
    pub peak_streams: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub browsers: Option<BrowsersReport>,
}

/// Complete state of a simulator at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct SimulatorReport {
    /// Requests of all hosts.
    pub requests: u64,
    /// Accepted requests of all hosts.
    pub accepted: u64,
    /// Requests without a response on purpose.
    pub unanswered: u64,
    /// Requests of all hosts by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests whose body was decrypted.
    pub verified: u64,
    /// Number of recorded deliveries.
    pub deliveries: u64,
    /// Requests for a delivery that had a request before: retries.
    pub repeats: u64,
    /// Accepted requests for a delivery that had been accepted before.
    pub duplicates: u64,
    /// Decrypted bodies without a delivery id.
    pub without_id: u64,
    /// Decrypted bodies that were not recorded for lack of room.
    pub records_dropped: u64,
    /// Faults of requests, refused or not.
    pub faults: BTreeMap<RequestFault, FaultReport>,
    /// Reports by host name.
    pub hosts: BTreeMap<String, HostReport>,
    /// Rules that are in force.
    pub rules: Vec<RuleReport>,
    /// Time of the first decision in milliseconds since 1970.
    pub first_ms: Option<i64>,
    /// Time of the last decision in milliseconds since 1970.
    pub last_ms: Option<i64>,
}

/// Counters of one host. Every request adds to two of them without a lock.
pub(super) struct Counters {
    statuses: Box<[AtomicU64]>,
    unanswered: AtomicU64,
    accepted: AtomicU64,
    pub connections: AtomicU64,
    pub open_connections: AtomicU64,
    pub peak_streams: AtomicU64,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            statuses: (FIRST_STATUS..600).map(|_| AtomicU64::new(0)).collect(),
            unanswered: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            open_connections: AtomicU64::new(0),
            peak_streams: AtomicU64::new(0),
        }
    }

    /// Counts a response. The validation of rules excludes statuses outside 200 to 599.
    pub(super) fn decided(&self, status: Option<u16>, accepted: bool) {
        let by_status = status.and_then(|status| self.statuses.get(usize::from(status).wrapping_sub(FIRST_STATUS)));
        by_status.unwrap_or(&self.unanswered).fetch_add(1, Ordering::Relaxed);
        if accepted {
            self.accepted.fetch_add(1, Ordering::Release);
        }
    }

    pub(super) fn report(&self, gateway: Gateway, browsers: Option<BrowsersReport>) -> HostReport {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Read first, because `decided` writes it last: a report never has more accepted requests than requests.
        let accepted = self.accepted.load(Ordering::Acquire);
        let statuses: BTreeMap<u16, u64> =
            (200..600).zip(&self.statuses).map(|(status, n)| (status, get(n))).filter(|(_, n)| *n > 0).collect();
        let unanswered = get(&self.unanswered);
        HostReport {
            gateway,
            requests: statuses.values().sum::<u64>() + unanswered,
            accepted,
            statuses,
            unanswered,
            connections: get(&self.connections),
            open_connections: get(&self.open_connections),
            peak_streams: get(&self.peak_streams),
            browsers,
        }
    }

    /// Resets all counters except those of open connections.
    pub(super) fn reset(&self) {
        let rest = [&self.unanswered, &self.accepted, &self.connections, &self.peak_streams];
        self.statuses.iter().chain(rest).for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}

/// A decrypted request before it is recorded.
pub(super) struct Sample {
    pub id: Option<Box<str>>,
    pub plaintext: Bytes,
    pub ttl: Option<u64>,
    pub urgency: Option<Box<str>>,
    pub topic: Option<Box<str>>,
}

#[derive(Default)]
struct Records {
    deliveries: Vec<Delivery>,
    by_id: HashMap<Box<str>, usize>,
    by_endpoint: HashMap<(u16, u32), Vec<usize>>,
    /// First subscription of each ephemeral key and salt.
    senders: HashMap<[u8; 8], (u16, u32)>,
    plaintexts: usize,
    verified: u64,
    repeats: u64,
    duplicates: u64,
    without_id: u64,
    dropped: u64,
}

/// Logbook of all hosts of a simulator.
pub(super) struct Logbook {
    limits: LogbookLimits,
    records: Mutex<Records>,
    faults: Mutex<BTreeMap<RequestFault, FaultReport>>,
    first_ms: AtomicI64,
    last_ms: AtomicI64,
    /// Wakes the tasks that wait for a change of the report.
    pub touched: Notify,
}

impl Logbook {
    pub(super) fn new(limits: LogbookLimits) -> Self {
        Self {
            limits,
            records: Mutex::default(),
            faults: Mutex::default(),
            first_ms: AtomicI64::new(0),
            last_ms: AtomicI64::new(0),
            touched: Notify::new(),
        }
    }

    /// Records the time of responses, and wakes the tasks that wait for a change.
    pub(super) fn touch(&self, now_ms: i64) {
        let _already_set = self.first_ms.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed);
        self.last_ms.store(now_ms, Ordering::Relaxed);
        self.touched.notify_waiters();
    }

    pub(super) fn fault(&self, fault: RequestFault, place: impl FnOnce() -> String) {
        let mut faults = self.faults.lock();
        let report = faults.entry(fault).or_default();
        report.count += 1;
        if report.samples.len() < SAMPLES_MAX {
            report.samples.push(place());
        }
    }

    /// Whether another subscription used this ephemeral key and salt (hashed) before.
    pub(super) fn sender_reused(&self, sender: [u8; 8], endpoint: (u16, u32)) -> bool {
        let mut records = self.records.lock();
        records.verified += 1;
        if records.senders.len() >= self.limits.deliveries {
            return records.senders.get(&sender).is_some_and(|first| *first != endpoint);
        }
        *records.senders.entry(sender).or_insert(endpoint) != endpoint
    }

    pub(super) fn record(
        &self, host: (u16, &str), index: u32, sample: Sample, status: Option<u16>, accepted: bool, at_ms: i64,
    ) {
        let Sample { id, plaintext, ttl, urgency, topic } = sample;
        let mut records = self.records.lock();
        let records = &mut *records;
        let known = id.as_ref().and_then(|id| records.by_id.get(id)).copied();
        records.repeats += u64::from(known.is_some());
        records.without_id += u64::from(id.is_none());
        let at = match known {
            Some(at) => at,
            None if records.deliveries.len() >= self.limits.deliveries => {
                records.dropped += 1;
                return;
            }
            None => {
                let at = records.deliveries.len();
                let kept = records.plaintexts < self.limits.plaintexts;
                records.plaintexts += usize::from(kept);
                records.by_endpoint.entry((host.0, index)).or_default().push(at);
                if let Some(id) = &id {
                    records.by_id.insert(id.clone(), at);
                }
                records.deliveries.push(Delivery {
                    id,
                    host: host.1.into(),
                    index,
                    attempts: Vec::with_capacity(1),
                    accepted: 0,
                    plaintext: kept.then(|| plaintext.clone()),
                });
                at
            }
        };
        let delivery = &mut records.deliveries[at];
        records.duplicates += u64::from(accepted && delivery.accepted > 0);
        // The payload of a delivery that was refused for its size is smaller in the next request.
        if let Some(kept) = delivery.plaintext.as_mut().filter(|_| accepted && delivery.accepted == 0) {
            *kept = plaintext;
        }
        delivery.accepted += u32::from(accepted);
        if delivery.attempts.len() < ATTEMPTS_MAX {
            delivery.attempts.push(RecordedAttempt { at_ms, status, ttl, urgency, topic });
        }
    }

    /// Returns the deliveries of one subscription, in the order of their first request.
    pub(super) fn received(&self, endpoint: (u16, u32)) -> Vec<Delivery> {
        let records = self.records.lock();
        let places = records.by_endpoint.get(&endpoint).map(Vec::as_slice).unwrap_or_default();
        places.iter().map(|at| records.deliveries[*at].clone()).collect()
    }

    pub(super) fn delivery(&self, id: &str) -> Option<Delivery> {
        let records = self.records.lock();
        records.by_id.get(id).map(|at| records.deliveries[*at].clone())
    }

    pub(super) fn report(&self, hosts: BTreeMap<String, HostReport>, rules: Vec<RuleReport>) -> SimulatorReport {
        let records = self.records.lock();
        let sum = |figure: fn(&HostReport) -> u64| hosts.values().map(figure).sum();
        let mut statuses = BTreeMap::new();
        for (status, n) in hosts.values().flat_map(|host| &host.statuses) {
            *statuses.entry(*status).or_default() += n;
        }
        let time = |at: &AtomicI64| Some(at.load(Ordering::Relaxed)).filter(|ms| *ms != 0);
        SimulatorReport {
            requests: sum(|host| host.requests),
            accepted: sum(|host| host.accepted),
            unanswered: sum(|host| host.unanswered),
            statuses,
            verified: records.verified,
            deliveries: records.deliveries.len() as u64,
            repeats: records.repeats,
            duplicates: records.duplicates,
            without_id: records.without_id,
            records_dropped: records.dropped,
            faults: self.faults.lock().clone(),
            hosts,
            rules,
            first_ms: time(&self.first_ms),
            last_ms: time(&self.last_ms),
        }
    }

    pub(super) fn reset(&self) {
        *self.records.lock() = Records::default();
        self.faults.lock().clear();
        self.first_ms.store(0, Ordering::Relaxed);
        self.last_ms.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "../../../../tests/crates/simulator/unit/gateways/logbook.rs"]
mod tests;
