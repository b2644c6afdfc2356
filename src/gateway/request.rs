//! The heads of POSTs. To a push resource: RFC 8030 section 5, RFC 8291 section 4, RFC 8292 section 3, and nothing that they
//! do not ask for.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use tokio::time::Instant;

use super::{Call, Post};
use crate::model::lane::Gateway;
use crate::model::subscription::Endpoint;

const TTL: HeaderName = HeaderName::from_static("ttl");
const URGENCY: HeaderName = HeaderName::from_static("urgency");
const TOPIC: HeaderName = HeaderName::from_static("topic");
const WNS_CACHE_POLICY: HeaderName = HeaderName::from_static("x-wns-cache-policy");

/// A POST, as it goes out.
pub(super) trait Outgoing {
    /// Where to.
    fn endpoint(&self) -> &Endpoint;
    /// All headers but `Host`.
    fn headers(&self) -> HeaderMap;
    /// What is said.
    fn body(&self) -> &Bytes;
    /// When nobody waits for its answer any more.
    fn deadline(&self) -> Instant;
}

impl Outgoing for Post {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn headers(&self) -> HeaderMap {
        push_headers(self)
    }

    fn body(&self) -> &Bytes {
        &self.body
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Outgoing for Call {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    fn body(&self) -> &Bytes {
        &self.body
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// For HTTP/2: scheme, authority and path as pseudo headers.
pub(super) fn http2(post: &impl Outgoing, authority: &Authority) -> Option<Request<()>> {
    let mut parts = Parts::default();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = Some(authority.clone());
    parts.path_and_query = Some(path(post)?);
    Some(request(Uri::from_parts(parts).ok()?, post.headers(), ()))
}

/// For HTTP/1.1: the path in the request line, the authority as `Host`.
pub(super) fn http1<B>(post: &impl Outgoing, body: B) -> Option<Request<B>> {
    let mut headers = post.headers();
    headers.insert(HOST, HeaderValue::from_str(post.endpoint().authority()).ok()?);
    Some(request(Uri::from(path(post)?), headers, body))
}

/// `None` for a path that [`recognise`](super::Gateways::recognise) would have refused.
fn path(post: &impl Outgoing) -> Option<PathAndQuery> {
    PathAndQuery::try_from(post.endpoint().expose_path()).ok()
}

fn request<B>(uri: Uri, headers: HeaderMap, body: B) -> Request<B> {
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request
}

fn push_headers(post: &Post) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(9);
    headers.insert(AUTHORIZATION, post.authorization.clone());
    // Apple refuses a TTL that is not positive; a second is the nearest it takes.
    let ttl_s = if post.gateway == Gateway::Apple { post.ttl_s.max(1) } else { post.ttl_s };
    headers.insert(TTL, ttl_s.into());
    headers.insert(URGENCY, HeaderValue::from_static(post.urgency.header()));
    if let Some(topic) = &post.topic {
        headers.insert(TOPIC, topic.clone());
    }
    if post.gateway == Gateway::Wns {
        // Without this WNS answers 400 to a TTL of 0, and it caches nothing unless told.
        let policy = if post.ttl_s == 0 { "no-cache" } else { "cache" };
        headers.insert(WNS_CACHE_POLICY, HeaderValue::from_static(policy));
    }
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("aes128gcm"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, post.body.len().into());
    headers
}
