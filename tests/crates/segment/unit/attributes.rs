//! Unit tests of `crates/bellwire-segment/src/attributes.rs`, which includes them.

use super::*;

#[test]
fn stored_attributes_are_found_as_written() {
    let json = r#"{"plan": "pro", "gr\u00f6\u00dfe": "\"X\"\n", "n": -3, "big": 1e300, "on": true, "gone": null, "list": [1, {"plan": "no"}], "map": {"plan": [2]}}"#;
    let attributes = Attributes::from_json(json.as_bytes());
    let text = |name| match attributes.get(name) {
        Some(Scalar::Text(text)) => text.clone(),
        other => panic!("{name}: {other:?}"),
    };
    assert!(matches!(text("plan"), Cow::Borrowed("pro")));
    assert_eq!(text("größe"), "\"X\"\n");
    assert!(matches!(attributes.get("n"), Some(Scalar::Number(n)) if *n == -3.0));
    assert!(matches!(attributes.get("big"), Some(Scalar::Number(n)) if *n == 1e300));
    assert!(matches!(attributes.get("on"), Some(Scalar::Flag(true))));
    for other in ["gone", "list", "map"] {
        assert!(matches!(attributes.get(other), Some(Scalar::Other)), "{other}");
    }
    assert!(attributes.get("pla").is_none() && attributes.get("").is_none());
}

#[test]
fn what_is_no_object_has_no_attributes() {
    for json in ["", "null", "[]", "\"plan\"", "{\"plan\": \"pro\""] {
        assert!(Attributes::from_json(json.as_bytes()).get("plan").is_none(), "{json}");
    }
}
