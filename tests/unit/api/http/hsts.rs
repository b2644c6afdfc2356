//! Unit tests of `src/api/http/hsts.rs`, which includes them.

use super::*;

#[test]
fn only_trusted_https_requests_get_hsts() {
    let came = |trusted_proxies, over_tls, forwarded: &[&str]| {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-proto", HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let mut extensions = Extensions::new();
        if over_tls {
            extensions.insert(OverTls);
        }
        came_by_https(&headers, &extensions, trusted_proxies)
    };
    assert!(came(0, true, &[]) && came(1, true, &["http"]));
    assert!(!came(0, false, &["https"]), "no proxy is trusted");
    assert!(came(1, false, &["https"]) && came(1, false, &["http, HTTPS"]) && came(2, false, &["http", "https"]));
    assert!(!came(1, false, &["https, http"]) && !came(1, false, &["https", "http"]) && !came(1, false, &[]));
    assert!(came(1, false, &["\u{e4}, https"]) && !came(1, false, &["https, \u{e4}"]), "octets that are no text");
    assert!(!came(1, false, &["https,"]) && !came(1, false, &["https", ""]), "the last proxy wrote nothing");
    assert!(Hsts::new(Duration::ZERO, 0).is_none());
}
