//! Sign-in and sign-out: every method, session lengths, allowed pages, and delays after wrong passwords.

use std::time::{Duration, Instant};

use axum::http::Method;
use bellwire::testkit::api::ApiConfig;
use bellwire_core::scope::Scope;
use bellwire_store::keys::api_keys;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::api::{Browser, Reply, TestApi, content, cookie, high_rate_limits};
use crate::support::app::PATIENCE;

const MINUTE: Duration = Duration::from_secs(60);

fn everything() -> Value {
    json!([{"role": "admin"}])
}

/// Tries to sign in from a client at that address.
async fn try_from(api: &TestApi, client: &str, body: Value) -> Reply {
    api.call_with(Method::POST, "/v1/session", None, Some(body), &[("x-forwarded-for", client)]).await
}

fn with_password(email: &str, password: &str) -> Value {
    json!({"email": email, "password": password})
}

/// Server behind a proxy that forwards client addresses, and the teammate Ann with a password.
async fn with_ann() -> TestApi {
    let api = TestApi::with(ApiConfig { trusted_proxies: 1, ..high_rate_limits() }, None).await;
    let (_, link) = api.invite("ann@example.com", everything()).await;
    let body = json!({"link": link, "new_password": PASSWORD});
    try_from(&api, HOME, body).await.ok(201);
    api
}

/// Waits until the log contains `n` refused sign-ins of that teammate. Responses do not wait for the log.
async fn refusals_of(api: &TestApi, target: &str, n: usize) -> Vec<Value> {
    let told = async {
        loop {
            let path = "/v1/audit-log?limit=250&action=session.refused";
            let log = api.call(Method::GET, path, Some(&api.operator), None).await.ok(200);
            let mut entries = log["data"].as_array().unwrap().clone();
            entries.retain(|entry| entry["target"] == target && entry["actor"] == "nobody");
            if entries.len() >= n {
                break entries;
            }
        }
    };
    timeout(PATIENCE, told).await.expect("the log tells of it")
}

const PASSWORD: &str = "correct horse battery";
/// Address of Ann's earlier sign-ins.
const HOME: &str = "192.0.2.1";

#[tokio::test]
async fn link_works_once_then_the_password() {
    let api = TestApi::start().await;
    let (invited, link) = api.invite(" Ann@Example.com", everything()).await;
    assert_eq!(invited["link"]["path"], format!("/admin/invite#{link}"));
    assert_eq!((&invited["email"], &invited["has_password"]), (&json!("ann@example.com"), &json!(false)));
    let weak = json!({"link": link, "new_password": "short"});
    let refused = api.call(Method::POST, "/v1/session", None, Some(weak)).await;
    assert_eq!(refused.refusal(), (422, "invalid", vec!["/new_password"]), "and the link still works");

    let reply =
        api.call(Method::POST, "/v1/session", None, Some(json!({"link": link, "new_password": PASSWORD}))).await;
    let set = reply.header("set-cookie").to_owned();
    assert!(
        set.starts_with("bellwire=ey") && set.ends_with("; Path=/; Max-Age=1800; HttpOnly; SameSite=Strict"),
        "{set}"
    );
    let session = reply.ok(201);
    assert_eq!((&session["email"], &session["teammate"]), (&json!("ann@example.com"), &invited["id"]));
    assert_eq!(
        (&session["roles"], &session["may_change_team"]),
        (&json!([{"role": "admin", "app": null}]), &json!(true))
    );
    let again = api.call(Method::POST, "/v1/session", None, Some(json!({"link": link}))).await;
    assert_eq!(again.refusal(), (401, "sign_in_refused", vec![]), "once");

    let ann = api.sign_in(with_password("ANN@example.com", PASSWORD)).await;
    assert_eq!(ann.get("/v1/session").await.ok(200), ann.session);
    assert_eq!(ann.get("/v1/apps/shop").await.ok(200)["slug"], "shop");
    let out = ann.call(Method::DELETE, "/v1/session", None).await;
    assert!(out.header("set-cookie").starts_with("bellwire=; Path=/; Max-Age=0;"), "{:?}", out.headers);
    assert_eq!((out.status, ann.is_in().await), (204, false), "the cookie that it had is worth nothing");
    let stale = ann.get("/v1/apps/shop").await;
    assert_eq!(stale.refusal(), (401, "unauthorized", vec![]));
    for secret in [link.as_str(), PASSWORD] {
        let team = api.locally(Method::GET, "/v1/team", Value::Null).await.ok(200);
        assert!(!team.to_string().contains(secret));
        let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM teammates t WHERE t::text LIKE '%' || $1 || '%'")
            .bind(secret)
            .fetch_one(&api.pool)
            .await
            .unwrap();
        assert_eq!(kept, 0);
    }
}

