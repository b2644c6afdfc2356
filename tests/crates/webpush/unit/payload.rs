//! Promises of payloads in their envelopes.

use serde_json::{Value, json};

use super::*;
use bellwire_core::message::ENVELOPE_MEMBER;

const STAMP: Stamp<'_> = Stamp { id: [0xff; 16], receipt: [b'r'; 64], retried: 7, replaces: None, content_type: None };

fn notification(value: Value) -> Content {
    let content = Some(serde_json::from_value(value).unwrap());
    Content::from_request(content, None, None, None).unwrap()
}

fn text(text: impl Into<String>, envelope: bool) -> Content {
    Content::Raw { payload: Payload::Text(text.into()), envelope }
}

fn rendered(content: &Content, retried: u32) -> Vec<u8> {
    let mut out = b"before".to_vec();
    PayloadTemplate::new(content).unwrap().render(&Stamp { retried, ..STAMP }, &mut out);
    out.split_off(6)
}

fn stamp() -> Value {
    json!({"id": "_____________________w", "receipt": "r".repeat(64), "retried": 7})
}

#[test]
fn notification_is_readable_by_safari_and_firefox() {
    let full = notification(json!({
        "title": "T\"", "body": "B", "url": "https://example.com/x", "icon": "/i", "image": "/m", "badge": "/b",
        "tag": "t", "dir": "ltr", "lang": "en", "require_interaction": true, "silent": true, "app_badge": 3,
        "renotify": true, "timestamp": 5, "vibrate": [9],
        "actions": [{"action": "a", "title": "A", "icon": "/a"}, {"action": "b", "title": "B", "url": "/b"}],
        "data": {"mine": {"deep": [1]}}
    }));
    let read: Value = serde_json::from_slice(&rendered(&full, 7)).unwrap();
    assert_eq!(
        read,
        json!({
            "web_push": 8030, "mutable": true, "app_badge": 3, "notification": {
                "title": "T\"", "navigate": "https://example.com/x", "mutable": true, "body": "B", "icon": "/i",
                "image": "/m", "badge": "/b", "tag": "t", "dir": "ltr", "lang": "en", "requireInteraction": true,
                "silent": true, "app_badge": "3", "renotify": true, "timestamp": 5, "actions": [
                    {"action": "a", "title": "A", "icon": "/a", "navigate": "https://example.com/x"},
                    {"action": "b", "title": "B", "navigate": "/b"}
                ],
                "data": {ENVELOPE_MEMBER: stamp(), "mine": {"deep": [1]}}
            }
        })
    );
    for bare in [json!({"title": "T"}), json!({"title": "T", "data": {}})] {
        let read: Value = serde_json::from_slice(&rendered(&notification(bare), 7)).unwrap();
        assert_eq!(
            read,
            json!({
                "web_push": 8030, "mutable": true,
                "notification": {"title": "T", "navigate": "/", "mutable": true, "data": {ENVELOPE_MEMBER: stamp()}}
            })
        );
    }
}

#[test]
fn raw_payload_is_enveloped_unless_disabled() {
    let read = |content| serde_json::from_slice::<Value>(&rendered(&content, 7)).unwrap();
    assert_eq!(read(text("a\n\"b", true)), json!({ENVELOPE_MEMBER: stamp(), "payload": "a\n\"b"}));
    let octets = |envelope| Content::Raw { payload: Payload::Octets(vec![0, 255]), envelope };
    assert_eq!(read(octets(true)), json!({ENVELOPE_MEMBER: stamp(), "payload": {"base64": "AP8"}}));
    assert_eq!(rendered(&octets(false), 7), [0, 255]);
    assert_eq!(rendered(&text("", false), 7), b"");
}

#[test]
fn raw_payload_has_the_label_of_policy() {
    let rendered = |content: &Content, content_type| {
        let mut out = Vec::new();
        let stamp = Stamp { content_type: Some(content_type), ..STAMP };
        PayloadTemplate::new(content).unwrap().render(&stamp, &mut out);
        out
    };
    let label = r#"application/json; note="a b""#;
    let read: Value = serde_json::from_slice(&rendered(&text("{}", true), label)).unwrap();
    let mut labelled = stamp();
    labelled["content_type"] = json!(label);
    assert_eq!(read, json!({ENVELOPE_MEMBER: labelled, "payload": "{}"}));
    assert_eq!(rendered(&text("{}", false), label), b"{}");
    let declarative = notification(json!({"title": "T"}));
    assert!(!String::from_utf8(rendered(&declarative, label)).unwrap().contains("content_type"));
    assert_eq!(PayloadTemplate::new(&declarative).unwrap().excess_with(label), 0);
    assert_eq!(PayloadTemplate::new(&text("x".repeat(PLAINTEXT_MAX), false)).unwrap().excess_with(label), 0);
}

