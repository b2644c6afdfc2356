//! Hosts of endpoints: known push services, names that cannot be public, and mappings.

use bellwire_core::lane::Gateway;
use bellwire_core::subscription::Endpoint;
use bellwire_gateway::{GatewayConfig, Gateways, HostMapping, HostRefused};

use super::guarding::with_dns;

fn settings(mappings: &[&str], allow_loopback: bool) -> GatewayConfig {
    let hosts = mappings.iter().map(|mapping| mapping.parse().unwrap()).collect();
    GatewayConfig { hosts, allow_loopback, ..GatewayConfig::default() }
}

fn recognise(gateways: &Gateways, url: &str) -> Result<Gateway, HostRefused> {
    gateways.recognise(&Endpoint::parse(url).unwrap_or_else(|why| panic!("{url}: {why}")))
}

#[test]
fn known_hosts_map_to_gateways_lookalikes_do_not() {
    let gateways = Gateways::new(settings(&[], false)).unwrap();
    for (url, gateway) in [
        ("https://fcm.googleapis.com/fcm/send/a:b", Gateway::Fcm),
        ("https://jmt17.google.com/fcm/send/a", Gateway::Fcm),
        ("https://updates.push.services.mozilla.com/wpush/v2/g", Gateway::Mozilla),
        ("https://eu.push.services.mozilla.com/wpush/v2/g", Gateway::Mozilla),
        ("https://db5p.notify.windows.com/w/?token=a%2bb%2f", Gateway::Wns),
        ("https://wns2-par02p.notify.windows.com/w/", Gateway::Wns),
        ("https://web.push.apple.com/Q", Gateway::Apple),
        ("https://api.sandbox.push.apple.com/Q", Gateway::Apple),
        ("https://ntfy.sh/up?up=1", Gateway::Other),
        ("https://ntfy.example.org:8443/up", Gateway::Other),
        ("https://evil-fcm.googleapis.com/", Gateway::Other),
        ("https://fcm.googleapis.com.evil.org/", Gateway::Other),
        ("https://notify.windows.com/", Gateway::Other),
        ("https://xpush.apple.com/", Gateway::Other),
    ] {
        assert_eq!(recognise(&gateways, url), Ok(gateway), "{url}");
    }
}

#[test]
fn never_public_host_is_refused_without_dns() {
    let gateways = Gateways::new(settings(&[], false)).unwrap();
    for (url, why) in [
        ("https://fcm.googleapis.com:8443/", HostRefused::Port),
        ("https://ntfy.sh:0/", HostRefused::Port),
        ("https://permanently-removed.invalid/fcm/send/x", HostRefused::Removed),
        ("https://localhost/", HostRefused::Name),
        ("https://a.localhost:9/", HostRefused::Name),
        ("https://printer.local/", HostRefused::Name),
        ("https://metadata.google.internal/", HostRefused::Name),
        ("https://router.home.arpa/", HostRefused::Name),
        ("https://x.invalid/", HostRefused::Name),
        ("https://postgres/", HostRefused::Name),
        ("https://ntfy.sh./", HostRefused::Name),
        ("https://a..push.apple.com/Q", HostRefused::Spelling),
        ("https://.push.apple.com/Q", HostRefused::Spelling),
        ("https://-a.push.apple.com/Q", HostRefused::Spelling),
        ("https://a_b.push.apple.com/Q", HostRefused::Spelling),
        ("https://a.-.ntfy.sh/", HostRefused::Spelling),
        ("https://a.b.c.push.apple.com/Q", HostRefused::Shard),
        ("https://nope-nope-nope-nope-nope-nope-nope.notify.windows.com/w/", HostRefused::Shard),
        ("https://127.0.0.1/", HostRefused::NotPublic),
        ("https://169.254.169.254/latest/meta-data", HostRefused::NotPublic),
        ("https://10.0.0.1:8443/", HostRefused::NotPublic),
        ("https://[::1]/", HostRefused::NotPublic),
        ("https://[::1]:8443/", HostRefused::NotPublic),
        ("https://[::ffff:a00:1]/", HostRefused::NotPublic),
        ("https://[fd00::1]/", HostRefused::NotPublic),
        ("https://ntfy.sh/<a>", HostRefused::Path),
        ("https://ntfy.sh?up=1", HostRefused::Path),
        ("https://ntfy.sh\\up", HostRefused::Path),
    ] {
        assert_eq!(recognise(&gateways, url), Err(why), "{url}");
    }
    for public in ["https://1.1.1.1/", "https://[2606:4700:4700::1111]:8443/"] {
        assert_eq!(recognise(&gateways, public), Ok(Gateway::Other), "{public}");
    }
}

