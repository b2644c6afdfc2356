//! `bellwire policy …`: timetables and simulations, without a server or database.

use std::io::Write;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use super::{bellwire, error_text, json, run};
use crate::support::TempDir;

const SNS: &str = r#"{"healthyRetryPolicy": {"minDelayTarget": 5, "maxDelayTarget": 260, "numRetries": 10}}"#;
const SCENARIO: &str = r#"{"about": "ups & downs", "arrival": {"deliveries": 500, "over_s": 10},
    "gateway": {"faults": [{"from_s": 2, "for_s": 20, "answer": {"status": 503}}]}}"#;

/// Runs `policy` with arguments, in a directory of its own.
async fn policy(dir: &TempDir, args: &[&str]) -> Output {
    run(bellwire(dir.path()).arg("policy").args(args)).await
}

/// Runs a successful command and returns its output.
async fn text(dir: &TempDir, args: &[&str]) -> String {
    let output = policy(dir, args).await;
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Runs a command with wrong arguments, asserts that it prints nothing else, and returns its error.
async fn refused(dir: &TempDir, args: &[&str]) -> String {
    let output = policy(dir, args).await;
    assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{args:?}: {output:?}");
    error_text(&output)
}

#[tokio::test]
async fn preview_prints_table_json_and_picture() {
    let dir = TempDir::new();
    let table = text(&dir, &["preview", "--policy", SNS]).await;
    assert!(table.contains("10 retries, 11 POSTs at most, over 1325.00 s"), "{table}");

    let answer = json(&policy(&dir, &["preview", "--policy", SNS, "--json"]).await);
    let preview = &answer["policies"][0];
    assert_eq!(preview["timetable"]["window_s"], 1325.0);
    assert_eq!(preview["timetable"]["rows"].as_array().map(Vec::len), Some(10));
    assert_eq!(preview["policy"]["healthyRetryPolicy"]["backoffFunction"], "linear");

    std::fs::write(dir.path().join("slow & steady.json"), r#"{"retries": 4, "retryDelay": "60000"}"#).expect("a file");
    let drawn = ["preview", "--policy", "a<b>=-", "--policy", "@slow & steady.json", "--svg", "delays.svg"];
    let mut command = bellwire(dir.path());
    command.arg("policy").args(drawn).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    child.stdin.take().expect("piped").write_all(SNS.as_bytes()).expect("it reads");
    let output =
        tokio::task::spawn_blocking(move || child.wait_with_output()).await.expect("no panic").expect("it ends");
    assert!(output.status.success(), "{output:?}");
    let svg = std::fs::read_to_string(dir.path().join("delays.svg")).expect("a picture");
    assert_eq!(svg.matches("<circle").count(), 14);
    assert!(svg.contains("a&lt;b&gt;") && svg.contains("slow &amp; steady"), "{svg}");
}

#[tokio::test]
async fn presets_and_tiers_need_no_policy() {
    let dir = TempDir::new();
    let preset = text(&dir, &["preview", "--preset", "sns-aws-managed", "--ttl", "2419200"]).await;
    assert!(preset.contains("16–100015") && preset.lines().count() < 70, "{preset}");
    let preset = text(&dir, &["preview", "--preset", "sns-aws-managed"]).await;
    assert!(preset.contains("4333 POSTs before jitter"), "{preset}");
    assert!(preset.contains("allows 100015 retries, but the time to live ends after 86400 s"), "{preset}");
    for (tier, last, count) in
        [("transactional", "60.00", "8 retries, 9 POSTs"), ("engagement", "960.00", "5 retries, 6 POSTs")]
    {
        let table = text(&dir, &["preview", "--tier", tier]).await;
        assert!(table.contains(count) && table.contains(last), "{table}");
    }
    let deprecated = policy(&dir, &["preview", "--policy", r#"{"guaranteed": true}"#]).await;
    assert!(
        deprecated.status.success() && error_text(&deprecated).contains("/guaranteed: deprecated"),
        "{deprecated:?}"
    );
}

#[tokio::test]
async fn bad_policy_exits_with_2_and_place() {
    let dir = TempDir::new();
    let long = r#"{"healthyRetryPolicy": {"minDelayTarget": 3600, "maxDelayTarget": 3600, "numRetries": 2}}"#;
    for (given, words) in [
        (r#"{"baseDelayMs": 0}"#, "/baseDelayMs: must be from 1"),
        (r#"{"retries": 3, "retryDelay": "2 ^ 3"}"#, "/retryDelay: at character 3"),
        (long, "/healthyRetryPolicy: the retries take 7200.00 s in total"),
        (r#"{"maxAttempts": 2, "retries": 2}"#, "mixes the forms QStash and guide"),
        (r#"{"retries": 9}"#, "/retries"),
        ("{", "EOF"),
        ("@missing.json", "@missing.json: No such file"),
    ] {
        for verb in ["preview", "simulate"] {
            let error = refused(&dir, &[verb, "--policy", given]).await;
            assert!(error.starts_with("bellwire: --policy ") && error.contains(words), "{verb} {given}: {error}");
        }
    }
    assert!(policy(&dir, &["preview", "--policy", r#"{"retries": 9}"#, "--max-retries", "9"]).await.status.success());
    for (given, words) in [
        ("storm", "nor one of calm, outage"),
        (r#"{"gateway": {"kapacity": 3}}"#, "/gateway/kapacity: unknown field"),
        (r#"{"arrival": {"deliveries": 5000001}}"#, "/arrival/deliveries: must be from 1 to 5000000"),
    ] {
        let error = refused(&dir, &["simulate", "--scenario", given]).await;
        assert!(error.starts_with("bellwire: --scenario") && error.contains(words), "{given}: {error}");
    }
    let error = refused(&dir, &["simulate", "--deliveries", "0"]).await;
    assert!(error.contains("/arrival/deliveries"), "{error}");
    assert!(refused(&dir, &["preview", "--preset", "sns"]).await.contains("sns-aws-managed"));
    let nowhere = policy(&dir, &["preview", "--svg", "no/such/place.svg"]).await;
    assert_eq!(nowhere.status.code(), Some(1), "{nowhere:?}");
}

#[tokio::test]
async fn a_simulation_adds_up_and_repeats_itself() {
    let dir = TempDir::new();
    let args = ["simulate", "--scenario", SCENARIO, "--compare", "--seed", "5", "--svg", "load.svg"];
    let shown = text(&dir, &args).await;
    assert!(shown.contains("with all three") && shown.contains("none of them") && shown.contains("▒"), "{shown}");
    let picture = || std::fs::read_to_string(dir.path().join("load.svg")).expect("a picture");
    let first = picture();
    assert!(first.contains("ups &amp; downs") && first.contains(">POSTs/s<"), "{first}");
    assert_eq!(text(&dir, &args).await, shown);
    assert_eq!(picture(), first);

    let answer = json(&policy(&dir, &[&args[..], &["--json"]].concat()).await);
    let results = answer["results"].as_array().expect("results");
    assert_eq!(results.len(), 6);
    for result in results {
        let report = &result["report"];
        let count = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"));
        let dead: u64 = report["dead"].as_object().expect("reasons").values().filter_map(Value::as_u64).sum();
        let ended = count("accepted_at_once") + count("accepted_after_retry") + count("gone") + count("expired") + dead;
        assert_eq!((ended, count("deliveries")), (500, 500), "{result}");
    }
}

#[tokio::test]
async fn scenario_prints_and_reads_back() {
    let dir = TempDir::new();
    let args = ["simulate", "--scenario", "throttled", "--tier", "engagement", "--ttl", "60", "--deliveries", "300"];
    let printed = text(&dir, &[&args[..], &["--without-breaker", "--show-scenario"]].concat()).await;
    std::fs::write(dir.path().join("mine.json"), &printed).expect("a file");
    let answer = json(&policy(&dir, &["simulate", "--scenario", "@mine.json", "--json"]).await);
    let scenario = &answer["scenario"];
    assert_eq!(scenario, &serde_json::from_str::<Value>(&printed).expect("JSON"));
    assert_eq!(
        (&scenario["tier"], &scenario["ttl_s"], &scenario["breaker"]),
        (&json!("engagement"), &json!(60), &json!(false))
    );
    assert_eq!(answer["results"][0]["name"], "default of engagement");
}
