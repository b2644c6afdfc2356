//! Content of dead letters, search and export.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use bellwire_core::scope::Scope;
use bellwire_simulator::gateways::{Rule, RuleAction};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{LETTERS, bury, export, key, letter_of, letters_of, list, post, refusing, to};
use crate::support::seed::seed;
use crate::support::{START, TestApp};

#[tokio::test(flavor = "multi_thread")]
async fn letter_content_needs_the_export_scope() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("mozilla", 0..1).await.remove(0);
    app.simulator.add_rule(Rule { attempts: Some([1, 2]), ..Rule::always(RuleAction::TooLarge) }).unwrap();
    app.simulator.add_rule(refusing([0])).unwrap();
    let content = json!({"title": "Hello", "body": "é".repeat(1_500), "image": "/large.png"});
    let message = app.send(to(std::slice::from_ref(&subscriber)), json!({"content": content})).await;
    app.run_until_idle().await;

    let letter = letter_of(&app, &subscriber).await;
    assert_eq!(
        (&letter["state"], &letter["reason"], &letter["status"]),
        (&json!("open"), &json!("bad_request"), &json!(400))
    );
    assert_eq!((&letter["message"], &letter["gateway"]), (&json!(message), &json!("mozilla")));
    assert_eq!(
        (&letter["tier"], &letter["retries"], &letter["attempts"]),
        (&json!("promotional"), &json!(2), &json!(3))
    );
    assert!(letter["detail"].as_str().unwrap().contains("bad"), "{letter}");

    let path = format!("{LETTERS}/{}", letter["id"].as_str().unwrap());
    let opened = app.get(&path).await;
    assert_eq!(opened["history"].as_array().unwrap().len(), 3);
    assert_eq!(opened["history"][2]["status"], 400);
    assert_eq!(opened["policy"]["baseDelayMs"], 2_000);
    assert_eq!(opened["dropped"], json!(["image", "the end of body"]));
    assert_eq!(
        (&opened["content_state"], &opened["content"]["notification"]["content"]["title"]),
        (&json!("shown"), &json!("Hello"))
    );

    let reader = key(&app, &[Scope::Read]).await;
    let withheld = app.call_as(Method::GET, &path, &reader, Value::Null).await.ok(200);
    assert_eq!((&withheld["content_state"], &withheld["content"]), (&json!("withheld"), &Value::Null));
    for path in ["/replay", "/discard"] {
        let reply = app.call_as(Method::POST, &format!("{LETTERS}{path}"), &reader, json!({"filter": {}})).await;
        assert_eq!((reply.status, &reply.json["code"]), (403, &json!("forbidden")), "{path}");
        let reply = app.call_as(Method::POST, &format!("{}{path}", path_of(&letter)), &reader, Value::Null).await;
        assert_eq!(reply.status, 403, "{path} of one");
    }
    let reply = app.call_as(Method::GET, &format!("{LETTERS}/export?format=csv"), &reader, Value::Null).await;
    assert_eq!(reply.status, 403, "whoever may read may not take everything along");
    let sender = key(&app, &[Scope::Send, Scope::Messages]).await;
    for path in ["", "/groups?by=reason", "/export?format=csv", "/audit"] {
        let reply = app.call_as(Method::GET, &format!("{LETTERS}{path}"), &sender, Value::Null).await;
        assert_eq!(reply.status, 403, "{path}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn viewing_letter_content_is_audited() {
    let app = TestApp::start().await;
    let (subscribers, _) = letters_of(&app, 2).await;
    let [first, second] = [letter_of(&app, &subscribers[0]).await, letter_of(&app, &subscribers[1]).await];
    let steward = key(&app, &[Scope::Messages, Scope::Export]).await;
    let logged = async || {
        let log = app.get("/v1/apps/shop/audit-log?action=dead_letters.exported").await["data"].clone();
        let targets = log.as_array().unwrap().iter().map(|entry| entry["target"].clone());
        targets.collect::<Vec<_>>()
    };
    let replayed = app.call_as(Method::POST, &format!("{}/replay", path_of(&first)), &steward, Value::Null).await;
    assert_eq!(replayed.ok(200)["content_state"], "shown");
    assert_eq!(logged().await, [first["id"].clone()]);
    let discarder = key(&app, &[Scope::Messages]).await;
    let discarded = app.call_as(Method::POST, &format!("{}/discard", path_of(&second)), &discarder, Value::Null).await;
    assert_eq!(discarded.ok(200)["content_state"], "withheld");
    assert_eq!(logged().await, [first["id"].clone()], "nothing was shown");
    app.run_until_idle().await;
    app.finish().await;
}

fn path_of(letter: &Value) -> String {
    format!("{LETTERS}/{}", letter["id"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn gone_and_expired_leave_closed_letters() {
    let app = TestApp::start().await;
    seed(&app, "wns", 0..120).await;
    let some = app.subscribe("wns", 500..504).await;
    // Waiting rows of a retrying, a parked and a cancelled message.
    let busy = app.simulator.add_rule(Rule::always(RuleAction::Unavailable { retry_after_s: None })).unwrap();
    let waiting = app.send(to(&some), json!({"tier": "engagement"})).await;
    let parked = app.send(to(&some), json!({"ttl": 600, "tier": "engagement"})).await;
    let cancelled = app.send(to(&some), json!({"tier": "engagement"})).await;
    app.run_until_idle().await;
    app.steer(&parked, "pause").await;
    app.steer(&cancelled, "cancel").await;
    app.simulator.remove_rule(busy);
    app.advance(Duration::from_secs(40)).await; // a breaker may have opened
    // A page, some of whose recipients are gone; one of them takes along what waits for it.
    let leaving = Rule { endpoints: Some((0..5).chain([500]).collect()), ..Rule::always(RuleAction::Gone) };
    app.simulator.add_rule(leaving).unwrap();
    let campaign = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    app.advance(Duration::from_secs(300)).await;
    assert_eq!(app.counts(&campaign).await["gone"], 6);
    // Parked beyond its life, and one that expires with an answer.
    app.advance(Duration::from_secs(700)).await;
    app.sweep().await;
    let late =
        Rule { endpoints: Some([501].into()), ..Rule::always(RuleAction::Throttled { retry_after_s: Some(30) }) };
    app.simulator.add_rule(late).unwrap();
    let expiring = app.send(to(&some[1..2]), json!({"ttl": 30})).await;
    app.run_until_idle().await;

    for message in [&waiting, &parked, &cancelled, &campaign, &expiring] {
        let counts = app.counts(message).await;
        for reason in ["gone", "expired"] {
            let letters = list(&app, &format!("?message={message}&reason={reason}&limit=250")).await;
            let expected = counts.get(reason).copied().unwrap_or(0);
            assert_eq!(letters.len() as i64, expected, "{reason} of {message}: {counts:?}");
            assert!(letters.iter().all(|letter| letter["state"] == "closed"), "{letters:?}");
        }
    }
    assert_eq!((app.counts(&parked).await["expired"], app.counts(&cancelled).await["cancelled"]), (3, 4));
    let answered = list(&app, &format!("?message={expiring}")).await.remove(0);
    assert_eq!((&answered["reason"], &answered["status"]), (&json!("expired"), &json!(406)));
    let silent = list(&app, &format!("?message={parked}&reason=expired")).await.remove(0);
    assert_eq!((&silent["status"], &silent["detail"]), (&Value::Null, &Value::Null));

    let opened = app.get(&path_of(&answered)).await;
    assert_eq!((&opened["content_state"], &opened["content"]), (&json!("deleted"), &Value::Null));
    for what in ["replay", "discard"] {
        let reply = app.call(Method::POST, &format!("{}/{what}", path_of(&answered)), Value::Null).await;
        assert_eq!((reply.status, &reply.json["code"]), (409, &json!("dead_letter_closed")));
        let all = post(&app, &format!("/{what}"), json!({"filter": {}})).await.ok(200);
        assert_eq!((&all["matched"], &all["handled"]), (&json!(0), &json!(0)), "{what}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_filtered_and_counted_alike() {
    let app = TestApp::start().await;
    let (subscribers, message) = letters_of(&app, 2).await;
    app.advance(Duration::from_secs(86_400)).await;
    let others = app.subscribe_with("mozilla", 7..8, json!({"topics": ["news"]})).await;
    app.simulator.add_rule(Rule { endpoints: Some([7].into()), ..Rule::always(RuleAction::Unauthorized) }).unwrap();
    app.send(json!({"topic": "news"}), json!({"tier": "transactional"})).await;
    app.run_until_idle().await;
    let day = (START + Duration::from_secs(43_200)).to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    for (query, n) in [
        ("".to_owned(), 3),
        ("?reason=bad_request".to_owned(), 2),
        ("?reason=gone".to_owned(), 0),
        ("?status=400".to_owned(), 2),
        ("?state=open".to_owned(), 3),
        ("?state=replayed".to_owned(), 0),
        (format!("?message={message}"), 2),
        (format!("?message={message}&subscription={}", subscribers[1].id), 1),
        (format!("?subscription={}", others[0].id), 1),
        ("?topic=news".to_owned(), 1),
        ("?topic=olds".to_owned(), 0),
        ("?tier=transactional".to_owned(), 1),
        ("?gateway=fcm".to_owned(), 2),
        (format!("?since={day}"), 1),
        (format!("?until={day}"), 2),
        ("?retries=0".to_owned(), 3),
        ("?retries=1&gateway=fcm".to_owned(), 0),
    ] {
        assert_eq!(list(&app, &query).await.len(), n, "{query}");
    }
    for (by, expected) in [
        ("reason", json!([["bad_request", 2], ["unauthorized", 1]])),
        ("gateway", json!([["fcm", 2], ["mozilla", 1]])),
        ("status", json!([["400", 2], ["401", 1]])),
        ("tier", json!([["promotional", 2], ["transactional", 1]])),
        ("day", json!([["2027-01-15", 2], ["2027-01-16", 1]])),
    ] {
        let groups = app.get(&format!("{LETTERS}/groups?by={by}")).await;
        let counted: Vec<_> =
            groups["data"].as_array().unwrap().iter().map(|g| json!([g["key"], g["count"]])).collect();
        assert_eq!(json!(counted), expected, "{by}");
        assert_eq!(groups["done"], true);
    }
    let errors = app.get(&format!("{LETTERS}/groups?by=detail")).await["data"].as_array().unwrap().clone();
    assert_eq!(errors.iter().map(|error| error["count"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 1]);
    for error in errors {
        let detail = error["key"].as_str().unwrap_or("");
        let detail: String = url::form_urlencoded::byte_serialize(detail.as_bytes()).collect();
        assert_eq!(json!(list(&app, &format!("?detail={detail}")).await.len()), error["count"], "{detail}");
    }
    let none = post(&app, "/discard", json!({"filter": {"detail": "other words"}, "dry_run": true})).await.ok(200);
    assert_eq!(none["matched"], 0);
    let groups = app.get(&format!("{LETTERS}/groups?by=message&gateway=fcm")).await;
    let newest = groups["data"][0]["newest"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    assert_eq!((&groups["data"][0]["key"], newest), (&json!(message), START));

    // Pages follow one another, and the link keeps the filter.
    let first = app.get(&format!("{LETTERS}?gateway=fcm&limit=1")).await;
    assert_eq!((first["data"].as_array().unwrap().len(), &first["done"]), (1, &json!(false)));
    let iterator = first["iterator"].as_str().unwrap();
    let second = app.get(&format!("{LETTERS}?gateway=fcm&limit=1&iterator={iterator}")).await;
    assert_eq!(second["done"], true);
    assert_ne!(first["data"][0]["id"], second["data"][0]["id"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_filter_is_refused_by_its_name() {
    let app = TestApp::start().await;
    for (query, parameter) in [
        ("?reason=tired", "reason"),
        ("?status=9", "status"),
        ("?status=many", "status"),
        ("?state=shut", "state"),
        ("?message=sub_1", "message"),
        ("?subscription=x", "subscription"),
        ("?tier=gold", "tier"),
        ("?gateway=pigeon", "gateway"),
        ("?since=yesterday", "since"),
        ("?until=1", "until"),
        ("?retries=-", "retries"),
        ("?limit=0", "limit"),
    ] {
        let reply = app.call(Method::GET, &format!("{LETTERS}{query}"), Value::Null).await;
        assert_eq!((reply.status, &reply.json["errors"][0]["parameter"]), (400, &json!(parameter)), "{}", reply.json);
    }
    for path in ["/groups", "/groups?by=mood", "/export", "/export?format=xls", "?colour=red", "/dl_x"] {
        let reply = app.call(Method::GET, &format!("{LETTERS}{path}"), Value::Null).await;
        assert_eq!((reply.status, &reply.json["code"]), (400, &json!("invalid_parameter")), "{path}: {}", reply.json);
    }
    for (body, pointer) in [
        (json!({"filter": {"reason": "tired"}}), "/filter/reason"),
        (json!({"filter": {"id": "dl_1"}}), "/filter/id"),
        (json!({"filter": {"state": "replayed"}}), "/filter/state"),
        (json!({"filter": {}, "cap": 0}), "/cap"),
        (json!({"filter": {}, "cap": 100_001}), "/cap"),
        (json!({"filter": {}, "ttl": -1}), "/ttl"),
        (json!({"cap": 1}), "/filter"),
    ] {
        let reply = post(&app, "/replay", body.clone()).await;
        assert_eq!(
            (reply.status, &reply.json["errors"][0]["pointer"]),
            (422, &json!(pointer)),
            "{body}: {}",
            reply.json
        );
    }
    let missing = format!("{LETTERS}/dl_{}", uuid::Uuid::now_v7());
    assert_eq!(app.call(Method::GET, &missing, Value::Null).await.status, 404);
    assert_eq!(app.call(Method::POST, &format!("{missing}/replay"), Value::Null).await.status, 404);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letter_export_is_complete_without_formulas() {
    let app = TestApp::start().await;
    let (_, message) = letters_of(&app, 1).await;
    bury(&app, 4_500).await;
    let (kind, csv) = export(&app, "?format=csv").await;
    assert!(kind.starts_with("text/csv"), "{kind}");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    assert_eq!(reader.headers().unwrap().get(5), Some("detail"));
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
    assert_eq!(rows.len(), 4_501);
    let ids: std::collections::HashSet<_> = rows.iter().map(|row| row[0].to_owned()).collect();
    assert_eq!(ids.len(), 4_501);
    assert!(rows.iter().all(|row| row.iter().all(|cell| !cell.starts_with(['=', '+', '-', '@']))));
    let real = rows.iter().find(|row| row[10] == message).unwrap();
    assert_eq!((&real[5], &real[7]), ("'=bad, \"very\" bad", "1"), "the gateway's words and the attempts");

    let (kind, lines) = export(&app, &format!("?format=ndjson&message={message}")).await;
    assert_eq!(kind, "application/x-ndjson");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["detail"]), (1, &json!("=bad, \"very\" bad")));

    let trail = app.get(&format!("{LETTERS}/audit")).await["data"].clone();
    assert_eq!((&trail[1]["action"], &trail[1]["count"]), (&json!("export"), &json!(4_501)));
    assert_eq!((&trail[0]["count"], &trail[0]["filter"]), (&json!(1), &json!({"message": message})));
    assert!(trail[0]["actor"].as_str().unwrap().starts_with("ak_"), "{trail}");
    let (_, empty) = export(&app, "?format=csv&state=replayed").await;
    assert_eq!(empty.lines().count(), 1, "names, and nothing else");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letter_export_ends_with_its_permission() {
    const N: i32 = 16_000;
    let app = TestApp::start().await;
    letters_of(&app, 1).await;
    bury(&app, N).await;
    let exporter = key(&app, &[Scope::Export]).await;
    let request = Request::builder()
        .uri(format!("{LETTERS}/export?format=ndjson"))
        .header("authorization", format!("Bearer {exporter}"))
        .body(Body::empty())
        .unwrap();
    let mut parts = app.router.clone().oneshot(request).await.unwrap().into_body().into_data_stream();
    let lines = |part: &[u8]| part.iter().filter(|octet| **octet == b'\n').count();
    let mut had = lines(&parts.next().await.unwrap().unwrap());
    sqlx::query("UPDATE api_keys SET revoked_at = now() WHERE name = 'k'").execute(&app.pool).await.unwrap();
    app.clock.advance(Duration::from_secs(1));
    let broke_off = loop {
        match parts.next().await {
            Some(Ok(part)) => had += lines(&part),
            Some(Err(_)) => break true,
            None => break false,
        }
    };
    assert!(broke_off && had < N as usize / 2, "{had} letters");
    app.finish().await;
}
