//! Measures, and how they are computed from counts.

use serde_json::{Value, json};

use super::filters::Filters;
use bellwire_core::delivery::{Ending, ReceiptKind};
use bellwire_core::fact::{Fact, FactCounts, Loss, StatusClass, WAITS};
use bellwire_core::named;

named! {
    /// Dimension of a breakdown.
    pub(super) enum Dimension {
        App = "app",
        Lane = "lane",
        Gateway = "gateway",
        Tier = "tier",
        Message = "message",
        Outcome = "outcome",
        Status = "status",
        Reason = "reason",
    }
}

impl Dimension {
    pub(super) fn split(self) -> Option<Split> {
        match self {
            Self::Outcome => Some(Split::Outcome),
            Self::Status => Some(Split::Status),
            Self::Reason => Some(Split::Reason),
            _ => None,
        }
    }
}

/// Dimension that only one measure has, and over which its sum is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    Outcome,
    Status,
    Reason,
}

impl Split {
    pub(super) fn values(self, filters: &Filters) -> Vec<&'static str> {
        match self {
            Split::Outcome => allowed(&Measure::OUTCOMES, &filters.outcomes).into_iter().map(Ending::name).collect(),
            Split::Status => allowed(&StatusClass::ALL, &filters.statuses).into_iter().map(StatusClass::name).collect(),
            Split::Reason => allowed(&Loss::ALL, &filters.reasons).into_iter().map(Loss::name).collect(),
        }
    }
}

fn allowed<T: Copy + PartialEq>(all: &[T], filter: &[T]) -> Vec<T> {
    all.iter().copied().filter(|one| filter.is_empty() || filter.contains(one)).collect()
}

/// Measure of a chart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Measure {
    Ended,
    EndedAs(Ending),
    Attempts,
    Retried,
    /// Share of ended deliveries that a push service accepted.
    AcceptanceRate,
    /// Share of ended deliveries whose subscription is gone.
    GoneRate,
    /// Share of POSTs without a 2xx response.
    ErrorRate,
    /// Deliveries with a first receipt of this kind.
    Receipts(ReceiptKind),
    /// Accepted deliveries whose push requests receipts.
    ReceiptsAsked,
    /// Displayed share of accepted deliveries whose push requests receipts.
    DisplayRate,
    ClickRate,
    /// Percentile of the latency of accepted deliveries, in seconds.
    Latency(u8),
    SubscriptionsWon,
    SubscriptionsLost,
    SubscriptionsActive,
}

impl Measure {
    pub(super) const OUTCOMES: [Ending; 6] =
        [Ending::Accepted, Ending::Gone, Ending::Expired, Ending::Dead, Ending::Cancelled, Ending::Capped];

