//! Engagement of users and its consequences: sunset rules, personal send hours, and the measurement of their effect.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::server::{campaigns, maintenance};
use bellwire_core::id::{MessageId, SubscriptionId};
use serde_json::{Value, json};

use crate::support::app::{DAY, Reply, Subscriber, scalar, until_waiting};
use crate::support::json::assert_members;
use crate::support::receipts::receipt_token;
use crate::support::{TestApp, seed};

const HOUR: Duration = Duration::from_secs(3_600);

async fn report_reply(app: &TestApp, message: &str, to: &Subscriber, kind: &str) -> Reply {
    let receipt = json!({"receipt": receipt_token(&app.vault, message, &to.id), "kind": kind});
    app.call(Method::POST, "/v1/apps/shop/receipts", receipt).await
}

/// As a service worker does.
async fn report(app: &TestApp, message: &str, to: &Subscriber, kind: &str) {
    assert_eq!(report_reply(app, message, to, kind).await.status, 204);
}

async fn fold(app: &TestApp) {
    maintenance::fold_habits(&app.pool, &app.clock).await.expect("the database answers");
}

/// Sends a message to these, who display it; a day passes.
async fn show(app: &TestApp, to: &[&Subscriber], more: Value) -> String {
    let ids: Vec<&str> = to.iter().map(|to| to.id.as_str()).collect();
    let message = app.send(json!({"subscriptions": ids}), more).await;
    app.run_until_idle().await;
    for to in to {
        report(app, &message, to, "displayed").await;
    }
    app.advance(DAY).await;
    message
}

/// Number of the app's subscriptions that an expression matches.
async fn fits(app: &TestApp, segment: &str) -> i64 {
    let body = json!({"segment": segment, "exact": true});
    let reach = app.call(Method::POST, "/v1/apps/shop/segments/preview", body).await.ok(200);
    reach["reach"]["count"].as_i64().unwrap()
}

async fn got(app: &TestApp, message: &str, to: &Subscriber) -> bool {
    let (message, to): (MessageId, SubscriptionId) = (message.parse().unwrap(), to.id.parse().unwrap());
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM attempts WHERE message = $1 AND subscription = $2 AND ending = 1)")
        .bind(message.0)
        .bind(to.0)
        .fetch_one(&app.pool)
        .await
        .unwrap()
}

