//! Prompt, bell and preferences on sites of several kinds: what they look like there, and one person's way through them.

use axum::http::Method;
use serde_json::{Value, json};

use super::admin_page::{AXE, objections};
use super::chromium::Chromium;
use super::firefox::Firefox;
use super::push_clients::start_firefox;
use super::shop::Shop;
use super::site::Scheme;
use super::{in_shadow, until, when};
use crate::support::TempDir;

/// Reset in the manner of Tailwind's preflight.
const TAILWIND: &str = "*,::before,::after{box-sizing:border-box;border:0 solid;margin:0;padding:0}
    html{line-height:1.5;font-family:ui-sans-serif,system-ui,sans-serif}
    h1,h2{font-size:inherit;font-weight:inherit}ol,ul{list-style:none}svg{display:block}
    button,input{font:inherit;color:inherit;background:transparent;border-radius:0}[hidden]{display:none!important}";
/// Reset in the manner of Bootstrap's reboot.
const BOOTSTRAP: &str = "*,::before,::after{box-sizing:border-box}
    body{margin:0;font:400 1rem/1.5 system-ui,sans-serif;color:#212529;background:#fff}
    h1,h2{margin:0 0 .5rem;font-weight:500;line-height:1.2;color:#0d6efd}p{margin:0 0 1rem}ol{padding-left:2rem;margin:0 0 1rem}
    button{border-radius:0;text-transform:none;background:#eee}label{display:inline-block}fieldset{min-width:0}";
/// Strict Content Security Policy: no markup from text, style and script from files only.
const STRICT: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
    script-src 'self' {server}; connect-src 'self' {server}; style-src 'self'; img-src data:; worker-src 'self'; \
    require-trusted-types-for 'script'; trusted-types bellwire\">";

/// Sites: name, attributes of `html`, part of `head`, width in pixels.
const SITES: [(&str, &str, &str, u32); 7] = [
    ("light", "lang=en", "<link rel=stylesheet href=/light.css>", 1000),
    ("dark", "lang=de", "<link rel=stylesheet href=/dark.css>", 1000),
    ("rtl", "lang=ar dir=rtl", "<link rel=stylesheet href=/light.css>", 1000),
    ("narrow", "lang=de", "<link rel=stylesheet href=/light.css>", 320),
    ("strict", "lang=en", STRICT, 1000),
    ("tailwind", "lang=en", "<link rel=stylesheet href=/tailwind.css>", 1000),
    ("bootstrap", "lang=en", "<link rel=stylesheet href=/bootstrap.css>", 1000),
];
const LAYOUTS: [&str; 3] = ["card", "bar", "dialog"];
/// Guides for iPhones, iPads and browsers in apps, in place of the question.
const GUIDES: [&str; 4] = ["install_share", "install_more", "install_update", "in_app"];

/// Shows a guide in the place of the prompt.
fn guided(guide: &str) -> String {
    let title = in_shadow("bellwire-prompt >>> .title");
    format!(
        "(async () => {{
            const host = document.querySelector('bellwire-prompt');
            await host.preview({{}}, {guide:?});
            await Promise.all(host.shadowRoot.getAnimations().map((it) => it.finished));
            return {title}.textContent;
        }})()"
    )
}

/// Code of each page, which keeps what its policy refuses.
const CODE: &str = r#"window.violations = [];
    addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => violations.push(`${violatedDirective} ${blockedURI}`));
    const [{ init }, { ui }] = await Promise.all([import("{server}/sdk/bellwire.js"), import("{server}/sdk/ui.js")]);
    window.bellwire = ui(init({ app: "shop", checkEvery: 0 }));"#;

