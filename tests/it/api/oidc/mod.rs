//! Signing in at an OpenID provider: who is let in and as whom, and what browsers, strangers and the provider may try.

mod then_passkey;
mod tokens;

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::api::OidcSignInConfig as OidcSettings;
use bellwire::testkit::api::RequestRate;
use bellwire::testkit::api::{ApiConfig, Cookies};
use bellwire_core::role::Role;
use bellwire_net::oidc;
use futures_util::future::join;
use serde_json::{Value, json};

use crate::support::api::{Browser, Reply, TestApi, high_rate_limits, newest_refusal};
use crate::support::app::PATIENCE;
use crate::support::provider::oidc_config;
use crate::support::provider::{DISCOVERY, ELSEWHERE, Fault, KEYS, Provider, Signing, TOKEN};

const ANN: &str = "ann@example.com";

/// A server whose teammates may sign in at a provider.
struct World {
    api: TestApi,
    provider: Provider,
}

impl World {
    async fn begin() -> Self {
        Self::with(|settings| settings).await
    }

    async fn with(change: impl FnOnce(OidcSettings) -> OidcSettings) -> Self {
        let provider = Provider::start().await;
        let settings = ApiConfig { oidc: Some(change(oidc_config(&provider))), ..high_rate_limits() };
        Self { api: TestApi::with(settings, None).await, provider }
    }

    /// Sends a browser off. Returns where to, and what it keeps.
    async fn set_off(&self) -> (String, String) {
        let reply = self.api.call(Method::GET, "/v1/session/oidc", None, None).await;
        assert_eq!(reply.status, 303, "{}", reply.json);
        (reply.header("location").to_owned(), kept(&reply, "bellwire-oidc").expect("an attempt"))
    }

    /// Callback request with this query and cookie.
    async fn come_back(&self, query: &str, cookie: &str) -> Reply {
        let headers = [("cookie", cookie), ("sec-fetch-site", "cross-site")];
        self.api.call_with(Method::GET, &format!("/v1/session/oidc/callback{query}"), None, None, &headers).await
    }

    /// Signs in as this subject.
    async fn enter(&self, subject: &str, email: &str) -> Reply {
        let (url, cookie) = self.set_off().await;
        self.come_back(&self.provider.let_through(&url, subject, email), &cookie).await
    }

    /// Signs in as this subject; the sign-in must succeed.
    async fn enters(&self, subject: &str, email: &str) -> Browser<'_> {
        let reply = self.enter(subject, email).await;
        assert_eq!((reply.status, reply.header("location")), (303, "/admin/"), "{}", reply.json);
        let mut browser =
            Browser { api: &self.api, cookie: kept(&reply, "bellwire").expect("a session"), session: Value::Null };
        browser.session = browser.get("/v1/session").await.ok(200);
        browser
    }

    /// Asserts that the sign-in was refused and that the page shows the reason.
    fn turned_back(reply: &Reply, why: &str, what: &str) {
        let landed = format!("/admin/?sign_in={why}");
        assert_eq!((reply.status, reply.header("location")), (303, landed.as_str()), "{what}: {}", reply.json);
        assert_eq!(kept(reply, "bellwire"), None, "{what}");
        assert_eq!(kept(reply, "bellwire-oidc").as_deref(), Some("bellwire-oidc="), "{what}: the attempt is over");
    }

    /// Asserts that the sign-in was refused and that page and log show the reason. Returns the log entry.
    async fn refused(&self, reply: Reply, why: &str, what: &str) -> Value {
        Self::turned_back(&reply, why, what);
        let entry = newest_refusal(&self.api).await;
        assert_eq!(entry["detail"], json!({"by": "oidc", "why": why}), "{what}");
        // Entries of one millisecond are in no order.
        self.api.clock.advance(Duration::from_secs(1));
        entry
    }

    /// Entries of the audit log, the latest first.
    async fn log(&self, action: &str) -> Vec<Value> {
        let path = format!("/v1/audit-log?action={action}");
        let entries = self.api.call(Method::GET, &path, Some(&self.api.operator), None).await.ok(200);
        entries["data"].as_array().unwrap().clone()
    }

    async fn teammate(&self, id: &Value) -> Value {
        self.api.locally(Method::GET, &format!("/v1/team/{}", id.as_str().unwrap()), Value::Null).await.ok(200)
    }
}

