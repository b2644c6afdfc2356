//! Calls every route with every kind of credential. The expectation comes from `security` in `/openapi.json` alone, so the description has
//! to be true. An undescribed route, or one without a request in this walk, fails the test.

mod bodies;
mod foreign;
mod hostile;
mod keys;
mod repeats;
mod security;
mod things;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use bellwire::testkit::api::ApiConfig;
use bellwire_core::clock::uuid_of;
use bellwire_core::id::{DeadLetterId, MessageId, SubscriptionId, TeammateId};
use bellwire_core::scope::Scope;
use bellwire_store::keys::api_keys;
use bellwire_store::outcomes::alerts::{self, Alert, AlertKind};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::api::{ORIGIN, TestApi, content, fcm};
use crate::support::authenticator::Authenticator;
use crate::support::openapi::{METHODS, openapi_description, operations};
use crate::support::passkeys::passkey_config;
use crate::support::provider::Provider;
use crate::support::provider::oidc_config;
use bodies::{campaign, request};
use security::{On, Security, Shown};

/// Operations that anybody may call who shows nothing.
const PUBLIC: [&str; 11] = [
    "GET /healthz",
    "GET /readyz",
    "GET /v1/apps/{app}/config",
    "GET /v1/session/methods",
    "GET /v1/session/oidc",
    "GET /v1/session/oidc/callback",
    "POST /v1/apps/{app}/prompt/steps",
    "POST /v1/apps/{app}/receipts",
    "POST /v1/apps/{app}/subscriptions",
    "POST /v1/session",
    "POST /v1/session/link",
];
/// Routes that are not part of the API: what browsers load, the description itself, and what axum answers where there is
/// no route.
const UNDESCRIBED: [&str; 35] = [
    "/",
    "/{*__private__axum_fallback}",
    "/admin",
    "/admin/",
    "/admin/{*file}",
    "/clients/{*file}",
    "/docs",
    "/docs/",
    "/docs/docs.css",
    "/docs/guides",
    "/docs/guides/",
    "/docs/guides/{*page}",
    "/docs/operations/{operation}",
    "/docs/playground",
    "/docs/playground/",
    "/docs/playground/{*file}",
    "/docs/problems",
    "/docs/problems/",
    "/docs/problems/{code}",
    "/docs/schemas/{schema}",
    "/example",
    "/llms.txt",
    "/mcp",
    "/example/",
    "/example/config.json",
    "/example/index.html",
    "/example/send",
    "/example/{*file}",
    "/openapi.json",
    "/preferences/{link}",
    "/preferences/{link}/data",
    "/sdk/{*file}",
    "/shared/{*file}",
    "/try/",
    "/try/{*file}",
];

struct Walk {
    api: TestApi,
    keys: BTreeMap<&'static str, String>,
    expired: String,
    revoked: String,
    stranger: String,
    token_of_another: String,
    /// Teammates by role and where they have it: their cookies and ids.
    teammates: Vec<(Shown, String, String)>,
    ended: String,
    n: Cell<u32>,
}

/// Path of a request, and the token of its subscription.
#[derive(Clone)]
struct Place {
    path: String,
    token: Option<String>,
}

