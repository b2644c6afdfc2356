//! Cost of event-stream listeners: campaigns to the same browsers with and without a hundred listeners, in turns, so that other load
//! affects both alike. `scripts/bench listeners`
//!
//! `N` subscriptions (100,000), `LISTENERS` (100), `PAIRS` of campaigns (5), of which the medians count.

use http_body_util::BodyExt as _;

use crate::support::cpu::per;
use crate::support::harness::{Campaign, Harness, notice};
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{median, seed, setting};

pub async fn run() {
    let (n, listeners, pairs) = (setting("N", 100_000), setting("LISTENERS", 100), setting("PAIRS", 5).max(1));
    let harness = Harness::open().await;
    let app = harness.app("listeners").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    harness.campaign(app, n, &notice()).await; // the first finds everything cold
    let (mut alone, mut heard) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        // The second run has more rows in the tables: the order alternates.
        for with_listeners in [pair % 2 == 1, pair % 2 == 0] {
            match with_listeners {
                false => alone.push(harness.campaign(app, n, &notice()).await),
                true => heard.push(with(&harness, listeners, harness.campaign(app, n, &notice())).await),
            }
        }
    }
    let server = |campaign: &Campaign| per(campaign.usage.server, campaign.deliveries);
    let postgres = |campaign: &Campaign| per(campaign.usage.postgres, campaign.deliveries);
    heading(&format!(
        "Campaigns to {} with and without {listeners} listeners, by turns; medians of {pairs} each",
        number(n.into())
    ));
    let (rate, rate_heard) = (median(&alone, Campaign::rate), median(&heard, Campaign::rate));
    figure("Deliveries per second without", rate, "/s", Bar::None);
    figure("Deliveries per second with", rate_heard, "/s", Bar::AtLeast(rate * 0.97));
    let us = "µs";
    figure("Server, CPU per delivery without", median(&alone, server), us, Bar::None);
    figure("Server, CPU per delivery with", median(&heard, server), us, Bar::AtMost(median(&alone, server) * 1.03));
    figure("Postgres, CPU per delivery without", median(&alone, postgres), us, Bar::None);
    let most = median(&alone, postgres) * 1.05;
    figure("Postgres, CPU per delivery with", median(&heard, postgres), us, Bar::AtMost(most));
}

/// Runs a campaign with this number of listeners; each must receive its events.
async fn with(harness: &Harness, listeners: u32, campaign: impl Future<Output = Campaign>) -> Campaign {
    let mut ears = tokio::task::JoinSet::new();
    let mut ready = Vec::new();
    for _ in 0..listeners {
        let (api, (tell, told)) = (harness.api.clone(), tokio::sync::oneshot::channel());
        ready.push(told);
        ears.spawn(async move {
            let mut stream = api.open("/v1/events/stream").await;
            let mut tell = Some(tell);
            let mut octets = 0;
            while let Some(Ok(frame)) = stream.frame().await {
                octets += frame.data_ref().map_or(0, bytes::Bytes::len);
                if let Some(tell) = tell.take() {
                    let _ = tell.send(());
                }
                if frame.data_ref().is_some_and(|data| data.windows(12).any(|word| word == b"message.done")) {
                    break;
                }
            }
            octets
        });
    }
    for told in ready {
        told.await.expect("it listens");
    }
    let campaign = campaign.await;
    while let Some(octets) = ears.join_next().await {
        assert!(octets.expect("no panic") > 0, "a listener heard nothing");
    }
    campaign
}
