//! Responses of each gateway: statuses, headers and bodies. FCM: plain text; Mozilla: `errno` JSON; WNS: `X-WNS-*`
//! headers; Apple: `{"reason"}`; others: RFC 8030 with empty bodies.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use super::check::RequestFault;
use bellwire_core::lane::Gateway;

/// Response that a rule can request in the form of the gateway, independent of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseCase {
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
        _ => refusal(gateway, RequestFault::Method).unwrap_or_else(|| reply(StatusCode::METHOD_NOT_ALLOWED, "")),
    }
}

/// Returns the refusal of a faulty request, or `None` if the gateway accepts it nevertheless. No gateway decrypts a
/// body, and the checks of headers differ.
pub(super) fn refusal(gateway: Gateway, fault: RequestFault) -> Option<Response<Bytes>> {
    match gateway {
        Gateway::Fcm => fcm(fault),
        Gateway::Mozilla => mozilla(fault),
        Gateway::Wns => wns(fault),
        Gateway::Apple => apple(fault),
        Gateway::Other => other(fault),
    }
}

/// Returns the response of a gateway for a case.
pub(super) fn said(gateway: Gateway, case: ResponseCase) -> Response<Bytes> {
    let status = |code: u16| StatusCode::from_u16(code).expect("a status written in this module");
    let (response, after) = match case {
        ResponseCase::Gone => {
            (speak(gateway, status(410), "Unregistered", 103, "push subscription has unsubscribed or expired."), None)
        }
        ResponseCase::NotFound => {
            return refusal(gateway, RequestFault::UnknownEndpoint).unwrap_or_else(|| reply(status(404), ""));
        }
        ResponseCase::Throttled(after) if gateway == Gateway::Wns => {
            let response = with(reply(status(406), ""), "x-wns-notificationstatus", "channelthrottled");
            (with(response, "x-wns-status", "channelthrottled"), after)
        }
        ResponseCase::Throttled(after) => {
            (speak(gateway, status(429), "TooManyRequests", 202, "Too many requests."), after)
        }
        ResponseCase::Unavailable(after) => {
            (speak(gateway, status(503), "ServiceUnavailable", 201, "Service unavailable."), after)
        }
        ResponseCase::ServerError => (speak(gateway, status(500), "InternalServerError", 999, "Internal error."), None),
        ResponseCase::TooLarge => {
            return refusal(gateway, RequestFault::TooLarge).unwrap_or_else(|| reply(status(413), ""));
        }
        ResponseCase::Unauthorized => {
            return refusal(gateway, RequestFault::VapidWrongKey).unwrap_or_else(|| reply(status(403), ""));
        }
        ResponseCase::BadRequest => {
            return refusal(gateway, RequestFault::TtlInvalid).unwrap_or_else(|| reply(status(400), ""));
        }
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

fn fcm(fault: RequestFault) -> Option<Response<Bytes>> {
    let (status, text) = match fault {
        RequestFault::Method => (StatusCode::METHOD_NOT_ALLOWED, "only POST is allowed."),
        RequestFault::UnknownEndpoint | RequestFault::EscapedToken => (
            StatusCode::NOT_FOUND,
            "A valid push subscription endpoint should be specified in the URL as such: https://fcm.googleapis.com/wp/dHIoDxE7Hdg",
        ),
        RequestFault::VapidMissing => (StatusCode::UNAUTHORIZED, "authorization header must be specified."),
        RequestFault::VapidToken
        | RequestFault::VapidKey
        | RequestFault::VapidSignature
        | RequestFault::VapidExpired => (StatusCode::FORBIDDEN, "invalid JWT provided"),
        RequestFault::VapidAudience => (
            StatusCode::FORBIDDEN,
            "the 'aud' claim in the JWT MUST include the origin (protocol, host and, if not default, port) of the endpoint.",
        ),
        RequestFault::VapidTooLong => (
            StatusCode::FORBIDDEN,
            "the 'exp' claim in the JWT MUST NOT be more than 24 hours from the time of the request.",
        ),
        RequestFault::VapidWrongKey => (
            StatusCode::FORBIDDEN,
            "the VAPID credentials in the authorization header do not correspond to the credentials used to create the subscriptions.",
        ),
        RequestFault::TtlMissing | RequestFault::TtlInvalid | RequestFault::TtlNegative => {
            (StatusCode::BAD_REQUEST, "InvalidTtlParameter")
        }
        RequestFault::Topic => (StatusCode::BAD_REQUEST, "InvalidTopic"),
        RequestFault::Urgency => (StatusCode::BAD_REQUEST, "InvalidUrgency"),
        RequestFault::Encoding => (StatusCode::BAD_REQUEST, "InvalidContentEncoding"),
        RequestFault::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "Payload too large."),
        RequestFault::VapidSubject
        | RequestFault::TtlZero
        | RequestFault::Sealing
        | RequestFault::Unsealable
        | RequestFault::SenderKeyReused => {
            return None;
        }
    };
    Some(plain(status, text))
}

fn mozilla(fault: RequestFault) -> Option<Response<Bytes>> {
    let unauthorized = |message| Some(errno_json(StatusCode::UNAUTHORIZED, 109, message));
    let bad = |errno, message| Some(errno_json(StatusCode::BAD_REQUEST, errno, message));
    match fault {
        RequestFault::Method => Some(reply(StatusCode::METHOD_NOT_ALLOWED, "")),
        RequestFault::UnknownEndpoint | RequestFault::EscapedToken => Some(reply(StatusCode::NOT_FOUND, "")),
        RequestFault::VapidMissing => unauthorized("Missing VAPID token"),
        RequestFault::VapidToken | RequestFault::VapidKey => unauthorized("Invalid VAPID token"),
        RequestFault::VapidSignature => unauthorized("InvalidSignature"),
        RequestFault::VapidAudience => unauthorized("InvalidAudience"),
        RequestFault::VapidExpired => unauthorized("ExpiredSignature"),
        RequestFault::VapidTooLong => unauthorized("The VAPID token expiration is too long"),
        RequestFault::VapidWrongKey => unauthorized("VAPID public key mismatch"),
        RequestFault::TtlMissing | RequestFault::TtlInvalid => bad(111, "Missing TTL value"),
        RequestFault::TtlNegative => bad(114, "Invalid TTL value"),
        RequestFault::Topic => bad(113, "Invalid Topic value"),
        RequestFault::Encoding => bad(110, "Invalid Content-Encoding"),
        RequestFault::TooLarge => Some(errno_json(StatusCode::PAYLOAD_TOO_LARGE, 104, "Data payload too large")),
        // autopush checks neither urgency nor `sub`.
        RequestFault::Urgency | RequestFault::VapidSubject | RequestFault::TtlZero => None,
        RequestFault::Sealing | RequestFault::Unsealable | RequestFault::SenderKeyReused => None,
    }
}

fn wns(fault: RequestFault) -> Option<Response<Bytes>> {
    let (status, text) = match fault {
        RequestFault::Method => (StatusCode::METHOD_NOT_ALLOWED, "Method not allowed."),
        RequestFault::UnknownEndpoint => (StatusCode::NOT_FOUND, "Channel URI is not recognized."),
        RequestFault::EscapedToken => (StatusCode::UNAUTHORIZED, "The token in the channel URI is not valid."),
        RequestFault::VapidMissing
        | RequestFault::VapidToken
        | RequestFault::VapidKey
        | RequestFault::VapidSignature
        | RequestFault::VapidAudience
        | RequestFault::VapidExpired
        | RequestFault::VapidTooLong
        | RequestFault::VapidWrongKey => (StatusCode::UNAUTHORIZED, "JWT authentication failed."),
        RequestFault::TtlMissing | RequestFault::TtlInvalid | RequestFault::TtlNegative => {
            (StatusCode::BAD_REQUEST, "Ttl value is not valid.")
        }
        RequestFault::TtlZero => (StatusCode::BAD_REQUEST, "Ttl value conflicts with X-WNS-Cache-Policy."),
        RequestFault::Topic => (StatusCode::BAD_REQUEST, "Topic value is not valid."),
        RequestFault::Encoding => (StatusCode::BAD_REQUEST, "Content-Encoding value is not valid."),
        RequestFault::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "Payload is too large."),
        RequestFault::Urgency | RequestFault::VapidSubject => return None,
        RequestFault::Sealing | RequestFault::Unsealable | RequestFault::SenderKeyReused => return None,
    };
    let response = with(reply(status, ""), "x-wns-error-description", text);
    Some(with(response, "x-wns-status", "dropped"))
}

