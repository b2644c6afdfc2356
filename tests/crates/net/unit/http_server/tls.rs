//! Unit tests of `crates/bellwire-net/src/http_server/tls.rs`, which includes them.

use super::*;

#[test]
fn challenge_certificate_needs_its_protocol() {
    assert_eq!(answer("push.example.com", &[7; 32]).unwrap().alpn_protocols, [ACME]);
}