#[tokio::test]
async fn expired_replaced_and_invented_links_are_refused() {
    let api = TestApi::start().await;
    let (invited, first) = api.invite("ann@example.com", everything()).await;
    let reset = format!("/v1/team/{}/reset", invited["id"].as_str().unwrap());
    let second = api.locally(Method::POST, &reset, Value::Null).await.ok(200)["link"]["token"].clone();
    let third = api.invite("ben@example.com", everything()).await.1;
    let enter = async |link: Value| api.call(Method::POST, "/v1/session", None, Some(json!({"link": link}))).await;
    for none in [json!(first), json!("bwl_"), json!(""), json!("x".repeat(500))] {
        assert_eq!(enter(none.clone()).await.refusal(), (401, "sign_in_refused", vec![]), "{none}");
    }
    assert_eq!(enter(second).await.status, 201);
    api.clock.advance(Duration::from_secs(3 * 86_400));
    assert_eq!(enter(json!(third)).await.status, 401, "after three days");
}

#[tokio::test]
async fn operator_key_signs_in_while_valid() {
    let api = TestApi::start().await;
    let soon = api.clock.now() + MINUTE * 10;
    let make = async |app, scope, expires_at| {
        api_keys::create(&api.pool, &api.vault, app, "k", &[scope], expires_at, &api.clock).await.unwrap()
    };
    let (_, metrics) = make(None, Scope::Metrics, None).await;
    for (key, status) in [(api.key.as_str(), 403), (&metrics, 403), ("bw_made-up", 401), ("", 401)] {
        let reply = api.call(Method::POST, "/v1/session", None, Some(json!({"api_key": key}))).await;
        assert_eq!(reply.status, status, "{}", reply.json);
    }
    let (_, key) = make(None, Scope::Operator, Some(soon)).await;
    let browser = api.sign_in(json!({"api_key": key})).await;
    assert!(browser.session["api_key"].as_str().unwrap().starts_with("ak_") && browser.session["teammate"].is_null());
    assert_eq!(browser.get("/v1/gateways").await.status, 200);
    assert_eq!(browser.get("/v1/team").await.status, 403, "what it let in would outlive it");
    browser.call(Method::PUT, "/v1/apps/shop/topics/news", Some(json!({}))).await.ok(201);
    let entries = api.get("/audit-log?action=topic.created").await.ok(200);
    assert_eq!(
        (&entries["data"][0]["actor_kind"], &entries["data"][0]["actor"]),
        (&json!("operator"), &browser.session["api_key"])
    );
    let change = Some(json!({"new_password": PASSWORD}));
    assert_eq!(browser.call(Method::PUT, "/v1/session/password", change).await.status, 403, "it has none");
    api.clock.advance(MINUTE * 10);
    assert!(!browser.is_in().await, "the key has expired");
}

#[tokio::test]
async fn session_ends_when_idle_or_after_twelve_hours() {
    let api = TestApi::start().await;
    let mut ann = api.teammate("ann@example.com", everything()).await;
    let idle = Browser { api: &api, cookie: ann.cookie.clone(), session: Value::Null };
    assert_eq!(ann.get("/v1/session").await.header("set-cookie"), "", "it is fresh");
    let mut renewed = 0;
    for minutes in (20..720).step_by(20) {
        api.clock.advance(MINUTE * 20);
        let reply = ann.get("/v1/apps/shop").await;
        assert_eq!(reply.status, 200, "after {minutes} minutes");
        ann.cookie = cookie(&reply);
        renewed += 1;
        assert_eq!(idle.is_in().await, minutes < 30, "the first cookie after {minutes} minutes");
    }
    assert_eq!(renewed, 35);
    api.clock.advance(MINUTE * 20);
    assert!(!ann.is_in().await, "twelve hours are the end");
}

