//! Unit tests of `crates/bellwire-webpush/src/shrink.rs`, which includes them.

use serde_json::{Value, json};

use super::*;
use crate::payload::Stamp;
use bellwire_core::message::Payload;

fn content(compact: Option<Value>, full: Value) -> Content {
    let read = |value| serde_json::from_value::<Notification>(value).unwrap();
    Content::from_request(Some(read(full)), compact.map(read), None, None).unwrap()
}

fn full() -> Value {
    json!({
        "title": "T", "body": "é\"".repeat(300), "image": format!("https://example.com/{}", "i".repeat(400)),
        "actions": [{"action": "a", "title": "A", "url": format!("https://example.com/{}", "a".repeat(400))}],
        "data": {"d": "d".repeat(400)}, "data_optional": true
    })
}

fn rendered(shrunk: &Shrunk) -> Value {
    let mut out = Vec::new();
    shrunk
        .template
        .render(&Stamp { id: [0; 16], receipt: [b'r'; 64], retried: 0, replaces: None, content_type: None }, &mut out);
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn ladder_gives_up_as_little_as_possible() {
    let whole = content(None, full());
    let size = shrink(&whole, 9999).unwrap().template.max_len();
    let ladder: Vec<_> = (0..size).rev().map_while(|limit| shrink(&whole, limit).map(|s| (limit, s))).collect();
    for (limit, shrunk) in &ladder {
        assert!(shrunk.template.max_len() <= *limit);
    }
    let mut rungs: Vec<_> = ladder.into_iter().map(|(_, shrunk)| shrunk.dropped).collect();
    rungs.dedup();
    assert_eq!(
        rungs,
        [
            vec!["image"],
            vec!["image", "actions"],
            vec!["image", "actions", "data"],
            vec!["image", "actions", "data", "the end of body"]
        ]
    );
    assert_eq!(shrink(&whole, size).unwrap().dropped, [""; 0]);
}

#[test]
fn cut_body_keeps_characters_and_ends_with_ellipsis() {
    let whole = content(None, full());
    let [one, other] = [500, 501].map(|limit| shrink(&whole, limit).unwrap());
    for shrunk in [one, other] {
        let shown = rendered(&shrunk);
        let body = shown["notification"]["body"].as_str().unwrap();
        assert!(body.ends_with('…') && "é\"".repeat(300).starts_with(body.trim_end_matches('…')));
        assert!((497..=501).contains(&shrunk.template.max_len()), "{}", shrunk.template.max_len());
    }
    assert_eq!(shrink(&whole, 100), None);
}

#[test]
fn compact_variant_comes_first_needed_data_stays() {
    let mut needed = full();
    needed["data_optional"] = json!(false);
    let whole = content(Some(json!({"title": "Short", "image": "/i"})), needed.clone());
    let shrunk = shrink(&whole, 600).unwrap();
    assert_eq!(shrunk.dropped, ["content"]);
    assert_eq!(rendered(&shrunk)["notification"]["title"], "Short");
    let cut = shrink(&content(None, needed), 900).unwrap();
    assert_eq!(cut.dropped, ["image", "actions", "the end of body"]);
    assert!(rendered(&cut)["notification"]["data"]["d"].is_string());
}

#[test]
fn raw_payloads_are_left_alone() {
    assert_eq!(shrink(&Content::Raw { payload: Payload::Text("x".into()), envelope: true }, 9999), None);
}
