//! Unit tests of `src/progress.rs`, which includes them.

use super::*;

#[test]
fn line_has_amount_total_and_rest() {
    let progress = Progress::begin("restore", Unit::Bytes, Some(4 << 20), true);
    progress.counting(io::sink()).write_all(&vec![0; 1 << 20]).unwrap();
    let line = progress.line();
    assert!(line.starts_with("restore: 1.00 MiB of 4.00 MiB, ") && line.ends_with(" left"), "{line}");
}

#[test]
fn total_grows_with_the_work() {
    let progress = Progress::begin("export", Unit::Lines, Some(1_000), true);
    progress.add(1_500);
    assert!(progress.line().starts_with("export: 1,500 lines of 1,500 lines, "), "{}", progress.line());
    let unknown = Progress::begin("export", Unit::Lines, None, true);
    unknown.add(7);
    assert!(unknown.line().starts_with("export: 7 lines, "), "{}", unknown.line());
}
