//! Campaigns: plans that end in messages. A stub clock drives their scheduler.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::server::campaigns;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use crate::support::app::{DAY, Subscriber, scalar};
use crate::support::campaigns::{HOUR, MINUTE, accepted, advance, create, order, plan, run_scheduler, show, started};
use crate::support::{START, TestApp, seed};

/// The deliveries that each of these has got.
async fn got(app: &TestApp, subscriber: &Subscriber) -> i64 {
    let id: bellwire_core::id::SubscriptionId = subscriber.id.parse().unwrap();
    sqlx::query_scalar("SELECT count(*) FROM attempts WHERE subscription = $1 AND ending = 1")
        .bind(id.0)
        .fetch_one(&app.pool)
        .await
        .unwrap()
}

/// Reports clicks of so many of a variant's deliveries, past the API.
async fn click(app: &TestApp, variant: i16, n: i64) {
    sqlx::query(
        "INSERT INTO receipt_counts (message, acknowledged, displayed, clicked)
         SELECT id, $2, $2, $2 FROM messages WHERE campaign IS NOT NULL AND variant = $1 ORDER BY id LIMIT 1
         ON CONFLICT (message) DO UPDATE SET clicked = excluded.clicked",
    )
    .bind(variant)
    .bind(n)
    .execute(&app.pool)
    .await
    .unwrap();
}

#[tokio::test]
async fn a_campaign_is_drafted_started_sent_and_done() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..3).await;
    let made = create(&app, plan("spring", json!({"schedule": {"at": json!(START + HOUR)}}))).await;
    assert_eq!((&made["state"], &made["slug"], &made["name"]), (&json!("draft"), &json!("spring"), &json!("spring")));
    run_scheduler(&app).await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM messages").await, 0, "a draft sends nothing");

    let scheduled = order(&app, "spring", "start").await.ok(200);
    assert_eq!((&scheduled["state"], &scheduled["next_at"]), (&json!("scheduled"), &json!(START + HOUR)));
    assert_eq!(order(&app, "spring", "start").await.ok(200)["state"], "scheduled", "again");
    run_scheduler(&app).await;
    let waiting = show(&app, "spring").await;
    assert_eq!((&waiting["state"], &waiting["next_at"]), (&json!("scheduled"), &json!(START + HOUR)));

    advance(&app, HOUR).await;
    let sent = show(&app, made["id"].as_str().unwrap()).await;
    assert_eq!((&sent["state"], accepted(&sent), &sent["runs"]), (&json!("sending"), 3, &json!(1)));
    assert_eq!(sent["progress"]["gateways"][0]["counts"]["accepted"], 3);
    assert_eq!(sent["progress"]["variants"][0]["reports"]["may_report"], 3);
    advance(&app, MINUTE).await;
    assert_eq!(show(&app, "spring").await["state"], "done");
    for verb in ["start", "pause", "resume", "cancel"] {
        assert_eq!(order(&app, "spring", verb).await.ok(409)["code"], "campaign_state", "{verb}");
    }
    app.finish().await;
}

#[tokio::test]
async fn campaign_rows_do_not_grow_with_audience() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    // Estimate of the audience: its members are read only by the fan-out.
    sqlx::query("INSERT INTO audience_changes (topic, lane, n) SELECT 0, id, 9999999 FROM lanes")
        .execute(&app.pool)
        .await
        .unwrap();
    let rows = "SELECT (SELECT count(*) FROM messages) + (SELECT count(*) FROM cursors) + (SELECT count(*) FROM queue)
        + (SELECT count(*) FROM attempts) + (SELECT count(*) FROM message_counts) + (SELECT count(*) FROM campaign_parts)";
    let slug = started(&app, plan("huge", json!({"schedule": {"at": json!(START + HOUR)}}))).await;
    run_scheduler(&app).await;
    assert_eq!(scalar(&app.pool, rows).await, 0);
    assert_eq!(order(&app, &slug, "cancel").await.ok(200)["state"], "cancelled");

    let zones = json!({"at": "2027-01-20T09:00", "timezone": "recipient"});
    let slug = started(&app, plan("around", json!({"schedule": zones}))).await;
    run_scheduler(&app).await;
    let parts = scalar(&app.pool, "SELECT count(*) FROM campaign_parts").await;
    assert!((30..=45).contains(&parts), "one message for each group of zones: {parts}");
    assert_eq!(scalar(&app.pool, rows).await, parts);
    order(&app, &slug, "cancel").await.ok(200);
    assert_eq!(scalar(&app.pool, rows).await, 0);
    advance(&app, 10 * DAY).await;
    assert_eq!(scalar(&app.pool, rows).await, 0);
    sqlx::query("DELETE FROM audience_changes WHERE n = 9999999").execute(&app.pool).await.unwrap();
    app.finish().await;
}

