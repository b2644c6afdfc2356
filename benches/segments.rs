//! Cost of segments: per candidate, and for a campaign to one subscription in five beside a campaign of equal size without a segment. Also
//! checks whether a sparse segment (one in a thousand) and a second campaign of the same lanes delay each other. `scripts/bench segments`
//!
//! `N` subscriptions (1,000,000), `ROUNDS` (3) in which the campaigns that are compared take turns; medians count. Ends with an error
//! if anybody is missing, or comes twice.

use std::time::{Duration, Instant};

use bellwire_core::id::{AppId, MessageId};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::cpu::{Usage, per};
use crate::support::harness::{Campaign, Harness, notice};
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{median, seed, setting};

/// One in so many belongs to the segment.
const ONE_IN: u32 = 5;
/// One in so many belongs to the rare one.
const RARE_IN: u32 = 1_000;
/// Candidates that each cost at most so much, of all processes together.
const CANDIDATE_US: f64 = 5.0;
/// Maximum cost of a delivery, relative to one without a segment.
const ALIKE: f64 = 1.05;
/// Maximum duration of a campaign beside the search of a sparse one, relative to the campaign alone.
const BESIDE: f64 = 1.15;
/// Segment with a usual number of attributes.
const SEGMENT: &str = "(plan = 'pro' or tag('staff')) and not country in ('FR', 'ES') and last_seen < 30d";
/// The same conditions for a subscription that only the last condition excludes: the cost of a full evaluation per candidate.
const NOBODY: &str = "not country in ('FR', 'ES') and last_seen < 30d and (plan = 'none' or tag('staff'))";
const RARE: &str = "tag('rare')";
const LOOK: Duration = Duration::from_millis(20);

pub async fn run() {
    let n = setting("N", 1_000_000);
    let members = n / ONE_IN;
    let harness = Harness::open().await;
    let plain = harness.app("plain").await;
    seed::subscriptions(&harness.pool, &harness.vault, plain, members).await;
    let app = harness.app("segmented").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    for app in [plain, app] {
        describe(&harness, app).await; // both, so that their rows are alike
    }
    tidy(&harness).await;

    let rounds = setting("ROUNDS", 3).max(1);
    let (mut nobody, mut without, mut with) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let campaigns = [
            harness.campaign(app, 0, &to(json!({"segment": NOBODY}))).await,
            harness.campaign(plain, members, &notice()).await,
            harness.campaign(app, members, &to(json!({"segment": SEGMENT}))).await,
        ];
        // The first one finds everything cold.
        if round > 0 {
            let [none, plain, segmented] = campaigns;
            nobody.push(none);
            without.push(plain);
            with.push(segmented);
        }
    }

    heading(&format!("A segment of {} among {}; medians of {rounds}", number(members.into()), number(n.into())));
    let us = "µs";
    let candidate = median(&nobody, |campaign| per(ours(campaign.usage), n));
    figure("Server and Postgres, CPU per candidate", candidate, us, Bar::AtMost(CANDIDATE_US));
    let seen = median(&nobody, |campaign| f64::from(n) / campaign.took.as_secs_f64());
    figure("Candidates per second, if nobody belongs", seen, "/s", Bar::None);
    let delivery = |campaign: &Campaign| per(ours(campaign.usage), campaign.deliveries);
    let (plain_us, whole_us) = (median(&without, delivery), median(&with, delivery));
    figure("Server and Postgres, CPU per delivery, no segment", plain_us, us, Bar::None);
    figure("The same with the segment", whole_us, us, Bar::None);
    // Candidates have a bar of their own: five of them for each delivery are no part of this one.
    let less_candidates = whole_us - candidate * f64::from(ONE_IN);
    figure("The same with the segment, less its candidates", less_candidates, us, Bar::AtMost(plain_us * ALIKE));
    figure("Deliveries per second, no segment", median(&without, Campaign::rate), "/s", Bar::None);
    figure("Deliveries per second, with the segment", median(&with, Campaign::rate), "/s", Bar::None);
    reach(&harness, app, members).await;
    side_by_side(&harness, app, n, members).await;
}

/// CPU time of Bellwire and its Postgres.
fn ours(usage: Usage) -> Duration {
    usage.server + usage.postgres
}

/// A notification of usual size to others than everybody.
fn to(to: Value) -> Value {
    let mut message = notice();
    message["to"] = to;
    message
}

