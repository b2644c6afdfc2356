//! Responses to requests that do not reach the router, because their head is not acceptable or no connection is free.

use axum::http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderName, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};

use super::ListenerLimits;

/// Function that formats the body of a refusal from its status and reason, in the style of the application's other errors.
#[derive(Debug, Clone, Copy)]
pub struct RefusalBody {
    pub media_type: &'static str,
    pub write: fn(StatusCode, &str) -> String,
}

impl RefusalBody {
    /// Body with the reason only, as one line of text.
    pub const PLAIN: Self = Self { media_type: "text/plain; charset=utf-8", write: |_, reason| format!("{reason}\n") };

    /// Builds the response to a parsed request.
    pub(super) fn to_request(self, status: StatusCode, reason: &str) -> Response {
        let media_type = HeaderValue::from_static(self.media_type);
        (status, [(CONTENT_TYPE, media_type)], (self.write)(status, reason)).into_response()
    }

    /// Builds an HTTP/1.1 response, after which the connection is closed.
    pub(super) fn response(self, status: StatusCode, reason: &str) -> Vec<u8> {
        let body = (self.write)(status, reason);
        let retry = if status.is_server_error() { format!("{RETRY_AFTER}: 1\r\n") } else { String::new() };
        let head = format!(
            "HTTP/1.1 {status}\r\n{CONNECTION}: close\r\n{retry}{CONTENT_TYPE}: {}\r\n{CONTENT_LENGTH}: {}\r\n\r\n",
            self.media_type,
            body.len()
        );
        (head + &body).into_bytes()
    }
}

/// Returns the status and the reason if this is the response of the HTTP library to a head that it cannot parse. Such a
/// response is the last one, and has a few headers only.
pub(super) fn status_of_library(octets: &[u8], limits: &ListenerLimits) -> Option<(StatusCode, String)> {
    let head = str::from_utf8(octets).ok()?.strip_suffix("\r\n\r\n")?;
    let (status, headers) = head.strip_prefix("HTTP/1.")?.get(2..)?.split_once("\r\n")?;
    let is_header = |name: &str, of: HeaderName| name.eq_ignore_ascii_case(of.as_str());
    let of_library = headers.split("\r\n").all(|line| {
        line.split_once(": ").is_some_and(|(name, value)| {
            is_header(name, DATE)
                || (is_header(name, CONNECTION) && value == "close")
                || (is_header(name, CONTENT_LENGTH) && value == "0")
        })
    });
    let status = StatusCode::from_bytes(status.get(..3)?.as_bytes()).ok().filter(|_| of_library)?;
    let reason = match status {
        StatusCode::BAD_REQUEST => "The request line or a header is malformed (RFC 9112).".to_owned(),
        StatusCode::URI_TOO_LONG => "The path and the query of the request are too long.".to_owned(),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            format!("The head of the request exceeds {} octets: path, query and headers.", limits.head_max_bytes)
        }
        _ => return None,
    };
    Some((status, reason))
}
