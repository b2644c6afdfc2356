//! Unit tests of `crates/bellwire-core/src/opt_in.rs`, which includes them.

use super::*;

#[test]
fn browsers_are_recognised_by_their_own_name() {
    const CHROMIUM: &str =
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36";
    let iphone = |name: &str| {
        format!("Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 {name} Safari/604.1")
    };
    for (agent, family) in [
        (CHROMIUM.to_owned(), BrowserFamily::Chrome),
        (format!("{CHROMIUM} Edg/140.0.0.0"), BrowserFamily::Edge),
        (format!("{CHROMIUM} OPR/120.0.0.0"), BrowserFamily::Opera),
        (CHROMIUM.replace("Chrome", "SamsungBrowser/28.0 Chrome"), BrowserFamily::Samsung),
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0".to_owned(), BrowserFamily::Firefox),
        (iphone("Version/18.5 Mobile/15E148"), BrowserFamily::Safari),
        (iphone("CriOS/140.0 Mobile/15E148"), BrowserFamily::Chrome),
        (iphone("FxiOS/140.0 Mobile/15E148"), BrowserFamily::Firefox),
        ("curl/8.9".to_owned(), BrowserFamily::Other),
    ] {
        assert_eq!(BrowserFamily::of(&agent), family, "{agent}");
    }
}
