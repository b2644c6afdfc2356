//! Cost of frequency caps in Postgres: campaigns to the same people with and without caps, in turns, so that other load affects both alike.
//! Every second person is a user. `scripts/bench caps`
//!
//! `N` subscriptions (100,000), `PAIRS` of campaigns (5), medians. The floor is the Postgres cost of incrementing one number per person by
//! key, with a batch per transaction. `STATEMENTS=1` also prints the cost of each statement of the last campaign with caps, and adds some
//! microseconds.

use serde_json::json;
use uuid::Uuid;

use crate::statements;
use crate::support::cpu::per;
use crate::support::harness::{Campaign, Harness, notice};
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{median, seed, setting};

/// Maximum Postgres cost of caps, in CPU-µs per delivery.
const POSTGRES_MAX_US: f64 = 6.0;
/// People that the floor counts for in one transaction: as many as a batch has recipients.
const BATCH: usize = 500;

pub async fn run() {
    let (n, pairs) = (setting("N", 100_000), setting("PAIRS", 5).max(1));
    let is_counting = setting("STATEMENTS", 0) > 0;
    let harness = if is_counting { Harness::counting().await } else { Harness::open().await };
    let app = harness.app("caps").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    let users = "UPDATE subscriptions SET user_id = 'user-' || id::text WHERE get_byte(uuid_send(id), 15) % 2 = 0";
    sqlx::query(users).execute(&harness.pool).await.expect("users");
    sqlx::query("VACUUM ANALYZE subscriptions").execute(&harness.pool).await.expect("a tidy table");
    // Two caps, both of which are checked each time; no user reaches them.
    let caps = json!({"caps": [{"max": 40, "window": "7d"}, {"max": 50, "window": "30d"}]});
    let path = format!("/v1/apps/{app}/caps");
    let (mut free, mut capped) = (Vec::new(), Vec::new());
    for pair in 0..=pairs {
        // The second run has more rows in the tables: the order alternates.
        for with_caps in [pair % 2 == 1, pair % 2 == 0] {
            harness.api.put(&path, &if with_caps { caps.clone() } else { json!({"caps": []}) }).await;
            let is_last = is_counting && pair == pairs && with_caps;
            if is_last {
                statements::forget(&harness.pool).await;
            }
            let campaign = harness.campaign(app, n, &notice()).await;
            if is_last {
                heading("What each statement of a campaign under caps took");
                statements::show(&harness.pool, "a delivery", f64::from(n)).await;
            }
            // The first pair finds everything cold, and makes the rows that the others change.
            match (pair, with_caps) {
                (0, _) => {}
                (_, true) => capped.push(campaign),
                (_, false) => free.push(campaign),
            }
        }
    }
    let used: i64 = sqlx::query_scalar("SELECT count(*) FROM cap_uses WHERE cardinality(uses) = $1")
        .bind(i32::try_from(2 * (pairs + 1)).expect("a few"))
        .fetch_one(&harness.pool)
        .await
        .expect("a count");
    assert_eq!(used, i64::from(n), "everybody has a row with every campaign under caps in it");
    let mut floors = Vec::new();
    for _ in 0..pairs {
        floors.push(floor(&harness).await);
    }
    let postgres = |campaign: &Campaign| per(campaign.usage.postgres, campaign.deliveries);
    let server = |campaign: &Campaign| per(campaign.usage.server, campaign.deliveries);
    let people = number(n.into());
    heading(&format!("Campaigns to {people} with and without frequency caps, by turns; medians of {pairs} each"));
    let us = "µs";
    figure("Postgres, CPU per delivery without", median(&free, postgres), us, Bar::None);
    figure("Postgres, CPU per delivery with", median(&capped, postgres), us, Bar::None);
    let more = median(&capped, postgres) - median(&free, postgres);
    figure("Postgres, CPU per delivery for caps", more, us, Bar::AtMost(POSTGRES_MAX_US));
    figure("Floor: Postgres, CPU to count in a row by its key", median(&floors, |us| *us), us, Bar::None);
    figure("Server, CPU per delivery without", median(&free, server), us, Bar::None);
    figure("Server, CPU per delivery with", median(&capped, server), us, Bar::None);
    figure("Deliveries per second without", median(&free, Campaign::rate), "/s", Bar::None);
    figure("Deliveries per second with", median(&capped, Campaign::rate), "/s", Bar::None);
}

/// Postgres cost of incrementing one number per person, in CPU-µs. Transactions follow the order of a campaign and update rows in the order
/// of their keys.
async fn floor(harness: &Harness) -> f64 {
    sqlx::raw_sql(
        "DROP TABLE IF EXISTS bare_uses;
         CREATE TABLE bare_uses (person uuid PRIMARY KEY, uses bigint NOT NULL) WITH (fillfactor = 50);
         INSERT INTO bare_uses SELECT person, 0 FROM cap_uses ORDER BY ctid",
    )
    .execute(&harness.pool)
    .await
    .expect("a table beside the server's");
    sqlx::query("VACUUM ANALYZE bare_uses").execute(&harness.pool).await.expect("a tidy table");
    let people: Vec<Uuid> = sqlx::query_scalar("SELECT person FROM bare_uses ORDER BY ctid")
        .fetch_all(&harness.pool)
        .await
        .expect("those people");
    let before = harness.usage();
    for batch in people.chunks(BATCH) {
        let mut batch = batch.to_vec();
        batch.sort_unstable();
        let count =
            "UPDATE bare_uses b SET uses = b.uses + 1 FROM unnest($1::uuid[]) AS g (person) WHERE b.person = g.person";
        let changed = sqlx::query(count).bind(&batch).execute(&harness.pool).await.expect("Postgres takes it");
        assert_eq!(changed.rows_affected(), batch.len() as u64, "each has a row");
    }
    per((harness.usage() - before).postgres, u32::try_from(people.len()).expect("fewer"))
}