impl Walk {
    async fn begin() -> Self {
        let oidc = Some(oidc_config(&Provider::start().await));
        let api = TestApi::with(ApiConfig { oidc, ..passkey_config() }, None).await;
        let (_, stranger) = api.make_app("other").await;
        let app = Some(api.app_id());
        let soon = api.clock.now() + Duration::from_secs(1);
        let make = async |app, scopes: &[Scope], expires_at| {
            api_keys::create(&api.pool, &api.vault, app, "k", scopes, expires_at, &api.clock).await.unwrap()
        };
        let mut keys = BTreeMap::new();
        for scope in Scope::OF_APPS {
            keys.insert(scope.name(), make(app, &[scope], None).await.1);
        }
        for scope in Scope::OF_SERVER {
            keys.insert(scope.name(), make(None, &[scope], None).await.1);
        }
        let expired = make(app, &Scope::OF_APPS, Some(soon)).await.1;
        api.clock.advance(Duration::from_secs(1));
        let (row, revoked) = make(app, &Scope::OF_APPS, None).await;
        let path = format!("/v1/apps/shop/api-keys/{}", row.id);
        api.call(Method::DELETE, &path, Some(&api.key), None).await.ok(200);
        let another = api.subscribe(&fcm("another"), json!({})).await;
        let token_of_another = another["token"].as_str().unwrap().to_owned();
        let mut teammates = Vec::new();
        for (n, shown) in Shown::all().into_iter().enumerate() {
            let Shown::Session(role, on) = shown else { continue };
            let grant = match on {
                On::TheApp => json!({"role": role, "app": "shop"}),
                On::AnotherApp => json!({"role": role, "app": "other"}),
                On::All => json!({"role": role}),
            };
            let browser = api.teammate(&format!("{n}@example.com"), json!([grant])).await;
            teammates.push((shown, browser.cookie.clone(), browser.teammate().to_owned()));
        }
        let browser = api.teammate("gone@example.com", json!([{"role": "admin"}])).await;
        browser.call(Method::DELETE, "/v1/session", None).await;
        let ended = browser.cookie.clone();
        Self { api, keys, expired, revoked, stranger, token_of_another, teammates, ended, n: Cell::new(0) }
    }

    fn number(&self) -> u32 {
        self.n.set(self.n.get() + 1);
        self.n.get()
    }

    /// Fills in a path template with resources made for this request, because the request may delete them. A session belongs to the caller.
    async fn place(&self, template: &str, shown: Option<Shown>) -> Place {
        let n = self.number();
        let subscription = self.api.subscribe(&fcm(&format!("place-{n}")), json!({"topics": ["news"]})).await;
        let subscription_id = text(&subscription["id"]);
        let mut filled = Vec::new();
        let (mut message, mut webhook, mut of_campaign) = (None, None::<String>, None::<String>);
        for segment in template.split('/') {
            filled.push(match segment {
                "{app}" => "shop".to_owned(),
                "{subscription}" => subscription_id.clone(),
                "{topic}" => "news".to_owned(),
                "{segment}" => {
                    let (name, body) = (format!("walk-{n}"), json!({"expression": "tag('beta')"}));
                    let path = format!("/v1/apps/shop/segments/{name}");
                    self.api.call(Method::PUT, &path, Some(&self.api.key), Some(body)).await.ok(201);
                    name
                }
                "{template}" => {
                    let name = format!("place-{n}");
                    let put = format!("/v1/apps/shop/templates/{name}");
                    let body = Some(json!({"content": content()}));
                    self.api.call(Method::PUT, &put, Some(&self.api.key), body).await.ok(201);
                    name
                }
                "{tier}" => "promotional".to_owned(),
                "{user}" => "somebody".to_owned(),
                "{lane}" => "1".to_owned(),
                "{vapid_key}" => text(&self.api.app["vapid_key"]["id"]),
                "{message}" => {
                    let id = self.message(&subscription_id).await;
                    message.insert(id).clone()
                }
                "{key}" => {
                    let later = self.api.clock.now() + Duration::from_secs(3600);
                    let body = json!({"to": {"subscriptions": [subscription_id]}, "content": content(), "send_at": later,
                        "key": format!("key-{n}")});
                    self.api.post("/messages", body).await.ok(202);
                    format!("key-{n}")
                }
                "{campaign}" => {
                    let id = self.campaign(template, n).await;
                    of_campaign.insert(id).clone()
                }
                "{run}" => self.run(of_campaign.as_deref().expect("its campaign comes before it")).await,
                "{dead_letter}" => self.dead_letter(&subscription_id).await,
                "{api_key}" => {
                    let (api, app) = (&self.api, Some(self.api.app_id()));
                    let scopes = [Scope::Keys]; // a key revokes none that may do more
                    let made = api_keys::create(&api.pool, &api.vault, app, "k", &scopes, None, &api.clock).await;
                    made.unwrap().0.id.to_string()
                }
                "{identity_key}" => text(&self.api.post("/identity-keys", json!({"name": "k"})).await.ok(201)["id"]),
                "{webhook}" => {
                    let body = request("POST /v1/apps/{app}/webhooks", n).1;
                    webhook.insert(text(&self.api.post("/webhooks", body).await.ok(201)["id"])).clone()
                }
                "{webhook_delivery}" => {
                    let test = format!("/webhooks/{}/test", webhook.as_deref().expect("its webhook comes before it"));
                    text(&self.api.post(&test, json!({})).await.ok(202)["id"])
                }
                "{teammate}" => {
                    let (invited, _) =
                        self.api.invite(&format!("place-{n}@example.com"), json!([{"role": "viewer"}])).await;
                    text(&invited["id"])
                }
                "{session}" => self.session(shown).await,
                "{passkey}" => self.passkey(shown).await,
                "{alert}" => self.alert(n).await,
                "{import}" => text(&self.api.post("/imports", json!([])).await.ok(201)["id"]),
                "{code}" => {
                    let begin = format!("/v1/apps/shop/subscriptions/{subscription_id}/diagnoses");
                    text(&self.api.call(Method::POST, &begin, Some(&self.api.key), None).await.ok(200)["code"])
                }
                "{erasure}" => {
                    let erase = format!("/v1/apps/shop/users/user-{n}");
                    text(&self.api.call(Method::DELETE, &erase, Some(&self.api.key), None).await.ok(200)["id"])
                }
                segment => {
                    assert!(!segment.contains('{'), "{template}: say in `Walk::place` how a {segment} is made");
                    segment.to_owned()
                }
            });
        }
        Place { path: filled.join("/"), token: subscription["token"].as_str().map(str::to_owned) }
    }