#[tokio::test]
async fn cross_site_request_with_cookie_is_refused() {
    let api = TestApi::start().await;
    let ann = api.teammate("ann@example.com", everything()).await;
    let message = || Some(json!({"to": {"all": true}, "content": content()}));
    for path in ["/v1/apps/shop/messages", "/v1/apps", "/v1/apps/shop/subscriptions", "/v1/gateways/1/hold"] {
        for site in ["cross-site", "same-site", "none"] {
            let reply = ann.call_from(site, Method::POST, path, message()).await;
            assert_eq!(reply.refusal(), (403, "cross_site", vec![]), "{path} from {site}");
        }
        let unsaid = [("cookie", ann.cookie.as_str())];
        let reply = api.call_with(Method::POST, path, None, message(), &unsaid).await;
        assert_eq!(reply.refusal(), (403, "cross_site", vec![]), "{path} from nobody knows where");
    }
    for site in ["cross-site", "same-site"] {
        assert_eq!(ann.call_from(site, Method::GET, "/v1/apps/shop", None).await.refusal().1, "cross_site");
        let steered = [("sec-fetch-site", site)];
        let body = Some(json!({"api_key": api.operator}));
        let reply = api.call_with(Method::POST, "/v1/session", None, body, &steered).await;
        assert_eq!(
            (reply.refusal().1, reply.header("set-cookie")),
            ("cross_site", ""),
            "nobody is signed in by {site}"
        );
        let keyed = api.call_with(Method::POST, "/v1/apps/shop/messages", Some(&api.key), message(), &steered).await;
        assert_eq!(keyed.status, 202);
    }
    let shops = [("origin", "https://shop.example"), ("host", "push.example")];
    let body = Some(json!({"api_key": api.operator}));
    let reply = api.call_with(Method::POST, "/v1/session", None, body, &shops).await;
    assert_eq!((reply.refusal().1, reply.header("set-cookie")), ("cross_site", ""));
    let older = |origin| [("cookie", ann.cookie.as_str()), ("host", "push.example"), ("origin", origin)];
    for (origin, status) in [("https://push.example", 202), ("https://shop.example", 403), ("null", 403)] {
        let reply = api.call_with(Method::POST, "/v1/apps/shop/messages", None, message(), &older(origin)).await;
        assert_eq!(reply.status, status, "{origin}: {}", reply.json);
    }
    assert_eq!(ann.call(Method::POST, "/v1/apps/shop/messages", message()).await.status, 202);
    let wrong = [("cookie", "bellwire=eyJhbGciOiJIUzI1NiJ9.e30.x"), ("sec-fetch-site", "same-origin")];
    let reply = api.call_with(Method::GET, "/v1/apps/shop", None, None, &wrong).await;
    assert_eq!(reply.refusal(), (401, "unauthorized", vec![]));
}

#[tokio::test]
async fn tls_server_accepts_only_host_cookies() {
    let settings = ApiConfig { cookies: bellwire::testkit::api::Cookies { secure: true }, ..ApiConfig::default() };
    let api = TestApi::with(settings, None).await;
    let ann = api.teammate("ann@example.com", everything()).await;
    let token = ann.cookie.strip_prefix("__Host-bellwire=").expect("its name");
    assert!(ann.is_in().await);
    let planted = Browser { api: &api, cookie: format!("bellwire={token}"), session: Value::Null };
    assert!(!planted.is_in().await);
}

