//! The REST API through its router, without an engine: an app, its callers, and their requests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Request};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bellwire::testkit::api::RequestRate;
use bellwire::testkit::api::{ApiConfig, ApiState, EngineHandle, Work, local_router, router};
use bellwire_core::clock::Clock;
use bellwire_core::id::AppId;
use bellwire_core::scope::Scope;
use bellwire_gateway::{GatewayConfig as GatewaySettings, Gateways};
use bellwire_store::keys::api_keys;
use bellwire_store::operations::idempotency::{KeyScope, KeyedRequest};
use bellwire_store::{self as store, operations::partitions};
use bellwire_vault::Vault;
use bellwire_webpush::keys::SigningKey;
use chrono::{DateTime, Utc};
use p256::elliptic_curve::sec1::ToSec1Point as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;
use tokio::time::timeout;
use tower::ServiceExt as _;
use uuid::Uuid;

use super::TestDatabase;
use super::app::PATIENCE;

/// The peer of a connection from this machine, as the HTTP server notes it.
pub const LOOPBACK: ConnectInfo<SocketAddr> = ConnectInfo(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1));

/// The origin that the test app lets in.
pub const ORIGIN: &str = "https://shop.example";

/// A server's API with one app, `shop`, and a stub clock.
pub struct TestApi {
    pub router: Router,
    /// The command line's.
    pub local: Router,
    pub pool: PgPool,
    pub vault: Vault,
    pub clock: Clock,
    /// The secret of an operator's key.
    pub operator: String,
    /// The secret of a key of the app, with all its scopes.
    pub key: String,
    /// The app as it was made.
    pub app: Value,
    /// Work passed to dispatch.
    pub told: Arc<Mutex<Vec<Work>>>,
    _database: TestDatabase,
}

impl TestApi {
    pub async fn start() -> Self {
        Self::with(ApiConfig::default(), None).await
    }

    /// With `lease`, dispatch takes every single send under it.
    pub async fn with(settings: ApiConfig, lease: Option<Uuid>) -> Self {
        let database = TestDatabase::create().await;
        let pool = database.pool.clone();
        let vault = Vault::new([(1, [7; 32])], &[8; 32]);
        let clock = Clock::stub(DateTime::from_timestamp(1_800_000_000, 0).unwrap());
        partitions::ensure(&pool, clock.now()).await.unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let ear = told.clone();
        let tell = move |work| match work {
            Work::Asked => {} // every changing request sends this
            work => ear.lock().push(work),
        };
        let engine = EngineHandle { tell: Arc::new(tell), lease: Arc::new(move || lease) };
        let gateways = Gateways::new(GatewaySettings::default()).unwrap();
        let sending_pool = store::connect_lazily(store::by_index_only(database.options()), 2);
        let state = ApiState::new(pool.clone(), sending_pool, vault.clone(), clock.clone(), gateways, engine, settings);
        let (_, operator) =
            api_keys::create(&pool, &vault, None, "operator", &[Scope::Operator], None, &clock).await.unwrap();
        let mut api = Self {
            router: router(state.clone()),
            local: local_router(state),
            pool,
            vault,
            clock,
            operator,
            key: String::new(),
            app: Value::Null,
            told,
            _database: database,
        };
        (api.app, api.key) = api.make_app("shop").await;
        api
    }

    /// Makes an app whose browsers may do everything, and a key for it with all scopes.
    pub async fn make_app(&self, slug: &str) -> (Value, String) {
        let body = json!({"slug": slug, "name": slug, "origins": [ORIGIN], "subject": "mailto:push@bellwire.dev",
            "browsers_may": ["create_topics", "set_tags", "set_attributes", "track_events", "report_conversions"]});
        let app = self.call(Method::POST, "/v1/apps", Some(&self.operator), Some(body)).await.ok(201);
        let id = app["id"].as_str().unwrap().parse().unwrap();
        let made = api_keys::create(&self.pool, &self.vault, Some(id), "all", &Scope::OF_APPS, None, &self.clock).await;
        (app, made.unwrap().1)
    }

    pub fn app_id(&self) -> AppId {
        self.app["id"].as_str().unwrap().parse().unwrap()
    }

    /// A request with the app's own key and an idempotency key.
    pub async fn keyed_request(&self, route: &str, key: &str, parts: &[&[u8]]) -> KeyedRequest {
        let caller = sqlx::query_scalar("SELECT id FROM api_keys WHERE app = $1").bind(self.app_id().0);
        let caller = caller.fetch_one(&self.pool).await.unwrap();
        KeyedRequest::new(&self.vault, KeyScope { caller, app: Some(self.app_id()), route }, key, parts)
    }

