//! Limits of a delivery before it enters the fair queue: frequency caps and throttle.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::warn;

use super::Admission;
use crate::conclude::unsent_attempt;
use crate::job::Job;
use bellwire_rules::policy::Throttle;
use bellwire_store as store;
use bellwire_store::outcomes::ledger::{ClaimableAt, End, Fate};
use bellwire_store::queue::throttles::TurnRequest;

impl Admission {
    /// Ends deliveries that exceed a frequency cap, and makes reservations for the others. Returns the others.
    pub(super) async fn without_capped(&self, jobs: Vec<Box<Job>>) -> Vec<Box<Job>> {
        if !jobs.iter().any(|job| job.wants_place()) {
            return jobs;
        }
        let (counted, mut free): (Vec<Box<Job>>, Vec<_>) = jobs.into_iter().partition(|job| job.wants_place());
        let mut alike = BTreeMap::<_, Vec<_>>::new();
        for job in counted {
            alike.entry((job.message.app, job.message.tier)).or_default().push(job);
        }
        for ((app, _), jobs) in alike {
            let now = self.shared.clock.now();
            let wishes: Vec<_> = jobs.iter().map(|job| job.wish()).collect();
            // Those of one app and tier have the same caps, but for a minute after a change.
            let caps = jobs[0].message.caps.clone();
            let refusals = match store::queue::caps::reserve(&self.shared.pool, app, &caps, &wishes, now).await {
                Ok(refusals) => refusals,
                Err(failed) => {
                    warn!(error = %failed, "frequency caps could not be asked; these deliveries are put back");
                    self.settling.put_back(jobs, now);
                    continue;
                }
            };
            for (mut job, refusal) in jobs.into_iter().zip(refusals) {
                let Some(refusal) = refusal else {
                    free.push(job);
                    continue;
                };
                let attempt = unsent_attempt(job.retries, &refusal.to_string(), now);
                self.settling.settle(&mut job, Fate::Ended(attempt, End::Capped));
            }
        }
        free
    }

    /// Applies throttles of subscriptions. Deliveries with a slot now continue, others are deferred to their slot, and those
    /// that would expire first end.
    pub(super) async fn throttle(&self, jobs: Vec<Box<Job>>) {
        if jobs.is_empty() {
            return;
        }
        let now = self.shared.clock.now();
        let wanted: Vec<_> = jobs.iter().map(|job| wanted(job)).collect();
        let turns = match store::queue::throttles::take_turns(&self.shared.pool, &wanted, now).await {
            Ok(turns) => turns,
            Err(failed) => {
                warn!(error = %failed, "throttles could not be asked; these deliveries are put back");
                return self.settling.put_back(jobs, now);
            }
        };
        let mut go = Vec::new();
        for (mut job, turn) in jobs.into_iter().zip(turns) {
            match turn {
                Some(at) if at <= now => go.push(job),
                Some(at) => {
                    self.shared.metrics.throttled.inc();
                    self.settling.settle(&mut job, Fate::Deferred(ClaimableAt::Turn(at)));
                }
                None => {
                    let attempt = unsent_attempt(job.retries, "throttled beyond its time to live", now);
                    self.settling.settle(&mut job, Fate::Ended(attempt, End::Expired));
                }
            }
        }
        self.line_up(go);
    }
}

fn wanted(job: &Job) -> TurnRequest {
    let per_second = job.policy.throttle.map_or(1, |Throttle { max_receives_per_second }| max_receives_per_second);
    let message = &job.message;
    TurnRequest {
        subscription: job.subscription,
        interval: Duration::from_secs(1) / per_second.max(1),
        expires_at: (message.ttl_s > 0).then_some(message.expires_at),
    }
}
