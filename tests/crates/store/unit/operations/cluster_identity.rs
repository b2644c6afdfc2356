//! Unit tests of `crates/bellwire-store/src/operations/cluster_identity.rs`, which includes them.

use super::*;

#[test]
fn only_certain_restores_are_refused() {
    let on = |system, timeline| Identity { system_identifier: Some(system), timeline: Some(timeline) };
    let target = || Some("recovery_target_time = 2030-01-31".to_owned());
    assert_eq!(judge(None, on(1, 1), None), Err(Unsettled::Dump));
    for (recorded, found, target, is_refused) in [
        (on(1, 1), on(1, 2), target(), true),
        (on(1, 1), on(1, 2), None, false),     // failover
        (on(1, 2), on(1, 2), target(), false), // settled: Postgres keeps the setting
        (on(1, 1), on(2, 1), None, false),     // upgrade of Postgres
        (on(1, 1), on(2, 2), target(), false), // another cluster
        (Identity::default(), on(1, 2), target(), false),
        (on(1, 1), Identity::default(), target(), false),
    ] {
        assert_eq!(judge(Some(recorded), found, target).is_err(), is_refused, "{recorded:?} {found:?}");
    }
}