fn viewer() -> Value {
    json!([{"role": "viewer"}])
}

/// A cookie of that name that a response sets, as a request shows it.
fn kept(reply: &Reply, name: &str) -> Option<String> {
    let set = reply.headers.get_all("set-cookie").iter().filter_map(|value| value.to_str().ok());
    let mut pairs = set.filter_map(|text| text.split(';').next());
    pairs.find(|pair| pair.split('=').next() == Some(name)).map(str::to_owned)
}

#[tokio::test]
async fn vouched_address_signs_in_as_its_teammate() {
    let world = World::begin().await;
    let (invited, _) = world.api.invite(ANN, viewer()).await;
    assert_eq!(invited["oidc_linked_at"], Value::Null);
    for (signing, email) in [(Signing::Rs256, ANN), (Signing::Es256, "Ann@Example.com")] {
        world.provider.sign_by(signing);
        let ann = world.enters("s-1", email).await;
        assert_eq!((&ann.session["teammate"], &ann.session["email"]), (&invited["id"], &json!(ANN)));
        assert_eq!(ann.session["roles"], json!([{"role": "viewer", "app": null}]));
        let begun = world.log("session.begun").await;
        assert_eq!((&begun[0]["actor"], &begun[0]["detail"]), (&invited["id"], &json!({"by": "oidc"})), "{signing:?}");
        world.api.clock.advance(Duration::from_secs(1));
    }
    let linked = world.log("teammate.linked").await;
    assert_eq!((linked.len(), &linked[0]["actor"], &linked[0]["target"]), (1, &invited["id"], &invited["id"]), "once");
    assert!(world.teammate(&invited["id"]).await["oidc_linked_at"].is_string());
    assert_eq!((world.provider.asked(DISCOVERY), world.provider.asked(KEYS)), (1, 1), "it is remembered");
}

#[tokio::test]
async fn oidc_cookie_is_sealed_and_short_lived() {
    let world = World::begin().await;
    world.api.invite(ANN, viewer()).await;
    let reply = world.api.call(Method::GET, "/v1/session/oidc", None, None).await;
    let set = reply.header("set-cookie").to_owned();
    assert!(set.starts_with("bellwire-oidc="), "{set}");
    assert!(set.ends_with("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax") && set.len() < 1_024, "{set}");
    let url = reply.header("location").to_owned();
    let cookie = kept(&reply, "bellwire-oidc").unwrap();
    let back = world.come_back(&world.provider.let_through(&url, "s-1", ANN), &cookie).await;
    let all: Vec<_> = back.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(all.len(), 2);
    assert!(all[0].starts_with("bellwire=ey") && all[0].ends_with("; HttpOnly; SameSite=Strict"), "{all:?}");
    assert_eq!(all[1], "bellwire-oidc=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax");

    let provider = &world.provider;
    let settings =
        ApiConfig { oidc: Some(oidc_config(provider)), cookies: Cookies { secure: true }, ..high_rate_limits() };
    let api = TestApi::with(settings, None).await;
    let reply = api.call(Method::GET, "/v1/session/oidc", None, None).await;
    let set = reply.header("set-cookie");
    assert!(set.starts_with("__Host-bellwire-oidc=") && set.ends_with("; SameSite=Lax; Secure"), "{set}");
}

