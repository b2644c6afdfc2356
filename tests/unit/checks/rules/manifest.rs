//! Unit tests of `src/checks/rules/manifest.rs`, which includes them.

use serde_json::json;

use super::*;

const GOOD: &str = r#"{"name": "Shop", "start_url": "/", "display": "standalone",
    "icons": [{"src": "/i.svg", "sizes": "any"}, {"src": "/i.png", "sizes": "48x48 192x192"}]}"#;

fn of(changes: &Value, has_touch_icon: bool) -> Vec<String> {
    let mut manifest: Map<String, Value> = serde_json::from_str(GOOD).unwrap();
    manifest.extend(changes.as_object().unwrap().clone());
    let page = Url::parse("https://shop.example/en/").unwrap();
    faults(&manifest, &page, &page.join("/app/site.webmanifest").unwrap(), has_touch_icon)
}

#[test]
fn first_linked_manifest_of_a_page_counts() {
    let html = "<!-- <link rel=manifest href=/no> --><script>'<link rel=manifest>'</script><LINK REL='icon Manifest' \
                HREF=' /a&amp;b '><link rel=manifest href=/second><link rel=apple-touch-icon href=/i.svg>";
    let links = PageLinks::of(html);
    assert_eq!(links, PageLinks { manifest: Some("/a&b".to_owned()), has_touch_icon: false });
    assert!(PageLinks::of("<link href=/i.png rel=apple-touch-icon>").has_touch_icon);
    assert_eq!(PageLinks::of("<link rel=manifest href=''><p>\0<"), PageLinks::default());
}

#[test]
fn each_fault_of_a_manifest_is_named() {
    assert_eq!(of(&json!({}), false), [""; 0]);
    for (changes, named) in [
        (json!({"name": " ", "short_name": 4}), "\"name\" or \"short_name\""),
        (json!({"display": "browser"}), "Set \"display\""),
        (json!({"display": null, "display_override": ["standalone"]}), "ignore \"display_override\""),
        (json!({"icons": [{"src": "/i.png", "sizes": "180x180"}]}), "192 pixels"),
        (json!({"icons": [{"src": "/i.png", "sizes": "512x512", "purpose": "maskable"}]}), "192 pixels"),
        (json!({"icons": "none"}), "192 pixels"),
        (json!({"start_url": "https://other.example/"}), "a page of https://shop.example"),
        (json!({"start_url": "/de/"}), "covers /en/"),
        (json!({"scope": "/app/"}), "covers / and /en/"),
    ] {
        let found = of(&changes, false);
        assert!(found.len() == 1 && found[0].contains(named), "{changes}: {found:?}");
    }
    assert_eq!(of(&json!({"icons": []}), true), [""; 0]);
    assert_eq!(of(&json!({"start_url": null, "scope": "/"}), false), [""; 0]);
}
