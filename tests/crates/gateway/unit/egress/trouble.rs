//! Unit tests of `crates/bellwire-gateway/src/egress/trouble.rs`, which includes them.

use super::*;

#[test]
fn lasting_trouble_is_logged_once_per_occurrence() {
    const TOLD_AFTER: Duration = Duration::from_secs(60);
    let (troubles, now) = (Troubles::new(TOLD_AFTER), Instant::now());
    let words = |troubles: &Troubles, now| troubles.untold(now).into_iter().map(|it| it.words).collect::<Vec<_>>();
    troubles.refused(Gateway::Fcm, &ProxyError::Status(502), now);
    troubles.refused(Gateway::Fcm, &ProxyError::Status(403), now + TOLD_AFTER / 2);
    assert!(words(&troubles, now + TOLD_AFTER / 2).is_empty());
    assert_eq!(words(&troubles, now + TOLD_AFTER), ["it answered 403"]);
    assert_eq!(words(&troubles, now + TOLD_AFTER), ["it answered 403"], "it is repeated until it was logged");
    troubles.told(Gateway::Fcm);
    assert!(words(&troubles, now + TOLD_AFTER * 2).is_empty());
    troubles.passed(Gateway::Fcm);
    troubles.refused(Gateway::Fcm, &ProxyError::Silent, now + TOLD_AFTER * 3);
    assert!(words(&troubles, now + TOLD_AFTER * 3).is_empty());
    assert_eq!(words(&troubles, now + TOLD_AFTER * 4), ["it did not answer in time"]);
}
