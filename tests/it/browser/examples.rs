//! The examples work as described: visitors subscribe at a shop, receive codes, and the backend receives events. Each example is started as
//! its README states, except for ports and addresses.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use axum::http::Method;
use bellwire::testkit::hooks::{Sender, pack};
use bellwire_core::lane::Gateway;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::firefox::Firefox;
use super::firefox_story::start_with;
use super::site::Site;
use super::{DISPLAYED, until, when};
use crate::support::TempDir;
use crate::support::app::PATIENCE;
use crate::support::push_service::PushService;

/// Host of the shop backend's webhook receiver.
const HOOKS: &str = "hooks.shop.test";
/// Addresses of the server in the examples, and in the recipes.
const SERVERS: [&str; 2] = ["http://localhost:8787", "https://push.example.com"];

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Copies an example for that server, with its packages and the SDK's, but without what was built in it.
pub(super) async fn copy(example: &str, site: &Site) -> TempDir {
    let to = TempDir::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        std::fs::create_dir_all(to.path().join(&directory)).expect("a directory of ours");
        for entry in std::fs::read_dir(root().join("examples").join(example).join(&directory)).expect("an example") {
            let entry = entry.expect("an entry");
            let path = directory.join(entry.file_name());
            match entry.file_name().to_str().expect("UTF-8") {
                "node_modules" | "dist" | "__pycache__" | ".angular" | ".next" | ".nuxt" | ".output" => {}
                _ if entry.path().is_dir() => directories.push(path),
                _ => {
                    let text = std::fs::read_to_string(entry.path()).expect("a text");
                    let text = SERVERS.iter().fold(text, |text, server| text.replace(server, &site.origin));
                    std::fs::write(to.path().join(path), text).expect("a file of ours");
                }
            }
        }
    }
    if to.path().join("package-lock.json").exists() {
        install(example, &to, site).await;
    }
    to
}

/// Installs what the lock file names, from the example itself, and our packages from the server. Bundlers refuse links that lead elsewhere.
async fn install(example: &str, to: &TempDir, site: &Site) {
    let installed = root().join("examples").join(example).join("node_modules");
    let from = installed.to_str().expect("UTF-8");
    // By hard links, or by copies where the directories are on different disks.
    sh("cp -al \"$1\" . 2>/dev/null || cp -a \"$1\" . && rm -rf node_modules/@bellwire", from, to).await;
    for (path, name) in [("/sdk/bellwire-web.tgz", "web"), ("/clients/bellwire-server.tgz", "server")] {
        download(path, "package.tgz", to, site).await;
        let package = format!("node_modules/@bellwire/{name}");
        sh("mkdir -p \"$1\" && tar -xzf package.tgz -C \"$1\" --strip-components=1", &package, to).await;
    }
}

/// Saves a file of the server.
async fn download(path: &str, name: &str, to: &TempDir, site: &Site) {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let uri = format!("{}{path}", site.origin).parse().expect("a URL");
    let file = client.get(uri).await.expect("it answers").into_body().collect().await.expect("a body");
    std::fs::write(to.path().join(name), file.to_bytes()).expect("a file of ours");
}

async fn sh(script: &str, argument: &str, at: &TempDir) {
    run("/bin/sh", &["-c", script, "sh", argument], at).await;
}

/// Runs what is to be run once, with a tool from the repository.
pub(super) async fn run(tool: &str, arguments: &[&str], at: &TempDir) {
    let mut command = Command::new(root().join(tool));
    let output = command.args(arguments).current_dir(at.path()).output().await;
    let output = output.unwrap_or_else(|error| panic!("{tool}: {error}; `make test` installs it"));
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{tool} {arguments:?}:\n{}", String::from_utf8_lossy(&said));
}

/// A backend that runs. Dropping it kills it.
pub(super) struct Backend {
    _process: Child,
    said: mpsc::UnboundedReceiver<String>,
    pub(super) origin: String,
}

impl Backend {
    /// Starts the program and waits for the address after these words.
    pub(super) async fn start(mut command: Command, listening: &str) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("it runs");
        let (tell, said) = mpsc::unbounded_channel();
        read(process.stdout.take().expect("piped"), tell.clone());
        read(process.stderr.take().expect("piped"), tell);
        let mut backend = Self { _process: process, said, origin: String::new() };
        let line = backend.until_said(listening).await;
        let (_, origin) = line.split_once(listening).expect("it contains that");
        backend.origin = origin.trim().to_owned();
        backend
    }

    /// The next line with these words.
    async fn until_said(&mut self, words: &str) -> String {
        let mut before = String::new();
        let found = timeout(PATIENCE, async {
            while let Some(line) = self.said.recv().await {
                if line.contains(words) {
                    return Some(line);
                }
                before += &(line + "\n");
            }
            None
        });
        found.await.ok().flatten().unwrap_or_else(|| panic!("it never said {words:?}, but\n{before}"))
    }

    /// The status of a POST.
    async fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> u16 {
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let mut request = axum::http::Request::post(format!("{}{path}", self.origin));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.to_vec())).expect("a request");
        client.request(request).await.expect("it answers").status().as_u16()
    }
}