#[tokio::test]
async fn foreign_oidc_response_is_refused() {
    let world = World::begin().await;
    world.api.invite(ANN, viewer()).await;
    let (url, cookie) = world.set_off().await;
    let query = world.provider.let_through(&url, "s-1", ANN);
    let (other_url, other_cookie) = world.set_off().await;
    let other_query = world.provider.let_through(&other_url, "s-2", "mallory@example.com");
    let part = |query: &str, name: &str| {
        let pairs: Vec<(String, String)> = serde_urlencoded::from_str(&query[1..]).unwrap();
        pairs.into_iter().find(|(known, _)| known == name).unwrap().1
    };
    let (state, code) = (part(&query, "state"), part(&query, "code"));
    let mut changed = cookie.clone().into_bytes();
    let last = changed.len() - 2;
    changed[last] = if changed[last] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    let long = format!("bellwire-oidc={}", "A".repeat(2_000));
    for (what, query, cookie, why) in [
        ("another state", format!("?state={}&code={code}", "x".repeat(22)), &cookie, "attempt"),
        ("no state", format!("?code={code}"), &cookie, "attempt"),
        ("nothing", String::new(), &cookie, "attempt"),
        ("no cookie", query.clone(), &"other=1".to_owned(), "attempt"),
        ("another attempt's cookie", query.clone(), &other_cookie, "attempt"),
        ("a changed cookie", query.clone(), &changed, "attempt"),
        ("a long cookie", query.clone(), &long, "attempt"),
        ("somebody else's answer", other_query.clone(), &cookie, "attempt"),
        ("a made-up code", format!("?state={state}&code=guess"), &cookie, "token"),
        ("a long code", format!("?state={state}&code={}", "x".repeat(5_000)), &cookie, "provider"),
        ("somebody else's code", format!("?state={state}&code={}", part(&other_query, "code")), &cookie, "token"),
        ("giving up", format!("?state={state}&error=access_denied"), &cookie, "declined"),
        ("the provider's failure", format!("?state={state}&error=server_error"), &cookie, "provider"),
        ("neither code nor error", format!("?state={state}"), &cookie, "provider"),
    ] {
        let reply = world.come_back(&query, cookie).await;
        if why == "attempt" {
            World::turned_back(&reply, why, what);
            continue;
        }
        let entry = world.refused(reply, why, what).await;
        assert_eq!((&entry["actor"], &entry["target"]), (&json!("nobody"), &json!("unknown")), "{what}");
    }
    let first = world.come_back(&query, &cookie).await;
    assert_eq!(first.header("location"), "/admin/", "none of that has spoilt the true one");
    world.api.clock.advance(Duration::from_secs(1));
    world.refused(world.come_back(&query, &cookie).await, "token", "the same once more").await;
    World::turned_back(&world.come_back(&query, "").await, "attempt", "the same without what was taken away");
    let (url, cookie) = world.set_off().await;
    let query = world.provider.let_through(&url, "s-1", ANN);
    world.api.clock.advance(Duration::from_secs(600));
    World::turned_back(&world.come_back(&query, &cookie).await, "attempt", "after ten minutes");
    let attempts = world.log("session.refused").await;
    assert!(attempts.iter().all(|entry| entry["detail"]["why"] != "attempt"), "what anybody can do tells of nothing");
}

#[tokio::test]
async fn account_stays_with_its_teammate() {
    let world = World::begin().await;
    let (invited, _) = world.api.invite(ANN, viewer()).await;
    world.enters("s-1", ANN).await;
    let renamed = world.enters("s-1", "ann.lee@example.com").await;
    assert_eq!(renamed.session["teammate"], invited["id"], "the address at the provider has changed");
    let entry = world.refused(world.enter("s-2", ANN).await, "other_account", "a recycled address").await;
    assert_eq!((&entry["actor"], &entry["target"]), (&json!("nobody"), &invited["id"]));
    assert!(renamed.is_in().await);

    let unlink = format!("/v1/team/{}/oidc", invited["id"].as_str().unwrap());
    let admin = world.api.teammate("admin@example.com", json!([{"role": "admin"}])).await;
    for _ in 0..2 {
        assert_eq!(admin.call(Method::DELETE, &unlink, None).await.status, 204);
    }
    assert!(!renamed.is_in().await && admin.is_in().await);
    let unlinked = world.log("teammate.unlinked").await;
    assert_eq!((unlinked.len(), &unlinked[0]["actor"]), (1, &json!(admin.teammate())), "only what was done is told");
    assert_eq!(world.teammate(&invited["id"]).await["oidc_linked_at"], Value::Null);
    let new = world.enters("s-2", ANN).await;
    assert_eq!(new.session["teammate"], invited["id"]);
    world.api.clock.advance(Duration::from_secs(1));
    world.refused(world.enter("s-1", ANN).await, "other_account", "the account of before").await;
    let nobody = format!("/v1/team/tm_{}/oidc", uuid::Uuid::now_v7());
    assert_eq!(admin.call(Method::DELETE, &nobody, None).await.status, 404);
}

