//! Files of subscriptions, taken in as they come.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Method;
use bellwire::testkit::api::ApiConfig;
use bellwire_webpush::keys::SigningKey;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use crate::support::api::{TestApi, fcm, push_subscription, same_browser};
use crate::support::imports::{import_counts, list_subscriptions, send_import, send_import_as};
use crate::support::json::assert_members;

async fn ndjson(api: &TestApi, path: &str, lines: &[Value]) -> Value {
    let file: String = lines.iter().map(|line| format!("{line}\n")).collect();
    send_import(api, path, "application/x-ndjson", file).await.ok(201)
}

/// A line of a file with further members.
fn line(name: &str, more: Value) -> Value {
    let mut line = same_browser(&fcm(name));
    line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    line
}

#[tokio::test]
async fn import_equals_registration_and_repeats_change_nothing() {
    let api = TestApi::start().await;
    let said = json!({"user_id": "ann", "tags": ["vip", "beta"], "attributes": {"plan": "pro", "n": 3}, "topics": ["sports", "news"],
        "locale": "de-AT", "timezone": "Europe/Vienna"});
    api.subscribe(&fcm("registered"), said.clone()).await;
    let file = [line("imported", said), line("bare", json!({"created_at": "2025-03-01T10:00:00Z"}))];
    assert_eq!(import_counts(&ndjson(&api, "", &file).await), [2, 2, 0, 0, 0]);
    let all = list_subscriptions(&api).await;
    let [bare, imported, registered] = &all[..] else { panic!("{all:?}") };
    for member in
        ["state", "gateway", "vapid_key_id", "user_id", "tags", "attributes", "topics", "locale", "timezone", "since"]
    {
        assert_eq!(imported[member], registered[member], "{member}");
    }
    assert_eq!(bare["created_at"], "2025-03-01T10:00:00Z");
    assert_ne!(bare["since"], bare["created_at"], "messages from before it came are not for it");
    assert_eq!(api.get("/topics/sports").await.ok(200)["members"], 2);
    assert_eq!(import_counts(&ndjson(&api, "", &file).await), [2, 0, 2, 0, 0]);
    assert_eq!(list_subscriptions(&api).await, all);
}

#[tokio::test]
async fn wrong_line_is_reported_without_its_value() {
    let api = TestApi::start().await;
    let mut no_keys = line("no-keys", json!({}));
    no_keys.as_object_mut().unwrap().remove("keys");
    let mut off_curve = line("off-curve", json!({}));
    off_curve["keys"]["auth"] = "hush".into();
    let foreign = json!({"endpoint": "https://hush.example/x", "keys": line("x", json!({}))["keys"]});
    let lines = [
        line("good", json!({})).to_string(),
        "hush".to_owned(),
        no_keys.to_string(),
        off_curve.to_string(),
        foreign.to_string(),
        line("tags", json!({"tags": [""], "vapid_key": "vk_hush"})).to_string(),
        String::new(),
        line("last", json!({"shoe_size": 43})).to_string(),
    ];
    let import = send_import(&api, "", "application/x-ndjson", lines.join("\r\n")).await.ok(201);
    assert_eq!(import_counts(&import), [8, 2, 0, 0, 5]);
    let faults = import["faults"].as_array().unwrap();
    let places: Vec<_> = faults.iter().map(|f| (f["line"].as_i64().unwrap(), f["field"].as_str().unwrap())).collect();
    let expected = [(2, ""), (3, "p256dh"), (3, "auth"), (4, "auth"), (5, "endpoint"), (6, "vapid_key")];
    assert_eq!(places, expected, "{faults:?}");
    assert!(!import.to_string().contains("hush"), "{import}");
    assert_eq!(import["ignored"], json!(["shoe_size"]));
    let shown = api.get(&format!("/imports/{}", import["id"].as_str().unwrap())).await.ok(200);
    assert_eq!(shown, import);
}

