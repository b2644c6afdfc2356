//! Policies tried in a simulation: what it shows, and how it is bounded.

use bellwire::testkit::api::ApiConfig;
use serde_json::{Value, json};

use crate::support::api::TestApi;

#[tokio::test]
async fn policy_is_simulated_beside_the_current_one() {
    let api = TestApi::start().await;
    let simulate = async |query: &str, body: Value| api.post(&format!("/policies/simulate?{query}"), body).await;
    let body =
        json!({"tier": "transactional", "level": "tier", "policy": {"maxAttempts": 0, "circuitFailureThreshold": 1}});
    let shown = simulate("scenario=outage&deliveries=1000", body.clone()).await.ok(200);
    assert_eq!(
        (&shown["scenario"], &shown["tier"], &shown["ttl_s"]),
        (&json!("outage"), &json!("transactional"), &json!(600))
    );
    assert_eq!(shown["outages"], json!([{"from_s": 30.0, "until_s": 90.0}]));
    let lost = |report: &Value| report["dead"]["retries_exhausted"].as_i64().unwrap_or(0);
    assert!(lost(&shown["report"]) > lost(&shown["today"]), "{shown}");
    for report in [&shown["report"], &shown["today"]] {
        let n = |name: &str| report[name].as_i64().unwrap();
        let ended = n("accepted_at_once") + n("accepted_after_retry") + n("gone") + n("expired") + lost(report);
        assert_eq!((n("deliveries"), ended), (1_000, 1_000));
        let load = &report["load"];
        let length = |name: &str| load[name].as_array().unwrap().len();
        assert!(length("posts_per_s") <= 300 && length("posts_per_s") == length("accepted_per_s"), "{load}");
    }
    assert_eq!(
        simulate("scenario=outage&deliveries=1000", body.clone()).await.ok(200),
        shown,
        "a seed decides everything"
    );
    let other = simulate("scenario=outage&deliveries=1000&seed=2", body).await.ok(200);
    assert_ne!(other["report"], shown["report"]);
    let today = simulate("scenario=flaky&deliveries=500", json!({"tier": 1})).await.ok(200);
    assert_eq!((&today["today"], &today["outages"]), (&Value::Null, &json!([])));
    assert_eq!(today["report"]["deliveries"], 500);
    assert_eq!(api.get("/policies/tiers/transactional").await.ok(200)["policy"], Value::Null, "nothing is set");
}

#[tokio::test]
async fn simulation_is_bounded_and_reports_errors() {
    let api = TestApi::start().await;
    let simulate = async |query: &str, body: Value| api.post(&format!("/policies/simulate?{query}"), body).await;
    for (query, body, refusal) in [
        ("", json!({}), (400, "invalid_parameter", vec!["."])),
        ("scenario=mine", json!({}), (400, "invalid_parameter", vec!["scenario"])),
        ("scenario=calm&deliveries=99", json!({}), (400, "invalid_parameter", vec!["deliveries"])),
        ("scenario=calm&deliveries=20001", json!({}), (400, "invalid_parameter", vec!["deliveries"])),
        ("scenario=calm&seed=-1", json!({}), (400, "invalid_parameter", vec!["seed"])),
        (
            "scenario=calm",
            json!({"policy": {"retries": 3, "retryDelay": "pow(2, retried"}}),
            (422, "invalid", vec!["/policy/retryDelay"]),
        ),
    ] {
        assert_eq!(simulate(query, body).await.refusal(), refusal, "{query}");
    }
}

#[tokio::test]
async fn excess_simulations_are_asked_to_retry() {
    let api = TestApi::with(
        ApiConfig { simulations_at_once: 0, place_patience: std::time::Duration::ZERO, ..ApiConfig::default() },
        None,
    )
    .await;
    let refused = api.post("/policies/simulate?scenario=calm", json!({})).await;
    assert_eq!((refused.status, &refused.json["code"]), (503, &json!("simulations_busy")));
    assert_eq!(refused.header("retry-after"), "5");
}

#[tokio::test]
async fn endless_simulation_is_aborted() {
    let api = TestApi::with(ApiConfig { simulation_steps_max: 1_000, ..ApiConfig::default() }, None).await;
    let refused = api.post("/policies/simulate?scenario=calm", json!({})).await;
    assert_eq!((refused.status, &refused.json["code"]), (422, &json!("simulation_too_long")));
    assert!(refused.json["detail"].as_str().unwrap().contains("more than 1000 steps"), "{}", refused.json);
    api.post("/policies/simulate?scenario=calm&deliveries=100", json!({})).await.ok(200);
}