    /// Any request.
    pub async fn send(&self, request: Request<Body>) -> Reply {
        read_reply(self.router.clone().oneshot(request).await.unwrap()).await
    }

    /// A JSON request with a bearer.
    pub async fn call(&self, method: Method, path: &str, bearer: Option<&str>, body: Option<Value>) -> Reply {
        self.call_with(method, path, bearer, body, &[]).await
    }

    pub async fn call_with(
        &self, method: Method, path: &str, bearer: Option<&str>, body: Option<Value>, headers: &[(&str, &str)],
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(path).extension(LOOPBACK);
        if let Some(bearer) = bearer {
            request = request.header("authorization", format!("Bearer {bearer}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            None => Body::empty(),
            Some(body) => {
                request = request.header("content-type", "application/json");
                Body::from(body.to_string())
            }
        };
        self.send(request.body(body).unwrap()).await
    }

    /// With the app's own key, under `/v1/apps/shop`.
    pub async fn get(&self, path: &str) -> Reply {
        self.call(Method::GET, &format!("/v1/apps/shop{path}"), Some(&self.key), None).await
    }

    /// With the app's own key, under `/v1/apps/shop`.
    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.call(Method::POST, &format!("/v1/apps/shop{path}"), Some(&self.key), Some(body)).await
    }

    /// With the app's own key, under `/v1/apps/shop`.
    pub async fn put(&self, path: &str, body: Value) -> Reply {
        self.call(Method::PUT, &format!("/v1/apps/shop{path}"), Some(&self.key), Some(body)).await
    }

    /// As a browser on the app's site would.
    pub async fn browse(&self, method: Method, path: &str, token: Option<&str>, body: Option<Value>) -> Reply {
        self.call_with(method, &format!("/v1/apps/shop{path}"), token, body, &[("origin", ORIGIN)]).await
    }

    /// Registers a subscription by the server's key; `more` adds members to the request.
    pub async fn subscribe(&self, endpoint: &str, more: Value) -> Value {
        let mut body = json!({"subscription": same_browser(endpoint)});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = self.post("/subscriptions", body).await;
        assert!(matches!(reply.status, 200 | 201), "{}", reply.json);
        reply.json
    }

    /// Counts of a message, checked to add up.
    pub async fn counts(&self, message: &str) -> Value {
        let counts = self.get(&format!("/messages/{message}")).await.ok(200)["counts"].clone();
        let n = |name: &str| counts[name].as_i64().unwrap();
        let parts = ["queued", "dispatching", "retrying", "accepted", "gone", "expired", "dead", "cancelled", "capped"];
        assert_eq!(n("targeted"), parts.into_iter().map(n).sum::<i64>(), "{counts}");
        assert_eq!(n("accepted"), n("awaiting_ack") + n("acknowledged") + n("unconfirmed"), "{counts}");
        counts
    }

    /// A JSON request of the command line's.
    pub async fn locally(&self, method: Method, path: &str, body: Value) -> Reply {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        read_reply(self.local.clone().oneshot(request.body(body).unwrap()).await.unwrap()).await
    }

    /// Invites a teammate. Returns them, and the token of their link.
    pub async fn invite(&self, email: &str, roles: Value) -> (Value, String) {
        let body = json!({"email": email, "roles": roles});
        let invited = self.locally(Method::POST, "/v1/team", body).await.ok(201);
        let token = invited["link"]["token"].as_str().unwrap().to_owned();
        (invited, token)
    }

    /// A teammate who has come in by their link, without a password.
    pub async fn teammate(&self, email: &str, roles: Value) -> Browser<'_> {
        let (_, link) = self.invite(email, roles).await;
        self.sign_in(json!({"link": link})).await
    }

    /// Signs in; it must succeed.
    pub async fn sign_in(&self, body: Value) -> Browser<'_> {
        let reply = self.call(Method::POST, "/v1/session", None, Some(body)).await;
        let cookie = cookie(&reply);
        Browser { api: self, cookie, session: reply.ok(201) }
    }

    pub fn told(&self) -> Vec<Work> {
        std::mem::take(&mut self.told.lock())
    }
}

/// A response, read to its end.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub json: Value,
}

impl Reply {
    /// The body, if the request was answered with that status.
    #[track_caller]
    pub fn ok(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.json);
        self.json
    }

    /// The code of the problem, and the places that it names.
    pub fn refusal(&self) -> (u16, &str, Vec<&str>) {
        let places = self.json["errors"].as_array().map_or(&[][..], Vec::as_slice);
        assert!(places.iter().all(|e| e["detail"].is_string()), "{}", self.json);
        (self.status, self.json["code"].as_str().unwrap_or("?"), places.iter().map(place).collect())
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}

