//! Payload limit of a push service, learned from its responses.
//!
//! Firefox's bridge to phones accepts less than desktop browsers do, and both have one origin. So a limit applies only until a
//! larger payload is accepted.

use std::time::Duration;

use bellwire_core::clock::Timestamp;

/// Time after which a learned limit is tested again.
pub const BELIEVED_FOR: Duration = Duration::from_secs(86_400);
/// Time for which an acceptance also disproves a smaller limit, because responses to concurrent requests arrive in any order.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// Learned limit of an origin, with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Learned {
    /// Maximum plaintext bytes, including padding. `None`: the former limit was disproved.
    pub max: Option<u32>,
    /// Time of the observation.
    pub at: Timestamp,
}

/// Refusal as too large, after which a delivery was reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadRefusal {
    /// Plaintext bytes that the push service refused last, including padding.
    pub octets: u32,
    /// Maximum bytes of the next attempt. The payload may be shorter.
    pub tried: u32,
}

/// Limit of one lane's origin, in the memory of one worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PayloadLimit {
    learned: Option<Learned>,
    /// Size and time of the largest recent acceptance.
    taken: Option<(u32, Timestamp)>,
}

impl PayloadLimit {
    /// Returns the estimated maximum plaintext bytes. `None`: no limit.
    pub fn believed(&self, now: Timestamp) -> Option<u32> {
        self.learned.filter(|learned| now < learned.at + BELIEVED_FOR)?.max
    }

    /// Records the acceptance of a POST with this size. `refused` is an earlier refusal of the same delivery. Returns updates
    /// for other replicas.
    pub fn accepted(&mut self, now: Timestamp, octets: u32, refused: Option<PayloadRefusal>) -> Option<Learned> {
        self.remember(octets, now);
        let believed = self.believed(now);
        let Some(PayloadRefusal { octets: refused, tried }) = refused else {
            return believed.filter(|max| octets > *max).and_then(|_| self.learn(None, now));
        };
        let is_borne_out = believed.is_some_and(|max| (octets..refused).contains(&max));
        let takes_more = self.taken.is_some_and(|(largest, _)| largest > tried);
        if is_borne_out || takes_more { None } else { self.learn(Some(tried), now) }
    }

    /// Records that a POST of this size was too large. If the size was within the limit, the new limit is three quarters of it.
    /// Returns the state for other replicas.
    pub fn refused(&mut self, now: Timestamp, octets: u32) -> Option<Learned> {
        self.believed(now).filter(|max| octets <= *max)?;
        self.learn(Some((octets / 4 * 3).max(1)), now)
    }

    /// Adopts a limit learned by another worker, if it is later.
    pub fn adopt(&mut self, learned: Learned) {
        if self.learned.is_none_or(|known| known.at < learned.at) {
            self.learned = Some(learned);
        }
    }

    fn learn(&mut self, max: Option<u32>, at: Timestamp) -> Option<Learned> {
        self.learned = Some(Learned { max, at });
        self.learned
    }

    fn remember(&mut self, octets: u32, now: Timestamp) {
        let larger = self.taken.filter(|(taken, at)| *taken > octets && now < *at + REMEMBERED_FOR);
        self.taken = larger.or(Some((octets, now)));
    }
}
