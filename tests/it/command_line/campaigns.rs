//! A campaign that is watched at the shell.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::shell::Shell;

#[tokio::test]
pub async fn campaign_watch_prints_each_change() {
    let shell = Shell::with_app().await;
    let plan = r#"{"slug": "spring", "message": {"to": {"all": true}, "content": {"title": "Spring"}},
                   "schedule": {"cron": "0 9 * * *", "timezone": "UTC"}}"#;
    let made = shell.fed(&["campaign", "create", "-", "--app", "shop"], plan).await;
    assert!(made.status.success(), "{made:?}");
    let told = shell.json(&["campaign", "dry-run", "spring", "--app", "shop"]).await;
    assert_eq!(
        (told["later_runs"].as_array().map(Vec::len), &told["messages"][0]["audience_estimate"]),
        (Some(5), &0.into())
    );
    let none = shell.json(&["campaign", "runs", "spring", "--app", "shop"]).await;
    assert_eq!(none["data"], Value::Array(Vec::new()), "{none}");
    shell.ok(&["campaign", "start", "spring", "--app", "shop"]).await;
    let mut watch = shell.command(&["campaign", "watch", "spring", "--app", "shop", "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut states = BufReader::new(watch.stdout.take().expect("piped")).lines().map(|line| {
        let campaign: Value = serde_json::from_str(&line.expect("UTF-8")).expect("a line of JSON");
        campaign["state"].as_str().expect("a state").to_owned()
    });
    let (first, states) = tokio::task::spawn_blocking(move || (states.next(), states)).await.unwrap();
    assert_eq!(first.as_deref(), Some("scheduled"));
    shell.ok(&["campaign", "cancel", "spring", "--app", "shop"]).await;
    assert_eq!(tokio::task::spawn_blocking(move || states.last()).await.unwrap().as_deref(), Some("cancelled"));
    assert!(tokio::task::spawn_blocking(move || watch.wait()).await.unwrap().unwrap().success());
    let gone = shell.refused(&["campaign", "runs", "autumn", "--app", "shop"]).await;
    assert!(
        gone.contains("There is no campaign \"autumn\". `bellwire campaign list` shows those that there are."),
        "{gone}"
    );
}