#[tokio::test]
async fn unknown_time_zone_is_kept_with_a_warning() {
    let api = TestApi::start().await;
    let zone = json!({"timezone": "Europe/Viena"});
    let registered = api.subscribe(&fcm("registered"), zone.clone()).await;
    let import = ndjson(&api, "", &[line("imported", zone)]).await;
    assert_eq!(import_counts(&import), [1, 1, 0, 0, 0], "{import}");
    for (warning, place, text) in
        [(&registered["warnings"][0], "pointer", "detail"), (&import["warnings"][0], "field", "reason")]
    {
        assert!(warning[place].as_str().is_some_and(|place| place.ends_with("timezone")), "{warning}");
        assert!(warning[text].as_str().is_some_and(|text| text.starts_with("\"Europe/Viena\" is stored")), "{warning}");
    }
    assert!(list_subscriptions(&api).await.iter().all(|it| it["timezone"] == "Europe/Viena"));
}

#[tokio::test]
async fn csv_and_web_push_arrays_import_alike() {
    let api = TestApi::start().await;
    let key = SigningKey::generate();
    let body = json!({"private_key": *key.expose_raw(), "state": "retired"});
    let retired = api.post("/vapid-keys", body).await.ok(201);
    let (a, b) = (push_subscription(&fcm("a")), push_subscription(&fcm("b")));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let file = format!(
        "abo;p256dh;auth;uid;tags;attributes;vapid_key;active\n{};{};{};ann;\"vip|beta\";\"{{\"\"plan\"\": \"\"pro\"\"}}\";{};t\n",
        text(&a["endpoint"]),
        text(&a["keys"]["p256dh"]),
        text(&a["keys"]["auth"]),
        key.public_base64()
    );
    let import = send_import(&api, "?map=abo:endpoint", "text/csv", file.clone()).await.ok(201);
    assert_eq!(import_counts(&import), [2, 1, 0, 0, 0], "{import}");
    let found = &list_subscriptions(&api).await[0];
    assert_eq!(
        (&found["user_id"], &found["tags"], &found["attributes"], &found["vapid_key_id"]),
        (&json!("ann"), &json!(["beta", "vip"]), &json!({"plan": "pro"}), &retired["id"])
    );
    let array = json!([a, b]);
    let import = send_import(&api, "", "application/json", array.to_string()).await.ok(201);
    assert_eq!(import_counts(&import), [2, 1, 1, 0, 0], "{import}");
    assert_eq!(send_import(&api, "", "text/html", "x").await.refusal().0, 415);
    assert_eq!(send_import(&api, "", "application/json", "[{}").await.refusal().0, 400);
}

#[tokio::test]
async fn dry_run_reports_and_stores_nothing() {
    let api = TestApi::start().await;
    api.subscribe(&fcm("known"), json!({})).await;
    let before = list_subscriptions(&api).await;
    let file = [line("new", json!({"topics": ["made"]})), line("known", json!({"user_id": "ann"}))];
    let import = ndjson(&api, "?dry_run=true", &file).await;
    assert_eq!((import_counts(&import), &import["dry_run"]), ([2, 1, 1, 0, 0], &json!(true)));
    assert_eq!(list_subscriptions(&api).await, before);
    assert_eq!(api.get("/topics/made").await.status, 404);
}

#[tokio::test]
async fn import_leaves_the_unsubscribed_alone() {
    let api = TestApi::start().await;
    let file = [line("left", json!({}))];
    ndjson(&api, "", &file).await;
    let id = list_subscriptions(&api).await[0]["id"].as_str().unwrap().to_owned();
    api.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{id}"), Some(&api.key), None).await.ok(204);
    assert_eq!(import_counts(&ndjson(&api, "", &file).await), [1, 0, 0, 1, 0]);
    assert_eq!(api.get(&format!("/subscriptions/{id}")).await.ok(200)["state"], "unsubscribed");
    let ended = line("dead", json!({"unsubscribed_at": "2025-01-01T00:00:00Z"}));
    assert_eq!(import_counts(&ndjson(&api, "", &[ended]).await), [1, 0, 0, 1, 0]);
}

