//! Rates an app's notifications by the receipts of browsers. Pure rules; the API reads the
//! figures.

use bellwire_core::delivery::{Ending, ReceiptKind};
use bellwire_core::fact::{Counts, Fact};
use bellwire_core::lane::Gateway;
use bellwire_core::named;

/// Of fewer notifications than these nothing is said.
const DISPLAYED_MIN: u64 = 500;
/// Shares of displayed notifications. Push services publish no lines of their own: these are rules of thumb, with which a site
/// stays clear of what people complain about.
const CLICKED_LITTLE: [f64; 2] = [0.02, 0.005];
const CLOSED_MUCH: [f64; 2] = [0.5, 0.7];

named! {
    /// How welcome an app's notifications are in the browsers of a gateway.
    #[cfg_attr(feature = "openapi", schema(as = EngagementLevel))]
    pub enum Level {
        /// Too few were displayed, or browsers do not tell.
        Unknown = "unknown",
        Fine = "fine",
        /// Few click, many close them, or clicks fell to less than half of what they were.
        Watch = "watch",
        /// Hardly anybody clicks, or most people close them: browsers and people are about to take measures.
        Warning = "warning",
    }
}

/// What became of the notifications of some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Engagement {
    pub accepted: u64,
    /// Those of them that a receipt was asked for.
    pub asked: u64,
    pub displayed: u64,
    pub clicked: u64,
    pub closed: u64,
}

impl Engagement {
    /// Reads the counts of one gateway. Closes at Mozilla count as unknown: Firefox reports a person's close only for
    /// notifications that require interaction, and cannot tell it from a timeout for the others.
    pub fn of(gateway: Gateway, counts: &Counts) -> Self {
        let receipts = |kind| counts.of(Fact::Receipt(kind));
        Self {
            accepted: counts.of(Fact::Ended(Ending::Accepted)),
            asked: counts.of(Fact::ReceiptAsked),
            displayed: receipts(ReceiptKind::Displayed),
            clicked: receipts(ReceiptKind::Clicked),
            closed: if gateway == Gateway::Mozilla { 0 } else { receipts(ReceiptKind::Closed) },
        }
    }

    /// How many were closed; none: not a single one is known, so these browsers, or this service worker, do not tell.
    pub fn closed(&self) -> Option<u64> {
        (self.closed > 0).then_some(self.closed)
    }

    /// How many were displayed, and neither clicked nor closed; none: it is not known which were closed.
    pub fn ignored(&self) -> Option<u64> {
        Some(self.displayed.saturating_sub(self.clicked + self.closed()?))
    }

    /// Displayed, of those that a receipt was asked for; none: nothing was, or browsers do not tell.
    pub fn display_share(&self) -> Option<f64> {
        share(self.displayed, self.asked).filter(|_| self.displayed > 0)
    }

    /// A part of those displayed; none: none was.
    pub fn of_displayed(&self, part: u64) -> Option<f64> {
        share(part, self.displayed)
    }

    /// How welcome they were, where `before` was what became of those of the time before.
    pub fn level(&self, before: &Self) -> Level {
        if self.displayed < DISPLAYED_MIN {
            return Level::Unknown;
        }
        let clicked = self.of_displayed(self.clicked).unwrap_or(1.0);
        let closed = self.closed().and_then(|closed| self.of_displayed(closed)).unwrap_or(0.0);
        let is_past = |line: usize| clicked < CLICKED_LITTLE[line] || closed > CLOSED_MUCH[line];
        let clicked_before = before.of_displayed(before.clicked).filter(|_| before.displayed >= DISPLAYED_MIN);
        let has_halved = clicked_before.is_some_and(|before| clicked < before / 2.0);
        match (is_past(1), is_past(0) || has_halved) {
            (true, _) => Level::Warning,
            (_, true) => Level::Watch,
            _ => Level::Fine,
        }
    }
}

/// None where there is nothing to divide by, and where the part exceeds the whole: receipts count when they come, so at the edges
/// of a time they may be of pushes before it.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0 && part <= whole).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engagement(displayed: u64, clicked: u64, closed: u64) -> Engagement {
        Engagement { accepted: 3_000, asked: 2_000, displayed, clicked, closed }
    }

    #[test]
    fn shares_are_unknown_where_browsers_do_not_tell() {
        let told = engagement(1_000, 50, 400);
        assert_eq!((told.closed(), told.ignored()), (Some(400), Some(550)));
        assert_eq!((told.display_share(), told.of_displayed(50)), (Some(0.5), Some(0.05)));
        let silent = engagement(0, 0, 0);
        assert_eq!((silent.closed(), silent.ignored()), (None, None));
        assert_eq!((silent.display_share(), silent.of_displayed(0)), (None, None));
        let without_closes = engagement(1_000, 50, 0);
        assert_eq!((without_closes.closed(), without_closes.ignored()), (None, None));
        assert_eq!(engagement(3_000, 0, 0).display_share(), None, "more than were asked for: of pushes before");
    }

    #[test]
    fn judgement_needs_notifications_and_uses_worse_sign() {
        let well = engagement(1_000, 100, 100);
        for (now, before, level) in [
            (engagement(499, 0, 499), well, Level::Unknown),
            (engagement(500, 10, 0), engagement(0, 0, 0), Level::Fine),
            (engagement(1_000, 19, 100), well, Level::Watch),
            (engagement(1_000, 4, 100), well, Level::Warning),
            (engagement(1_000, 100, 501), well, Level::Watch),
            (engagement(1_000, 100, 701), well, Level::Warning),
            (engagement(1_000, 49, 100), well, Level::Watch), // half of what it was
            (engagement(1_000, 50, 100), well, Level::Fine),
            (engagement(1_000, 49, 100), engagement(100, 50, 0), Level::Fine), // too few to compare with
        ] {
            assert_eq!(now.level(&before), level, "{now:?} after {before:?}");
        }
    }
}
