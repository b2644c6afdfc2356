//! Responses of each gateway: statuses, headers and bodies. FCM: plain text; Mozilla: `errno` JSON; WNS: `X-WNS-*`
//! headers; Apple: `{"reason"}`; others: RFC 8030 with empty bodies.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use super::check::Fault;
use bellwire_core::lane::Gateway;

/// Response that a rule can request in the form of the gateway, independent of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    /// 410: the subscription has ended.
    Gone,
    /// 404: the endpoint is unknown.
    NotFound,
    /// Too many requests: 429, from WNS 406; with `Retry-After` if seconds are given.
    Throttled(Option<u64>),
    /// 503, with `Retry-After` if seconds are given.
    Unavailable(Option<u64>),
    /// 500 with the text of the gateway.
    ServerError,
    /// 413 for a large body.
    TooLarge,
    /// 401 or 403 for a VAPID fault, depending on the gateway.
    Unauthorized,
    /// 400 for an invalid header.
    BadRequest,
}

/// Returns the maximum body of a gateway in octets.
pub(super) fn body_limit(gateway: Gateway) -> usize {
    match gateway {
        Gateway::Mozilla => 5_630,
        Gateway::Wns => 5_000,
        Gateway::Fcm | Gateway::Apple | Gateway::Other => 4_096,
    }
}

/// Whether the gateway requires VAPID for a subscription without a key, too.
pub(super) fn demands_vapid(gateway: Gateway) -> bool {
    matches!(gateway, Gateway::Fcm | Gateway::Wns | Gateway::Apple)
}

