//! The head of a POST to a push resource: RFC 8030 section 5, RFC 8291 section 4, RFC 8292 section 3, and nothing
//! that they do not ask for.

use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use super::Post;
use crate::model::lane::Gateway;

const TTL: HeaderName = HeaderName::from_static("ttl");
const URGENCY: HeaderName = HeaderName::from_static("urgency");
const TOPIC: HeaderName = HeaderName::from_static("topic");
const WNS_CACHE_POLICY: HeaderName = HeaderName::from_static("x-wns-cache-policy");

/// For HTTP/2: scheme, authority and path as pseudo headers.
pub(super) fn http2(post: &Post, authority: &Authority) -> Option<Request<()>> {
    let mut parts = Parts::default();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = Some(authority.clone());
    parts.path_and_query = Some(path(post)?);
    Some(request(Uri::from_parts(parts).ok()?, headers(post), ()))
}

/// For HTTP/1.1: the path in the request line, the authority as `Host`.
pub(super) fn http1<B>(post: &Post, body: B) -> Option<Request<B>> {
    let mut headers = headers(post);
    headers.insert(HOST, HeaderValue::from_str(post.endpoint.authority()).ok()?);
    Some(request(Uri::from(path(post)?), headers, body))
}

/// `None` for a path that [`recognise`](super::Gateways::recognise) would have refused.
fn path(post: &Post) -> Option<PathAndQuery> {
    PathAndQuery::try_from(post.endpoint.expose_path()).ok()
}

fn request<B>(uri: Uri, headers: HeaderMap, body: B) -> Request<B> {
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request
}

fn headers(post: &Post) -> HeaderMap {
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