#[tokio::test]
async fn interrupted_import_resumes_after_last_stored_line() {
    let api = TestApi::start().await;
    let lines: Vec<String> = (0..2_500).map(|n| format!("{}\n", line(&n.to_string(), json!({})))).collect();
    let broken = [Ok(Bytes::from(lines[..2_200].concat())), Err(std::io::Error::other("gone"))];
    let reply = send_import(&api, "", "application/x-ndjson", Body::from_stream(stream::iter(broken))).await;
    assert_eq!(reply.status, 400, "{}", reply.json);
    let place = reply.header("location").strip_prefix("/v1/apps/shop").unwrap().to_owned();
    let import = api.get(&place).await.ok(200);
    assert_eq!((import_counts(&import), &import["finished_at"]), ([2_000, 2_000, 0, 0, 0], &Value::Null));
    let id = format!("/{}", import["id"].as_str().unwrap());
    let gap = send_import(&api, &format!("{id}?from=2002"), "application/x-ndjson", lines[2_001..].concat()).await;
    assert_eq!(gap.refusal(), (400, "invalid_parameter", vec!["from"]));
    let rest =
        send_import(&api, &format!("{id}?from=2001"), "application/x-ndjson", lines[2_000..2_400].concat()).await;
    let rest = rest.ok(200);
    assert_eq!(import_counts(&rest), [2_400, 2_400, 0, 0, 0]);
    assert!(rest["finished_at"].is_string(), "the end of that body is the end of the file");
    let again = send_import(&api, &id, "application/x-ndjson", lines.concat()).await.ok(200);
    assert_eq!(again, rest, "what has ended stays as it is");
}

#[tokio::test]
async fn repeated_endpoint_is_one_subscription() {
    let api = TestApi::start().await;
    let (first, mut second) = (line("twice", json!({"user_id": "ann"})), line("twice", json!({"user_id": "ben"})));
    second["keys"] = first["keys"].clone();
    assert_eq!(import_counts(&ndjson(&api, "", &[first, second]).await), [2, 1, 1, 0, 0]);
    let all = list_subscriptions(&api).await;
    assert_eq!((all.len(), &all[0]["user_id"]), (1, &json!("ben")));
}

