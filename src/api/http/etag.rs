//! Entity tags (RFC 9110 sections 8.8.3 and 13.1): computes and compares them.

use aws_lc_rs::digest;
use axum::http::{HeaderMap, HeaderName, HeaderValue};

use bellwire_core::base64url;

/// Returns the strong tag of a response body.
pub(crate) fn of(octets: &[u8]) -> HeaderValue {
    let hash = digest::digest(&digest::SHA256, octets);
    let tag = format!("\"{}\"", base64url::encode(&hash.as_ref()[..12]));
    HeaderValue::try_from(tag).expect("base64url in quotes")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// Strong comparison, for changes: a weak tag matches no other tag.
    Strong,
    /// Weak comparison, for reads: a weak tag matches the strong tag with the same text.
    Weak,
}

/// Whether the header contains the tag of the current representation, or `*`. `tag` is `None` if the resource does not exist.
pub(crate) fn is_named(headers: &HeaderMap, name: &HeaderName, tag: Option<&HeaderValue>, by: Comparison) -> bool {
    let Some(tag) = tag else { return false };
    let given = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    given.flat_map(named_tags).any(|named| match named.strip_prefix("W/") {
        Some(weak) => by == Comparison::Weak && tag == weak,
        None => named == "*" || tag == named,
    })
}

/// Returns the tags of a list, up to the first malformed one. A tag may contain commas.
fn named_tags(list: &str) -> impl Iterator<Item = &str> {
    let mut rest = list;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let opens = if rest.starts_with("W/") { 2 } else { 0 };
        let length = match rest.get(opens..)?.strip_prefix('"') {
            Some(opaque) => opens + opaque.find('"')? + 2,
            None => rest.starts_with('*').then_some(1)?,
        };
        let (tag, behind) = rest.split_at(length);
        rest = behind;
        Some(tag)
    })
}

#[cfg(test)]
#[path = "../../../tests/unit/api/http/etag.rs"]
mod tests;
