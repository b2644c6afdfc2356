//! `bellwire demo`: the counts add up, and nothing stays behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use axum::http::{Method, Request};
use bytes::Bytes;
use chrono::{TimeDelta, Utc};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::TempDir;

/// Command of the demo with its data in `dir`, in an environment with settings for another server.
fn demo(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire"));
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path))).env("TMPDIR", dir).current_dir(dir);
    command.env("DATABASE_URL", "postgres://nobody@nowhere.test/x").env("BELLWIRE_LISTEN", "127.0.0.1:1");
    command.args(["demo", "--subscriptions", "300", "--json"]);
    command
}

async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs")
}

fn left_in(dir: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()).collect()
}

#[tokio::test]
async fn the_demo_adds_up_and_leaves_nothing_behind() {
    let dir = TempDir::new();
    let output = output(demo(dir.path())).await;
    assert!(output.status.success(), "{output:?}");
    let account: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(account["adds_up"], true, "{account}");
    let [campaign, singles] = [0, 1].map(|at| account["messages"][at].clone());
    assert_eq!((&campaign["targeted"], &singles["targeted"]), (&300.into(), &200.into()), "{account}");
    let sum: u64 =
        ["accepted", "gone", "expired", "dead", "cancelled"].map(|n| campaign[n].as_u64().unwrap()).iter().sum();
    assert_eq!(sum, 300, "{account}");
    assert_eq!(singles["accepted"], 200);
    assert!(campaign["gone"].as_u64() > Some(0), "{account}");
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(told.contains("the circuit breaker opened") && told.contains("the circuit breaker closed"), "{told}");
    assert!(!told.contains('\x1b') && !told.contains('\r'), "no control characters where there is no terminal: {told}");
    assert_eq!(left_in(dir.path()), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn an_interrupted_demo_stops_everything() {
    let dir = TempDir::new();
    let mut command = demo(dir.path());
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let ended = tokio::task::spawn_blocking(move || {
        let mut told = std::io::BufRead::lines(std::io::BufReader::new(running.stderr.take().expect("piped")));
        told.find(|line| line.as_ref().is_ok_and(|line| line.contains("campaign sent")))
            .expect("it gets there")
            .unwrap();
        kill(Pid::from_raw(running.id().cast_signed()), Signal::SIGINT).expect("it lives");
        let rest: Vec<String> = told.map_while(Result::ok).collect();
        (running.wait().expect("it ends"), rest)
    });
    let (status, rest) = ended.await.expect("no panic");
    assert_eq!(status.code(), Some(1), "{rest:?}");
    assert_eq!(rest.last().map(String::as_str), Some("bellwire: interrupted"), "{rest:?}");
    assert_eq!(left_in(dir.path()), Vec::<std::path::PathBuf>::new());
}

/// The answer to a request of the kept server, which must succeed.
async fn ask(base: &str, method: Method, path: &str, operator: &str, body: Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(format!("{base}{path}"));
    let request =
        request.header("authorization", format!("Bearer {operator}")).header("content-type", "application/json");
    let client = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.request(request.body(Full::new(Bytes::from(body))).unwrap()).await.expect("it is up");
    let status = answer.status();
    let octets = answer.into_body().collect().await.expect("an answer").to_bytes();
    assert!(status.is_success(), "{path}: {status} {}", String::from_utf8_lossy(&octets));
    serde_json::from_slice(&octets).expect("JSON")
}

/// Rest of the first line that begins with a word.
fn told<'a>(lines: &'a [String], word: &str) -> &'a str {
    let found = lines.iter().find_map(|line| line.trim().strip_prefix(word));
    found.unwrap_or_else(|| panic!("{word}: {lines:?}")).trim()
}