fn value(text: &str) -> HeaderValue {
    // Every text is in this module, or is a host name or number: printable ASCII.
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

fn reply(status: StatusCode, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response
}

fn with(mut response: Response<Bytes>, name: &'static str, text: &str) -> Response<Bytes> {
    response.headers_mut().insert(HeaderName::from_static(name), value(text));
    response
}

/// Returns the 201 of an accepted message with the headers of each gateway. `serial` is unique within the simulator.
pub(super) fn accepted(gateway: Gateway, origin: &str, serial: u64, ttl: u64) -> Response<Bytes> {
    let mut response = reply(StatusCode::CREATED, Bytes::new());
    let headers = response.headers_mut();
    let mut location = |path: String| headers.insert(header::LOCATION, value(&path));
    match gateway {
        Gateway::Fcm => {
            location(format!("{origin}/0:{serial:016}%7031b2e6f9fd7ecd"));
        }
        Gateway::Mozilla => {
            location(format!("{origin}/m/gAAAAA{serial:032x}"));
            headers.insert("ttl", HeaderValue::from(ttl.min(2_592_000)));
        }
        Gateway::Wns => {
            headers.insert("x-wns-status", HeaderValue::from_static("received"));
            headers.insert("x-wns-notificationstatus", HeaderValue::from_static("received"));
            headers.insert("x-wns-msg-id", value(&format!("{serial:016X}")));
            headers.insert("x-wns-debug-trace", HeaderValue::from_static("DB5SCH101111914"));
        }
        Gateway::Apple => {
            headers.insert("apns-id", value(&uuid::Uuid::from_u64_pair(0x4_0000_8000, serial).to_string()));
        }
        Gateway::Other => {
            location(format!("{origin}/m/{serial:x}"));
            headers.insert("ttl", HeaderValue::from_static("0")); // what UnifiedPush servers grant
        }
    }
    response
}

/// Returns the response to a GET: UnifiedPush servers identify themselves, the others refuse.
pub(super) fn discovery(gateway: Gateway) -> Response<Bytes> {
    match gateway {
        Gateway::Other => {
            with(reply(StatusCode::OK, r#"{"unifiedpush":{"version":1}}"#), "content-type", "application/json")
        }
        _ => refusal(gateway, Fault::Method).unwrap_or_else(|| reply(StatusCode::METHOD_NOT_ALLOWED, "")),
    }
}

/// Returns the refusal of a faulty request, or `None` if the gateway accepts it nevertheless. No gateway decrypts a
/// body, and the checks of headers differ.
pub(super) fn refusal(gateway: Gateway, fault: Fault) -> Option<Response<Bytes>> {
    match gateway {
        Gateway::Fcm => fcm(fault),
        Gateway::Mozilla => mozilla(fault),
        Gateway::Wns => wns(fault),
        Gateway::Apple => apple(fault),
        Gateway::Other => other(fault),
    }
}

/// Returns the response of a gateway for a case.
pub(super) fn said(gateway: Gateway, case: Case) -> Response<Bytes> {
    let status = |code: u16| StatusCode::from_u16(code).expect("a status written in this module");
    let (response, after) = match case {
        Case::Gone => {
            (speak(gateway, status(410), "Unregistered", 103, "push subscription has unsubscribed or expired."), None)
        }
        Case::NotFound => return refusal(gateway, Fault::UnknownEndpoint).unwrap_or_else(|| reply(status(404), "")),
        Case::Throttled(after) if gateway == Gateway::Wns => {
            let response = with(reply(status(406), ""), "x-wns-notificationstatus", "channelthrottled");
            (with(response, "x-wns-status", "channelthrottled"), after)
        }
        Case::Throttled(after) => (speak(gateway, status(429), "TooManyRequests", 202, "Too many requests."), after),
        Case::Unavailable(after) => {
            (speak(gateway, status(503), "ServiceUnavailable", 201, "Service unavailable."), after)
        }
        Case::ServerError => (speak(gateway, status(500), "InternalServerError", 999, "Internal error."), None),
        Case::TooLarge => return refusal(gateway, Fault::TooLarge).unwrap_or_else(|| reply(status(413), "")),
        Case::Unauthorized => return refusal(gateway, Fault::VapidWrongKey).unwrap_or_else(|| reply(status(403), "")),
        Case::BadRequest => return refusal(gateway, Fault::TtlInvalid).unwrap_or_else(|| reply(status(400), "")),
    };
    match after {
        Some(seconds) => with(response, "retry-after", &seconds.to_string()),
        None => response,
    }
}

/// Returns a response in the form of each gateway: Apple's reason, Mozilla's errno, or a sentence.
fn speak(gateway: Gateway, status: StatusCode, reason: &str, errno: u16, text: &'static str) -> Response<Bytes> {
    match gateway {
        Gateway::Fcm => plain(status, text),
        Gateway::Mozilla => errno_json(status, errno, text),
        Gateway::Wns => with(reply(status, ""), "x-wns-error-description", text),
        Gateway::Apple => reason_json(status, reason),
        Gateway::Other => reply(status, ""),
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Bytes> {
    with(reply(status, text), "content-type", "text/plain; charset=utf-8")
}

fn errno_json(status: StatusCode, errno: u16, message: &str) -> Response<Bytes> {
    let body = serde_json::json!({
        "code": status.as_u16(),
        "errno": errno,
        "error": status.canonical_reason().unwrap_or_default(),
        "message": message,
        "more_info": "http://autopush.readthedocs.io/en/latest/http.html#error-codes",
    });
    let response = with(reply(status, body.to_string()), "content-type", "application/json");
    match status {
        StatusCode::GONE => with(response, "cache-control", "max-age=86400"),
        StatusCode::SERVICE_UNAVAILABLE => with(response, "retry-after", "120"),
        _ => response,
    }
}

fn reason_json(status: StatusCode, reason: &str) -> Response<Bytes> {
    let body = serde_json::json!({ "reason": reason }).to_string();
    with(reply(status, body), "content-type", "application/json")
}

fn fcm(fault: Fault) -> Option<Response<Bytes>> {
    let (status, text) = match fault {
        Fault::Method => (StatusCode::METHOD_NOT_ALLOWED, "only POST is allowed."),
        Fault::UnknownEndpoint | Fault::EscapedToken => (
            StatusCode::NOT_FOUND,
            "A valid push subscription endpoint should be specified in the URL as such: https://fcm.googleapis.com/wp/dHIoDxE7Hdg",
        ),
        Fault::VapidMissing => (StatusCode::UNAUTHORIZED, "authorization header must be specified."),
        Fault::VapidToken | Fault::VapidKey | Fault::VapidSignature | Fault::VapidExpired => {
            (StatusCode::FORBIDDEN, "invalid JWT provided")
        }
        Fault::VapidAudience => (
            StatusCode::FORBIDDEN,
            "the 'aud' claim in the JWT MUST include the origin (protocol, host and, if not default, port) of the endpoint.",
        ),
        Fault::VapidTooLong => (
            StatusCode::FORBIDDEN,
            "the 'exp' claim in the JWT MUST NOT be more than 24 hours from the time of the request.",
        ),
        Fault::VapidWrongKey => (
            StatusCode::FORBIDDEN,
            "the VAPID credentials in the authorization header do not correspond to the credentials used to create the subscriptions.",
        ),
        Fault::TtlMissing | Fault::TtlInvalid | Fault::TtlNegative => (StatusCode::BAD_REQUEST, "InvalidTtlParameter"),
        Fault::Topic => (StatusCode::BAD_REQUEST, "InvalidTopic"),
        Fault::Urgency => (StatusCode::BAD_REQUEST, "InvalidUrgency"),
        Fault::Encoding => (StatusCode::BAD_REQUEST, "InvalidContentEncoding"),
        Fault::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "Payload too large."),
        Fault::VapidSubject | Fault::TtlZero | Fault::Sealing | Fault::Unsealable | Fault::SenderKeyReused => {
            return None;
        }
    };
    Some(plain(status, text))
}

fn mozilla(fault: Fault) -> Option<Response<Bytes>> {
    let unauthorized = |message| Some(errno_json(StatusCode::UNAUTHORIZED, 109, message));
    let bad = |errno, message| Some(errno_json(StatusCode::BAD_REQUEST, errno, message));
    match fault {
        Fault::Method => Some(reply(StatusCode::METHOD_NOT_ALLOWED, "")),
        Fault::UnknownEndpoint | Fault::EscapedToken => Some(reply(StatusCode::NOT_FOUND, "")),
        Fault::VapidMissing => unauthorized("Missing VAPID token"),
        Fault::VapidToken | Fault::VapidKey => unauthorized("Invalid VAPID token"),
        Fault::VapidSignature => unauthorized("InvalidSignature"),
        Fault::VapidAudience => unauthorized("InvalidAudience"),
        Fault::VapidExpired => unauthorized("ExpiredSignature"),
        Fault::VapidTooLong => unauthorized("The VAPID token expiration is too long"),
        Fault::VapidWrongKey => unauthorized("VAPID public key mismatch"),
        Fault::TtlMissing | Fault::TtlInvalid => bad(111, "Missing TTL value"),
        Fault::TtlNegative => bad(114, "Invalid TTL value"),
        Fault::Topic => bad(113, "Invalid Topic value"),
        Fault::Encoding => bad(110, "Invalid Content-Encoding"),
        Fault::TooLarge => Some(errno_json(StatusCode::PAYLOAD_TOO_LARGE, 104, "Data payload too large")),
        // autopush checks neither urgency nor `sub`.
        Fault::Urgency | Fault::VapidSubject | Fault::TtlZero => None,
        Fault::Sealing | Fault::Unsealable | Fault::SenderKeyReused => None,
    }
}

fn wns(fault: Fault) -> Option<Response<Bytes>> {
    let (status, text) = match fault {
        Fault::Method => (StatusCode::METHOD_NOT_ALLOWED, "Method not allowed."),
        Fault::UnknownEndpoint => (StatusCode::NOT_FOUND, "Channel URI is not recognized."),
        Fault::EscapedToken => (StatusCode::UNAUTHORIZED, "The token in the channel URI is not valid."),
        Fault::VapidMissing
        | Fault::VapidToken
        | Fault::VapidKey
        | Fault::VapidSignature
        | Fault::VapidAudience
        | Fault::VapidExpired
        | Fault::VapidTooLong
        | Fault::VapidWrongKey => (StatusCode::UNAUTHORIZED, "JWT authentication failed."),
        Fault::TtlMissing | Fault::TtlInvalid | Fault::TtlNegative => {
            (StatusCode::BAD_REQUEST, "Ttl value is not valid.")
        }
        Fault::TtlZero => (StatusCode::BAD_REQUEST, "Ttl value conflicts with X-WNS-Cache-Policy."),
        Fault::Topic => (StatusCode::BAD_REQUEST, "Topic value is not valid."),
        Fault::Encoding => (StatusCode::BAD_REQUEST, "Content-Encoding value is not valid."),
        Fault::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "Payload is too large."),
        Fault::Urgency | Fault::VapidSubject => return None,
        Fault::Sealing | Fault::Unsealable | Fault::SenderKeyReused => return None,
    };
    let response = with(reply(status, ""), "x-wns-error-description", text);
    Some(with(response, "x-wns-status", "dropped"))
}

fn apple(fault: Fault) -> Option<Response<Bytes>> {
    let (status, reason) = match fault {
        Fault::Method => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
        Fault::UnknownEndpoint | Fault::EscapedToken => (StatusCode::NOT_FOUND, "BadPath"),
        Fault::VapidMissing => (StatusCode::FORBIDDEN, "BadAuthorizationHeader"),
        Fault::VapidKey => (StatusCode::BAD_REQUEST, "BadVapidPublicKey"),
        Fault::VapidWrongKey => (StatusCode::BAD_REQUEST, "VapidPkHashMismatch"),
        Fault::VapidToken
        | Fault::VapidSignature
        | Fault::VapidAudience
        | Fault::VapidExpired
        | Fault::VapidTooLong
        | Fault::VapidSubject => (StatusCode::FORBIDDEN, "BadJwtToken"),
        Fault::TtlMissing | Fault::TtlInvalid | Fault::TtlNegative | Fault::TtlZero => {
            (StatusCode::BAD_REQUEST, "BadTtl")
        }
        Fault::Urgency => (StatusCode::BAD_REQUEST, "BadUrgency"),
        Fault::Topic => (StatusCode::BAD_REQUEST, "BadWebPushTopic"),
        Fault::Encoding => (StatusCode::BAD_REQUEST, "BadWebPushRequest"),
        Fault::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLarge"),
        Fault::Sealing | Fault::Unsealable | Fault::SenderKeyReused => return None,
    };
    Some(reason_json(status, reason))
}

fn other(fault: Fault) -> Option<Response<Bytes>> {
    let status = match fault {
        Fault::Method => StatusCode::METHOD_NOT_ALLOWED,
        Fault::UnknownEndpoint | Fault::EscapedToken => StatusCode::NOT_FOUND,
        Fault::VapidMissing => StatusCode::UNAUTHORIZED,
        Fault::VapidToken
        | Fault::VapidKey
        | Fault::VapidSignature
        | Fault::VapidAudience
        | Fault::VapidExpired
        | Fault::VapidTooLong
        | Fault::VapidWrongKey => StatusCode::FORBIDDEN,
        Fault::TtlMissing | Fault::TtlInvalid | Fault::TtlNegative => StatusCode::BAD_REQUEST,
        Fault::Urgency | Fault::Topic | Fault::Encoding => StatusCode::BAD_REQUEST,
        Fault::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Fault::VapidSubject | Fault::TtlZero => return None,
        Fault::Sealing | Fault::Unsealable | Fault::SenderKeyReused => return None,
    };
    Some(reply(status, ""))
}

#[cfg(test)]
mod tests {
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
            assert_eq!(status(gateway, Fault::VapidMissing), Some(missing), "{gateway:?}");
            assert_eq!(status(gateway, Fault::VapidWrongKey), Some(wrong_key), "{gateway:?}");
            assert_eq!(status(gateway, Fault::VapidSubject), subject, "{gateway:?}");
            assert_eq!(status(gateway, Fault::Unsealable), None, "no gateway looks inside: {gateway:?}");
        }
    }

    #[test]
    fn gateway_states_its_known_reasons() {
        let gone = said(Gateway::Mozilla, Case::Gone);
        assert_eq!(header(&gone, "cache-control"), "max-age=86400");
        assert_eq!(serde_json::from_slice::<serde_json::Value>(gone.body()).unwrap()["errno"], 103);
        assert_eq!(said(Gateway::Apple, Case::Gone).body(), r#"{"reason":"Unregistered"}"#);
        let throttled = said(Gateway::Wns, Case::Throttled(Some(900)));
        assert_eq!((throttled.status().as_u16(), header(&throttled, "retry-after")), (406, "900"));
        assert_eq!(header(&throttled, "x-wns-status"), "channelthrottled");
        assert_eq!(header(&said(Gateway::Mozilla, Case::Unavailable(None)), "retry-after"), "120");
        assert_eq!(header(&said(Gateway::Fcm, Case::Unavailable(None)), "retry-after"), "");
        let zero = refusal(Gateway::Wns, Fault::TtlZero).unwrap();
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
}