#[tokio::test]
async fn campaign_steers_its_messages_until_cancelled() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..3).await;
    // Its push service is held meanwhile: the engine may send before the order arrives.
    let gateway = format!("/v1/gateways/{}", app.lane("fcm").await);
    let given_while_held = async |slug: &str, verb: &str| {
        app.operate(Method::POST, &format!("{gateway}/hold"), Value::Null).await.ok(200);
        started(&app, plan(slug, json!({}))).await;
        campaigns::advance(&app.pool, &app.vault, &app.clock).await.unwrap();
        let state = order(&app, slug, verb).await.ok(200)["state"].clone();
        app.operate(Method::POST, &format!("{gateway}/release"), Value::Null).await.ok(200);
        run_scheduler(&app).await;
        state
    };
    assert_eq!(given_while_held("spring", "pause").await, "paused");
    assert_eq!(accepted(&show(&app, "spring").await), 0, "its message waits with it");
    assert_eq!(order(&app, "spring", "resume").await.ok(200)["state"], "sending");
    run_scheduler(&app).await;
    assert_eq!(accepted(&show(&app, "spring").await), 3);

    assert_eq!(given_while_held("again", "cancel").await, "cancelled");
    assert_eq!(accepted(&show(&app, "again").await), 0);
    assert_eq!(order(&app, "again", "resume").await.ok(409)["code"], "campaign_state");
    app.sweep().await;
    app.finish().await;
}

#[tokio::test]
async fn local_time_campaign_follows_each_clock() {
    let app = TestApp::start().await; // on a Friday, at 08:00 UTC
    let mut people = Vec::new();
    for (i, zone) in ["Asia/Tokyo", "Asia/Kolkata", "Europe/London", "America/New_York"].iter().enumerate() {
        let i = u32::try_from(i).unwrap();
        people.push(app.subscribe_with("fcm", i..i + 1, json!({"timezone": zone})).await.remove(0));
    }
    people.push(app.subscribe("fcm", 9..10).await.remove(0)); // tells no zone: counts as in the app's, UTC
    let zones = json!({"at": "2027-01-15T12:00", "timezone": "recipient", "past": "tomorrow"});
    let slug = started(&app, plan("noon", json!({"schedule": zones}))).await;
    let mut got_at = vec![None; people.len()];
    for hour in 0..36_u32 {
        run_scheduler(&app).await;
        for (at, person) in got_at.iter_mut().zip(&people) {
            if at.is_none() && got(&app, person).await == 1 {
                *at = Some(hour);
            }
        }
        app.clock.advance(HOUR);
    }
    // 12:00 there is 03:00, 06:30, 12:00, 17:00 and 12:00 UTC; what has passed comes tomorrow.
    assert_eq!(got_at, [Some(19), Some(23), Some(4), Some(9), Some(4)]);
    for person in &people {
        assert_eq!(got(&app, person).await, 1);
    }
    advance(&app, DAY).await;
    assert_eq!(show(&app, &slug).await["state"], "done");
    app.finish().await;
}

