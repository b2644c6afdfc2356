//! What `bellwire demo` promises: an account that adds up, and nothing left behind.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::TempDir;

/// The demo with its data in `dir`, as somebody whose settings point elsewhere would start it.
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