#[tokio::test]
async fn guessing_is_slowed_and_reveals_nothing() {
    let api = with_ann().await;
    let guess =
        async |email: &str, client: &str| try_from(&api, client, with_password(email, "wrong horse battery")).await;
    let told = |reply: &Reply| (reply.status, reply.json["code"].clone(), reply.json["detail"].clone());
    let known = guess("ann@example.com", "192.0.2.9").await;
    let unknown = guess("nobody@example.com", "192.0.2.9").await;
    assert_eq!(told(&known), told(&unknown), "whether there is such a teammate");
    assert_eq!(known.refusal(), (401, "sign_in_refused", vec![]));
    for _ in 0..4 {
        assert_eq!(guess("ann@example.com", "192.0.2.9").await.status, 401);
    }
    for wait_s in ["2", "3", "5"] {
        let waits = guess("ann@example.com", "192.0.2.9").await;
        assert_eq!((waits.refusal(), waits.header("retry-after")), ((429, "rate_limited", vec![]), wait_s));
        api.clock.advance(Duration::from_secs(wait_s.parse().unwrap()));
        assert_eq!(guess("ann@example.com", "192.0.2.9").await.status, 401);
    }
    assert_eq!(try_from(&api, "192.0.2.9", with_password("ann@example.com", PASSWORD)).await.status, 429);
    assert_eq!(try_from(&api, HOME, with_password("ann@example.com", PASSWORD)).await.status, 201, "Ann is elsewhere");
}

#[tokio::test]
async fn many_addresses_lock_no_account_out() {
    let api = with_ann().await;
    let right = || with_password("ann@example.com", PASSWORD);
    for n in 0..50 {
        let client = format!("198.51.100.{n}");
        assert_eq!(try_from(&api, &client, with_password("ann@example.com", "wrong horse battery")).await.status, 401);
    }
    let elsewhere = try_from(&api, "203.0.113.1", right()).await;
    assert_eq!(
        (elsewhere.refusal().0, elsewhere.header("retry-after")),
        (429, "2"),
        "for a moment, where she never was"
    );
    try_from(&api, HOME, right()).await.ok(201);
    let ann = api.locally(Method::GET, "/v1/team", Value::Null).await.ok(200)["data"][0]["id"].clone();
    let reset = format!("/v1/team/{}/reset", ann.as_str().unwrap());
    let link = api.locally(Method::POST, &reset, Value::Null).await.ok(200)["link"]["token"].clone();
    try_from(&api, "203.0.113.1", json!({"link": link})).await.ok(201);
    try_from(&api, "203.0.113.1", json!({"api_key": api.operator})).await.ok(201);
}

#[tokio::test]
async fn password_change_ends_other_sessions() {
    let api = with_ann().await;
    let (here, there) = (
        api.sign_in(with_password("ann@example.com", PASSWORD)).await,
        api.sign_in(with_password("ann@example.com", PASSWORD)).await,
    );
    let change = async |body: Value| here.call(Method::PUT, "/v1/session/password", Some(body)).await;
    let new = "staple horse battery";
    assert_eq!(change(json!({"new_password": new})).await.refusal(), (422, "invalid", vec!["/current_password"]));
    let wrong = change(json!({"current_password": "wrong horse battery", "new_password": new})).await;
    assert_eq!(wrong.refusal(), (403, "forbidden", vec!["/current_password"]));
    let log = api.call(Method::GET, "/v1/audit-log?action=session.refused", Some(&api.operator), None).await.ok(200);
    assert_eq!(
        (&log["data"][0]["actor"], &log["data"][0]["detail"]),
        (&here.session["teammate"], &json!({"by": "current_password"}))
    );
    let weak = change(json!({"current_password": PASSWORD, "new_password": "ann@example.com"})).await;
    assert_eq!(weak.refusal(), (422, "invalid", vec!["/new_password"]));
    assert_eq!(change(json!({"current_password": PASSWORD, "new_password": new})).await.status, 204);
    assert!(here.is_in().await && !there.is_in().await);
    let refused = api.call(Method::POST, "/v1/session", None, Some(with_password("ann@example.com", PASSWORD))).await;
    assert_eq!(refused.status, 401);
    api.sign_in(with_password("ann@example.com", new)).await;

    let ben = api.teammate("ben@example.com", everything()).await;
    api.clock.advance(MINUTE * 15);
    let late = ben.call(Method::PUT, "/v1/session/password", Some(json!({"new_password": new}))).await;
    assert_eq!(late.refusal(), (403, "forbidden", vec![]), "a first one only right after the link");
}