#[tokio::test]
async fn recurring_campaign_catches_up_its_last_run() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    let cron = json!({"cron": "0 9 * * *", "timezone": "Europe/Vienna"});
    let slug = started(&app, plan("daily", json!({"schedule": cron}))).await;
    run_scheduler(&app).await;
    assert_eq!(show(&app, &slug).await["next_at"], "2027-01-16T08:00:00Z", "it was started at nine");
    advance(&app, DAY).await;
    advance(&app, MINUTE).await;
    let once = show(&app, &slug).await;
    assert_eq!((accepted(&once), &once["runs"], &once["state"]), (1, &json!(1), &json!("scheduled")));
    // The server is down for three days and an hour.
    advance(&app, 3 * DAY + HOUR).await;
    let later = show(&app, &slug).await;
    assert_eq!((accepted(&later), &later["runs"]), (2, &json!(2)), "of three that were missed the last");
    assert_eq!(later["progress"]["runs"][0]["at"], "2027-01-19T08:00:00Z");
    let twice =
        "INSERT INTO campaign_runs (campaign, run, at, root) SELECT campaign, run + 9, at, root FROM campaign_runs";
    let refused = sqlx::query(twice).execute(&app.pool).await.unwrap_err();
    assert_eq!(refused.as_database_error().and_then(|error| error.constraint()), Some("campaign_runs_once"));
    order(&app, &slug, "cancel").await.ok(200);
    advance(&app, 3 * DAY).await;
    assert_eq!(accepted(&show(&app, &slug).await), 2);
    app.finish().await;
}

#[tokio::test]
async fn concurrent_schedulers_make_each_message_once() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..2).await;
    for slug in ["one", "two", "three"] {
        started(&app, plan(slug, json!({}))).await;
    }
    let looks = (0..8).map(|_| campaigns::advance(&app.pool, &app.vault, &app.clock));
    for look in futures_util::future::join_all(looks).await {
        look.expect("nobody waits for another, nor undoes what they did");
    }
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM messages").await, 3);
    app.run_until_idle().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM attempts").await, 6);
    app.finish().await;
}

#[tokio::test]
async fn variants_and_holdout_divide_the_audience() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..400).await;
    let variants = json!([
        {"name": "plain", "message": {"content": {"title": "Spring"}}},
        {"name": "loud", "weight": 3, "message": {"content": {"title": "SPRING"}}},
    ]);
    let slug = started(&app, plan("split", json!({"variants": variants, "holdout": 0.2}))).await;
    run_scheduler(&app).await;
    let campaign = show(&app, &slug).await;
    let n = |place: usize| campaign["progress"]["variants"][place]["counts"]["accepted"].as_i64().unwrap();
    assert!((50..=110).contains(&n(0)) && (195..=285).contains(&n(1)), "a fifth and three: {} and {}", n(0), n(1));
    assert!((280..=360).contains(&accepted(&campaign)), "a fifth is held out");
    let reached = "SELECT count(DISTINCT subscription) FROM attempts";
    assert_eq!(scalar(&app.pool, reached).await, accepted(&campaign));
    assert_eq!(campaign["progress"]["holdout"], 0.2);
    app.finish().await;
}

