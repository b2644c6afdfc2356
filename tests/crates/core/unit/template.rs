//! Unit tests of `crates/bellwire-core/src/template.rs`, which includes them.

use serde_json::json;

use super::*;

fn template() -> Template {
    serde_json::from_value(json!({
        "content": {"title": "{{ user_id }}"}, "compact": {"title": "T"}, "too_long": {"cut": "body"},
        "locales": {"de": {"content": {"title": "D"}}}
    }))
    .unwrap()
}

#[test]
fn content_survives_storage_in_either_form() {
    let app = AppNames { slug: "shop".into(), name: "Shop".into() };
    let data = json!({"a": [1]}).as_object().unwrap().clone();
    let templated = Templated {
        name: Some("sale".into()),
        template: template(),
        data,
        app,
        site: Some("https://shop.example".into()),
    };
    let literal = Content::from_request(None, None, Some(crate::message::Payload::Text("{".into())), None);
    for said in [MessageContent::Template(Box::new(templated)), MessageContent::Literal(literal.unwrap())] {
        assert_eq!(MessageContent::from_json(&said.to_json().unwrap()).unwrap(), said);
        assert!(said.is_enveloped() && !format!("{said:?}").contains("user_id"));
    }
}

#[test]
fn overlong_rule_is_a_word_or_list() {
    for (json, rule) in [(json!("dead"), TooLong::Dead), (json!({"cut": "body"}), TooLong::Cut(ShortenedText::Body))] {
        assert_eq!(serde_json::from_value::<TooLong>(json.clone()).unwrap(), rule);
        assert_eq!(serde_json::to_value(rule).unwrap(), json);
    }
    assert!(serde_json::from_value::<TooLong>(json!({"cut": "title"})).is_err());
}