/// The shop has ninety days behind it, and plans ahead.
async fn check_history(
    read: &impl AsyncFn(&str) -> Value, n: &impl AsyncFn(&str) -> usize,
    states: &impl AsyncFn(&str) -> BTreeSet<String>,
) {
    let campaigns = states("/v1/apps/shop/campaigns").await;
    assert_eq!(campaigns, BTreeSet::from(["done".to_owned(), "scheduled".to_owned()]));
    let tested = read("/v1/apps/shop/campaigns/winter-preview").await;
    assert_eq!(tested["progress"]["runs"][0]["winner"], "early access", "{tested}");
    let weekly = read("/v1/apps/shop/campaigns/weekly-picks").await;
    assert_eq!(weekly["runs"].as_i64().map(|runs| runs / 12), Some(1), "every week: {weekly}");
    for (path, least) in [
        ("/v1/apps/shop/segments", 3),
        ("/v1/apps/shop/templates", 2),
        ("/v1/apps/shop/imports", 1),
        ("/v1/apps/shop/webhooks", 1),
        ("/v1/apps/shop/topics", 2),
        ("/v1/apps/shop/dead-letters", 3),
        ("/v1/apps/shop/subscriptions?state=gone", 10),
        ("/v1/apps/shop/subscriptions?state=unsubscribed", 10),
    ] {
        let found = n(path).await;
        assert!(found >= least, "{path}: {found}");
    }
    let past = Utc::now() - TimeDelta::days(60);
    let day = past.format("%Y-%m-%d").to_string();
    let days = read(&format!("/v1/apps/shop/metrics?since={day}T00:00:00Z&step=1d&measures=clicked")).await;
    let clicks = days["data"].as_array().into_iter().flatten().filter_map(|day| day["metrics"]["clicked"].as_i64());
    assert!(clicks.sum::<i64>() > 100, "clicks of weeks ago: {days}");
}

#[tokio::test]
async fn kept_demo_fills_pages_and_prints_sign_in() {
    let dir = TempDir::new();
    let mut command = tokio::process::Command::from(demo(dir.path()));
    command.arg("--keep").stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut running = command.spawn().expect("it runs");
    let mut said = BufReader::new(running.stderr.take().expect("piped")).lines();
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.contains("/admin/invite#bwl_")) {
        let line = said.next_line().await.expect("UTF-8");
        lines.push(line.unwrap_or_else(|| panic!("it ended: {lines:?}")));
    }
    let (base, operator) = (told(&lines, "server "), told(&lines, "operator key"));
    let read = async |path: &str| ask(base, Method::GET, path, operator, Value::Null).await;
    let n = async |path: &str| read(path).await["data"].as_array().unwrap().len();
    let states = async |path: &str| -> BTreeSet<String> {
        let all = read(path).await;
        all["data"].as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap().to_owned()).collect()
    };

    let link = told(&lines, base).split_once('#').unwrap().1;
    let body = json!({"link": link, "new_password": "correct horse battery"});
    let session = ask(base, Method::POST, "/v1/session", operator, body).await;
    assert_eq!((&session["email"], &session["may_change_team"]), (&json!("ann@example.com"), &json!(true)));
    assert_eq!(n("/v1/apps").await, 4);
    check_history(&read, &n, &states).await;
    let messages = states("/v1/apps/journal/messages").await;
    for state in ["cancelled", "paused", "sending"] {
        assert!(messages.contains(state), "{state}: {messages:?}");
    }
    assert!(n("/v1/apps/demo/dead-letters/groups?by=reason&state=open").await >= 2);
    let lanes = read("/v1/gateways").await;
    let holds = |lane: &&Value| lane["origins"].as_array().unwrap().iter().any(|way| way["held_reason"] == "operator");
    assert_eq!(lanes["data"].as_array().unwrap().iter().filter(holds).count(), 1, "{lanes}");
    let keys = read("/v1/apps/journal/vapid-keys").await;
    let signs_for: Vec<_> = keys["data"].as_array().unwrap().iter().map(|key| key["subscriptions"].as_i64()).collect();
    assert_eq!(signs_for, [Some(248), Some(152)]);
    for (path, least) in [
        ("/v1/apps/demo/topics", 4),
        ("/v1/apps/demo/api-keys", 4),
        ("/v1/apps/demo/identity-keys", 1),
        ("/v1/apps/demo/subscriptions?tag=vip", 10),
        ("/v1/apps/demo/subscriptions?user_id=customer-0", 2),
        ("/v1/audit-log?action=teammate.invited", 4),
        ("/v1/audit-log?limit=100", 25),
    ] {
        let found = n(path).await;
        assert!(found >= least, "{path}: {found}");
    }
    kill(Pid::from_raw(running.id().expect("it runs").cast_signed()), Signal::SIGINT).expect("it lives");
    assert!(running.wait().await.expect("it ends").success());
}
