//! Unit tests of `crates/bellwire-telemetry/src/otlp/spans.rs`, which includes them.

use super::*;

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn trace_context_must_be_well_formed() {
    let known = parse(CALLER).unwrap();
    assert_eq!(known.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
    assert!(known.is_sampled() && known.is_remote());
    assert!(!parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00").unwrap().is_sampled());
    for wrong in [
        "",
        "00",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
    ] {
        assert_eq!(parse(wrong), None, "{wrong}");
    }
}

#[test]
fn traced_turns_are_limited_per_message() {
    let origin = TraceOrigin { request: parse(CALLER).unwrap(), turns: AtomicU32::new(0) };
    assert_eq!((0..1_000).filter(|_| origin.has_turns_left()).count(), TURNS_TRACED as usize);
}

#[test]
fn without_a_collector_nothing_is_made() {
    let off = Tracer::off();
    assert!(off.request(&Method::GET, "/healthz", "http", &HeaderMap::new()).is_none());
    assert!(off.origin(Some(CALLER)).is_none());
    assert_eq!(current(), None);
}

#[test]
fn authorities_split_into_address_and_port() {
    for (authority, expected) in [
        ("fcm.googleapis.com", ("fcm.googleapis.com", 443)),
        ("push.example:8443", ("push.example", 8443)),
        ("[2001:db8::1]", ("2001:db8::1", 443)),
        ("[2001:db8::1]:8443", ("2001:db8::1", 8443)),
    ] {
        assert_eq!(address(authority), expected, "{authority}");
    }
}
