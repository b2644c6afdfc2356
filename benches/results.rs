//! Conversions and the results of a campaign. `scripts/bench results`
//!
//! A campaign with a control group goes to `PEOPLE` browsers (50,000), which all click. Then each orders twice, in batches of 1,000: CPU
//! per conversion. Last the result of the campaign, with more people in its groups, `MEASURED` in total (1,000,000). Ends with an error
//! if a conversion is missing.

use std::time::{Duration, Instant};

use bellwire_core::id::{AppId, MessageId, SubscriptionId};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::cpu::per;
use crate::support::harness::Harness;
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{seed, setting};

const BATCH: usize = 1_000;
const LOOKS: usize = 5;

pub async fn run() {
    let (people, measured) = (setting("PEOPLE", 50_000), setting("MEASURED", 1_000_000));
    let harness = Harness::open().await;
    let app = harness.app("results").await;
    let browsers = seed::subscriptions(&harness.pool, &harness.vault, app, people).await.all;
    send(&harness, app, people).await;
    click(&harness, app).await;
    report(&harness, app, &browsers).await;
    read(&harness, app, measured.saturating_sub(people), 2 * people).await;
}

/// Sends a campaign to its end, and waits until its groups are complete.
async fn send(harness: &Harness, app: AppId, people: u32) {
    harness.api.put(&format!("/v1/apps/{app}/measurement"), &json!({"window": "7d"})).await;
    let message = json!({"to": {"all": true}, "content": {"title": "Spring"}});
    let plan = json!({"slug": "spring", "message": message, "holdout": 0.1});
    harness.api.post(&format!("/v1/apps/{app}/campaigns"), &plan).await;
    harness.api.post(&format!("/v1/apps/{app}/campaigns/spring/start"), &json!({})).await;
    let sql = "SELECT coalesce(sum(people), 0)::bigint FROM measured_groups";
    let is_sent = "SELECT count(*) FROM messages WHERE campaign IS NOT NULL";
    loop {
        let n: i64 = sqlx::query_scalar(sql).fetch_one(&harness.pool).await.expect("a number");
        let sent: i64 = sqlx::query_scalar(is_sent).fetch_one(&harness.pool).await.expect("a number");
        if n == i64::from(people) && sent > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let sql = "SELECT id FROM messages WHERE campaign IS NOT NULL";
    let message: Uuid = sqlx::query_scalar(sql).fetch_one(&harness.pool).await.expect("a message");
    harness.wait_for(MessageId(message)).await;
}

/// Has every browser click, also those of the control group: what counts is that there is a receipt to find.
async fn click(harness: &Harness, app: AppId) {
    let sql = "INSERT INTO receipts (message, subscription, kind, shard, at)
               SELECT m.id, s.id, 2, s.shard, now() FROM messages m JOIN subscriptions s ON s.app = m.app
               WHERE m.app = $1 AND m.campaign IS NOT NULL";
    sqlx::query(sql).bind(app.0).execute(&harness.pool).await.expect("receipts");
    for statement in ["VACUUM ANALYZE receipts", "VACUUM ANALYZE measured_people", "CHECKPOINT"] {
        sqlx::query(statement).execute(&harness.pool).await.expect("maintenance");
    }
}

async fn report(harness: &Harness, app: AppId, browsers: &[SubscriptionId]) {
    let (before, began) = (harness.usage(), Instant::now());
    for round in 0..2 {
        for chunk in browsers.chunks(BATCH) {
            let order = |id: &SubscriptionId| json!({"id": format!("o-{round}-{}", id.0.simple()), "name": "order", "subscription": id, "value": 49.9, "currency": "EUR"});
            let orders: Vec<Value> = chunk.iter().map(order).collect();
            let done = harness.api.post(&format!("/v1/apps/{app}/conversions"), &json!({"conversions": orders})).await;
            assert_eq!(done["recorded"], chunk.len(), "{done}");
        }
    }
    let n = 2 * u32::try_from(browsers.len()).expect("fewer than four billion");
    let (took, usage) = (began.elapsed(), harness.usage() - before);
    let (server, postgres) = (per(usage.server, n), per(usage.postgres, n));
    heading(&format!("{} conversions in batches of {BATCH}", number(n.into())));
    figure("Conversions per second, one request at a time", f64::from(n) / took.as_secs_f64(), "/s", Bar::None);
    figure("Server, CPU per conversion", server, "µs", Bar::None);
    figure("Postgres, CPU per conversion", postgres, "µs", Bar::None);
    figure("Together", server + postgres, "µs", Bar::AtMost(60.0));
}

/// Reads the result with this many more people in the groups.
async fn read(harness: &Harness, app: AppId, more: u32, conversions: u32) {
    let sql = "WITH people AS (
                 INSERT INTO measured_people (measurement, person, part, at)
                 SELECT m.id, gen_random_uuid(), CASE WHEN n % 10 = 0 THEN -1 ELSE 0 END, m.began_at
                 FROM measurements m, generate_series(1, $2::bigint) AS n WHERE m.app = $1 RETURNING measurement, part)
               UPDATE measured_groups g SET people = g.people + (SELECT count(*) FROM people p WHERE p.part = g.part)
               FROM measurements m WHERE m.app = $1 AND g.measurement = m.id";
    sqlx::query(sql).bind(app.0).bind(i64::from(more)).execute(&harness.pool).await.expect("people");
    for statement in ["VACUUM ANALYZE measured_people", "VACUUM ANALYZE conversions", "CHECKPOINT"] {
        sqlx::query(statement).execute(&harness.pool).await.expect("maintenance");
    }
    let mut took = Vec::new();
    for _ in 0..LOOKS {
        let began = Instant::now();
        let results = harness.api.get(&format!("/v1/apps/{app}/campaigns/spring/results")).await;
        took.push(began.elapsed().as_secs_f64() * 1e3);
        let attributed = &results["data"][0]["conversions"][0]["attributed"];
        assert_eq!(attributed["conversions"], conversions, "{results}");
    }
    took.sort_by(f64::total_cmp);
    heading("The result of a campaign");
    figure("Median of the time to read it", took[LOOKS / 2], "ms", Bar::AtMost(300.0));
}
