//! People who log in, log out, move or get another endpoint between two messages of one campaign run.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::server::maintenance;
use bellwire_core::id::{CampaignId, SubscriptionId};
use serde_json::{Value, json};
use sha2::Digest as _;

use crate::support::TestApp;
use crate::support::app::{DAY, Subscriber};
use crate::support::campaigns::{HOUR, accepted, advance, plan, run_scheduler, show, started};

async fn change(app: &TestApp, of: &Subscriber, more: Value) {
    app.call(Method::PATCH, &format!("/v1/apps/shop/subscriptions/{}", of.id), more).await.ok(200);
}

/// Returns how many deliveries with different ids each of these endpoints accepted.
fn got(app: &TestApp, people: &[Subscriber]) -> Vec<usize> {
    people.iter().map(|person| app.simulator.received(&person.endpoint).unwrap_or_default().len()).collect()
}

/// The part of ten thousand in which a person lies.
fn part(campaign: &str, person: &[u8]) -> u64 {
    let hash = sha2::Sha256::new_with_prefix(campaign).chain_update(person).finalize();
    u64::from_be_bytes(hash[..8].try_into().unwrap()) % 10_000
}

/// A plan whose test goes to the parts up to 5,000, but for the first 1,000, which are held out.
fn tested(slug: &str) -> Value {
    let variants = json!([{"name": "a", "message": {}}, {"name": "b", "message": {"content": {"title": "B"}}}]);
    plan(slug, json!({"variants": variants, "holdout": 0.1, "test": {"share": 0.4, "after": 3600}}))
}

/// Starts a campaign with a test. Returns who gets a delivery of it, by their origins before or their users.
async fn begun(app: &TestApp, people: &[Subscriber], user: Option<&str>) -> Vec<usize> {
    started(app, tested("spring")).await;
    run_scheduler(app).await;
    let id: CampaignId = show(app, "spring").await["id"].as_str().unwrap().parse().unwrap();
    let due = |(place, person): (usize, &Subscriber)| {
        let origin: SubscriptionId = person.id.parse().unwrap();
        let user = user.map(|user| format!("{user}{place}"));
        let person = user.as_deref().map_or(origin.0.as_bytes().as_slice(), str::as_bytes);
        usize::from(part(&id.to_string(), person) >= 1_000)
    };
    people.iter().enumerate().map(due).collect()
}