async fn open_shop() -> Shop {
    let shop = Shop::open(Scheme::Http).await;
    let prompt = json!({"topics": ["news"], "texts": {"en": {"title": "Shall we tell you when it ships?"}}});
    shop.server.call(Method::PUT, "/prompt", prompt).await;
    let news = json!({"title": "News", "description": "What is new in the shop, once a week", "texts": {
        "de": {"title": "Neuigkeiten", "description": "Was es Neues gibt, einmal in der Woche"},
        "ar": {"title": "الأخبار", "description": "مرة في الأسبوع"},
    }});
    shop.server.call(Method::PUT, "/topics/news", json!({"display": news})).await;
    shop.server.call(Method::PUT, "/topics/offers", json!({"display": {"title": "Offers", "position": 1}})).await;
    shop.put("/shop.js", CODE);
    shop.put("/service-worker.js", r#"importScripts("{server}/sdk/service-worker.js");"#);
    shop.put("/light.css", ":root{color-scheme:light;font-family:sans-serif}");
    shop.put("/dark.css", ":root{color-scheme:dark;font-family:sans-serif;background:Canvas;color:CanvasText}");
    shop.put("/tailwind.css", TAILWIND);
    shop.put("/bootstrap.css", BOOTSTRAP);
    for (site, attributes, head, _) in SITES {
        for layout in LAYOUTS {
            let page = format!(
                "<!doctype html><html {attributes}><head><meta charset=utf-8><title>Shop</title>
                 <meta name=viewport content='width=device-width'><link rel=icon href='data:,'>{head}
                 <script type=module src=/shop.js></script></head>
                 <body><header><h1>Shop</h1><bellwire-bell></bellwire-bell></header>
                 <main><bellwire-preferences></bellwire-preferences></main>
                 <bellwire-bell corner=bottom-start></bellwire-bell>
                 <bellwire-prompt layout={layout}></bellwire-prompt></body></html>"
            );
            shop.put(&format!("/{site}/{layout}"), &page);
        }
    }
    shop
}

/// The elements are there, and no animation runs. A document does not list the animations of shadow trees.
fn drawn() -> String {
    let parts = ["bellwire-prompt >>> .accept", "bellwire-bell >>> svg", "bellwire-preferences >>> .on"].map(in_shadow);
    let still = "[...document.querySelectorAll('bellwire-prompt, bellwire-bell, bellwire-preferences')]
        .every((host) => host.shadowRoot.getAnimations().length === 0)";
    when(&format!("{} && {still}", parts.join(" && ")))
}

/// Faults of a page: text cut off, elements beyond its edges, what its policy refused, and the language.
const FAULTS: &str = "(() => {
    const inside = (host) => [...document.querySelectorAll(host)].flatMap((it) => [...it.shadowRoot.querySelectorAll('*')]);
    const all = ['bellwire-prompt', 'bellwire-bell', 'bellwire-preferences'].flatMap(inside).filter((it) => it.checkVisibility());
    const outside = all.filter((it) => { const { left, right } = it.getBoundingClientRect(); return left < -1 || right > innerWidth + 1; });
    const cut = all.filter((it) => it.scrollWidth > it.clientWidth + 1 && it.clientWidth > 0 && getComputedStyle(it).display !== 'inline');
    const small = all.filter((it) => it.localName === 'button' && it.getBoundingClientRect().height < 44);
    const name = (fault) => (it) => `${fault}: ${it.localName}.${it.className.baseVal ?? it.className}`;
    const styles = all.filter((it) => it.hasAttribute('style'));
    return [...outside.map(name('outside')), ...cut.map(name('cut off')), ...small.map(name('small')), ...styles.map(name('style')), ...violations,
        ...(document.documentElement.scrollWidth > innerWidth ? ['the page is too wide'] : [])];
})()";

#[tokio::test]
async fn in_chromium_elements_fit_every_site() {
    let (shop, home) = (open_shop().await, TempDir::new());
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;
    let axe = std::fs::read_to_string(AXE).expect("`npm ci` in static/admin") + "\n;0";
    for (site, _, _, width) in SITES {
        for layout in LAYOUTS {
            let view = format!("{site}-{layout}");
            let size = json!({"width": width, "height": 720, "deviceScaleFactor": 1, "mobile": false});
            chromium.call("Emulation.setDeviceMetricsOverride", size).await;
            chromium.open(&format!("{}/{site}/{layout}", shop.origin)).await;
            chromium.evaluate(&drawn()).await;
            assert_eq!(chromium.evaluate(FAULTS).await, json!([]), "{view}");
            chromium.call("Runtime.evaluate", json!({"expression": axe})).await;
            assert_eq!(chromium.evaluate(&objections()).await, json!([]), "{view}");
            chromium.keep_picture(&format!("opt-in-{view}-chromium"), width, 720).await;
        }
        for guide in GUIDES {
            assert_ne!(chromium.evaluate(&guided(guide)).await, "Shall we tell you when it ships?");
            assert_eq!(chromium.evaluate(FAULTS).await, json!([]), "{site}, {guide}");
            assert_eq!(chromium.evaluate(&objections()).await, json!([]), "{site}, {guide}");
            chromium.keep_picture(&format!("opt-in-{site}-{guide}-chromium"), width, 720).await;
        }
    }
    assert_eq!(chromium.complaints(), Vec::<String>::new());
    keyboard(&mut chromium, &shop).await;
    motion(&mut chromium, &shop).await;
    shop.server.app.finish().await;
}

