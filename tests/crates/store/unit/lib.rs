//! Unit tests of `crates/bellwire-store/src/lib.rs`, which includes them.

use super::*;

#[test]
fn what_passes_is_told_from_what_stays() {
    for code in ["08006", "40001", "40P01", "53100", "53300", "55P03", "57014", "57P01", "57P02", "57P03", "25P03"] {
        assert!(is_transient_state(code), "{code}");
    }
    for code in ["23505", "23514", "22P02", "42P01", "42601", "57P04", "XX000", "", "0"] {
        assert!(!is_transient_state(code), "{code}");
    }
    assert!(is_transient(&sqlx::Error::PoolTimedOut));
    assert!(is_transient(&std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()));
    assert!(!is_transient(&sqlx::Error::PoolClosed), "the process is stopping");
    assert!(!is_transient(&sqlx::Error::RowNotFound));
}
