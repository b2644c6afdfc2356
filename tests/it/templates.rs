//! Templates: personal content, from the send to the browser.

use std::time::Duration;

use axum::http::Method;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use crate::support::app::{Subscriber, scalar};
use crate::support::{TestApp, counts};

/// The notifications that a browser was sent, and the envelopes that came with them.
fn shown(app: &TestApp, to: &Subscriber) -> Vec<(Value, Value)> {
    let received = app.simulator.received(&to.endpoint).unwrap_or_default();
    let read = |plaintext: &[u8]| {
        let mut read: Value = serde_json::from_slice(plaintext).unwrap();
        let mut notification = read["notification"].take();
        let envelope = notification["data"]["bellwire"].take();
        (notification, envelope)
    };
    received.iter().map(|delivery| read(delivery.plaintext.as_ref().expect("it was decrypted"))).collect()
}

fn title(app: &TestApp, to: &Subscriber) -> String {
    let shown = shown(app, to);
    assert_eq!(shown.len(), 1, "{shown:?}");
    shown[0].0["title"].as_str().unwrap().to_owned()
}

/// Sends what comes of a template; more members of the request may follow.
async fn send(app: &TestApp, to: Value, template: Value, more: Value) -> String {
    let mut body = json!({"to": to, "template": template});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let sent = app.call(Method::POST, "/v1/apps/shop/messages", body).await.ok(202);
    sent["id"].as_str().unwrap().to_owned()
}

async fn one(app: &TestApp, index: u32, more: Value) -> Subscriber {
    app.subscribe_with("fcm", index..index + 1, more).await.remove(0)
}

async fn know(app: &TestApp, of: &Subscriber, attributes: Value) {
    let path = format!("/v1/apps/shop/subscriptions/{}", of.id);
    app.call(Method::PATCH, &path, json!({"attributes": attributes})).await.ok(200);
}

async fn letters(app: &TestApp, message: &str) -> Vec<Value> {
    let page = app.get(&format!("/v1/apps/shop/dead-letters?message={message}")).await;
    page["data"].as_array().unwrap().clone()
}

const GREETING: &str = "Hello {{ attributes.name }}";

