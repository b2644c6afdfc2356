//! Rates an app's notifications by the receipts of browsers. Pure rules; the API reads the counts.

use bellwire_core::delivery::{Ending, ReceiptKind};
use bellwire_core::fact::{Fact, FactCounts};
use bellwire_core::lane::Gateway;
use bellwire_core::named;

/// Minimum displayed notifications for a rating.
const DISPLAYED_MIN: u64 = 500;
/// Click rates below which the level is `watch` and `warning`. Push services publish no limits; these are rules of thumb.
const CLICKED_LITTLE: [f64; 2] = [0.02, 0.005];
const CLOSED_MUCH: [f64; 2] = [0.5, 0.7];

named! {
    /// Rating of an app's notifications at a push service.
    #[cfg_attr(feature = "openapi", schema(as = EngagementLevel))]
    pub enum Level {
        /// Too few were displayed, or browsers send no receipts.
        Unknown = "unknown",
        Fine = "fine",
        /// Few people click, many close the notifications, or the click rate fell below half of the previous one.
        Watch = "watch",
        /// Hardly anyone clicks, or most people close the notifications: browsers and people are likely to react.
        Warning = "warning",
    }
}

/// Counts of notifications in a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Engagement {
    pub accepted: u64,
    /// Notifications that requested a receipt.
    pub asked: u64,
    pub displayed: u64,
    pub clicked: u64,
    pub closed: u64,
}

impl Engagement {
    /// Converts the counts of one push service. Closes at Mozilla count as unknown: Firefox reports them only for notifications
    /// that require interaction, and otherwise does not distinguish them from timeouts.
    pub fn of(gateway: Gateway, counts: &FactCounts) -> Self {
        let receipts = |kind| counts.of(Fact::Receipt(kind));
        Self {
            accepted: counts.of(Fact::Ended(Ending::Accepted)),
            asked: counts.of(Fact::ReceiptAsked),
            displayed: receipts(ReceiptKind::Displayed),
            clicked: receipts(ReceiptKind::Clicked),
            closed: if gateway == Gateway::Mozilla { 0 } else { receipts(ReceiptKind::Closed) },
        }
    }

    /// Returns the number of closed notifications. `None`: none is known, because browsers or the service worker do not report
    /// closes.
    pub fn closed(&self) -> Option<u64> {
        (self.closed > 0).then_some(self.closed)
    }

    /// Returns the number of notifications displayed but neither clicked nor closed. `None`: closes are unknown.
    pub fn ignored(&self) -> Option<u64> {
        Some(self.displayed.saturating_sub(self.clicked + self.closed()?))
    }

    /// Returns the displayed share of notifications that requested a receipt. `None`: none did, or browsers do not report
    /// displays.
    pub fn display_share(&self) -> Option<f64> {
        share(self.displayed, self.asked).filter(|_| self.displayed > 0)
    }

    /// Returns the share of a part among the displayed notifications. `None`: none was displayed.
    pub fn of_displayed(&self, part: u64) -> Option<f64> {
        share(part, self.displayed)
    }

    /// Rates the notifications. `before` has the counts of the previous period.
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

/// Returns a share. `None` if the whole is 0 or less than the part: receipts count at their arrival, so they may belong to
/// pushes before the period.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0 && part <= whole).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
#[path = "../../../../tests/crates/rules/unit/policy/engagement.rs"]
mod tests;
