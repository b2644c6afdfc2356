//! Unit tests of `src/api/series/pieces.rs`, which includes them.

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
