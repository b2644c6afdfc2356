//! Properties of written durations.

use std::time::Duration;

use proptest::prelude::*;

use bellwire_core::duration::{parse, parse_go, written};

/// Units of Go with their nanoseconds, µ in both of its code points.
const GO_UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

fn go_parts() -> impl Strategy<Value = Vec<(u64, (&'static str, u64))>> {
    prop::collection::vec((0..1_000u64, prop::sample::select(&GO_UNITS[..])), 1..8)
}

proptest! {
    #[test]
    fn written_duration_reads_back(seconds in prop_oneof![0..1_000_000u64, any::<u64>()]) {
        let duration = Duration::from_secs(seconds);
        prop_assert_eq!(parse(&written(duration)), Some(duration));
    }

    #[test]
    fn accepted_text_is_a_number_and_unit(text in "[0-9]{0,21}[smhd ]{0,2}|.{0,6}") {
        if let Some(duration) = parse(&text) {
            let (number, unit) = text.split_at(text.len() - 1);
            let unit_s = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)].into_iter().find(|(name, _)| *name == unit);
            let unit_s: u64 = unit_s.expect("a known unit").1;
            prop_assert_eq!(u128::from(duration.as_secs()), number.parse::<u128>().unwrap() * u128::from(unit_s));
            prop_assert!(written(duration).len() <= text.len(), "{} is no shorter than {}", written(duration), text);
        }
    }

    #[test]
    fn go_duration_is_the_sum_of_its_parts(parts in go_parts()) {
        let text: String = parts.iter().map(|(n, (unit, _))| format!("{n}{unit}")).collect();
        let total_ns = parts.iter().map(|(n, (_, ns))| n * ns).sum();
        prop_assert_eq!(parse_go(text.as_bytes()), Some(Duration::from_nanos(total_ns)));
    }

    #[test]
    fn go_fraction_is_within_a_nanosecond(thousandths in 0..1_000u64, unit in prop::sample::select(&GO_UNITS[4..])) {
        let (name, ns) = unit;
        let read = parse_go(format!("0.{thousandths:03}{name}").as_bytes()).expect("a duration");
        let exact_ns = thousandths * ns / 1_000;
        prop_assert!(u64::try_from(read.as_nanos()).unwrap().abs_diff(exact_ns) <= 1, "{:?} for {} ns", read, exact_ns);
    }

    #[test]
    fn any_octets_are_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..24)) {
        let twice = [octets.as_slice(), octets.as_slice()].concat();
        if let Some(once) = parse_go(&octets) {
            // Digits before a unit may merge, but whole durations that follow each other add up.
            prop_assert_eq!(parse_go(&twice), once.checked_mul(2).filter(|sum| u64::try_from(sum.as_nanos()).is_ok()));
        }
    }
}
