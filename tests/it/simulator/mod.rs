//! The simulator, driven by a sender that shares no code with Bellwire.

mod browsers;
mod faults;
mod sender;

use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{HostSpec, Options, RequestFault, Rule, RuleAction, Simulator, Verify};
use bytes::Bytes;
use http::{HeaderValue, Request};
use sender::{Http2, Vapid, post_http1, push, soon};

const FCM: &str = "fcm.bellwire.test";

async fn start() -> Simulator {
    Simulator::start(Options::default()).await.unwrap()
}

#[tokio::test]
async fn each_gateway_accepts_a_valid_push() {
    let (simulator, vapid) = (start().await, Vapid::new(1));
    for gateway in Gateway::ALL {
        let host = format!("{}.bellwire.test", gateway.name());
        let minted = simulator.mint(&host, 7, Some(&vapid.public)).unwrap();
        let mut http2 = Http2::connect(&simulator, &host).await;
        let answer = soon(http2.post(push(&minted, &vapid, gateway.name()))).await.unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (201, ""), "{gateway:?}");
        let (header, value) = match gateway {
            Gateway::Fcm => ("location", "https://fcm.bellwire.test/0:"),
            Gateway::Mozilla => ("ttl", "60"),
            Gateway::Wns => ("x-wns-status", "received"),
            Gateway::Apple => ("apns-id", ""),
            Gateway::Other => ("ttl", "0"),
        };
        assert!(answer.headers.contains_key(header) && answer.header(header).starts_with(value), "{gateway:?}");

        let received = simulator.received(&minted.endpoint).unwrap();
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].accepted, 1);
        assert_eq!(received[0].index, 7);
        let plaintext = received[0].plaintext.as_ref().unwrap();
        assert!(plaintext.ends_with(br#""payload":"hello"}"#), "{plaintext:?}");
        let attempt = &received[0].attempts[0];
        let facts = (attempt.status, attempt.ttl, attempt.urgency.as_deref(), attempt.topic.as_deref());
        assert_eq!(facts, (Some(201), Some(60), Some("normal"), None));
    }
    let report = simulator.report();
    assert_eq!(report.requests, 5);
    assert_eq!(report.accepted, 5);
    assert_eq!(report.verified, 5);
    assert_eq!(report.duplicates, 0);
    assert!(report.faults.is_empty() && report.first_ms.is_some(), "{:?}", report.faults);
    simulator.reset();
    assert_eq!(simulator.report().requests, 0);
    simulator.stop().await;
}

/// Function that spoils a request, with the fault and the responses of FCM, Mozilla, WNS, Apple and others.
type Spoilt = (fn(&mut Request<Bytes>), RequestFault, [u16; 5]);