#[tokio::test]
async fn provider_cannot_bypass_a_required_passkey() {
    let world = World::begin().await;
    world.api.invite(ANN, viewer()).await;
    sqlx::query(
        "INSERT INTO passkeys (id, teammate, name, credential_id, public_key, algorithm, counter, transports, created_at)
         SELECT id, id, 'key', '\\x01', '\\x02', -7, 0, '{}', created_at FROM teammates",
    )
    .execute(&world.api.pool)
    .await
    .unwrap();
    world.refused(world.enter("s-1", ANN).await, "passkeys_unavailable", "without a name").await;
}

#[tokio::test]
async fn suspended_teammate_is_refused_until_restored() {
    let world = World::begin().await;
    let (invited, _) = world.api.invite(ANN, viewer()).await;
    let path = format!("/v1/team/{}", invited["id"].as_str().unwrap());
    let shut_out =
        async |disabled: bool| world.api.locally(Method::PATCH, &path, json!({"disabled": disabled})).await.ok(200);
    shut_out(true).await;
    let entry = world.refused(world.enter("s-1", ANN).await, "disabled", "before the first time").await;
    assert_eq!(entry["target"], invited["id"]);
    assert!(world.log("teammate.linked").await.is_empty(), "nothing is linked by the way");
    shut_out(false).await;
    let ann = world.enters("s-1", ANN).await;
    shut_out(true).await;
    assert!(!ann.is_in().await);
    world.refused(world.enter("s-1", ANN).await, "disabled", "later").await;
    shut_out(false).await;
    world.enters("s-1", ANN).await;
    assert_eq!(world.api.locally(Method::DELETE, &path, Value::Null).await.status, 204);
    world.refused(world.enter("s-1", ANN).await, "unknown", "removed").await;
}

#[tokio::test]
async fn removed_teammate_needs_a_new_invitation() {
    let world = World::with(|settings| OidcSettings {
        domains: vec!["example.com".to_owned()],
        newcomers: Some(Role::Operator),
        ..settings
    })
    .await;
    let remove = async |id: &str| {
        let path = format!("/v1/team/{id}");
        assert_eq!(world.api.locally(Method::DELETE, &path, Value::Null).await.status, 204);
    };
    let ann = world.enters("s-1", ANN).await;
    remove(ann.teammate()).await;
    assert!(!ann.is_in().await);
    world.refused(world.enter("s-1", ANN).await, "removed", "the same account").await;
    world.refused(world.enter("s-1", "ann.new@example.com").await, "removed", "under another address").await;
    world.refused(world.enter("s-2", ANN).await, "removed", "another account with the address").await;
    // Who never came by the provider is known by the address.
    let (ben, _) = world.api.invite("ben@example.com", viewer()).await;
    remove(ben["id"].as_str().unwrap()).await;
    world.refused(world.enter("s-3", "ben@example.com").await, "removed", "invited and removed").await;
    let kept: Vec<String> =
        sqlx::query_scalar("SELECT r::text FROM removed_teammates r").fetch_all(&world.api.pool).await.unwrap();
    assert!(kept.len() == 2 && !kept.concat().contains("ann") && !kept.concat().contains("s-1"), "{kept:?}");

    world.enters("s-4", "cy@example.com").await;
    world.api.invite(ANN, viewer()).await;
    assert_eq!(world.enters("s-1", ANN).await.session["roles"][0]["role"], "viewer");
    let kept: i64 =
        sqlx::query_scalar("SELECT count(*) FROM removed_teammates").fetch_one(&world.api.pool).await.unwrap();
    assert_eq!(kept, 1, "what is not needed any more is forgotten");
}

