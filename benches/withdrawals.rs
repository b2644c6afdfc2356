//! A campaign and its withdrawal, once it has been sent: the withdrawal costs no more than the campaign. `scripts/bench withdrawals`
//!
//! `N` subscriptions (100,000), `ROUNDS` campaigns (3), each with its withdrawal; ratios are those of the medians. Ends with an error
//! if a browser that got the message gets no removal.

use std::time::{Duration, Instant};

use bellwire_core::id::{AppId, MessageId};
use serde_json::json;

use crate::support::cpu::per;
use crate::support::harness::{Campaign, Harness, notice};
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{median, seed, setting};

pub async fn run() {
    let (n, rounds) = (setting("N", 100_000), setting("ROUNDS", 3).max(1));
    let harness = Harness::open().await;
    let app = harness.app("withdrawals").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    let (mut sent, mut withdrawn) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let campaign = harness.campaign(app, n, &notice()).await;
        withdrawn.push(withdraw(&harness, app, &campaign).await);
        sent.push(campaign);
    }
    let server = |campaign: &Campaign| per(campaign.usage.server, campaign.deliveries);
    let postgres = |campaign: &Campaign| per(campaign.usage.postgres, campaign.deliveries);
    let of = |campaigns: &[Campaign]| {
        (median(campaigns, server), median(campaigns, postgres), median(campaigns, Campaign::rate))
    };
    let (sending, withdrawal) = (of(&sent), of(&withdrawn));
    for (name, (server, postgres, rate)) in [("A campaign", sending), ("Its withdrawal", withdrawal)] {
        heading(&format!("{name} to {}; the median of {rounds} rounds", number(n.into())));
        figure("Deliveries per second", rate, "/s", Bar::None);
        figure("Server, CPU per delivery", server, "µs", Bar::None);
        figure("Postgres, CPU per delivery", postgres, "µs", Bar::None);
    }
    heading("The withdrawal, of the campaign");
    let cpu = |(server, postgres, _): (f64, f64, f64)| server + postgres;
    figure("CPU per delivery, server and Postgres", cpu(withdrawal) / cpu(sending), "×", Bar::AtMost(1.0));
}

/// Withdraws a campaign and waits until all its browsers have the removal.
async fn withdraw(harness: &Harness, app: AppId, campaign: &Campaign) -> Campaign {
    sqlx::query("CHECKPOINT").execute(&harness.pool).await.expect("a checkpoint");
    let (before, began) = (harness.usage(), Instant::now());
    let path = format!("/v1/apps/{app}/messages/{}/withdraw", campaign.message);
    harness.api.post(&path, &json!({})).await;
    let message = loop {
        let removal: Option<MessageId> = sqlx::query_scalar("SELECT removal FROM withdrawals WHERE message = $1")
            .bind(campaign.message.0)
            .fetch_one(&harness.pool)
            .await
            .expect("a withdrawal");
        match removal {
            Some(removal) => break removal,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    harness.wait_for(message).await;
    let (took, usage) = (began.elapsed(), harness.usage() - before);
    let removed: i64 =
        sqlx::query_scalar("SELECT coalesce(sum(accepted), 0)::bigint FROM message_counts WHERE message = $1")
            .bind(message.0)
            .fetch_one(&harness.pool)
            .await
            .expect("counts");
    assert_eq!(removed, i64::from(campaign.deliveries), "browsers with a removal");
    Campaign { message, deliveries: campaign.deliveries, took, usage }
}