#[tokio::test]
async fn gateway_rules_are_enforced_and_reported() {
    fn set(request: &mut Request<Bytes>, name: &'static str, value: &'static str) {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let table: [Spoilt; 14] = [
        (|r| drop(r.headers_mut().remove("ttl")), RequestFault::TtlMissing, [400; 5]),
        (|r| set(r, "ttl", "soon"), RequestFault::TtlInvalid, [400; 5]),
        (|r| set(r, "ttl", "-1"), RequestFault::TtlNegative, [400; 5]),
        (|r| set(r, "urgency", "urgent"), RequestFault::Urgency, [400, 201, 201, 400, 400]),
        (|r| set(r, "topic", "a b"), RequestFault::Topic, [400; 5]),
        (|r| set(r, "content-encoding", "aesgcm"), RequestFault::Encoding, [400; 5]),
        (|r| drop(r.headers_mut().remove("authorization")), RequestFault::VapidMissing, [401, 401, 401, 403, 401]),
        (|r| set(r, "authorization", "Bearer x"), RequestFault::VapidToken, [403, 401, 401, 403, 403]),
        (|r| *r.body_mut() = vec![0; 6000].into(), RequestFault::TooLarge, [413; 5]),
        (|r| *r.body_mut() = Bytes::from_static(b"short"), RequestFault::Sealing, [201; 5]),
        (|r| spoil_last_octet(r.body_mut()), RequestFault::Unsealable, [201; 5]),
        (|r| *r.method_mut() = http::Method::PUT, RequestFault::Method, [405; 5]),
        (|r| change_path(r, |path| path.replace(['B', 'b'], "C")), RequestFault::UnknownEndpoint, [404; 5]),
        (|r| change_path(r, |path| path.replace("%2b", "%2B")), RequestFault::EscapedToken, [201, 201, 401, 201, 201]),
    ];
    let (simulator, vapid) = (start().await, Vapid::new(1));
    for (at, gateway) in Gateway::ALL.into_iter().enumerate() {
        let host = format!("{}.bellwire.test", gateway.name());
        let mut http2 = Http2::connect(&simulator, &host).await;
        for (index, (spoil, fault, statuses)) in (0..).zip(&table) {
            simulator.reset();
            let minted = simulator.mint(&host, index, Some(&vapid.public)).unwrap();
            let mut request = push(&minted, &vapid, "d");
            spoil(&mut request);
            let answer = soon(http2.post(request)).await.unwrap();
            assert_eq!(answer.status, statuses[at], "{gateway:?} {fault:?}");
            if *fault != RequestFault::EscapedToken || gateway == Gateway::Wns {
                assert!(simulator.report().faults.contains_key(fault), "{gateway:?} {fault:?}");
            }
        }
    }
}

fn spoil_last_octet(body: &mut Bytes) {
    let mut octets = body.to_vec();
    *octets.last_mut().unwrap() ^= 1;
    *body = octets.into();
}

fn change_path(request: &mut Request<Bytes>, change: fn(&str) -> String) {
    let uri = request.uri().to_string();
    let (start, path) = uri.split_at("https://".len() + uri["https://".len()..].find('/').unwrap());
    *request.uri_mut() = format!("{start}{}", change(path)).parse().unwrap();
}

#[tokio::test]
async fn vapid_claims_are_verified() {
    let (simulator, vapid, stranger) = (start().await, Vapid::new(1), Vapid::new(2));
    let now = chrono::Utc::now().timestamp();
    for (gateway, statuses) in [
        (Gateway::Fcm, [403, 403, 403, 201, 403]),
        (Gateway::Mozilla, [401, 401, 401, 201, 401]),
        (Gateway::Apple, [403, 403, 403, 403, 400]),
    ] {
        let host = format!("{}.bellwire.test", gateway.name());
        let mut http2 = Http2::connect(&simulator, &host).await;
        let minted = simulator.mint(&host, 1, Some(&vapid.public)).unwrap();
        let origin = sender::origin(&minted.endpoint);
        let claims = |aud: &str, exp: i64, sub: &str| serde_json::json!({"aud": aud, "exp": exp, "sub": sub});
        let fine = "mailto:push@example.com";
        let cases = [
            (vapid.authorization(&claims("https://elsewhere.test", now + 60, fine)), RequestFault::VapidAudience),
            (vapid.authorization(&claims(&origin, now - 120, fine)), RequestFault::VapidExpired),
            (vapid.authorization(&claims(&origin, now + 90_000, fine)), RequestFault::VapidTooLong),
            (vapid.authorization(&claims(&origin, now + 60, "mailto:x@localhost")), RequestFault::VapidSubject),
            (stranger.authorization(&claims(&origin, now + 60, fine)), RequestFault::VapidWrongKey),
        ];
        for ((authorization, fault), status) in cases.into_iter().zip(statuses) {
            simulator.reset();
            let mut request = push(&minted, &vapid, "d");
            request.headers_mut().insert("authorization", authorization.parse().unwrap());
            assert_eq!(soon(http2.post(request)).await.unwrap().status, status, "{gateway:?} {fault:?}");
            let faults = simulator.report().faults;
            assert_eq!(faults.keys().collect::<Vec<_>>(), [&fault], "{gateway:?}");
            assert_eq!(faults[&fault].samples, [format!("{host} #1")]);
        }
    }
}

#[tokio::test]
async fn second_acceptance_is_a_duplicate_retry_not() {
    let (simulator, vapid) = (start().await, Vapid::new(1));
    simulator
        .add_rule(Rule { attempts: Some([1, 2]), ..Rule::always(RuleAction::Unavailable { retry_after_s: Some(3) }) })
        .unwrap();
    let minted = simulator.mint("fcm", 1, Some(&vapid.public)).unwrap();
    let mut http2 = Http2::connect(&simulator, FCM).await;
    for expected in [503, 503, 201] {
        let answer = soon(http2.post(push(&minted, &vapid, "d1"))).await.unwrap();
        assert_eq!(answer.status, expected);
        assert_eq!(answer.header("retry-after"), if expected == 503 { "3" } else { "" });
    }
    let report = simulator.report();
    assert_eq!(report.repeats, 2);
    assert_eq!(report.duplicates, 0);
    assert_eq!(report.rules[0].hits, 2);
    soon(http2.post(push(&minted, &vapid, "d1"))).await.unwrap();
    let delivery = simulator.delivery("d1").unwrap();
    let statuses: Vec<_> = delivery.attempts.iter().filter_map(|attempt| attempt.status).collect();
    assert_eq!((simulator.report().duplicates, delivery.accepted, statuses), (1, 2, vec![503, 503, 201, 201]));
}

#[tokio::test]
async fn the_same_body_sent_again_is_no_fault() {
    let (simulator, vapid) = (start().await, Vapid::new(1));
    let mint = |host| simulator.mint(host, 1, Some(&vapid.public)).unwrap();
    let first = push(&mint("fcm"), &vapid, "d");
    let mut http2 = Http2::connect(&simulator, FCM).await;
    soon(http2.post(first.clone())).await.unwrap();
    soon(http2.post(first)).await.unwrap();
    assert!(simulator.report().faults.is_empty());
}

#[tokio::test]
async fn sampled_pushes_are_decrypted_all_are_checked() {
    let options = Options { verify: Verify::Sample(4), ..Options::default() };
    let (simulator, vapid) = (Simulator::start(options).await.unwrap(), Vapid::new(1));
    let mut http2 = Http2::connect(&simulator, FCM).await;
    let sampled = (0..40).filter(|index| simulator.sampled("fcm", *index).unwrap()).count() as u64;
    for index in 0..40 {
        let minted = simulator.mint("fcm", index, Some(&vapid.public)).unwrap();
        assert_eq!(soon(http2.post(push(&minted, &vapid, &format!("d{index}")))).await.unwrap().status, 201);
        assert_eq!(
            simulator.received(&minted.endpoint).unwrap().len() as u64,
            u64::from(simulator.sampled("fcm", index).unwrap())
        );
    }
    let report = simulator.report();
    assert!((1..40).contains(&sampled));
    assert_eq!(report.accepted, 40);
    assert_eq!(report.verified, sampled);
    assert_eq!(report.deliveries, sampled);
    let unsampled = (0..).find(|index| !simulator.sampled("fcm", *index).unwrap()).unwrap();
    let minted = simulator.mint("fcm", unsampled, Some(&vapid.public)).unwrap();
    assert_eq!(soon(http2.post(push(&minted, &Vapid::new(2), "x"))).await.unwrap().status, 403);
}

#[tokio::test]
async fn http1_gets_the_same_answers() {
    let mut hosts = vec![HostSpec::new(Gateway::Apple, "apple.test")];
    hosts[0].http1_only = true;
    hosts[0].explicit_port = true;
    let options = Options { hosts, ..Options::default() };
    let (simulator, vapid) = (Simulator::start(options).await.unwrap(), Vapid::new(1));
    let minted = simulator.mint("apple", 1, Some(&vapid.public)).unwrap();
    let port = sender::mapping(&simulator, "apple.test").addr.port();
    assert!(minted.endpoint.starts_with(&format!("https://apple.test:{port}/Q")));
    let post = |request| post_http1(&simulator, "apple.test", request);
    let answer = soon(post(push(&minted, &vapid, "d1"))).await.unwrap();
    assert_eq!((answer.status, answer.header("apns-id").len()), (201, 36));
    assert_eq!(simulator.delivery("d1").unwrap().accepted, 1);
    let mut bad = push(&minted, &vapid, "d2");
    bad.headers_mut().remove("ttl");
    let answer = soon(post(bad)).await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (400, r#"{"reason":"BadTtl"}"#));

    for (action, accepted) in
        [(RuleAction::Close, 0), (RuleAction::LoseAnswer, 1), (RuleAction::Truncate { status: 201 }, 1)]
    {
        simulator.reset();
        let id = simulator.add_rule(Rule::always(action.clone())).unwrap();
        assert!(soon(post(push(&minted, &vapid, "d3"))).await.is_err(), "{action:?}");
        assert_eq!(simulator.report().accepted, accepted, "{action:?}");
        simulator.remove_rule(id);
    }
    simulator.add_rule(Rule::always(RuleAction::SlowBody { status: 500, octets: 3, every_ms: 1 })).unwrap();
    let answer = soon(post(push(&minted, &vapid, "d4"))).await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (500, "..."));
    let alpn = soon(sender::tls(&simulator, "apple.test", b"h2")).await;
    assert!(alpn.is_err(), "a host without HTTP/2 does not agree to it");
}

#[tokio::test]
async fn the_http_interface_does_what_the_handle_does() {
    let (simulator, vapid) = (start().await, Vapid::new(1));
    let client: hyper_util::client::legacy::Client<_, http_body_util::Full<Bytes>> =
        hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
    let base = format!("http://{}", simulator.control());
    let call = async |method: &str, path: &str, json: serde_json::Value| {
        let body = if json.is_null() { Bytes::new() } else { json.to_string().into() };
        let request = Request::builder().method(method).uri(format!("{base}{path}"));
        let request = request.header("content-type", "application/json").body(body.into()).unwrap();
        let response = soon(client.request(request)).await.unwrap();
        let status = response.status().as_u16();
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        (
            status,
            serde_json::from_slice::<serde_json::Value>(&body)
                .unwrap_or(String::from_utf8(body.to_vec()).unwrap().into()),
        )
    };
    use serde_json::{Value::Null, json};

    assert_eq!(call("GET", "/ca.pem", Null).await, (200, simulator.ca_pem().into()));
    assert_eq!(call("GET", "/hosts", Null).await.1, serde_json::to_value(simulator.hosts()).unwrap());
    let key = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, vapid.public);
    let (status, minted) = call("POST", "/mint", json!({"host": "wns", "from": 3, "count": 2, "vapid": key})).await;
    let own = simulator.mint("wns", 4, Some(&vapid.public)).unwrap();
    assert_eq!((status, &minted[1]), (200, &serde_json::to_value(&own).unwrap()));
    assert_eq!(call("POST", "/mint", json!({"host": "nobody", "count": 1})).await.0, 404);
    assert_eq!(call("POST", "/mint", json!({"host": "wns", "count": 50_001})).await.0, 422);

    let rule = json!({"gateway": "wns", "count": 1, "action": {"throttled": {"retry_after_s": 9}}});
    let (status, added) = call("POST", "/rules", rule).await;
    assert_eq!(status, 201);
    assert_eq!(call("POST", "/rules", json!({"host": "nobody", "action": "gone"})).await.0, 422);
    assert_eq!(call("POST", "/rules", json!({"action": "explode"})).await.0, 422);
    let mut http2 = Http2::connect(&simulator, "wns.bellwire.test").await;
    for expected in [406, 201] {
        assert_eq!(soon(http2.post(push(&own, &vapid, "d"))).await.unwrap().status, expected);
    }
    let report = call("GET", "/report", Null).await.1;
    assert_eq!((&report["statuses"], &report["repeats"]), (&json!({"201": 1, "406": 1}), &json!(1)));
    assert_eq!(report["rules"][0]["hits"], 1);
    let query: String = url::form_urlencoded::byte_serialize(own.endpoint.as_bytes()).collect();
    let received = call("GET", &format!("/received?endpoint={query}"), Null).await.1;
    assert_eq!((&received[0]["id"], &received[0]["accepted"]), (&json!("d"), &json!(1)));
    assert_eq!(call("GET", "/received?id=d", Null).await.1, received);
    assert_eq!(call("GET", "/received?endpoint=https://x.test/", Null).await.0, 404);
    assert_eq!(call("DELETE", &format!("/rules/{}", added["id"]), Null).await.0, 204);
    assert_eq!(call("DELETE", &format!("/rules/{}", added["id"]), Null).await.0, 404);
    assert_eq!(call("POST", "/reset", Null).await.0, 200);
    assert_eq!(simulator.report().requests, 0);
}
