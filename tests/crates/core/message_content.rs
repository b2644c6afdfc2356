//! Content of messages: its limits, each named by its pointer, and its form in storage.

use bellwire_core::id::AppId;
use bellwire_core::message::{Content, Notification, Payload, Problem, topic_header, unfit_url};
use serde_json::json;

fn notification(value: serde_json::Value) -> Notification {
    serde_json::from_value(value).unwrap()
}

fn pointers(content: Notification) -> Vec<String> {
    let refused = Content::from_request(Some(content), None, None, None).unwrap_err();
    refused.into_iter().map(|problem| problem.pointer).collect()
}

#[test]
fn content_survives_storage() {
    let full = notification(json!({
        "title": "T", "body": "B", "url": "/x", "icon": "https://example.com/i.png", "image": "/i", "badge": "/b",
        "tag": "t", "actions": [{"action": "open", "title": "Open", "icon": "/o", "url": "http://localhost:3000/"}],
        "data": {"a": [1]}, "data_optional": true, "require_interaction": true, "silent": true, "dir": "rtl",
        "renotify": true, "timestamp": 1, "vibrate": [100, 50], "lang": "ar", "app_badge": 3
    }));
    let compact = notification(json!({"title": "T"}));
    for content in [
        Content::from_request(Some(full), Some(compact), None, Some(true)).unwrap(),
        Content::from_request(None, None, Some(Payload::Text("hé\0".into())), None).unwrap(),
        Content::from_request(None, None, Some(Payload::Octets(vec![0, 255, 7])), Some(false)).unwrap(),
    ] {
        let stored = serde_json::to_vec(&content).unwrap();
        assert!(serde_json::from_slice::<Content>(&stored).unwrap() == content);
    }
}

#[test]
fn exactly_one_of_content_and_payload_is_taken() {
    let content = || Some(notification(json!({"title": "T"})));
    let payload = || Some(Payload::Text("x".into()));
    let pointer = |made: Result<Content, Vec<Problem>>| made.unwrap_err().remove(0).pointer;
    assert_eq!(pointer(Content::from_request(None, None, None, None)), "/content");
    assert_eq!(pointer(Content::from_request(content(), None, payload(), None)), "/payload");
    assert_eq!(pointer(Content::from_request(content(), None, None, Some(false))), "/envelope");
    for empty in [Payload::Text(String::new()), Payload::Octets(Vec::new())] {
        assert_eq!(pointer(Content::from_request(None, None, Some(empty.clone()), Some(false))), "/payload");
        assert!(Content::from_request(None, None, Some(empty), None).is_ok(), "the envelope is not empty");
    }
    assert_eq!(pointer(Content::from_request(None, content(), payload(), None)), "/compact");
}

#[test]
fn every_limit_is_answered_with_its_pointer() {
    let long = |n: usize| "é".repeat(n);
    let bad = notification(json!({
        "title": " ", "body": long(2001), "url": "ftp://example.com/", "icon": "//evil.example/i", "image": "x",
        "badge": format!("https://example.com/{}", "a".repeat(2048)), "tag": long(201), "lang": "e n",
        "timestamp": 8_640_000_000_000_001_u64, "vibrate": [10_001], "data": {"bellwire": 1}, "actions": [
            {"action": "a", "title": "", "icon": "//evil.example/i", "url": "javascript:alert(1)"},
            {"action": "a", "title": long(101)}
        ]
    }));
    assert_eq!(
        pointers(bad),
        [
            "/content/title",
            "/content/body",
            "/content/tag",
            "/content/url",
            "/content/icon",
            "/content/image",
            "/content/badge",
            "/content/lang",
            "/content/data/bellwire",
            "/content/timestamp",
            "/content/vibrate",
            "/content/actions/0/title",
            "/content/actions/0/icon",
            "/content/actions/0/url",
            "/content/actions/1/title",
            "/content/actions/1/action"
        ]
    );
    let crowd = json!({"title": long(200), "actions": vec![json!({"action": "", "title": ""}); 5]});
    assert_eq!(pointers(notification(crowd)), ["/content/actions"]);
    let nested = (0..16).fold(json!(1), |inner, _| json!([inner]));
    assert_eq!(pointers(notification(json!({"title": "T", "data": {"a": nested}}))), ["/content/data"]);
    let compact = Some(notification(json!({"title": ""})));
    let refused = Content::from_request(Some(notification(json!({"title": "T"}))), compact, None, None);
    assert_eq!(refused.unwrap_err()[0].pointer, "/compact/title");
}

#[test]
fn links_lead_to_https_localhost_or_the_site() {
    for good in ["https://example.com/x?y#z", "http://localhost:8080/", "http://127.0.0.1/", "/", "/a?b=c d"] {
        assert_eq!(unfit_url(good), None, "{good}");
    }
    for bad in ["", "x", "http://example.com/", "//a.example", "/\\a.example", "/\t/a.example", "data:,x", "https://"] {
        assert!(unfit_url(bad).is_some(), "{bad}");
    }
}

#[test]
fn unknown_members_are_refused() {
    for unknown in [
        json!({"title": "T", "colour": 1}),
        json!({"title": "T", "actions": [{"action": "a", "title": "A", "colour": ""}]}),
    ] {
        assert!(serde_json::from_value::<Notification>(unknown).unwrap_err().to_string().contains("unknown field"));
    }
}

#[test]
fn topic_header_is_unique_per_app_and_key() {
    let [one, other] = [1, 2].map(|n| AppId(uuid::Uuid::from_u128(n)));
    let header = topic_header(one, "news-1");
    assert_eq!(header.len(), 32);
    assert!(header.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
    assert_eq!(header, topic_header(one, "news-1"));
    assert_ne!(header, topic_header(one, "news-2"));
    assert_ne!(header, topic_header(other, "news-1"));
}

#[test]
fn debug_shows_no_content() {
    let content = Content::Raw { payload: Payload::Text("secret".into()), envelope: true };
    assert!(!format!("{content:?}").contains("secret"));
}
