//! Unit tests of `crates/bellwire-core/src/message/texts.rs`, which includes them.

use serde_json::json;

use super::*;

#[test]
fn each_text_is_found_and_replaced() {
    let mut notification: Notification = serde_json::from_value(json!({
        "title": "t", "body": "b", "url": "/u", "icon": "/i", "image": "/m", "badge": "/g", "tag": "k", "lang": "en",
        "actions": [{"action": "a", "title": "A", "url": "/a"}, {"action": "c", "title": "C"}],
        "data": {"a/b": ["x", {"~": "y"}, 1], "plain": "z"}
    }))
    .unwrap();
    let places = notification.places();
    let told: Vec<_> = places.iter().map(|place| (place.name(), place.get(&notification).unwrap())).collect();
    let texts: Vec<_> = told.iter().map(|(name, text)| (&**name, *text)).collect();
    assert_eq!(
        texts,
        [
            ("title", "t"),
            ("body", "b"),
            ("url", "/u"),
            ("icon", "/i"),
            ("image", "/m"),
            ("badge", "/g"),
            ("tag", "k"),
            ("lang", "en"),
            ("actions/0/action", "a"),
            ("actions/0/title", "A"),
            ("actions/0/url", "/a"),
            ("actions/1/action", "c"),
            ("actions/1/title", "C"),
            ("data/a~1b/0", "x"),
            ("data/a~1b/1/~0", "y"),
            ("data/plain", "z"),
        ]
    );
    for place in &places {
        place.set(&mut notification, "new".into());
        assert_eq!(place.get(&notification), Some("new"), "{}", place.name());
        place.set(&mut notification, " ".into());
        assert_eq!(place.get(&notification).is_none(), place.is_optional(), "{}", place.name());
    }
}
