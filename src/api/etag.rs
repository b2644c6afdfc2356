//! Entity tags (RFC 9110 sections 8.8.3 and 13.1): what a representation is known by, and whether a request names it.

use aws_lc_rs::digest;
use axum::http::{HeaderMap, HeaderName, HeaderValue};

use crate::model::base64url;

/// The strong tag of a representation.
pub(super) fn of(octets: &[u8]) -> HeaderValue {
    let hash = digest::digest(&digest::SHA256, octets);
    let tag = format!("\"{}\"", base64url::encode(&hash.as_ref()[..12]));
    HeaderValue::try_from(tag).expect("base64url in quotes")
}

/// How tags are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// A weak tag is equal to nothing: for whoever changes what it names.
    Strong,
    /// A weak tag is equal to the strong one of the same letters: for whoever reads.
    Weak,
}

/// Whether the tags in a header name that representation, or whatever there is (`*`). None: there is none.
pub(super) fn is_named(headers: &HeaderMap, name: &HeaderName, tag: Option<&HeaderValue>, by: Comparison) -> bool {
    let Some(tag) = tag else { return false };
    let given = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    given.flat_map(|list| list.split(',')).map(str::trim).any(|named| match named.strip_prefix("W/") {
        Some(weak) => by == Comparison::Weak && tag == weak,
        None => named == "*" || tag == named,
    })
}

#[cfg(test)]
mod tests {
    use axum::http::header::IF_MATCH;

    use super::*;

    #[test]
    fn a_header_names_a_representation_by_its_tag_or_by_a_star() {
        let tag = of(b"x");
        let text = tag.to_str().unwrap();
        for (given, strong, weak) in [
            (text.to_owned(), true, true),
            (format!("\"other\" , {text}"), true, true),
            (format!("W/{text}"), false, true),
            ("*".to_owned(), true, true),
            ("\"other\"".to_owned(), false, false),
            (text.trim_matches('"').to_owned(), false, false),
            (String::new(), false, false),
        ] {
            let headers = HeaderMap::from_iter([(IF_MATCH, given.parse().unwrap())]);
            let named = |by| is_named(&headers, &IF_MATCH, Some(&tag), by);
            assert_eq!((named(Comparison::Strong), named(Comparison::Weak)), (strong, weak), "{given}");
            assert!(!is_named(&headers, &IF_MATCH, None, Comparison::Weak), "nothing has no name");
        }
        assert_ne!(tag, of(b"y"));
    }
}
