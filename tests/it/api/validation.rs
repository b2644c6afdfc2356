//! Every validation error of the API, with the place that it names.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use crate::support::api::{TestApi, content, fcm, high_rate_limits, push_subscription, registration};

type Case = (&'static str, Value, &'static [&'static str]);

fn with(base: &Value, change: Value) -> Value {
    let mut body = base.clone();
    for (name, value) in change.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

async fn check(api: &TestApi, method: Method, path: &str, key: &str, cases: Vec<Case>) {
    for (why, body, places) in cases {
        let reply = api.call(method.clone(), path, Some(key), Some(body)).await;
        assert_eq!(reply.refusal(), (422, "invalid", places.to_vec()), "{why}: {}", reply.json);
        assert_eq!(reply.header("content-type"), "application/problem+json");
    }
}

#[tokio::test]
async fn app_faults_are_pointed_to() {
    let api = TestApi::start().await;
    let good = json!({"slug": "a", "name": "A", "origins": ["https://a.example"], "subject": "mailto:a@bellwire.dev"});
    let cases: Vec<Case> = vec![
        ("slug", with(&good, json!({"slug": "A b"})), &["/slug"]),
        ("name", with(&good, json!({"name": ""})), &["/name"]),
        ("NUL", with(&good, json!({"name": "a\u{0}"})), &["/name"]),
        ("origin", with(&good, json!({"origins": ["https://a.example", "https://a.example/"]})), &["/origins/1"]),
        ("origins", with(&good, json!({"origins": vec!["https://a.example"; 51]})), &["/origins"]),
        ("subject", with(&good, json!({"subject": "mailto:x@localhost"})), &["/subject"]),
        ("type", with(&good, json!({"allow_other_gateways": "yes"})), &["/allow_other_gateways"]),
        ("unknown", with(&good, json!({"nmae": 1})), &["/nmae"]),
        ("missing", json!({"slug": "a", "subject": "mailto:a@bellwire.dev"}), &["/name"]),
        ("types", with(&good, json!({"slug": 1, "name": null, "origins": [2]})), &["/name", "/origins/0", "/slug"]),
        ("all", json!({"slug": "", "name": "", "subject": ""}), &["/slug", "/name", "/subject"]),
    ];
    check(&api, Method::POST, "/v1/apps", &api.operator, cases).await;
    let cases: Vec<Case> = vec![
        ("name", json!({"name": ""}), &["/name"]),
        ("origin", json!({"origins": ["*"]}), &["/origins/0"]),
        ("slug", json!({"slug": "other"}), &["/slug"]),
    ];
    check(&api, Method::PATCH, "/v1/apps/shop", &api.key, cases).await;
}

#[tokio::test]
async fn key_faults_are_pointed_to() {
    let api = TestApi::start().await;
    let cases: Vec<Case> = vec![
        ("name", json!({"name": "", "scopes": ["read"]}), &["/name"]),
        ("scopes", json!({"name": "n", "scopes": []}), &["/scopes"]),
        ("scope", json!({"name": "n", "scopes": ["read", "write"]}), &["/scopes/1"]),
        ("operator", json!({"name": "n", "scopes": ["read", "operator"]}), &["/scopes/1"]),
        ("the server's", json!({"name": "n", "scopes": ["metrics", "read", "operator"]}), &["/scopes/0", "/scopes/2"]),
        ("manage", json!({"name": "n", "scopes": ["manage"]}), &["/scopes/0"]),
        ("past", json!({"name": "n", "scopes": ["read"], "expires_at": "2020-01-01T00:00:00Z"}), &["/expires_at"]),
        ("time", json!({"name": "n", "scopes": ["read"], "expires_at": "tomorrow"}), &["/expires_at"]),
    ];
    check(&api, Method::POST, "/v1/apps/shop/api-keys", &api.key, cases).await;
    let cases: Vec<Case> = vec![
        ("subject", json!({"subject": "push@bellwire.dev"}), &["/subject"]),
        ("state", json!({"state": "old"}), &["/state"]),
        ("retired", json!({"state": "retired"}), &["/state"]),
        ("public", json!({"public_key": "x"}), &["/public_key"]),
        ("private", json!({"private_key": "AAAA"}), &["/private_key"]),
        (
            "mismatch",
            json!({"private_key": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE",
            "public_key": bellwire_webpush::keys::SigningKey::generate().public_base64()}),
            &["/public_key"],
        ),
    ];
    check(&api, Method::POST, "/v1/apps/shop/vapid-keys", &api.key, cases).await;
}

#[tokio::test]
async fn subscription_faults_are_pointed_to() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let good = registration(&fcm("x"), json!({}));
    let push = |change: Value| json!({"subscription": with(&push_subscription(&fcm("x")), change)});
    let keys = |change: Value| {
        let mut subscription = push_subscription(&fcm("x"));
        subscription["keys"] = with(&subscription["keys"], change);
        json!({"subscription": subscription})
    };
    let nowhere = "sub_019aa000-0000-7000-8000-000000000000";
    let cases: Vec<Case> = vec![
        ("missing", json!({}), &["/subscription"]),
        ("type", json!({"subscription": "x"}), &["/subscription"]),
        ("no keys", json!({"subscription": {"endpoint": fcm("x")}}), &["/subscription/keys"]),
        ("http", push(json!({"endpoint": "http://fcm.googleapis.com/x"})), &["/subscription/endpoint"]),
        ("user info", push(json!({"endpoint": "https://a@fcm.googleapis.com/x"})), &["/subscription/endpoint"]),
        ("loopback", push(json!({"endpoint": "https://127.0.0.1/x"})), &["/subscription/endpoint"]),
        ("decimal", push(json!({"endpoint": "https://2130706433/x"})), &["/subscription/endpoint"]),
        ("private", push(json!({"endpoint": "https://[fd00::1]/x"})), &["/subscription/endpoint"]),
        ("other", push(json!({"endpoint": "https://push.elsewhere.dev/x"})), &["/subscription/endpoint"]),
        ("empty label", push(json!({"endpoint": "https://a..push.apple.com/x"})), &["/subscription/endpoint"]),
        ("no shard", push(json!({"endpoint": "https://a.b.c.push.apple.com/x"})), &["/subscription/endpoint"]),
        ("long", push(json!({"endpoint": fcm(&"x".repeat(2048))})), &["/subscription/endpoint"]),
        ("off the curve", keys(json!({"p256dh": format!("BA{}", "A".repeat(85))})), &["/subscription/keys/p256dh"]),
        ("short", keys(json!({"auth": "AAAA"})), &["/subscription/keys/auth"]),
        ("base64", keys(json!({"auth": "*"})), &["/subscription/keys/auth"]),
        ("token", with(&good, json!({"user_token": "x"})), &["/user_token"]),
        ("key id", with(&good, json!({"vapid_key_id": "x"})), &["/vapid_key_id"]),
        ("key", with(&good, json!({"vapid_key_id": "vk_019aa000-0000-7000-8000-000000000000"})), &["/vapid_key_id"]),
        ("replaces", with(&good, json!({"replaces": {"id": nowhere}})), &["/replaces"]),
        ("replaces", with(&good, json!({"replaces": {"id": "x"}})), &["/replaces/id"]),
        ("replaces", with(&good, json!({"replaces": {"id": nowhere, "token": "x"}})), &["/replaces/token"]),
        ("unknown", with(&good, json!({"colour": 1})), &["/colour"]),
        (
            "several",
            with(
                &push(json!({"endpoint": "x"})),
                json!({"tags": [""], "vapid_key_id": "vk_019aa000-0000-7000-8000-000000000000"}),
            ),
            &["/vapid_key_id", "/subscription/endpoint"],
        ),
    ];
    check(&api, Method::POST, "/v1/apps/shop/subscriptions", &api.key, cases).await;

    for (name, details, at) in [
        (
            "past",
            json!({"subscription": with(&push_subscription(&fcm("past")), json!({"expirationTime": 1_000}))}),
            "/subscription/expirationTime",
        ),
        (
            "huge",
            json!({"subscription": with(&push_subscription(&fcm("huge")), json!({"expirationTime": 1e30}))}),
            "/subscription/expirationTime",
        ),
        ("tags", json!({"tags": vec!["t"; 51]}), "/tags"),
        ("tag", json!({"tags": ["a", "t".repeat(65)]}), "/tags/1"),
        ("number", json!({"tags": ["a", 1]}), "/tags/1"),
        ("attribute", json!({"attributes": {"a/b": [1]}}), "/attributes/a~1b"),
        ("null", json!({"attributes": {"a": null}}), "/attributes/a"),
        ("name", json!({"attributes": {"": 1}}), "/attributes/"),
        ("large", json!({"attributes": {"a": "x".repeat(2048)}}), "/attributes"),
        ("topics", json!({"topics": vec!["t"; 51]}), "/topics"),
        ("topic", json!({"topics": ["a", "b c"]}), "/topics/1"),
        ("locale", json!({"locale": "e_n"}), "/locale"),
        ("timezone", json!({"timezone": "-03:30"}), "/timezone"),
        ("user", json!({"user_id": ""}), "/user_id"),
        ("long user", json!({"user_id": "é".repeat(256), "user_token": "x"}), "/user_id"),
        ("consent", json!({"consent": "yes"}), "/consent"),
        ("consented", json!({"consent": {"at": "yesterday"}}), "/consent/at"),
    ] {
        let made = api
            .post("/subscriptions", with(&registration(&fcm(&name.replace(' ', "-")), json!({})), details))
            .await
            .ok(201);
        assert_eq!(made["refused"][0]["pointer"], at, "{name}: {made}");
        assert_eq!(made["refused"].as_array().unwrap().len(), 1, "{name}: {made}");
    }
    let there = api.subscribe(&fcm("there"), json!({"attributes": {"kept": "x".repeat(1500)}})).await;
    let path = format!("/v1/apps/shop/subscriptions/{}", there["id"].as_str().unwrap());
    let cases: Vec<Case> = vec![
        ("user", json!({"user_id": ""}), &["/user_id"]),
        ("tags", json!({"tags": [""]}), &["/tags/0"]),
        ("attribute", json!({"attributes": {"a": {}}}), &["/attributes/a"]),
        ("together", json!({"attributes": {"more": "x".repeat(600)}}), &["/attributes"]),
        ("topics", json!({"topics": ["/"]}), &["/topics/0"]),
        ("locale", json!({"locale": "x"}), &["/locale"]),
        ("timezone", json!({"timezone": "x y"}), &["/timezone"]),
        ("endpoint", json!({"subscription": {}}), &["/subscription"]),
    ];
    check(&api, Method::PATCH, &path, &api.key, cases).await;
}

#[tokio::test]
async fn message_faults_are_pointed_to() {
    let api = TestApi::start().await;
    let known = api.subscribe(&fcm("a"), json!({})).await["id"].as_str().unwrap().to_owned();
    let unknown = "sub_019aa000-0000-7000-8000-000000000000";
    let good = json!({"to": {"subscriptions": [known]}, "content": content()});
    let to = |to: Value| with(&good, json!({"to": to}));
    let raw = |change: Value| with(&json!({"to": {"all": true}}), change);
    let cases: Vec<Case> = vec![
        ("missing", json!({"content": content()}), &["/to"]),
        ("nobody", to(json!({})), &["/to"]),
        ("two", to(json!({"all": true, "topic": "a"})), &["/to"]),
        ("unknown member", to(json!({"everyone": true})), &["/to/everyone"]),
        ("none", to(json!({"subscriptions": []})), &["/to/subscriptions"]),
        ("many", to(json!({"subscriptions": vec![&known; 1001]})), &["/to/subscriptions"]),
        ("id", to(json!({"subscriptions": [known, "x"]})), &["/to/subscriptions/1"]),
        ("unknown id", to(json!({"subscriptions": [known, unknown]})), &["/to/subscriptions/1"]),
        ("users", to(json!({"users": vec!["u"; 1001]})), &["/to/users"]),
        ("user", to(json!({"users": ["u", ""]})), &["/to/users/1"]),
        ("topic", to(json!({"topic": "a b"})), &["/to/topic"]),
        ("not all", to(json!({"all": false})), &["/to/all"]),
        ("tier", with(&good, json!({"tier": "urgent"})), &["/tier"]),
        ("ttl", with(&good, json!({"ttl": 2_419_201})), &["/ttl"]),
        ("ttl", with(&good, json!({"ttl": -1})), &["/ttl"]),
        ("ttl", with(&good, json!({"ttl": "1h"})), &["/ttl"]),
        ("urgency", with(&good, json!({"urgency": "highest"})), &["/urgency"]),
        ("collapse key", with(&good, json!({"collapse_key": ""})), &["/collapse_key"]),
        ("policy", with(&good, json!({"policy": {"maxAttempts": 101}})), &["/policy/maxAttempts"]),
        ("policy", with(&good, json!({"policy": {"colour": 1}})), &["/policy/colour"]),
        (
            "types",
            with(&good, json!({"ttl": "x", "tier": [], "to": {"users": [1]}})),
            &["/tier", "/to/users/0", "/ttl"],
        ),
        ("unknown", with(&good, json!({"send_at": "2030-01-01T00:00:00"})), &["/send_at"]),
        ("nothing", raw(json!({})), &["/content"]),
        ("both", raw(json!({"content": content(), "payload": "x"})), &["/payload"]),
        ("envelope", raw(json!({"content": content(), "envelope": false})), &["/envelope"]),
        ("title", raw(json!({"content": {"title": ""}})), &["/content/title"]),
        ("url", raw(json!({"content": {"title": "T", "url": "ftp://x"}})), &["/content/url"]),
        ("unknown member", raw(json!({"content": {"title": "T", "colour": 1}})), &["/content/colour"]),
        ("compact", raw(json!({"content": content(), "compact": {"title": ""}})), &["/compact/title"]),
        ("large", raw(json!({"content": {"title": "T", "data": {"x": "y".repeat(4000)}}})), &["/content"]),
        ("payload", raw(json!({"payload": "x".repeat(3834)})), &["/payload"]),
        ("untouched", raw(json!({"payload": "x".repeat(3994), "envelope": false})), &["/payload"]),
        ("base64", raw(json!({"payload": {"base64": "*"}})), &["/payload"]),
        ("several", json!({"to": {}, "ttl": -1, "content": {"title": ""}}), &["/to", "/ttl", "/content/title"]),
    ];
    check(&api, Method::POST, "/v1/apps/shop/messages", &api.key, cases).await;
    check(
        &api,
        Method::POST,
        "/v1/apps/shop/messages?dry_run=true",
        &api.key,
        vec![("unknown id", to(json!({"subscriptions": [unknown]})), &["/to/subscriptions/0"])],
    )
    .await;
    let untouched = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM messages").fetch_one(&api.pool).await;
    assert_eq!(untouched.unwrap(), 0, "nothing that was refused is stored");

    let large = api.post("/messages", raw(json!({"payload": "x".repeat(3834)}))).await;
    assert!(large.json["detail"].as_str().unwrap().contains("3834"), "the size is told: {}", large.json);
    for fits in [json!({"payload": "x".repeat(3833)}), json!({"payload": "x".repeat(3993), "envelope": false})] {
        api.post("/messages", raw(fits)).await.ok(202);
    }
}

#[tokio::test]
async fn wrong_parameters_and_headers_are_named() {
    let api = TestApi::start().await;
    type Case = (&'static str, (u16, &'static str, &'static [&'static str]));
    let cases: &[Case] = &[
        ("/messages?limit=0", (400, "invalid_parameter", &["limit"])),
        ("/messages?limit=251", (400, "invalid_parameter", &["limit"])),
        ("/messages?limit=x", (400, "invalid_parameter", &["limit"])),
        ("/messages?iterator=x", (400, "invalid_parameter", &["iterator"])),
        ("/messages?offset=3", (400, "invalid_parameter", &["offset"])),
        ("/messages?state=queued", (400, "invalid_parameter", &["state"])),
        ("/messages?tier=4", (400, "invalid_parameter", &["tier"])),
        ("/messages?topic=no%20name", (400, "invalid_parameter", &["topic"])),
        ("/messages?topic=nobody-made-it", (400, "invalid_parameter", &["topic"])),
        ("/messages/x", (400, "invalid_parameter", &["message"])),
        ("/messages/sub_019aa000-0000-7000-8000-000000000000", (400, "invalid_parameter", &["message"])),
        ("/messages/msg_019aa000-0000-7000-8000-000000000000", (404, "not_found", &[])),
        ("/messages/msg_019aa000-0000-7000-8000-000000000000/content", (404, "not_found", &[])),
        ("/messages/msg_019aa000-0000-7000-8000-000000000000/deliveries", (404, "not_found", &[])),
        (
            "/messages/msg_019aa000-0000-7000-8000-000000000000/deliveries/x",
            (400, "invalid_parameter", &["subscription"]),
        ),
        ("/subscriptions?state=asleep", (400, "invalid_parameter", &["state"])),
        ("/subscriptions?gateway=pigeon", (400, "invalid_parameter", &["gateway"])),
        ("/subscriptions?tag=%00", (400, "invalid_parameter", &["tag"])),
        ("/subscriptions/x", (400, "invalid_parameter", &["subscription"])),
        ("/subscriptions/sub_019aa000-0000-7000-8000-000000000000", (404, "not_found", &[])),
        ("/vapid-keys/x", (400, "invalid_parameter", &["vapid_key"])),
        ("/vapid-keys/vk_019aa000-0000-7000-8000-000000000000", (404, "not_found", &[])),
        ("/topics/a%20b", (400, "invalid_parameter", &["topic"])),
        ("/topics/none", (404, "not_found", &[])),
        ("/nothing", (404, "not_found", &[])),
    ];
    for (path, (status, code, places)) in cases {
        let reply = api.get(path).await;
        assert_eq!(reply.refusal(), (*status, *code, places.to_vec()), "{path}");
        assert_eq!(reply.json["instance"], json!(format!("/v1/apps/shop{}", path.split('?').next().unwrap())));
    }
    let body = json!({"to": {"all": true}, "content": content()});
    for key in ["", &"k".repeat(256)] {
        let headers = [("idempotency-key", key)];
        let path = "/v1/apps/shop/messages";
        let reply = api.call_with(Method::POST, path, Some(&api.key), Some(body.clone()), &headers).await;
        assert_eq!(reply.refusal(), (400, "invalid_header", vec!["Idempotency-Key"]));
    }
}

