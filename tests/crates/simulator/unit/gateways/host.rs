//! Unit tests of `crates/bellwire-simulator/src/gateways/host.rs`, which includes them.

use super::delivery_id;

#[test]
fn delivery_id_is_found_in_both_payloads() {
    let declarative = br#"{"web_push":8030,"notification":{"title":"t","data":{"bellwire":{"id":"d1"}}}}"#;
    assert_eq!(delivery_id(declarative).as_deref(), Some("d1"));
    assert_eq!(delivery_id(br#"{"bellwire":{"id":"d2"},"payload":"x"}"#).as_deref(), Some("d2"));
    assert_eq!(delivery_id(br#"{"bellwire":{"id":3}}"#), None);
    assert_eq!(delivery_id(b"hello"), None);
}