/// Gives everybody of an app attributes and tags, one in five those of the segment, and puts as many into a topic.
async fn describe(harness: &Harness, app: AppId) {
    let mut connection = harness.pool.acquire().await.expect("a connection");
    sqlx::query("SET statement_timeout = 0").execute(&mut *connection).await.expect("it is ours");
    let describe =
        "WITH numbered AS (SELECT shard, id, row_number() OVER (ORDER BY id) AS n FROM subscriptions WHERE app = $1)
        UPDATE subscriptions s SET
            attributes = jsonb_build_object('plan', CASE WHEN n % $2 = 0 THEN 'pro' ELSE 'free' END, 'country', 'AT',
                'seats', n % 40, 'first_name', 'Ann', 'signed_up', '2026-03-01', 'newsletter', true),
            tags = CASE WHEN n % $3 = 0 THEN ARRAY['web', 'rare'] ELSE ARRAY['web'] END
        FROM numbered WHERE s.shard = numbered.shard AND s.id = numbered.id";
    let described = sqlx::query(describe).bind(app.0).bind(i64::from(ONE_IN)).bind(i64::from(RARE_IN));
    described.execute(&mut *connection).await.expect("the columns are there");
    harness.api.put(&format!("/v1/apps/{app}/topics/fifth"), &json!({})).await;
    let join = "INSERT INTO topic_members (shard, subscription, topic, lane, joined_at)
        SELECT s.shard, s.id, t.id, s.lane, s.since FROM subscriptions s JOIN topics t ON t.app = s.app
        WHERE s.app = $1 AND s.attributes ->> 'plan' = 'pro'";
    sqlx::query(join).bind(app.0).execute(&mut *connection).await.expect("a topic");
}

/// Lets everything lie as it would after some hours.
async fn tidy(harness: &Harness) {
    let mut connection = harness.pool.acquire().await.expect("a connection");
    sqlx::query("SET statement_timeout = 0").execute(&mut *connection).await.expect("it is ours");
    for table in ["subscriptions", "topic_members"] {
        let tidy = format!("VACUUM (FULL, ANALYZE) {table}");
        sqlx::query(AssertSqlSafe(tidy)).execute(&mut *connection).await.expect("maintenance of a table");
    }
}

/// Measures the time and the error of an estimate of the segment's size.
async fn reach(harness: &Harness, app: AppId, members: u32) {
    let (path, began) = (format!("/v1/apps/{app}/segments/preview"), Instant::now());
    let preview = harness.api.post(&path, &json!({"segment": SEGMENT})).await;
    let took = began.elapsed();
    let n = |name: &str| preview["reach"][name].as_f64().expect("a number");
    figure("Estimating its reach", took.as_secs_f64() * 1e3, "ms", Bar::AtMost(1_000.0));
    let off = (n("count") - f64::from(members)).abs();
    figure("How far it is off", off, "", Bar::AtMost(n("margin") * 1.5));
    let began = Instant::now();
    let counted = harness.api.post(&path, &json!({"segment": SEGMENT, "exact": true})).await;
    assert_eq!(counted["reach"]["count"], members, "counted exactly");
    figure("Counting it", began.elapsed().as_secs_f64(), "s", Bar::None);
}

/// A campaign to a topic, alone and beside one to a segment that takes one in a thousand of the same lanes.
async fn side_by_side(harness: &Harness, app: AppId, n: u32, members: u32) {
    let campaign = to(json!({"topic": "fifth"}));
    let alone = harness.campaign(app, members, &campaign).await;
    let rare = harness.campaign(app, n / RARE_IN, &to(json!({"segment": RARE}))).await;
    let received = harness.received().await;
    let began = Instant::now();
    let (first, second) = (harness.send(app, &to(json!({"segment": RARE}))).await, harness.send(app, &campaign).await);
    let (rare_took, took) = tokio::join!(until_done(harness, first, began), until_done(harness, second, began));
    assert_eq!(harness.received().await - received, u64::from(members + n / RARE_IN), "taken by the simulator");

    heading(&format!("A segment of {} beside a campaign to {}", number((n / RARE_IN).into()), number(members.into())));
    figure("The campaign alone", alone.took.as_secs_f64(), "s", Bar::None);
    let bar = Bar::AtMost(alone.took.as_secs_f64() * BESIDE + rare.took.as_secs_f64());
    figure("The campaign beside the segment", took.as_secs_f64(), "s", bar);
    figure("The segment alone", rare.took.as_secs_f64(), "s", Bar::None);
    let bar = Bar::AtMost(alone.took.as_secs_f64() * BESIDE + rare.took.as_secs_f64());
    figure("The segment beside the campaign", rare_took.as_secs_f64(), "s", bar);
}

/// Time from that moment until all work of a message was done.
async fn until_done(harness: &Harness, message: MessageId, began: Instant) -> Duration {
    while harness.is_under_way(message).await {
        tokio::time::sleep(LOOK).await;
    }
    began.elapsed()
}
