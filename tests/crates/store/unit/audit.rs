//! Unit tests of `crates/bellwire-store/src/keys/audit.rs`, which includes them.

use super::*;

#[test]
fn action_names_are_dotted_and_unique() {
    for (i, action) in AuditAction::ALL.iter().enumerate() {
        let (what, done) = action.name().split_once('.').unwrap();
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        assert!(plain(what) && plain(done), "{action:?}");
        assert_eq!(serde_json::to_value(action).unwrap(), action.name());
        assert!(AuditAction::ALL[..i].iter().all(|other| other.name() != action.name()), "{action:?}");
    }
}
