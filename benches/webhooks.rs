//! Cost of webhooks: campaigns to the same browsers without a webhook, with a receiver that accepts everything, and with a receiver that
//! hangs, in turns. `scripts/bench webhooks`
//!
//! `N` subscriptions (100,000), `PAIRS` of campaigns (5), of which the medians count; `MAX_EVENTS` in one request (100).

use std::time::{Duration, Instant};

use bellwire_core::id::AppId;
use serde_json::{Value, json};

use crate::support::cpu::{Usage, per};
use crate::support::harness::{Campaign, Harness, notice};
use crate::support::receiver::{Manner, Receiver};
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{median, seed, setting};

const TAKING: &str = "taking.example.com";
const HANGING: &str = "hanging.example.com";
/// Events a second that have to be told.
const EVENTS_MIN: f64 = 2_000.0;
/// Poll interval for the end of all requests.
const LOOK: Duration = Duration::from_millis(50);
const TOLD_WITHIN: Duration = Duration::from_secs(300);

/// Campaign of which a receiver got all events.
struct Told {
    campaign: Campaign,
    requests: u64,
    /// From the request that sent the campaign.
    took: Duration,
    usage: Usage,
}

pub async fn run() {
    let (n, pairs) = (setting("N", 100_000), setting("PAIRS", 5).max(1));
    let receivers = [Receiver::start(TAKING, Manner::Takes).await, Receiver::start(HANGING, Manner::Hangs).await];
    let harness = Harness::beside(&receivers).await;
    let app = harness.app("webhooks").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    harness.campaign(app, n, &notice()).await; // the first finds everything cold
    let (mut alone, mut told, mut hung) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        // A later run has more rows in the tables: the order alternates.
        for turn in 0..3 {
            match (pair + turn) % 3 {
                0 => alone.push(harness.campaign(app, n, &notice()).await),
                1 => told.push(with_all_told(&harness, app, n, &receivers[0]).await),
                _ => hung.push(with_one_that_hangs(&harness, app, n, &receivers[1]).await),
            }
        }
    }
    show(n, &alone, &told, &hung);
}

async fn with_all_told(harness: &Harness, app: AppId, n: u32, receiver: &Receiver) -> Told {
    let webhook = webhook(harness, app, TAKING).await;
    let (before, requests, began) = (harness.usage(), receiver.requests(), Instant::now());
    let campaign = harness.campaign(app, n, &notice()).await;
    let waits =
        "SELECT EXISTS (SELECT FROM webhook_notes) OR EXISTS (SELECT FROM webhook_deliveries WHERE state = 'pending')";
    while sqlx::query_scalar(waits).fetch_one(&harness.pool).await.expect("an answer") {
        assert!(began.elapsed() < TOLD_WITHIN, "events are not told");
        tokio::time::sleep(LOOK).await;
    }
    let (took, usage) = (began.elapsed(), harness.usage() - before);
    let events: i64 = sqlx::query_scalar("SELECT coalesce(sum(events), 0)::bigint FROM webhook_deliveries")
        .fetch_one(&harness.pool)
        .await
        .expect("a sum");
    assert_eq!(events, i64::from(n), "everything is told once");
    harness.api.delete(&webhook).await;
    Told { campaign, requests: receiver.requests() - requests, took, usage }
}

async fn with_one_that_hangs(harness: &Harness, app: AppId, n: u32, receiver: &Receiver) -> Campaign {
    let webhook = webhook(harness, app, HANGING).await;
    let requests = receiver.requests();
    let campaign = harness.campaign(app, n, &notice()).await;
    let began = Instant::now();
    while receiver.requests() == requests {
        assert!(began.elapsed() < TOLD_WITHIN, "it was never asked");
        tokio::time::sleep(LOOK).await;
    }
    harness.api.delete(&webhook).await;
    campaign
}

/// Makes a webhook. Returns its path.
async fn webhook(harness: &Harness, app: AppId, host: &str) -> String {
    let webhooks = format!("/v1/apps/{app}/webhooks");
    let body = json!({
        "name": host, "url": format!("https://{host}/in"), "events": ["delivery.accepted"],
        "max_events": setting("MAX_EVENTS", 100),
    });
    let made: Value = harness.api.post(&webhooks, &body).await;
    format!("{webhooks}/{}", made["id"].as_str().expect("an id"))
}

fn show(n: u32, alone: &[Campaign], told: &[Told], hung: &[Campaign]) {
    let pairs = alone.len();
    heading(&format!("Campaigns to {} without and with webhooks, by turns; medians of {pairs} each", number(n.into())));
    let events = |told: &Told| f64::from(n) / told.took.as_secs_f64();
    figure("Events told per second, deliveries beside them", median(told, events), "/s", Bar::AtLeast(EVENTS_MIN));
    let requests = |told: &Told| told.requests as f64 / told.took.as_secs_f64();
    figure("Requests per second", median(told, requests), "/s", Bar::None);
    let us = "µs";
    let server = median(told, |told| per(told.usage.server, n)) - median(alone, |alone| per(alone.usage.server, n));
    figure("Server, CPU per event", server, us, Bar::None);
    let postgres =
        median(told, |told| per(told.usage.postgres, n)) - median(alone, |alone| per(alone.usage.postgres, n));
    figure("Postgres, CPU per event", postgres, us, Bar::None);
    let rate = median(alone, Campaign::rate);
    figure("Deliveries per second without a webhook", rate, "/s", Bar::None);
    figure("Deliveries per second while one is told", median(told, |told| told.campaign.rate()), "/s", Bar::None);
    figure("Deliveries per second while one hangs", median(hung, Campaign::rate), "/s", Bar::AtLeast(rate * 0.97));
}
