//! Property tests of settlements, against a model: a list of attempts and one final state.

use proptest::prelude::*;
use uuid::Uuid;

use super::settlement::{Attempt, ClaimableAt, Death, Delivery, End, Fate, MessageOrigin, Settlement};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Ending, Tier};
use bellwire_core::hook::WebhookKinds;
use bellwire_core::id::{AppId, DeadLetterId, LaneId, MessageId, SubscriptionId};
use bellwire_rules::classify::DeadReason;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Settlement in the model: numbers of its attempts, and state of the delivery.
#[derive(Debug, Clone, PartialEq)]
struct SettlementModel {
    attempts: Vec<u32>,
    state: ModelState,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ModelState {
    Ended(Ending),
    /// Retried, with the number of used retries.
    Retried(u32),
    Deferred,
    InFlight(u32),
}

#[derive(Debug, Clone, Copy)]
enum ModelStep {
    Defer(ClaimableAt),
    ToSuccessor,
}

fn attempt(number: u32, posted: bool) -> Attempt {
    Attempt { number, at: NOW, status: posted.then_some(410), took_ms: posted.then_some(5), reason: None }
}

fn delivery() -> Delivery {
    Delivery {
        subscription: SubscriptionId(Uuid::nil()),
        message: MessageId(Uuid::nil()),
        app: AppId(Uuid::nil()),
        lane: LaneId(1),
        tier: Tier::Promotional,
        life: 0,
        proven: true,
        origin: MessageOrigin { free_at: NOW, enveloped: true, charted: false, heard: WebhookKinds::default() },
        sla: None,
    }
}

fn due() -> impl Strategy<Value = ClaimableAt> {
    prop::sample::select(vec![
        ClaimableAt::At(NOW),
        ClaimableAt::Turn(NOW),
        ClaimableAt::Reopening(NOW),
        ClaimableAt::Parked,
    ])
}

fn end() -> impl Strategy<Value = End> {
    let death = Death { id: DeadLetterId(Uuid::nil()), reason: DeadReason::Http4xx, detail: None, policy: None };
    let ends = [End::Accepted, End::Gone, End::Expired, End::Cancelled, End::Capped, End::Dead(Box::new(death))];
    prop::sample::select(ends.to_vec())
}

/// Generates a settlement with up to three earlier attempts, and its model.
fn settled() -> impl Strategy<Value = (Settlement, SettlementModel)> {
    let fate = prop_oneof![
        (end(), any::<bool>()).prop_map(|(end, posted)| Fate::Ended(attempt(0, posted), end)),
        Just(Fate::Retry { failed: attempt(0, true), retries: 0, due: NOW }),
        due().prop_map(Fate::Deferred),
        Just(Fate::InFlight { retries: 0, lease_until: NOW }),
    ];
    (0..5u32, 0..4u32, fate).prop_map(|(first, earlier, fate)| {
        let last = first + earlier;
        let mut attempts: Vec<u32> = (first..last).collect();
        let (fate, state) = match fate {
            Fate::Ended(attempt, end) => {
                attempts.push(last);
                let state = ModelState::Ended(end.ending());
                (Fate::Ended(Attempt { number: last, ..attempt }, end), state)
            }
            Fate::Retry { failed, due, .. } => {
                attempts.push(last);
                let fate = Fate::Retry { failed: Attempt { number: last, ..failed }, retries: last + 1, due };
                (fate, ModelState::Retried(last + 1))
            }
            Fate::Deferred(due) if earlier > 0 => (Fate::Deferred(due), ModelState::Retried(last)),
            Fate::Deferred(due) => (Fate::Deferred(due), ModelState::Deferred),
            Fate::InFlight { lease_until, .. } => {
                (Fate::InFlight { retries: last, lease_until }, ModelState::InFlight(last))
            }
        };
        let before = (first..last).map(|number| attempt(number, true)).collect();
        (Settlement::after(before, delivery(), fate, NOW), SettlementModel { attempts, state })
    })
}

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    prop::collection::vec(prop_oneof![due().prop_map(ModelStep::Defer), Just(ModelStep::ToSuccessor)], 0..4)
}

impl SettlementModel {
    /// Returns the number of attempts before the one that the state belongs to.
    fn earlier(&self) -> usize {
        let has_own = matches!(self.state, ModelState::Ended(_) | ModelState::Retried(_));
        self.attempts.len() - usize::from(has_own)
    }

    /// Removes the last attempt, for a delivery that waits: only attempts followed by another one remain.
    fn without_last(&mut self) {
        self.attempts.truncate(self.earlier());
        self.state = self.attempts.last().map_or(ModelState::Deferred, |last| ModelState::Retried(last + 1));
    }

    fn apply(&mut self, step: ModelStep, posted: bool) {
        match (step, self.state) {
            (ModelStep::Defer(_), _) => self.without_last(),
            (ModelStep::ToSuccessor, ModelState::Ended(Ending::Gone)) if posted => {
                self.state = ModelState::Retried(self.attempts.last().expect("the attempt that ended it") + 1);
            }
            (ModelStep::ToSuccessor, ModelState::Ended(Ending::Gone)) => self.without_last(),
            (ModelStep::ToSuccessor, _) => {}
        }
    }
}

/// Converts a settlement to the model.
fn read(settlement: &Settlement) -> SettlementModel {
    let state = match settlement.fate() {
        Fate::Ended(_, end) => ModelState::Ended(end.ending()),
        Fate::Retry { retries, .. } => ModelState::Retried(*retries),
        Fate::Deferred(_) => ModelState::Deferred,
        Fate::InFlight { retries, .. } => ModelState::InFlight(*retries),
    };
    SettlementModel { attempts: settlement.attempts().map(|(attempt, _)| attempt.number).collect(), state }
}

proptest! {
    #[test]
    fn settlements_follow_their_model((mut settlement, mut model) in settled(), steps in steps()) {
        prop_assert_eq!(&read(&settlement), &model);
        for step in steps {
            let posted = matches!(settlement.fate(), Fate::Ended(last, _) if last.took_ms.is_some());
            model.apply(step, posted);
            match step {
                ModelStep::Defer(due) => settlement.defer(due, NOW),
                ModelStep::ToSuccessor => settlement = settlement.to_successor(NOW),
            }
            prop_assert_eq!(&read(&settlement), &model);
        }
        // The log has one row for each attempt, and only the last one can end the delivery.
        let endings: Vec<Ending> = settlement.attempts().map(|(_, ending)| ending).collect();
        let (last, before) = endings.split_last().map_or((None, &[][..]), |(last, before)| (Some(*last), before));
        prop_assert!(before.iter().all(|ending| *ending == Ending::Retry));
        let ended = match model.state {
            ModelState::Ended(ending) => Some(ending),
            ModelState::Retried(_) => Some(Ending::Retry),
            ModelState::Deferred | ModelState::InFlight(_) => last,
        };
        prop_assert_eq!(last, ended);
        prop_assert_eq!(settlement.logged().count(), model.attempts.len());
    }
}
