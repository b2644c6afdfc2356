//! An open batch: up to 500 deliveries that are settled together, once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::message::{LaneInfo, Message, delivery};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::SubscriptionId;
use bellwire_store::outcomes::ledger::{ClaimableAt, Fate, Settlement};

/// Time after its last POST began when a batch closes. A delivery with a slower response becomes a queue row.
const AFTER_LAST_POST: Duration = Duration::from_secs(1);
/// Time after which a batch closes in any case. Deliveries delayed by a hold, a pause or a breaker become queue rows.
const AFTER_TAKE: Duration = Duration::from_secs(5);

pub(super) struct OpenBatch {
    pub id: Uuid,
    pub lease: Uuid,
    pub message: Arc<Message>,
    pub lane: Arc<LaneInfo>,
    /// Recipients, each with the life of the subscription.
    recipients: Vec<(SubscriptionId, i32)>,
    taken_at: Instant,
    state: Mutex<BatchState>,
}

struct BatchState {
    phase: BatchPhase,
    lease_until: Timestamp,
    places: Vec<RecipientState>,
    unanswered: usize,
    unsent: usize,
    last_post_at: Instant,
}

enum BatchPhase {
    Open,
    /// Closed, with an uncommitted settlement. Results that arrive meanwhile wait here, because their queue rows do not exist
    /// yet.
    Closing(Vec<Settlement>),
    Settled,
}

enum RecipientState {
    Waiting,
    InFlight { retries: u32 },
    Answered(Settlement),
    Taken,
}

pub(super) enum Recorded {
    /// Other deliveries are still in flight, or the batch no longer belongs to this worker.
    Kept,
    /// It was the last result: the batch is closed and must be settled.
    Last,
    /// The batch is settled already: this delivery is a queue row under the batch's lease.
    Row(Settlement),
}

impl OpenBatch {
    /// Creates an open batch without results.
    pub(super) fn new(
        batch: &bellwire_store::queue::claims::Batch, message: Arc<Message>, lane: Arc<LaneInfo>,
        lease_until: Timestamp, taken_at: Instant,
    ) -> Self {
        let recipients: Vec<_> =
            batch.recipients.iter().map(|recipient| (recipient.subscription, recipient.life)).collect();
        let n = recipients.len();
        let places = std::iter::repeat_with(|| RecipientState::Waiting).take(n).collect();
        let state = BatchState {
            phase: BatchPhase::Open,
            lease_until,
            places,
            unanswered: n,
            unsent: n,
            last_post_at: taken_at,
        };
        Self { id: batch.id, lease: batch.lease, message, lane, recipients, taken_at, state: Mutex::new(state) }
    }

    /// Records the start of a recipient's POST. Returns `false` if the batch was closed before the first POST: the delivery is
    /// then a queue row that any worker may have claimed. A repeat with a smaller payload still belongs to this batch.
    pub(super) fn begin(&self, place: usize, retries: u32, now: Instant) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.phase, BatchPhase::Open) {
            return matches!(state.places[place], RecipientState::InFlight { .. });
        }
        if matches!(state.places[place], RecipientState::Waiting) {
            state.unsent -= 1;
        }
        state.places[place] = RecipientState::InFlight { retries };
        state.last_post_at = now;
        true
    }

    pub(super) fn record(&self, place: usize, settled: Settlement) -> Recorded {
        let mut state = self.state.lock();
        let unsent = matches!(state.places[place], RecipientState::Waiting);
        match &mut state.phase {
            // It became a row that is not leased to us: its next claim decides again.
            BatchPhase::Closing(_) | BatchPhase::Settled if unsent => Recorded::Kept,
            BatchPhase::Settled => Recorded::Row(settled),
            BatchPhase::Closing(late) => {
                late.push(settled);
                Recorded::Kept
            }
            BatchPhase::Open => {
                state.unsent -= usize::from(unsent);
                state.places[place] = RecipientState::Answered(settled);
                state.unanswered -= 1;
                if state.unanswered > 0 {
                    return Recorded::Kept;
                }
                state.phase = BatchPhase::Closing(Vec::new());
                Recorded::Last
            }
        }
    }

    /// Closes the batch if its time has come. Returns `true` if this call closed it: the caller must settle it.
    pub(super) fn close_if_due(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let due = now >= self.taken_at + AFTER_TAKE || state.unsent == 0 && now >= state.last_post_at + AFTER_LAST_POST;
        let close = due && matches!(state.phase, BatchPhase::Open);
        if close {
            state.phase = BatchPhase::Closing(Vec::new());
        }
        close
    }

    pub(super) fn lease_until(&self) -> Timestamp {
        self.state.lock().lease_until
    }

    pub(super) fn renewed(&self, until: Timestamp) {
        self.state.lock().lease_until = until;
    }

    /// Returns the settlement of each recipient of a closed batch. Deliveries in flight keep a lease; unsent ones are due at
    /// once.
    pub(super) fn take_settlements(&self, now: Timestamp) -> Vec<Settlement> {
        let mut state = self.state.lock();
        debug_assert!(!matches!(state.phase, BatchPhase::Open));
        let lease_until = state.lease_until;
        let of = |(place, to): (&mut RecipientState, &(SubscriptionId, i32))| {
            let fate = match place {
                RecipientState::InFlight { retries } => Fate::InFlight { retries: *retries, lease_until },
                RecipientState::Waiting => Fate::Deferred(ClaimableAt::At(now)),
                RecipientState::Answered(_) | RecipientState::Taken => {
                    match std::mem::replace(place, RecipientState::Taken) {
                        RecipientState::Answered(settled) => return Some(settled),
                        _ => return None,
                    }
                }
            };
            Some(Settlement::new(delivery(&self.message, self.lane.id, *to, false), fate))
        };
        state.places.iter_mut().zip(&self.recipients).filter_map(of).collect()
    }

    /// Records the commit of the settlement. Returns results that arrived meanwhile, to settle as queue rows.
    pub(super) fn settled(&self) -> Vec<Settlement> {
        match std::mem::replace(&mut self.state.lock().phase, BatchPhase::Settled) {
            BatchPhase::Closing(late) => late,
            BatchPhase::Open | BatchPhase::Settled => Vec::new(),
        }
    }
}
