//! Unit tests of `crates/bellwire-core/src/id.rs`, which includes them.

use super::*;

#[test]
fn id_round_trips_and_refuses_other_kinds() {
    let id = SubscriptionId::new(Uuid::now_v7(), 63);
    assert_eq!(id.to_string().parse(), Ok(id));
    assert_eq!(id.shard(), 63);
    assert!(id.to_string().parse::<MessageId>().is_err());
    assert!("sub_".parse::<SubscriptionId>().is_err());
}
