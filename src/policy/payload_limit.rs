//! What a gateway has shown of how much it takes.
//!
//! Firefox's bridge to phones takes less than its desktop browsers do, and both stand behind one origin. So a limit is
//! believed only until something larger is accepted.

use std::time::Duration;

use crate::model::clock::Timestamp;

/// A limit is believed for so long, then tried anew.
pub(crate) const BELIEVED_FOR: Duration = Duration::from_secs(86_400);
/// An acceptance counts against a smaller limit for so long after it came, too: what is in flight together is answered
/// in any order.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// What is believed of an origin since a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Learned {
    /// Plaintext octets, padding included, that it takes at most; none: what was believed is disproved.
    pub max: Option<u32>,
    /// Since when.
    pub at: Timestamp,
}

/// What a delivery was made smaller for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Plaintext octets, padding included, that the gateway refused last.
    pub octets: u32,
    /// How many are tried instead at most; what is sent may be shorter.
    pub tried: u32,
}

/// The limit of one lane's origin, as one worker knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PayloadLimit {
    learned: Option<Learned>,
    /// The largest of the last acceptances, and when it came.
    taken: Option<(u32, Timestamp)>,
}

impl PayloadLimit {
    /// Plaintext octets that the gateway is believed to take at most.
    pub(crate) fn believed(&self, now: Timestamp) -> Option<u32> {
        self.learned.filter(|learned| now < learned.at + BELIEVED_FOR)?.max
    }

    /// A POST of so many octets was accepted, of a delivery that was made smaller after a refusal, or not. Returns what
    /// others have to know.
    pub(crate) fn accepted(&mut self, now: Timestamp, octets: u32, refused: Option<Refusal>) -> Option<Learned> {
        self.remember(octets, now);
        let believed = self.believed(now);
        let Some(Refusal { octets: refused, tried }) = refused else {
            return believed.filter(|max| octets > *max).and_then(|_| self.learn(None, now));
        };
        let is_borne_out = believed.is_some_and(|max| (octets..refused).contains(&max));
        let takes_more = self.taken.is_some_and(|(largest, _)| largest > tried);
        if is_borne_out || takes_more { None } else { self.learn(Some(tried), now) }
    }

    /// A POST of so many octets was too large. If that was within the limit that is believed, the next is tried with
    /// three quarters of it. Returns what others have to know.
    pub(crate) fn refused(&mut self, now: Timestamp, octets: u32) -> Option<Learned> {
        self.believed(now).filter(|max| octets <= *max)?;
        self.learn(Some((octets / 4 * 3).max(1)), now)
    }

    /// Takes over what another worker learned, if that was later.
    pub(crate) fn adopt(&mut self, learned: Learned) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000, 0).unwrap() + Duration::from_secs(s)
    }

    fn learned() -> PayloadLimit {
        let mut limit = PayloadLimit::default();
        let told = Some(Learned { max: Some(2_744), at: at(0) });
        assert_eq!(limit.accepted(at(0), 2_310, after(3_993)), told, "what was tried, if not what was sent");
        limit
    }

    fn after(refused: u32) -> Option<Refusal> {
        Some(Refusal { octets: refused, tried: 2_744 })
    }

    #[test]
    fn what_is_accepted_after_a_413_is_believed_for_a_day() {
        let mut limit = learned();
        assert_eq!(limit.believed(at(86_399)), Some(2_744));
        assert_eq!(limit.accepted(at(10), 2_744, None), None, "nothing new");
        assert_eq!(limit.accepted(at(10), 2_744, after(3_993)), None, "nothing new");
        assert_eq!(limit.believed(at(86_400)), None);
        assert!(limit.accepted(at(90_000), 2_744, after(3_993)).is_some());
    }

    #[test]
    fn an_acceptance_alone_teaches_nothing() {
        let mut limit = PayloadLimit::default();
        assert_eq!(limit.accepted(at(0), 500, None), None);
        assert_eq!((limit.refused(at(1), 3_993), limit.believed(at(1))), (None, None));
    }

    #[test]
    fn anything_larger_that_is_accepted_disproves_it_whichever_answer_comes_first() {
        let mut limit = learned();
        assert_eq!(limit.accepted(at(1), 2_745, None), Some(Learned { max: None, at: at(1) }));
        assert_eq!(limit.believed(at(1)), None);
        assert_eq!(limit.accepted(at(2), 2_744, after(3_993)), None, "a larger one was taken a second ago");
        assert!(limit.accepted(at(62), 2_744, after(3_993)).is_some());
    }

    #[test]
    fn a_413_within_the_limit_lowers_it_step_by_step() {
        let mut limit = learned();
        assert_eq!(limit.refused(at(1), 3_993), None);
        let mut steps = Vec::new();
        while let Some(Learned { max: Some(max), .. }) = limit.refused(at(1), limit.believed(at(1)).unwrap()) {
            steps.push(max);
            if steps.len() == 3 {
                break;
            }
        }
        assert_eq!(steps, [2_058, 1_542, 1_155]);
        let smaller = Refusal { octets: 1_542, tried: 1_155 };
        assert_eq!(limit.accepted(at(2), 1_155, Some(smaller)), None, "what is believed is borne out");
    }

    #[test]
    fn what_is_taken_without_its_padding_raises_a_limit_that_was_lowered_too_far() {
        let mut limit = learned();
        assert_eq!(limit.refused(at(1), 2_432).and_then(|learned| learned.max), Some(1_824));
        let without_padding = Refusal { octets: 2_432, tried: 2_350 };
        let told = limit.accepted(at(2), 2_349, Some(without_padding)).and_then(|learned| learned.max);
        assert_eq!(told, Some(2_350));
    }

    #[test]
    fn replicas_follow_the_later_word() {
        let mut other = PayloadLimit::default();
        other.adopt(Learned { max: Some(3_000), at: at(5) });
        other.adopt(Learned { max: Some(2_000), at: at(4) });
        assert_eq!(other.believed(at(6)), Some(3_000));
        other.adopt(Learned { max: None, at: at(6) });
        assert_eq!(other.believed(at(6)), None);
    }
}
