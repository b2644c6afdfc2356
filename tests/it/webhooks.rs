//! Webhooks notify apps of events: signed, at least once, and without delays by other receivers.

mod subscriptions;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::hooks::{Sender, pack};
use bellwire::testkit::server::maintenance;
use bellwire_core::id::{AppId, MessageId, SubscriptionId};
use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::outcomes::alerts::{self, Alert, AlertKind};
use bellwire_vault::delivery_token::receipt_token;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::app::{DAY, scalar};
use crate::support::push_service::{PushService, Pushed};
use crate::support::webhooks::webhook_sender;
use crate::support::{Setup, TestApp, seed};

const HOST: &str = "hooks.example.com";
const ELSEWHERE: &str = "slow.example.com";
const URL: &str = "https://hooks.example.com/in?token=abc";

/// A shop, what sends for it, and two receivers.
struct Stage {
    app: TestApp,
    sender: Sender,
    receiver: PushService,
    elsewhere: PushService,
}

impl Stage {
    async fn set() -> Self {
        Self::with(Setup::default()).await
    }

    async fn with(setup: Setup) -> Self {
        let receiver = PushService::start(&[(HOST, Gateway::Other)]).await;
        let elsewhere = PushService::start(&[(ELSEWHERE, Gateway::Other)]).await;
        let hosts = [receiver.hosts.clone(), elsewhere.hosts.clone()].concat();
        let others = (hosts, format!("{}{}", receiver.ca_pem, elsewhere.ca_pem));
        let app = TestApp::with(Setup { others, ..setup }).await;
        let sender = webhook_sender(&app);
        Self { app, sender, receiver, elsewhere }
    }

    /// Makes a webhook, and returns it with its secret.
    async fn webhook(&self, url: &str, events: &[&str], more: Value) -> Value {
        let mut body = json!({"name": "CRM", "url": url, "events": events});
        body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        self.app.call(Method::POST, "/v1/apps/shop/webhooks", body).await.ok(201)
    }

    async fn pack(&self) {
        pack(&self.app.pool, &self.app.vault, self.app.clock.now()).await.expect("the database answers");
    }

    /// Packs what happened, and sends what is due.
    async fn tell(&self) {
        self.pack().await;
        self.sender.run_until_idle().await.expect("the database answers");
    }

    /// The same when so much time has passed.
    async fn tell_after(&self, time: Duration) {
        self.app.clock.advance(time);
        self.tell().await;
    }

    async fn shown(&self, webhook: &Value) -> Value {
        self.app.get(&at(webhook, "")).await
    }

    /// Requests of a webhook, newest first.
    async fn deliveries(&self, webhook: &Value) -> Vec<Value> {
        self.app.get(&at(webhook, "/deliveries")).await["data"].as_array().unwrap().clone()
    }

    async fn story(&self, webhook: &Value, delivery: &Value) -> Value {
        self.app.get(&at(webhook, &format!("/deliveries/{}", delivery["id"].as_str().unwrap()))).await
    }

    async fn post(&self, webhook: &Value, path: &str, body: Value) -> Value {
        let reply = self.app.call(Method::POST, &at(webhook, path), body).await;
        assert!((200..300).contains(&reply.status), "{path}: {}", reply.json);
        reply.json
    }
}

fn at(webhook: &Value, more: &str) -> String {
    format!("/v1/apps/shop/webhooks/{}{more}", webhook["id"].as_str().unwrap())
}

/// The events of a request.
fn events(request: &Pushed) -> Vec<Value> {
    serde_json::from_slice(&request.body).expect("a JSON array")
}

