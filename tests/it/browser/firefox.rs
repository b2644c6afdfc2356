//! Firefox without a screen, by WebDriver BiDi (w3.org/TR/webdriver-bidi) and without a driver in between.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{as_json, keep_picture, launch, until};
use crate::support::app::PATIENCE;
use crate::support::socket::Calls;

/// One running Firefox. Dropping it kills it.
pub struct Firefox {
    calls: Calls,
    tab: String,
    /// The browser's own window, where notifications can be clicked.
    chrome: String,
    process: Child,
}

impl Firefox {
    /// Starts with the profile of that directory, with this push service, and with further preferences.
    pub async fn start(profile: &Path, push_service: SocketAddr, more: &Value) -> Self {
        std::fs::create_dir_all(profile).expect("a directory of the test's");
        let mut prefs = json!({
            "dom.push.serverURL": format!("ws://{push_service}/"),
            "dom.push.testing.allowInsecureServerURL": true,
            "dom.push.retryBaseInterval": 100,
            // Remote control would switch push off.
            "remote.prefs.recommended": false,
            "dom.push.connection.enabled": true,
            "permissions.default.desktop-notification": 1,
            // Notifications in windows of its own: there is no desktop.
            "alerts.useSystemBackend": false,
            "app.update.enabled": false,
            "browser.shell.checkDefaultBrowser": false,
            "browser.startup.homepage_override.mstone": "ignore",
            "datareporting.policy.dataSubmissionEnabled": false,
            "extensions.update.enabled": false,
            "network.captive-portal-service.enabled": false,
            "network.connectivity-service.enabled": false,
            "services.settings.server": "data:,#remote-settings-dummy/v1",
            "network.dns.localDomains": "push.test,shop.test",
            "toolkit.telemetry.enabled": false,
        });
        prefs.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let line = |(name, value): (&String, &Value)| format!("user_pref({name:?}, {value});\n");
        let lines: String = prefs.as_object().expect("an object").iter().map(line).collect();
        std::fs::write(profile.join("user.js"), lines).expect("a directory of the test's");
        let mut command = Command::new("firefox-esr");
        command.args(["--headless", "--no-remote", "--remote-debugging-port", "0", "--remote-allow-system-access"]);
        command.arg("--profile").arg(profile);
        let (process, url) = launch(command, profile, "WebDriver BiDi listening on").await;
        let mut calls = Calls::connect(&url, "/session").await;
        calls.call("session.new", json!({"capabilities": {"alwaysMatch": {"acceptInsecureCerts": true}}})).await;
        calls.call("session.subscribe", json!({"events": ["log.entryAdded"]})).await;
        let tree = calls.call("browsingContext.getTree", json!({})).await;
        let tab = tree["contexts"][0]["context"].as_str().expect("a tab").to_owned();
        let tree = calls.call("browsingContext.getTree", json!({"moz:scope": "chrome"})).await;
        let chrome = tree["contexts"][0]["context"].as_str().expect("a window").to_owned();
        Self { calls, tab, chrome, process }
    }

    pub async fn open(&mut self, url: &str) {
        self.calls.call("browsingContext.navigate", json!({"context": self.tab, "url": url, "wait": "complete"})).await;
    }

    /// Evaluates the expression in the page and awaits promises.
    #[track_caller]
    pub fn evaluate(&mut self, expression: &str) -> impl Future<Output = Value> {
        let (at, context) = (std::panic::Location::caller(), self.tab.clone());
        async move { self.evaluate_in(context, expression).await.unwrap_or_else(|error| panic!("{at}: {error}")) }
    }

    async fn evaluate_in(&mut self, context: String, expression: &str) -> Result<Value, String> {
        let params = json!({"expression": as_json(expression), "target": {"context": context}, "awaitPromise": true});
        let answer = self.calls.call("script.evaluate", params).await;
        match answer["result"]["value"].as_str() {
            Some(json) => Ok(serde_json::from_str(json).expect("JSON")),
            None => Err(format!("{} in {expression}", answer["exceptionDetails"]["text"])),
        }
    }

