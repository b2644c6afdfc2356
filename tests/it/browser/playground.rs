//! The playground for prompt, bell and preferences at `/docs/playground/`.

use serde_json::{Value, json};

use super::admin_page::{AXE, objections};
use super::chromium::Chromium;
use super::site::{Scheme, Site};
use super::when;
use crate::support::TempDir;

/// Root element of the preview's page.
const ROOT: &str = "document.getElementById('stage').contentDocument.documentElement";

/// Expression for an element within the shadow root of `host`, which is in the preview.
fn in_preview(host: &str, selector: &str) -> String {
    format!("{ROOT}?.querySelector({host:?})?.shadowRoot?.querySelector({selector:?})")
}

/// Chooses or enters a value, like the reader of the page.
async fn choose(chromium: &mut Chromium, name: &str, value: &str) {
    let (name, value) = (json!(name), json!(value));
    let chosen = format!(
        "(() => {{
            const fields = [...document.getElementsByName({name})];
            const radio = fields.find((field) => field.type === 'radio' && field.value === {value});
            if (radio) return radio.click();
            fields[0].value = {value};
            fields[0].dispatchEvent(new Event('input', {{ bubbles: true }}));
        }})()"
    );
    chromium.evaluate(&chosen).await;
}

/// Code that the page shows: `html`, `js`, `css`, `prompt` or `topics`.
async fn code(chromium: &mut Chromium, name: &str) -> String {
    let code = chromium.evaluate(&format!("document.getElementById('code-{name}').textContent")).await;
    code.as_str().expect("a text").to_owned()
}

/// Pictures of the page, which axe checks, too: wide and narrow, light and dark.
async fn look_at(chromium: &mut Chromium, view: &str) {
    if chromium.evaluate("typeof axe").await == "undefined" {
        let axe = std::fs::read_to_string(AXE).expect("`npm ci` in static/admin") + "\n;0";
        chromium.call("Runtime.evaluate", json!({"expression": axe})).await;
    }
    for (theme, width) in [("light", 1280), ("dark", 768), ("light", 320)] {
        chromium.emulate_theme(theme).await;
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        chromium.call("Emulation.setDeviceMetricsOverride", size).await;
        chromium.evaluate(&when("document.documentElement.scrollWidth <= innerWidth")).await;
        assert_eq!(chromium.evaluate(&objections()).await, json!([]), "{view}, {theme}, {width}");
        chromium.keep_picture(&format!("playground-{view}-{width}"), width, 900).await;
    }
}

#[tokio::test]
async fn playground_shows_elements_and_their_code() {
    let (site, home) = (Site::of_shop(Scheme::Http).await, TempDir::new());
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;
    chromium.open(&format!("{}/docs/playground/", site.origin)).await;
    let shared = designs_a_prompt(&mut chromium, &site.origin).await;
    tries_preferences(&mut chromium).await;
    tries_bell(&mut chromium).await;
    opens_link(&mut chromium, &shared).await;
    assert_eq!(chromium.complaints(), Vec::<String>::new());
    site.app.finish().await;
}