#[tokio::test]
async fn newcomers_get_the_role_of_their_domain() {
    let world = World::with(|settings| OidcSettings {
        domains: vec!["example.com".to_owned(), "example.org".to_owned()],
        newcomers: Some(Role::Sender),
        ..settings
    })
    .await;
    world.api.invite("ann@elsewhere.example", viewer()).await;
    for email in ["ann@elsewhere.example", "x@sub.example.com", "x@notexample.com", "x@example.com.evil.example"] {
        world.refused(world.enter(email, email).await, "domain", email).await;
    }
    let ben = world.enters("s-2", "Ben@Example.org").await;
    assert_eq!(ben.session["roles"], json!([{"role": "sender", "app": null}]));
    let joined = world.log("teammate.joined").await;
    assert_eq!((joined.len(), &joined[0]["actor"]), (1, &ben.session["teammate"]));
    assert_eq!(joined[0]["detail"], json!({"roles": [{"role": "sender", "app": null}]}));
    // Two tabs at once make one teammate.
    let (one, two) = join(world.enter("s-3", "cy@example.com"), world.enter("s-3", "cy@example.com")).await;
    assert_eq!((one.header("location"), two.header("location")), ("/admin/", "/admin/"));
    assert_eq!((world.log("teammate.joined").await.len(), world.log("teammate.linked").await.len()), (2, 2));
    let change = json!({"roles": [{"role": "viewer", "app": "shop"}]});
    let path = format!("/v1/team/{}", ben.teammate());
    world.api.locally(Method::PATCH, &path, change).await.ok(200);
    assert_eq!(
        world.enters("s-2", "ben@example.org").await.session["roles"][0]["role"],
        "viewer",
        "as the team has it"
    );
}

#[tokio::test]
async fn provider_keys_are_refetched_once_a_minute() {
    let world = World::begin().await;
    world.api.invite(ANN, viewer()).await;
    world.enters("s-1", ANN).await;
    world.provider.change_keys();
    for _ in 0..3 {
        world.refused(world.enter("s-1", ANN).await, "token", "too soon to ask again").await;
    }
    assert_eq!(world.provider.asked(KEYS), 1);
    world.api.clock.advance(Duration::from_secs(60));
    world.enters("s-1", ANN).await;
    world.enters("s-1", ANN).await;
    assert_eq!(world.provider.asked(KEYS), 2);
    world.api.clock.advance(Duration::from_secs(3_600));
    world.provider.fail(DISCOVERY, Fault::Broken);
    world.enters("s-1", ANN).await;
    assert_eq!(world.provider.asked(DISCOVERY), 3, "what it said last holds while it says nothing");
}

