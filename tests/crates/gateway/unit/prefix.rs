//! Unit tests of `crates/bellwire-gateway/src/prefix.rs`, which includes them.

use super::*;

#[test]
fn network_contains_addresses_with_its_prefix() {
    let has = |network: &str, address: &str| network.parse::<Prefix>().unwrap().contains(address.parse().unwrap());
    assert!(has("10.0.0.0/8", "10.255.0.1") && !has("10.0.0.0/8", "11.0.0.0"));
    assert!(has("0.0.0.0/0", "1.2.3.4") && !has("0.0.0.0/0", "::"));
    assert!(has("::/0", "2001:db8::1") && has("fd00::/8", "fdff::1") && !has("fd00::/8", "fe00::"));
    assert!(has("192.0.2.1", "192.0.2.1") && !has("192.0.2.1", "192.0.2.0"));
    for text in ["", "10.0.0.0/33", "10.0.0.1/8", "10.0.0.0/", "::1/96", "::/129", "a/8", "10.0.0.0/-1"] {
        assert_eq!(text.parse::<Prefix>(), Err(NoPrefix), "{text}");
    }
}

#[test]
fn address_is_embedded_as_in_rfc_6052() {
    // The table of section 2.4, but with another prefix than documentation's, whose bits do not matter.
    for (prefix, address) in [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ("64:ff9b:1:fffe::/96", "64:ff9b:1:fffe::c000:221"),
    ] {
        let nat64: Nat64 = prefix.parse().unwrap();
        assert_eq!(nat64.embedded(address.parse().unwrap()), Some(Ipv4Addr::new(192, 0, 2, 33)), "{address}");
        assert_eq!(nat64.embedded("2a00::1".parse().unwrap()), None);
    }
    for text in ["64:ff9b:1::/47", "64:ff9b::/95", "10.0.0.0/8", "::ffff:0:0/100"] {
        assert_eq!(text.parse::<Nat64>(), Err(NoPrefix), "{text}");
    }
}
