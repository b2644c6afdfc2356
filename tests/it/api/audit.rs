//! Audit log: every change by a credential is recorded with actor and address, and entries stay.

mod stage;

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use bellwire::testkit::api::ApiConfig;
use bellwire::testkit::server::maintenance::{self, Retention};
use bellwire_store::keys::audit::AuditAction;
use serde_json::{Value, json};

use self::stage::{DELETION, Deed, stage};
use crate::support::api::{TestApi, fcm};
use crate::support::app::{DAY, RETENTION};
use crate::support::openapi::{openapi_description, operations};

/// Operations that are no GET and have no entry, and why. All others are deeds of [`stage`].
const UNLOGGED: [(&str, &str); 31] = [
    ("POST /v1/apps/{app}/subscriptions", "single registrations are many, and browsers' own"),
    ("PATCH /v1/apps/{app}/subscriptions/{subscription}", "the same"),
    ("DELETE /v1/apps/{app}/subscriptions/{subscription}", "the same"),
    ("POST /v1/apps/{app}/events", "events of users are data, like receipts"),
    ("POST /v1/apps/{app}/subscriptions/{subscription}/events", "the same"),
    ("POST /v1/apps/{app}/conversions", "the same"),
    ("POST /v1/apps/{app}/subscriptions/{subscription}/conversions", "the same"),
    ("POST /v1/apps/{app}/prompt/steps", "pages report steps of visitors"),
    ("POST /v1/apps/{app}/users/{user}/preferences-link", "one for each e-mail; a link to data has an entry"),
    ("POST /v1/apps/{app}/subscriptions/{subscription}/diagnoses", "browsers diagnose themselves"),
    ("PATCH /v1/apps/{app}/diagnoses/{code}", "the same"),
    ("PUT /v1/apps/{app}/topics/{topic}/subscriptions/{subscription}", "single memberships are many"),
    ("DELETE /v1/apps/{app}/topics/{topic}/subscriptions/{subscription}", "the same"),
    ("POST /v1/apps/{app}/messages", "a message is its own record"),
    ("POST /v1/apps/{app}/messages/batch", "the same"),
    ("POST /v1/apps/{app}/messages/{message}/deliveries/{subscription}/retry", "a delivery's story tells of it"),
    ("POST /v1/apps/{app}/messages/{message}/deliveries/{subscription}/cancel", "the same"),
    ("POST /v1/apps/{app}/imports/{import}", "its beginning is logged, and its end"),
    ("POST /v1/apps/{app}/receipts", "browsers report; nobody decides anything"),
    ("POST /v1/apps/{app}/campaigns/{campaign}/dry-run", "changes nothing"),
    ("POST /v1/apps/{app}/campaigns/{campaign}/test", "a message is its own record"),
    ("POST /v1/apps/{app}/webhooks/{webhook}/test", "its delivery is its own record"),
    ("POST /v1/apps/{app}/link-check", "changes nothing"),
    ("POST /v1/apps/{app}/segments/preview", "changes nothing"),
    ("POST /v1/apps/{app}/templates/check", "changes nothing"),
    ("POST /v1/apps/{app}/templates/preview", "changes nothing"),
    ("POST /v1/apps/{app}/policies/preview", "changes nothing"),
    ("POST /v1/apps/{app}/policies/simulate", "changes nothing"),
    ("POST /v1/session/passkeys/options", "only asks; what comes of it is logged"),
    ("POST /v1/session/link", "changes nothing"),
    ("DELETE /v1/session", "is done last, by itself"),
];

/// Does it, with the app's key where that may, and signed in as an admin where no key may.
async fn status(api: &TestApi, admin: &str, (method, path, body, _): &Deed) -> u16 {
    let of_app = path.starts_with("/v1/apps/") && !path.ends_with(DELETION);
    let body = Some(body.clone()).filter(|body| !body.is_null());
    if path.starts_with("/v1/session") || path.starts_with("/v1/team") {
        let headers = [("cookie", admin), ("sec-fetch-site", "same-origin")];
        return api.call_with(method.clone(), path, None, body, &headers).await.status;
    }
    let key = if of_app { &api.key } else { &api.operator };
    api.call(method.clone(), path, Some(key), body).await.status
}

