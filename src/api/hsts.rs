//! `Strict-Transport-Security` (RFC 6797): browsers that came by HTTPS are told to come by nothing else.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::http_server::OverTls;

/// What browsers are told.
#[derive(Debug, Clone)]
pub(crate) struct Hsts {
    value: HeaderValue,
    trusted_proxies: usize,
}

impl Hsts {
    /// For so long. None: nothing is said. What `X-Forwarded-Proto` says is believed if there are proxies to believe.
    pub(crate) fn new(max_age: Duration, trusted_proxies: usize) -> Option<Self> {
        let value = HeaderValue::try_from(format!("max-age={}", max_age.as_secs())).expect("plain ASCII");
        (!max_age.is_zero()).then_some(Self { value, trusted_proxies })
    }

    /// Whether a request came by HTTPS: to us, or to the proxy that wrote last into `X-Forwarded-Proto`.
    fn came_by_https(&self, headers: &HeaderMap, extensions: &Extensions) -> bool {
        let forwarded = || {
            let last = headers.get_all("x-forwarded-proto").iter().next_back()?.to_str().ok()?;
            Some(last.rsplit(',').next()?.trim().eq_ignore_ascii_case("https"))
        };
        extensions.get::<OverTls>().is_some() || (self.trusted_proxies > 0 && forwarded().unwrap_or(false))
    }
}

/// Says so in every response to a request that came by HTTPS. A browser ignores it elsewhere, and is not to be told.
pub(crate) async fn tell(State(hsts): State<Hsts>, request: Request, next: Next) -> Response {
    let is_due = hsts.came_by_https(request.headers(), request.extensions());
    let mut response = next.run(request).await;
    if is_due {
        response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, hsts.value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_by_https_as_far_as_anybody_is_believed() {
        let came = |trusted_proxies, over_tls, forwarded: &[&str]| {
            let hsts = Hsts::new(Duration::from_secs(1), trusted_proxies).unwrap();
            let mut headers = HeaderMap::new();
            for value in forwarded {
                headers.append("x-forwarded-proto", value.parse().unwrap());
            }
            let mut extensions = Extensions::new();
            if over_tls {
                extensions.insert(OverTls);
            }
            hsts.came_by_https(&headers, &extensions)
        };
        assert!(came(0, true, &[]) && came(1, true, &["http"]));
        assert!(!came(0, false, &["https"]), "nobody is believed");
        assert!(came(1, false, &["https"]) && came(1, false, &["http, HTTPS"]) && came(2, false, &["http", "https"]));
        assert!(!came(1, false, &["https, http"]) && !came(1, false, &["https", "http"]) && !came(1, false, &[]));
        assert!(Hsts::new(Duration::ZERO, 0).is_none());
    }
}