    /// A click with the mouse, as a person's: it counts as a gesture.
    pub async fn click(&mut self, id: &str) {
        let place = self.evaluate(&super::ready_for_click(id)).await;
        let steps = json!([
            {"type": "pointerMove", "x": place[0], "y": place[1]},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]);
        let mouse = json!({"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": steps});
        self.calls.call("input.performActions", json!({"context": self.tab, "actions": [mouse]})).await;
    }

    /// Presses a part of the notification window with that text: `alertBox`, the whole of it, or `alert-close`.
    pub async fn press_notification(&mut self, body: &str, part: &str) {
        let press = format!(
            "(() => {{ for (const it of Services.wm.getEnumerator('alert:alert')) {{
                if (it.document.getElementById('alertTextLabel')?.textContent !== {body:?}) continue;
                it.document.getElementById({part:?}).click();
                return true;
            }}
            return [...Services.wm.getEnumerator('alert:alert')].map((it) => it.document.documentElement.innerText); }})()"
        );
        let chrome = self.chrome.clone();
        let pressed =
            until(async || self.evaluate_in(chrome.clone(), &press).await, |pressed| *pressed == Ok(json!(true)));
        pressed.await.expect("just pressed");
    }

    /// Makes the page that shows this URL the one that is spoken to, once there is one.
    pub async fn switch_to(&mut self, url: &str) {
        let look = async || self.calls.call("browsingContext.getTree", json!({})).await["contexts"].clone();
        let shows = |tab: &&Value| tab["url"] == url;
        let tabs = until(look, |tabs| tabs.as_array().is_some_and(|tabs| tabs.iter().any(|tab| shows(&tab)))).await;
        let tab = tabs.as_array().and_then(|tabs| tabs.iter().find(shows)).expect("just seen");
        self.tab = tab["context"].as_str().expect("a tab").to_owned();
    }

    /// The URLs of all tabs.
    pub async fn tabs(&mut self) -> Vec<String> {
        let tree = self.calls.call("browsingContext.getTree", json!({})).await;
        let tabs = tree["contexts"].as_array().expect("contexts").iter();
        tabs.map(|tab| tab["url"].as_str().expect("a URL").to_owned()).collect()
    }

    /// Gives the page a size in pixels, or the window's own.
    pub async fn resize(&mut self, size: Option<(u32, u32)>) {
        let viewport = size.map(|(width, height)| json!({"width": width, "height": height}));
        self.calls.call("browsingContext.setViewport", json!({"context": self.tab, "viewport": viewport})).await;
    }

    pub async fn keep_picture(&mut self, name: &str, width: u32, height: u32) {
        self.resize(Some((width, height))).await;
        let whole = json!({"context": self.tab, "origin": "document"});
        let picture = self.calls.call("browsingContext.captureScreenshot", whole).await;
        keep_picture(name, picture["data"].as_str().expect("base64"));
        self.resize(None).await;
    }

    /// Errors that pages have logged, and where from.
    pub fn complaints(&self) -> Vec<String> {
        let told = self.calls.events.iter().filter(|event| event["method"] == "log.entryAdded");
        let told = told.map(|event| &event["params"]).filter(|entry| entry["level"] == "error");
        let from = |entry: &Value| entry["stackTrace"]["callFrames"][0]["url"].as_str().map(str::to_owned);
        told.map(|entry| {
            format!("{} {:?} {}", entry["text"].as_str().unwrap_or_default(), from(entry), entry["source"])
        })
        .collect()
    }

    /// Closes it as a person would, so that it keeps its profile.
    pub async fn quit(mut self) {
        self.calls.call("browser.close", json!({})).await;
        timeout(PATIENCE, self.process.wait()).await.expect("it ends").expect("a process of ours");
    }
}
