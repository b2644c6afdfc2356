//! Protocol on the network, tested by a push service and browsers without code of Bellwire.

use std::collections::HashSet;
use std::time::Duration;

use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bellwire_core::lane::Gateway;
use serde_json::{Value, json};

use crate::support::app::{Setup, TestApp};
use crate::support::push_service::{Browser, PushService};

const HOSTS: [(&str, Gateway); 5] = [
    ("fcm.wire.test", Gateway::Fcm),
    ("mozilla.wire.test", Gateway::Mozilla),
    ("wns.wire.test", Gateway::Wns),
    ("apple.wire.test", Gateway::Apple),
    ("other.wire.test", Gateway::Other),
];

async fn start() -> (TestApp, PushService) {
    let service = PushService::start(&HOSTS).await;
    let others = (service.hosts.clone(), service.ca_pem.clone());
    (TestApp::with(Setup { others, ..Setup::default() }).await, service)
}

/// Registers a browser and returns its id.
async fn register(app: &TestApp, browser: &Browser, more: Value) -> String {
    let mut body = json!({"subscription": browser.to_json()});
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    let made = app.call(Method::POST, "/v1/apps/shop/subscriptions", body).await.ok(201);
    made["id"].as_str().unwrap().to_owned()
}

async fn send_raw(app: &TestApp, to: &str, more: Value) -> String {
    let mut body = json!({"to": {"subscriptions": [to]}});
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    let sent = app.call(Method::POST, "/v1/apps/shop/messages", body).await.ok(202);
    app.run_until_idle().await;
    sent["id"].as_str().unwrap().to_owned()
}

fn parsed(plaintext: &[u8]) -> Value {
    serde_json::from_slice(plaintext).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(plaintext)))
}

