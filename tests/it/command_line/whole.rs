//! The first use as in the README: simulator, server and commands as separate processes.

use std::process::Command;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use super::process::{Process, start};
use super::{bellwire, json as output_json, line, run};
use crate::support::{TempDir, TestDatabase};

/// Timeout on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn call(method: Method, address: &str, path: &str, key: &str, body: Value) -> Value {
    let (status, json) = ask(method, address, path, key, body).await;
    assert!((200..300).contains(&status), "{path}: {status} {json}");
    json
}

async fn ask(method: Method, address: &str, path: &str, key: &str, body: Value) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(format!("http://{address}{path}"))
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .expect("a request");
    let response = Client::builder(TokioExecutor::new()).build_http().request(request).await.expect("an answer");
    let status = response.status().as_u16();
    let octets = axum::body::to_bytes(Body::new(response.into_body()), 1 << 20).await.expect("a body");
    (status, serde_json::from_slice(&octets).unwrap_or(Value::Null))
}

/// Everything that runs.
struct Whole {
    database: TestDatabase,
    dir: TempDir,
    simulator: String,
    server: String,
    _processes: [Process; 2],
}

impl Whole {
    async fn start() -> Self {
        let (database, dir) = (TestDatabase::create().await, TempDir::new());
        let host = ["--gateway", "mozilla=push.bellwire.test", "--ca-file", "ca.pem"];
        let mut command = bellwire(dir.path());
        command.arg("simulate-gateway").args(host);
        let (gateways, told) = start(&mut command, false, |line| Some(line.clone()));
        let simulator = told["control"].as_str().expect("an address").to_owned();
        let address = told["hosts"][0]["addr"].as_str().expect("an address");
        let mapping = format!("push.bellwire.test=mozilla@{address}");
        let mut command = bellwire(dir.path());
        command.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--allow-loopback"]);
        command.args(["--gateway-ca-file", "ca.pem", "--gateways", &mapping]).env("DATABASE_URL", database.url());
        let (server, address) = start(&mut command, true, |line| Some(line["address"].as_str()?.to_owned()));
        Self { database, dir, simulator, server: address, _processes: [gateways, server] }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = bellwire(self.dir.path());
        command.args(args).env("DATABASE_URL", self.database.url());
        command
    }

    async fn line(&self, args: &[&str]) -> String {
        line(&run(&mut self.command(args)).await)
    }

    async fn message(&self, verb: &str, id: &str) -> Value {
        let output = run(&mut self.command(&["message", verb, "--app", "shop", id, "--json"])).await;
        assert!(output.status.success(), "{output:?}");
        output_json(&output)
    }

    /// Looks at a message until it is as wanted.
    async fn until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = self.message("show", id).await;
            if wanted(&message) {
                return message;
            }
            assert!(Instant::now() < deadline, "{message}");
        }
    }

    /// A simulated browser that subscribes at the server.
    async fn subscribe(&self, key: &str) -> Value {
        let config = call(Method::GET, &self.server, "/v1/apps/shop/config", key, Value::Null).await;
        let ask = json!({"host": "push.bellwire.test", "count": 1, "vapid": config["application_server_key"]});
        let minted = call(Method::POST, &self.simulator, "/mint", "", ask).await;
        let keys = json!({"p256dh": minted[0]["p256dh"], "auth": minted[0]["auth"]});
        let body = json!({"subscription": {"endpoint": minted[0]["endpoint"], "keys": keys}, "topics": ["news"]});
        call(Method::POST, &self.server, "/v1/apps/shop/subscriptions", key, body).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_message_is_sent_from_the_shell() {
    let whole = Whole::start().await;
    let operator = whole.line(&["key", "create", "--operator", "--name", "me"]).await;
    let apps = call(Method::GET, &whole.server, "/v1/apps", &operator, Value::Null).await;
    assert_eq!(apps["data"], json!([]), "the first key opens a running server");
    let from_outside = async |path, key| ask(Method::GET, &whole.server, path, key, Value::Null).await.0;
    assert_eq!(from_outside("/v1/apps", "").await, 401);
    assert_eq!(from_outside("/v1/api-keys", &operator).await, 404, "operators' keys are for the command line");
    let made = run(&mut whole.command(&["init", "shop", "--origin", "http://localhost:3000", "--json"])).await;
    let subscription = whole.subscribe(output_json(&made)["key"]["secret"].as_str().expect("a secret")).await;

    let output = run(&mut whole.command(&["send", "--app", "shop", "--topic", "news", "--title", "Hello"])).await;
    assert!(!String::from_utf8_lossy(&output.stderr).contains("No server"), "{output:?}");
    let sent = whole.until(&line(&output), |message| message["state"] == "done").await;
    assert_eq!((&sent["counts"]["targeted"], &sent["counts"]["accepted"]), (&json!(1), &json!(1)));
    let told = run(&mut whole.command(&["explain", &line(&output), subscription["id"].as_str().expect("an id")])).await;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.starts_with("State: accepted") && told.contains("mozilla answered 201"), "{told}");
    let report = call(Method::GET, &whole.simulator, "/report", "", Value::Null).await;
    assert_eq!((&report["accepted"], &report["faults"]), (&json!(1), &json!({})));

    call(Method::POST, &whole.simulator, "/rules", "", json!({"action": {"unavailable": {"retry_after_s": 3600}}}))
        .await;
    let held = whole.line(&["send", "--app", "shop", "--all", "--title", "Later"]).await;
    whole.until(&held, |message| message["counts"]["retrying"] == 1).await;
    assert_eq!(whole.message("pause", &held).await["state"], "paused");
    assert_eq!(whole.message("resume", &held).await["state"], "sending");
    assert_eq!(whole.message("cancel", &held).await["state"], "cancelled");
    whole.until(&held, |message| message["counts"]["cancelled"] == 1).await;

    // A watch from the beginning gets a gap event, and then all events.
    let mut watch = whole.command(&["watch", "--app", "shop", "--kinds", "message", "--after", "0-1", "--json"]);
    let cancelled = |event: &Value| (event["kind"] == "message.cancelled").then(|| event["data"]["message"].clone());
    let (_watching, message) = start(&mut watch, false, cancelled);
    assert_eq!(message, held);
}