fn apple(fault: RequestFault) -> Option<Response<Bytes>> {
    let (status, reason) = match fault {
        RequestFault::Method => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
        RequestFault::UnknownEndpoint | RequestFault::EscapedToken => (StatusCode::NOT_FOUND, "BadPath"),
        RequestFault::VapidMissing => (StatusCode::FORBIDDEN, "BadAuthorizationHeader"),
        RequestFault::VapidKey => (StatusCode::BAD_REQUEST, "BadVapidPublicKey"),
        RequestFault::VapidWrongKey => (StatusCode::BAD_REQUEST, "VapidPkHashMismatch"),
        RequestFault::VapidToken
        | RequestFault::VapidSignature
        | RequestFault::VapidAudience
        | RequestFault::VapidExpired
        | RequestFault::VapidTooLong
        | RequestFault::VapidSubject => (StatusCode::FORBIDDEN, "BadJwtToken"),
        RequestFault::TtlMissing | RequestFault::TtlInvalid | RequestFault::TtlNegative | RequestFault::TtlZero => {
            (StatusCode::BAD_REQUEST, "BadTtl")
        }
        RequestFault::Urgency => (StatusCode::BAD_REQUEST, "BadUrgency"),
        RequestFault::Topic => (StatusCode::BAD_REQUEST, "BadWebPushTopic"),
        RequestFault::Encoding => (StatusCode::BAD_REQUEST, "BadWebPushRequest"),
        RequestFault::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLarge"),
        RequestFault::Sealing | RequestFault::Unsealable | RequestFault::SenderKeyReused => return None,
    };
    Some(reason_json(status, reason))
}

fn other(fault: RequestFault) -> Option<Response<Bytes>> {
    let status = match fault {
        RequestFault::Method => StatusCode::METHOD_NOT_ALLOWED,
        RequestFault::UnknownEndpoint | RequestFault::EscapedToken => StatusCode::NOT_FOUND,
        RequestFault::VapidMissing => StatusCode::UNAUTHORIZED,
        RequestFault::VapidToken
        | RequestFault::VapidKey
        | RequestFault::VapidSignature
        | RequestFault::VapidAudience
        | RequestFault::VapidExpired
        | RequestFault::VapidTooLong
        | RequestFault::VapidWrongKey => StatusCode::FORBIDDEN,
        RequestFault::TtlMissing | RequestFault::TtlInvalid | RequestFault::TtlNegative => StatusCode::BAD_REQUEST,
        RequestFault::Urgency | RequestFault::Topic | RequestFault::Encoding => StatusCode::BAD_REQUEST,
        RequestFault::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        RequestFault::VapidSubject | RequestFault::TtlZero => return None,
        RequestFault::Sealing | RequestFault::Unsealable | RequestFault::SenderKeyReused => return None,
    };
    Some(reply(status, ""))
}

#[cfg(test)]
#[path = "../../../../tests/crates/simulator/unit/gateways/responses.rs"]
mod tests;
