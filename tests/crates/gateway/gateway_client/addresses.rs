//! Addresses that a host may have: public ones, loopback where it is allowed, and translations by NAT64.

use bellwire_gateway::GatewayConfig;
use bellwire_rules::classify::Failure;

use super::guarding::with_dns;

fn settings(allow_loopback: bool, nat64: &[&str]) -> GatewayConfig {
    let nat64 = nat64.iter().map(|prefix| prefix.parse().unwrap()).collect();
    GatewayConfig { allow_loopback, nat64, ..GatewayConfig::default() }
}

/// Whether a host with this address may be connected to.
async fn passes(settings: &GatewayConfig, address: &'static str) -> bool {
    let resolved = with_dns(settings.clone(), move |_| vec![address]).resolve("ntfy.example.org").await;
    assert!(matches!(resolved, Ok(_) | Err(Failure::Forbidden)), "{address}: {resolved:?}");
    resolved.is_ok()
}

#[tokio::test]
async fn only_public_addresses_pass() {
    let settings = settings(false, &[]);
    for address in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.7",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:1.1.1.1",
        "64:ff9b::a00:1",
        "64:ff9b::101:101",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:0:53aa::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
    ] {
        assert!(!passes(&settings, address).await, "{address}");
    }
    for address in [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "142.250.74.74",
        "169.253.255.255",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.167.255.255",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2a00:1450:4001::200a",
        "2001:200::1",
        "2001:db9::1",
        "2003::1",
        "3ffe::1",
    ] {
        assert!(passes(&settings, address).await, "{address}");
    }
}

#[tokio::test]
async fn allowing_loopback_allows_nothing_else() {
    let settings = settings(true, &["64:ff9b::/96"]);
    for address in ["127.0.0.1", "127.8.8.8", "::1"] {
        assert!(passes(&settings, address).await, "{address}");
    }
    // The last one is the translator's.
    for address in ["10.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "::", "64:ff9b::127.0.0.1"] {
        assert!(!passes(&settings, address).await, "{address}");
    }
}

#[tokio::test]
async fn translated_addresses_are_resolved_to_the_real_ones() {
    let well_known = settings(false, &["64:ff9b::/96"]);
    let own = settings(false, &["64:ff9b::/96", "64:ff9b:1:fffe::/96", "2a00:64::/64"]);
    for (outside, inside) in [
        ("64:ff9b::1.1.1.1", "64:ff9b::10.0.0.1"),
        ("64:ff9b::142.250.74.74", "64:ff9b::169.254.169.254"),
        ("64:ff9b::8.8.8.8", "64:ff9b::127.0.0.1"),
        ("2606:4700:4700::1111", "64:ff9b::100.64.0.1"),
    ] {
        assert!(passes(&well_known, outside).await && passes(&own, outside).await, "{outside}");
        assert!(!passes(&well_known, inside).await && !passes(&own, inside).await, "{inside}");
    }
    for (outside, inside) in [
        ("64:ff9b:1:fffe::1.1.1.1", "64:ff9b:1:fffe::10.0.0.1"), // of RFC 8215
        ("2a00:64:0:0:1:101:100::", "2a00:64:0:0:a:0:100::"),    // of the network's own addresses
    ] {
        assert!(passes(&own, outside).await && !passes(&own, inside).await, "{outside} {inside}");
    }
    assert!(!passes(&well_known, "64:ff9b:1:fffe::1.1.1.1").await, "nobody said where in it the address is");
    assert!(!passes(&own, "64:ff9b:1::1.1.1.1").await);
}