#[tokio::test]
async fn rest_gets_the_winner_or_the_chosen_variant() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..400).await;
    let variants = json!([
        {"name": "a", "message": {"content": {"title": "A"}}},
        {"name": "b", "message": {"content": {"title": "B"}}},
    ]);
    for (slug, otherwise, clicks, winner, rest) in [
        ("wins", "stop", (2, 40), json!("b"), 1),
        ("draws", "first", (20, 20), Value::Null, 0),
        ("stops", "stop", (20, 20), Value::Null, 2),
    ] {
        let test = json!({"share": 0.5, "after": 3600, "otherwise": otherwise});
        started(&app, plan(slug, json!({"variants": variants, "test": test}))).await;
        run_scheduler(&app).await;
        let halves = show(&app, slug).await;
        let tested = accepted(&halves);
        assert!((140..=260).contains(&tested), "half: {tested}");
        // In percent of what each variant came to, which chance decides.
        let tested_of = |place: usize| halves["progress"]["variants"][place]["counts"]["accepted"].as_i64().unwrap();
        click(&app, 0, tested_of(0) * clicks.0 / 100).await;
        click(&app, 1, tested_of(1) * clicks.1 / 100).await;
        advance(&app, HOUR - MINUTE).await;
        assert_eq!(accepted(&show(&app, slug).await), tested, "its time is not over");
        advance(&app, MINUTE).await;
        let campaign = show(&app, slug).await;
        let run = &campaign["progress"]["runs"][0];
        assert_eq!(run["winner"], winner, "{campaign}");
        assert!(run["confidence"].as_f64().is_some_and(|confidence| (0.5..=1.0).contains(&confidence)), "{run}");
        let all = if rest == 2 { tested } else { 400 };
        assert_eq!(accepted(&campaign), all, "{slug}");
        let part = |place: usize| campaign["progress"]["variants"][place]["counts"]["accepted"].as_i64().unwrap();
        if rest < 2 {
            assert!(part(rest) > part(1 - rest), "{slug}: {} and {}", part(0), part(1));
        }
        // The next one begins with nothing counted.
        sqlx::query("UPDATE messages SET campaign = NULL, variant = NULL").execute(&app.pool).await.unwrap();
        app.clock.advance(DAY);
    }
    app.finish().await;
}

#[tokio::test]
async fn message_keeps_its_pace() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..120).await;
    let slug = started(&app, plan("slow", json!({"pace": {"per_minute": 60}}))).await;
    run_scheduler(&app).await;
    for second in 1..=30 {
        app.advance(Duration::from_secs(1)).await;
        let n = accepted(&show(&app, &slug).await);
        assert!((second - 1..=second + 2).contains(&n), "{n} after {second} s");
    }
    // A worker that was away does not make up for it at once.
    app.clock.advance(Duration::from_secs(60));
    app.run_until_idle().await;
    let n = accepted(&show(&app, &slug).await);
    assert!(n <= 36, "{n}");
    for _ in 0..100 {
        app.advance(Duration::from_secs(1)).await;
    }
    assert_eq!(accepted(&show(&app, &slug).await), 120);
    app.finish().await;
}

#[tokio::test]
async fn follow_up_reaches_those_without_a_click() {
    let app = TestApp::start().await;
    let people = app.subscribe("fcm", 0..4).await;
    started(&app, plan("first", json!({}))).await;
    run_scheduler(&app).await;
    let clicked: bellwire_core::id::SubscriptionId = people[2].id.parse().unwrap();
    sqlx::query("INSERT INTO receipts (message, subscription, kind, shard, at) SELECT id, $1, 2, $2, $3 FROM messages")
        .bind(clicked.0)
        .bind(clicked.shard())
        .bind(app.clock.now())
        .execute(&app.pool)
        .await
        .unwrap();
    let follows = json!({"campaign": "first", "did_not": "click", "after": 86400});
    let slug = started(&app, plan("second", json!({"follows": follows}))).await;
    app.subscribe("fcm", 9..10).await; // did not get the first
    advance(&app, DAY - MINUTE).await;
    assert_eq!(accepted(&show(&app, &slug).await), 0);
    advance(&app, MINUTE).await;
    let mut twice = BTreeSet::new();
    for (place, person) in people.iter().enumerate() {
        if got(&app, person).await == 2 {
            twice.insert(place);
        }
    }
    assert_eq!((twice, accepted(&show(&app, &slug).await)), (BTreeSet::from([0, 1, 3]), 3));
    app.finish().await;
}

#[tokio::test]
async fn withdrawn_campaign_has_no_follow_up() {
    let app = TestApp::start().await;
    let person = app.subscribe("fcm", 0..1).await.remove(0);
    started(&app, plan("first", json!({}))).await;
    run_scheduler(&app).await;
    let follows = json!({"campaign": "first", "did_not": "click", "after": 3600});
    let slug = started(&app, plan("second", json!({"follows": follows}))).await;
    order(&app, "first", "withdraw").await.ok(200);
    advance(&app, 2 * HOUR).await;
    assert_eq!(accepted(&show(&app, &slug).await), 0);
    let received = app.simulator.received(&person.endpoint).unwrap();
    assert_eq!(received.iter().filter(|it| it.accepted > 0).count(), 2, "the message and its removal");
    app.finish().await;
}

