//! Unit tests of `crates/bellwire-net/src/http_server/redirect.rs`, which includes them.

use axum::body::Body;

use super::*;

#[test]
fn redirect_keeps_the_path() {
    let to = |public_url: Option<&str>, port, host: &str, path: &str| {
        let request = Request::builder().uri(path).header("host", host).body(Body::empty()).unwrap();
        let origin = public_url.map(|url| url.parse::<Url>().unwrap().origin().ascii_serialization());
        target(origin.as_deref(), port, &request).map(|location| location.to_str().unwrap().to_owned())
    };
    let public = Some("https://push.example.com/");
    for (public_url, port, host, path, expected) in [
        (public, 443, "evil.example", "/admin/?a=b", Some("https://push.example.com/admin/?a=b")),
        (Some("https://push.example.com:8443"), 8443, "x", "/", Some("https://push.example.com:8443/")),
        (None, 443, "push.example.com:80", "/a", Some("https://push.example.com/a")),
        (None, 8443, "push.example.com", "/a", Some("https://push.example.com:8443/a")),
        (None, 443, "[::1]", "//evil.example/", Some("https://[::1]//evil.example/")),
        (None, 443, "a b", "/", None),
        (None, 443, "", "/", None),
    ] {
        assert_eq!(to(public_url, port, host, path).as_deref(), expected, "{host} {path}");
    }
}
