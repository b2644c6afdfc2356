//! Unit tests of `src/api/http/etag.rs`, which includes them.

use axum::http::header::IF_MATCH;

use super::*;

#[test]
fn header_matches_tag_or_star() {
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
        ("\"a,*,b\"".to_owned(), false, false),
        (format!("\"a,b\",{text}"), true, true),
        (format!("unquoted, {text}"), false, false),
    ] {
        let headers = HeaderMap::from_iter([(IF_MATCH, given.parse().unwrap())]);
        let named = |by| is_named(&headers, &IF_MATCH, Some(&tag), by);
        assert_eq!((named(Comparison::Strong), named(Comparison::Weak)), (strong, weak), "{given}");
        assert!(!is_named(&headers, &IF_MATCH, None, Comparison::Weak), "nothing has no name");
    }
    assert_ne!(tag, of(b"y"));
}