#[tokio::test]
async fn withdrawn_variant_leaves_the_follow_up() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..12).await;
    let variants = json!([{"name": "a", "message": {}}, {"name": "b", "message": {"content": {"title": "Typo"}}}]);
    started(&app, plan("first", json!({"variants": variants}))).await;
    run_scheduler(&app).await;
    let messages = app.get("/v1/apps/shop/messages").await["data"].as_array().unwrap().clone();
    assert_eq!(messages.len(), 2);
    let path = format!("/v1/apps/shop/messages/{}/withdraw", messages[0]["id"].as_str().unwrap());
    app.call(Method::POST, &path, Value::Null).await.ok(200);
    let follows = json!({"campaign": "first", "did_not": "click", "after": 3600});
    let slug = started(&app, plan("second", json!({"follows": follows}))).await;
    advance(&app, 2 * HOUR).await;
    assert_eq!(accepted(&show(&app, &slug).await), 12);
    app.finish().await;
}

#[tokio::test]
async fn expired_campaign_sends_nothing() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    let rule = app.simulator.add_rule(Rule::always(RuleAction::ServerError)).expect("a rule");
    let slug = started(&app, plan("brief", json!({"expires_at": json!(START + HOUR)}))).await;
    run_scheduler(&app).await;
    let message = app.get("/v1/apps/shop/messages").await["data"][0].clone();
    assert_eq!(message["expires_at"], json!(START + HOUR), "its messages live no longer");
    let _ = rule;
    advance(&app, 2 * HOUR).await;
    advance(&app, 2 * HOUR).await;
    app.sweep().await;
    advance(&app, MINUTE).await;
    let campaign = show(&app, &slug).await;
    assert_eq!((accepted(&campaign), &campaign["state"]), (0, &json!("done")), "{campaign}");

    create(&app, plan("late", json!({"expires_at": json!(app.clock.now() + HOUR)}))).await;
    app.clock.advance(2 * HOUR);
    assert_eq!(order(&app, "late", "start").await.ok(409)["code"], "campaign_past");
    app.finish().await;
}

#[tokio::test]
async fn campaign_is_tested_and_its_plan_cloned() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    app.subscribe("fcm", 1..3).await;
    let variants = json!([{"name": "b", "message": {"payload": "for our own handler"}}]);
    create(&app, plan("spring", json!({"variants": variants}))).await;
    let test = |body: Value| app.call(Method::POST, "/v1/apps/shop/campaigns/spring/test", body);
    let sent = test(json!({"users": ["ann"], "variant": "b"})).await.ok(202);
    app.run_until_idle().await;
    assert_eq!(app.counts(sent["id"].as_str().unwrap()).await["accepted"], 1);
    assert_eq!(test(json!({"users": ["ann"], "variant": "c"})).await.ok(422)["errors"][0]["pointer"], "/variant");
    assert_eq!(test(json!({"users": []})).await.ok(422)["errors"][0]["pointer"], "/users");
    assert_eq!(show(&app, "spring").await["progress"]["total"]["targeted"], 0, "that was no part of it");

    let clone = json!({"slug": "summer"});
    let cloned = app.call(Method::POST, "/v1/apps/shop/campaigns/spring/clone", clone).await.ok(201);
    assert_eq!((&cloned["slug"], &cloned["state"]), (&json!("summer"), &json!("draft")));
    let plan_of = async |slug: &str| app.get(&format!("/v1/apps/shop/campaigns/{slug}/plan")).await["variants"].clone();
    assert_eq!(plan_of("summer").await, plan_of("spring").await);
    app.call(Method::DELETE, "/v1/apps/shop/campaigns/spring", Value::Null).await.ok(204);
    let list = app.get("/v1/apps/shop/campaigns?state=draft").await;
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    app.finish().await;
}

