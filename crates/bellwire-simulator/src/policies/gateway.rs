//! Simulated gateway: response and latency of each POST.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::scenario::{Described, Mishap, Reply};
use bellwire_core::clock::Timestamp;
use bellwire_rules::classify::{Failure, Outcome, PostResult, classify};
use bellwire_rules::policy::ATTEMPT_DEADLINE;

/// Prepared response of the gateway.
#[derive(Debug, Clone)]
enum Ready {
    Response { status: u16, headers: HeaderMap },
    Failure(Failure),
}

impl Ready {
    fn of(reply: &Reply) -> Self {
        match (reply.status, reply.failure) {
            (Some(status), _) => {
                let headers = reply.retry_after_s.map(|s| (header::RETRY_AFTER, HeaderValue::from(s)));
                Ready::Response { status, headers: headers.into_iter().collect() }
            }
            (None, Some(Mishap::Refused)) => Ready::Failure(Failure::Connect),
            (None, Some(Mishap::Timeout) | None) => Ready::Failure(Failure::Deadline),
        }
    }
}

/// Index of a response in the list of prepared ones.
pub(super) type ResponseIndex = usize;
const ACCEPTED: ResponseIndex = 0;
const OVERLOADED: ResponseIndex = 1;
const TOO_LATE: ResponseIndex = 2;
const FAULTS: usize = 3;

/// Fixed position of a delivery in [0, 1). Multiples of the golden ratio are evenly distributed for any number of
/// deliveries.
fn place(delivery: u32) -> f64 {
    (f64::from(delivery) * 0.618_033_988_749_894_9).fract()
}

/// State of the gateway during a simulation.
pub(super) struct Stub<'a> {
    described: &'a Described,
    answers: Vec<Ready>,
    /// Latency of each response, if it differs from the common one.
    after: Vec<Option<Duration>>,
    level: f64,
    filled_at_us: u64,
}

impl<'a> Stub<'a> {
    pub(super) fn new(described: &'a Described) -> Self {
        let created = Reply { status: Some(201), retry_after_s: None, failure: None, after_ms: None };
        let late = Reply { status: None, retry_after_s: None, failure: Some(Mishap::Timeout), after_ms: None };
        let replies = [&created, &described.overload, &late].into_iter();
        let replies = replies.chain(described.faults.iter().map(|fault| &fault.answer));
        let after = |reply: &Reply| reply.after_ms.map(|ms| Duration::from_millis(ms.into()));
        let (answers, after) = replies.map(|reply| (Ready::of(reply), after(reply))).unzip();
        Self { described, answers, after, level: described.capacity_per_s.map_or(0.0, f64::from), filled_at_us: 0 }
    }

    /// Accepts a POST. Returns its response and latency.
    pub(super) fn take(&mut self, now_us: u64, delivery: u32, rng: &mut StdRng) -> (ResponseIndex, Duration) {
        let told = match self.fault(now_us, delivery, rng.random()) {
            Some(told) => told,
            None if self.has_room(now_us) => ACCEPTED,
            None => OVERLOADED,
        };
        let drawn = self.described.latency.draw(rng.random(), rng.random());
        let took = self.after[told].unwrap_or(drawn);
        match self.answers[told] {
            Ready::Failure(Failure::Deadline) => (told, ATTEMPT_DEADLINE),
            _ if took >= ATTEMPT_DEADLINE => (TOO_LATE, ATTEMPT_DEADLINE),
            _ => (told, took),
        }
    }

    /// Classifies a response with the rules of the server.
    pub(super) fn outcome(&self, told: ResponseIndex, now: Timestamp) -> Outcome {
        let answer = match &self.answers[told] {
            Ready::Response { status, headers } => PostResult::Response { status: *status, headers, body: b"" },
            Ready::Failure(failure) => PostResult::Failure(*failure),
        };
        classify(self.described.kind, &answer, now)
    }

    /// Returns the first active fault that applies to the POST. Faults of one kind share the POSTs, or the deliveries,
    /// among them.
    fn fault(&self, now_us: u64, delivery: u32, drawn: f64) -> Option<ResponseIndex> {
        let now_s = now_us as f64 / 1e6;
        let [mut of_posts, mut of_deliveries] = [0.0, 0.0];
        let on = self.described.faults.iter().enumerate().filter(|(_, fault)| fault.is_on(now_s));
        on.map(|(n, fault)| (FAULTS + n, fault)).find_map(|(told, fault)| {
            let (drawn, below) =
                if fault.sticky { (place(delivery), &mut of_deliveries) } else { (drawn, &mut of_posts) };
            *below += fault.rate;
            (drawn < *below).then_some(told)
        })
    }

    fn has_room(&mut self, now_us: u64) -> bool {
        let Some(capacity) = self.described.capacity_per_s.map(f64::from) else { return true };
        let passed_s = now_us.saturating_sub(self.filled_at_us) as f64 / 1e6;
        self.level = (self.level + passed_s * capacity).min(capacity);
        self.filled_at_us = now_us;
        let room = self.level >= 1.0;
        self.level -= f64::from(u8::from(room));
        room
    }
}
