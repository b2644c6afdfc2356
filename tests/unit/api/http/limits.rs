//! Unit tests of `src/api/http/limits.rs`, which includes them.

use super::*;

fn limits(trusted_proxies: usize) -> RequestLimits {
    let per_client = RequestRate { burst: 2, per_minute: 1 };
    RequestLimits::new(&ApiConfig { per_client, trusted_proxies, ..ApiConfig::default() })
}

fn from(peer: &str, forwarded: &str) -> (HeaderMap, Extensions) {
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-for", axum::http::HeaderValue::from_bytes(forwarded.as_bytes()).unwrap());
    let mut extensions = Extensions::new();
    extensions.insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 1)));
    (headers, extensions)
}

#[test]
fn client_is_limited_to_its_burst() {
    let limits = limits(0);
    let ask = |peer| {
        let (headers, extensions) = from(peer, "203.0.113.1");
        limits.client(limits.client_of(&headers, &extensions))
    };
    assert!(ask("192.0.2.1").is_ok());
    assert!(ask("192.0.2.1").is_ok());
    assert_eq!(ask("192.0.2.1").unwrap_err().code, ProblemCode::RateLimited);
    assert!(ask("192.0.2.2").is_ok(), "a header of no trusted proxy changes nothing");
}

#[test]
fn only_what_our_own_proxies_wrote_counts() {
    let address = |proxies, forwarded| {
        let (headers, extensions) = from("192.0.2.1", forwarded);
        limits(proxies).client_of(&headers, &extensions).to_string()
    };
    assert_eq!(address(0, "198.51.100.7"), "192.0.2.1");
    assert_eq!(address(1, "made-up, 198.51.100.7"), "198.51.100.7");
    assert_eq!(address(2, "198.51.100.7, 10.0.0.1"), "198.51.100.7");
    assert_eq!(address(1, "[2001:db8::1]:443"), "2001:db8::1");
    assert_eq!(address(1, "made-up \u{e9}, 198.51.100.7"), "198.51.100.7", "an octet from 0x80 is skipped");
    for unusable in ["10.0.0.1", "\u{e9}, 10.0.0.1", "", ",10.0.0.1", "198.51.100.7\u{e9}, 10.0.0.1"] {
        assert_eq!(address(2, unusable), "0.0.0.0", "{unusable}: never the proxy");
    }
}

#[test]
fn ipv6_network_has_more_than_one_household() {
    let limits = limits(0);
    let at = |site: u16, household: u32| IpAddr::from([0x2001, 0xdb8, site, household as u16, 0, 0, 0, 1]);
    let let_in = (0..1_000).filter(|n| limits.client(at(1, *n)).is_ok()).count();
    assert_eq!(let_in, 2 * SITE_FACTOR as usize, "one request of each household");
    let refused = limits.client(at(1, 1_000)).unwrap_err();
    assert!(refused.detail.contains("network"), "{}", refused.detail);
    assert_eq!(limits.client(at(2, 0)).unwrap().remaining, 1, "another customer's");
    assert!(limits.client(at(2, 0)).is_ok() && limits.client(at(2, 0)).is_err(), "each household has its own");
}
