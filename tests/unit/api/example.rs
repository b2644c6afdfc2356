//! Unit tests of `src/api/example.rs`, which includes them.

use super::*;

#[test]
fn origin_is_trusted_if_local_or_configured() {
    let here = ExampleVisitor { address: [127, 0, 0, 1].into(), sits_here: true };
    let elsewhere = ExampleVisitor { sits_here: false, ..here };
    let of = |visitor, public: Option<&str>, host: &str| {
        let public_url = public.map(|url| url.parse().unwrap());
        let example = Example { public_url, ..Example::default() };
        example.origin(visitor, &HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]))
    };
    let origin = |public, host| of(here, public, host);
    for (public, host, expected) in [
        (None, "localhost:8787", Some("http://localhost:8787")),
        (None, "127.0.0.1", Some("http://127.0.0.1")),
        (None, "[::1]:80", Some("http://[::1]")),
        (None, "push.example.com", None),
        (None, "shop.localhost:8787", Some("http://shop.localhost:8787")),
        (None, "localhost.example.com", None),
        (None, "a@b:c", None),
        (Some("https://push.example.com/"), "whatever", Some("https://push.example.com")),
        (Some("http://localhost:1/"), "push.example.com", Some("http://localhost:1")),
        (Some("http://push.example.com/"), "localhost", None),
    ] {
        assert_eq!(origin(public, host).as_deref(), expected, "{public:?} {host}");
    }
    assert_eq!(Example::default().origin(here, &HeaderMap::new()), None);
    assert_eq!(of(elsewhere, None, "localhost:8787"), None, "browsers elsewhere are not on this machine");
    assert!(of(elsewhere, Some("https://push.example.com/"), "localhost").is_some());
}
