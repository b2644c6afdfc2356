//! What is known of a lane's way to an origin, as replicas tell each other and operators order it.

use std::sync::Arc;

use super::breaker::Snapshot;
use super::hold::Held;
use super::payload_limit::Learned;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::LaneId;

/// The origin that stands for all origins of a lane, those met later included.
pub const ALL_ORIGINS: &str = "*";

/// What one worker learned of a lane's way to an origin, or an operator ordered, and all obey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneState {
    pub lane: LaneId,
    /// The origin within it, or [`ALL_ORIGINS`].
    pub origin: Arc<str>,
    pub held: Option<Held>,
    /// What was held before this is not any more.
    pub released_at: Option<Timestamp>,
    /// No POST but probes before its end, since the gateway refuses the VAPID key.
    pub key_held: Option<Held>,
    /// A probe was accepted: what was held for the key before this is not any more.
    pub key_released_at: Option<Timestamp>,
    pub breaker: Option<Snapshot>,
    /// Whether it stands so for one worker alone, which reaches no gateway: the one that tells, and another than the one that
    /// hears of it.
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
