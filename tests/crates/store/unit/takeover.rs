//! Unit tests of `crates/bellwire-store/src/operations/takeover.rs`, which includes them.

use std::collections::HashSet;

use super::*;
use bellwire_core::clock::Clock;

#[test]
fn leases_name_their_worker_and_differ() {
    let clock = Clock::stub(Timestamp::from_timestamp(1_800_000_000, 0).unwrap());
    let (one, other) = (clock.uuid(), clock.uuid());
    let leases: HashSet<Uuid> = (0..10_000).map(|_| lease_of(one, clock.uuid())).collect();
    assert_eq!(leases.len(), 10_000);
    assert!(leases.iter().all(|lease| is_lease_of(one, *lease) && !is_lease_of(other, *lease)));
    assert_eq!(leases.iter().next().unwrap().get_version_num(), 7);
}