async fn check_rest(app: &TestApp, people: &[Subscriber], expected: &[usize]) {
    advance(app, HOUR).await;
    advance(app, HOUR).await;
    assert_eq!(got(app, people), expected, "each once, but for those who are held out");
    assert_eq!(accepted(&show(app, "spring").await), expected.iter().sum::<usize>() as i64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_between_test_and_rest_changes_nothing() {
    let app = TestApp::start().await;
    let people = app.subscribe("fcm", 0..60).await;
    let expected = begun(&app, &people, None).await;
    app.clock.advance(Duration::from_secs(60));
    for (place, person) in people.iter().enumerate() {
        change(&app, person, json!({"user_id": format!("user {place}")})).await;
    }
    check_rest(&app, &people, &expected).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logout_between_test_and_rest_changes_nothing() {
    let app = TestApp::start().await;
    let mut people = Vec::new();
    for place in 0..60 {
        people.extend(app.subscribe_with("fcm", place..place + 1, json!({"user_id": format!("user {place}")})).await);
    }
    let expected = begun(&app, &people, Some("user ")).await;
    app.clock.advance(Duration::from_secs(60));
    for (place, person) in people.iter().enumerate() {
        let next = if place % 2 == 0 { Value::Null } else { json!(format!("other {place}")) };
        change(&app, person, json!({"user_id": next})).await;
        change(&app, person, json!({"user_id": format!("third {place}")})).await;
    }
    check_rest(&app, &people, &expected).await;
    let former: Vec<String> =
        sqlx::query_scalar("SELECT former::text FROM subscriptions").fetch_all(&app.pool).await.unwrap();
    assert!(former.iter().all(|former| !former.contains("user ") && !former.contains("other ")), "{former:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_endpoint_between_test_and_rest_changes_nothing() {
    let app = TestApp::start().await;
    let people = app.subscribe("fcm", 0..40).await;
    let expected = begun(&app, &people, None).await;
    app.clock.advance(Duration::from_secs(60));
    let before = got(&app, &people);
    let mut new = Vec::new();
    for (index, person) in (100..).zip(&people) {
        let more = json!({"replaces": {"id": person.id}, "user_id": format!("user {index}")});
        new.extend(app.subscribe_with("fcm", index..index + 1, more).await);
    }
    advance(&app, HOUR).await;
    advance(&app, HOUR).await;
    let both: Vec<usize> = before.iter().zip(got(&app, &new)).map(|(old, new)| old + new).collect();
    assert_eq!(both, expected);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journey_between_time_zones_changes_nothing() {
    let app = TestApp::start().await; // on a Friday, at 08:00 UTC
    let east = app.subscribe_with("fcm", 0..10, json!({"timezone": "Asia/Kolkata"})).await;
    let west = app.subscribe_with("fcm", 10..20, json!({"timezone": "America/New_York"})).await;
    let home = app.subscribe("fcm", 20..30).await;
    // 15:00 there: at 09:30, 15:00 and 20:00 UTC.
    let zones = json!({"at": "2027-01-15T15:00", "timezone": "recipient"});
    started(&app, plan("spring", json!({"schedule": zones}))).await;
    run_scheduler(&app).await;
    advance(&app, 2 * HOUR).await;
    assert_eq!([got(&app, &east), got(&app, &west)].concat(), [[1; 10], [0; 10]].concat());
    for (place, (eastern, western)) in east.iter().zip(&west).enumerate() {
        change(&app, eastern, json!({"timezone": "America/New_York"})).await;
        change(&app, western, json!({"timezone": "Asia/Kolkata"})).await;
        change(&app, &home[place], json!({"timezone": "Asia/Kolkata", "user_id": "ann"})).await;
    }
    for _ in 0..14 {
        advance(&app, HOUR).await;
    }
    assert_eq!([got(&app, &east), got(&app, &west), got(&app, &home)].concat(), [1; 30]);
    assert_eq!(accepted(&show(&app, "spring").await), 30);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_hours_stay_when_time_zones_change() {
    let app = TestApp::start().await; // at 08:00 UTC
    let people = app.subscribe_with("fcm", 0..20, json!({"timezone": "UTC"})).await;
    let first = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    sqlx::query(
        "INSERT INTO habit_notes (shard, subscription, message, kind, at)
         SELECT shard, id, $1, 2, date_trunc('day', $2, 'UTC') - make_interval(days => n, hours => -12, mins => -20)
         FROM subscriptions, generate_series(1, 6) n",
    )
    .bind(first.parse::<bellwire_core::id::MessageId>().unwrap().0)
    .bind(app.clock.now())
    .execute(&app.pool)
    .await
    .unwrap();
    maintenance::fold_habits(&app.pool, &app.clock).await.unwrap();
    app.clock.advance(HOUR);
    started(&app, plan("spring", json!({"schedule": {"at": json!(app.clock.now() + HOUR), "hour": "best"}}))).await;
    for hour in 10..36 {
        advance(&app, HOUR).await;
        // Half of them go east before their hour has come, half of them west after it.
        for (place, person) in people.iter().enumerate() {
            match (hour, place % 2) {
                (11, 0) => change(&app, person, json!({"timezone": "Asia/Tokyo", "user_id": place.to_string()})).await,
                (13, 1) => change(&app, person, json!({"timezone": "America/New_York"})).await,
                _ => {}
            }
        }
    }
    advance(&app, DAY).await;
    assert_eq!(got(&app, &people), [2; 20], "the message before, and the campaign once");
    assert_eq!(accepted(&show(&app, "spring").await), 20);
    app.finish().await;
}
