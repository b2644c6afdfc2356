//! Cost of random failures: campaigns to the same browsers with and without 5 % of quick 503s among slow responses, in turns. An adaptive
//! limit that mistakes each failure for congestion would take many times as long. `scripts/bench failures`
//!
//! `N` subscriptions (20,000), `PAIRS` of campaigns (5), of which the medians count. What failed is delivered by its
//! first retry, after some two seconds.

use bellwire_core::id::{AppId, MessageId};
use serde_json::{Value, json};

use crate::support::harness::{Harness, notice};
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{median, seed, setting};

/// Delay of a successful response.
const SLOW_MS: u32 = 200;
/// Endpoints whose first request of each campaign fails, as fractions of all.
const FAILING: [f64; 2] = [0.0, 0.05];

/// Duration of a campaign in seconds, from its acceptance.
struct Took {
    /// Until the first POST of each delivery was answered.
    answered: f64,
    /// Until 95 % were accepted.
    accepted: f64,
}

pub async fn run() {
    let (n, pairs) = (setting("N", 20_000), setting("PAIRS", 5).max(1));
    let harness = Harness::open().await;
    let app = harness.app("failures").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    harness.campaign(app, n, &notice()).await; // the first finds everything cold
    let (mut calm, mut flaky) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        for failing in [pair % 2 == 1, pair % 2 == 0] {
            let took = campaign(&harness, app, n, failing).await;
            if failing { flaky.push(took) } else { calm.push(took) }
        }
    }
    heading(&format!(
        "Campaigns to {} with and without 5 % of quick failures among answers that take {SLOW_MS} ms, by turns; medians of {pairs} each",
        number(n.into())
    ));
    let answered = |took: &Took| took.answered;
    let accepted = |took: &Took| took.accepted;
    for (what, value) in [("every first POST answered", answered as fn(&Took) -> f64), ("95 % accepted", accepted)] {
        let (without, with) = (median(&calm, value), median(&flaky, value));
        figure(&format!("Without failures, until {what}"), without, "s", Bar::None);
        figure(&format!("With failures, until {what}"), with, "s", Bar::None);
        figure("… as a multiple of that without", with / without, "", Bar::AtMost(1.2));
    }
}

/// Sends one campaign while gateways fail, or do not.
async fn campaign(harness: &Harness, app: AppId, n: u32, failing: bool) -> Took {
    let mut rules = Vec::new();
    if failing {
        // Without a `Retry-After`, which is another matter.
        rules.push(json!({"share": FAILING, "attempts": [1, 1], "action": {"answer": {"status": 503}}}));
    }
    rules.push(json!({"delay_ms": SLOW_MS, "action": "behave"}));
    let mut ids = Vec::new();
    for rule in &rules {
        let made: Value = harness.gateways.post("/rules", rule).await;
        ids.push(made["id"].as_u64().expect("a rule's id"));
    }
    let campaign = harness.campaign(app, n, &notice()).await;
    for id in ids {
        harness.gateways.delete(&format!("/rules/{id}")).await;
    }
    took(harness, campaign.message, failing).await
}

/// Reads the result from the log of attempts.
async fn took(harness: &Harness, message: MessageId, failing: bool) -> Took {
    let (answered, accepted, failed): (f64, f64, i64) = sqlx::query_as(
        "SELECT extract(epoch FROM max(a.at) FILTER (WHERE a.attempt = 0) - min(m.accepted_at))::float8,
                extract(epoch FROM percentile_disc(0.95) WITHIN GROUP (ORDER BY a.at) FILTER (WHERE a.ending = 1)
                                   - min(m.accepted_at))::float8,
                count(*) FILTER (WHERE a.status = 503)
         FROM attempts a JOIN messages m ON m.id = a.message WHERE a.message = $1",
    )
    .bind(message.0)
    .fetch_one(&harness.pool)
    .await
    .expect("the log of attempts");
    assert_eq!(failed > 0, failing, "{failed} failed");
    Took { answered, accepted }
}
