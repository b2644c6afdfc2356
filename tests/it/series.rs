//! Metrics over time equal the message counts, for any time of folding and any interruption. `TestApp::finish` compares the two at the end
//! of every test.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::Method;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::outcomes::rollups;
use serde_json::{Value, json};

use crate::support::api::{TestApi, content, fcm};
use crate::support::app::{DAY, PATIENCE, scalar, until_waiting};
use crate::support::campaigns::{advance, plan, run_scheduler, started};
use crate::support::engine::without_engine;
use crate::support::receipts::{receipt_config, receipt_token, report_receipt};
use crate::support::{Server, TestApp, seed};

const HOUR: Duration = Duration::from_secs(3_600);
const OUTCOMES: [&str; 6] = ["accepted", "gone", "expired", "dead", "cancelled", "capped"];

/// The days around the present time of a test.
fn range(app: &TestApp) -> String {
    let now = app.clock.now();
    let time = |at: chrono::DateTime<chrono::Utc>| at.format("%Y-%m-%dT00:00:00Z").to_string();
    format!("since={}&until={}", time(now - DAY), time(now + DAY))
}

async fn fold(app: &TestApp) {
    while rollups::fold(&app.pool).await.unwrap() {}
}

/// Metrics as shown to operators.
async fn shown(app: &TestApp, query: &str) -> Value {
    app.operate(Method::GET, &format!("/v1/metrics?{}&{query}", range(app)), Value::Null).await.ok(200)
}

/// Sums of a measure over all points, by what they have of a dimension.
fn sums(shown: &Value, dimension: &str, measure: &str) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for point in shown["data"].as_array().unwrap() {
        let of = match &point["dimensions"][dimension] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        *sums.entry(of).or_default() += point["metrics"][measure].as_i64().unwrap();
    }
    sums.retain(|_, n| *n != 0);
    sums
}

/// Counts of a message.
async fn account(app: &TestApp, message: &str) -> BTreeMap<String, i64> {
    let mut counts = app.counts(message).await;
    counts.retain(|name, _| OUTCOMES.contains(&name.as_str()));
    counts
}