#[test]
fn overlong_label_is_left_out() {
    const LABEL: &str = "text/plain; charset=UTF-8";
    type Make = fn(usize) -> Content;
    let makes: [Make; 2] =
        [|n| text("x".repeat(n), true), |n| Content::Raw { payload: Payload::Octets(vec![0; n]), envelope: true }];
    for make in makes {
        // Base64 grows in steps, so the sizes are looked for.
        let fits = |n: &usize| PayloadTemplate::new(&make(*n)).is_ok_and(|made| made.excess_with(LABEL) == 0);
        let fitting = (0..CONTENT_MAX).rev().find(fits).unwrap();
        let [widest, wider] = [fitting, fitting + 1].map(|n| {
            let mut out = Vec::new();
            let longest = Stamp { retried: u32::MAX, content_type: Some(LABEL), ..STAMP };
            PayloadTemplate::new(&make(n)).unwrap().render(&longest, &mut out);
            out
        });
        let contains = |plaintext: &[u8]| String::from_utf8_lossy(plaintext).contains(LABEL);
        assert!(contains(&widest) && widest.len() <= PLAINTEXT_MAX && widest.len() > PLAINTEXT_MAX - 4);
        assert!(!contains(&wider) && wider.len() <= PLAINTEXT_MAX);
        assert!((1..=4).contains(&PayloadTemplate::new(&make(fitting + 1)).unwrap().excess_with(LABEL)));
    }
}

#[test]
fn longest_stamp_fits_at_the_exact_limit() {
    type Make = fn(usize) -> Content;
    let with_data: Make = |n| notification(json!({"title": "T", "data": {"a": "x".repeat(n)}}));
    let without_data: Make = |n| {
        let (tag, url) = (&"t".repeat(n.min(200)), "u".repeat(n.saturating_sub(200).min(1980)));
        let icon = "i".repeat(n.saturating_sub(2180));
        notification(json!({"title": "T", "tag": tag, "url": format!("/{url}"), "icon": format!("/{icon}")}))
    };
    let raw_text: Make = |n| text("x".repeat(n), true);
    let raw_octets: Make = |n| Content::Raw { payload: Payload::Octets(vec![0; n]), envelope: true };
    for make in [with_data, without_data, raw_text, raw_octets] {
        let fitting = (0..PLAINTEXT_MAX).rfind(|&n| PayloadTemplate::new(&make(n)).is_ok()).unwrap();
        let longest = rendered(&make(fitting), u32::MAX);
        assert!(longest.len() <= PLAINTEXT_MAX, "{}", longest.len());
        assert_eq!(longest.len(), PayloadTemplate::new(&make(fitting)).unwrap().max_len());
        let refused = PayloadTemplate::new(&make(fitting + 1)).unwrap_err();
        assert!(refused.limit == CONTENT_MAX && (1..=2).contains(&(refused.octets - CONTENT_MAX)));
    }
    assert_eq!(rendered(&text("x".repeat(CONTENT_MAX), true), 0).len(), CONTENT_MAX + RAW_FRAME.len() + STAMP_MAX - 9);
    assert_eq!(rendered(&text("x".repeat(PLAINTEXT_MAX), false), 0).len(), PLAINTEXT_MAX);
    let refused = TooLarge { octets: PLAINTEXT_MAX + 1, limit: PLAINTEXT_MAX };
    assert_eq!(PayloadTemplate::new(&text("x".repeat(PLAINTEXT_MAX + 1), false)), Err(refused));
}

#[test]
fn the_admin_page_measures_as_we_do() {
    #[derive(serde::Deserialize)]
    struct Case {
        name: String,
        site: Option<String>,
        content: Value,
        octets: usize,
    }
    // The page's own test reads the same file.
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../../../static/admin/test/sizes.json")).unwrap();
    for Case { name, site, content, octets } in cases {
        let mut notification: Notification = serde_json::from_value(content).unwrap();
        notification.complete(site.as_deref());
        assert_eq!(PayloadTemplate::declarative(&notification).1, octets, "{name}");
    }
}

#[test]
fn characters_count_as_they_are_sent() {
    let refused = PayloadTemplate::new(&text("\n".repeat(2000), true)).unwrap_err();
    assert_eq!(refused, TooLarge { octets: 4000, limit: CONTENT_MAX });
}

#[test]
fn debug_shows_no_content() {
    let template = PayloadTemplate::new(&text("secret", true)).unwrap();
    assert!(!format!("{template:?} {STAMP:?}").contains("secret") && !format!("{STAMP:?}").contains("rr"));
}
