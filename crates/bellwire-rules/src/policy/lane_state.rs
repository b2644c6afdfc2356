//! Shared state of a lane and origin, written by replicas and operators.

use std::sync::Arc;

use super::breaker::Snapshot;
use super::hold::HoldReason;
use super::payload_limit::Learned;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::LaneId;

/// Name that stands for all origins of a lane, later ones included.
pub const ALL_ORIGINS: &str = "*";

/// State of a lane and origin that one worker observed or an operator ordered. All workers apply it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneState {
    pub lane: LaneId,
    /// Origin of the lane, or [`ALL_ORIGINS`].
    pub origin: Arc<str>,
    pub held: Option<HoldReason>,
    /// Holds set before this time are void.
    pub released_at: Option<Timestamp>,
    /// Hold of all POSTs except probes, because the push service refuses the VAPID key.
    pub key_held: Option<HoldReason>,
    /// Holds of the key set before this time are void, because a probe was accepted.
    pub key_released_at: Option<Timestamp>,
    pub breaker: Option<Snapshot>,
    /// Whether the breaker is open only for the worker that writes this state, because it reaches no push service. Readers
    /// ignore it.
    pub alone: bool,
    pub payload: Option<Learned>,
}

impl LaneState {
    pub fn of(lane: LaneId, origin: Arc<str>) -> Self {
        Self {
            lane,
            origin,
            held: None,
            released_at: None,
            key_held: None,
            key_released_at: None,
            breaker: None,
            alone: false,
            payload: None,
        }
    }
}
