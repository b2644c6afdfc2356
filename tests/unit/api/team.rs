//! Unit tests of `src/api/team.rs`, which includes them.

use super::*;

#[test]
fn an_address_is_known_whatever_its_case() {
    assert_eq!(normal_email(" Ann@Example.COM ").as_deref(), Some("ann@example.com"));
    assert_eq!(normal_email("zoë+push@xn--bcher-kva.example").as_deref(), Some("zoë+push@xn--bcher-kva.example"));
    for wrong in ["", "ann", "@example.com", "ann@", "a b@example.com", "a@b@c", "a\u{0}@b", &"x".repeat(255)] {
        assert_eq!(normal_email(wrong), None, "{wrong}");
    }
}
