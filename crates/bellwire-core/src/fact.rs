//! Facts counted in metrics over time. Each has a number in `rollup_notes.fact` and `rollups.facts`.

use std::time::Duration;

use crate::delivery::{Ending, ReceiptKind};
use crate::named;

named! {
    /// Class of a push service's response, as dashboards show it.
    pub enum StatusClass {
        /// Status 2xx: accepted.
        Success = "2xx",
        /// Status 3xx: a redirect.
        Redirect = "3xx",
        /// 404 or 410: the subscription no longer exists.
        Gone = "gone",
        /// Status 429: throttled.
        Throttled = "429",
        /// Any other status 4xx.
        Refused = "4xx",
        /// 5xx, or a status outside the classes of HTTP.
        Failed = "5xx",
        /// No response: refused, reset or timed out.
        None = "none",
    }
}

impl StatusClass {
    /// Returns the class of a status. `None`: no response.
    pub fn of(status: Option<u16>) -> Self {
        match status {
            None => Self::None,
            Some(200..300) => Self::Success,
            Some(300..400) => Self::Redirect,
            Some(404 | 410) => Self::Gone,
            Some(429) => Self::Throttled,
            Some(400..500) => Self::Refused,
            Some(_) => Self::Failed,
        }
    }
}

named! {
    /// Reason why a subscription is no longer active.
    pub enum Loss {
        /// Reported as gone by the push service.
        Gone = "gone",
        /// Unsubscribed by the browser or the site.
        Unsubscribed = "unsubscribed",
        /// Replaced by another subscription of the same browser, which counts as a gain.
        Replaced = "replaced",
        /// Past its expiration time.
        Expired = "expired",
        /// Refused too often.
        Suspended = "suspended",
        /// Deleted with its app.
        Deleted = "deleted",
    }
}

const POSTED: usize = 10;
const RECEIPT_ASKED: usize = 20;
const WON: usize = 40;
const WAITED: usize = 100;

pub(crate) const FACTS: usize = WAITED + WAITS;

/// Event of a delivery or a subscription. The numbers are stored and never change their meaning. The triggers of
/// `subscriptions` also contain the numbers of `Won` and `Lost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// A delivery ended this way. [`Retry`](Ending::Retry): an attempt failed that is followed by another one.
    Ended(Ending),
    /// A POST got a response of this class, or none.
    Posted(StatusClass),
    /// An accepted push requested receipts.
    ReceiptAsked,
    /// The first receipt of this kind arrived for a delivery.
    Receipt(ReceiptKind),
    /// A subscription became active: a new one, or one that returned.
    Won,
    /// A subscription ended for this reason.
    Lost(Loss),
    /// Latency of an accepted delivery, as the index of a bucket: see [`wait_class`].
    Waited(usize),
}

impl Fact {
    /// Returns all facts in order of their index.
    pub fn all() -> impl Iterator<Item = Self> {
        let lone = [Self::ReceiptAsked, Self::Won].into_iter();
        let answers = Ending::ALL.map(Self::Ended).into_iter().chain(StatusClass::ALL.map(Self::Posted));
        let later = ReceiptKind::ALL.map(Self::Receipt).into_iter().chain(Loss::ALL.map(Self::Lost));
        lone.chain(answers).chain(later).chain((0..WAITS).map(Self::Waited))
    }

    /// Returns its index among all facts, below [`FACTS`].
    pub fn place(self) -> usize {
        match self {
            Fact::Ended(ending) => ending as usize,
            Fact::Posted(status) => POSTED + status as usize,
            Fact::ReceiptAsked => RECEIPT_ASKED,
            Fact::Receipt(kind) => RECEIPT_ASKED + kind as usize,
            Fact::Won => WON,
            Fact::Lost(loss) => WON + 1 + loss as usize,
            Fact::Waited(class) => WAITED + class.min(WAITS - 1),
        }
    }

    /// Returns the number in the database.
    pub fn code(self) -> i16 {
        stored(self.place())
    }
}

fn stored(place: usize) -> i16 {
    i16::try_from(place).expect("there are fewer facts than that")
}

/// Upper bounds of the latency buckets in milliseconds, each √2 times the previous one: from 10 ms to 33 hours.
const WAIT_ENDS_MS: [u64; WAITS - 1] = {
    let mut ends = [0; WAITS - 1];
    let mut n = 0;
    while n < WAITS - 1 {
        let octave = 10 << (n / 2);
        ends[n] = if n.is_multiple_of(2) { octave } else { octave * 1_414 / 1_000 };
        n += 1;
    }
    ends
};
/// Number of latency buckets. The last one is unbounded.
pub const WAITS: usize = 49;

/// Returns the latency bucket of an accepted delivery. Latency is the time from the message's acceptance, or its `send_at`, to
/// the push service's acceptance.
pub fn wait_class(waited: Duration) -> usize {
    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    WAIT_ENDS_MS.partition_point(|end| *end < waited_ms)
}

/// Number of occurrences of each fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactCounts(Box<[u64; FACTS]>);

impl Default for FactCounts {
    fn default() -> Self {
        Self(Box::new([0; FACTS]))
    }
}

impl FactCounts {
    /// Adds one occurrence of a fact.
    pub fn add(&mut self, fact: Fact) {
        self.0[fact.place()] += 1;
    }

    /// Adds a stored count. Numbers of a newer version are ignored.
    pub fn add_stored(&mut self, code: i16, n: i64) {
        if let Some(count) = usize::try_from(code).ok().and_then(|place| self.0.get_mut(place)) {
            *count += n.unsigned_abs();
        }
    }

    /// Returns the number of occurrences of a fact.
    pub fn of(&self, fact: Fact) -> u64 {
        self.0[fact.place()]
    }

    /// Returns all non-zero counts, for storing.
    pub fn stored(&self) -> impl Iterator<Item = (i16, i64)> + '_ {
        let counted = self.0.iter().enumerate().filter(|(_, n)| **n > 0);
        counted.map(|(place, n)| (stored(place), i64::try_from(*n).unwrap_or(i64::MAX)))
    }

    /// Returns the latency in seconds that this share of accepted deliveries did not exceed. The error is at most 19 %, from 10
    /// ms to 33 hours, to which other values are clamped. `None`: no deliveries.
    pub fn wait_quantile(&self, share: f64) -> Option<f64> {
        let classes = &self.0[WAITED..];
        let all: u64 = classes.iter().sum();
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut passed = 0;
        let class = classes.iter().position(|n| {
            passed += n;
            passed >= rank
        })?;
        let end = |class: usize| WAIT_ENDS_MS[class.min(WAITS - 2)] as f64 / 1_000.0;
        // The middle of a class on a logarithmic scale errs least.
        Some(if class == 0 { end(0) } else { (end(class - 1) * end(class)).sqrt() })
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/core/unit/fact.rs"]
mod tests;
