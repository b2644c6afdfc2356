//! Unit tests of `crates/bellwire-store/src/outcomes/stream.rs`, which includes them.

use super::*;

#[test]
fn positions_round_trip_in_order() {
    let position = Position { xid: 12, seq: 345 };
    assert_eq!(position.to_string().parse(), Ok(position));
    for wrong in ["", "1", "-", "1-", "-1", "1-2-3", "+1-2", "1-x", "99999999999999999999-1"] {
        assert_eq!(wrong.parse::<Position>(), Err(()), "{wrong}");
    }
    assert!(position < Position { xid: 12, seq: 346 } && position < Position { xid: 13, seq: 0 });
}