#[tokio::test]
async fn people_list_and_end_their_sessions() {
    let api = TestApi::start().await;
    let (_, link) = api.invite("ann@example.com", json!([{"role": "viewer", "app": "shop"}])).await;
    let agent = [("user-agent", "Firefox/140")];
    let body = Some(json!({"link": link, "new_password": PASSWORD}));
    let first = api.call_with(Method::POST, "/v1/session", None, body, &agent).await;
    let first = Browser { api: &api, cookie: cookie(&first), session: first.ok(201) };
    let [second, third] = [with_password("ann@example.com", PASSWORD), with_password("ann@example.com", PASSWORD)]
        .map(|body| api.sign_in(body));
    let (second, third) = (second.await, third.await);
    let ben = api.teammate("ben@example.com", json!([{"role": "admin"}])).await;
    let listed = second.get("/v1/sessions").await.ok(200)["data"].clone();
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|session| session["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [third.id(), second.id(), first.id()], "her own alone");
    assert_eq!((&listed[1]["is_this"], &listed[2]["is_this"]), (&json!(true), &json!(false)));
    assert_eq!((&listed[2]["browser"], &listed[2]["address"]), (&json!("Firefox/140"), &json!("127.0.0.1")));
    let end =
        async |by: &Browser<'_>, id: &str| by.call(Method::DELETE, &format!("/v1/sessions/{id}"), None).await.status;
    assert_eq!((end(&second, first.id()).await, first.is_in().await), (204, false));
    assert_eq!(end(&second, first.id()).await, 404, "it has ended");
    assert_eq!((end(&second, ben.id()).await, ben.is_in().await), (404, true), "somebody else's");
    assert_eq!(second.call(Method::DELETE, "/v1/sessions", None).await.ok(200), json!({"ended": 1}));
    assert!(second.is_in().await && !third.is_in().await);
    assert_eq!((end(&ben, second.id()).await, second.is_in().await), (204, false), "an admin ends anybody's");
}

#[tokio::test]
async fn sign_ins_are_logged_within_bounds() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let ann = api.teammate("ann@example.com", everything()).await;
    api.clock.advance(Duration::from_secs(1));
    ann.call(Method::DELETE, "/v1/session", None).await;
    let began = Instant::now();
    for n in 0..200 {
        let body = Some(json!({"link": format!("bwl_{n}")}));
        api.call(Method::POST, "/v1/session", None, body).await.ok(401);
    }
    let log = async |query: &str| {
        let path = format!("/v1/audit-log?limit=250&{query}");
        api.call(Method::GET, &path, Some(&api.operator), None).await.ok(200)["data"].clone()
    };
    let until_told = async |target: &str, n: usize| refusals_of(&api, target, n).await;
    let hers = log(&format!("actor={}", ann.teammate())).await;
    let actions: Vec<_> = hers.as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["session.ended", "session.begun"]);
    assert_eq!((&hers[1]["detail"], &hers[1]["address"]), (&json!({"by": "link"}), &json!("127.0.0.1")));
    let failed = until_told("unknown", 20).await;
    let at_most = 21 + began.elapsed().as_secs() as usize / 30;
    assert!((20..=at_most).contains(&failed.len()), "{}", failed.len());
    api.clock.advance(Duration::from_secs(1));
    let guess = Some(with_password("ann@example.com", "wrong horse battery"));
    api.call(Method::POST, "/v1/session", None, guess).await.ok(401);
    let guessed = &until_told(ann.teammate(), 1).await[0];
    assert_eq!(guessed["n"], 1, "a flood hides no guess");
    assert!(failed.iter().all(|entry| entry["action"] == "session.refused" && entry["target"] == "unknown"));
    assert!(log("actor=local").await.as_array().unwrap().iter().all(|entry| entry["actor"] == "local"));
}

