//! Mozilla's protocol, as a browser speaks it.

use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use bellwire_simulator::gateways::{BrowsersReport, Minted, Rule, RuleAction, Simulator};
use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};

use super::sender::{Answer, Http2, Vapid, push, soon};
use super::start;
use crate::support::socket::Socket;

const MOZILLA: &str = "mozilla.bellwire.test";
const CHANNEL: &str = "6e8c5f0a-7b1d-4f0e-9b3a-2d5c8e7f1a00";

/// Connected browser after its hello message.
struct Browser {
    socket: Socket,
    uaid: String,
}

impl Browser {
    async fn connect(simulator: &Simulator, uaid: Option<&str>) -> Self {
        let host = simulator.hosts().into_iter().find(|host| host.host == MOZILLA).unwrap();
        let mut socket = Socket::connect(host.browsers.unwrap(), "/").await;
        let mut hello = json!({"messageType": "hello", "broadcasts": {}, "use_webpush": true});
        if let Some(uaid) = uaid {
            hello["uaid"] = uaid.into();
        }
        socket.say(&hello).await;
        let greeting = socket.hear().await.unwrap();
        assert_eq!((&greeting["status"], &greeting["use_webpush"]), (&json!(200), &json!(true)), "{greeting}");
        Self { socket, uaid: greeting["uaid"].as_str().unwrap().to_owned() }
    }

    async fn ask(&mut self, what: Value) -> Value {
        self.socket.say(&what).await;
        self.socket.hear().await.unwrap()
    }

    /// Subscribes; the keys of the subscription are another's, since nothing here looks inside.
    async fn register(&mut self, simulator: &Simulator, vapid: Option<&Vapid>) -> Minted {
        let mut ask = json!({"messageType": "register", "channelID": CHANNEL});
        if let Some(vapid) = vapid {
            ask["key"] = URL_SAFE.encode(vapid.public).into();
        }
        let answer = self.ask(ask).await;
        assert_eq!((&answer["status"], &answer["channelID"]), (&json!(200), &json!(CHANNEL)), "{answer}");
        let endpoint = answer["pushEndpoint"].as_str().unwrap().to_owned();
        Minted { endpoint, ..simulator.mint(MOZILLA, 1, None).unwrap() }
    }

    async fn ack(&mut self, notification: &Value, code: u16) {
        let update = json!({"channelID": CHANNEL, "version": notification["version"], "code": code});
        self.socket.say(&json!({"messageType": "ack", "updates": [update]})).await;
    }
}

async fn post(simulator: &Simulator, request: Request<Bytes>) -> Answer {
    let mut http2 = Http2::connect(simulator, MOZILLA).await;
    soon(http2.post(request)).await.unwrap()
}

fn figures(report: &bellwire_simulator::gateways::SimulatorReport) -> &BrowsersReport {
    report.hosts[MOZILLA].browsers.as_ref().unwrap()
}

async fn until(simulator: &Simulator, wanted: impl Fn(&BrowsersReport) -> bool) -> BrowsersReport {
    let report = soon(simulator.wait_until(|report| wanted(figures(report)))).await;
    figures(&report).clone()
}

#[tokio::test]
async fn push_reaches_its_browser_even_offline() {
    let (simulator, vapid) = (start().await, Vapid::new(1));
    let mut browser = Browser::connect(&simulator, None).await;
    let minted = browser.register(&simulator, Some(&vapid)).await;
    assert!(minted.endpoint.starts_with("https://mozilla.bellwire.test/wpush/v2/"), "{}", minted.endpoint);
    let request = push(&minted, &vapid, "one");
    let body = URL_SAFE_NO_PAD.encode(request.body());
    let answer = post(&simulator, request).await;
    assert_eq!((answer.status, answer.header("ttl")), (201, "60"));
    let first = browser.socket.hear().await.unwrap();
    assert_eq!((&first["messageType"], &first["channelID"]), (&json!("notification"), &json!(CHANNEL)));
    assert_eq!((&first["data"], &first["headers"]["encoding"]), (&json!(body), &json!("aes128gcm")));
    browser.ack(&first, 100).await;
    let known = until(&simulator, |now| now.unacknowledged == 0).await;
    assert_eq!((known.taken, known.acks), (1, [(100, 1)].into()));

    let uaid = browser.uaid.clone();
    drop(browser);
    until(&simulator, |now| now.connected == 0).await;
    let under_topic = |id: &str| {
        let mut request = push(&minted, &vapid, id);
        request.headers_mut().insert("topic", http::HeaderValue::from_static("t"));
        request
    };
    let mut at_once = push(&minted, &vapid, "now or never");
    at_once.headers_mut().insert("ttl", http::HeaderValue::from_static("0"));
    let mut last = String::new();
    for request in [at_once, under_topic("old"), under_topic("new")] {
        last = URL_SAFE_NO_PAD.encode(request.body());
        assert_eq!(post(&simulator, request).await.status, 201);
    }
    for _ in 0..2 {
        let mut browser = Browser::connect(&simulator, Some(&uaid)).await;
        assert_eq!(browser.uaid, uaid);
        assert_eq!(browser.socket.hear().await.unwrap()["data"], last, "again and again until it is acknowledged");
    }
    let now = until(&simulator, |now| now.connected == 0).await;
    assert_eq!(now.replaced, 1);
    assert_eq!(now.expired, 1);
    assert_eq!(now.unacknowledged, 1);
    assert_eq!(now.sent, 3);
    assert!(simulator.report().faults.is_empty(), "{:?}", simulator.report().faults);
    simulator.stop().await;
}