fn read(from: impl AsyncRead + Unpin + Send + 'static, tell: mpsc::UnboundedSender<String>) {
    tokio::spawn(async move {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let _ = tell.send(line); // the receiver is gone once the test is over
        }
    });
}

/// Bellwire with what the README of a backend has people create.
struct Shop {
    site: Site,
    hooks: PushService,
    sender: Sender,
    webhook_secret: String,
    identity_secret: String,
}

impl Shop {
    async fn open() -> Self {
        let hooks = PushService::start(&[(HOOKS, Gateway::Other)]).await;
        let site = Site::with_hooks(&hooks).await;
        for topic in ["news", "offers"] {
            site.call(Method::PUT, &format!("/topics/{topic}"), json!({})).await;
        }
        let identity = site.call(Method::POST, "/identity-keys", json!({"name": "backend", "form": "hmac"})).await;
        let wanted = json!({"name": "backend", "url": format!("https://{HOOKS}/webhooks/bellwire"), "events": ["delivery.accepted"]});
        let webhook = site.call(Method::POST, "/webhooks", wanted).await;
        let app = &site.app;
        let sender = crate::webhooks::sender(app);
        let secret = |made: &Value| made["secret"].as_str().expect("a secret").to_owned();
        Self { sender, hooks, webhook_secret: secret(&webhook), identity_secret: secret(&identity), site }
    }

