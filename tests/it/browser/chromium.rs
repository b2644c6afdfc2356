//! Chromium without a screen, by its DevTools protocol: WebDriver BiDi would need a driver in between, which cannot hand
//! a push to a worker anyway.

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::{as_json, keep_picture, launch};
use crate::support::socket::Calls;

/// One running Chromium with one page. Dropping it kills it.
pub struct Chromium {
    calls: Calls,
    /// The conversation with the page.
    session: String,
    _process: Child,
}

impl Chromium {
    pub async fn start(home: &Path) -> Self {
        let mut command = Command::new("chromium");
        command.args(["--headless=new", "--remote-debugging-port=0", "--no-first-run", "--disable-gpu"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args(["--disable-dev-shm-usage", "--password-store=basic"]);
        command.args(["--host-resolver-rules=MAP *.test 127.0.0.1", "--ignore-certificate-errors"]);
        // Its sandbox refuses root, which containers run as; the pages are our own.
        command.arg("--no-sandbox").arg(format!("--user-data-dir={}", home.display())).arg("about:blank");
        let (_process, url) = launch(command, home, "DevTools listening on").await;
        let mut calls = Calls::connect(&url, "").await;
        let target = calls.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = calls.call("Target.attachToTarget", attach).await;
        let session = attached["sessionId"].as_str().expect("a session").to_owned();
        Self { calls, session, _process }
    }

    /// From now on the page is one of a private window, for whose pages notifications are permitted there.
    pub async fn go_private(&mut self, origin: &str) {
        let context = self.manage("Target.createBrowserContext", json!({})).await["browserContextId"].clone();
        let permission = json!({"permission": {"name": "notifications"}, "setting": "granted", "origin": origin,
            "browserContextId": context});
        self.manage("Browser.setPermission", permission).await;
        let target =
            self.manage("Target.createTarget", json!({"url": "about:blank", "browserContextId": context})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self.manage("Target.attachToTarget", attach).await;
        self.session = attached["sessionId"].as_str().expect("a session").to_owned();
    }

    /// Lets pages of an origin show notifications.
    pub async fn permit(&mut self, origin: &str) {
        let permission = json!({"permission": {"name": "notifications"}, "setting": "granted", "origin": origin});
        self.manage("Browser.setPermission", permission).await;
    }

    /// From now on what pages complain about is [kept](Self::complaints).
    pub async fn listen(&mut self) {
        self.call("Runtime.enable", json!({})).await;
        self.call("Log.enable", json!({})).await;
    }

    /// Console errors, uncaught exceptions and policy violations. A missing session at the first request is expected.
    pub fn complaints(&self) -> Vec<String> {
        let told = |event: &Value| {
            let params = &event["params"];
            let entry = &params["entry"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" if params["type"] == "error" => Some(params["args"].to_string()),
                "Log.entryAdded" if entry["level"] == "error" => {
                    let asked_who = entry["url"].as_str().is_some_and(|url| url.ends_with("/v1/session"));
                    (!asked_who).then(|| entry.to_string())
                }
                _ => None,
            }
        };
        self.calls.events.iter().filter_map(told).collect()
    }

    /// From now on pages get no answer to requests for these, and to no others.
    pub async fn block(&mut self, urls: &[&str]) {
        self.call("Network.enable", json!({})).await;
        self.call("Network.setBlockedURLs", json!({"urls": urls})).await;
    }

    /// Shows pages as if the system's theme were `light` or `dark`.
    pub async fn emulate_theme(&mut self, theme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": theme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    /// A key, as a keyboard's: `?`, `g`.
    pub async fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": key});
            if kind == "keyDown" {
                event["text"] = json!(key);
            }
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    pub async fn press_escape(&mut self) {
        for kind in ["keyDown", "keyUp"] {
            let key = json!({"type": kind, "key": "Escape", "code": "Escape", "windowsVirtualKeyCode": 27});
            self.call("Input.dispatchKeyEvent", key).await;
        }
    }

    /// A call about the browser as a whole.
    pub async fn manage(&mut self, method: &str, params: Value) -> Value {
        self.calls.call(method, params).await
    }

    /// A call about the page.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let session = json!({"sessionId": self.session});
        self.calls.call_with(method, params, session).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Hands a push to the worker of an origin's only registration, as its push service would.
    pub async fn deliver(&mut self, origin: &str, payload: &str) {
        self.call("ServiceWorker.enable", json!({})).await;
        let registration = |params: &Value| {
            let all = params["registrations"].as_array().into_iter().flatten();
            let mut own = all.filter(|one| one["scopeURL"].as_str().is_some_and(|scope| scope.starts_with(origin)));
            own.next().map(|one| one["registrationId"].clone())
        };
        let event =
            self.event("ServiceWorker.workerRegistrationUpdated", |params| registration(params).is_some()).await;
        let push = json!({"origin": origin, "registrationId": registration(&event), "data": payload});
        self.call("ServiceWorker.deliverPushMessage", push).await;
    }

    /// The first event of that name since the start, once there is one.
    pub async fn event(&mut self, method: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let found = self.calls.events.iter().find(|event| event["method"] == method && wanted(&event["params"]));
            if let Some(event) = found {
                return event["params"].clone();
            }
            self.evaluate("0").await; // events come along with answers
        }
    }

    pub async fn open(&mut self, url: &str) {
        self.follow(url, &format!("location.href === {url:?} && document.readyState === 'complete'")).await;
    }

    /// Goes where a link leads, which need not keep its address, until that holds there.
    pub async fn follow(&mut self, url: &str, there: &str) {
        self.call("Page.navigate", json!({"url": url})).await;
        self.until_there(there).await;
    }

    /// Waits for the next page, until that holds there.
    pub async fn until_there(&mut self, there: &str) {
        // What is asked while the page changes goes down with the old one.
        let arrived = async || {
            let params = json!({"expression": there, "returnByValue": true});
            let session = json!({"sessionId": self.session});
            let answer = self.calls.call_with("Runtime.evaluate", params, session).await;
            answer.is_ok_and(|answer| answer["result"]["value"] == true)
        };
        super::until(arrived, |arrived| *arrived).await;
    }

    #[track_caller]
    pub fn evaluate(&mut self, expression: &str) -> impl Future<Output = Value> {
        let at = std::panic::Location::caller();
        let params = json!({"expression": as_json(expression), "awaitPromise": true, "returnByValue": true});
        async move {
            let answer = self.call("Runtime.evaluate", params).await;
            let json = answer["result"]["value"].as_str();
            serde_json::from_str(json.unwrap_or_else(|| panic!("{at}: {answer}"))).expect("JSON")
        }
    }

    /// A click with the mouse, as a person's: it counts as a gesture.
    pub async fn click(&mut self, id: &str) {
        let place = self.evaluate(&super::ready_for_click(id)).await;
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event).await;
        }
    }

    pub async fn keep_picture(&mut self, name: &str, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size).await;
        let picture = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true})).await;
        keep_picture(name, picture["data"].as_str().expect("base64"));
        self.call("Emulation.clearDeviceMetricsOverride", json!({})).await;
    }
}