/// So many lines of different endpoints.
fn many(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("{}\n", line(&n.to_string(), json!({})))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn import_resumed_between_halves_counts_each_once() {
    const N: usize = 2_500;
    let api = TestApi::start().await;
    ndjson(&api, "", &[line("0", json!({}))]).await;
    // Who holds one subscription stops its half of the file, and the other one goes on.
    let mut held = api.pool.begin().await.unwrap();
    // However long the other half takes.
    sqlx::query("SET LOCAL idle_in_transaction_session_timeout = 0").execute(&mut *held).await.unwrap();
    sqlx::query("UPDATE subscriptions SET proven = proven").execute(&mut *held).await.unwrap();
    let lines = many(N);
    let whole = lines.concat();
    {
        let sending = send_import(&api, "", "application/x-ndjson", whole.clone());
        let half_is_in = async {
            let half = "SELECT EXISTS (SELECT FROM imports WHERE lines = 0 AND 0 < ANY (halves))";
            while !sqlx::query_scalar::<_, bool>(half).fetch_one(&api.pool).await.unwrap() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            reply = sending => panic!("it waits for who is held: {}", reply.json),
            () = half_is_in => {}
        }
    }
    held.rollback().await.unwrap();
    let broken = api.get("/imports").await.ok(200)["data"][0].clone();
    let [dealt_with, added, ..] = import_counts(&broken);
    assert_eq!((dealt_with, &broken["finished_at"]), (0, &Value::Null));
    assert!((1..N as i64).contains(&added), "{broken}");
    let id = format!("/{}", broken["id"].as_str().unwrap());
    let done = send_import(&api, &id, "application/x-ndjson", whole).await.ok(200);
    assert_eq!(import_counts(&done), [N as i64, N as i64 - 1, 1, 0, 0]);
    let there: i64 = sqlx::query_scalar("SELECT count(*) FROM subscriptions").fetch_one(&api.pool).await.unwrap();
    assert_eq!(there, N as i64);
}

#[tokio::test]
async fn later_line_of_an_endpoint_wins() {
    let api = TestApi::start().await;
    let mut lines = many(40);
    let later: Vec<String> = lines
        .iter()
        .map(|text| {
            let mut line: Value = serde_json::from_str(text).unwrap();
            line["user_id"] = json!("later");
            format!("{line}\n")
        })
        .collect();
    lines.extend(many(2_100).split_off(40)); // the later ones are in another part
    lines.extend(later.iter().cloned());
    let done = send_import(&api, "", "application/x-ndjson", lines.concat()).await.ok(201);
    assert_eq!(import_counts(&done), [2_140, 2_100, 40, 0, 0]);
    let later: i64 = sqlx::query_scalar("SELECT count(*) FROM subscriptions WHERE user_id = 'later'")
        .fetch_one(&api.pool)
        .await
        .unwrap();
    assert_eq!(later, 40);
}

#[tokio::test]
async fn first_lines_get_the_topics_that_fit() {
    let api = TestApi::start().await;
    let full = "INSERT INTO topics (app, name, made_by, created_at)
                SELECT a.id, 't' || i, 'server', now() FROM apps a, generate_series(1, 9998) i";
    sqlx::query(full).execute(&api.pool).await.unwrap();
    // Twelve lines that want a topic of their own or two, for two that fit.
    let wanted = |n: usize| (0..n % 2 + 1).map(|k| format!("new{n}-{k}")).chain(["t1".to_owned()]).collect::<Vec<_>>();
    let file: Vec<Value> = (0..12).map(|n| line(&n.to_string(), json!({"topics": wanted(n)}))).collect();
    let import = ndjson(&api, "", &file).await;
    // Both halves may have found the same room; each makes what one line wants whole or not at all.
    let [.., refused] = import_counts(&import);
    assert!((8..12).contains(&refused), "{import}");
    assert!(import["faults"].as_array().unwrap().iter().all(|fault| fault["field"] == "topics"), "{import}");
    let made = "SELECT count(*) FROM topics WHERE name LIKE 'new%'";
    let made: i64 = sqlx::query_scalar(made).fetch_one(&api.pool).await.unwrap();
    assert!((2..=4).contains(&made), "{made}");
    let halves = "SELECT count(*) FROM topics t WHERE name LIKE 'new%' AND split_part(substr(name, 4), '-', 1)::int % 2 = 1
                  AND NOT EXISTS (SELECT FROM topics o WHERE split_part(o.name, '-', 1) = split_part(t.name, '-', 1) AND o.id <> t.id)";
    let halves: i64 = sqlx::query_scalar(halves).fetch_one(&api.pool).await.unwrap();
    assert_eq!(halves, 0, "made for a line that was refused");
}

#[tokio::test]
async fn newcomer_notes_are_grouped_by_time() {
    let api = TestApi::start().await;
    let at = |n: i64, ago: i64| chrono::Utc::now() - chrono::TimeDelta::days(ago) + chrono::TimeDelta::microseconds(n);
    let lines: Vec<Value> = (0..60)
        .map(|n| line(&n.to_string(), json!({"created_at": at(n, [3, 400][n as usize % 2]).to_rfc3339()})))
        .collect();
    ndjson(&api, "", &lines).await;
    let notes: (i64, i64) = sqlx::query_as("SELECT count(*), sum(n)::bigint FROM audience_changes WHERE topic = 0")
        .fetch_one(&api.pool)
        .await
        .unwrap();
    assert_eq!(notes.1, 60);
    assert!(notes.0 <= 8, "two times in two halves, at most twice as many at the turn of an hour: {notes:?}");
}

/// A file that never ends: blank lines, each after others had their turn.
fn endless() -> Body {
    Body::from_stream(stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(b"\n"))).then(
        |line| async move {
            tokio::task::yield_now().await;
            line
        },
    ))
}

#[tokio::test]
async fn import_ends_with_its_permission() {
    let api = TestApi::start().await;
    for body in [Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>()), endless()] {
        let made = api.post("/api-keys", json!({"name": "n", "scopes": ["subscribers"]})).await.ok(201);
        let begun = api.get("/imports").await.ok(200)["data"].as_array().unwrap().len() + 1;
        let revoke = async {
            while api.get("/imports").await.ok(200)["data"].as_array().unwrap().len() < begun {}
            let path = format!("/v1/apps/shop/api-keys/{}", made["id"].as_str().unwrap());
            api.call(Method::DELETE, &path, Some(&api.key), None).await.ok(200);
        };
        let key = made["secret"].as_str().unwrap();
        let (reply, ()) = tokio::join!(send_import_as(&api, key, "", "application/x-ndjson", body), revoke);
        assert_eq!(reply.refusal(), (401, "unauthorized", vec![]));
    }
}