    /// Gives a backend its settings, starts it, and lets its pages in.
    async fn start(&self, mut command: Command, listening: &str, pages: &Path) -> Backend {
        command.env("PUSH_SERVER", &self.site.origin).env("BELLWIRE_KEY", &self.site.app.key).env("PORT", "0");
        command.env("IDENTITY_SECRET", &self.identity_secret).env("WEBHOOK_SECRET", &self.webhook_secret);
        command.env("ACCOUNTS", r#"{"ann": "secret"}"#).env("SITE", pages);
        let backend = Backend::start(command, listening).await;
        let app = self.site.app.operate(Method::PATCH, "/v1/apps/shop", json!({"origins": [backend.origin]})).await;
        app.ok(200);
        backend
    }

    /// Waits for the one active subscription to be like that. Returns its id.
    async fn until_subscription(&self, wanted: Value) -> String {
        self.until_another_than("", wanted).await
    }

    /// The same for one that has taken the place of another.
    async fn until_another_than(&self, former: &str, wanted: Value) -> String {
        let all = async || self.site.get("/subscriptions").await;
        let wanted = wanted.as_object().expect("members");
        let active = |all: &Value| -> Vec<Value> {
            all["data"].as_array().expect("rows").iter().filter(|one| one["state"] == "active").cloned().collect()
        };
        let found = until(all, |all| match active(all).as_slice() {
            [one] => one["id"] != former && wanted.iter().all(|(name, value)| one[name] == *value),
            _ => false,
        });
        active(&found.await)[0]["id"].as_str().expect("an id").to_owned()
    }
}

async fn fill_in(firefox: &mut Firefox, name: &str, text: &str) {
    firefox.evaluate(&when(&format!("document.querySelector('[name={name}]')"))).await;
    firefox.evaluate(&format!("void (document.querySelector('[name={name}]').value = {text:?})")).await;
}

/// Waits until the page shows the server's state and is idle.
async fn settle(firefox: &mut Firefox) {
    firefox
        .evaluate(&when(
            "document.getElementById('offers')?.checked && document.getElementById('offers').checkVisibility()",
        ))
        .await;
}

/// A visitor subscribes, selects topics, logs in and receives a code. The backend receives the events, and no forged ones.
async fn live_through(shop: &Shop, backend: &mut Backend) {
    let (site, profile) = (&shop.site, TempDir::new());
    let mut firefox = start_with(site, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&format!("{}/", backend.origin)).await;
    firefox.click("subscribe").await;
    shop.until_subscription(json!({"topics": ["news"], "user_id": null})).await;
    firefox.evaluate(&when("document.getElementById('unsubscribe')?.checkVisibility()")).await;
    firefox.click("offers").await;
    let former = shop.until_subscription(json!({"topics": ["news", "offers"]})).await;
    settle(&mut firefox).await;

    fill_in(&mut firefox, "user", "ann").await;
    fill_in(&mut firefox, "password", "wrong").await;
    firefox.click("log-in").await;
    firefox.evaluate(&when("document.getElementById('problem').textContent.includes('do not match')")).await;
    fill_in(&mut firefox, "password", "secret").await;
    firefox.click("log-in").await;
    // It is hers at once, and soon afterwards a new one is, whose endpoint is unknown to others.
    shop.until_another_than(&former, json!({"topics": ["news", "offers"], "user_id": "ann"})).await;
    settle(&mut firefox).await;

    firefox.click("code").await;
    until(async || site.get("/messages").await, |all| all["data"][0]["tier"] == "transactional").await;
    let message = site.last_message().await;
    site.until_counts(&message, json!({"accepted": 1, "displayed": 1})).await;
    let displayed = firefox.evaluate(DISPLAYED).await;
    assert!(displayed[0]["title"].as_str().is_some_and(|title| title.starts_with("Your code is ")), "{displayed}");
    assert_eq!(backend.post("/api/code", &[], b"{}").await, 401, "nobody is logged in");

    hear(shop, backend).await;

    firefox.click("log-out").await;
    firefox.evaluate(&when("document.querySelector('[name=user]')?.checkVisibility()")).await;
    let ended = async || site.get("/subscriptions?state=active").await;
    until(ended, |all| all["data"] == json!([])).await;
    assert_eq!(firefox.complaints(), Vec::<String>::new());
    firefox.quit().await;
}

/// Forwards webhook requests to the backend, as a proxy would.
async fn hear(shop: &Shop, backend: &mut Backend) {
    let app = &shop.site.app;
    pack(&app.pool, &app.vault, app.clock.now()).await.expect("the database answers");
    shop.sender.run_until_idle().await.expect("the database answers");
    let told = shop.hooks.pushed().remove(0);
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers = names.map(|name| (name, told.header(name)));
    let altered = String::from_utf8(told.body.clone()).expect("JSON").replace("ann", "bob");
    assert_eq!(backend.post("/webhooks/bellwire", &headers, altered.as_bytes()).await, 400, "another body");
    assert_eq!(backend.post("/webhooks/bellwire", &[], &told.body).await, 400, "no signature");
    assert_eq!(backend.post("/webhooks/bellwire", &headers, &told.body).await, 204);
    assert!(backend.until_said("received ").await.ends_with("received delivery.accepted ann"));

    // A repeat is taken and dropped: the next to be heard of is another.
    assert_eq!(backend.post("/webhooks/bellwire", &headers, &told.body).await, 204);
    let other = br#"[{"type": "delivery.gone", "data": {"user_id": "bob"}}]"#;
    let signature = standardwebhooks::Webhook::new(&shop.webhook_secret).expect("a secret");
    let now = headers[1].1;
    let signature = signature.sign("whd_other", now.parse().expect("seconds"), other).expect("it signs");
    let headers = [("webhook-id", "whd_other"), ("webhook-timestamp", now), ("webhook-signature", &signature)];
    assert_eq!(backend.post("/webhooks/bellwire", &headers, other).await, 204);
    assert!(backend.until_said("received ").await.ends_with("received delivery.gone bob"));
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_site_and_node_backend_make_a_shop() {
    let shop = Shop::open().await;
    let (pages, program) = (copy("plain-site", &shop.site).await, copy("node-backend", &shop.site).await);
    run("tests/clients/node_modules/.bin/tsc", &[], &program).await;
    let mut command = Command::new("node");
    command.arg("dist/server.js").current_dir(program.path());
    let mut backend = shop.start(command, "listening on ", pages.path()).await;
    live_through(&shop, &mut backend).await;
    shop.site.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn react_site_and_python_backend_make_a_shop() {
    let shop = Shop::open().await;
    let (pages, program) = (copy("react-site", &shop.site).await, copy("python-backend", &shop.site).await);
    run("static/admin/node_modules/.bin/tsc", &[], &pages).await;
    run("static/admin/node_modules/.bin/vite", &["build", "--logLevel", "warn"], &pages).await;
    let wheel = format!("bellwire-{}-py3-none-any.whl", env!("CARGO_PKG_VERSION"));
    download(&format!("/clients/{wheel}"), &wheel, &program, &shop.site).await;
    sh("python3 -m zipfile -e \"$1\" .", &wheel, &program).await;
    let mut command = Command::new("python3");
    command.args(["-m", "flask", "--app", "server", "run", "--host", "localhost", "--port", "0"]);
    command.current_dir(program.path()).env("PYTHONPATH", root().join(".deps/python-backend"));
    let mut backend = shop.start(command, "Running on ", &pages.path().join("dist")).await;
    live_through(&shop, &mut backend).await;
    shop.site.app.finish().await;
}
