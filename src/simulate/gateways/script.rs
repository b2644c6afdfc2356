//! The rules in force. The first that matches a request (or, for the actions that concern connections, a
//! connection) decides; without one the gateway behaves as it should.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::rule::{Action, Rule};
use crate::model::lane::Gateway;

/// A rule in force, with what it has done.
pub(super) struct Live {
    pub id: u64,
    pub rule: Rule,
    added: Instant,
    hits: AtomicU64,
    /// Requests parked by [`Action::Hold`] right now.
    pub held: AtomicU64,
    /// A permit lets one held request go; closed when the rule is removed, which lets all go.
    pub gate: Semaphore,
    seen: Mutex<HashMap<(u16, u32), u32>>,
}

/// Who asks: what rules are matched against.
pub(super) struct Subject<'a> {
    /// The host's number and name.
    pub host: (u16, &'a str),
    /// The host's gateway.
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

    /// Counts this request where `attempts` asks for it, and says whether it is one of those meant.
    fn takes_attempt(&self, subject: &Subject<'_>) -> bool {
        let Some([from, to]) = self.rule.attempts else { return true };
        let Some((index, _)) = subject.endpoint else { return false };
        let mut seen = self.seen.lock();
        let attempt = seen.entry((subject.host.0, index)).or_default();
        *attempt = attempt.saturating_add(1);
        (from..=to).contains(attempt)
    }

    /// Counts one closing of a listener.
    pub(super) fn count_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Uses up one of `count`.
    fn hit(&self) -> bool {
        let limit = self.rule.count.unwrap_or(u64::MAX);
        self.hits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |hits| (hits < limit).then_some(hits + 1)).is_ok()
    }
}

/// The rules in force at one moment, in their order.
pub(super) type Rules = Arc<[Arc<Live>]>;

/// A rule as reported.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleReport {
    /// What [`Simulator::remove_rule`](super::Simulator::remove_rule) and others call it.
    pub id: u64,
    /// How often it acted.
    pub hits: u64,
    /// Requests that it holds right now.
    pub held: u64,
    /// The rule itself.
    pub rule: Rule,
}

/// All rules of one simulator.
pub(super) struct Script {
    rules: RwLock<Rules>,
    version: AtomicU64,
    changed: watch::Sender<()>,
}

impl Script {
    /// No rules.
    pub(super) fn new() -> Self {
        Self { rules: RwLock::new(Arc::from([])), version: AtomicU64::new(1), changed: watch::Sender::new(()) }
    }

    /// Puts a rule behind the others and returns its id.
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

    /// Takes a rule away and lets go what it holds; false if there is none of that id.
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

    /// Lets `n` requests that the rule holds, or will hold, go on; false if there is no such rule.
    pub(super) fn release(&self, id: u64, n: usize) -> bool {
        let rules = self.current();
        let found = rules.iter().find(|live| live.id == id);
        found.inspect(|live| live.gate.add_permits(n.min(Semaphore::MAX_PERMITS / 2))).is_some()
    }

    /// Changes with every rule that comes or goes.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Wakes when rules come or go.
    pub(super) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The rules in force.
    pub(super) fn current(&self) -> Rules {
        Arc::clone(&self.rules.read())
    }

    /// Every rule with what it has done.
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

/// The rule that decides about a request, which is counted as its hit.
pub(super) fn for_request(rules: &Rules, subject: &Subject<'_>, now: Instant) -> Option<Arc<Live>> {
    let acts = |live: &&Arc<Live>| {
        !live.rule.action.concerns_connections()
            && live.concerns(subject, now)
            && live.takes_attempt(subject)
            && live.hit()
    };
    rules.iter().find(acts).cloned()
}

/// The rule that decides about a new connection, other than [`Action::RefuseTcp`].
pub(super) fn for_connection(rules: &Rules, subject: &Subject<'_>, now: Instant) -> Option<Action> {
    let acts = |live: &&Arc<Live>| {
        live.rule.action.concerns_connections()
            && live.rule.action != Action::RefuseTcp
            && live.concerns(subject, now)
            && live.hit()
    };
    rules.iter().find(acts).map(|live| live.rule.action.clone())
}

/// Whether a host's listener is shut by a [`Action::RefuseTcp`] (which one), and when that may change by itself.
pub(super) fn listener(rules: &Rules, subject: &Subject<'_>, now: Instant) -> (Option<Arc<Live>>, Option<Instant>) {
    let outages = || rules.iter().filter(|live| live.rule.action == Action::RefuseTcp);
    let edges = outages().flat_map(|live| [Some(live.begins()), live.ends()]);
    let next = edges.flatten().filter(|edge| *edge > now).min();
    (outages().find(|live| live.concerns(subject, now)).cloned(), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(endpoint: Option<(u32, f64)>) -> Subject<'static> {
        Subject { host: (0, "fcm.test"), gateway: Gateway::Fcm, endpoint }
    }

    fn script(rules: impl IntoIterator<Item = Rule>) -> (Script, Instant) {
        let (script, now) = (Script::new(), Instant::now());
        rules.into_iter().for_each(|rule| {
            script.add(rule, now);
        });
        (script, now)
    }

    fn deciding(script: &Script, endpoint: (u32, f64), now: Instant) -> Option<Action> {
        for_request(&script.current(), &subject(Some(endpoint)), now).map(|live| live.rule.action.clone())
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let (script, now) = script([
            Rule { host: Some("wns.test".into()), ..Rule::always(Action::Hang) },
            Rule { gateway: Some(Gateway::Apple), ..Rule::always(Action::Hang) },
            Rule { endpoints: Some([7].into()), ..Rule::always(Action::Gone) },
            Rule { share: Some([0.0, 0.01]), ..Rule::always(Action::TooLarge) },
            Rule { share: Some([0.01, 0.03]), ..Rule::always(Action::ServerError) },
        ]);
        assert_eq!(deciding(&script, (7, 0.0), now), Some(Action::Gone));
        assert_eq!(deciding(&script, (8, 0.0), now), Some(Action::TooLarge));
        assert_eq!(deciding(&script, (8, 0.01), now), Some(Action::ServerError));
        assert_eq!(deciding(&script, (8, 0.03), now), None);
        assert!(for_request(&script.current(), &subject(None), now).is_none());
    }

    #[test]
    fn attempts_are_counted_by_endpoint_and_hits_in_all() {
        let (script, now) = script([Rule { attempts: Some([1, 2]), count: Some(3), ..Rule::always(Action::Gone) }]);
        let acts = |index| deciding(&script, (index, 0.5), now).is_some();
        assert_eq!([acts(1), acts(1), acts(1), acts(2), acts(2)], [true, true, false, true, false]);
        assert_eq!(script.report()[0].hits, 3);
    }

    #[test]
    fn a_rule_acts_only_within_its_window() {
        let rule = Rule { after_ms: 100, for_ms: Some(50), ..Rule::always(Action::Gone) };
        let (script, now) = script([rule, Rule { after_ms: 200, ..Rule::always(Action::RefuseTcp) }]);
        let at = |ms| now + Duration::from_millis(ms);
        let acts = |ms| deciding(&script, (1, 0.5), at(ms)).is_some();
        assert_eq!([acts(99), acts(100), acts(149), acts(150)], [false, true, true, false]);
        let (shut, next) = listener(&script.current(), &subject(None), at(150));
        assert!(shut.is_none() && next == Some(at(200)));
        let (shut, next) = listener(&script.current(), &subject(None), at(200));
        assert!(shut.is_some() && next.is_none());
    }
}