#[tokio::test(flavor = "multi_thread")]
async fn template_reaches_each_in_their_language() {
    let app = TestApp::start().await;
    let mut all = Vec::new();
    for n in 0..120 {
        let locale = ["en", "de-AT", "fr"][n as usize % 3];
        let more = json!({"attributes": {"name": format!("n{n}")}, "locale": locale, "user_id": format!("u{n}"), "topics": if n < 3 { json!(["few"]) } else { json!([]) }});
        all.push(app.subscribe_with(["fcm", "mozilla"][n as usize % 2], n..n + 1, more).await.remove(0));
    }
    let template = json!({
        "content": {"title": GREETING, "url": "https://shop.example/{{ user_id }}"},
        "locales": {"de": {"content": {"title": "Hallo {{ attributes.name }} in {{ data.city }}"}}}
    });
    let many = send(&app, json!({"all": true}), template.clone(), json!({"data": {"city": "Linz"}})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&many).await, counts(&[("targeted", 120), ("accepted", 120), ("awaiting_ack", 120)]));
    for (n, to) in all.iter().enumerate() {
        let expected = if n % 3 == 1 { format!("Hallo n{n} in Linz") } else { format!("Hello n{n}") };
        let (notification, envelope) = &shown(&app, to)[0];
        assert_eq!(notification["title"], expected);
        let lang = if n % 3 == 1 { json!("de") } else { Value::Null };
        assert_eq!(notification["lang"], lang);
        assert_eq!(
            notification["navigate"],
            if n % 3 == 1 { json!("/") } else { json!(format!("https://shop.example/u{n}")) }
        );
        assert_eq!(envelope["receipt"].as_str().map(str::len), Some(64));
    }
    let few = send(&app, json!({"topic": "few"}), template, json!({"data": {"city": "Graz"}})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&few).await["accepted"], 3);
    assert_eq!(shown(&app, &all[1])[1].0["title"], "Hallo n1 in Graz");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn impersonal_template_equals_literal_content() {
    let app = TestApp::start().await;
    let to = one(&app, 0, json!({})).await;
    let template = json!({"content": {"title": "{{ data.word | upper }}", "body": "{{ app.name }}", "url": "https://a.example/{{ data.word }}"}});
    send(&app, json!({"subscriptions": [to.id]}), template, json!({"data": {"word": "tea"}})).await;
    let literal = json!({"content": {"title": "TEA", "body": "Shop", "url": "https://a.example/tea"}});
    app.send(json!({"subscriptions": [to.id]}), literal).await;
    app.run_until_idle().await;
    let shown = shown(&app, &to);
    assert_eq!((shown.len(), &shown[0].0), (2, &shown[1].0));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_attribute_is_dead_without_details() {
    let app = TestApp::start().await;
    // The first few are those that a message is tried on.
    let known = app.subscribe_with("fcm", 0..5, json!({"attributes": {"name": "s3cr3t"}})).await;
    let unknown = one(&app, 5, json!({"attributes": {"other": "s3cr3t"}})).await;
    let template = json!({"content": {"title": GREETING, "body": "wh1sper"}});
    let message = send(&app, json!({"all": true}), template, json!({})).await;
    app.run_until_idle().await;
    assert_eq!(
        app.counts(&message).await,
        counts(&[("targeted", 6), ("accepted", 5), ("awaiting_ack", 5), ("dead", 1)])
    );
    assert!(known.iter().all(|to| title(&app, to) == "Hello s3cr3t") && shown(&app, &unknown).is_empty());
    let letter = letters(&app, &message).await.remove(0);
    assert_eq!((&letter["reason"], &letter["subscription"]), (&json!("unrenderable"), &json!(unknown.id)));
    let detail = letter["detail"].as_str().unwrap();
    assert!(detail.starts_with("/content/title: line 1, column 10: `attributes.name` is not defined"), "{detail}");
    for path in [
        format!("/v1/apps/shop/dead-letters?message={message}"),
        format!("/v1/apps/shop/messages/{message}/deliveries/{}", unknown.id),
        format!("/v1/apps/shop/messages/{message}/deliveries/{}/explain", unknown.id),
    ] {
        let told = app.get(&path).await.to_string();
        assert!(!told.contains("s3cr3t") && !told.contains("wh1sper"), "{told}");
    }
    // Once it is known, a replay says what the message would have said.
    know(&app, &unknown, json!({"name": "Ann"})).await;
    let replay = json!({"filter": {"message": message}});
    app.call(Method::POST, "/v1/apps/shop/dead-letters/replay", replay).await.ok(200);
    app.run_until_idle().await;
    assert_eq!(title(&app, &unknown), "Hello Ann");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overlong_text_is_cut_or_dead_by_choice() {
    let app = TestApp::start().await;
    let short = one(&app, 0, json!({"attributes": {"text": "short"}})).await;
    let long = one(&app, 1, json!({"attributes": {"text": "x".repeat(1_900)}})).await;
    let to = json!({"subscriptions": [short.id, long.id]});
    let content = json!({"title": "T", "body": "{{ attributes.text }}{{ attributes.text }}{{ attributes.text }}"});
    let dead = send(&app, to.clone(), json!({"content": content}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&dead).await, counts(&[("targeted", 2), ("accepted", 1), ("awaiting_ack", 1), ("dead", 1)]));
    let letter = letters(&app, &dead).await.remove(0);
    assert_eq!((&letter["reason"], &letter["subscription"]), (&json!("too_long"), &json!(long.id)));
    let template = json!({"content": content, "too_long": {"cut": "body"}});
    let cut = send(&app, to, template, json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&cut).await, counts(&[("targeted", 2), ("accepted", 2), ("awaiting_ack", 2)]));
    let body = shown(&app, &long)[0].0["body"].as_str().unwrap().to_owned();
    assert!(body.ends_with("x…") && body.chars().count() == 2_000, "{}", body.len());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_renders_current_data_under_same_id() {
    let app = TestApp::start().await;
    let to = one(&app, 0, json!({"attributes": {"name": "Ann"}})).await;
    let rule = Rule { attempts: Some([1, 1]), ..Rule::always(RuleAction::Unavailable { retry_after_s: None }) };
    app.simulator.add_rule(rule).unwrap();
    let message =
        send(&app, json!({"subscriptions": [to.id]}), json!({"content": {"title": GREETING}}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("retrying", 1)]));
    know(&app, &to, json!({"name": "Bea"})).await;
    app.advance(Duration::from_secs(3)).await;
    assert_eq!(title(&app, &to), "Hello Bea");
    let received = app.simulator.received(&to.endpoint).unwrap();
    assert_eq!((received.len(), received[0].attempts.len()), (1, 2), "two requests for one delivery id");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_rendering_shrinks_per_recipient() {
    let app = TestApp::start().await;
    let [first, second] = [("Ann", 0), ("Bea", 1)].map(|(name, index)| (json!({"attributes": {"name": name}}), index));
    let (first, second) = (one(&app, first.1, first.0).await, one(&app, second.1, second.0).await);
    let rule = Rule { endpoints: Some([0].into()), attempts: Some([1, 2]), ..Rule::always(RuleAction::TooLarge) };
    app.simulator.add_rule(rule).unwrap();
    let template = json!({
        "content": {"title": GREETING, "body": "b".repeat(1_000), "image": "https://a.example/i.png"},
        "compact": {"title": "Hi {{ attributes.name }}"}
    });
    let to = json!({"subscriptions": [first.id, second.id]});
    let message = send(&app, to, template, json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 2), ("accepted", 2), ("awaiting_ack", 2)]));
    assert_eq!((title(&app, &first), title(&app, &second)), ("Hi Ann".into(), "Hello Bea".into()));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn message_keeps_a_sealed_template_copy() {
    let app = TestApp::start().await;
    let to = one(&app, 0, json!({"attributes": {"name": "Ann"}})).await;
    let path = "/v1/apps/shop/templates/welcome";
    let stored = |title: &str| json!({"content": {"title": title}});
    app.call(Method::PUT, path, stored("wh1sper {{ attributes.name }}")).await.ok(201);
    let rule = app.simulator.add_rule(Rule::always(RuleAction::Unavailable { retry_after_s: None })).unwrap();
    let before = send(&app, json!({"subscriptions": [to.id]}), json!("welcome"), json!({})).await;
    app.run_until_idle().await;
    app.call(Method::PUT, path, stored("New {{ attributes.name }}")).await.ok(200);
    let after = send(&app, json!({"subscriptions": [to.id]}), json!("welcome"), json!({})).await;
    app.call(Method::DELETE, path, Value::Null).await.ok(204);
    app.simulator.remove_rule(rule);
    // Either may have failed once or twice by now, so their retries are due at different times.
    for _ in 0..3 {
        app.advance(Duration::from_secs(60)).await;
    }
    for message in [&before, &after] {
        assert_eq!(app.counts(message).await["accepted"], 1);
    }
    let mut titles: Vec<_> = shown(&app, &to).into_iter().map(|(shown, _)| shown["title"].to_string()).collect();
    titles.sort();
    assert_eq!(titles, ["\"New Ann\"", "\"wh1sper Ann\""]);
    let plain = "SELECT (SELECT count(*) FROM messages WHERE position('wh1sper'::bytea IN content) > 0)
                      + (SELECT count(*) FROM templates WHERE position('wh1sper'::bytea IN content) > 0)";
    assert_eq!(scalar(&app.pool, plain).await, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_attributes_change_only_their_text() {
    let app = TestApp::start().await;
    let hostile = [
        "\"}],\"navigate\":\"https://evil.example/\"",
        "{{ attributes }}{% for x in y %}",
        "line\nbreak\u{0}\u{1b}[2J",
        "\u{202e}drowssap\u{202c}",
        "javascript:alert(1)//",
        "../../../evil",
        "\\u0022\u{fffd}\u{10ffff}",
    ];
    let mut all = Vec::new();
    for (n, text) in (0..).zip(hostile) {
        // Postgres refuses NUL in JSON, so no subscription has one.
        let text = text.replace('\0', "");
        all.push((one(&app, n, json!({"attributes": {"x": text}})).await, text));
    }
    let template = json!({"content": {
        "title": "[{{ attributes.x }}]", "url": "https://shop.example/?q={{ attributes.x }}", "data": {"x": "{{ attributes.x }}"}
    }});
    let message = send(&app, json!({"all": true}), template, json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], hostile.len() as i64);
    for (to, text) in &all {
        let (notification, envelope) = shown(&app, to).remove(0);
        let clean: String = text.chars().filter(|c| !"\u{1b}\u{202e}\u{202c}".contains(*c)).collect();
        assert_eq!((&notification["title"], &notification["data"]["x"]), (&json!(format!("[{clean}]")), &json!(clean)));
        let link = notification["navigate"].as_str().unwrap();
        assert!(
            link.starts_with("https://shop.example/?q=") && link.is_ascii() && !link[24..].contains(['/', ':', '"']),
            "{link}"
        );
        assert_eq!(envelope["id"].as_str().map(str::len), Some(22));
    }
    app.finish().await;
}
