//! `Strict-Transport-Security` (RFC 6797): lets browsers use HTTPS only.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

use bellwire_net::http_server::OverTls;

/// Value of the header.
#[derive(Debug, Clone)]
pub(crate) struct Hsts {
    value: HeaderValue,
    trusted_proxies: usize,
}

impl Hsts {
    /// Creates the header. `None` if `max_age` is zero. With trusted proxies, `X-Forwarded-Proto` decides whether a request
    /// came by HTTPS.
    pub(crate) fn new(max_age: Duration, trusted_proxies: usize) -> Option<Self> {
        let value = HeaderValue::try_from(format!("max-age={}", max_age.as_secs())).expect("plain ASCII");
        (!max_age.is_zero()).then_some(Self { value, trusted_proxies })
    }
}

/// Whether a request came by HTTPS, to this server or to the proxy that wrote the last `X-Forwarded-Proto`.
pub(crate) fn came_by_https(headers: &HeaderMap, extensions: &Extensions, trusted_proxies: usize) -> bool {
    let forwarded = || {
        let last = headers.get_all("x-forwarded-proto").iter().next_back()?.as_bytes();
        Some(last.rsplit(|octet| *octet == b',').next()?.trim_ascii().eq_ignore_ascii_case(b"https"))
    };
    extensions.get::<OverTls>().is_some() || (trusted_proxies > 0 && forwarded().unwrap_or(false))
}

/// Adds the header to responses to HTTPS requests. Browsers ignore it otherwise.
pub(crate) async fn tell(State(hsts): State<Hsts>, request: Request, next: Next) -> Response {
    let is_due = came_by_https(request.headers(), request.extensions(), hsts.trusted_proxies);
    let mut response = next.run(request).await;
    if is_due {
        response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, hsts.value);
    }
    response
}

#[cfg(test)]
#[path = "../../../tests/unit/api/http/hsts.rs"]
mod tests;
