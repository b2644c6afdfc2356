//! Events of users and the messages that they trigger. `scripts/bench events`
//!
//! First `N` events (200,000) in batches of 1,000, half of which let people wait: CPU per event. Then an idle server with these and with
//! `WAITING` more people (1,000,000) who wait, for `SECONDS` each (20): waiting costs nothing. Last `RATE` messages a second (1,000) that
//! become due: time from due to the response of the push service. Ends with an error if an event or a message is missing.

use std::time::{Duration, Instant};

use bellwire_core::clock::Clock;
use bellwire_core::id::{AppId, SubscriptionId};
use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::support::cpu::per;
use crate::support::harness::Harness;
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{seed, setting};

/// Events of a request.
const BATCH: usize = 1_000;
/// Seconds from an event to its message in the last part.
const AFTER_S: i64 = 3;

pub async fn run() {
    let (n, waiting, seconds) = (setting("N", 200_000), setting("WAITING", 1_000_000), setting("SECONDS", 20));
    let rate = setting("RATE", 1_000);
    let harness = Harness::open().await;
    let app = harness.app("events").await;
    let people = seed::subscriptions(&harness.pool, &harness.vault, app, (rate * seconds).max(10_000)).await.all;
    start(&harness, app, "reminder", json!({"on": "event:cart_added", "after": "30d", "unless": "event:bought"})).await;
    start(&harness, app, "receipt", json!({"on": "event:ordered", "after": format!("{AFTER_S}s")})).await;
    report_all(&harness, app, &people, n).await;
    rest(&harness, app, waiting, seconds).await;
    become_due(&harness, app, &people, rate, seconds).await;
}

async fn start(harness: &Harness, app: AppId, slug: &str, schedule: Value) {
    let message = json!({"to": {"all": true}, "content": {"title": "Your cart"}});
    let plan = json!({"slug": slug, "schedule": schedule, "message": message});
    harness.api.post(&format!("/v1/apps/{app}/campaigns"), &plan).await;
    harness.api.post(&format!("/v1/apps/{app}/campaigns/{slug}/start"), &json!({})).await;
}

async fn report(harness: &Harness, app: AppId, events: Vec<Value>) {
    let n = events.len();
    let done = harness.api.post(&format!("/v1/apps/{app}/events"), &json!({"events": events})).await;
    assert_eq!(done["recorded"], n, "{done}");
}

/// Reports events as fast as the server answers, of users without browsers.
async fn report_all(harness: &Harness, app: AppId, people: &[SubscriptionId], n: u32) {
    sqlx::query("CHECKPOINT").execute(&harness.pool).await.expect("a checkpoint");
    let (before, began) = (harness.usage(), Instant::now());
    for first in (0..n as usize).step_by(BATCH) {
        let event = |i: usize| {
            let name = if i.is_multiple_of(2) { "cart_added" } else { "looked" };
            json!({"id": format!("e-{i}"), "name": name, "user_id": format!("u{i}"), "properties": {"product": "Coat", "n": people.len()}})
        };
        report(harness, app, (first..(n as usize).min(first + BATCH)).map(event).collect()).await;
    }
    let (took, usage) = (began.elapsed(), harness.usage() - before);
    let (server, postgres) = (per(usage.server, n), per(usage.postgres, n));
    heading(&format!("{} events in batches of {BATCH}", number(n.into())));
    figure("Events per second, one request at a time", f64::from(n) / took.as_secs_f64(), "/s", Bar::None);
    figure("Server, CPU per event", server, "µs", Bar::None);
    figure("Postgres, CPU per event", postgres, "µs", Bar::None);
    figure("Together", server + postgres, "µs", Bar::AtMost(60.0));
}

/// Compares an idle server with few and with many people who wait.
async fn rest(harness: &Harness, app: AppId, waiting: u32, seconds: u32) {
    let before = at_rest(harness, seconds).await;
    sqlx::query(
        "INSERT INTO trigger_entries (campaign, person, due_at, caused_at, user_id)
         SELECT t.campaign, gen_random_uuid(), now() + interval '20 days' + n * interval '1 s', now(), 'w' || n
         FROM triggers t, generate_series(1, $2::bigint) AS n WHERE t.app = $1 AND t.cause = 'event:cart_added'",
    )
    .bind(app.0)
    .bind(i64::from(waiting))
    .execute(&harness.pool)
    .await
    .expect("people who wait");
    sqlx::query("VACUUM ANALYZE trigger_entries").execute(&harness.pool).await.expect("statistics");
    sqlx::query("CHECKPOINT").execute(&harness.pool).await.expect("a checkpoint");
    let after = at_rest(harness, seconds).await;
    heading(&format!("An idle server without and with {} more people who wait", number(waiting.into())));
    figure("CPU in a second without", before, "ms", Bar::None);
    figure("CPU in a second with", after, "ms", Bar::AtMost(before * 1.1 + 1.0));
}

/// CPU milliseconds that server and Postgres use in a second in which nothing happens.
async fn at_rest(harness: &Harness, seconds: u32) -> f64 {
    harness.settle().await;
    let before = harness.usage();
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let used = harness.usage() - before;
    (used.server + used.postgres).as_secs_f64() * 1e3 / f64::from(seconds.max(1))
}

/// Lets messages become due at a steady rate.
async fn become_due(harness: &Harness, app: AppId, people: &[SubscriptionId], rate: u32, seconds: u32) {
    let n = rate * seconds;
    let first_at = Clock::system().now() + TimeDelta::seconds(1);
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    for (place, some) in people[..n as usize].chunks((rate / 10).max(1) as usize).enumerate() {
        ticks.tick().await;
        let now = Clock::system().now();
        // Each event is due at its own time, not with its batch.
        let event = |(i, id): (usize, &SubscriptionId)| {
            let at = first_at + TimeDelta::microseconds((place * some.len() + i) as i64 * 1_000_000 / i64::from(rate));
            json!({"name": "ordered", "subscription": id, "at": at.min(now)})
        };
        report(harness, app, some.iter().enumerate().map(event).collect()).await;
    }
    let accepted =
        "SELECT count(*) FROM attempts a JOIN messages m ON m.id = a.message WHERE m.app = $1 AND a.ending = 1";
    let began = Instant::now();
    loop {
        let done: i64 = sqlx::query_scalar(accepted).bind(app.0).fetch_one(&harness.pool).await.expect("a count");
        if done >= i64::from(n) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{done} of {n} messages arrived");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let late = "SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY extract(epoch FROM a.at - e.at)::float8 - $2)
                FROM attempts a JOIN messages m ON m.id = a.message JOIN user_events e ON e.person = a.subscription AND e.app = m.app
                WHERE m.app = $1 AND e.name = 'ordered'";
    let late: Vec<f64> =
        sqlx::query_scalar(late).bind(app.0).bind(AFTER_S as f64).fetch_one(&harness.pool).await.expect("times");
    heading(&format!("{} messages a second that become due", number(rate.into())));
    figure("From due to the response of the push service, p50", late[0] * 1e3, "ms", Bar::None);
    figure("From due to the response of the push service, p99", late[1] * 1e3, "ms", Bar::AtMost(1_000.0));
}
