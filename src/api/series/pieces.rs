//! Splits a range into aggregates: days in the middle, and hours and minutes only at the ends, so that a long range needs few
//! rows.

use chrono::{DateTime, TimeDelta};

use bellwire_core::clock::Timestamp;
use bellwire_store::outcomes::rollups::{Piece, RollupStep};

/// Returns the pieces of a range, in order, without overlaps or gaps. The range begins and ends at whole minutes, or at whole
/// hours or days if shorter aggregates are no longer stored.
pub(super) fn pieces(from: Timestamp, until: Timestamp) -> Vec<Piece> {
    cut(from, until, &RollupStep::ALL)
}

/// Returns the pieces from a time on, without an end.
pub(super) fn from_then_on(from: Timestamp) -> Vec<Piece> {
    let next_day = up(from, RollupStep::Day.seconds());
    let mut pieces = pieces(from, next_day);
    pieces.push(Piece { step: RollupStep::Day, from: next_day, until: Timestamp::MAX_UTC });
    pieces
}

fn cut(from: Timestamp, until: Timestamp, steps: &[RollupStep]) -> Vec<Piece> {
    let Some((&longest, shorter)) = steps.split_last().filter(|_| from < until) else { return Vec::new() };
    let (first, last) = (up(from, longest.seconds()), down(until, longest.seconds()));
    if first >= last {
        return cut(from, until, shorter);
    }
    let middle = Piece { step: longest, from: first, until: last };
    [cut(from, first, shorter), vec![middle], cut(last, until, shorter)].concat()
}

/// Rounds a time down to a multiple of `seconds`.
pub(super) fn down(at: Timestamp, seconds: i64) -> Timestamp {
    let whole = at.timestamp().div_euclid(seconds) * seconds;
    DateTime::from_timestamp(whole, 0).unwrap_or(at)
}

/// Rounds a time up to a multiple of `seconds`.
pub(super) fn up(at: Timestamp, seconds: i64) -> Timestamp {
    let whole = down(at, seconds);
    if whole == at { at } else { whole + TimeDelta::seconds(seconds) }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/series/pieces.rs"]
mod tests;