#[tokio::test(flavor = "multi_thread")]
async fn push_decrypts_elsewhere_and_for_its_browser_only() {
    let (app, service) = start().await;
    let mut browsers = Vec::new();
    for (host, _) in HOSTS {
        for name in ["one", "two"] {
            let browser = Browser::new(host, name);
            register(&app, &browser, json!({})).await;
            browsers.push(browser);
        }
    }
    let message = app.send(json!({"all": true}), json!({"ttl": 3600, "urgency": "high"})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], 10);
    let (mut salts, mut keys, mut ids, mut receipts) = (HashSet::new(), HashSet::new(), HashSet::new(), HashSet::new());
    for (i, browser) in browsers.iter().enumerate() {
        let pushed = service.pushed_to(browser);
        assert_eq!(pushed.len(), 1, "{}: path and query arrive octet for octet", browser.endpoint);
        let push = &pushed[0];
        let plaintext = parsed(&browser.open(push).expect("its own browser opens it"));
        assert!(browsers[(i + 1) % browsers.len()].open(push).is_err(), "another browser opens it");
        assert_eq!(plaintext["notification"]["title"], "Hello");
        let envelope = &plaintext["notification"]["data"]["bellwire"];
        ids.insert(envelope["id"].as_str().unwrap().to_owned());
        receipts.insert(envelope["receipt"].as_str().unwrap().to_owned());
        // RFC 8188 section 2.1: salt (16), record size (4), length of the key id (1), and the key (RFC 8291 section 4).
        let record_size = u32::from_be_bytes(push.body[16..20].try_into().unwrap()) as usize;
        assert!(push.body.len() - 86 <= record_size && push.body.len() <= 4_096, "a single record");
        assert_eq!(push.body[20..22], [65, 4]);
        salts.insert(push.body[..16].to_vec());
        keys.insert(push.body[21..86].to_vec());
    }
    assert_eq!([salts.len(), keys.len(), ids.len(), receipts.len()], [10; 4], "nothing is shared by two recipients");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn push_has_exactly_the_right_headers() {
    let (app, service) = start().await;
    let browser = Browser::new("mozilla.wire.test", "b");
    let id = register(&app, &browser, json!({})).await;
    let to = json!({"subscriptions": [id]});
    for (more, ttl, urgency, topic) in [
        (json!({}), "86400", "normal", false),
        (json!({"tier": "transactional"}), "600", "high", false),
        (json!({"tier": "engagement"}), "259200", "low", false),
        (json!({"ttl": 7, "urgency": "very-low", "collapse_key": "Ünïcode key, 1"}), "7", "very-low", true),
        (json!({"ttl": 0, "collapse_key": "x"}), "0", "normal", true),
    ] {
        app.send(to.clone(), more.clone()).await;
        app.run_until_idle().await;
        let push = service.pushed().pop().unwrap();
        assert_eq!((push.header("ttl"), push.header("urgency")), (ttl, urgency), "{more}");
        assert_eq!(push.header("content-encoding"), "aes128gcm");
        assert_eq!(push.header("content-length"), push.body.len().to_string());
        assert_eq!(push.headers.contains_key("topic"), topic, "{more}");
        let mut names: Vec<_> = push.headers.keys().map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        let known = ["authorization", "content-encoding", "content-length", "content-type", "topic", "ttl", "urgency"];
        names.retain(|name| !known.contains(&name.as_str()));
        assert!(names.is_empty(), "{names:?}");
    }
    let wns = Browser::new("wns.wire.test", "w");
    let apple = Browser::new("apple.wire.test", "a");
    register(&app, &wns, json!({})).await;
    register(&app, &apple, json!({})).await;
    for (ttl, policy, for_apple) in [(0, "no-cache", "1"), (5, "cache", "5")] {
        app.send(json!({"all": true}), json!({"ttl": ttl})).await;
        app.run_until_idle().await;
        let push = service.pushed_to(&wns).pop().unwrap();
        assert_eq!((push.header("ttl"), push.header("x-wns-cache-policy")), (ttl.to_string().as_str(), policy));
        assert_eq!(service.pushed_to(&apple).pop().unwrap().header("ttl"), for_apple);
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn collapse_key_maps_to_stable_32_characters() {
    let (app, service) = start().await;
    let browsers = HOSTS.map(|(host, _)| Browser::new(host, "b"));
    for browser in &browsers {
        register(&app, browser, json!({})).await;
    }
    for key in ["score", "score", "news"] {
        app.send(json!({"all": true}), json!({"collapse_key": key})).await;
        app.run_until_idle().await;
    }
    let mut seen = HashSet::new();
    for browser in &browsers {
        let topics: Vec<_> = service.pushed_to(browser).iter().map(|push| push.header("topic").to_owned()).collect();
        assert!(topics.len() == 3 && topics[0] == topics[1] && topics[0] != topics[2], "{topics:?}");
        seen.extend(topics);
    }
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|topic| URL_SAFE_NO_PAD.decode(topic).is_ok_and(|octets| octets.len() == 24)), "{seen:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_is_signed_with_its_own_key() {
    let (app, service) = start().await;
    let old = [Browser::new("fcm.wire.test", "old"), Browser::new("wns.wire.test", "old")];
    for browser in &old {
        register(&app, browser, json!({})).await;
    }
    let made = json!({"subject": "https://example.com/contact"});
    let rotated = app.call(Method::POST, "/v1/apps/shop/vapid-keys", made).await.ok(201);
    let new_key = URL_SAFE_NO_PAD.decode(rotated["public_key"].as_str().unwrap()).unwrap();
    let new = [Browser::new("fcm.wire.test", "new"), Browser::new("mozilla.wire.test", "new")];
    for browser in &new {
        register(&app, browser, json!({})).await;
    }
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], 4);
    let now = app.clock.now().timestamp();
    for (browsers, key, subject) in
        [(&old, &app.application_server_key, "mailto:ops@example.com"), (&new, &new_key, "https://example.com/contact")]
    {
        for browser in browsers {
            let (claims, by) = service.pushed_to(browser)[0].vapid();
            assert_eq!(&by, key, "{}", browser.endpoint);
            let origin = browser.endpoint.split("/push").next().unwrap();
            assert_eq!((claims["aud"].as_str(), claims["sub"].as_str()), (Some(origin), Some(subject)));
            let expires_in = claims["exp"].as_i64().expect("an integer") - now;
            assert!((1..=86_400).contains(&expires_in), "{expires_in} s");
        }
    }
    // One token serves for hours, and another follows before it ends.
    let header = |browser| service.pushed_to(browser).pop().unwrap().header("authorization").to_owned();
    let first = header(&old[0]);
    for (after_s, same) in [(3_600, true), (36_000, false)] {
        app.clock.advance(Duration::from_secs(after_s));
        app.send(json!({"all": true}), json!({})).await;
        app.run_until_idle().await;
        assert_eq!(header(&old[0]) == first, same, "after {after_s} s more");
        let (claims, _) = service.pushed_to(&old[0]).pop().unwrap().vapid();
        assert!(claims["exp"].as_i64().unwrap() > app.clock.now().timestamp());
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn padding_hides_small_differences_in_length() {
    let (app, service) = start().await;
    let browser = Browser::new("mozilla.wire.test", "b");
    let id = register(&app, &browser, json!({})).await;
    let sizes = |from: usize| service.pushed()[from..].iter().map(|push| push.body.len()).collect::<HashSet<_>>();
    for octets in [1, 2, 9, 10, 17] {
        send_raw(&app, &id, json!({"payload": "x".repeat(octets)})).await;
    }
    assert_eq!(sizes(0).len(), 1, "{:?}", sizes(0));
    send_raw(&app, &id, json!({"payload": "x".repeat(2_000)})).await;
    assert_eq!(sizes(0).len(), 2);
    // The largest that may be sent fills a push exactly.
    send_raw(&app, &id, json!({"payload": "x".repeat(3_993), "envelope": false})).await;
    assert_eq!(service.pushed().pop().unwrap().body.len(), 4_096);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_payload_arrives_plain_or_enveloped() {
    let (app, service) = start().await;
    let browser = Browser::new("other.wire.test", "b");
    let id = register(&app, &browser, json!({})).await;
    let octets: Vec<u8> = (0..=255).collect();
    let base64 = json!({"base64": STANDARD.encode(&octets)});
    let text = "{\"mine\": \"ümläut \\u0000\"}";
    let last = || browser.open(&service.pushed().pop().unwrap()).unwrap();

    send_raw(&app, &id, json!({"payload": text, "envelope": false})).await;
    assert_eq!(last(), text.as_bytes());
    send_raw(&app, &id, json!({"payload": base64, "envelope": false})).await;
    assert_eq!(last(), octets);

    send_raw(&app, &id, json!({"payload": text})).await;
    let plaintext = parsed(&last());
    assert_eq!(plaintext["payload"], text);
    assert_eq!(plaintext["bellwire"]["retried"], 0);
    send_raw(&app, &id, json!({"payload": base64})).await;
    let plaintext = parsed(&last());
    assert_eq!(URL_SAFE_NO_PAD.decode(plaintext["payload"]["base64"].as_str().unwrap()).unwrap(), octets);
    assert_eq!(plaintext["bellwire"]["id"].as_str().map(str::len), Some(22));
    app.finish().await;
}

/// The envelope of every push to a browser.
fn envelopes(service: &PushService, browser: &Browser) -> Vec<Value> {
    let envelope = |push| parsed(&browser.open(push).unwrap())["notification"]["data"]["bellwire"].clone();
    service.pushed_to(browser).iter().map(envelope).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_delivery_keeps_its_id() {
    let (app, service) = start().await;
    let browser = Browser::new("fcm.wire.test", "b");
    let id = register(&app, &browser, json!({})).await;
    service.answer_next(&[503, 429, 500]);
    let message = app.send(json!({"subscriptions": [id]}), json!({})).await;
    for _ in 0..20 {
        app.run_until_idle().await;
        app.clock.advance(Duration::from_secs(2));
    }
    assert_eq!(app.counts(&message).await["accepted"], 1);
    let envelopes = envelopes(&service, &browser);
    assert_eq!(envelopes.iter().map(|envelope| &envelope["retried"]).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for name in ["id", "receipt"] {
        assert!(envelopes.iter().all(|envelope| envelope[name] == envelopes[0][name]), "{envelopes:?}");
    }
    let salts: HashSet<_> = service.pushed().iter().map(|push| push.body[..86].to_vec()).collect();
    assert_eq!(salts.len(), 4, "a repeat is sealed anew");
    // Another message is another delivery.
    app.send(json!({"subscriptions": [id]}), json!({})).await;
    app.run_until_idle().await;
    let again = self::envelopes(&service, &browser).pop().unwrap();
    assert_ne!((&again["id"], &again["receipt"]), (&envelopes[0]["id"], &envelopes[0]["receipt"]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replacement_inherits_the_delivery_ids() {
    let (app, service) = start().await;
    let (first, second) = (Browser::new("mozilla.wire.test", "first"), Browser::new("mozilla.wire.test", "second"));
    let replaced = register(&app, &first, json!({})).await;
    service.answer_next(&[500]);
    let message = app.send(json!({"subscriptions": [replaced]}), json!({})).await;
    app.run_until_idle().await;
    let new = register(&app, &second, json!({"replaces": {"id": replaced}})).await;
    app.advance(Duration::from_secs(5)).await;
    assert_eq!(app.counts(&message).await["accepted"], 1);
    let (before, after) = (envelopes(&service, &first), envelopes(&service, &second));
    assert_eq!((before.len(), after.len()), (1, 1), "what waited moved to the new browser");
    assert_eq!((&after[0]["id"], &after[0]["retried"]), (&before[0]["id"], &json!(1)));
    assert_ne!(after[0]["receipt"], before[0]["receipt"], "a receipt names its subscription");
    assert_eq!(app.delivery(&message, &new).await["state"], "accepted");
    app.finish().await;
}
