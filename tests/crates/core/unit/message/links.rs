//! Unit tests of `crates/bellwire-core/src/message/links.rs`, which includes them.

use serde_json::json;

use super::*;

#[test]
fn only_paths_are_resolved_to_the_site() {
    const SITE: &str = "https://shop.example";
    let completed = |url: &str, site| {
        let all = json!({"title": "T", "url": url, "icon": url, "image": url, "badge": url,
            "actions": [{"action": "a", "title": "A", "url": url}, {"action": "b", "title": "B"}]});
        let mut made: Notification = serde_json::from_value(all).unwrap();
        made.complete(site);
        assert_eq!(made.actions[1].url, None, "it leads where the notification leads");
        let links = [made.url, made.icon, made.image, made.badge, made.actions.remove(0).url];
        assert!(links.iter().all(|link| *link == links[0]), "{links:?}");
        links[0].clone().unwrap()
    };
    for (url, expected) in [
        ("/", "https://shop.example/"),
        ("/a?b=c d#e", "https://shop.example/a?b=c d#e"),
        ("https://example.com/x", "https://example.com/x"),
        ("//evil.example/", "//evil.example/"), // refused by the check that follows
        ("x", "x"),
    ] {
        assert_eq!(completed(url, Some(SITE)), expected);
        assert_eq!(completed(url, None), url);
    }
    let mut bare: Notification = serde_json::from_value(json!({"title": "T"})).unwrap();
    bare.complete(Some(SITE));
    assert_eq!(bare.url.as_deref(), Some("https://shop.example/"));
    assert_eq!((bare.icon, bare.image, bare.badge), (None, None, None));
}
