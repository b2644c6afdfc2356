//! Heads of POSTs. Requests to a push resource have the headers of RFC 8030 section 5, RFC 8291 section 4 and RFC 8292
//! section 3 only.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use super::{Call, Post};
use bellwire_core::lane::Gateway;
use bellwire_core::subscription::Endpoint;

const TTL: HeaderName = HeaderName::from_static("ttl");
const URGENCY: HeaderName = HeaderName::from_static("urgency");
const TOPIC: HeaderName = HeaderName::from_static("topic");
const WNS_CACHE_POLICY: HeaderName = HeaderName::from_static("x-wns-cache-policy");

/// A request to be sent.
pub(super) trait Outgoing {
    fn method(&self) -> Method;
    fn endpoint(&self) -> &Endpoint;
    fn headers(&self) -> HeaderMap;
    fn body(&self) -> &Bytes;
    /// Timeout of the wait for a stream, and then of the response.
    fn patience(&self) -> Duration;
}

impl Outgoing for Post {
    fn method(&self) -> Method {
        Method::POST
    }

    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn headers(&self) -> HeaderMap {
        push_headers(self)
    }

    fn body(&self) -> &Bytes {
        &self.body
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}

impl Outgoing for Call {
    fn method(&self) -> Method {
        self.method.clone()
    }

    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    fn body(&self) -> &Bytes {
        &self.body
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}

/// Builds an HTTP/2 request: scheme, authority and path are pseudo headers.
pub(super) fn http2(post: &impl Outgoing, authority: &Authority) -> Option<Request<()>> {
    let mut parts = Parts::default();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = Some(authority.clone());
    parts.path_and_query = Some(path(post)?);
    Some(request(post.method(), Uri::from_parts(parts).ok()?, post.headers(), ()))
}

/// Builds an HTTP/1.1 request: the path is in the request line, the authority is the `Host`.
pub(super) fn http1<B>(post: &impl Outgoing, body: B) -> Option<Request<B>> {
    let mut headers = post.headers();
    headers.insert(HOST, HeaderValue::from_str(post.endpoint().authority()).ok()?);
    Some(request(post.method(), Uri::from(path(post)?), headers, body))
}

/// Returns the path and query of a request. `None` for a path that [`recognise`](super::Gateways::recognise) refuses.
fn path(post: &impl Outgoing) -> Option<PathAndQuery> {
    PathAndQuery::try_from(post.endpoint().expose_path()).ok()
}

fn request<B>(method: Method, uri: Uri, headers: HeaderMap, body: B) -> Request<B> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request
}

fn push_headers(post: &Post) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(9);
    headers.insert(AUTHORIZATION, post.authorization.clone());
    // Apple refuses a TTL of 0; one second is the nearest accepted value.
    let ttl_s = if post.gateway == Gateway::Apple { post.ttl_s.max(1) } else { post.ttl_s };
    headers.insert(TTL, ttl_s.into());
    headers.insert(URGENCY, HeaderValue::from_static(post.urgency.name()));
    if let Some(topic) = &post.topic {
        headers.insert(TOPIC, topic.clone());
    }
    if post.gateway == Gateway::Wns {
        // Without this header WNS responds 400 to a TTL of 0, and does not cache.
        let policy = if post.ttl_s == 0 { "no-cache" } else { "cache" };
        headers.insert(WNS_CACHE_POLICY, HeaderValue::from_static(policy));
    }
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("aes128gcm"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, post.body.len().into());
    headers
}
