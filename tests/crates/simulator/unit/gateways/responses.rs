//! Unit tests of `crates/bellwire-simulator/src/gateways/responses.rs`, which includes them.

use super::*;

fn header<'a>(response: &'a Response<Bytes>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[test]
fn vapid_fault_gets_the_gateways_status() {
    let status = |gateway, fault| refusal(gateway, fault).map(|response| response.status().as_u16());
    for (gateway, missing, wrong_key, subject) in [
        (Gateway::Fcm, 401, 403, None),
        (Gateway::Mozilla, 401, 401, None),
        (Gateway::Wns, 401, 401, None),
        (Gateway::Apple, 403, 400, Some(403)),
        (Gateway::Other, 401, 403, None),
    ] {
        assert_eq!(status(gateway, RequestFault::VapidMissing), Some(missing), "{gateway:?}");
        assert_eq!(status(gateway, RequestFault::VapidWrongKey), Some(wrong_key), "{gateway:?}");
        assert_eq!(status(gateway, RequestFault::VapidSubject), subject, "{gateway:?}");
        assert_eq!(status(gateway, RequestFault::Unsealable), None, "no gateway looks inside: {gateway:?}");
    }
}

#[test]
fn gateway_states_its_known_reasons() {
    let gone = said(Gateway::Mozilla, ResponseCase::Gone);
    assert_eq!(header(&gone, "cache-control"), "max-age=86400");
    assert_eq!(serde_json::from_slice::<serde_json::Value>(gone.body()).unwrap()["errno"], 103);
    assert_eq!(said(Gateway::Apple, ResponseCase::Gone).body(), r#"{"reason":"Unregistered"}"#);
    let throttled = said(Gateway::Wns, ResponseCase::Throttled(Some(900)));
    assert_eq!((throttled.status().as_u16(), header(&throttled, "retry-after")), (406, "900"));
    assert_eq!(header(&throttled, "x-wns-status"), "channelthrottled");
    assert_eq!(header(&said(Gateway::Mozilla, ResponseCase::Unavailable(None)), "retry-after"), "120");
    assert_eq!(header(&said(Gateway::Fcm, ResponseCase::Unavailable(None)), "retry-after"), "");
    let zero = refusal(Gateway::Wns, RequestFault::TtlZero).unwrap();
    assert_eq!(header(&zero, "x-wns-error-description"), "Ttl value conflicts with X-WNS-Cache-Policy.");
}

#[test]
fn an_acceptance_grants_what_the_gateway_keeps() {
    let mozilla = accepted(Gateway::Mozilla, "https://push.test", 1, 9_999_999);
    assert_eq!((mozilla.status().as_u16(), header(&mozilla, "ttl")), (201, "2592000"));
    assert!(header(&mozilla, "location").starts_with("https://push.test/m/"));
    assert_eq!(header(&accepted(Gateway::Wns, "", 1, 1), "x-wns-status"), "received");
    assert_eq!(header(&accepted(Gateway::Apple, "", 1, 1), "apns-id").len(), 36);
}
