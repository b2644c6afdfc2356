//! Unit tests of `crates/bellwire-simulator/src/gateways/check.rs`, which includes them.

use super::*;

fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(*name, HeaderValue::from_static(value));
    }
    map
}

#[test]
fn ttl_is_read_as_each_gateway_reads_it() {
    use Gateway::*;
    for (gateway, value, expected) in [
        (Fcm, "2419200", Ok(2_419_200)),
        (Fcm, "2419201", Err(RequestFault::TtlInvalid)),
        (Fcm, "0", Ok(0)),
        (Mozilla, "99999999", Ok(99_999_999)),
        (Mozilla, "99999999999999999999", Err(RequestFault::TtlInvalid)),
        (Mozilla, "-1", Err(RequestFault::TtlNegative)),
        (Mozilla, "1.5", Err(RequestFault::TtlInvalid)),
        (Other, "99999999999999999999", Ok(1 << 31)),
        (Other, "", Err(RequestFault::TtlInvalid)),
        (Other, "+1", Err(RequestFault::TtlInvalid)),
        (Apple, "0", Err(RequestFault::TtlZero)),
        (Wns, "0", Err(RequestFault::TtlZero)),
    ] {
        assert_eq!(ttl(gateway, &map(&[("ttl", value)])), expected, "{gateway:?} {value}");
    }
    assert_eq!(ttl(Wns, &map(&[("ttl", "0"), ("x-wns-cache-policy", "no-cache")])), Ok(0));
    assert_eq!(ttl(Fcm, &map(&[])), Err(RequestFault::TtlMissing));
}

#[test]
fn urgency_topic_and_coding_are_checked() {
    let faults = |gateway, pairs: &[(&'static str, &'static str)]| {
        let mut faults = Vec::new();
        headers(gateway, &map(pairs), true, &mut faults);
        faults
    };
    let aes = ("content-encoding", "aes128gcm");
    assert_eq!(faults(Gateway::Fcm, &[aes, ("urgency", "very-low"), ("topic", "abc-_9")]), []);
    assert_eq!(faults(Gateway::Fcm, &[aes, ("urgency", "urgent")]), [RequestFault::Urgency]);
    assert_eq!(faults(Gateway::Fcm, &[aes, ("urgency", "low"), ("urgency", "high")]), [RequestFault::Urgency]);
    assert_eq!(faults(Gateway::Fcm, &[aes, ("topic", "a=")]), [RequestFault::Topic]);
    assert_eq!(faults(Gateway::Fcm, &[aes, ("topic", "1234567890123")]), []);
    assert_eq!(faults(Gateway::Apple, &[aes, ("topic", "1234567890123")]), [RequestFault::Topic]);
    assert_eq!(faults(Gateway::Fcm, &[("content-encoding", "aesgcm")]), [RequestFault::Encoding]);
    assert_eq!(faults(Gateway::Fcm, &[]), [RequestFault::Encoding]);
}

#[test]
fn subject_must_satisfy_the_strictest_gateway() {
    for fine in ["mailto:push@example.com", "https://example.com/contact"] {
        assert!(subject_is_fine(fine), "{fine}");
    }
    for bad in [
        "mailto:x@localhost",
        "mailto:x@y.local",
        "mailto:x@y.invalid",
        "mailto: <x@example.com>",
        "mailto:mailto:x@example.com",
        "https://localhost",
        "push@example.com",
        "",
    ] {
        assert!(!subject_is_fine(bad), "{bad}");
    }
}

#[test]
fn rfc_8292_sample_verifies_unless_changed() {
    let token = "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL3B1c2guZXhhbXBsZS5uZXQiLCJleHAiOjE0NTM1\
                 MjM3NjgsInN1YiI6Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0.i3CYb7t4xfxCDquptFOepC9GAu_HLGkMlMuCGSK2rpiUfnK\
                 9ojFwDXb1JrErtmysazNjjvW2L9OkSSHzvoD1oA";
    let key = "BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs";
    let read = |value: String| VerifiedToken::read(&HeaderValue::from_str(&value).unwrap());
    let good = read(format!("vapid t={token}, k={key}")).unwrap();
    assert_eq!((good.aud.as_str(), good.exp), ("https://push.example.net", 1_453_523_768));
    let mut faults = Vec::new();
    let target = MintTarget { index: 0, bound: None };
    good.check(Gateway::Fcm, "https://push.example.net", target, 1_453_523_768 - DAY_SECS, &mut faults);
    assert_eq!(faults, []);
    good.check(Gateway::Fcm, "https://push.example.net", target, 1_453_523_768, &mut faults);
    good.check(Gateway::Fcm, "https://push.example.org", target, 1_453_523_767 - DAY_SECS, &mut faults);
    let other = MintTarget { bound: Some([1; 8]), ..target };
    good.check(Gateway::Mozilla, "https://push.example.net", other, 1_453_523_768 + 30, &mut faults);
    let expected = [
        RequestFault::VapidExpired,
        RequestFault::VapidAudience,
        RequestFault::VapidTooLong,
        RequestFault::VapidWrongKey,
    ];
    assert_eq!(faults, expected);

    assert_eq!(read(format!("vapid t={token}!, k={key}")).unwrap_err(), RequestFault::VapidToken);
    let resigned = token.replace("1oA", "1oQ");
    assert_eq!(read(format!("vapid t={resigned}, k={key}")).unwrap_err(), RequestFault::VapidSignature);
    assert_eq!(read(format!("vapid t={token}; k={key}")).unwrap_err(), RequestFault::VapidKey);
    assert_eq!(read(format!("WebPush {token}")).unwrap_err(), RequestFault::VapidToken);
    assert_eq!(read(format!("Bearer t={token}, k={key}")).unwrap_err(), RequestFault::VapidToken);
}