/// Explanation of why a subscription was not targeted.
async fn why_not(app: &TestApp, message: &str, to: &Subscriber) -> Value {
    let story = app.get(&format!("/v1/apps/shop/messages/{message}/deliveries/{}/explain", to.id)).await;
    let told = story["story"].as_array().unwrap().iter().find(|told| told["code"] == "not_targeted");
    told.unwrap_or_else(|| panic!("{story}")).clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn displays_since_last_click_count_once_each() {
    let app = TestApp::start().await;
    let phone = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    let laptop = app.subscribe_with("mozilla", 0..1, json!({"user_id": "ann"})).await.remove(0);
    let other = app.subscribe("fcm", 1..2).await.remove(0);
    let first = show(&app, &[&phone, &laptop, &other], json!({})).await;
    fold(&app).await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM habits").await, 2, "a row a person");
    // Service workers that got no answer report again, also long after the first report was added up.
    report(&app, &first, &phone, "displayed").await;
    let second = show(&app, &[&phone], json!({})).await;
    report(&app, &second, &laptop, "displayed").await;
    show(&app, &[&phone, &laptop], json!({"tier": "transactional"})).await;
    fold(&app).await;
    fold(&app).await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM habit_notes").await, 0);
    assert_eq!(fits(&app, "unclicked >= 2 and unclicked < 3 and user = 'ann'").await, 2, "both browsers of hers");
    assert_eq!(fits(&app, "unclicked >= 1 and unclicked < 2 and unclicked_for < 1h").await, 1);
    assert_eq!(fits(&app, "unclicked_for >= 1d and user = 'ann'").await, 2);
    assert_eq!(fits(&app, "exists(last_clicked)").await, 0);
    // A click ends it, whichever browser it is in.
    report(&app, &second, &laptop, "clicked").await;
    fold(&app).await;
    assert_eq!(fits(&app, "unclicked < 1 and last_clicked < 1h").await, 2);
    assert_eq!(fits(&app, "unclicked >= 1").await, 1, "the other one's is as it was");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_folds_count_each_receipt_once() {
    let app = TestApp::start().await;
    let people = app.subscribe("fcm", 0..20).await;
    let people: Vec<&Subscriber> = people.iter().collect();
    show(&app, &people, json!({})).await;
    show(&app, &people, json!({})).await;
    let folds = (0..6).map(|_| maintenance::fold_habits(&app.pool, &app.clock));
    futures_util::future::try_join_all(folds).await.expect("whoever meets another one leaves it to that one");
    assert_eq!(scalar(&app.pool, "SELECT sum(unclicked)::bigint FROM habits").await, 40);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sunset_rule_skips_and_counts_the_unclicked() {
    let app = TestApp::start().await;
    let people = app.subscribe("fcm", 0..3).await;
    let [ignores, clicks, silent] = people.as_slice() else { panic!("three") };
    app.clock.advance(40 * DAY);
    app.sweep().await;
    app.keep_house().await;
    for _ in 0..3 {
        let message = show(&app, &[ignores, clicks], json!({})).await;
        report(&app, &message, clicks, "clicked").await;
    }
    let newcomer = app.subscribe("fcm", 9..10).await.remove(0);
    for _ in 0..3 {
        show(&app, &[&newcomer], json!({})).await;
    }
    fold(&app).await;

    let rule = json!({"sunset": {"unclicked": 3, "unclicked_for": "2d"}});
    let message = app.send(json!({"all": true}), rule).await;
    app.run_until_idle().await;
    assert!(!got(&app, &message, ignores).await, "was shown three messages and clicked none");
    assert!(
        got(&app, &message, clicks).await && got(&app, &message, silent).await && got(&app, &message, &newcomer).await
    );
    let shown = app.message(&message).await;
    assert_members(&shown["counts"], json!({"targeted": 3, "accepted": 3, "sunset": 1}));
    assert_eq!(shown["sunset"], json!({"unclicked": 3, "unclicked_for": "2d", "welcome": "30d"}));
    let told = why_not(&app, &message, ignores).await;
    assert_eq!(
        (&told["facts"]["unclicked"], &told["facts"]["unclicked_for_s"]),
        (&json!(3), &json!(172_800)),
        "{told}"
    );
    assert!(told["text"].as_str().unwrap().contains("shown 3 messages over 2 d and never clicked one"), "{told}");

    // Two more, to whom it would not have been either way, are no part of that count; without newcomers' welcome there is one more.
    let narrow = json!({"sunset": {"unclicked": 3, "welcome": "0d"}});
    let nobody = app.send(json!({"segment": "tag('nobody')"}), narrow.clone()).await;
    let all = app.send(json!({"segment": "not tag('nobody')"}), narrow).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&nobody).await.get("sunset"), None);
    assert_eq!(app.counts(&all).await.get("sunset"), Some(&2));
    // A click makes the subscription a recipient again.
    report(&app, &message, clicks, "displayed").await;
    let last = show(&app, &[ignores], json!({})).await;
    report(&app, &last, ignores, "clicked").await;
    fold(&app).await;
    let again = app.send(json!({"all": true}), json!({"sunset": {"unclicked": 3}})).await;
    app.run_until_idle().await;
    assert!(got(&app, &again, ignores).await);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sunset_rule_counts_each_person_once() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..300).await;
    // Every second one was shown ten messages and clicked none.
    let ignoring =
        "INSERT INTO habits (app, shard, person, noted_at, unclicked, unclicked_from, unclicked_to, recent, hours)
        SELECT app, shard, origin_id, now(), 10, now(), now(), '', decode(repeat('00', 24), 'hex')
        FROM (SELECT *, row_number() OVER (ORDER BY id) AS n FROM subscriptions) s WHERE n % 2 = 0";
    sqlx::query(ignoring).execute(&app.pool).await.unwrap();
    let message = app.send(json!({"all": true}), json!({"sunset": {"unclicked": 10, "welcome": "0d"}})).await;
    app.run_until_idle().await;
    let counts = app.counts(&message).await;
    assert_eq!((counts.get("accepted"), counts.get("sunset")), (Some(&150), Some(&150)), "{counts:?}");
    app.finish().await;
}

