//! Segments: a message reaches exactly the subscriptions that match at the time of the fan-out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use axum::http::Method;
use bellwire_core::clock::first_uuid_of;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{LaneId, MessageId, SubscriptionId};
use bellwire_segment::Expression;
use bellwire_store::queue::claims::{DueSpan, LEASE, TakeBatchResult, take_batch};
use serde_json::{Value, json};

use crate::support::app::{PATIENCE, Subscriber};
use crate::support::engine::{expire_leases, without_engine};
use crate::support::simulator_rules::{held, hold_after, release, until_report};
use crate::support::{Server, TestApp, note, seed};

/// The subscriptions that a message was delivered to.
async fn reached(app: &TestApp, message: &str) -> BTreeSet<String> {
    let id: MessageId = message.parse().expect("an id");
    let attempts = "SELECT 'sub_' || subscription FROM attempts WHERE message = $1 AND ending = 1";
    let reached = sqlx::query_scalar(attempts).bind(id.0).fetch_all(&app.pool).await.expect("attempts");
    reached.into_iter().collect()
}

fn ids<'a>(subscribers: impl IntoIterator<Item = &'a Subscriber>) -> BTreeSet<String> {
    subscribers.into_iter().map(|subscriber| subscriber.id.clone()).collect()
}

/// One subscriber for each of these details, the first of them with index 0.
async fn subscribe_each(app: &TestApp, gateway: &str, details: &[Value]) -> Vec<Subscriber> {
    let mut subscribers = Vec::new();
    for (n, details) in (0..).zip(details) {
        subscribers.extend(app.subscribe_with(gateway, n..n + 1, details.clone()).await);
    }
    subscribers
}

/// Holds all requests from now on, until [`let_go`].
async fn hold_back(app: &TestApp) {
    app.operate(Method::POST, "/v1/apps/shop/flow/pause", Value::Null).await.ok(200);
    app.run_until_idle().await;
}

async fn let_go(app: &TestApp) {
    app.operate(Method::POST, "/v1/apps/shop/flow/resume", Value::Null).await.ok(200);
    app.run_until_idle().await;
}

async fn preview(app: &TestApp, segment: &str, exact: bool) -> Value {
    let body = json!({"segment": segment, "exact": exact});
    app.call(Method::POST, "/v1/apps/shop/segments/preview", body).await.ok(200)
}

/// Adds `n` copies of the first subscription with unusable keys. Each one whose number is a multiple of `every` has the tag `few`.
async fn add_extras(app: &TestApp, n: i32, every: i32) {
    let extras = "WITH first AS (SELECT * FROM subscriptions LIMIT 1),
        new AS (SELECT n, (substr(uuid_send($1)::text, 3, 12) || lpad(to_hex(n), 20, '0'))::uuid AS id FROM generate_series(1, $2) n)
        INSERT INTO subscriptions (shard, id, app, lane, state, origin_id, since, endpoint_mac, address, tags, attributes,
            last_seen, created_at)
        SELECT n & 63, new.id, app, lane, 'active', new.id, since, sha256(uuid_send(new.id)), address,
            CASE WHEN n % $3 = 0 THEN ARRAY['few'] ELSE '{}' END, jsonb_build_object('n', n % 10), last_seen, created_at
        FROM new CROSS JOIN first";
    let id = first_uuid_of(app.clock.now());
    sqlx::query(extras).bind(id).bind(n).bind(every).execute(&app.pool).await.expect("subscriptions");
    let mut connection = app.pool.acquire().await.expect("a connection");
    let lane = "SELECT min(lane) FROM subscriptions";
    let lane: i32 = sqlx::query_scalar(lane).fetch_one(&mut *connection).await.expect("a lane");
    note(&mut connection, lane, n.into(), app.clock.now()).await;
}

