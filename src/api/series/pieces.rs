//! Rows of a range: days in its middle, and shorter rows only at its ends, so that a long range needs few rows with any ends.

use chrono::{DateTime, TimeDelta};

use bellwire_core::clock::Timestamp;
use bellwire_store::outcomes::rollups::{Piece, RollupStep};

/// Returns the pieces of a range that begins and ends at whole minutes, or at whole hours or days where minutes or hours are no
/// longer stored. They are in order, without overlaps or gaps.
pub(super) fn pieces(from: Timestamp, until: Timestamp) -> Vec<Piece> {
    cut(from, until, &RollupStep::ALL)
}

/// The pieces of all that follows a time.
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

/// Start of the step of this many seconds that contains a time.
pub(super) fn down(at: Timestamp, seconds: i64) -> Timestamp {
    let whole = at.timestamp().div_euclid(seconds) * seconds;
    DateTime::from_timestamp(whole, 0).unwrap_or(at)
}

/// The end of that step, or the time itself if it begins there.
pub(super) fn up(at: Timestamp, seconds: i64) -> Timestamp {
    let whole = down(at, seconds);
    if whole == at { at } else { whole + TimeDelta::seconds(seconds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-11-{text}Z").parse().unwrap()
    }

    #[test]
    fn range_is_days_with_partial_ends() {
        use RollupStep::{Day, Hour, Minute};
        type Case<'a> = (&'a str, &'a str, &'a [(RollupStep, &'a str)]);
        let cases: [Case<'_>; 6] = [
            ("01T00:00:00", "20T00:00:00", &[(Day, "01T00:00:00")]),
            ("01T01:00:00", "20T00:00:00", &[(Hour, "01T01:00:00"), (Day, "02T00:00:00")]),
            (
                "01T23:58:00",
                "20T02:03:00",
                &[(Minute, "01T23:58:00"), (Day, "02T00:00:00"), (Hour, "20T00:00:00"), (Minute, "20T02:00:00")],
            ),
            ("19T10:31:00", "20T12:01:00", &[(Minute, "19T10:31:00"), (Hour, "19T11:00:00"), (Minute, "20T12:00:00")]),
            ("19T10:31:00", "19T11:29:00", &[(Minute, "19T10:31:00")]),
            ("19T10:31:00", "19T10:31:00", &[]),
        ];
        for (from, until, expected) in cases {
            let found = pieces(at(from), at(until));
            let begins: Vec<_> = found.iter().map(|piece| (piece.step, piece.from)).collect();
            assert_eq!(begins, expected.iter().map(|(step, from)| (*step, at(from))).collect::<Vec<_>>(), "{from}");
            assert!(found.windows(2).all(|pair| pair[0].until == pair[1].from), "{found:?}");
            assert!(found.last().is_none_or(|last| last.until == at(until)), "{found:?}");
        }
        let rest = from_then_on(at("19T22:00:00"));
        assert_eq!(rest.iter().map(|piece| piece.step).collect::<Vec<_>>(), [Hour, Day]);
    }
}