#[tokio::test]
async fn faulty_provider_admits_and_blocks_nothing() {
    let provider = Provider::start().await;
    for fault in [Fault::Silent, Fault::Huge, Fault::Redirect, Fault::Broken] {
        // Each with a server that has not heard of it yet.
        let timeout = if fault == Fault::Silent { Duration::from_secs(1) } else { PATIENCE };
        let settings = oidc::OidcConfig { timeout, ..provider.settings() };
        let settings = OidcSettings { provider: oidc::Provider::new(settings).unwrap(), ..oidc_config(&provider) };
        let api = TestApi::with(ApiConfig { oidc: Some(settings), ..high_rate_limits() }, None).await;
        let world = World { api, provider: provider.clone() };
        world.api.invite(ANN, viewer()).await;
        let unreached = async || {
            let reply = world.api.call(Method::GET, "/v1/session/oidc", None, None).await;
            assert_eq!((reply.status, reply.header("location")), (303, "/admin/?sign_in=provider"), "{fault:?}");
        };
        for path in [DISCOVERY, KEYS] {
            world.provider.fail(path, fault);
            let before = world.provider.asked(DISCOVERY);
            unreached().await;
            unreached().await;
            assert_eq!(
                world.provider.asked(DISCOVERY),
                before + 1,
                "{fault:?} of {path}: it is left alone for a while"
            );
            world.provider.behave();
            world.api.clock.advance(Duration::from_secs(10));
        }
        let (url, cookie) = world.set_off().await;
        world.provider.fail(TOKEN, fault);
        let query = world.provider.let_through(&url, "s-1", ANN);
        world.refused(world.come_back(&query, &cookie).await, "provider", &format!("{fault:?}")).await;
        world.provider.behave();
        world.enters("s-1", ANN).await;
    }
    assert_eq!(provider.asked(ELSEWHERE), 0, "no redirect is followed");

    let gone = oidc::OidcConfig { issuer: "http://127.0.0.1:1".to_owned(), ..provider.settings() };
    let settings = OidcSettings { provider: oidc::Provider::new(gone).unwrap(), ..oidc_config(&provider) };
    let api = TestApi::with(ApiConfig { oidc: Some(settings), ..high_rate_limits() }, None).await;
    let reply = api.call(Method::GET, "/v1/session/oidc", None, None).await;
    assert_eq!(reply.header("location"), "/admin/?sign_in=provider");
    // It calls itself by another name than ours for it.
    let named = provider.issuer().replace("127.0.0.1", "localhost");
    let other = oidc::OidcConfig { issuer: named, ..provider.settings() };
    let settings = OidcSettings { provider: oidc::Provider::new(other).unwrap(), ..oidc_config(&provider) };
    let api = TestApi::with(ApiConfig { oidc: Some(settings), ..high_rate_limits() }, None).await;
    let reply = api.call(Method::GET, "/v1/session/oidc", None, None).await;
    assert_eq!(reply.header("location"), "/admin/?sign_in=provider");
}

#[tokio::test]
async fn oidc_start_checks_origin_and_limits_codes() {
    let provider = Provider::start().await;
    let guesses_per_client = RequestRate { burst: 4, per_minute: 1 }; // one is the operator's key, when the app is made
    let api = TestApi::with(
        ApiConfig { oidc: Some(oidc_config(&provider)), guesses_per_client, ..ApiConfig::default() },
        None,
    )
    .await;
    let world = World { api, provider };
    for (site, status) in [("cross-site", 403), ("same-site", 403), ("none", 303), ("same-origin", 303)] {
        let headers = [("sec-fetch-site", site)];
        let reply = world.api.call_with(Method::GET, "/v1/session/oidc", None, None, &headers).await;
        assert_eq!((reply.status, reply.headers.contains_key("set-cookie")), (status, status == 303), "{site}");
    }
    let (_, cookie) = world.set_off().await;
    for n in 0..10 {
        // Without an attempt nothing is looked up, and nothing is counted.
        let reply = world.come_back(&format!("?state=x&code={n}"), &cookie).await;
        World::turned_back(&reply, "attempt", "made up");
    }
    for _ in 0..3 {
        world.refused(world.enter("s-1", ANN).await, "unknown", "a stranger").await;
    }
    let fourth = world.enter("s-1", ANN).await;
    assert_eq!(fourth.refusal(), (429, "rate_limited", vec![]));
    assert!(!fourth.header("retry-after").is_empty());
}

#[tokio::test]
async fn sign_in_page_lists_the_available_ways() {
    let world = World::begin().await;
    let told = world.api.call(Method::GET, "/v1/session/methods", None, None).await.ok(200);
    let oidc = json!({"label": "Example", "path": "/v1/session/oidc"});
    assert_eq!(told, json!({"methods": ["password", "link", "api_key", "oidc"], "oidc": oidc}));
    let api = TestApi::start().await;
    let told = api.call(Method::GET, "/v1/session/methods", None, None).await.ok(200);
    assert_eq!(told, json!({"methods": ["password", "link", "api_key"], "oidc": null}));
    for path in ["/v1/session/oidc", "/v1/session/oidc/callback?state=x&code=y"] {
        assert_eq!(api.call(Method::GET, path, None, None).await.refusal(), (404, "not_found", vec![]), "{path}");
    }
}