#[tokio::test]
async fn wrong_sunset_rule_is_refused() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann", "topics": ["news"]})).await;
    let content = json!({"title": "Hello"});
    for (to, more, pointer) in [
        (json!({"all": true}), json!({"sunset": {}}), "/sunset"),
        (json!({"all": true}), json!({"sunset": {"welcome": "3d"}}), "/sunset"),
        (json!({"all": true}), json!({"sunset": {"unclicked": 0}}), "/sunset/unclicked"),
        (json!({"all": true}), json!({"sunset": {"unclicked": 101}}), "/sunset/unclicked"),
        (json!({"topic": "news"}), json!({"sunset": {"unclicked_for": "soon"}}), "/sunset/unclicked_for"),
        (json!({"topic": "news"}), json!({"sunset": {"unclicked_for": "366d"}}), "/sunset/unclicked_for"),
        (json!({"all": true}), json!({"sunset": {"unclicked": 3, "welcome": "366d"}}), "/sunset/welcome"),
        (json!({"users": ["ann"]}), json!({"sunset": {"unclicked": 3}}), "/sunset"),
        (json!({"all": true}), json!({"tier": "transactional", "sunset": {"unclicked": 3}}), "/sunset"),
    ] {
        let mut body = json!({"to": to, "content": content});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refused = app.call(Method::POST, "/v1/apps/shop/messages", body.clone()).await.ok(422);
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{body} {refused}");
    }
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM messages").await, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_habits_include_unfolded_receipts() {
    let app = TestApp::start().await;
    let ann = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    let bob = app.subscribe_with("fcm", 1..2, json!({"user_id": "bob"})).await.remove(0);
    let message = show(&app, &[&ann, &bob], json!({})).await;
    fold(&app).await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM habits").await, 2);
    report(&app, &message, &ann, "clicked").await;
    report(&app, &message, &bob, "clicked").await;
    app.call(Method::DELETE, "/v1/apps/shop/users/ann", Value::Null).await.ok(200);
    fold(&app).await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM habits").await, 1, "bob's");
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM habits WHERE clicked_at IS NOT NULL").await, 1);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM habit_notes").await, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn erasure_waits_for_a_running_fold() {
    let app = TestApp::start().await;
    let ann = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    show(&app, &[&ann], json!({})).await;
    fold(&app).await;
    // A fold in another process that has read her subscription and is about to write.
    let mut folding = app.pool.begin().await.unwrap();
    for statement in [
        "SELECT pg_advisory_xact_lock(hashtextextended('bellwire.habits', 0))",
        "CREATE TEMPORARY TABLE computed ON COMMIT DROP AS SELECT * FROM habits",
        "DELETE FROM habits",
    ] {
        sqlx::query(statement).execute(&mut *folding).await.unwrap();
    }
    let erase = app.call(Method::DELETE, "/v1/apps/shop/users/ann", Value::Null);
    let write = async {
        until_waiting(&app.pool, 1).await;
        sqlx::query("INSERT INTO habits SELECT * FROM computed").execute(&mut *folding).await.unwrap();
        folding.commit().await.unwrap();
    };
    let (erased, ()) = tokio::join!(erase, write);
    erased.ok(200);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM habits").await, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn habits_expire_with_silence_and_app() {
    let app = TestApp::start().await;
    let people = app.subscribe("fcm", 0..2).await;
    show(&app, &[&people[0], &people[1]], json!({})).await;
    fold(&app).await;
    // Contents go when they are seen to have ended, and have had their grace; then messages may.
    for _ in 0..3 {
        app.advance(Duration::from_secs(301)).await;
        app.sweep().await;
    }
    app.clock.advance(390 * DAY);
    app.keep_house().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM habits").await, 2);
    app.clock.advance(20 * DAY);
    app.keep_house().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM habits").await, 0);
    show(&app, &[&people[0]], json!({})).await;
    fold(&app).await;
    let remove = async || maintenance::remove_apps(&app.pool, app.clock.now()).await.unwrap();
    app.operate(Method::DELETE, "/v1/apps/shop?confirm=shop", Value::Null).await.ok(202);
    remove().await;
    app.clock.advance(Duration::from_secs(61));
    remove().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM habits").await, 0);
    app.finish().await;
}

/// Stores clicks of a user at an hour of the day in UTC, enough to make it their personal send hour.
async fn click_at(app: &TestApp, message: &str, who: &Subscriber, hour: i32) {
    let (message, who): (MessageId, SubscriptionId) = (message.parse().unwrap(), who.id.parse().unwrap());
    sqlx::query(
        "INSERT INTO habit_notes (shard, subscription, message, kind, at)
         SELECT shard, id, $2, 2, date_trunc('day', $4, 'UTC') - make_interval(days => n, hours => -$3, mins => -20)
         FROM subscriptions, generate_series(1, 6) n WHERE id = $1",
    )
    .bind(who.0)
    .bind(message.0)
    .bind(hour)
    .bind(app.clock.now())
    .execute(&app.pool)
    .await
    .unwrap();
}

