//! Every answer that a gateway can give, in its own words, and what becomes of the delivery.

use std::ops::RangeInclusive;
use std::time::Duration;

use bellwire_core::clock::Timestamp;
use bellwire_core::id::SubscriptionId;
use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_vault as vault;
use serde_json::{Value, json};
use sqlx::Row as _;

use crate::support::app::{Subscriber, TestApp};
use crate::support::counts;

const ANY: [Gateway; 5] = Gateway::ALL;

/// Response after the first one.
#[derive(Debug, Clone)]
enum Then {
    /// The gateway took it.
    Accepted,
    /// The attempt counted and another is due after this many milliseconds.
    Retry(RangeInclusive<i64>),
    /// It was sent again at once.
    RetriedAtOnce,
    /// No attempt was made, and another is due within half a second.
    Untouched,
    Gone,
    Dead(&'static str),
}

/// The first retry of the promotional tier: 2 s with a fifth of jitter.
const BY_POLICY: Then = Then::Retry(1_600..=2_400);

fn after_s(seconds: i64) -> Then {
    Then::Retry(seconds * 1_000..=seconds * 1_000)
}

/// A gateway's first answer; the status and the words that are kept of it; what follows.
struct Case {
    gateway: Gateway,
    action: RuleAction,
    status: Option<u16>,
    words: &'static str,
    then: Then,
}

fn case(gateway: Gateway, action: RuleAction, status: impl Into<Option<u16>>, words: &'static str, then: Then) -> Case {
    Case { gateway, action, status: status.into(), words, then }
}

fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> RuleAction {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    RuleAction::Answer { status, headers, body: body.to_owned() }
}

/// Sends one message for each case, to a subscription of its own whose first request the gateway answers so.
async fn check(cases: Vec<Case>) {
    let app = TestApp::start().await;
    for (index, case) in (0..).zip(cases) {
        let what = format!("{:?} {:?}", case.gateway, case.action);
        let subscriber = app.subscribe(case.gateway.name(), index..index + 1).await.remove(0);
        let rule = Rule {
            gateway: Some(case.gateway),
            endpoints: Some([index].into()),
            attempts: Some([1, 1]),
            ..Rule::always(case.action.clone())
        };
        app.simulator.add_rule(rule).unwrap();
        let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
        app.run_until_idle().await;
        check_first(&app, &message, &subscriber, &case, &what).await;
        check_end(&app, &message, &subscriber, &case, &what).await;
    }
    app.finish().await;
}

async fn check_first(app: &TestApp, message: &str, subscriber: &Subscriber, case: &Case, what: &str) {
    let delivery = app.delivery(message, &subscriber.id).await;
    let attempts = delivery["attempts"].as_array().unwrap();
    let (state, ending, n) = match case.then {
        Then::Accepted => ("accepted", "accepted", 1),
        Then::Retry(_) => ("retrying", "retry", 1),
        Then::RetriedAtOnce => ("accepted", "retry", 2),
        Then::Untouched => ("queued", "", 0),
        Then::Gone => ("gone", "gone", 1),
        Then::Dead(_) => ("dead", "dead", 1),
    };
    assert_eq!((&delivery["state"], attempts.len()), (&json!(state), n), "{what}: {delivery}");
    let Some(first) = attempts.first() else { return };
    assert_eq!((&first["attempt"], &first["ending"]), (&json!(0), &json!(ending)), "{what}: {delivery}");
    assert_eq!(first["status"], json!(case.status), "{what}: {delivery}");
    assert!(first["took_ms"].is_i64(), "{what}: {delivery}");
    match first["reason"].as_str() {
        None => assert!(case.words.is_empty(), "{what}: {delivery}"),
        Some(reason) => {
            assert!(reason.contains(case.words) && !case.words.is_empty(), "{what}: {delivery}");
            assert!(!reason.contains("https://") && !reason.contains(&subscriber.endpoint), "{what}: {delivery}");
        }
    }
}

async fn check_end(app: &TestApp, message: &str, subscriber: &Subscriber, case: &Case, what: &str) {
    let wait = match &case.then {
        Then::Gone => {
            assert_eq!(app.counts(message).await, counts(&[("targeted", 1), ("gone", 1)]), "{what}");
            let shown = app.get(&format!("/v1/apps/shop/subscriptions/{}", subscriber.id)).await;
            return assert_eq!(shown["state"], "gone", "{what}");
        }
        Then::Dead(reason) => {
            assert_eq!(app.counts(message).await, counts(&[("targeted", 1), ("dead", 1)]), "{what}");
            let letters = dead_letters(app, message).await;
            assert_eq!(letters.len(), 1, "{what}");
            let letter = &letters[0];
            assert_eq!((letter.reason.as_str(), letter.status, letter.retries), (*reason, case.status, 0), "{what}");
            assert!(letter.detail.contains(case.words), "{what}: {letter:?}");
            assert_eq!(letter.policy["baseDelayMs"], 2_000, "{what}: the policy in force");
            let shown = app.get(&format!("/v1/apps/shop/subscriptions/{}", subscriber.id)).await;
            return assert_eq!(shown["state"], "active", "{what} never prunes");
        }
        Then::Retry(wait) => Some(wait.clone()),
        Then::Untouched => Some(50..=500),
        Then::Accepted | Then::RetriedAtOnce => None,
    };
    if let Some(expected) = wait {
        let standing = if matches!(case.then, Then::Untouched) { "queued" } else { "retrying" };
        assert_eq!(app.counts(message).await, counts(&[("targeted", 1), (standing, 1)]), "{what}");
        let wait = due_in(app, message, &subscriber.id).await;
        let ms = i64::try_from(wait.as_millis()).unwrap();
        assert!(expected.contains(&ms), "{what}: due after {ms} ms");
        app.advance(wait - Duration::from_millis(1)).await;
        assert_eq!(app.message(message).await["counts"]["accepted"], 0, "{what}: sent before it was due");
        app.advance(Duration::from_millis(1)).await;
    }
    let end = app.counts(message).await;
    assert_eq!(end, counts(&[("targeted", 1), ("accepted", 1), ("awaiting_ack", 1)]), "{what}");
}

/// Time until a waiting delivery is due.
async fn due_in(app: &TestApp, message: &str, subscription: &str) -> Duration {
    let delivery = app.delivery(message, subscription).await;
    let due_at: Timestamp = delivery["due_at"].as_str().unwrap_or_else(|| panic!("{delivery}")).parse().unwrap();
    (due_at - app.clock.now()).to_std().unwrap_or_default()
}

#[derive(Debug)]
struct DeadLetter {
    reason: String,
    status: Option<u16>,
    detail: String,
    retries: i32,
    policy: Value,
}

async fn dead_letters(app: &TestApp, message: &str) -> Vec<DeadLetter> {
    let id: uuid::Uuid = message.trim_start_matches("msg_").parse().unwrap();
    let rows = sqlx::query("SELECT reason, status, detail, retries, policy FROM dead_letters WHERE message = $1")
        .bind(id)
        .fetch_all(&app.pool)
        .await
        .unwrap();
    let letter = |row: &sqlx::postgres::PgRow| DeadLetter {
        reason: row.get("reason"),
        status: row.get::<Option<i16>, _>("status").map(|status| u16::try_from(status).unwrap()),
        detail: row.get::<Option<String>, _>("detail").unwrap_or_default(),
        retries: row.get("retries"),
        policy: row.get("policy"),
    };
    rows.iter().map(letter).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_2xx_is_accepted_except_wns_drops() {
    let mut cases: Vec<_> = ANY.map(|g| case(g, RuleAction::Behave, 201, "", Then::Accepted)).into();
    for status in [200, 202, 204] {
        cases.push(case(Gateway::Other, answer(status, &[], ""), status, "", Then::Accepted));
    }
    cases.push(case(Gateway::Fcm, RuleAction::Truncate { status: 201 }, 201, "", Then::Accepted));
    for (name, word) in [("x-wns-status", "dropped"), ("x-wns-notificationstatus", "channelthrottled")] {
        let words = ("x-wns-error-description", "the channel is busy");
        let dropped = answer(200, &[(name, word), words], "");
        cases.push(case(Gateway::Wns, dropped, 200, "the channel is busy", BY_POLICY));
    }
    let waiting = answer(201, &[("x-wns-status", "channelthrottled"), ("retry-after", "90")], "later");
    cases.push(case(Gateway::Wns, waiting, 201, "later", after_s(90)));
    cases.push(case(Gateway::Wns, answer(200, &[("x-wns-status", "appthrottled")], "x"), 200, "x", BY_POLICY));
    check(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gone_is_recognised_at_each_gateway() {
    let ended = "unsubscribed or expired";
    let gone = [ended, ended, ended, "Unregistered", ""];
    let unknown = ["valid push subscription endpoint", "", "not recognized", "BadPath", ""];
    let mut cases = Vec::new();
    for (gateway, (gone, unknown)) in ANY.into_iter().zip(gone.into_iter().zip(unknown)) {
        cases.push(case(gateway, RuleAction::Gone, 410, gone, Then::Gone));
        cases.push(case(gateway, RuleAction::NotFound, 404, unknown, Then::Gone));
    }
    let router = answer(400, &[], r#"{"errno": 105, "message": "no such user"}"#);
    cases.push(case(Gateway::Mozilla, router, 400, "no such user", Then::Gone));
    check(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn throttled_retry_takes_the_later_time() {
    let throttled = |retry_after_s| RuleAction::Throttled { retry_after_s };
    let words = ["Too many requests", "Too many requests", "", "TooManyRequests", ""];
    let mut cases = Vec::new();
    for (gateway, words) in ANY.into_iter().zip(words) {
        let status = if gateway == Gateway::Wns { 406 } else { 429 };
        cases.push(case(gateway, throttled(None), status, words, BY_POLICY));
        cases.push(case(gateway, throttled(Some(60)), status, words, after_s(60)));
        cases.push(case(gateway, throttled(Some(0)), status, words, BY_POLICY));
    }
    for (name, value, seconds) in [
        ("x-ratelimit-reset", "30", 30),
        ("x-ratelimit-reset-requests", "1m5s", 65),
        ("retry-after", "Fri, 20 Nov 1970 10:00:00 GMT", 0),
        ("retry-after", "999999", 0), // over a day: ignored
    ] {
        let then = if seconds == 0 { BY_POLICY } else { after_s(seconds) };
        cases.push(case(Gateway::Other, answer(429, &[(name, value)], "slow"), 429, "slow", then));
    }
    check(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_gateway_is_retried_by_policy() {
    let unavailable = |retry_after_s| RuleAction::Unavailable { retry_after_s };
    let mut cases = Vec::new();
    let [text, error] = ["Service unavailable", "Internal error"];
    let words = [(text, error), (text, error), (text, error), ("ServiceUnavailable", "InternalServerError"), ("", "")];
    for (gateway, (words, error)) in ANY.into_iter().zip(words) {
        let own = if gateway == Gateway::Mozilla { after_s(120) } else { BY_POLICY };
        cases.push(case(gateway, unavailable(None), 503, words, own));
        cases.push(case(gateway, unavailable(Some(7)), 503, words, after_s(7)));
        cases.push(case(gateway, RuleAction::ServerError, 500, error, BY_POLICY));
    }
    for status in [408, 500, 502, 503, 504, 507, 599] {
        cases.push(case(Gateway::Other, answer(status, &[], "down"), status, "down", BY_POLICY));
    }
    let again = answer(503, &[], r#"{"errno": 202, "message": "once more"}"#);
    cases.push(case(Gateway::Mozilla, again, 503, "once more", Then::RetriedAtOnce));
    let back_off = answer(500, &[("retry-after", "33")], r#"{"errno": 201}"#);
    cases.push(case(Gateway::Mozilla, back_off, 500, "201", after_s(33)));
    cases.push(case(Gateway::Apple, answer(400, &[], r#"{"reason":"IdleTimeout"}"#), 400, "IdleTimeout", BY_POLICY));
    check(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_failure_is_an_attempt_unless_unprocessed() {
    let mut cases = Vec::new();
    for gateway in [Gateway::Fcm, Gateway::Other] {
        for action in
            [RuleAction::Reset { code: 2 }, RuleAction::Reset { code: 8 }, RuleAction::Close, RuleAction::LoseAnswer]
        {
            cases.push(case(gateway, action, None, "reset", BY_POLICY));
        }
        cases.push(case(gateway, RuleAction::Truncate { status: 503 }, 503, "reason", BY_POLICY));
        cases.push(case(gateway, RuleAction::Reset { code: 7 }, None, "", Then::Untouched));
        cases.push(case(gateway, RuleAction::GoAwayBelow, None, "", Then::Untouched));
    }
    check(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permanent_refusal_is_dead_and_prunes_nothing() {
    let mut cases = Vec::new();
    let bad = ["InvalidTtlParameter", "Missing TTL value", "Ttl value is not valid", "BadTtl", ""];
    let key = ["do not correspond", "public key mismatch", "authentication failed", "VapidPkHashMismatch", ""];
    let status = [403, 401, 401, 400, 403];
    for (i, gateway) in ANY.into_iter().enumerate() {
        cases.push(case(gateway, RuleAction::BadRequest, 400, bad[i], Then::Dead("bad_request")));
        cases.push(case(gateway, RuleAction::Unauthorized, status[i], key[i], Then::Dead("unauthorized")));
        cases.push(case(gateway, RuleAction::TooLarge, 413, "sent again without padding", Then::RetriedAtOnce));
    }
    for header in ["Bellwire-NonRetryable", "Upstash-NonRetryable-Error"] {
        let action = answer(489, &[(header, "true")], "never");
        cases.push(case(Gateway::Other, action, 489, "never", Then::Dead("non_retryable")));
    }
    for status in [402, 405, 406, 409, 418, 422, 451, 489, 499] {
        cases.push(case(Gateway::Other, answer(status, &[], "no"), status, "no", Then::Dead("http_4xx")));
    }
    for status in [300, 301, 302, 304, 308] {
        let action = answer(status, &[("location", "https://fcm.bellwire.test/elsewhere")], "there");
        cases.push(case(Gateway::Other, action, status, "there", Then::Dead("redirected")));
    }
    check(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_refusal_texts_contain_no_endpoint() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("other", 0..1).await.remove(0);
    let body = format!("no such thing: {} (sorry\0)", subscriber.endpoint);
    app.simulator.add_rule(Rule::always(answer(400, &[], &body))).unwrap();
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
    app.run_until_idle().await;
    let delivery = app.delivery(&message, &subscriber.id).await;
    let reason = "no such thing: [redacted] (sorry )";
    assert_eq!(delivery["attempts"][0]["reason"], reason, "{delivery}");
    assert_eq!(dead_letters(&app, &message).await[0].detail, reason);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let target = app.subscribe("mozilla", 0..1).await.remove(0);
    let rule = Rule { gateway: Some(Gateway::Fcm), ..Rule::always(RuleAction::Redirect { to: target.endpoint }) };
    app.simulator.add_rule(rule).unwrap();
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("dead", 1)]));
    assert_eq!(dead_letters(&app, &message).await[0].reason, "redirected");
    let report = app.simulator.report();
    assert_eq!((report.requests, report.hosts["mozilla.bellwire.test"].requests), (1, 0));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exhausted_delivery_is_dead_with_history() {
    let app = TestApp::start().await;
    let [failing, healthy] = app.subscribe("fcm", 0..2).await.try_into().unwrap();
    let rule = Rule { endpoints: Some([0].into()), ..Rule::always(RuleAction::ServerError) };
    app.simulator.add_rule(rule).unwrap();
    let message = app.send(json!({"subscriptions": [failing.id]}), json!({"policy": {"maxAttempts": 5}})).await;
    for (retry, base_ms) in [2_000, 4_000, 8_000, 16_000, 32_000].into_iter().enumerate() {
        app.run_until_idle().await;
        let wait = due_in(&app, &message, &failing.id).await;
        let ms = wait.as_millis();
        assert!((base_ms * 4 / 5..=base_ms * 6 / 5).contains(&ms), "retry {retry} after {ms} ms");
        // The success of another subscription: one subscription's failures in a row are not the gateway's.
        app.send(json!({"subscriptions": [healthy.id]}), json!({})).await;
        app.run_until_idle().await;
        app.clock.advance(wait);
    }
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("dead", 1)]));
    let delivery = app.delivery(&message, &failing.id).await;
    let attempts = delivery["attempts"].as_array().unwrap();
    let endings: Vec<_> = attempts.iter().map(|attempt| attempt["ending"].as_str().unwrap()).collect();
    assert_eq!(endings, ["retry", "retry", "retry", "retry", "retry", "dead"]);
    assert!(attempts.iter().all(|attempt| attempt["status"] == 500), "{delivery}");
    let letters = dead_letters(&app, &message).await;
    assert_eq!((letters[0].reason.as_str(), letters[0].retries), ("retries_exhausted", 5));
    assert_eq!(app.simulator.received(&failing.endpoint).unwrap()[0].attempts.len(), 6, "five retries are six POSTs");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn message_policy_overrides_its_tier() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("other", 0..4).await;
    app.simulator.add_rule(Rule { attempts: Some([1, 1]), ..Rule::always(RuleAction::ServerError) }).unwrap();
    let own = json!({"policy": {"retries": 2, "retryDelay": "5000"}});
    for (subscriber, (more, expected)) in subscribers.iter().zip([
        (json!({"tier": "transactional"}), None),
        (json!({"tier": "promotional"}), Some(1_600..=2_400)),
        (json!({"tier": "engagement"}), Some(48_000..=72_000)),
        (own, Some(5_000..=5_000)),
    ]) {
        let message = app.send(json!({"subscriptions": [subscriber.id]}), more.clone()).await;
        app.run_until_idle().await;
        let state = app.delivery(&message, &subscriber.id).await["state"].clone();
        match expected {
            None => assert_eq!(state, "accepted", "its first retry has no delay"),
            Some(expected) => {
                let ms = due_in(&app, &message, &subscriber.id).await.as_millis();
                assert!(state == "retrying" && expected.contains(&ms), "{more}: {state} for {ms} ms");
            }
        }
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_push_carries_its_remaining_ttl() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let rule = Rule { attempts: Some([1, 2]), ..Rule::always(RuleAction::Unavailable { retry_after_s: Some(20) }) };
    app.simulator.add_rule(rule).unwrap();
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({"ttl": 60})).await;
    app.run_until_idle().await;
    app.advance(Duration::from_millis(20_500)).await;
    app.advance(Duration::from_millis(39_400)).await;
    assert_eq!(app.counts(&message).await["accepted"], 1);
    let received = app.simulator.received(&subscriber.endpoint).unwrap();
    let ttls: Vec<_> = received[0].attempts.iter().map(|attempt| attempt.ttl).collect();
    assert_eq!(ttls, [Some(60), Some(40), Some(1)], "rounded up, at least 1");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn zero_ttl_message_gets_exactly_one_push() {
    let app = TestApp::start().await;
    for gateway in ANY {
        app.subscribe(gateway.name(), 0..2).await;
    }
    app.simulator.add_rule(Rule { endpoints: Some([0].into()), ..Rule::always(RuleAction::ServerError) }).unwrap();
    let message = app.send(json!({"all": true}), json!({"ttl": 0})).await;
    app.run_until_idle().await;
    let end = counts(&[("targeted", 10), ("accepted", 5), ("unconfirmed", 5), ("expired", 5)]);
    assert_eq!(app.counts(&message).await, end);
    app.advance(Duration::from_secs(120)).await;
    assert_eq!((app.simulator.report().requests, app.counts(&message).await), (10, end));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_expiry_expires_at_once() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let to = json!({"subscriptions": [subscriber.id]});
    let rule = Rule { count: Some(1), ..Rule::always(RuleAction::Throttled { retry_after_s: Some(30) }) };
    app.simulator.add_rule(rule).unwrap();
    let refused = app.send(to.clone(), json!({"ttl": 30})).await;
    app.run_until_idle().await;
    let delivery = app.delivery(&refused, &subscriber.id).await;
    assert_eq!((&delivery["state"], &delivery["attempts"][0]["status"]), (&json!("expired"), &json!(429)));
    assert_eq!(app.counts(&refused).await, counts(&[("targeted", 1), ("expired", 1)]));

    // One that the hold keeps back beyond its life expires without a push.
    let late = app.send(to, json!({"ttl": 10})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&late).await, counts(&[("targeted", 1), ("queued", 1)]));
    app.advance(Duration::from_secs(40)).await;
    assert_eq!(app.counts(&late).await, counts(&[("targeted", 1), ("expired", 1)]));
    let delivery = app.delivery(&late, &subscriber.id).await;
    assert_eq!((&delivery["attempts"][0]["status"], &delivery["attempts"][0]["took_ms"]), (&Value::Null, &Value::Null));
    assert_eq!(app.simulator.report().requests, 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gone_browser_ends_only_its_own_deliveries() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe_with("wns", 0..3, json!({"topics": ["news"]})).await;
    let gone = &subscribers[1];
    let ids: Vec<_> = subscribers.iter().map(|subscriber| &subscriber.id).collect();
    let busy = app.simulator.add_rule(Rule::always(answer(200, &[("x-wns-status", "dropped")], ""))).unwrap();
    let retrying = app.send(json!({"subscriptions": ids}), json!({"tier": "engagement"})).await;
    app.run_until_idle().await;
    app.clock.advance(Duration::from_secs(4)); // the holds of the subscriptions are over
    let parked = app.send(json!({"subscriptions": ids}), json!({"tier": "engagement"})).await;
    app.run_until_idle().await;
    app.steer(&parked, "pause").await;
    app.simulator.remove_rule(busy);
    app.clock.advance(Duration::from_secs(8));

    app.simulator.add_rule(Rule { endpoints: Some([1].into()), ..Rule::always(RuleAction::NotFound) }).unwrap();
    let campaign = app.send(json!({"topic": "news"}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&campaign).await["gone"], 1);
    for waiting in [&retrying, &parked] {
        assert_eq!(app.counts(waiting).await, counts(&[("targeted", 3), ("retrying", 2), ("gone", 1)]));
    }
    let delivery = app.delivery(&retrying, &gone.id).await;
    assert_eq!(delivery["state"], "gone", "{delivery}");
    let shown = app.get(&format!("/v1/apps/shop/subscriptions/{}", gone.id)).await;
    assert_eq!((&shown["state"], &shown["topics"]), (&json!("gone"), &json!([])));

    app.steer(&parked, "resume").await;
    app.advance(Duration::from_secs(120)).await;
    let again = app.send(json!({"topic": "news"}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&again).await["targeted"], 2);
    assert_eq!((app.counts(&retrying).await["accepted"], app.counts(&parked).await["accepted"]), (2, 2));
    let requests: usize = app.simulator.received(&gone.endpoint).unwrap().iter().map(|d| d.attempts.len()).sum();
    assert_eq!(requests, 3, "nothing went to it after it was gone");
    app.finish().await;
}

#[tokio::test]
async fn impossible_host_prunes_its_subscription() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let id: SubscriptionId = subscriber.id.parse().unwrap();
    let sealed: Vec<u8> = sqlx::query("SELECT address FROM subscriptions").fetch_one(&app.pool).await.unwrap().get(0);
    let mut address = app.vault.open(vault::ADDRESS, id.0, &sealed).unwrap();
    address.truncate(65 + 16); // p256dh, auth
    address.extend_from_slice(b"https://permanently-removed.invalid/fcm/send/x");
    let update =
        sqlx::query("UPDATE subscriptions SET address = $1").bind(app.vault.seal(vault::ADDRESS, id.0, &address));
    update.execute(&app.pool).await.unwrap();
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.delivery(&message, &subscriber.id).await["state"], "gone");
    assert_eq!(app.get(&format!("/v1/apps/shop/subscriptions/{}", subscriber.id)).await["state"], "gone");
    app.finish().await;
}
