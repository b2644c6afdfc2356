//! Stories in real browsers: the example page, sites on other origins, notifications on display and their events, and the admin page.
//! Browsers take seconds to start, so the stories are few and long.

mod admin_campaigns;
mod admin_daily;
mod admin_edits;
mod admin_frequency;
mod admin_messages;
mod admin_page;
mod admin_people;
mod admin_policies;
mod admin_settings;
mod admin_stories;
mod admin_templates;
mod admin_transfers;
mod admin_webhooks;
mod chromium;
mod chromium_story;
mod example_program;
mod examples;
mod firefox;
mod firefox_story;
mod hosted_preferences;
mod opt_in;
mod pictures;
mod playground;
mod push_clients;
mod recipes;
mod shop;
mod shop_clicks;
mod shop_diagnosis;
mod shop_own_pushes;
mod shop_stories;
mod site;
mod user_actions;
mod withdrawals;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::support::app::PATIENCE;

/// Starts a browser and returns it with the address that it prints after `label`. What it keeps and forgets is in `home`;
/// dropping it kills it.
async fn launch(mut command: Command, home: &std::path::Path, label: &str) -> (Child, String) {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    command.env("HOME", home).env("TMPDIR", home).env("MOZ_CRASHREPORTER_DISABLE", "1").env_remove("DISPLAY");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut process =
        command.spawn().unwrap_or_else(|error| panic!("{name}: {error}; scripts/install-deps --test gets it"));
    let mut lines = BufReader::new(process.stderr.take().expect("piped")).lines();
    let mut said = String::new();
    let found = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some((_, url)) = line.split_once(label) {
                return url.trim().to_owned();
            }
            said += &(line + "\n");
        }
        panic!("{name} ended at its start:\n{said}");
    };
    let url = timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{name} never said where it listens"));
    // Its output continues unread, but the pipe must not fill up.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (process, url)
}

/// Asks again and again until the answer is as wanted: for those who tell nothing by themselves.
#[track_caller]
fn until<T: std::fmt::Debug>(mut ask: impl AsyncFnMut() -> T, wanted: impl Fn(&T) -> bool) -> impl Future<Output = T> {
    let at = std::panic::Location::caller();
    async move {
        let mut turns = interval(Duration::from_millis(25));
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = None;
        let found = timeout(PATIENCE, async {
            loop {
                turns.tick().await;
                let now = ask().await;
                if wanted(&now) {
                    return now;
                }
                last = Some(now);
            }
        });
        let found = found.await;
        found.unwrap_or_else(|_| panic!("waited in vain at {at}; in the end it was {last:?}"))
    }
}

/// Promise that resolves when the condition holds. It is checked at each change of the document and by a timer, because sizes, styles and
/// addresses change without one.
fn when(condition: &str) -> String {
    format!(
        "new Promise((resolve) => {{
            const stop = () => (watch.disconnect(), clearInterval(turns));
            const look = () => ({condition}) && (stop(), resolve(true));
            const watch = new MutationObserver(look);
            const turns = setInterval(look, 50);
            watch.observe(document, {{ subtree: true, childList: true, characterData: true, attributes: true }});
            look();
        }})"
    )
}

/// A promise of where to click on an element: its middle, in whole pixels, once it is there, enabled, at rest and covered by
/// nothing. A page that is still being laid out would have its button elsewhere when the click comes. The element is named by its
/// id, or as `host >>> selector` within shadow roots.
fn ready_for_click(id: &str) -> String {
    let find = element(id);
    format!(
        "new Promise((resolve) => {{
            let last = '';
            const look = () => {{
                const it = {find};
                it?.scrollIntoView({{ block: 'center', behavior: 'instant' }});
                const {{ x, y, width, height }} = it?.getBoundingClientRect() ?? {{}};
                const place = [Math.round(x + width / 2), Math.round(y + height / 2)];
                const rests = last === (last = `${{place}}`);
                const ready = it && rests && !it.disabled && it.contains(it.getRootNode().elementFromPoint(...place));
                if (ready) resolve(place); else setTimeout(look, 20);
            }};
            look();
        }})"
    )
}

/// Expression for an element by its id, or [within shadow roots](in_shadow).
fn element(id: &str) -> String {
    if id.contains(SHADOW) { in_shadow(id) } else { format!("document.getElementById({id:?})") }
}

const SHADOW: &str = " >>> ";

/// Expression for an element within shadow roots, named as `host >>> selector`.
fn in_shadow(path: &str) -> String {
    let (host, rest) = path.split_once(SHADOW).expect("a host and a selector");
    let found = format!("document.querySelector({host:?})");
    rest.split(SHADOW).fold(found, |root, selector| format!("{root}?.shadowRoot?.querySelector({selector:?})"))
}

/// An expression as one that answers with JSON, in time.
fn as_json(expression: &str) -> String {
    let patience_ms = PATIENCE.as_millis();
    format!(
        "Promise.race([
            (async () => JSON.stringify((await ({expression})) ?? null))(),
            new Promise((_, reject) => setTimeout(() => reject(new Error(`waited in vain:\\n${{document.body?.innerText}}`)), {patience_ms})),
        ])"
    )
}

/// The example page's one line about this browser.
fn headline(text: &str) -> String {
    when(&format!("document.getElementById('headline')?.textContent === {text:?}"))
}

/// A line of the example page's log that contains this.
fn logged(text: &str) -> String {
    when(&format!("document.getElementById('log')?.innerText.includes({text:?})"))
}

/// Notifications on display, as the page's worker sees them.
const DISPLAYED: &str = "navigator.serviceWorker.getRegistration().then((r) => r.getNotifications())
    .then((all) => all.map(({ title, body, tag, data, silent }) => ({ title, body, tag, data, silent })))";

/// Keeps a picture (PNG in base64) for people to look at.
fn keep_picture(name: &str, png: &str) {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    std::fs::create_dir_all(&dir).expect("cargo's own directory");
    let png = STANDARD.decode(png).expect("base64");
    assert!(png.starts_with(b"\x89PNG") && png.len() > 5_000, "{name}: {} octets", png.len());
    std::fs::write(dir.join(format!("{name}.png")), png).expect("cargo's own directory");
}