/// Returns the link to the design.
async fn designs_a_prompt(chromium: &mut Chromium, origin: &str) -> String {
    chromium.evaluate(&when(&in_preview("bellwire-prompt", ".card .accept"))).await;
    assert_eq!(code(chromium, "html").await, "<bellwire-prompt></bellwire-prompt>");
    assert_eq!(code(chromium, "prompt").await, "{}");
    assert!(code(chromium, "js").await.contains(&format!("import {{ init }} from \"{origin}/sdk/bellwire.js\"")));
    choose(chromium, "layout", "bar").await;
    choose(chromium, "lang", "ar").await;
    choose(chromium, "title", "هل نخبرك؟").await;
    choose(chromium, "scheme", "dark").await;
    choose(chromium, "--bellwire-accent", "#006644").await;
    let title = in_preview("bellwire-prompt", ".bar .title");
    chromium.evaluate(&when(&format!("{title}?.textContent === 'هل نخبرك؟'"))).await;
    let look = format!("[{ROOT}.dir, getComputedStyle({ROOT}).colorScheme]");
    assert_eq!(chromium.evaluate(&look).await, json!(["rtl", "dark"]));
    let accept = in_preview("bellwire-prompt", ".accept");
    let colour = chromium.evaluate(&format!("getComputedStyle({accept}).backgroundColor")).await;
    assert_eq!(colour, "rgb(0, 102, 68)");
    let prompt: Value = serde_json::from_str(&code(chromium, "prompt").await).expect("JSON");
    assert_eq!(prompt, json!({"layout": "bar", "texts": {"ar": {"title": "هل نخبرك؟"}}}));
    assert_eq!(code(chromium, "html").await, "<bellwire-prompt lang=\"ar\"></bellwire-prompt>");
    let css = code(chromium, "css").await;
    assert_eq!(css, ":root {\n  color-scheme: dark;\n  --bellwire-accent: #006644;\n}");
    choose(chromium, "--bellwire-accent", "no colour").await;
    assert_eq!(code(chromium, "css").await, css, "a malformed value changes nothing");
    choose(chromium, "--bellwire-accent", "#006644").await;
    chromium.evaluate(&when("location.hash.includes('scheme=dark')")).await;
    look_at(chromium, "prompt").await;
    chromium.evaluate("location.href").await.as_str().expect("an address").to_owned()
}

/// The buttons change the preview, without a request.
async fn tries_preferences(chromium: &mut Chromium) {
    choose(chromium, "element", "preferences").await;
    choose(chromium, "topics", "drops: Drops: New shoes").await;
    let topic = in_preview("bellwire-preferences", "[value=drops]");
    chromium.evaluate(&when(&topic)).await;
    assert!(code(chromium, "topics").await.starts_with("PATCH /v1/apps/shop/topics/drops\n"));
    look_at(chromium, "preferences").await;
    chromium.evaluate(&format!("{topic}.click()")).await;
    chromium.evaluate(&format!("{}.click()", in_preview("bellwire-preferences", ".on"))).await;
    chromium.evaluate(&when(&in_preview("bellwire-preferences", ".off"))).await;
    chromium.evaluate(&when(&format!("{topic}.checked"))).await;
    let requests = "[window, document.getElementById('stage').contentWindow]
        .flatMap((page) => page.performance.getEntriesByType('resource'))
        .filter(({ initiatorType }) => ['fetch', 'xmlhttprequest', 'beacon'].includes(initiatorType)).length";
    assert_eq!(chromium.evaluate(requests).await, 0);
}

async fn tries_bell(chromium: &mut Chromium) {
    choose(chromium, "element", "bell").await;
    choose(chromium, "unread", "3").await;
    let badge = in_preview("bellwire-bell", ".badge");
    chromium.evaluate(&when(&format!("{badge}?.textContent === '3'"))).await;
    assert_eq!(code(chromium, "html").await, "<bellwire-bell corner=\"bottom-end\" lang=\"ar\"></bellwire-bell>");
    look_at(chromium, "bell").await;
    chromium.evaluate(&format!("{}.click()", in_preview("bellwire-bell", ".bell"))).await;
    chromium.evaluate(&when(&in_preview("bellwire-bell", "dialog[open]"))).await;
    chromium.evaluate(&when(&format!("{badge}?.hidden"))).await;
}

/// A link shows its design. What is malformed or unknown in it is ignored, and then removed.
async fn opens_link(chromium: &mut Chromium, shared: &str) {
    chromium.open("about:blank").await;
    let known = json!(shared);
    chromium.follow(&format!("{shared}&unread=x&nothing=1"), &format!("location.href === {known}")).await;
    let title = in_preview("bellwire-prompt", ".bar .title");
    chromium.evaluate(&when(&format!("{title}?.textContent === 'هل نخبرك؟'"))).await;
    let prompt: Value = serde_json::from_str(&code(chromium, "prompt").await).expect("JSON");
    assert_eq!(prompt["layout"], "bar");
}