async fn go(app: &TestApp) {
    campaigns::advance(&app.pool, &app.vault, &app.clock).await.expect("the database answers");
    app.run_until_idle().await;
}

async fn start(app: &TestApp, slug: &str, more: Value) -> Reply {
    let mut plan = json!({"slug": slug, "message": {"to": {"all": true}, "content": {"title": "Spring"}}});
    plan.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = app.call(Method::POST, "/v1/apps/shop/campaigns", plan).await;
    if made.status == 201 {
        return app.call(Method::POST, &format!("/v1/apps/shop/campaigns/{slug}/start"), Value::Null).await;
    }
    made
}

#[tokio::test(flavor = "multi_thread")]
async fn click_moves_nobody_to_another_hour() {
    let app = TestApp::start().await; // at 08:00 UTC
    let people = app.subscribe("fcm", 0..2).await;
    let before = show(&app, &people.iter().collect::<Vec<_>>(), json!({})).await;
    click_at(&app, &before, &people[0], 10).await;
    click_at(&app, &before, &people[1], 12).await;
    fold(&app).await;
    app.advance(HOUR).await;
    start(&app, "own", json!({"schedule": {"at": json!(app.clock.now() + HOUR), "hour": "best"}})).await.ok(200);
    // At eleven the one who got it at ten clicks as often as makes hours of the afternoon theirs; the one of noon becomes one of ten.
    for hour in 9..34 {
        go(&app).await;
        if hour == 11 {
            for _ in 0..4 {
                click_at(&app, &before, &people[0], 15).await;
                click_at(&app, &before, &people[1], 10).await;
            }
            fold(&app).await;
        }
        app.clock.advance(HOUR);
    }
    go(&app).await;
    for who in &people {
        let n: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM attempts a JOIN messages m ON m.id = a.message WHERE m.campaign IS NOT NULL AND a.subscription = $1",
        )
        .bind(who.id.parse::<SubscriptionId>().unwrap().0)
        .fetch_one(&app.pool)
        .await
        .unwrap();
        assert_eq!(n, 1, "once, neither twice nor never");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_hour_campaign_reaches_each_once() {
    let app = TestApp::start().await; // at 08:00 UTC
    let people = [
        app.subscribe("fcm", 0..1).await.remove(0),
        app.subscribe_with("fcm", 1..2, json!({"timezone": "Asia/Tokyo"})).await.remove(0),
        app.subscribe("fcm", 2..3).await.remove(0),
    ];
    let before = show(&app, &[&people[0]], json!({})).await;
    click_at(&app, &before, &people[0], 17).await;
    click_at(&app, &before, &people[1], 3).await; // noon in Tokyo
    fold(&app).await;
    start(&app, "own", json!({"schedule": {"at": json!(app.clock.now() + HOUR), "hour": "best"}})).await.ok(200);
    let mut got_at = [None; 3];
    for hour in 0..30 {
        go(&app).await;
        for (at, who) in got_at.iter_mut().zip(&people) {
            let n: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM attempts a JOIN messages m ON m.id = a.message
                 WHERE m.campaign IS NOT NULL AND a.subscription = $1",
            )
            .bind(who.id.parse::<SubscriptionId>().unwrap().0)
            .fetch_one(&app.pool)
            .await
            .unwrap();
            assert!(n <= 1, "nobody gets it twice");
            *at = at.or((n == 1).then_some(hour));
        }
        app.clock.advance(HOUR);
    }
    // It is due at nine: eight hours to 17:00, eighteen to 03:00 of the next day.
    assert_eq!(got_at, [Some(9), Some(19), Some(1)]);
    go(&app).await;
    assert_eq!(app.get("/v1/apps/shop/campaigns/own").await["state"], "done");
    let of_hours = "SELECT count(*) FROM messages WHERE campaign IS NOT NULL";
    assert_eq!(scalar(&app.pool, of_hours).await, 24, "a message for each hour of the day");
    let first: uuid::Uuid =
        sqlx::query_scalar("SELECT id FROM messages WHERE campaign IS NOT NULL ORDER BY id LIMIT 1")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    let told = why_not(&app, &MessageId(first).to_string(), &people[1]).await;
    assert_eq!(told["facts"]["own_hour"], 12, "{told}");
    app.finish().await;
}

