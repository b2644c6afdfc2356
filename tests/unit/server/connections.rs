//! Unit tests of `src/server/connections.rs`, which includes them.

use super::*;

#[test]
fn what_is_open_is_counted_once() {
    assert_eq!(missing(25, 25, 97, 97), None);
    assert_eq!(missing(25, 20, 97, 97), Some(5));
    assert_eq!(missing(25, 0, 0, 20), Some(5));
}