    fn all() -> impl Iterator<Item = Self> {
        let ended = Self::OUTCOMES.map(Self::EndedAs);
        let receipts = ReceiptKind::ALL.map(Self::Receipts);
        let latencies = [50, 90, 95, 99].map(Self::Latency);
        let rest = [
            Self::Attempts,
            Self::Retried,
            Self::AcceptanceRate,
            Self::GoneRate,
            Self::ErrorRate,
            Self::ReceiptsAsked,
            Self::DisplayRate,
            Self::ClickRate,
            Self::SubscriptionsWon,
            Self::SubscriptionsLost,
            Self::SubscriptionsActive,
        ];
        std::iter::once(Self::Ended).chain(ended).chain(rest).chain(receipts).chain(latencies)
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Ended => "ended".into(),
            Self::EndedAs(ending) => ending.name().into(),
            Self::Attempts => "attempts".into(),
            Self::Retried => "retried".into(),
            Self::AcceptanceRate => "acceptance_rate".into(),
            Self::GoneRate => "gone_rate".into(),
            Self::ErrorRate => "error_rate".into(),
            Self::Receipts(kind) => kind.name().into(),
            Self::ReceiptsAsked => "receipts_asked".into(),
            Self::DisplayRate => "display_rate".into(),
            Self::ClickRate => "click_rate".into(),
            Self::Latency(hundredths) => format!("latency_p{hundredths}"),
            Self::SubscriptionsWon => "subscriptions_won".into(),
            Self::SubscriptionsLost => "subscriptions_lost".into(),
            Self::SubscriptionsActive => "subscriptions_active".into(),
        }
    }

    pub(super) fn named(text: &str) -> Option<Self> {
        Self::all().find(|measure| measure.name() == text)
    }

    pub(super) fn names() -> String {
        Self::all().map(Self::name).collect::<Vec<_>>().join(", ")
    }

    /// Whether the measure can be grouped and filtered by the dimension.
    pub(super) fn has(self, dimension: Dimension) -> bool {
        let of_subscriptions =
            matches!(self, Self::SubscriptionsWon | Self::SubscriptionsLost | Self::SubscriptionsActive);
        match dimension {
            Dimension::App | Dimension::Lane | Dimension::Gateway => true,
            Dimension::Tier | Dimension::Message => !of_subscriptions,
            Dimension::Outcome => self == Self::Ended,
            Dimension::Status => self == Self::Attempts,
            Dimension::Reason => self == Self::SubscriptionsLost,
        }
    }

    /// Returns the first and last fact number that the measure is computed from.
    pub(super) fn facts(self) -> (i16, i16) {
        let span = |first: Fact, last: Fact| (first.code(), last.code());
        match self {
            Self::Ended | Self::AcceptanceRate | Self::GoneRate => {
                span(Fact::Ended(Ending::Accepted), Fact::Ended(Ending::Capped))
            }
            Self::EndedAs(ending) => span(Fact::Ended(ending), Fact::Ended(ending)),
            Self::Retried => span(Fact::Ended(Ending::Retry), Fact::Ended(Ending::Retry)),
            Self::Attempts | Self::ErrorRate => {
                span(Fact::Posted(StatusClass::Success), Fact::Posted(StatusClass::None))
            }
            Self::Receipts(kind) => span(Fact::Receipt(kind), Fact::Receipt(kind)),
            Self::ReceiptsAsked => span(Fact::ReceiptAsked, Fact::ReceiptAsked),
            Self::DisplayRate => span(Fact::ReceiptAsked, Fact::Receipt(ReceiptKind::Displayed)),
            Self::ClickRate => span(Fact::Receipt(ReceiptKind::Displayed), Fact::Receipt(ReceiptKind::Clicked)),
            Self::Latency(_) => span(Fact::Waited(0), Fact::Waited(WAITS - 1)),
            Self::SubscriptionsWon | Self::SubscriptionsLost | Self::SubscriptionsActive => {
                span(Fact::Won, Fact::Lost(Loss::Deleted))
            }
        }
    }

    /// Returns the value of the measure. `part` limits it to one value of its split. Null without a denominator or a
    /// measurement.
    pub(super) fn value(self, counts: &FactCounts, active: i64, part: Option<&str>, filters: &Filters) -> Value {
        let ended = |ending| counts.of(Fact::Ended(ending));
        let of_part = |name: &str| part.is_none_or(|part| part == name);
        let all_ended = || -> u64 {
            let outcomes = allowed(&Self::OUTCOMES, &filters.outcomes).into_iter();
            outcomes.filter(|ending| of_part(ending.name())).map(ended).sum()
        };
        let posted = || -> u64 {
            let statuses = allowed(&StatusClass::ALL, &filters.statuses).into_iter();
            statuses.filter(|status| of_part(status.name())).map(|status| counts.of(Fact::Posted(status))).sum()
        };
        let lost = || -> u64 {
            let reasons = allowed(&Loss::ALL, &filters.reasons).into_iter();
            reasons.filter(|loss| of_part(loss.name())).map(|loss| counts.of(Fact::Lost(loss))).sum()
        };
        let receipts = |kind| counts.of(Fact::Receipt(kind));
        match self {
            Self::Ended => json!(all_ended()),
            Self::EndedAs(ending) => json!(ended(ending)),
            Self::Attempts => json!(posted()),
            Self::Retried => json!(ended(Ending::Retry)),
            Self::AcceptanceRate => share(ended(Ending::Accepted), all_ended()),
            Self::GoneRate => share(ended(Ending::Gone), all_ended()),
            Self::ErrorRate => {
                let all = posted();
                share(all - counts.of(Fact::Posted(StatusClass::Success)), all)
            }
            Self::Receipts(kind) => json!(receipts(kind)),
            Self::ReceiptsAsked => json!(counts.of(Fact::ReceiptAsked)),
            Self::DisplayRate => share(receipts(ReceiptKind::Displayed), counts.of(Fact::ReceiptAsked)),
            Self::ClickRate => share(receipts(ReceiptKind::Clicked), receipts(ReceiptKind::Displayed)),
            Self::Latency(hundredths) => json!(counts.wait_quantile(f64::from(hundredths) / 100.0)),
            Self::SubscriptionsWon => json!(counts.of(Fact::Won)),
            Self::SubscriptionsLost => json!(lost()),
            Self::SubscriptionsActive => json!(active),
        }
    }
}

/// Returns a share, or null if the whole is 0 or less than the part. Receipts count when they arrive, so a short step may have
/// more receipts than pushes.
fn share(part: u64, whole: u64) -> Value {
    if whole == 0 || part > whole { Value::Null } else { json!(part as f64 / whole as f64) }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/series/measure.rs"]
mod tests;
