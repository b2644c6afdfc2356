//! Unit tests of `src/api/apps.rs`, which includes them.

use super::*;

#[test]
fn an_origin_is_what_a_browser_sends() {
    for good in [
        "https://example.com",
        "https://example.com:8443",
        "http://localhost",
        "http://localhost:3000",
        "http://shop.localhost",
        "http://a.b.localhost:8080",
        "http://127.0.0.1",
        "http://[::1]:3000",
    ] {
        assert!(is_origin(good), "{good}");
    }
    let long = format!("https://{}.com", "a".repeat(260));
    for bad in [
        "https://example.com/",
        "https://EXAMPLE.com",
        "https://a:443",
        "http://example.com",
        "http://.localhost",
        "http://localhost.example.com",
        "http://notlocalhost",
        "http://192.168.1.7:3000",
        "ftp://shop.localhost",
        "*",
        "null",
        "",
        &long,
    ] {
        assert!(!is_origin(bad), "{bad}");
    }
}

#[test]
fn a_slug_fits_into_a_path() {
    assert!(is_slug("shop-2") && is_slug("0") && is_slug(&"a".repeat(63)));
    for bad in ["", "-a", "A", "a_b", "a.b", "ä", &"a".repeat(64)] {
        assert!(!is_slug(bad), "{bad}");
    }
}