#[tokio::test]
async fn browser_endpoint_obeys_the_same_rules() {
    let (simulator, vapid) = (start().await, Vapid::new(1));
    let mut browser = Browser::connect(&simulator, None).await;
    let minted = browser.register(&simulator, Some(&vapid)).await;
    let mut too_large = push(&minted, &vapid, "large");
    *too_large.body_mut() = vec![0; 5_631].into();
    assert_eq!(post(&simulator, too_large).await.status, 413);
    assert_eq!(post(&simulator, push(&minted, &Vapid::new(2), "of another")).await.status, 401);
    let rule =
        simulator.add_rule(Rule { count: Some(1), ..Rule::always(RuleAction::Unavailable { retry_after_s: None }) });
    assert_eq!(post(&simulator, push(&minted, &vapid, "not now")).await.status, 503);
    assert!(simulator.remove_rule(rule.unwrap()));
    simulator.add_rule(Rule { count: Some(1), ..Rule::always(RuleAction::LoseAnswer) }).unwrap();
    let mut http2 = Http2::connect(&simulator, MOZILLA).await;
    soon(http2.post(push(&minted, &vapid, "taken in silence"))).await.unwrap_err();
    let got = browser.socket.hear().await.unwrap();
    assert_eq!(figures(&simulator.report()).taken, 1, "nothing that was refused gets here: {got}");
    assert!(simulator.push_again(&minted.endpoint).unwrap());
    let again = browser.socket.hear().await.unwrap();
    assert!(again["data"] == got["data"] && again["version"] != got["version"], "{again}");

    let end = json!({"messageType": "unregister", "channelID": CHANNEL, "code": 200});
    assert_eq!(browser.ask(end).await, json!({"messageType": "unregister", "channelID": CHANNEL, "status": 200}));
    let answer = post(&simulator, push(&minted, &vapid, "late")).await;
    assert_eq!((answer.status, answer.header("cache-control")), (410, "max-age=86400"));
    assert_eq!(figures(&simulator.report()).unacknowledged, 0, "nothing waits for an ended subscription");
    simulator.stop().await;
}

#[tokio::test]
async fn browser_protocol_errors_end_the_connection() {
    let simulator = start().await;
    let mut browser = Browser::connect(&simulator, None).await;
    assert_eq!(browser.ask(json!({})).await, json!({}), "a ping");
    let broadcast =
        json!({"messageType": "broadcast_subscribe", "broadcasts": {"remote-settings/monitor_changes": "0"}});
    assert_eq!(browser.ask(broadcast).await["messageType"], "broadcast");
    let odd_key = json!({"messageType": "register", "channelID": CHANNEL, "key": "AAAA"});
    assert_eq!(browser.ask(odd_key).await["status"], 400);
    let anyone = browser.register(&simulator, None).await;
    assert!(anyone.endpoint.contains("/wpush/v1/"), "bound to no key: {}", anyone.endpoint);
    let empty = Request::post(&anyone.endpoint).header("ttl", "60").body(Bytes::new()).unwrap();
    assert_eq!(post(&simulator, empty).await.status, 201);
    let tickle = browser.socket.hear().await.unwrap();
    assert!(tickle.get("data").is_none() && tickle.get("headers").is_none(), "{tickle}");
    browser.ack(&tickle, 102).await;
    browser.socket.say(&json!({"messageType": "nack", "version": tickle["version"], "code": 301})).await;
    let now = until(&simulator, |now| !now.nacks.is_empty()).await;
    assert_eq!((now.acks, now.nacks), ([(102, 1)].into(), [(301, 1)].into()));

    simulator.forget_browsers(MOZILLA).unwrap();
    assert_eq!(browser.socket.hear().await, None, "cut off");
    assert_eq!(post(&simulator, push(&anyone, &Vapid::new(1), "gone")).await.status, 410);
    let mut back = Browser::connect(&simulator, Some(&browser.uaid)).await;
    assert_ne!(back.uaid, browser.uaid);
    back.socket.say(&json!({"messageType": "hello", "use_webpush": true})).await;
    assert_eq!(back.socket.hear().await, None, "one hello is enough");
    simulator.stop().await;
}