#[test]
fn overlong_host_name_is_refused() {
    let gateways = Gateways::new(settings(&[], false)).unwrap();
    let of = |labels: usize, octets: usize| {
        format!("https://{}example.org/", format!("{}.", "a".repeat(octets)).repeat(labels))
    };
    assert_eq!(recognise(&gateways, &of(1, 63)), Ok(Gateway::Other));
    assert_eq!(recognise(&gateways, &of(1, 64)), Err(HostRefused::Spelling));
    assert_eq!(recognise(&gateways, &of(4, 60)), Err(HostRefused::Spelling), "255 octets");
}

#[test]
fn endpoint_that_hides_its_host_is_refused() {
    for url in [
        "http://1.1.1.1/",
        "ftp://ntfy.sh/",
        "https://user@ntfy.sh/",
        "https://user:word@ntfy.sh/",
        "https://ntfy.sh@127.0.0.1/",
        "https://2130706433/",         // decimal 127.0.0.1
        "https://0177.0.0.1/",         // octal
        "https://0x7f.1/",             // hexadecimal, shortened
        "https://127.1/",              // shortened
        "https://%31%32%37.0.0.1/",    // escaped
        "https://[::ffff:127.0.0.1]/", // not IPv6's plain form
        "https://[0:0:0:0:0:0:0:1]/",
        "https:ntfy.sh/",
        "https:///ntfy.sh/",
    ] {
        assert!(Endpoint::parse(url).is_err(), "{url}");
    }
}

#[test]
fn loopback_alone_passes_when_allowed() {
    let gateways = Gateways::new(settings(&[], true)).unwrap();
    for url in ["https://localhost:1/", "https://127.0.0.1:1/", "https://[::1]:1/"] {
        assert_eq!(recognise(&gateways, url), Ok(Gateway::Other), "{url}");
    }
    assert_eq!(recognise(&gateways, "https://10.0.0.1/"), Err(HostRefused::NotPublic));
    assert_eq!(recognise(&gateways, "https://printer.local/"), Err(HostRefused::Name));
}

#[tokio::test]
async fn mapping_takes_precedence_and_round_trips() {
    let text = "web.push.apple.com=apple@127.0.0.1:4443";
    let mapping: HostMapping = text.parse().unwrap();
    assert_eq!(mapping.to_string(), text);
    assert_eq!("Push.Internal=mozilla".parse::<HostMapping>().unwrap().to_string(), "push.internal=mozilla");
    let gateways = with_dns(settings(&[text, "push.internal=mozilla"], false), |_| vec!["1.1.1.1"]);
    assert_eq!(recognise(&gateways, "https://web.push.apple.com:8443/Q"), Ok(Gateway::Apple));
    assert_eq!(recognise(&gateways, "https://push.internal/Q"), Ok(Gateway::Mozilla));
    for (host, address) in [("web.push.apple.com", "127.0.0.1:4443"), ("push.internal", "1.1.1.1:443")] {
        assert_eq!(gateways.resolve(host).await, Ok(vec![address.parse().unwrap()]), "{host}");
    }
    for bad in ["", "host", "host=", "host=gcm", "=fcm", "h=fcm@", "h=fcm@localhost:1", "h=fcm@1.1.1.1", "a b=fcm"] {
        assert!(bad.parse::<HostMapping>().is_err(), "{bad}");
    }
}