#[tokio::test]
async fn invalid_json_differs_from_wrong_json() {
    let api = TestApi::start().await;
    let post = |kind: &'static str, body: Vec<u8>| {
        let request = Request::post("/v1/apps/shop/messages")
            .header("authorization", format!("Bearer {}", api.key))
            .header("content-type", kind);
        api.send(request.body(Body::from(body)).unwrap())
    };
    let cases: Vec<(_, Vec<u8>, _)> = vec![
        ("text/plain", b"{}".to_vec(), (415, "unsupported_media_type")),
        ("application/json", b"{".to_vec(), (400, "malformed_json")),
        ("application/json", Vec::new(), (400, "malformed_json")),
        ("application/json", b"{} {}".to_vec(), (400, "malformed_json")),
        ("application/json", vec![0xff, 0xfe], (400, "malformed_json")),
        ("application/json", b"[{\"all\": true}]".to_vec(), (422, "invalid")),
        ("application/json", [br#"{"policy":"#.as_slice(), &b"[".repeat(100_000)].concat(), (400, "malformed_json")),
        ("application/json", vec![b' '; 1_100_000], (413, "body_too_large")),
    ];
    for (kind, body, (status, code)) in cases {
        let start = String::from_utf8_lossy(&body[..body.len().min(10)]).into_owned();
        let reply = post(kind, body).await;
        assert_eq!((reply.status, reply.json["code"].as_str().unwrap()), (status, code), "{kind} {start}");
    }
    let reply = api.call(Method::PUT, "/v1/apps/shop/messages", Some(&api.key), None).await;
    assert_eq!(reply.refusal(), (405, "method_not_allowed", vec![]));
}

#[tokio::test]
async fn missing_topic_is_refused_or_warned_about() {
    let api = TestApi::start().await;
    let send = json!({"to": {"topic": "nwes"}, "content": content()});
    for path in ["/messages", "/messages?dry_run=true"] {
        for (rights, status) in
            [(json!([]), 422), (json!(["create_topics"]), if path == "/messages" { 202 } else { 200 })]
        {
            let change = json!({"browsers_may": rights});
            api.call(Method::PATCH, "/v1/apps/shop", Some(&api.key), Some(change)).await.ok(200);
            let reply = api.post(path, send.clone()).await;
            assert_eq!(reply.status, status, "{path} {}", reply.json);
            let place = if status == 422 { &reply.json["errors"] } else { &reply.json["warnings"] };
            assert_eq!(place[0]["pointer"], "/to/topic", "{path} {}", reply.json);
        }
    }
}