fn place(error: &Value) -> &str {
    ["pointer", "parameter", "header"].iter().find_map(|kind| error[kind].as_str()).unwrap_or("?")
}

pub async fn read_reply(response: Response) -> Reply {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let json = match headers.get("content-type").map(|kind| kind.as_bytes()) {
        _ if body.is_empty() => Value::Null,
        Some(b"text/csv; charset=utf-8") => Value::Null,
        Some(b"application/x-ndjson") => {
            let lines = serde_json::Deserializer::from_slice(&body).into_iter();
            Value::Array(lines.collect::<Result<_, _>>().expect("lines of JSON"))
        }
        _ => serde_json::from_slice(&body).expect("JSON"),
    };
    Reply { status, headers, body, json }
}

/// The cookie that a response sets, as a request shows it.
pub fn cookie(reply: &Reply) -> String {
    reply.header("set-cookie").split(';').next().unwrap().to_owned()
}

/// Browser with a signed-in user, on a page of this server.
pub struct Browser<'a> {
    pub api: &'a TestApi,
    pub cookie: String,
    /// The session as it began.
    pub session: Value,
}

impl Browser<'_> {
    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Reply {
        self.call_from("same-origin", method, path, body).await
    }

    /// From a page of that relation to this server.
    pub async fn call_from(&self, site: &str, method: Method, path: &str, body: Option<Value>) -> Reply {
        let headers = [("cookie", self.cookie.as_str()), ("sec-fetch-site", site)];
        self.api.call_with(method, path, None, body, &headers).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.call(Method::GET, path, None).await
    }

    /// Whether it is still signed in.
    pub async fn is_in(&self) -> bool {
        self.get("/v1/session").await.status == 200
    }

    pub fn id(&self) -> &str {
        self.session["id"].as_str().unwrap()
    }

    pub fn teammate(&self) -> &str {
        self.session["teammate"].as_str().unwrap()
    }
}

/// JSON form of a browser's `PushSubscription`.
pub fn push_subscription(endpoint: &str) -> Value {
    let p256dh = SigningKey::generate().public_base64();
    let auth = URL_SAFE_NO_PAD.encode(Uuid::now_v7().as_bytes());
    json!({"endpoint": endpoint, "expirationTime": null, "keys": {"p256dh": p256dh, "auth": auth}})
}

/// Subscription of the one browser that has this endpoint: its keys derive from the endpoint, so each call returns the same.
pub fn same_browser(endpoint: &str) -> Value {
    let seed = Sha256::digest(endpoint);
    let key = p256::SecretKey::from_slice(&seed).expect("nearly every 32 octets are a key");
    let p256dh = URL_SAFE_NO_PAD.encode(key.public_key().to_sec1_point(false));
    let auth = URL_SAFE_NO_PAD.encode(&seed[..16]);
    json!({"endpoint": endpoint, "expirationTime": null, "keys": {"p256dh": p256dh, "auth": auth}})
}

/// A request to register, with further members.
pub fn registration(endpoint: &str, more: Value) -> Value {
    let mut body = json!({"subscription": push_subscription(endpoint)});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// An endpoint of FCM.
pub fn fcm(name: &str) -> String {
    format!("https://fcm.googleapis.com/fcm/send/{name}")
}

/// Room for many requests.
pub fn high_rate_limits() -> ApiConfig {
    let roomy = RequestRate { burst: 10_000, per_minute: 60_000 };
    ApiConfig { per_client: roomy, guesses_per_client: roomy, ..ApiConfig::default() }
}

/// The log's entry of a sign-in that was refused just now, once it is there: no answer waits for it.
pub async fn newest_refusal(api: &TestApi) -> Value {
    let is_new = |entry: &Value| {
        let at: DateTime<Utc> = serde_json::from_value(entry["at"].clone()).expect("a time");
        at.timestamp_millis() == api.clock.now().timestamp_millis()
    };
    let told = async {
        loop {
            let path = "/v1/audit-log?action=session.refused&limit=1";
            let log = api.call(Method::GET, path, Some(&api.operator), None).await.ok(200);
            if let Some(entry) = log["data"].get(0).filter(|entry| is_new(entry)) {
                break entry.clone();
            }
        }
    };
    timeout(PATIENCE, told).await.expect("the log tells of it")
}

/// A content that is fine.
pub fn content() -> Value {
    json!({"title": "Hello"})
}
