//! Unit tests of `src/server/shares.rs`, which includes them.

use super::*;

#[test]
fn connections_follow_roles_and_maximum() {
    let roles = |api, worker, maintenance| Roles { api, worker, maintenance };
    for (connections, given, sum) in [
        (25, roles(true, true, true), 25),
        (25, roles(true, false, false), 13),
        (25, roles(false, true, false), 14),
        (25, roles(false, true, true), 23),
        (25, roles(true, false, true), 13),
        (6, roles(true, true, true), 6),
        (6, roles(false, true, false), 5),
        (500, roles(true, true, true), 500),
    ] {
        let shares = Shares::of(connections, given);
        assert_eq!(shares.sum(), sum, "{connections} {given:?}");
        assert!(shares.requests > 1 && (shares.dispatch > 0) == given.worker, "{shares:?}");
    }
}