#[tokio::test]
async fn own_hours_exclude_local_time_and_tests() {
    let app = TestApp::start().await;
    let two = json!([{"name": "a", "message": {}}, {"name": "b", "hour": "best", "message": {}}]);
    for (more, pointer) in [
        (json!({"schedule": {"at": "2027-01-20T09:00", "timezone": "recipient", "hour": "best"}}), "/schedule/hour"),
        (json!({"schedule": {"at": "2027-01-20T09:00", "timezone": "recipient"}, "variants": two}), "/variants/1/hour"),
        (json!({"variants": two, "test": {"share": 0.2, "after": 3600}}), "/variants/1/hour"),
    ] {
        let refused = start(&app, "wrong", more.clone()).await.ok(422);
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{more} {refused}");
    }
    start(&app, "fine", json!({"variants": two})).await.ok(200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_share_measures_the_sunset_rule() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..400).await;
    // Half of the people ignore all messages; the others click.
    let ignoring =
        "INSERT INTO habits (app, shard, person, noted_at, unclicked, unclicked_from, unclicked_to, recent, hours)
        SELECT app, shard, origin_id, now(), 20, now(), now(), '', decode(repeat('00', 24), 'hex')
        FROM (SELECT *, row_number() OVER (ORDER BY id) AS n FROM subscriptions) s WHERE n % 2 = 0";
    sqlx::query(ignoring).execute(&app.pool).await.unwrap();
    let variants = json!([
        {"name": "ruled", "message": {"sunset": {"unclicked": 10, "welcome": "0d"}}},
        {"name": "unruled", "message": {}},
    ]);
    start(&app, "measured", json!({"variants": variants, "holdout": 0.1})).await.ok(200);
    go(&app).await;
    let clicked = "INSERT INTO receipt_counts (message, acknowledged, displayed, clicked)
        WITH them AS MATERIALIZED (
          SELECT a.message, s.origin_id FROM attempts a JOIN subscriptions s ON s.shard = a.shard AND s.id = a.subscription
          WHERE a.ending = 1)
        SELECT message, count(*), count(*), count(*) FROM them
        WHERE NOT EXISTS (SELECT FROM habits h WHERE h.person = them.origin_id) GROUP BY message";
    sqlx::query(clicked).execute(&app.pool).await.unwrap();
    let campaign = app.get("/v1/apps/shop/campaigns/measured").await;
    let [ruled, unruled] = [0, 1].map(|place| campaign["progress"]["variants"][place].clone());
    let n = |of: &Value, at: &str| of.pointer(at).and_then(Value::as_i64).unwrap_or_else(|| panic!("{at} {of}"));
    assert_eq!(n(&unruled, "/counts/sunset"), 0);
    let (spared, sent) = (n(&ruled, "/counts/sunset"), n(&ruled, "/counts/accepted"));
    assert!((50..=130).contains(&spared) && (50..=130).contains(&sent), "about half: {spared} of {sent}");
    assert_eq!(n(&ruled, "/reports/clicked"), sent, "all whom it was sent to click");
    let (all, clicks) = (n(&unruled, "/counts/accepted"), n(&unruled, "/reports/clicked"));
    assert!(
        clicks < all && (50..=130).contains(&clicks),
        "as many clicks as with the rule, give or take chance: {clicks} of {all}"
    );
    assert_eq!(n(&campaign, "/progress/total/sunset"), spared);
    assert!(spared + sent + all < 400, "people are held out of both");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn campaign_receipts_are_shown_by_push_service() {
    let app = TestApp::start().await;
    let chrome = app.subscribe("fcm", 0..3).await;
    let firefox = app.subscribe("mozilla", 0..1).await.remove(0);
    start(&app, "own", json!({})).await.ok(200);
    let shown = async || app.get("/v1/apps/shop/campaigns/own/gateways").await["data"].clone();
    assert_eq!(shown().await, json!([]), "nothing was sent yet");
    go(&app).await;
    let message = sqlx::query_scalar("SELECT id FROM messages WHERE campaign IS NOT NULL").fetch_one(&app.pool).await;
    let message = MessageId(message.unwrap()).to_string();
    for (who, kind) in
        [(&chrome[0], "displayed"), (&chrome[0], "clicked"), (&chrome[1], "displayed"), (&firefox, "displayed")]
    {
        report(&app, &message, who, kind).await;
    }
    assert_eq!(
        shown().await,
        json!([
            {"gateway": "fcm", "accepted": 3, "displayed": 2, "clicked": 1},
            {"gateway": "mozilla", "accepted": 1, "displayed": 1, "clicked": 0},
        ])
    );
    app.finish().await;
}