    fn cookie(&self, shown: Shown) -> Option<&str> {
        match shown {
            Shown::EndedSession => Some(&self.ended),
            shown => self.teammates.iter().find(|(known, ..)| *known == shown).map(|(_, cookie, _)| cookie.as_str()),
        }
    }

    fn credential(&self, shown: Shown, place: &Place) -> Option<String> {
        Some(match shown {
            Shown::Nothing | Shown::Session(..) | Shown::EndedSession => return None,
            Shown::Garbage => "garbage".to_owned(),
            Shown::MadeUpKey => format!("bw_{}", "A".repeat(43)),
            Shown::MadeUpToken => "bt_AAAA".to_owned(),
            Shown::ExpiredKey => self.expired.clone(),
            Shown::RevokedKey => self.revoked.clone(),
            Shown::KeyOfAnotherApp => self.stranger.clone(),
            Shown::Key(scope) => self.keys[scope.name()].clone(),
            Shown::TokenOfAnother => self.token_of_another.clone(),
            Shown::Token => place.token.clone().expect("every place has a subscription"),
        })
    }

    /// One-time link of a new account.
    async fn link(&self) -> String {
        let email = format!("link-{}@example.com", self.number());
        self.api.invite(&email, json!([{"role": "viewer"}])).await.1
    }

