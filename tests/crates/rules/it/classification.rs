//! The table "What each answer means", row by row.

use std::time::Duration;

use bellwire_core::clock::Timestamp;
use bellwire_core::lane::Gateway;
use bellwire_rules::classify::{DeadReason, Failure, Health, Outcome, PostResult, ResponseKind, classify};
use http::{HeaderName, HeaderValue};

const DOWN: ResponseKind = ResponseKind::Unavailable { retry_now: false };
const ACCEPTED: ResponseKind = ResponseKind::Accepted { ttl_granted_s: None };

fn dead(reason: DeadReason) -> ResponseKind {
    ResponseKind::Refused { reason }
}

fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

fn answered(gateway: Gateway, status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Outcome {
    let headers = headers.iter().map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_static(v))).collect();
    classify(gateway, &PostResult::Response { status, headers: &headers, body: body.as_bytes() }, now())
}

#[test]
fn statuses_mean_the_same_at_all_gateways() {
    for status in 0..=1000 {
        let expected = match status {
            200..=299 => ACCEPTED,
            300..=399 => dead(DeadReason::Redirected),
            400 => dead(DeadReason::BadRequest),
            401 | 403 => dead(DeadReason::Unauthorized),
            404 | 410 => ResponseKind::Gone,
            413 => ResponseKind::TooLarge,
            429 => ResponseKind::Throttled,
            408 | 500..=599 | 0..=199 | 600.. => DOWN,
            _ => dead(DeadReason::Http4xx),
        };
        for gateway in Gateway::ALL {
            for body in
                ["", "{", "<html>", r#"{"errno":"103"}"#, r#"{"errno":-1}"#, r#"{"errno":999}"#, r#"{"reason":7}"#]
            {
                let throttled = status == 406 && gateway == Gateway::Wns;
                let expected = if throttled { ResponseKind::SenderThrottled } else { expected };
                let outcome = answered(gateway, status, &[], body);
                assert_eq!(outcome.kind, expected, "{gateway:?} {status} {body}");
                assert_eq!(outcome.status, Some(status));
            }
        }
    }
    assert_eq!(answered(Gateway::Fcm, u16::MAX, &[], "").kind, DOWN);
}

#[test]
fn every_failure_has_a_meaning_and_a_name() {
    for (failure, kind, health) in [
        (Failure::Resolve, DOWN, Health::Failing),
        (Failure::Connect, DOWN, Health::Failing),
        (Failure::Proxy, ResponseKind::CutOff, Health::Failing),
        (Failure::Tls, DOWN, Health::Failing),
        (Failure::Reset, DOWN, Health::Failing),
        (Failure::Protocol, DOWN, Health::Failing),
        (Failure::Deadline, DOWN, Health::Failing),
        (Failure::Unprocessed, ResponseKind::Unprocessed, Health::Unknown),
        (Failure::InvalidHost, ResponseKind::Gone, Health::Unknown),
        (Failure::Forbidden, dead(DeadReason::EndpointForbidden), Health::Unknown),
    ] {
        let outcome = classify(Gateway::Other, &PostResult::Failure(failure), now());
        assert_eq!((outcome.kind, outcome.health(), outcome.status), (kind, health, None), "{failure:?}");
        assert_eq!(outcome.detail.as_deref(), Some(failure.name()));
    }
}

#[test]
fn a_host_under_invalid_is_gone_for_good() {
    for (host, failure) in [
        ("permanently-removed.invalid", Failure::InvalidHost),
        ("x.INVALID.", Failure::InvalidHost),
        ("invalid", Failure::InvalidHost),
        ("invalid.example", Failure::Resolve),
        ("notinvalid", Failure::Resolve),
        ("", Failure::Resolve),
    ] {
        assert_eq!(Failure::unresolved(host), failure, "{host}");
    }
}

#[test]
fn accepted_response_contains_the_granted_ttl() {
    for (ttl, granted) in [("60", Some(60)), (" 0 ", Some(0)), ("-1", None), ("x", None), ("99999999999", None)] {
        let outcome = answered(Gateway::Mozilla, 201, &[("ttl", ttl), ("retry-after", "9")], "words");
        let expected = Outcome {
            kind: ResponseKind::Accepted { ttl_granted_s: granted },
            status: Some(201),
            retry_after: None,
            detail: None,
        };
        assert_eq!(outcome, expected, "{ttl}");
    }
}

#[test]
fn mozillas_errno_refines_the_status() {
    for (status, errno, kind) in [
        (404, 102, ResponseKind::Gone),
        (400, 103, ResponseKind::Gone),
        (410, 105, ResponseKind::Gone),
        (410, 106, ResponseKind::Gone),
        (503, 103, DOWN), // a server error never prunes
        (401, 103, dead(DeadReason::Unauthorized)),
        (429, 105, ResponseKind::Throttled),
        (503, 201, DOWN),
        (400, 201, DOWN),
        (503, 202, ResponseKind::Unavailable { retry_now: true }),
        (429, 201, ResponseKind::Throttled),
        (429, 202, ResponseKind::Throttled),
        (413, 104, ResponseKind::TooLarge),
        (401, 109, dead(DeadReason::Unauthorized)),
        (400, 111, dead(DeadReason::BadRequest)),
        (302, 103, dead(DeadReason::Redirected)),
        (201, 103, ACCEPTED),
    ] {
        let body = format!(r#"{{"code":{status},"errno":{errno},"error":"x","message":"y","more_info":"z"}}"#);
        assert_eq!(answered(Gateway::Mozilla, status, &[], &body).kind, kind, "{status} {errno}");
    }
    assert_eq!(answered(Gateway::Fcm, 400, &[], r#"{"errno":103}"#).kind, dead(DeadReason::BadRequest));
}

#[test]
fn wns_headers_reveal_a_dropped_success() {
    for (status, name, value, kind) in [
        (200, "x-wns-status", "received", ACCEPTED),
        (201, "x-wns-status", "dropped", ResponseKind::Throttled),
        (200, "x-wns-status", "ChannelThrottled", ResponseKind::Throttled),
        (200, "x-wns-notificationstatus", "dropped", ResponseKind::Throttled),
        (200, "x-wns-status", "appthrottled", ResponseKind::SenderThrottled),
        (406, "x-wns-status", "appthrottled", ResponseKind::SenderThrottled),
        (429, "x-wns-notificationstatus", "appthrottled", ResponseKind::SenderThrottled),
        (406, "x-wns-status", "channelthrottled", ResponseKind::Throttled),
        (429, "x-wns-status", "received", ResponseKind::Throttled),
        (410, "x-wns-status", "dropped", ResponseKind::Gone),
        (400, "x-wns-error-description", "Ttl value conflicts", dead(DeadReason::BadRequest)),
    ] {
        assert_eq!(answered(Gateway::Wns, status, &[(name, value)], "").kind, kind, "{status} {value}");
    }
    assert_eq!(answered(Gateway::Other, 200, &[("x-wns-status", "dropped")], "").kind, ACCEPTED);
    let throttled = answered(Gateway::Wns, 406, &[("retry-after", "900")], "");
    assert_eq!(throttled.retry_after, Some(Duration::from_secs(900)));
}

#[test]
fn apples_reasons_refine_a_400() {
    for (status, reason, kind) in [
        (400, "VapidPkHashMismatch", dead(DeadReason::Unauthorized)),
        (400, "BadVapidPublicKey", dead(DeadReason::Unauthorized)),
        (400, "BadAuthorizationHeader", dead(DeadReason::Unauthorized)),
        (403, "BadJwtToken", dead(DeadReason::Unauthorized)),
        (400, "IdleTimeout", DOWN),
        (400, "BadTtl", dead(DeadReason::BadRequest)),
        (400, "Unregistered", dead(DeadReason::BadRequest)), // 400 never prunes
        (410, "Unregistered", ResponseKind::Gone),
        (413, "PayloadTooLarge", ResponseKind::TooLarge),
        (429, "TooManyRequests", ResponseKind::Throttled),
        (429, "TooManyProviderTokenUpdates", ResponseKind::SenderThrottled),
        (400, "TooManyProviderTokenUpdates", dead(DeadReason::BadRequest)),
        (405, "MethodNotAllowed", dead(DeadReason::Http4xx)),
        (503, "Shutdown", DOWN),
    ] {
        let outcome = answered(Gateway::Apple, status, &[], &format!(r#"{{"reason":"{reason}"}}"#));
        assert_eq!(outcome.kind, kind, "{status} {reason}");
        assert!(outcome.detail.is_some_and(|detail| detail.contains(reason)));
    }
}

#[test]
fn a_489_forbids_retries_only_with_its_header() {
    for (name, value, reason) in [
        ("upstash-nonretryable-error", "true", DeadReason::NonRetryable),
        ("bellwire-nonretryable", "True", DeadReason::NonRetryable),
        ("bellwire-nonretryable", "false", DeadReason::Http4xx),
        ("x-other", "true", DeadReason::Http4xx),
    ] {
        assert_eq!(answered(Gateway::Other, 489, &[(name, value)], "").kind, dead(reason), "{name}: {value}");
    }
    assert_eq!(answered(Gateway::Other, 503, &[("bellwire-nonretryable", "true")], "").kind, DOWN);
}

#[test]
fn retry_after_is_read_only_before_retries() {
    for (status, expected_s) in [(429, Some(7)), (503, Some(7)), (408, Some(7)), (400, None), (410, None), (413, None)]
    {
        let wait = answered(Gateway::Fcm, status, &[("retry-after", "7")], "").retry_after;
        assert_eq!(wait, expected_s.map(Duration::from_secs), "{status}");
    }
    for (status, value, expected_s) in [(429, "90000", None), (429, "86400", Some(3_600)), (503, "86400", Some(86_400))]
    {
        let wait = answered(Gateway::Fcm, status, &[("retry-after", value)], "").retry_after;
        assert_eq!(wait, expected_s.map(Duration::from_secs), "{status} {value}");
    }
}

#[test]
fn the_gateways_words_are_kept_without_endpoints() {
    let fcm = answered(Gateway::Fcm, 404, &[], "specified as such: https://fcm.googleapis.com/wp/abc");
    assert_eq!(fcm.detail.as_deref(), Some("specified as such: [redacted]"));
    let wns = answered(Gateway::Wns, 400, &[("x-wns-error-description", "Ttl value conflicts")], "<html>");
    assert_eq!(wns.detail.as_deref(), Some("Ttl value conflicts"));
    assert_eq!(answered(Gateway::Fcm, 503, &[], "").detail, None);
}

#[test]
fn health_tells_failures_from_refusals() {
    for (status, health) in [
        (201, Health::Alive),
        (400, Health::Alive),
        (410, Health::Alive),
        (429, Health::Alive),
        (408, Health::Failing),
        (500, Health::Failing),
        (700, Health::Failing),
    ] {
        assert_eq!(answered(Gateway::Fcm, status, &[], "").health(), health, "{status}");
    }
    assert!(answered(Gateway::Fcm, 403, &[], "").refuses_key());
    assert!(!answered(Gateway::Fcm, 404, &[], "").refuses_key());
}

#[test]
fn dead_reasons_round_trip_by_name() {
    for reason in DeadReason::ALL {
        assert_eq!(DeadReason::from_name(reason.name()), Some(reason));
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
    }
    assert_eq!(DeadReason::from_name("nonsense"), None);
}
