//! Unit tests of `crates/bellwire-gateway/src/egress.rs`, which includes them.

use super::*;

#[test]
fn proxy_url_is_shown_without_credentials() {
    for (text, shown) in [
        ("http://proxy:3128", "http://proxy:3128"),
        ("http://proxy", "http://proxy:80"),
        ("http://proxy:80/", "http://proxy:80"),
        ("http://us%40er:p%3Aw@proxy.example:3128", "http://proxy.example:3128"),
        ("socks5://10.0.0.1", "socks5://10.0.0.1:1080"),
        ("socks5://user:word@[fd00::1]:9", "socks5://[fd00::1]:9"),
        ("socks5h://proxy:9050", "socks5h://proxy:9050"),
    ] {
        let proxy = Proxy::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!(proxy.to_string(), shown);
        assert_eq!(format!("{proxy:?}"), format!("Proxy({shown})"));
    }
    let proxy = Proxy::parse("http://us%40er:p%3Aw@proxy").unwrap();
    assert_eq!(proxy.basic().unwrap().as_str(), format!("Basic {}", STANDARD.encode("us@er:p:w")));
}

#[test]
fn what_is_no_proxy_is_refused() {
    for text in [
        "",
        "proxy:3128",
        "https://proxy:3128",
        "socks4://proxy",
        "http://",
        "socks5://",
        "http://proxy/path",
        "http://proxy?a=b",
        "http://proxy#a",
        "http://proxy:0",
        "http://user@proxy",
        "http://:word@proxy",
        "http://a%3Ab:word@proxy",
        "http://a%0D%0Ab:word@proxy",
        &format!("socks5://{}:word@proxy", "a".repeat(256)),
    ] {
        assert!(Proxy::parse(text).is_err(), "{text}");
    }
}

#[test]
fn exempt_hosts_match_name_address_or_network() {
    let of = |list: &[&str]| {
        let exempt = list.iter().map(|text| text.parse().unwrap()).collect();
        Egress::new(Proxy::parse("http://proxy").unwrap(), Resolve::Here, exempt)
    };
    let some = of(&["corp.example", ".lab.example", "10.0.0.0/8", "192.0.2.1", "fd00::/8"]);
    for host in [
        "corp.example",
        "push.corp.example",
        "lab.example",
        "a.b.lab.example",
        "10.1.2.3",
        "192.0.2.1",
        "[fd12::1]",
        "localhost",
        "127.0.0.1",
        "[::1]",
    ] {
        assert!(some.exempts(host), "{host}");
    }
    for host in ["notcorp.example", "corp.example.org", "11.0.0.1", "192.0.2.2", "[2001:db8::1]", "fcm.googleapis.com"]
    {
        assert!(!some.exempts(host), "{host}");
    }
    assert!(of(&["*"]).exempts("fcm.googleapis.com") && of(&["*"]).exempts("1.1.1.1"));
}