#[tokio::test]
async fn response_time_hides_log_entries() {
    let api = TestApi::start().await;
    let ann = api.teammate("ann@example.com", everything()).await;
    let mut standing = api.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE audit_log IN EXCLUSIVE MODE").execute(&mut *standing).await.unwrap();
    for email in ["ann@example.com", "nobody@example.com"] {
        let guess = api.call(Method::POST, "/v1/session", None, Some(with_password(email, "wrong horse battery")));
        let reply = timeout(Duration::from_secs(30), guess).await.expect("it does not wait for the log");
        assert_eq!(reply.refusal(), (401, "sign_in_refused", vec![]), "{email}");
    }
    standing.rollback().await.unwrap();
    for target in [ann.teammate(), "unknown"] {
        assert_eq!(refusals_of(&api, target, 1).await[0]["detail"], json!({"by": "password"}), "{target}");
    }
}

#[tokio::test]
async fn a_sign_in_is_small() {
    let api = TestApi::start().await;
    let long = json!({"email": "ann@example.com", "password": "x".repeat(5_000)});
    assert_eq!(api.call(Method::POST, "/v1/session", None, Some(long)).await.refusal().0, 413);
}

#[tokio::test]
async fn nobody_is_signed_in_everywhere_at_once() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let first = api.sign_in(json!({"api_key": api.operator})).await;
    let mut last = api.sign_in(json!({"api_key": api.operator})).await;
    for _ in 0..49 {
        api.clock.advance(Duration::from_millis(1));
        last = api.sign_in(json!({"api_key": api.operator})).await;
    }
    assert!(!first.is_in().await && last.is_in().await, "the oldest makes room");
}

#[tokio::test]
async fn sign_in_refuses_ambiguous_or_unknown_members() {
    let api = TestApi::start().await;
    let enter = async |body: Value| api.call(Method::POST, "/v1/session", None, Some(body)).await;
    for body in [
        json!({}),
        json!({"email": "ann@example.com"}),
        json!({"password": PASSWORD}),
        json!({"link": "bwl_x", "api_key": "bw_x"}),
        json!({"email": "ann@example.com", "password": PASSWORD, "new_password": PASSWORD}),
    ] {
        assert_eq!(enter(body.clone()).await.refusal(), (422, "invalid", vec![""]), "{body}");
    }
    assert_eq!(enter(with_password("ann", PASSWORD)).await.refusal(), (422, "invalid", vec!["/email"]));
    assert_eq!(enter(json!({"email": 1, "password": PASSWORD})).await.refusal(), (422, "invalid", vec!["/email"]));
    assert_eq!(enter(json!({"linc": "x"})).await.refusal(), (422, "invalid", vec!["/linc"]));
    let long = enter(with_password("ann@example.com", &"x".repeat(4_000))).await;
    assert_eq!(long.refusal(), (401, "sign_in_refused", vec![]), "what is too long is not hashed");
}

/// Whether a row of the team's tables contains an argon2 hash in clear, as text or as octets.
async fn shows_hash(api: &TestApi) -> bool {
    let rows = "SELECT count(*) FROM (SELECT t::text AS r FROM teammates t UNION ALL SELECT c::text FROM passkey_challenges c) AS rows
        WHERE r LIKE '%argon2%' OR r LIKE '%' || encode('argon2', 'hex') || '%'";
    sqlx::query_scalar::<_, i64>(rows).fetch_one(&api.pool).await.unwrap() > 0
}

#[tokio::test]
async fn password_hashes_are_sealed_in_the_database() {
    let api = with_ann().await;
    assert!(!shows_hash(&api).await);
    let (id, sealed): (uuid::Uuid, Vec<u8>) =
        sqlx::query_as("SELECT id, password_sealed FROM teammates").fetch_one(&api.pool).await.unwrap();
    let hash = api.vault.open("teammates.password_sealed", id, &sealed).unwrap();
    assert!(api.vault.open("teammates.password_sealed", uuid::Uuid::nil(), &sealed).is_err(), "for its teammate alone");
    assert!(hash.starts_with(b"$argon2id$"));
    try_from(&api, HOME, with_password("ann@example.com", PASSWORD)).await.ok(201);
}
