//! Unit tests of `crates/bellwire-net/src/http_server/address.rs`, which includes them.

use super::*;

#[test]
fn neighbours_in_an_ipv6_network_are_one_client() {
    let at = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(household(at("2001:db8::1")), household(at("2001:db8::ffff:0:0:2")));
    assert_ne!(household(at("2001:db8::1")), household(at("2001:db8:0:1::1")));
    assert_eq!(household(at("::ffff:192.0.2.1")), at("192.0.2.1"));
    assert_eq!(site(at("2001:db8::1")), site(at("2001:db8:0:ffff::1")));
    assert_ne!(site(at("2001:db8::1")), site(at("2001:db8:1::1")));
    assert_eq!(site(at("::ffff:192.0.2.1")), None);
}