#[tokio::test]
async fn segment_message_reaches_exactly_its_members() {
    let app = TestApp::start().await;
    let details = [
        json!({"user_id": "ann", "tags": ["beta"], "attributes": {"plan": "pro"}, "locale": "de-AT", "topics": ["news"]}),
        json!({"user_id": "bob", "attributes": {"plan": "pro", "country": "FR"}, "timezone": "Europe/Paris", "topics": ["news"]}),
        json!({"attributes": {"plan": "free", "seats": 3, "vip": true, "renews": "2027-01-20"}, "locale": "en"}),
        json!({"tags": ["beta", "staff"]}),
    ];
    let fcm = subscribe_each(&app, "fcm", &details).await;
    let mozilla = app.subscribe_with("mozilla", 0..1, json!({"attributes": {"plan": "pro"}})).await;
    for (segment, expected) in [
        (r#"plan = "pro""#, vec![&fcm[0], &fcm[1], &mozilla[0]]),
        (r#"(plan = "pro" or tag("beta")) and country not in ("FR", "DE")"#, vec![&fcm[0], &fcm[3], &mozilla[0]]),
        (r#"tag("staff") or locale = "de-at""#, vec![&fcm[0], &fcm[3]]),
        (r#"language in ("de", "en") and not vip = true"#, vec![&fcm[0]]),
        (r#"browser = "firefox""#, vec![&mozilla[0]]),
        (r#"gateway = "apple""#, vec![]),
        (r#"topic("news") and not tag("beta")"#, vec![&fcm[1]]),
        (r#"exists(user) and timezone = "Europe/Paris" or seats >= 3"#, vec![&fcm[1], &fcm[2]]),
        (r#"renews > now and renews < now + 30d"#, vec![&fcm[2]]),
        (r#"user in ("bob", "cleo")"#, vec![&fcm[1]]),
        ("age > 1d or last_seen > 1d", vec![]),
        ("not age > 1d", fcm.iter().chain(&mozilla).collect()),
    ] {
        let message = app.send(json!({"segment": segment}), json!({})).await;
        app.run_until_idle().await;
        assert_eq!(reached(&app, &message).await, ids(expected.iter().copied()), "{segment}");
        let shown = app.message(&message).await;
        assert_eq!(shown["counts"]["accepted"], expected.len(), "{segment}");
        assert_eq!((&shown["state"], &shown["expanded"]), (&json!("done"), &json!(true)), "{segment}");
        assert_eq!(shown["audience_estimate"], expected.len(), "so few are counted: {segment}");
        let exact = preview(&app, segment, true).await;
        assert_eq!(exact["reach"], json!({"count": expected.len(), "margin": 0, "of": 5, "exact": true}), "{segment}");
    }
    app.finish().await;
}

#[tokio::test]
async fn segment_narrows_topic_or_everyone_and_stays() {
    let app = TestApp::start().await;
    let details = [json!({"topics": ["news"], "tags": ["vip"]}), json!({"topics": ["news"]}), json!({"tags": ["vip"]})];
    let all = subscribe_each(&app, "fcm", &details).await;
    let path = "/v1/apps/shop/segments/vips";
    app.call(Method::PUT, path, json!({"expression": "tag('vip')"})).await.ok(201);
    let to_topic = json!({"topic": "news", "segment": "vips"});
    let dry = app
        .call(Method::POST, "/v1/apps/shop/messages?dry_run=true", json!({"to": to_topic, "content": {"title": "T"}}))
        .await
        .ok(200);
    assert_eq!((&dry["audience_estimate"], &dry["audience_margin"]), (&json!(1), &json!(0)));

    hold_back(&app).await;
    let topic = app.send(to_topic.clone(), json!({})).await;
    let everyone = app.send(json!({"all": true, "segment": "vips"}), json!({})).await;
    app.call(Method::PUT, path, json!({"expression": "not tag('vip')"})).await.ok(200);
    let after = app.send(json!({"segment": "vips"}), json!({})).await;
    assert_eq!(app.call(Method::DELETE, path, Value::Null).await.status, 204);
    assert_eq!(app.message(&topic).await["state"], "sending", "nobody is found yet");
    let_go(&app).await;
    assert_eq!(reached(&app, &topic).await, ids([&all[0]]));
    assert_eq!(reached(&app, &everyone).await, ids([&all[0], &all[2]]));
    assert_eq!(reached(&app, &after).await, ids([&all[1]]));
    let shown = app.message(&topic).await;
    assert_eq!((&shown["to"], &shown["segment"]), (&to_topic, &json!("tag(\"vip\")")));
    app.finish().await;
}

#[tokio::test]
async fn past_engagement_decides_segment_membership() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..4).await;
    let first = app.send(json!({"subscriptions": [all[0].id, all[1].id, all[2].id]}), json!({})).await;
    app.run_until_idle().await;
    let id: MessageId = first.parse().expect("an id");
    for (subscriber, kind, ago) in [(&all[0], 1i16, 0), (&all[0], 2, 0), (&all[1], 1, 10), (&all[2], 3, 0)] {
        let receipt = "INSERT INTO receipts (message, subscription, kind, shard, at)
                       SELECT $1, id, $3, shard, $4::timestamptz - $5 * interval '1 day' FROM subscriptions WHERE 'sub_' || id = $2";
        let receipt = sqlx::query(receipt).bind(id.0).bind(&subscriber.id).bind(kind).bind(app.clock.now()).bind(ago);
        assert_eq!(receipt.execute(&app.pool).await.expect("a receipt").rows_affected(), 1);
    }
    app.clock.advance(Duration::from_secs(3_600));
    for (segment, expected) in [
        (format!("received('{first}')"), vec![0, 1, 2]),
        (format!("received('{first}', 2h)"), vec![0, 1, 2]),
        (format!("received('{first}', 30m)"), vec![]),
        (format!("displayed('{first}')"), vec![0, 1]),
        (format!("displayed('{first}', 7d)"), vec![0]),
        (format!("clicked('{first}') or not received('{first}')"), vec![0, 3]),
        (format!("received('{first}') and not clicked('{first}', 7d)"), vec![1, 2]),
        ("clicked('msg_0192a000-0000-7000-8000-000000000001')".to_owned(), vec![]),
    ] {
        let message = app.send(json!({"segment": segment}), json!({})).await;
        app.run_until_idle().await;
        let expected = ids(expected.iter().map(|n| &all[*n]));
        assert_eq!(reached(&app, &message).await, expected, "{segment}");
        assert_eq!(preview(&app, &segment, true).await["reach"]["count"], expected.len(), "{segment}");
    }
    sqlx::query("DELETE FROM receipts").execute(&app.pool).await.expect("they are ours");
    app.finish().await;
}

#[tokio::test]
async fn membership_is_decided_at_fan_out() {
    let app = TestApp::start().await;
    let all = app.subscribe_with("fcm", 0..5, json!({"tags": ["vip"]})).await;
    hold_back(&app).await;
    let message = app.send(json!({"segment": "tag('vip')"}), json!({})).await;
    let path = |n: usize| format!("/v1/apps/shop/subscriptions/{}", all[n].id);
    app.call(Method::PATCH, &path(0), json!({"tags": []})).await.ok(200);
    assert_eq!(app.call(Method::DELETE, &path(1), Value::Null).await.status, 204);
    // Later subscriptions are not recipients, even if they match.
    app.clock.advance(Duration::from_secs(1));
    app.subscribe_with("fcm", 9..10, json!({"tags": ["vip"]})).await;
    // Two browsers whose endpoints change: what they are then decides.
    let replaced = async |n: usize, index: u32, tags: Value| {
        let more = json!({"tags": tags, "replaces": {"id": all[n].id}});
        app.subscribe_with("fcm", index..index + 1, more).await.remove(0)
    };
    let (stays, leaves) = (replaced(2, 12, json!(["vip", "new"])).await, replaced(3, 13, json!([])).await);
    let_go(&app).await;
    assert_eq!(reached(&app, &message).await, ids([&stays, &all[4]]), "{} left", leaves.id);
    let shown = app.message(&message).await;
    assert_eq!((&shown["counts"]["targeted"], &shown["state"]), (&json!(2), &json!("done")));
    let story = app.get(&format!("/v1/apps/shop/messages/{message}/deliveries/{}/explain", all[0].id)).await;
    assert!(story.to_string().contains("did not belong to the message's segment"), "{story}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_segment_fan_out_loses_nobody() {
    const N: u32 = 1_200;
    let app = without_engine().await;
    seed(&app, "fcm", 0..N).await;
    let odd = sqlx::query("UPDATE subscriptions SET tags = '{odd}' WHERE shard % 2 = 1").execute(&app.pool).await;
    let odd = odd.expect("tags").rows_affected();
    let rules = hold_after(&app, 100);
    let server = Server::start(&app).await;
    let message = app.send(json!({"segment": "tag('odd')"}), json!({})).await;
    until_report(&app, |report| report.accepted >= 100 && held(report) >= 30).await;
    server.kill().await;
    release(&app, rules);

    let server = Server::start(&app).await;
    expire_leases(&app.pool).await;
    let report = until_report(&app, |report| report.deliveries >= odd).await;
    assert_eq!((report.deliveries, report.without_id), (odd, 0));
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.worker(app.clock.clone()).await.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], i64::try_from(odd).expect("a count"));
    let others = "SELECT count(*) FROM attempts a JOIN subscriptions s ON s.shard = a.shard AND s.id = a.subscription WHERE s.tags = '{}'";
    assert_eq!(crate::support::app::scalar(&app.pool, others).await, 0);
    app.finish().await;
}

#[tokio::test]
async fn small_segment_is_found_without_delaying_others() {
    let app = TestApp::start().await;
    let mut known = app.subscribe("fcm", 0..16).await;
    // A fan-out comes to them last, by id as well as by shard.
    known.sort_by_key(|of| Reverse(of.id.parse::<SubscriptionId>().expect("an id").shard()));
    known.truncate(3);
    for of in &known {
        let path = format!("/v1/apps/shop/subscriptions/{}", of.id);
        app.call(Method::PATCH, &path, json!({"tags": ["few"]})).await.ok(200);
    }
    add_extras(&app, 30_000, 40_000).await;
    hold_back(&app).await;
    let few = app.send(json!({"segment": "tag('few')"}), json!({})).await;
    let lane = LaneId(i32::try_from(app.lane("fcm").await).expect("a number"));
    for _ in 0..2 {
        let (now, batch) = (app.clock.now(), app.clock.uuid());
        let span = DueSpan::all(lane, Tier::Promotional, now);
        let cut = take_batch(&app.pool, span, 500, batch, now + LEASE).await.expect("an answer");
        assert!(
            matches!(cut, TakeBatchResult::NoRecipients { passed: 4_000..8_000 }),
            "a cut ends, though nobody was found: {cut:?}"
        );
    }
    let others: BTreeMap<&str, String> = BTreeMap::from([
        ("named", app.send(json!({"subscriptions": [known[0].id]}), json!({})).await),
        ("also few", app.send(json!({"segment": "tag('few') and n = 3 or tag('few')"}), json!({})).await),
    ]);
    let_go(&app).await;
    assert_eq!(reached(&app, &few).await, ids(&known), "all of them, though whole cuts found nobody");
    assert_eq!(app.message(&few).await["state"], "done");
    for (what, message) in others {
        assert_eq!(app.message(&message).await["state"], "done", "{what}");
    }
    app.finish().await;
}

#[tokio::test]
async fn reach_is_estimated_or_counted() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    add_extras(&app, 40_000, 1_000).await;
    for (segment, true_count) in [("n < 2", 8_000), ("n = 0 or n = 5", 8_000), ("tag('few')", 40), ("n > 99", 0)] {
        let estimate = preview(&app, segment, false).await["reach"].clone();
        let n = |name: &str| estimate[name].as_i64().expect("a number");
        assert_eq!((n("of"), &estimate["exact"]), (40_001, &json!(false)), "{segment}");
        assert!((n("count") - true_count).abs() <= n("margin") * 3 / 2, "{segment}: {true_count} of {estimate}");
        assert!((1..2_000).contains(&n("margin")), "{segment}: {estimate}");
        let counted = preview(&app, segment, true).await["reach"].clone();
        assert_eq!(counted, json!({"count": true_count, "margin": 0, "of": 40_001, "exact": true}), "{segment}");
    }
    let narrowed = preview(&app, "gateway = 'apple' and n < 2", false).await;
    assert_eq!(narrowed["reach"], json!({"count": 0, "margin": 0, "of": 40_001, "exact": true}), "no lane leads there");
    let body = json!({"to": {"segment": "n < 2"}, "content": {"title": "T"}});
    let dry = app.call(Method::POST, "/v1/apps/shop/messages?dry_run=true", body).await.ok(200);
    let n = |name: &str| dry[name].as_i64().expect("a number");
    assert!((n("audience_estimate") - 8_000).abs() <= n("audience_margin") * 3 / 2, "{dry}");
    app.finish().await;
}

#[tokio::test]
async fn members_are_paged_newest_first() {
    let app = TestApp::start().await;
    let members = app.subscribe_with("fcm", 0..5, json!({"tags": ["few"]})).await;
    app.subscribe("mozilla", 0..3).await;
    let newest: Vec<&str> = members.iter().rev().map(|member| member.id.as_str()).collect();
    let (mut found, mut iterator) = (Vec::new(), String::new());
    loop {
        let page = app.get(&format!("/v1/apps/shop/subscriptions?segment=tag('few')&limit=2{iterator}")).await;
        found.extend(
            page["data"].as_array().expect("rows").iter().map(|row| row["id"].as_str().expect("an id").to_owned()),
        );
        let Some(next) = page["iterator"].as_str() else { break };
        iterator = format!("&iterator={next}");
    }
    assert_eq!(found, newest);
    let with = "/v1/apps/shop/subscriptions?segment=x&tag=few";
    let refused = app.call(Method::GET, with, Value::Null).await.ok(400);
    assert_eq!(refused["errors"][0]["parameter"], "segment");
    let wrong = app.call(Method::GET, "/v1/apps/shop/subscriptions?segment=x%20=", Value::Null).await.ok(400);
    assert!(wrong["detail"].as_str().expect("text").contains("at character 4: expected a text"), "{wrong}");
    app.finish().await;
}

#[tokio::test]
async fn segments_are_managed_and_mistakes_located() {
    let app = TestApp::start().await;
    let at = |name: &str| format!("/v1/apps/shop/segments/{name}");
    let put = async |name: &str, body: Value| app.call(Method::PUT, &at(name), body).await;
    let made = put("paying", json!({"expression": "plan='pro'", "description": "Who pays"})).await.ok(201);
    assert_eq!((&made["expression"], &made["description"]), (&json!("plan = \"pro\""), &json!("Who pays")));
    let changed = put("paying", json!({"expression": "plan != 'free'"})).await.ok(200);
    assert_eq!((&changed["expression"], &changed["description"]), (&json!("plan != \"free\""), &Value::Null));
    put("other", json!({"expression": "tag('x')"})).await.ok(201);
    let list = app.get("/v1/apps/shop/segments").await;
    let names: Vec<&Value> = list["data"].as_array().expect("rows").iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["other", "paying"]);
    assert_eq!(app.get(&at("paying")).await, changed);
    assert_eq!(app.call(Method::DELETE, &at("other"), Value::Null).await.status, 204);
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(app.call(method, &at("other"), Value::Null).await.status, 404);
    }

    let wrong = put("x", json!({"expression": "plan = 'pro' and", "description": "x\u{7}"})).await.ok(422);
    let faults: BTreeMap<_, _> = wrong["errors"]
        .as_array()
        .expect("errors")
        .iter()
        .map(|e| (e["pointer"].clone().to_string(), e["detail"].clone()))
        .collect();
    assert_eq!(faults["\"/expression\""], "at character 17: expected a condition, `not` or `(`, found the end");
    assert!(faults.contains_key("\"/description\""), "{wrong}");
    for name in ["Upper", "-x", "a_b", "preview", &"x".repeat(65)] {
        assert!([400, 405].contains(&put(name, json!({"expression": "tag('x')"})).await.status), "{name}");
    }
    let entries = app.get("/v1/apps/shop/audit-log").await.to_string();
    assert!(entries.contains("segment.set") && entries.contains("segment.removed"), "{entries}");
    app.finish().await;
}

#[tokio::test]
async fn wrong_segment_never_becomes_everybody() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    let content = json!({"title": "T"});
    let segment = |segment: &str| json!({"segment": segment});
    for (to, pointer, detail) in [
        (segment("unheard-of"), "/to/segment", "is neither the name of a segment of this app"),
        (segment("plan = "), "/to/segment", "at character 8: expected a text between quotes"),
        (segment(""), "/to/segment", "at character 1"),
        (json!({"users": ["ann"], "segment": "tag('x')"}), "/to/segment", "is allowed only alone or with"),
        (json!({"subscriptions": [], "segment": "tag('x')"}), "/to/segment", "is allowed only alone or with"),
        (json!({"all": true, "topic": "news", "segment": "tag('x')"}), "/to", "exactly one of"),
    ] {
        let body = json!({"to": to, "content": content, "ttl": -1});
        let refused = app.call(Method::POST, "/v1/apps/shop/messages", body).await.ok(422);
        let errors = refused["errors"].as_array().expect("errors");
        let found =
            errors.iter().find(|error| error["pointer"] == pointer).unwrap_or_else(|| panic!("{to}: {refused}"));
        assert!(found["detail"].as_str().expect("text").contains(detail), "{to}: {refused}");
        assert!(errors.iter().any(|error| error["pointer"] == "/ttl"), "all that is wrong at once: {refused}");
    }
    let batch = json!({"messages": [{"to": {"segment": "tag('x')"}, "content": content}]});
    let batch = app.call(Method::POST, "/v1/apps/shop/messages/batch", batch).await.ok(200);
    assert_eq!(batch["results"][0]["status"], 422, "{batch}");
    let odd = "topic('nwes') or clicked('spring')";
    let sent =
        app.call(Method::POST, "/v1/apps/shop/messages", json!({"to": segment(odd), "content": content})).await.ok(202);
    let warnings = sent["warnings"].to_string();
    assert!(warnings.contains("nwes") && warnings.contains("spring"), "{sent}");
    app.run_until_idle().await;
    assert_eq!(app.message(sent["id"].as_str().expect("an id")).await["counts"]["targeted"], 0);
    app.finish().await;
}

#[test]
fn every_expression_of_the_guide_is_one() {
    let guide =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/segments.md")).expect("a guide");
    let mut tried = 0;
    for block in guide.split("```segment\n").skip(1) {
        for line in block.split("```").next().unwrap_or_default().lines().filter(|line| !line.is_empty()) {
            let expression = Expression::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(Expression::parse(&expression.to_string()).as_ref(), Ok(&expression), "{line}");
            tried += 1;
        }
    }
    assert!(tried >= 12, "the examples are not found: {tried}");
}