fn failing(endpoints: std::ops::Range<u32>, status: u16) -> Rule {
    let action = RuleAction::Answer { status, headers: Vec::new(), body: String::new() };
    Rule { endpoints: Some(endpoints.collect()), ..Rule::always(action) }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_equal_the_accounts_of_a_campaign() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..150).await;
    let alone = app.subscribe("mozilla", 500..503).await;
    app.simulator.add_rule(failing(0..10, 410)).unwrap();
    app.simulator.add_rule(failing(10..20, 400)).unwrap();
    app.simulator.add_rule(Rule { attempts: Some([1, 1]), ..failing(20..50, 503) }).unwrap();
    app.simulator.add_rule(failing(50..60, 503)).unwrap();
    let campaign = app.send(json!({"all": true}), json!({"ttl": 600})).await;
    app.run_until_idle().await;
    let lone = app.send(json!({"subscriptions": [alone[0].id]}), json!({"tier": "transactional"})).await;
    app.run_until_idle().await;
    fold(&app).await; // what comes later is added to rows that are there
    for _ in 0..8 {
        app.advance(Duration::from_secs(90)).await;
        app.sweep().await;
    }
    let cancelled = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    app.steer(&cancelled, "cancel").await;
    app.advance(Duration::from_secs(90)).await;
    fold(&app).await;

    let of_campaign = account(&app, &campaign).await;
    assert!(["accepted", "gone", "expired", "dead"].iter().all(|outcome| of_campaign[*outcome] > 0), "{of_campaign:?}");
    let mut all = BTreeMap::new();
    for message in [&campaign, &lone, &cancelled] {
        account(&app, message).await.into_iter().for_each(|(name, n)| *all.entry(name).or_insert(0) += n);
    }
    for step in ["", "&step=1m", "&step=1h", "&step=1d"] {
        // Of the two days, fewer minutes can be shown at a time.
        let now = app.clock.now();
        let times = format!("since={}&until={}", (now - HOUR).to_rfc3339(), now.to_rfc3339());
        let query = format!("{}&measures=ended&by=outcome{step}", times.replace('+', "%2B"));
        let shown = app.operate(Method::GET, &format!("/v1/metrics?{query}"), Value::Null).await.ok(200);
        assert_eq!(sums(&shown, "outcome", "ended"), all, "{step}: {shown}");
        let shown = app.get(&format!("/v1/apps/shop/metrics?{query}")).await;
        assert_eq!(sums(&shown, "outcome", "ended"), all, "of its app, {step}");
        let shown = app.get(&format!("/v1/apps/shop/metrics?{query}&message={campaign}")).await;
        assert_eq!(sums(&shown, "outcome", "ended"), of_campaign, "of the campaign, {step}");
    }
    let by = async |dimension: &str, measure: &str| {
        sums(&shown(&app, &format!("measures={measure}&by={dimension}")).await, dimension, measure)
    };
    let attempts = scalar(&app.pool, "SELECT count(*) FROM attempts WHERE status IS NOT NULL").await;
    assert_eq!(by("status", "attempts").await.values().sum::<i64>(), attempts);
    assert_eq!(by("status", "attempts").await["2xx"], all["accepted"]);
    let retried = scalar(&app.pool, "SELECT count(*) FROM attempts WHERE ending = 2").await;
    assert_eq!(by("gateway", "retried").await, [("fcm".to_owned(), retried)].into());
    assert_eq!(by("tier", "accepted").await["transactional"], 1);
    let latency = shown(&app, "measures=latency_p50,latency_p95,acceptance_rate").await;
    let metrics = |name: &str| latency["data"][0]["metrics"][name].as_f64().unwrap();
    assert!((metrics("acceptance_rate") - all["accepted"] as f64 / all.values().sum::<i64>() as f64).abs() < 1e-9);
    for (name, share) in [("latency_p50", 0.5), ("latency_p95", 0.95)] {
        let truth: f64 = sqlx::query_scalar(
            "SELECT percentile_disc($1) WITHIN GROUP (ORDER BY extract(epoch FROM a.at - m.accepted_at)::float8)
             FROM attempts a JOIN messages m ON m.id = a.message WHERE a.ending = 1",
        )
        .bind(share)
        .fetch_one(&app.pool)
        .await
        .unwrap();
        let (read, truth) = (metrics(name), truth.max(0.01));
        assert!((read / truth).max(truth / read) <= 1.19, "{name} of {truth} s reads as {read} s");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_fold_counts_each_note_once() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..120).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    fold(&app).await;
    let second = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let notes = scalar(&app.pool, "SELECT sum(n)::bigint FROM rollup_notes").await;
    assert!(notes > 0);

    // A process that folds is blocked; it blocks no other, and dies.
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM rollups FOR UPDATE").execute(&mut *held).await.unwrap();
    let pool = app.pool.clone();
    let folding = tokio::spawn(async move { rollups::fold(&pool).await });
    until_waiting(&app.pool, 1).await;
    assert!(!rollups::fold(&app.pool).await.unwrap(), "another one leaves it to the first");
    let third = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&third).await["accepted"], 120, "settling does not wait for it");
    let killed = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event_type = 'Lock'";
    assert_eq!(scalar(&app.pool, killed).await, 1);
    folding.await.unwrap().unwrap_err();
    held.rollback().await.unwrap();
    assert!(scalar(&app.pool, "SELECT sum(n)::bigint FROM rollup_notes").await > notes, "all are there again");

    // Postgres takes a moment to let go of what the dead one had.
    let folded = async {
        while scalar(&app.pool, "SELECT count(*) FROM rollup_notes").await > 0 {
            fold(&app).await;
        }
    };
    tokio::time::timeout(PATIENCE, folded).await.expect("somebody folds");
    fold(&app).await;
    let shown = shown(&app, "measures=accepted&by=gateway").await;
    assert_eq!(sums(&shown, "gateway", "accepted"), [("fcm".to_owned(), 360)].into());
    for message in [message, second, third] {
        let path = format!("/v1/apps/shop/metrics?{}&measures=accepted&message={message}", range(&app));
        assert_eq!(app.get(&path).await["data"][0]["metrics"]["accepted"], 120);
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_backlog_is_folded_in_chunks() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    let (now, lane) = (app.clock.now(), app.lane("fcm").await);
    // 25,000 minutes back from now, one delivery in each.
    let notes = "INSERT INTO rollup_notes (minute, lane, tier, fact, n)
                 SELECT date_trunc('minute', $1::timestamptz) - n * interval '1 minute', $2::integer, 2, 1, 1
                 FROM generate_series(0, 24999) n";
    sqlx::query(notes).bind(now).bind(i32::try_from(lane).unwrap()).execute(&app.pool).await.unwrap();
    let oldest = app.get(&format!("/v1/apps/shop/metrics?{}&measures=accepted", range(&app))).await;
    let complete_until: chrono::DateTime<chrono::Utc> =
        oldest["metadata"]["complete_until"].as_str().unwrap().parse().unwrap();
    assert_eq!((now - complete_until).num_minutes(), 24_999, "it says that nothing is complete since");
    let mut chunks = 1;
    while rollups::fold(&app.pool).await.unwrap() {
        chunks += 1;
    }
    assert_eq!((chunks, scalar(&app.pool, "SELECT count(*) FROM rollup_notes").await), (3, 0));
    for step in 1..=3 {
        let sum: i64 = sqlx::query_scalar("SELECT sum(ns[1])::bigint FROM rollups WHERE step = $1 AND lane = 0")
            .bind(step)
            .fetch_one(&app.pool)
            .await
            .unwrap();
        assert_eq!(sum, 25_000, "of step {step}");
    }
    let all = shown(&app, "measures=accepted&step=1d").await;
    let complete_until = all["metadata"]["complete_until"].as_str().unwrap();
    assert!(now - complete_until.parse::<chrono::DateTime<chrono::Utc>>().unwrap() < chrono::TimeDelta::minutes(2));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_steps_are_listed() {
    let app = TestApp::start().await;
    let to = json!({"subscriptions": [app.subscribe("fcm", 0..1).await[0].id]});
    app.send(to, json!({})).await;
    app.run_until_idle().await;
    fold(&app).await;
    let hours = shown(&app, "measures=accepted,acceptance_rate&step=1h&by=gateway").await;
    let points = hours["data"].as_array().unwrap();
    assert_eq!((points.len(), &hours["metadata"]["row_count"]), (48, &json!(48)));
    let hour_of = |at: chrono::DateTime<chrono::Utc>| at.format("%Y-%m-%dT%H:00:00Z").to_string();
    for point in points {
        let is_now = point["time_bucket"] == hour_of(app.clock.now());
        let expected = if is_now { (json!(1), json!(1.0)) } else { (json!(0), Value::Null) };
        assert_eq!(
            (point["metrics"]["accepted"].clone(), point["metrics"]["acceptance_rate"].clone()),
            expected,
            "{point}"
        );
    }
    let quiet = shown(&app, "measures=dead&step=1d&gateway=apple").await;
    assert_eq!(quiet["data"].as_array().unwrap().len(), 2, "without a dimension there is always one group: {quiet}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_gains_and_losses_show_by_reason() {
    let app = TestApp::start().await;
    let first = app.subscribe("fcm", 0..5).await;
    app.clock.advance(2 * HOUR);
    app.subscribe("mozilla", 100..102).await;
    app.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", first[0].id), Value::Null).await.ok(204);
    app.simulator.add_rule(Rule { endpoints: Some([1].into()), ..Rule::always(RuleAction::Gone) }).unwrap();
    app.send(json!({"subscriptions": [first[1].id]}), json!({})).await;
    app.run_until_idle().await;
    app.clock.advance(2 * HOUR);
    app.come_back("fcm", 1).await;
    app.sweep().await;
    app.sweep().await;
    let lost = shown(&app, "measures=subscriptions_lost&by=reason").await;
    let expected = [("gone".to_owned(), 1), ("unsubscribed".to_owned(), 1)].into();
    assert_eq!(sums(&lost, "reason", "subscriptions_lost"), expected, "{lost}");
    let won = shown(&app, "measures=subscriptions_won&by=gateway").await;
    let expected = [("fcm".to_owned(), 6), ("mozilla".to_owned(), 2)].into();
    assert_eq!(sums(&won, "gateway", "subscriptions_won"), expected);
    let hours = shown(&app, "measures=subscriptions_active&step=1h&by=gateway").await;
    let mut active = BTreeMap::<_, Vec<i64>>::new();
    for point in hours["data"].as_array().unwrap() {
        let gateway = point["dimensions"]["gateway"].as_str().unwrap().to_owned();
        active.entry(gateway).or_default().push(point["metrics"]["subscriptions_active"].as_i64().unwrap());
    }
    active.values_mut().for_each(Vec::dedup);
    assert_eq!(active, [("fcm".to_owned(), vec![0, 5, 3, 4]), ("mozilla".to_owned(), vec![0, 2])].into());
    // A range that ends before all that shows none of it.
    let path = "/v1/metrics?since=START&until=END&measures=subscriptions_active";
    let time = |ago: Duration| (app.clock.now() - ago).format("%Y-%m-%dT%H:00:00Z").to_string();
    let path = path.replace("START", &time(12 * HOUR)).replace("END", &time(3 * HOUR));
    let earlier = app.operate(Method::GET, &path, Value::Null).await.ok(200);
    assert_eq!(earlier["data"][0]["metrics"]["subscriptions_active"], 5, "{earlier}");
    app.finish().await;
}

#[tokio::test]
async fn receipts_show_as_shares_of_what_could_report() {
    let api = TestApi::with(receipt_config(), None).await;
    let mut subscriptions = Vec::new();
    for n in 0..4 {
        let made = api.subscribe(&fcm(&format!("s{n}")), json!({})).await;
        subscriptions.push(made["id"].as_str().unwrap().to_owned());
    }
    let message = json!({"to": {"subscriptions": subscriptions}, "content": content(), "ttl": 60});
    let message = api.post("/messages", message).await.ok(202)["id"].as_str().unwrap().to_owned();
    // Nothing is sent here: a first receipt tells that the push arrived.
    for subscription in &subscriptions[..2] {
        let receipt = receipt_token(&api.vault, &message, subscription);
        for kind in ["displayed", "displayed", "clicked"] {
            report_receipt(&api, json!({"receipt": receipt, "kind": kind})).await.ok(204);
        }
    }
    let closed = receipt_token(&api.vault, &message, &subscriptions[2]);
    report_receipt(&api, json!({"receipt": closed, "kind": "closed"})).await.ok(204);
    while rollups::fold(&api.pool).await.unwrap() {}
    let time = |at: chrono::DateTime<chrono::Utc>| at.format("%Y-%m-%dT00:00:00Z").to_string();
    let now = api.clock.now();
    let query = format!(
        "/metrics?since={}&until={}&measures=accepted,displayed,clicked,closed,display_rate,click_rate",
        time(now - DAY),
        time(now + DAY)
    );
    let shown = api.get(&query).await.ok(200);
    let expected =
        json!({"accepted": 3, "displayed": 2, "clicked": 2, "closed": 1, "display_rate": 2.0 / 3.0, "click_rate": 1.0});
    assert_eq!(shown["data"][0]["metrics"], expected, "{shown}");
}

#[tokio::test]
async fn impossible_charts_are_refused_by_name() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..120).await;
    let campaign = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    fold(&app).await;
    let other = json!({"slug": "other", "name": "Other", "subject": "mailto:ops@example.com"});
    app.operate(Method::POST, "/v1/apps", other).await.ok(201);
    let range = range(&app);
    let lone = app.send(json!({"all": true}), json!({})).await.replace("msg_0", "msg_1");
    for (path, query, parameter) in [
        ("/v1/apps/shop/metrics", "measures=nothing".to_owned(), "measures"),
        ("/v1/apps/shop/metrics", "measures=accepted&lane=999".to_owned(), "lane"),
        ("/v1/apps/other/metrics", format!("measures=accepted&message={campaign}"), "message"),
        ("/v1/apps/other/metrics", format!("measures=accepted&lane={}", app.lane("fcm").await), "lane"),
        ("/v1/metrics", format!("measures=accepted&message={lone}"), "message"),
        ("/v1/metrics", "measures=accepted&app=unknown".to_owned(), "app"),
    ] {
        let refused = app.operate(Method::GET, &format!("{path}?{range}&{query}"), Value::Null).await.ok(400);
        assert_eq!(refused["errors"][0]["parameter"], parameter, "{path}?{query}: {refused}");
    }
    let path = format!("/v1/apps/other/metrics?{range}&measures=accepted");
    let of_other = app.operate(Method::GET, &path, Value::Null).await.ok(200);
    assert_eq!(of_other["data"][0]["metrics"]["accepted"], 0);
    let by_app = shown(&app, "measures=accepted&by=app&app=shop").await;
    assert_eq!(by_app["data"][0]["metrics"]["accepted"], 120, "{by_app}");
    assert_eq!(app.call(Method::GET, &format!("/v1/metrics?{range}&measures=accepted"), Value::Null).await.status, 403);
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_kept_step_is_complete() {
    let app = TestApp::start().await;
    app.clock.advance(Duration::from_secs(17 * 60)); // not at the beginning of a step
    let earliest = app.clock.now() - 2 * DAY;
    let first = chrono::DateTime::from_timestamp(earliest.timestamp() / 1_800 * 1_800, 0).unwrap();
    let row = "INSERT INTO rollups (step, message, lane, start, tier, gateway, facts, ns)
               VALUES (1, '00000000-0000-0000-0000-000000000000', 0, $1, 2, 'fcm', '{1}', '{5}')";
    sqlx::query(row).bind(first).execute(&app.pool).await.unwrap();
    app.keep_house().await;
    let time = |at: chrono::DateTime<chrono::Utc>| at.format("%Y-%m-%dT%H:%M:%SZ").to_string();
    let (start, end) = (time(earliest + chrono::TimeDelta::seconds(1)), time(earliest + chrono::TimeDelta::hours(1)));
    let path = format!("/v1/metrics?since={start}&until={end}&step=30m&measures=accepted");
    let shown = app.operate(Method::GET, &path, Value::Null).await.ok(200);
    assert_eq!(shown["data"][0]["metrics"]["accepted"], 5, "{shown}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_complete_until_unfolded_changes() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    app.sweep().await;
    let unfolded = "INSERT INTO audience_changes (topic, lane, n, at, fact) SELECT 0, id, 0, $1, 40 FROM lanes";
    let ago = app.clock.now() - chrono::TimeDelta::minutes(10);
    sqlx::query(unfolded).bind(ago).execute(&app.pool).await.unwrap();
    let shown = shown(&app, "measures=subscriptions_won").await;
    let complete_until = shown["metadata"]["complete_until"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>();
    assert!(complete_until.unwrap() <= ago, "{shown}");
    app.finish().await;
}

#[tokio::test]
async fn excess_charts_are_asked_to_retry() {
    let api = TestApi::with(
        bellwire::testkit::api::ApiConfig { charts_at_once: 1, place_patience: Duration::ZERO, ..receipt_config() },
        None,
    )
    .await;
    let now = api.clock.now().format("%Y-%m-%dT00:00:00Z");
    let later = (api.clock.now() + DAY).format("%Y-%m-%dT00:00:00Z");
    let query = format!("/metrics?since={now}&until={later}&measures=accepted");
    let mut held = api.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE rollups").execute(&mut *held).await.unwrap();
    let refused = async {
        until_waiting(&api.pool, 1).await;
        let refused = api.get(&query).await;
        held.rollback().await.unwrap();
        refused
    };
    let (first, refused) = tokio::join!(api.get(&query), refused);
    assert_eq!((refused.status, &refused.json["code"]), (503, &json!("charts_busy")));
    first.ok(200);
    api.get(&query).await.ok(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_fold_delays_no_sweep_nor_stop() {
    let app = without_engine().await;
    app.subscribe("fcm", 0..1).await;
    let note = "INSERT INTO rollup_notes (minute, lane, tier, fact, n) SELECT now(), id, 0, 40, 0 FROM lanes";
    sqlx::query(note).execute(&app.pool).await.unwrap();
    let mut held = app.pool.begin().await.unwrap();
    let hold = "SET LOCAL idle_in_transaction_session_timeout = 0; LOCK TABLE rollups IN EXCLUSIVE MODE";
    sqlx::raw_sql(hold).execute(&mut *held).await.unwrap();
    let server = Server::with(&app, &["--shutdown-deadline", "60s"]).await;
    until_waiting(&app.pool, 1).await;
    app.subscribe("fcm", 1..2).await;
    let swept = async { while scalar(&app.pool, "SELECT count(*) FROM audience_changes").await > 0 {} };
    tokio::time::timeout(Duration::from_secs(20), swept).await.expect("the next sweep adds up who is to be reached");
    server.terminate();
    assert!(server.end(Duration::from_secs(20)).await.success());
    held.rollback().await.unwrap();
    app.finish().await;
}

#[tokio::test]
async fn latency_excludes_intended_waiting() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..4).await;
    // 09:00 there.
    let quiet = json!({"timezone": "Europe/Berlin", "quiet_hours": {"from": "22:00", "to": "10:30"}});
    app.call(Method::PUT, "/v1/apps/shop/calendar", quiet).await.ok(200);
    let quiet = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    app.advance(HOUR * 3 / 2).await;
    assert_eq!(app.counts(&quiet).await["accepted"], 4);

    let paused = app.send(json!({"all": true}), json!({"send_at": json!(app.clock.now() + HOUR)})).await;
    app.steer(&paused, "pause").await;
    app.advance(HOUR * 3).await;
    app.steer(&paused, "resume").await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&paused).await["accepted"], 4);

    let paced = started(&app, plan("paced", json!({"pace": {"per_minute": 60}}))).await;
    run_scheduler(&app).await;
    for _ in 0..5 {
        advance(&app, Duration::from_secs(1)).await;
    }
    let shown_paced = app.get(&format!("/v1/apps/shop/campaigns/{paced}")).await;
    assert_eq!(shown_paced["progress"]["total"]["accepted"], 4);

    fold(&app).await;
    let latency = shown(&app, "measures=latency_p99").await;
    let p99 = latency["data"][0]["metrics"]["latency_p99"].as_f64().unwrap();
    assert!(p99 <= 1.0, "{latency}");
    app.finish().await;
}
