//! Unit tests of `src/demo/subscribers.rs`, which includes them.

use super::super::site::SHARES;
use super::*;

#[test]
fn gateways_have_their_share_of_browsers() {
    for (gateway, share) in SHARES {
        let all = (0..140).filter(|n| gateway_of(*n) == gateway);
        assert_eq!(all.clone().count(), 7 * share as usize);
        assert_eq!(all.filter(|n| n.is_multiple_of(SIGNED_IN)).count(), share as usize);
    }
}
