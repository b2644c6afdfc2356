//! What frequency caps cost Postgres: campaigns to the same people with and without caps, by turns, so that what else the
//! machine does hits both alike. Every other person is a user. `scripts/bench caps`
//!
//! `N` subscriptions (100,000), `PAIRS` of campaigns (5), of which the medians count. Beside them a floor: what Postgres needs
//! to change one number in a row of each of these people, found by its key, as many in a transaction as a batch has.

use serde_json::json;

use crate::support::cpu::per;
use crate::support::harness::{Campaign, Harness, notice};
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{median, seed, setting};

/// What caps may cost Postgres, in CPU-µs for each delivery.
const POSTGRES_MAX_US: f64 = 6.0;

pub async fn run() {
    let (n, pairs) = (setting("N", 100_000), setting("PAIRS", 5).max(1));
    let harness = Harness::open().await;
    let app = harness.app("caps").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    let users = "UPDATE subscriptions SET user_id = 'user-' || id::text WHERE get_byte(uuid_send(id), 15) % 2 = 0";
    sqlx::query(users).execute(&harness.pool).await.expect("users");
    sqlx::query("VACUUM ANALYZE subscriptions").execute(&harness.pool).await.expect("a tidy table");
    // Two caps, both of which are asked each time; nobody reaches them.
    let caps = json!({"caps": [{"max": 40, "window": "7d"}, {"max": 50, "window": "30d"}]});
    let path = format!("/v1/apps/{app}/caps");
    let (mut free, mut capped) = (Vec::new(), Vec::new());
    for pair in 0..=pairs {
        // Whoever goes second finds more rows in the tables: they take turns in that, too.
        for with_caps in [pair % 2 == 1, pair % 2 == 0] {
            harness.api.put(&path, &if with_caps { caps.clone() } else { json!({"caps": []}) }).await;
            let campaign = harness.campaign(app, n, &notice()).await;
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
    let postgres = |campaign: &Campaign| per(campaign.usage.postgres, campaign.deliveries);
    let server = |campaign: &Campaign| per(campaign.usage.server, campaign.deliveries);
    let people = number(n.into());
    heading(&format!("Campaigns to {people} with and without frequency caps, by turns; medians of {pairs} each"));
    let us = "µs";
    figure("Postgres, CPU per delivery without", median(&free, postgres), us, Bar::None);
    figure("Postgres, CPU per delivery with", median(&capped, postgres), us, Bar::None);
    let more = median(&capped, postgres) - median(&free, postgres);
    figure("Postgres, CPU per delivery for caps", more, us, Bar::AtMost(POSTGRES_MAX_US));
    figure("Server, CPU per delivery without", median(&free, server), us, Bar::None);
    figure("Server, CPU per delivery with", median(&capped, server), us, Bar::None);
    figure("Deliveries per second without", median(&free, Campaign::rate), "/s", Bar::None);
    figure("Deliveries per second with", median(&capped, Campaign::rate), "/s", Bar::None);
}
