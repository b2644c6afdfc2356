//! Unit tests of `src/demo/table.rs`, which includes them.

use super::*;

#[test]
fn thousands_stand_apart() {
    let texts = [0, 999, 1_000, 1_234_567].map(|n| Grouped(n).to_string());
    assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
}