/// Number of events by type in these requests.
fn types(requests: &[Pushed]) -> BTreeMap<String, usize> {
    let mut types = BTreeMap::new();
    for event in requests.iter().flat_map(events) {
        *types.entry(event["type"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    types
}

/// Index of the secrets that signed a request, by the library of the specification's authors.
fn signed_by(request: &Pushed, secrets: &[&Value]) -> Vec<bool> {
    let timestamp: i64 = request.header("webhook-timestamp").parse().unwrap();
    let given: Vec<&str> = request.header("webhook-signature").split(' ').collect();
    let is_given = |secret: &&Value| {
        let theirs = standardwebhooks::Webhook::new(secret.as_str().unwrap()).unwrap();
        let theirs = theirs.sign(request.header("webhook-id"), timestamp, &request.body).unwrap();
        given.contains(&theirs.as_str())
    };
    secrets.iter().map(is_given).collect()
}

/// Three retries after 10 s each, but for the jitter that takes off a fifth at most.
fn three_retries() -> Value {
    json!({"policy": {"healthyRetryPolicy": {"numRetries": 3, "minDelayTarget": 10, "maxDelayTarget": 10}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_outcomes_are_sent_signed_together() {
    let stage = Stage::set().await;
    let app = &stage.app;
    let known = ["delivery.accepted", "delivery.gone", "delivery.dead"];
    let webhook = stage.webhook(URL, &known, json!({})).await;
    let taken = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    let gone = app.subscribe("mozilla", 1..2).await.remove(0);
    let refused = app.subscribe("wns", 2..3).await.remove(0);
    app.simulator.add_rule(Rule { gateway: Some(Gateway::Mozilla), ..Rule::always(RuleAction::Gone) }).unwrap();
    let refusing = RuleAction::Answer { status: 400, headers: Vec::new(), body: "no".into() };
    app.simulator.add_rule(Rule { gateway: Some(Gateway::Wns), ..Rule::always(refusing) }).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    stage.tell().await;

    let requests = stage.receiver.pushed();
    assert_eq!(requests.len(), 1, "{requests:?}");
    let request = &requests[0];
    assert_eq!((request.path.as_str(), request.header("content-type")), ("/in?token=abc", "application/json"));
    assert_eq!(signed_by(request, &[&webhook["secret"]]), [true]);
    assert_eq!(request.header("webhook-timestamp"), app.clock.now().timestamp().to_string());
    let told = events(request);
    let of = |subscription: &str| told.iter().find(|event| event["data"]["subscription"] == subscription).unwrap();
    assert_eq!(types(&requests), known.map(|name| (name.to_owned(), 1)).into());
    let accepted = of(&taken.id);
    assert_eq!(
        (&accepted["type"], &accepted["data"]),
        (
            &json!("delivery.accepted"),
            &json!({"message": message, "campaign": null, "subscription": taken.id, "user_id": "ann"})
        )
    );
    assert_eq!((&of(&gone.id)["type"], &of(&gone.id)["data"]["status"]), (&json!("delivery.gone"), &json!(410)));
    let dead = of(&refused.id);
    assert_eq!((&dead["data"]["status"], &dead["data"]["attempts"]), (&json!(400), &json!(1)), "{dead}");
    let ids: BTreeSet<_> = told.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert!(ids.len() == 3 && ids.iter().all(|id| id.starts_with("evt_")), "{ids:?}");

    let delivery = &stage.deliveries(&webhook).await[0];
    assert_eq!((&delivery["id"], &delivery["state"]), (&json!(request.header("webhook-id")), &json!("delivered")));
    let story = stage.story(&webhook, delivery).await;
    assert_eq!((&story["body"], &story["recent_attempts"][0]["http_status"]), (&Value::Null, &json!(201)), "{story}");
    stage.tell_after(DAY).await;
    assert_eq!(stage.receiver.pushed().len(), 1, "once is enough");
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_dead_letter_of_a_reason_is_told() {
    let stage = Stage::set().await;
    stage.webhook(URL, &["dead_letter.created"], json!({})).await;
    stage.app.subscribe("fcm", 0..3).await;
    stage.app.simulator.add_rule(Rule::always(RuleAction::BadRequest)).unwrap();
    stage.app.send(json!({"all": true}), json!({})).await;
    stage.app.run_until_idle().await;
    stage.tell().await;
    let requests = stage.receiver.pushed();
    assert_eq!(types(&requests), [("dead_letter.created".to_owned(), 1)].into(), "three in one minute");
    let told = events(&requests[0])[0]["data"].clone();
    let path = format!("/v1/apps/shop/dead-letters/{}", told["dead_letter"].as_str().unwrap());
    assert_eq!(stage.app.get(&path).await["reason"], told["reason"], "{told}");
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_webhook_is_retried_then_replayable() {
    let stage = Stage::set().await;
    let webhook = stage.webhook(URL, &["delivery.accepted"], three_retries()).await;
    stage.app.subscribe("fcm", 0..1).await;
    stage.app.send(json!({"all": true}), json!({})).await;
    stage.app.run_until_idle().await;
    stage.receiver.answer_next(&[500, 301, 429, 404]);
    stage.tell().await;
    for tries in 1..4 {
        stage.tell_after(Duration::from_secs(7)).await;
        assert_eq!(stage.receiver.pushed().len(), tries, "it is not due yet");
        stage.tell_after(Duration::from_secs(3)).await;
        assert_eq!(stage.receiver.pushed().len(), tries + 1);
    }
    stage.tell_after(DAY).await;
    let requests = stage.receiver.pushed();
    assert_eq!(requests.len(), 4, "that was the last retry");
    let ids: Vec<_> = requests.iter().map(|request| request.header("webhook-id")).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let bodies: Vec<_> = requests.iter().map(|request| &request.body).collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    assert_ne!(requests[0].header("webhook-timestamp"), requests[3].header("webhook-timestamp"));
    assert!(requests.iter().all(|request| signed_by(request, &[&webhook["secret"]]) == [true]));
    let failed = stage.deliveries(&webhook).await.remove(0);
    assert_eq!((&failed["state"], &failed["attempts"]), (&json!("failed"), &json!(4)));
    let story = stage.story(&webhook, &failed).await;
    let statuses: Vec<_> =
        story["recent_attempts"].as_array().unwrap().iter().map(|tried| &tried["http_status"]).collect();
    assert_eq!(statuses, [500, 301, 429, 404]);
    assert_eq!(story["body"][0]["type"], "delivery.accepted");

    let later = stage.app.clock.now();
    assert_eq!(stage.post(&webhook, "/replay", json!({"since": later})).await["replayed"], 0);
    let made = &failed["created_at"];
    assert_eq!(stage.post(&webhook, "/replay", json!({"since": made})).await["replayed"], 1);
    assert_eq!(stage.post(&webhook, "/replay", json!({"since": made})).await["replayed"], 0, "it is pending");
    stage.tell().await;
    assert_eq!(stage.receiver.pushed()[4].header("webhook-id"), ids[0]);
    assert_eq!(stage.deliveries(&webhook).await[0]["state"], "delivered");
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_receiver_delays_nothing_else() {
    let stage = Stage::set().await;
    let hanging = stage.webhook("https://slow.example.com/", &["delivery.accepted"], json!({"max_events": 1})).await;
    let working = stage.webhook(URL, &["delivery.accepted"], json!({"max_events": 1})).await;
    seed(&stage.app, "fcm", 0..40).await;
    stage.elsewhere.hold(true);
    stage.app.send(json!({"all": true}), json!({})).await;
    stage.app.run_until_idle().await;
    stage.pack().await;
    let mut running = JoinSet::from_iter(stage.sender.begin().await.unwrap());
    assert_eq!(running.len(), 2);
    stage.elsewhere.until_pushed(8).await;
    running.join_next().await.unwrap().unwrap();
    assert_eq!(
        (stage.receiver.pushed().len(), stage.elsewhere.pushed().len()),
        (40, 8),
        "the one is done, the other waits"
    );
    assert_eq!(stage.shown(&working).await["pending"], 0);
    assert_eq!(stage.shown(&hanging).await["pending"], 40);
    let message = stage.app.send(json!({"all": true}), json!({})).await;
    stage.app.run_until_idle().await;
    assert_eq!(stage.app.counts(&message).await["accepted"], 40, "pushes go out meanwhile");
    stage.elsewhere.hold(false);
    running.join_next().await.unwrap().unwrap();
    // On a slow machine its patience was over by then.
    for _ in 0..3 {
        stage.tell_after(Duration::from_secs(60)).await;
    }
    assert_eq!(stage.shown(&hanging).await["pending"], 0);
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_secret_is_rotated_both_sign() {
    let stage = Stage::set().await;
    let webhook = stage.webhook(URL, &["delivery.accepted"], json!({})).await;
    let rotated = stage.post(&webhook, "/rotate-secret", json!({"overlap_hours": 2})).await;
    let secrets = [&webhook["secret"], &rotated["secret"]];
    assert_ne!(secrets[0], secrets[1]);
    assert!(stage.shown(&webhook).await["secret"].is_null(), "it is shown once");
    let mut signed = Vec::new();
    for hours in [0, 1, 2] {
        stage.app.clock.advance(Duration::from_secs(hours * 3_600));
        stage.post(&webhook, "/test", Value::Null).await;
        stage.tell().await;
        signed.push(signed_by(stage.receiver.pushed().last().unwrap(), &secrets));
    }
    assert_eq!(signed, [[true, true], [true, true], [false, true]]);
    let at_once = stage.post(&webhook, "/rotate-secret", json!({"overlap_hours": 0})).await;
    assert!(at_once["former_secret_until"].is_null(), "{at_once}");
    stage.post(&webhook, "/test", Value::Null).await;
    stage.tell().await;
    let last = stage.receiver.pushed().pop().unwrap();
    assert_eq!(signed_by(&last, &[&rotated["secret"], &at_once["secret"]]), [false, true]);
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_subscribed_events_are_stored_and_grouped() {
    let stage = Stage::set().await;
    let app = &stage.app;
    seed(app, "fcm", 0..250).await;
    let one = app.subscribe("mozilla", 300..301).await.remove(0);
    let send = async |to: Value| {
        app.send(to, json!({})).await;
        app.run_until_idle().await;
    };
    let noted = async || scalar(&app.pool, "SELECT count(*) FROM webhook_notes").await;
    send(json!({"all": true})).await;
    assert_eq!(noted().await, 0, "there is no webhook");
    let deaf = stage.webhook(URL, &["delivery.dead", "alert.raised"], json!({})).await;
    send(json!({"all": true})).await;
    send(json!({"subscriptions": [one.id]})).await;
    assert_eq!(noted().await, 0, "nobody asked for what was accepted");
    let webhook = stage.webhook(URL, &["delivery.accepted"], json!({"max_events": 100})).await;
    send(json!({"all": true})).await;
    send(json!({"subscriptions": [one.id]})).await;
    assert_eq!(noted().await, 252);
    stage.tell().await;
    let requests = stage.receiver.pushed();
    let mut sizes: Vec<_> = requests.iter().map(|request| events(request).len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [52, 100, 100]);
    assert_eq!((noted().await, stage.deliveries(&deaf).await.len()), (0, 0));
    app.call(Method::DELETE, &at(&webhook, ""), Value::Null).await.ok(204);
    send(json!({"all": true})).await;
    assert_eq!(noted().await, 0, "nobody asks for it any more");
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_event_kinds_reach_their_webhooks() {
    let stage = Stage::set().await;
    let app = &stage.app;
    let subscription = app.subscribe("fcm", 0..1).await.remove(0);
    // Told before anybody listened.
    let early = app.send(json!({"all": true}), json!({"send_at": app.clock.now() + DAY})).await;
    app.steer(&early, "cancel").await;
    let asked = ["delivery.displayed", "delivery.clicked", "campaign.state", "message.paused", "alert.raised"];
    app.clock.advance(Duration::from_secs(1));
    stage.webhook(URL, &asked, json!({})).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let token = receipt_token(
        &app.vault,
        message.parse::<MessageId>().unwrap(),
        subscription.id.parse::<SubscriptionId>().unwrap(),
    );
    let token = String::from_utf8(token.to_vec()).unwrap();
    let reports = json!([
        {"receipt": token, "kind": "displayed"}, {"receipt": token, "kind": "clicked", "action": "buy"},
        {"receipt": token, "kind": "clicked"}, {"receipt": token, "kind": "closed"},
    ]);
    app.call(Method::POST, "/v1/apps/shop/receipts", reports).await.ok(202);
    let later = app.send(json!({"all": true}), json!({"send_at": app.clock.now() + DAY})).await;
    app.steer(&later, "pause").await;
    let campaign = json!({"slug": "spring", "message": {"to": {"all": true}, "content": {"title": "t", "body": "b"}}});
    app.call(Method::POST, "/v1/apps/shop/campaigns", campaign).await.ok(201);
    app.call(Method::POST, "/v1/apps/shop/campaigns/spring/start", Value::Null).await.ok(200);
    let shop: AppId = app.get("/v1/apps/shop").await["id"].as_str().unwrap().parse().unwrap();
    let mut conn = app.pool.acquire().await.unwrap();
    for of in [Some(shop), None] {
        let subject = format!("{of:?}");
        let alert = Alert { app: of, kind: AlertKind::Sli, subject: &subject, detail: "d" };
        alerts::raise(&mut conn, &alert, app.clock.now()).await.unwrap();
    }
    drop(conn);
    // The stream waits for transactions that began before, in any database of the Postgres.
    while types(&stage.receiver.pushed()).len() < 5 {
        stage.tell().await;
    }
    let requests = stage.receiver.pushed();
    let expected = [
        ("alert.raised", 1),
        ("campaign.state", 1),
        ("delivery.clicked", 1),
        ("delivery.displayed", 1),
        ("message.paused", 1),
    ];
    assert_eq!(types(&requests), expected.map(|(name, n)| (name.to_owned(), n)).into());
    let told: Vec<Value> = requests.iter().flat_map(events).collect();
    let of = |kind: &str| &told.iter().find(|event| event["type"] == kind).unwrap()["data"];
    assert_eq!(
        (&of("delivery.clicked")["action"], &of("delivery.clicked")["message"]),
        (&json!("buy"), &json!(message))
    );
    assert_eq!(of("message.paused")["message"], json!(later));
    assert_eq!(of("campaign.state")["slug"], "spring");
    stage.tell().await;
    assert_eq!(stage.receiver.pushed().len(), requests.len(), "everything is told once");
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn receiver_must_be_public_with_tls() {
    let stage = Stage::set().await;
    for url in [
        "http://hooks.example.com/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://[fd00::1]/",
        "https://2130706433/",
        "https://printer.local/",
        "https://user:secret@hooks.example.com/",
        "https://elsewhere.example.org:0/",
        "ftp://hooks.example.com/",
        "",
    ] {
        let body = json!({"name": "CRM", "url": url, "events": ["delivery.gone"]});
        let refused = stage.app.call(Method::POST, "/v1/apps/shop/webhooks", body).await;
        assert_eq!((refused.status, &refused.json["errors"][0]["pointer"]), (422, &json!("/url")), "{url}");
    }
    let webhook = stage.webhook(URL, &["delivery.gone"], json!({})).await;
    let moved = json!({"url": "https://192.168.0.1/"});
    assert_eq!(stage.app.call(Method::PATCH, &at(&webhook, ""), moved).await.status, 422);
    // Rules that were laxer when it was stored.
    let sealed = stage.app.vault.seal("webhooks.url", id_of(&webhook), b"https://10.0.0.1/");
    sqlx::query("UPDATE webhooks SET url = $1").bind(sealed).execute(&stage.app.pool).await.unwrap();
    stage.post(&webhook, "/test", Value::Null).await;
    stage.tell().await;
    let delivery = stage.deliveries(&webhook).await.remove(0);
    let story = stage.story(&webhook, &delivery).await;
    assert_eq!(story["recent_attempts"][0]["reason"], "its host is not on the public internet");
    for (member, body) in [
        ("/events", json!({"name": "n", "url": URL, "events": []})),
        ("/events", json!({"name": "n", "url": URL, "events": ["webhook.test"]})),
        ("/max_events", json!({"name": "n", "url": URL, "events": ["delivery.gone"], "max_events": 501})),
        ("/policy/retries", json!({"name": "n", "url": URL, "events": ["delivery.gone"], "policy": {"retries": -1}})),
        ("/name", json!({"name": "", "url": URL, "events": ["delivery.gone"]})),
    ] {
        let refused = stage.app.call(Method::POST, "/v1/apps/shop/webhooks", body).await;
        assert_eq!((refused.status, &refused.json["errors"][0]["pointer"]), (422, &json!(member)), "{}", refused.json);
    }
    stage.app.finish().await;
}

fn id_of(webhook: &Value) -> uuid::Uuid {
    webhook["id"].as_str().unwrap().strip_prefix("wh_").unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_events_forget_erased_users_and_expire() {
    let stage = Stage::set().await;
    let app = &stage.app;
    let webhook = stage.webhook(URL, &["delivery.accepted"], three_retries()).await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann@example.org"})).await;
    app.subscribe_with("fcm", 1..2, json!({"user_id": "bob"})).await;
    app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    stage.receiver.answer_next(&[500]);
    stage.tell().await;
    app.call(Method::DELETE, "/v1/apps/shop/users/ann%40example.org", Value::Null).await.ok(200);
    stage.tell_after(Duration::from_secs(10)).await;
    let told = events(&stage.receiver.pushed()[1]);
    let mut users: Vec<_> = told.iter().map(|event| event["data"]["user_id"].as_str()).collect();
    users.sort_unstable();
    assert_eq!(users, [None, Some("bob")]);
    stage.app.clock.advance(DAY * 2);
    app.keep_house().await;
    assert_eq!(stage.deliveries(&webhook).await.len(), 1);
    stage.app.clock.advance(DAY * 2);
    app.keep_house().await;
    assert_eq!(stage.deliveries(&webhook).await.len(), 0);
    let left = "SELECT count(*) FROM webhook_attempts";
    assert_eq!(scalar(&app.pool, left).await, 0);
    app.operate(Method::DELETE, "/v1/apps/shop?confirm=shop", Value::Null).await.ok(202);
    app.clock.advance(Duration::from_secs(120));
    for _ in 0..3 {
        maintenance::remove_apps(&app.pool, app.clock.now()).await.unwrap();
        app.sweep().await;
    }
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM webhooks").await, 0);
    stage.app.finish().await;
}
