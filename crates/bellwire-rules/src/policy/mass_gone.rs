//! Mass prunes: a push service that suddenly reports many working subscriptions as gone may be wrong, and is asked again before
//! they are pruned.
//!
//! Only subscriptions that accepted a push before count. Each one reported as gone adds 1 to the score of its lane, each
//! acceptance subtracts 0.25, and the score never falls below 0. So a lane that loses less than a fifth of its subscriptions
//! stays near 0, with a campaign of any size. If all are reported as gone, an alarm follows after at most ten.

use std::time::Duration;

use super::hold::HoldReason;
use bellwire_core::clock::Timestamp;

/// Time after which another such response prunes a subscription that was reported as gone during a suspicion.
const CONFIRM_AFTER: Duration = Duration::from_secs(900);
/// Duration of a suspicion after the last alarm. Longer than two confirmations, for a delivery that first has to wait for the
/// lane.
const SUSPECTED_FOR: Duration = Duration::from_secs(3_600);
/// Duration of one hold of a suspected lane. Then a probe is sent.
const HOLD: Duration = Duration::from_secs(15);
/// Period in which holds of one suspicion begin.
const HOLDS_WITHIN: Duration = Duration::from_secs(900);
/// Time without a subscription reported as gone after which the score is reset.
const SCORED_WITHIN: Duration = Duration::from_secs(600);
/// Tolerated clock difference between servers. A larger one means that a clock was set back.
const TOLERATED: Duration = Duration::from_secs(5);
const ACCEPTED_WEIGHT: f64 = 0.25;
const ALARM_AT: f64 = 10.0;
/// Minimum score for an alarm in a lane with few subscriptions. There, half of them is enough.
const ALARM_AT_LEAST: f64 = 3.0;

/// Sum of consecutive responses of a lane, in order.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AnswerSum {
    sum: f64,
    /// Score after these responses if it was 0 before.
    from_zero: f64,
    accepted: bool,
}

impl AnswerSum {
    /// Adds a subscription reported as gone.
    pub fn gone(&mut self) {
        self.add(1.0);
    }

    /// Adds an acceptance of a push.
    pub fn accepted(&mut self) {
        self.add(-ACCEPTED_WEIGHT);
        self.accepted = true;
    }

    fn add(&mut self, weight: f64) {
        self.sum += weight;
        self.from_zero = (self.from_zero + weight).max(0.0);
    }

    /// Returns the score after these responses.
    fn after(&self, score: f64) -> f64 {
        (score + self.sum).max(self.from_zero)
    }
}

/// State of one lane, shared by all replicas. The table `gone_watches` describes its fields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoneWatch {
    pub score: f64,
    pub scored_at: Timestamp,
    pub rising_since: Timestamp,
    pub suspected_at: Option<Timestamp>,
    pub suspected_until: Option<Timestamp>,
    pub held_until: Option<Timestamp>,
    /// Whether a push was accepted since the last hold.
    pub reopened: bool,
    /// Time at which a suspected subscription last accepted a push.
    pub recovered_at: Option<Timestamp>,
}

/// Consequences of new responses for a lane.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PruneAlarm {
    /// Whether a suspicion begins.
    pub begins: bool,
    /// Hold of the lane. `None`: not held.
    pub hold: Option<HoldReason>,
}

impl GoneWatch {
    /// Creates the state of a lane without subscriptions reported as gone.
    pub fn new(now: Timestamp) -> Self {
        Self {
            score: 0.0,
            scored_at: now,
            rising_since: now,
            suspected_at: None,
            suspected_until: None,
            held_until: None,
            reopened: false,
            recovered_at: None,
        }
    }

    /// Drops state that is invalid because the clock was set back.
    pub fn follow_clock(&mut self, now: Timestamp) {
        if self.suspected_at.max(Some(self.scored_at)).max(self.recovered_at) > Some(now + TOLERATED) {
            *self = Self::new(now);
        }
    }

    /// Whether a suspicion is in force.
    pub fn suspects(&self, now: Timestamp) -> bool {
        self.suspected_until.is_some_and(|until| now < until)
    }

    /// Adds responses, at least one of which reports a subscription as gone. `size`: number of active subscriptions of the
    /// lane.
    pub fn add(&mut self, answers: &AnswerSum, size: i64, now: Timestamp) -> PruneAlarm {
        if self.scored_at + SCORED_WITHIN <= now {
            self.score = 0.0;
        }
        let suspected = self.suspects(now);
        if self.score <= 0.0 && !suspected {
            self.rising_since = now;
        }
        (self.score, self.scored_at) = (answers.after(self.score), now);
        self.reopened |= answers.accepted;
        let alarm = self.score >= (size as f64 / 2.0).clamp(ALARM_AT_LEAST, ALARM_AT);
        if alarm {
            // The answers of one alarm may have come in any order.
            (self.score, self.reopened) = (0.0, false);
            self.suspected_at = self.suspected_at.filter(|_| suspected).or(Some(now));
            self.suspected_until = Some(now + SUSPECTED_FOR);
        }
        let asks_again = suspected && !self.reopened;
        let is_held = self.held_until.is_some_and(|until| now < until);
        let may_hold = self.suspected_at.is_some_and(|at| now < at + HOLDS_WITHIN);
        let hold = ((alarm || asks_again) && !is_held && may_hold).then(|| HoldReason { at: now, until: now + HOLD });
        self.held_until = hold.map(|hold| hold.until).or(self.held_until);
        PruneAlarm { begins: alarm && !suspected, hold }
    }

    /// Returns the time from which another such response prunes a subscription first reported as gone at `first_at`. A suspect
    /// that accepts a push shows that the push service was wrong, so all must be reported again.
    pub fn confirms_at(&self, first_at: Timestamp) -> Timestamp {
        Some(first_at).max(self.recovered_at).unwrap_or(first_at) + CONFIRM_AFTER
    }
}