/// A dialog takes the focus and returns it, and Escape means "not now".
async fn keyboard(chromium: &mut Chromium, shop: &Shop) {
    chromium.open(&format!("{}/light/dialog", shop.origin)).await;
    chromium.evaluate(&drawn()).await;
    let focus = "document.activeElement.localName";
    assert_eq!(chromium.evaluate(focus).await, "bellwire-prompt");
    chromium.press_escape().await;
    chromium.evaluate(&when(&format!("!({})", in_shadow("bellwire-prompt >>> dialog")))).await;
    let stored = chromium.evaluate("JSON.parse(localStorage.getItem('bellwire shop')).until - Date.now()").await;
    let days = stored.as_f64().expect("a number") / 86_400_000.0;
    assert!((6.9..=7.0).contains(&days), "{days}");
    assert_eq!(chromium.evaluate("document.cookie").await, "");
    assert_eq!(chromium.evaluate(focus).await, "body");
}

/// Nothing moves for people who ask for less motion.
async fn motion(chromium: &mut Chromium, shop: &Shop) {
    for (preference, animation) in [("reduce", "none"), ("no-preference", "in")] {
        let features = json!([{"name": "prefers-reduced-motion", "value": preference}]);
        chromium.call("Emulation.setEmulatedMedia", json!({"features": features})).await;
        chromium.evaluate("localStorage.clear()").await;
        chromium.open(&format!("{}/light/card", shop.origin)).await;
        chromium.evaluate(&drawn()).await;
        let name = format!("getComputedStyle({}).animationName", in_shadow("bellwire-prompt >>> section"));
        assert_eq!(chromium.evaluate(&name).await, animation);
    }
}

#[tokio::test]
async fn each_browser_keeps_its_variant() {
    let (shop, home) = (open_shop().await, TempDir::new());
    let variant = |name: &str, layout: &str| {
        let texts = json!({"en": {"title": format!("A {name} question?")}});
        json!({"name": name, "weight": 1, "layout": layout, "texts": texts})
    };
    let prompt = json!({"variants": [variant("short", "bar"), variant("long", "dialog")]});
    shop.server.call(Method::PUT, "/prompt", prompt).await;
    let page = "<!doctype html><html lang=en><title>Shop</title><link rel=icon href='data:,'>
                <script type=module src=/shop.js></script><bellwire-prompt></bellwire-prompt>";
    shop.put("/variants", page);
    let mut chromium = Chromium::start(home.path()).await;
    let url = format!("{}/variants", shop.origin);
    chromium.open(&url).await;
    for (draw, name, element) in [(0.2, "short", "section.bar"), (0.7, "long", "dialog")] {
        chromium.evaluate(&format!("localStorage.setItem('bellwire shop', JSON.stringify({{draw: {draw}}}))")).await;
        for _ in 0..2 {
            chromium.open(&url).await;
            let title = format!("{}?.textContent", in_shadow(&format!("bellwire-prompt >>> {element} .title")));
            chromium.evaluate(&when(&format!("{title} === 'A {name} question?'"))).await;
        }
    }
    // Each is counted once a visit.
    let shown = |funnel: &Value, name: &str| {
        let groups = funnel["groups"].as_array().expect("groups");
        groups.iter().find(|group| group["value"] == name).map(|group| group["shown"].clone())
    };
    let is_counted = |funnel: &Value| ["short", "long"].iter().all(|name| shown(funnel, name) == Some(json!(1)));
    until(async || shop.server.get("/prompt/funnel").await, is_counted).await;
    shop.server.app.finish().await;
}

async fn visit(firefox: &mut Firefox, shop: &Shop, path: &str) {
    firefox.open(&format!("{}{path}", shop.origin)).await;
    firefox.evaluate(&when("window.bellwire?.suggest")).await;
    firefox.evaluate("bellwire.ready").await;
}

#[tokio::test]
async fn in_firefox_elements_fit_and_subscribe() {
    let (shop, profile) = (open_shop().await, TempDir::new());
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
    let axe = std::fs::read_to_string(AXE).expect("`npm ci` in static/admin");
    for (site, _, _, width) in SITES {
        for layout in LAYOUTS {
            let view = format!("{site}-{layout}");
            firefox.resize(Some((width, 720))).await;
            visit(&mut firefox, &shop, &format!("/{site}/{layout}")).await;
            firefox.evaluate(&drawn()).await;
            assert_eq!(firefox.evaluate(FAULTS).await, json!([]), "{view}");
            if site != "strict" {
                firefox.evaluate(&format!("(() => {{ {axe}\n; return 0; }})()")).await;
                assert_eq!(firefox.evaluate(&objections()).await, json!([]), "{view}");
            }
            firefox.keep_picture(&format!("opt-in-{view}-firefox"), width, 720).await;
        }
        for guide in GUIDES {
            assert_ne!(firefox.evaluate(&guided(guide)).await, "Shall we tell you when it ships?");
            assert_eq!(firefox.evaluate(FAULTS).await, json!([]), "{site}, {guide}");
            firefox.keep_picture(&format!("opt-in-{site}-{guide}-firefox"), width, 720).await;
        }
    }
    firefox.resize(None).await;
    let id = subscribes(&mut firefox, &shop).await;
    changes_preferences(&mut firefox, &shop, &id).await;
    refuses(&mut firefox, &shop).await;
    assert_eq!(firefox.complaints(), Vec::<String>::new());
    firefox.quit().await;
    shop.server.app.finish().await;
}

