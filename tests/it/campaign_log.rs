//! Log lines of campaigns.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwire_core::clock::Clock;
use bellwire_core::id::MessageId;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::app::{PATIENCE, scalar};
use crate::support::server::any_says;
use crate::support::{Server, Setup, TestApp};

const ENDED: &str = "a campaign has ended";

/// Has maintenance look at these messages at once.
async fn look_at(app: &TestApp, messages: impl IntoIterator<Item = &String>) {
    let ids: Vec<_> = messages.into_iter().map(|id| id.parse::<MessageId>().expect("an id").0).collect();
    let due = "UPDATE messages SET look_at = accepted_at WHERE id = ANY ($1)";
    sqlx::query(due).bind(ids).execute(&app.pool).await.expect("the statement is right");
}

#[tokio::test(flavor = "multi_thread")]
async fn campaign_result_is_logged_by_one_replica() {
    // Replicas go by the real clock: for them everything here was done an hour ago.
    let clock = Clock::stub(Clock::system().now() - Duration::from_secs(3_600));
    let app = TestApp::with(Setup { clock: Some(clock), ..Setup::default() }).await;
    let subscribers = app.subscribe_with("fcm", 0..3, json!({"topics": ["news"]})).await;
    let gone = RuleAction::Answer { status: 410, headers: Default::default(), body: String::new() };
    app.simulator.add_rule(Rule { endpoints: Some([2].into()), ..Rule::always(gone) }).unwrap();
    let first = app.send(json!({"topic": "news"}), json!({})).await;
    app.run_until_idle().await;
    let mut campaigns = BTreeMap::from([(first, json!([3, 2, 1]))]);
    let mut single = Vec::new();
    for _ in 0..10 {
        for to in [json!({"topic": "news"}), json!({"all": true})] {
            campaigns.insert(app.send(to, json!({})).await, json!([2, 2, 0]));
        }
        single.push(app.send(json!({"subscriptions": [subscribers[0].id]}), json!({})).await);
    }
    let last = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    sqlx::query("UPDATE messages SET look_at = 'infinity'").execute(&app.pool).await.unwrap();

    let maintainer = || Server::with(&app, &["--roles", "maintenance"]);
    let mut replicas = [maintainer().await, maintainer().await];
    let swept: Vec<String> = campaigns.keys().chain(&single).cloned().collect();
    look_at(&app, &swept).await;
    while !campaigns.is_empty() {
        let line: Value = serde_json::from_str(&any_says(&mut replicas, ENDED).await).unwrap();
        let came_to = campaigns.remove(line["message_id"].as_str().unwrap());
        assert_eq!(came_to, Some(json!([line["targeted"], line["accepted"], line["gone"]])), "{line}");
        assert_eq!((&line["message"], &line["app"]), (&json!(ENDED), &json!("shop")));
        for none in ["expired", "dead", "cancelled", "capped"] {
            assert_eq!(line[none], 0, "{none} in {line}");
        }
    }

    // A second look, which deletes what was sent, tells of none of them again.
    look_at(&app, &swept).await;
    let kept = "SELECT count(*) FROM messages WHERE content IS NOT NULL";
    let cleared = timeout(PATIENCE, async { while scalar(&app.pool, kept).await > 1 {} });
    cleared.await.expect("the second look comes");
    look_at(&app, [&last]).await;
    let line = any_says(&mut replicas, ENDED).await;
    assert!(line.contains(&last), "{line}");
    for replica in &mut replicas {
        replica.terminate();
        let rest = replica.rest_of_log().await;
        assert!(!rest.contains(ENDED), "{rest}");
    }
    for replica in replicas {
        assert!(replica.end(PATIENCE).await.success());
    }
    app.finish().await;
}
