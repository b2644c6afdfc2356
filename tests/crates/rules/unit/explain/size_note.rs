//! Unit tests of `crates/bellwire-rules/src/explain/size_note.rs`, which includes them.

use super::*;

#[test]
fn parts_left_out_are_read_back() {
    let names = ["image", "actions"];
    let words = "ö".repeat(400);
    for told in [
        tell(3993, &names),
        tell_beforehand(&names, None, 500).unwrap(),
        tell_beforehand(&names, Some(&words), 500).unwrap(),
    ] {
        assert!(told.len() <= 500);
        assert_eq!(dropped(&told).unwrap(), names, "{told}");
    }
    assert_eq!(tell_beforehand(&[], None, 500), None);
    assert_eq!(dropped(&tell(3993, &[])), Some(vec![]));
    assert_eq!(dropped("too large"), None);
}
