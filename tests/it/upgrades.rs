//! Servers of the last release and of this one side by side. `scripts/test-upgrade` names the last release's program; without it this
//! version stands in for it.

use std::process::Command;

use serde_json::json;

use crate::support::app::{MASTER_KEY, PATIENCE, Setup};
use crate::support::simulator_rules::{held, hold_after, release, until_report};
use crate::support::{Server, TempDir, TestApp, TestDatabase, seed};

use bellwire_core::clock::Clock;

/// Variable with the path of the last release's program.
const LAST_RELEASE: &str = "BELLWIRE_LAST_RELEASE";

fn last_release() -> String {
    std::env::var(LAST_RELEASE).unwrap_or_else(|_| env!("CARGO_BIN_EXE_bellwire").to_owned())
}

async fn migrate(program: &str, database: &TestDatabase) {
    let dir = TempDir::new();
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .arg("migrate")
        .current_dir(dir.path());
    command.env("BELLWIRE_DATA_DIR", dir.path()).env("BELLWIRE_MASTER_KEY", MASTER_KEY);
    command.env("BELLWIRE_DATABASE_URL", database.url());
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs");
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_releases_share_a_campaign() {
    const N: u32 = 600;
    let database = TestDatabase::empty().await;
    migrate(&last_release(), &database).await;
    migrate(env!("CARGO_BIN_EXE_bellwire"), &database).await;
    let setup = Setup { clock: Some(Clock::system()), database: Some(database), ..Setup::default() };
    let app = TestApp::with(setup).await;
    app.dispatcher.stop(std::time::Duration::ZERO).await;
    seed(&app, "fcm", 0..N).await;
    let rules = hold_after(&app, 150);
    let worker = ["--roles", "worker,maintenance"];
    // It starts although it does not know the newest migrations: that is also the way back.
    let old = Server::of(&app, &worker, &last_release()).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| report.accepted >= 150 && held(report) >= 20).await;
    let new = Server::with(&app, &worker).await;
    old.terminate(); // it waits for what it has in flight, and gives the rest back
    release(&app, rules);
    assert!(old.end(PATIENCE).await.success());
    let all = u64::from(N);
    let report = until_report(&app, |report| report.deliveries >= all).await;
    assert_eq!(report.deliveries, all);
    assert_eq!(report.repeats, 0);
    assert_eq!(report.without_id, 0);
    new.terminate();
    assert!(new.end(PATIENCE).await.success());
    assert_eq!(app.counts(&message).await["accepted"], i64::from(N));
    app.finish().await;
}