#[tokio::test]
async fn list_shows_campaign_progress_and_origin() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..3).await;
    app.simulator.add_rule(Rule { endpoints: Some([0].into()), ..Rule::always(RuleAction::Gone) }).unwrap();
    create(&app, plan("draft", json!({}))).await;
    started(&app, plan("spring", json!({}))).await;
    run_scheduler(&app).await;
    let alone =
        app.call(Method::POST, "/v1/apps/shop/messages", json!({"to": {"all": true}, "content": {"title": "T"}}));
    let alone = alone.await.ok(202)["id"].clone();
    app.run_until_idle().await;

    let list = app.get("/v1/apps/shop/campaigns").await;
    let [sent, draft] = [&list["data"][0], &list["data"][1]];
    assert_eq!((&sent["slug"], &draft["slug"]), (&json!("spring"), &json!("draft")));
    let total = json!({"targeted": 3, "waiting": 0, "accepted": 2, "gone": 1, "expired": 0, "dead": 0, "cancelled": 0, "capped": 0, "sunset": 0});
    let standing = json!({"messages_to_make": 0, "audience_estimate": 3, "expanded": true, "total": total});
    assert_eq!((&sent["standing"], &draft["standing"]), (&standing, &Value::Null));
    assert_eq!(show(&app, "spring").await["progress"]["total"], total, "as its own page has it");

    let messages = app.get("/v1/apps/shop/messages").await;
    for message in messages["data"].as_array().unwrap() {
        let of = if message["id"] == alone { &Value::Null } else { &sent["id"] };
        let shown = app.get(&format!("/v1/apps/shop/messages/{}", message["id"].as_str().unwrap())).await;
        assert_eq!((&message["campaign"], &shown["campaign"]), (of, of));
    }
    assert_eq!(messages["data"].as_array().unwrap().len(), 2);
    app.finish().await;
}

#[tokio::test]
async fn campaign_under_way_counts_rate_since_start() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..200).await;
    let slug = started(&app, plan("young", json!({}))).await;
    run_scheduler(&app).await;
    app.clock.advance(Duration::from_secs(4));
    assert_eq!(show(&app, &slug).await["progress"]["rate_per_second"], 50.0);
    app.finish().await;
}

#[tokio::test]
async fn campaign_names_held_push_service_instead_of_eta() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..200).await;
    seed(&app, "apple", 0..200).await;
    let lane = scalar(&app.pool, "SELECT id::bigint FROM lanes WHERE gateway = 'apple'").await;
    let until = app.clock.now() + 10 * MINUTE;
    let hold = app.operate(Method::POST, &format!("/v1/gateways/{lane}/hold"), json!({"seconds": 600})).await;
    assert_eq!(hold.status, 200, "{hold:?}");
    let slug = started(&app, plan("held", json!({}))).await;
    run_scheduler(&app).await;
    app.clock.advance(Duration::from_secs(4));
    let progress = show(&app, &slug).await["progress"].clone();
    assert_eq!((&progress["rate_per_second"], &progress["eta"]), (&json!(50.0), &Value::Null));
    assert_eq!(progress["held"], json!([{"gateway": "apple", "until": json!(until)}]));

    app.operate(Method::POST, &format!("/v1/gateways/{lane}/release"), json!({})).await.ok(200);
    app.call(Method::POST, "/v1/apps/shop/flow/pause", Value::Null).await.ok(200);
    run_scheduler(&app).await;
    let paused = show(&app, &slug).await["progress"].clone();
    assert_eq!(paused["held"], json!([{"gateway": "apple", "until": null}]), "the flow is paused");
    app.call(Method::POST, "/v1/apps/shop/flow/resume", Value::Null).await.ok(200);
    advance(&app, MINUTE).await;
    let done = show(&app, &slug).await;
    assert_eq!((accepted(&done), &done["progress"]["held"]), (400, &json!([])));
    app.finish().await;
}