    /// Calls an operation. The answer need not be JSON.
    async fn call(&self, operation: &str, method: &Method, place: &Place, shown: Shown) -> (u16, String) {
        let (query, mut body) = request(operation, self.number());
        match operation {
            "POST /v1/session" => body = json!({"api_key": self.api.operator}),
            "POST /v1/session/link" => body = json!({"link": self.link().await}),
            _ => {}
        }
        if operation == "POST /v1/session/passkeys"
            && let Some(made) = self.made_passkey(shown, self.number()).await
        {
            body["credential"] = made;
        }
        let mut request = Request::builder().method(method).uri(format!("{}{query}", place.path));
        let credential = self.credential(shown, place);
        if let Some(credential) = &credential {
            request = request.header("authorization", format!("Bearer {credential}"));
        }
        if let Some(cookie) = self.cookie(shown) {
            request = request.header("cookie", cookie).header("sec-fetch-site", "same-origin");
        } else if !matches!(operation, "POST /v1/session" | "POST /v1/session/link")
            && credential.is_none_or(|credential| !credential.starts_with("bw_"))
        {
            request = request.header("origin", ORIGIN);
        }
        let body = if body.is_null() {
            Body::empty()
        } else {
            request = request.header("content-type", "application/json");
            Body::from(body.to_string())
        };
        let response = self.api.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        // It has no end; the status is sufficient.
        if response.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream") {
            return (status, String::new());
        }
        let octets = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8_lossy(&octets).into_owned())
    }

    /// Calls an operation with every credential. Returns the differences from the description.
    async fn operation(&self, name: &str, method: &Method, template: &str, security: &Security) -> Vec<String> {
        let mut surprises = Vec::new();
        let untouched = self.place(template, None).await;
        let (refused, allowed): (Vec<_>, Vec<_>) =
            Shown::all().into_iter().partition(|shown| security.refusal(*shown).is_some());
        for shown in refused {
            let (status, body) = self.call(name, method, &untouched, shown).await;
            let expected = security.refusal(shown).expect("these are refused");
            if status != expected {
                surprises.push(format!("{name} with {shown:?}: {status}, not {expected}: {body}"));
            }
        }
        for shown in allowed {
            // An app is deleted once; a repeat gets the same response.
            let place = match is_end_of_app(template, method) {
                true => untouched.clone(),
                false => self.place(template, Some(shown).filter(|shown| matches!(shown, Shown::Session(..)))).await,
            };
            let (status, body) = self.call(name, method, &place, shown).await;
            // Some send browsers on.
            if !(200..300).contains(&status) && status != 303 {
                surprises.push(format!("{name} with {shown:?}: {status}: {body}"));
            }
            // Kept few: an app, and a teammate, may have ten.
            sqlx::query("DELETE FROM identity_keys").execute(&self.api.pool).await.unwrap();
            sqlx::query("DELETE FROM webhooks").execute(&self.api.pool).await.unwrap();
            sqlx::query("DELETE FROM passkeys").execute(&self.api.pool).await.unwrap();
            // The signed-out caller needs another session.
            let back = "UPDATE sessions SET ended_at = NULL FROM teammates t WHERE t.id = teammate AND t.email NOT LIKE 'gone%'";
            sqlx::query(back).execute(&self.api.pool).await.unwrap();
        }
        surprises
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn is_end_of_app(path: &str, method: &Method) -> bool {
    method == Method::DELETE && path == "/v1/apps/{app}"
}

#[tokio::test]
async fn each_route_admits_only_documented_callers() {
    let walk = Walk::begin().await;
    let mut operations = operations(&openapi_description(&walk.api).await);
    // Last what is the end of the app that all the others are about.
    operations.sort_by_key(|(path, method, _)| is_end_of_app(path, method));
    assert!(operations.len() > 70, "{}", operations.len());
    let mut surprises = Vec::new();
    for (path, method, operation) in &operations {
        let name = format!("{method} {path}");
        let (query, body) = request(&name, 0);
        assert!(
            operation["requestBody"].is_null() || !body.is_null(),
            "{name} takes a body: add one that is fine to `request` in tests/it/api/walk.rs"
        );
        let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        for parameter in parameters.iter().filter(|p| p["in"] == "query" && p["required"] == true) {
            let named = query.contains(&format!("{}=", parameter["name"].as_str().expect("a name")));
            assert!(named, "{name} asks for {}: add a query to `request` in tests/it/api/walk.rs", parameter["name"]);
        }
        surprises.extend(walk.operation(&name, method, path, &Security::of(path, operation)).await);
    }
    assert!(surprises.is_empty(), "{} surprises:\n{}", surprises.len(), surprises.join("\n"));
}

/// Routes by which viewers change nothing but what is their own, or change nothing at all though they are no GET.
const OF_VIEWERS: [&str; 6] = [
    "/v1/sessions",
    "/v1/session",
    "/v1/apps/{app}/policies/preview",
    "/v1/apps/{app}/policies/simulate",
    "/v1/apps/{app}/segments/preview",
    "/v1/apps/{app}/receipts",
];

#[tokio::test]
async fn viewer_is_refused_by_acting_routes() {
    let walk = Walk::begin().await;
    let is_theirs =
        |path: &str| OF_VIEWERS.iter().any(|theirs| path == *theirs || path.starts_with(&format!("{theirs}/")));
    let acting = operations(&openapi_description(&walk.api).await)
        .into_iter()
        .filter(|(path, method, _)| *method != Method::GET && !is_theirs(path));
    let (mut refused, mut surprises) = (0, Vec::new());
    for (path, method, _) in acting {
        let (name, place) = (format!("{method} {path}"), walk.place(&path, None).await);
        for on in [On::TheApp, On::All] {
            let (status, body) = walk.call(&name, &method, &place, Shown::Session("viewer", on)).await;
            refused += 1;
            if status != 403 {
                surprises.push(format!("{name} by a viewer of {on:?}: {status}: {body}"));
            }
        }
    }
    assert!(refused > 80, "{refused}");
    assert!(surprises.is_empty(), "{} surprises:\n{}", surprises.len(), surprises.join("\n"));
}

#[tokio::test]
async fn public_routes_and_scopes_are_listed() {
    let api = TestApi::start().await;
    let mut public = BTreeSet::new();
    let known: BTreeSet<&str> = Scope::OF_APPS.into_iter().chain(Scope::OF_SERVER).map(Scope::name).collect();
    for (path, method, operation) in operations(&openapi_description(&api).await) {
        let security = Security::of(&path, &operation);
        let of_app = path.starts_with("/v1/apps/{app}");
        for scope in &security.scopes {
            assert!(known.contains(scope.as_str()), "{method} {path} asks for `{scope}`, which no key has");
            let operators = Scope::OF_SERVER.iter().any(|server| server.name() == scope);
            assert!(of_app != operators || is_end_of_app(&path, &method), "{method} {path} asks for `{scope}`");
        }
        if security.anybody {
            public.insert(format!("{method} {path}"));
        }
    }
    assert_eq!(
        public,
        PUBLIC.map(str::to_owned).into(),
        "give its handler an argument that authenticates, or name it in PUBLIC"
    );
}

#[tokio::test]
async fn no_route_is_left_out_of_the_description() {
    let api = TestApi::start().await;
    let described = operations(&openapi_description(&api).await);
    let paths: BTreeSet<&str> = described.iter().map(|(path, ..)| path.as_str()).collect();
    // axum tells its routes in no other way than this.
    let printed = format!("{:?}", api.router);
    let routed: BTreeSet<&str> = printed.split('"').skip(1).step_by(2).filter(|text| text.starts_with('/')).collect();
    assert!(paths.is_subset(&routed), "the router does not print its routes any more: find another way to list them");
    let others: BTreeSet<&str> = routed.difference(&paths).copied().collect();
    assert_eq!(others, UNDESCRIBED.into(), "describe it by utoipa::path and `routes!`, or name it in UNDESCRIBED");
    for path in paths {
        let named = path.replace("{app}", "shop").replace(['{', '}'], "");
        for method in METHODS {
            if described.iter().any(|(at, known, _)| at == path && *known == method) {
                continue;
            }
            let reply = api.call(method.clone(), &named, Some(&api.operator), None).await;
            assert_eq!(reply.status, 405, "{method} {path} is not described");
        }
    }
}