/// A yes subscribes to the topics of the prompt, with the question as the place of consent. Returns the subscription's id.
async fn subscribes(firefox: &mut Firefox, shop: &Shop) -> String {
    visit(firefox, shop, "/strict/card").await;
    firefox.click("bellwire-prompt >>> .accept").await;
    let status = until(async || firefox.evaluate("bellwire.status()").await, |now| now["state"] == "subscribed").await;
    let id = status["id"].as_str().expect("an id").to_owned();
    let subscription = shop.server.get(&format!("/subscriptions/{id}")).await;
    assert_eq!(subscription["topics"], json!(["news"]));
    assert_eq!(subscription["consent"]["source"], "Shall we tell you when it ships?", "{subscription}");
    // The prompt was seen on many pages of one visit.
    let counts = |funnel: &Value| ["shown", "accepted", "granted"].map(|step| funnel["groups"][0][step].clone());
    let funnel = async || shop.server.get("/prompt/funnel?by=browser").await;
    let funnel = until(funnel, |now| counts(now) == [1, 1, 1].map(Value::from)).await;
    assert_eq!(funnel["groups"][0]["value"], "firefox", "{funnel}");
    visit(firefox, shop, "/light/card").await;
    firefox.evaluate(&when(&format!("{} === 'Notifications, turned on'", bell_label()))).await;
    assert_eq!(firefox.evaluate(&format!("!{}", in_shadow("bellwire-prompt >>> section"))).await, true);
    id
}

fn bell_label() -> String {
    format!("{}?.getAttribute('aria-label')", in_shadow("bellwire-bell >>> .bell"))
}

/// The bell counts what is displayed, and its dialog changes topics and ends the subscription.
async fn changes_preferences(firefox: &mut Firefox, shop: &Shop, id: &str) {
    let content = json!({"title": "Hello", "body": "It ships", "require_interaction": true});
    let message = shop.server.send(content).await;
    shop.server.until_counts(&message, json!({"displayed": 1})).await;
    firefox.evaluate(&when(&format!("{} === 'Notifications, turned on, unread: 1'", bell_label()))).await;
    firefox.keep_picture("opt-in-unread-firefox", 1000, 720).await;
    firefox.click("bellwire-bell >>> .bell").await;
    firefox.click("bellwire-bell >>> bellwire-preferences >>> [value=offers]").await;
    let path = format!("/subscriptions/{id}");
    until(async || shop.server.get(&path).await, |now| now["topics"] == json!(["news", "offers"])).await;
    // The server's clock is another one than the browser's, so that a pause would be over there.
    firefox.click("bellwire-bell >>> bellwire-preferences >>> .important").await;
    until(async || shop.server.get(&path).await, |now| now["muted"] == json!({"until": null})).await;
    firefox.keep_picture("opt-in-bell-firefox", 1000, 720).await;
    firefox.click("bellwire-bell >>> bellwire-preferences >>> .important").await;
    until(async || shop.server.get(&path).await, |now| now["muted"].is_null()).await;
    assert_eq!(firefox.evaluate(&bell_label()).await, "Notifications, turned on");
    firefox.click("bellwire-bell >>> bellwire-preferences >>> .off").await;
    shop.server.until_state(id, "unsubscribed").await;
    firefox.click("bellwire-bell >>> .close").await;
    firefox.evaluate(&when(&format!("{} === 'Notifications, turned off'", bell_label()))).await;
}

/// A no holds on the next visit, too.
async fn refuses(firefox: &mut Firefox, shop: &Shop) {
    let shown = in_shadow("bellwire-prompt >>> section");
    visit(firefox, shop, "/light/card").await;
    firefox.click("bellwire-prompt >>> .no").await;
    firefox.evaluate(&when(&format!("!{shown}"))).await;
    visit(firefox, shop, "/light/card").await;
    firefox.evaluate(&when(&in_shadow("bellwire-preferences >>> .on"))).await;
    assert_eq!(firefox.evaluate(&format!("!{shown}")).await, true);
}