#[tokio::test]
async fn dripping_import_loses_its_slot_and_resumes() {
    let settings = ApiConfig { body_timeout: Duration::from_millis(50), ..ApiConfig::default() };
    let api = TestApi::with(settings, None).await;
    let first = Bytes::from(format!("{}\n", line("0", json!({}))));
    let drips = stream::iter([Ok(first.clone())]).chain(endless().into_data_stream());
    let reply = send_import(&api, "", "application/x-ndjson", Body::from_stream(drips)).await;
    assert_eq!(reply.refusal(), (408, "body_too_slow", vec![]));
    let id = reply.header("location").strip_prefix("/v1/apps/shop/imports").unwrap().to_owned();
    assert_eq!(import_counts(&send_import(&api, &id, "application/x-ndjson", first).await.ok(200)), [1, 1, 0, 0, 0]);
}

#[tokio::test]
async fn import_gets_past_lines_that_postgres_rejects() {
    let api = TestApi::start().await;
    let policy = json!({"healthyRetryPolicy": {"a\u{0}": 1}});
    let lines = [
        json!({"user_id": "a\u{0}"}),
        json!({"attributes": {"a\u{0}": 1}}),
        json!({"attributes.a\u{0}": "x"}),
        json!({"attributes": {"a": {"b": ["\u{0}"]}}}),
        json!({"tags": ["a\u{0}"]}),
        json!({"topics": ["a\u{0}"]}),
        json!({"policy": policy}),
        json!({"policy": policy.to_string()}),
        json!({"vapid_key": "\u{0}"}),
        json!({"consent": {"at": "2025-01-01T00:00:00Z", "source": "\u{0}"}}),
        json!({"a\u{0}": 1, "attributes.\u{0}": {}}),
        json!({"created_at": "0000-01-01T00:00:00Z"}),
        json!({"consent_at": "-200000-01-01T00:00:00Z"}),
        json!({"created_at": "-4714-01-01 00:00:00"}),
        json!({"type": "subscription", "state": "unsubscribed", "unsubscribed_at": "-20000-01-01T00:00:00Z"}),
        json!({"expires_at": "+10000-01-01T00:00:00Z"}),
    ];
    for (i, more) in lines.iter().enumerate() {
        let file = [line(&format!("bad-{i}"), more.clone()), line(&format!("good-{i}"), json!({}))];
        let import = ndjson(&api, "", &file).await;
        let [_, added, _, _, refused] = import_counts(&import);
        assert_members(&import, json!({"lines": 2, "known": 0, "left_out": 0}));
        assert_eq!(added, if refused == 0 { 2 } else { 1 }, "{more}: {import}");
        let fault = &import[if refused == 0 { "warnings" } else { "faults" }][0];
        let plain = |name: &str| !fault[name].as_str().unwrap().contains(char::is_control);
        assert!(fault["line"] == 1 && plain("field") && plain("reason"), "{more}: {fault}");
    }
    let keys = &same_browser(&fcm("csv"))["keys"];
    let row = |end: &str, user: &str| {
        format!("{},{},{},{user}\n", fcm(end), keys["p256dh"].as_str().unwrap(), keys["auth"].as_str().unwrap())
    };
    let file = format!("endpoint,p256dh,auth,user_id\n{}{}", row("csv-bad", "a\0b"), row("csv-good", "ann"));
    let import = send_import(&api, "", "text/csv", file).await.ok(201);
    assert_eq!((import_counts(&import), &import["warned"]), ([3, 2, 0, 0, 0], &json!(1)), "{import}");
    let file = format!("endpoint,p256dh,auth,attributes.a\0b\n{}{}", row("csv-name", "x"), row("csv-none", ""));
    let import = send_import(&api, "", "text/csv", file).await.ok(201);
    assert_eq!((import_counts(&import), &import["warned"]), ([3, 2, 0, 0, 0], &json!(1)), "{import}");
}
