//! Triggers while servers are killed.

use serde_json::{Value, json};

use super::{counts, report, shown, start};
use crate::support::app::{PATIENCE, scalar};
use crate::support::database::until_stored;
use crate::support::engine::{expire_leases, without_engine};
use crate::support::{Server, TestApp};

const PEOPLE: u32 = 40;
const ROUNDS: i64 = 8;
const IDLE: &str =
    "SELECT ((SELECT count(*) FROM trigger_entries WHERE due_at IS NOT NULL) + (SELECT count(*) FROM cursors)
                          + (SELECT count(*) FROM batches) + (SELECT count(*) FROM queue) = 0)::int::bigint";

async fn messages(app: &TestApp) -> i64 {
    scalar(&app.pool, "SELECT count(*) FROM messages WHERE campaign IS NOT NULL").await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_servers_send_each_message_once() {
    let app = without_engine().await;
    let mut people = Vec::new();
    for n in 0..PEOPLE {
        people.extend(app.subscribe_with("fcm", n..n + 1, json!({"user_id": format!("u{n}")})).await);
    }
    start(&app, "receipt", json!({"on": "event:ordered"}), json!({})).await;
    let mut servers = vec![Server::start(&app).await, Server::start(&app).await];
    for round in 0..ROUNDS {
        let before = app.simulator.report().accepted;
        let orders: Value = (0..PEOPLE)
            .map(|n| json!({"id": format!("o-{round}-{n}"), "name": "ordered", "user_id": format!("u{n}")}))
            .collect();
        report(&app, orders).await.ok(200);
        // From before the first message to after the last push.
        let pushed = u64::try_from(round).unwrap() * u64::from(PEOPLE) / 7;
        crate::support::simulator_rules::until_report(&app, |report| report.accepted >= before + pushed).await;
        servers.remove(0).kill().await;
        expire_leases(&app.pool).await;
        servers.push(Server::start(&app).await);
        until_stored(&app, IDLE).await;
        let sent = i64::from(PEOPLE) * (round + 1);
        assert_eq!(messages(&app).await, sent, "round {round}");
        assert_eq!(counts(&app, "receipt").await, [sent, 0, 0, 0, 0, 0, 0, sent], "round {round}");
        for person in &people {
            assert_eq!(shown(&app, person).len() as i64, round + 1, "round {round}");
        }
    }
    for server in servers {
        server.terminate();
        assert!(server.end(PATIENCE).await.success());
    }
    app.finish().await;
}