async fn log(api: &TestApi, query: &str) -> Vec<Value> {
    let path = format!("/v1/audit-log?limit=250{query}");
    let page = api.call(Method::GET, &path, Some(&api.operator), None).await.ok(200);
    page["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn key_actions_are_logged_or_do_not_happen() {
    let (api, admin, deeds) = stage().await;
    // What comes of an OpenID provider is looked at where there is one; what the command line alone does has no request.
    let elsewhere = [
        AuditAction::TeammateJoined,
        AuditAction::TeammateLinked,
        AuditAction::DatabaseRestored,
        AuditAction::MasterKeyRotated,
        AuditAction::SealKeyAdded,
        AuditAction::ToolCalled,
    ];
    let here = AuditAction::ALL.iter().filter(|action| !elsewhere.contains(action));
    let mut never: BTreeSet<&str> = here.map(|action| action.name()).collect();
    for deed in &deeds {
        let (method, path, _, actions) = deed;
        // While the log takes nothing, nothing is done: it would be there, or be refused, when it is done again.
        sqlx::raw_sql("ALTER TABLE audit_log ADD CONSTRAINT full_ CHECK (false) NOT VALID")
            .execute(&api.pool)
            .await
            .unwrap();
        // Whom nothing is done for is answered before the log is written, lest the time tell who is a teammate.
        let is_refusal = *actions == [AuditAction::SessionRefused];
        let unlogged = if is_refusal { 401 } else { 500 };
        assert_eq!(status(&api, &admin, deed).await, unlogged, "{method} {path}");
        sqlx::raw_sql("ALTER TABLE audit_log DROP CONSTRAINT full_").execute(&api.pool).await.unwrap();
        api.clock.advance(Duration::from_secs(1));
        let since = api.clock.now().format("&since=%Y-%m-%dT%H:%M:%SZ").to_string();
        let expected = if is_refusal { 401..402 } else { 200..300 };
        assert!(expected.contains(&status(&api, &admin, deed).await), "{method} {path}");
        let mut entries = log(&api, &since).await;
        while is_refusal && entries.is_empty() {
            entries = log(&api, &since).await;
        }
        let mut logged: Vec<_> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
        logged.sort_unstable();
        let mut expected: Vec<_> = actions.iter().map(|action| action.name()).collect();
        expected.sort_unstable();
        assert_eq!(logged, expected, "{method} {path}");
        assert!(entries.iter().all(|entry| !entry["target"].as_str().unwrap().is_empty()), "{entries:?}");
        never.retain(|action| !expected.contains(action));
    }
    assert!(never.is_empty(), "no request of this test is {never:?}: add one to `stage`");
    let signed_in = api.teammate("last@example.com", json!([{"role": "viewer"}])).await;
    assert_eq!(signed_in.call(Method::DELETE, "/v1/session", None).await.status, 204);
    assert_eq!(log(&api, "&action=session.ended").await[0]["actor"], signed_in.session["teammate"]);
    let text = Value::from(log(&api, "").await).to_string();
    for secret in ["otto", "bw_", "bwi_", "PRIVATE", api.key.as_str()] {
        assert!(!text.contains(secret), "{secret} is in the log");
    }
}

/// Whether a path is of that template: how many of its segments stand there to the letter.
fn likeness(template: &str, path: &str) -> Option<usize> {
    let (template, path): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
    let fits = |(known, given): (&&str, &&str)| known.starts_with('{') || known == given;
    (template.len() == path.len() && template.iter().zip(&path).all(fits))
        .then(|| template.iter().filter(|segment| !segment.starts_with('{')).count())
}

#[tokio::test]
async fn each_changing_operation_is_logged_or_listed() {
    let (api, _, deeds) = stage().await;
    let all = operations(&openapi_description(&api).await);
    let mut logged = BTreeSet::new();
    for (method, path, ..) in &deeds {
        let path = path.split('?').next().unwrap();
        let likely = all.iter().filter(|(_, known, _)| known == method);
        let found = likely.max_by_key(|(template, ..)| likeness(template, path));
        let (template, ..) = found.filter(|(template, ..)| likeness(template, path).is_some()).expect("described");
        logged.insert(format!("{method} {template}"));
    }
    let unlogged: BTreeSet<_> = UNLOGGED.iter().map(|(operation, _)| (*operation).to_owned()).collect();
    let both: Vec<_> = logged.intersection(&unlogged).collect();
    assert!(both.is_empty(), "{both:?} are logged: take them out of UNLOGGED");
    let changing = all.iter().filter(|(_, method, _)| *method != Method::GET);
    let changing: BTreeSet<_> = changing.map(|(path, method, _)| format!("{method} {path}")).collect();
    let unknown: Vec<_> = changing.iter().filter(|it| !logged.contains(*it) && !unlogged.contains(*it)).collect();
    assert!(unknown.is_empty(), "{unknown:?}: record an entry and add a deed to `stage`, or name it in UNLOGGED");
    let gone: Vec<_> = unlogged.difference(&changing).collect();
    assert!(gone.is_empty(), "{gone:?} are none any more");
}

#[tokio::test]
async fn entry_names_actor_origin_target_and_count() {
    let settings = ApiConfig { trusted_proxies: 1, ..ApiConfig::default() };
    let api = TestApi::with(settings, None).await;
    for name in ["a", "b"] {
        api.subscribe(&fcm(name), json!({"user_id": "otto"})).await;
    }
    let erase = async |key: &str, client: &str| {
        let headers = [("x-forwarded-for", client)];
        let path = "/v1/apps/shop/users/otto";
        api.call_with(Method::DELETE, path, Some(key), None, &headers).await.ok(200);
    };
    erase(&api.key, "made-up, 192.0.2.7").await;
    api.clock.advance(Duration::from_secs(1));
    erase(&api.operator, "::ffff:192.0.2.8").await;
    let entries = log(&api, "&action=user.erased").await;
    let keys = api.get("/api-keys").await.ok(200);
    let [second, first] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((&first["actor"], &first["actor_kind"]), (&keys["data"][0]["id"], &json!("api_key")));
    assert_eq!((&first["address"], &first["n"], &first["app"]), (&json!("192.0.2.7"), &json!(2), &api.app["id"]));
    assert_eq!(
        (&second["actor_kind"], &second["address"], &second["n"]),
        (&json!("operator"), &json!("192.0.2.8"), &json!(0))
    );
    let label = first["target"].as_str().unwrap();
    assert!(label.starts_with("user:") && label.len() == 21 && first["target"] == second["target"], "{label}");
    let made = log(&api, "&action=api_key.created&actor=local").await;
    assert_eq!(
        (&made[0]["actor"], &made[0]["actor_kind"], &made[0]["address"]),
        (&json!("local"), &json!("local"), &Value::Null)
    );
    // The app's log hides the address of an operator.
    let own = api.get("/audit-log?action=user.erased").await.ok(200);
    let addresses: Vec<_> = own["data"].as_array().unwrap().iter().map(|entry| &entry["address"]).collect();
    assert_eq!(addresses, [&Value::Null, &json!("192.0.2.7")]);
    let id = second["actor"].as_str().unwrap();
    let by_operator =
        async |more: &str| log(&api, &format!("&action=user.erased&app=shop&actor={id}{more}")).await.len();
    assert_eq!(by_operator("").await, 1);
    assert_eq!(by_operator("&until=2027-01-15T08:00:01Z").await, 0);
    assert_eq!(by_operator("&since=2027-01-15T08:00:01Z").await, 1);
}

#[tokio::test]
async fn app_reads_only_its_own_log() {
    let api = TestApi::start().await;
    let (other, stranger) = api.make_app("other").await;
    let theirs = api.call(Method::GET, "/v1/apps/other/audit-log", Some(&stranger), None).await.ok(200);
    let apps: BTreeSet<_> =
        theirs["data"].as_array().unwrap().iter().map(|entry| entry["app"].as_str().unwrap()).collect();
    assert_eq!(apps, BTreeSet::from([other["id"].as_str().unwrap()]));
    assert_eq!(api.call(Method::GET, "/v1/apps/shop/audit-log", Some(&stranger), None).await.status, 404);
    let page = api.get("/audit-log?limit=1").await.ok(200);
    let next = api.get(&format!("/audit-log?limit=1&iterator={}", page["iterator"].as_str().unwrap())).await.ok(200);
    assert!(next["done"] == true && page["data"][0]["id"] != next["data"][0]["id"], "{page} {next}");
    for (query, name) in
        [("actor=me", "actor"), ("action=app.eaten", "action"), ("since=tomorrow", "since"), ("app=shop", "app")]
    {
        let refused = api.get(&format!("/audit-log?{query}")).await;
        assert_eq!(refused.refusal(), (400, "invalid_parameter", vec![name]), "{query}");
    }
    let none = api.call(Method::GET, "/v1/audit-log?app=none", Some(&api.operator), None).await;
    assert_eq!(none.refusal(), (404, "not_found", vec![]));
}

#[tokio::test]
async fn only_retention_removes_log_entries() {
    let api = TestApi::start().await;
    for statement in ["UPDATE audit_log SET n = 7", "DELETE FROM audit_log", "TRUNCATE audit_log"] {
        let refused = sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&api.pool).await.unwrap_err();
        assert!(refused.to_string().contains("append-only"), "{statement}: {refused}");
    }
    let before = log(&api, "").await.len();
    api.clock.advance(DAY * 10);
    api.post("/vapid-keys", json!({})).await.ok(201);
    let keep = async |audit_log| {
        let retention = Retention { audit_log, ..RETENTION };
        maintenance::keep_house(&api.pool, api.clock.now(), retention).await.unwrap();
        log(&api, "").await.len()
    };
    assert_eq!(keep(None).await, before + 2, "for ever");
    assert_eq!(keep(Some(DAY * 11)).await, before + 2);
    assert_eq!(keep(Some(DAY * 9)).await, 2, "what was rotated today");
    let refused = sqlx::query("DELETE FROM audit_log").execute(&api.pool).await.unwrap_err();
    assert!(refused.to_string().contains("append-only"), "also on a connection that retention used: {refused}");
}

/// The address of a peer that no proxy stands before.
#[tokio::test]
async fn peer_is_the_client_without_a_proxy() {
    let api = TestApi::start().await;
    let request = Request::builder()
        .method(Method::POST)
        .uri("/v1/apps/shop/vapid-keys")
        .header("authorization", format!("Bearer {}", api.key))
        .header("content-type", "application/json")
        .header("x-forwarded-for", "203.0.113.9")
        .extension(axum::extract::ConnectInfo(std::net::SocketAddr::from(([192, 0, 2, 9], 4711))));
    api.send(request.body(Body::from("{}")).unwrap()).await.ok(201);
    assert_eq!(log(&api, "&action=vapid_key.activated").await[0]["address"], "192.0.2.9");
}
