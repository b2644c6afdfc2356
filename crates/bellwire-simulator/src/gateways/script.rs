//! Rules in force. The first rule that matches a request or connection decides. Without a match the gateway behaves as
//! usual.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::rule::{Rule, RuleAction};
use bellwire_core::lane::Gateway;

pub(super) struct Live {
    pub id: u64,
    pub rule: Rule,
    added: Instant,
    hits: AtomicU64,
    /// Requests that [`RuleAction::Hold`] holds now.
    pub held: AtomicU64,
    /// A permit releases one held request. Removing the rule closes the gate, which releases all.
    pub gate: Semaphore,
    seen: Mutex<HashMap<(u16, u32), u32>>,
}

/// Request or connection that rules are matched against.
pub(super) struct Subject<'a> {
    pub host: (u16, &'a str),
    pub gateway: Gateway,
    /// Index and fraction of the endpoint, if the request is for one.
    pub endpoint: Option<(u32, f64)>,
}

impl Live {
    fn begins(&self) -> Instant {
        self.added + Duration::from_millis(self.rule.after_ms)
    }

    fn ends(&self) -> Option<Instant> {
        self.rule.for_ms.map(|ms| self.begins() + Duration::from_millis(ms))
    }

    fn concerns(&self, subject: &Subject<'_>, now: Instant) -> bool {
        let rule = &self.rule;
        rule.host.as_deref().is_none_or(|host| host == subject.host.1)
            && rule.gateway.is_none_or(|gateway| gateway == subject.gateway)
            && rule.endpoints.as_ref().is_none_or(|set| subject.endpoint.is_some_and(|(index, _)| set.contains(&index)))
            && rule.share.is_none_or(|[from, to]| subject.endpoint.is_some_and(|(_, at)| from <= at && at < to))
            && self.begins() <= now
            && self.ends().is_none_or(|end| now < end)
    }

    /// Counts this request if the rule has `attempts`. Returns whether its number is within the range.
    fn takes_attempt(&self, subject: &Subject<'_>) -> bool {
        let Some([from, to]) = self.rule.attempts else { return true };
        let Some((index, _)) = subject.endpoint else { return false };
        let mut seen = self.seen.lock();
        let attempt = seen.entry((subject.host.0, index)).or_default();
        *attempt = attempt.saturating_add(1);
        (from..=to).contains(attempt)
    }

    pub(super) fn count_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Uses one hit of `count`.
    fn hit(&self) -> bool {
        let limit = self.rule.count.unwrap_or(u64::MAX);
        self.hits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |hits| (hits < limit).then_some(hits + 1)).is_ok()
    }
}

/// Rules in force at one moment, in their order.
pub(super) type Rules = Arc<[Arc<Live>]>;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleReport {
    /// Id for [`Simulator::remove_rule`](super::Simulator::remove_rule) and others.
    pub id: u64,
    pub hits: u64,
    pub held: u64,
    pub rule: Rule,
}

/// Rules of one simulator.
pub(super) struct Script {
    rules: RwLock<Rules>,
    version: AtomicU64,
    changed: watch::Sender<()>,
}

impl Script {
    pub(super) fn new() -> Self {
        Self { rules: RwLock::new(Arc::from([])), version: AtomicU64::new(1), changed: watch::Sender::new(()) }
    }

    /// Adds a rule after the others and returns its id.
    pub(super) fn add(&self, rule: Rule, now: Instant) -> u64 {
        let mut rules = self.rules.write();
        let id = self.version.fetch_add(1, Ordering::AcqRel);
        let live = Live {
            id,
            rule,
            added: now,
            hits: AtomicU64::new(0),
            held: AtomicU64::new(0),
            gate: Semaphore::new(0),
            seen: Mutex::default(),
        };
        *rules = rules.iter().cloned().chain([Arc::new(live)]).collect();
        drop(rules);
        self.changed.send_replace(());
        id
    }

    /// Removes a rule and releases the requests that it holds. Returns `false` for an unknown id.
    pub(super) fn remove(&self, id: u64) -> bool {
        let mut rules = self.rules.write();
        let Some(live) = rules.iter().find(|live| live.id == id).cloned() else { return false };
        *rules = rules.iter().filter(|live| live.id != id).cloned().collect();
        self.version.fetch_add(1, Ordering::AcqRel);
        drop(rules);
        live.gate.close();
        self.changed.send_replace(());
        true
    }

    /// Releases `n` requests that the rule holds, or will hold. Returns `false` for an unknown id.
    pub(super) fn release(&self, id: u64, n: usize) -> bool {
        let rules = self.current();
        let found = rules.iter().find(|live| live.id == id);
        found.inspect(|live| live.gate.add_permits(n.min(Semaphore::MAX_PERMITS / 2))).is_some()
    }

    /// Returns a number that changes with every added or removed rule.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns a receiver that wakes when rules are added or removed.
    pub(super) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(super) fn current(&self) -> Rules {
        Arc::clone(&self.rules.read())
    }

    pub(super) fn report(&self) -> Vec<RuleReport> {
        let rules = self.current();
        let report = |live: &Arc<Live>| RuleReport {
            id: live.id,
            hits: live.hits.load(Ordering::Relaxed),
            held: live.held.load(Ordering::Relaxed),
            rule: live.rule.clone(),
        };
        rules.iter().map(report).collect()
    }
}

/// Returns the rule that decides about a request, and counts a hit.
pub(super) fn for_request(rules: &Rules, subject: &Subject<'_>, now: Instant) -> Option<Arc<Live>> {
    let acts = |live: &&Arc<Live>| {
        !live.rule.action.concerns_connections()
            && live.concerns(subject, now)
            && live.takes_attempt(subject)
            && live.hit()
    };
    rules.iter().find(acts).cloned()
}

/// Returns the action for a new connection, other than [`RuleAction::RefuseTcp`].
pub(super) fn for_connection(rules: &Rules, subject: &Subject<'_>, now: Instant) -> Option<RuleAction> {
    let acts = |live: &&Arc<Live>| {
        live.rule.action.concerns_connections()
            && live.rule.action != RuleAction::RefuseTcp
            && live.concerns(subject, now)
            && live.hit()
    };
    rules.iter().find(acts).map(|live| live.rule.action.clone())
}

/// Returns the [`RuleAction::RefuseTcp`] that closes a host's listener, and the time at which that may change without an
/// event.
pub(super) fn listener(rules: &Rules, subject: &Subject<'_>, now: Instant) -> (Option<Arc<Live>>, Option<Instant>) {
    let outages = || rules.iter().filter(|live| live.rule.action == RuleAction::RefuseTcp);
    let edges = outages().flat_map(|live| [Some(live.begins()), live.ends()]);
    let next = edges.flatten().filter(|edge| *edge > now).min();
    (outages().find(|live| live.concerns(subject, now)).cloned(), next)
}

#[cfg(test)]
#[path = "../../../../tests/crates/simulator/unit/gateways/script.rs"]
mod tests;
