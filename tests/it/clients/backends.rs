//! The packages for backends install from a server, type-check, and keep the promises of their READMEs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId, MessageId, VapidKeyId};
use bellwire_core::lane::Gateway;
use bellwire_store::outcomes::events::{self, Event, EventData, SubscriptionGone};
use chrono::{TimeDelta, Utc};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use uuid::Uuid;

use super::run;
use crate::support::api::{fcm, registration};
use crate::support::program::run_offline;
use crate::support::repository::root;
use crate::support::{Server, TempDir, TestApp};

const ORIGIN: &str = "https://shop.example";
/// Maximum age of a webhook's signature, in seconds.
const TOLERANCE_S: i64 = 300;

type Requests = Arc<Mutex<Vec<(Method, String, String)>>>;

/// Sends a request to the server.
async fn request(server: SocketAddr, mut request: Request<Body>) -> Response {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = format!("http://{server}{path}").parse().expect("a URL");
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    client.request(request).await.expect("the server answers").map(Body::new)
}

/// Starts a proxy that forwards all requests, but replaces the response to the first POST, and each one about the app `busy`, by a 503.
/// Returns its address, and the method, path and `Idempotency-Key` of each request.
async fn lossy_proxy(server: SocketAddr) -> (String, Requests) {
    let requests = Requests::default();
    let seen = requests.clone();
    let forward = async move |incoming: Request<Body>| {
        let key = incoming.headers().get("idempotency-key").map_or("", |key| key.to_str().expect("ASCII"));
        let entry = (incoming.method().clone(), incoming.uri().to_string(), key.to_owned());
        let is_lost = entry.0 == Method::POST && seen.lock().iter().all(|(method, ..)| *method != Method::POST);
        let is_lost = is_lost || entry.1.ends_with("/apps/busy");
        seen.lock().push(entry);
        let response = request(server, incoming).await;
        if is_lost { (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "0")]).into_response() } else { response }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(forward)).await });
    (format!("http://{address}"), requests)
}

/// Three webhook requests: signed by two secrets as during a rotation, with another body, and with an old signature.
fn webhook_requests(secret: &str) -> Value {
    const OTHER: &str = "whsec_b3RoZXIgc2VjcmV0IG90aGVyIHNlY3JldA==";
    let body = json!([{"id": "evt_1", "type": "delivery.clicked", "timestamp": "2027-01-15T08:00:00Z", "data": {}}])
        .to_string();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let now = i64::try_from(now).expect("it is not so late");
    let sign = |secret: &str, at: i64| {
        let webhook = standardwebhooks::Webhook::new(secret).expect("a secret");
        webhook.sign("whd_1", at, body.as_bytes()).expect("it signs")
    };
    let request = |at: i64, body: &str| {
        let signature = format!("{} {}", sign(OTHER, at), sign(secret, at));
        let headers =
            json!({"Webhook-Id": "whd_1", "webhook-timestamp": at.to_string(), "webhook-signature": signature});
        json!({"headers": headers, "body": body})
    };
    let altered = body.replace("clicked", "closed");
    json!([request(now, &body), request(now, &altered), request(now - TOLERANCE_S - 1, &body)])
}

/// Writes the code of a page's blocks in a language as one program.
fn write_code(page: &str, language: &str, to: &Path) {
    let text = std::fs::read_to_string(root().join(page)).expect("a page");
    let blocks = text.split("```").skip(1).step_by(2);
    let code: Vec<&str> = blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect();
    assert!(!code.is_empty(), "{page} has no code in {language}");
    std::fs::write(to, code.concat()).expect("a file of ours");
}

/// A server behind the proxy, and a directory for a program that uses a client.
struct Workshop {
    app: TestApp,
    server: Server,
    dir: TempDir,
    variables: Vec<(&'static str, String)>,
    requests: Requests,
}

impl Workshop {
    async fn open(files: &[&str]) -> Self {
        let app = TestApp::start().await;
        app.operate(Method::PATCH, "/v1/apps/shop", json!({"origins": [ORIGIN]})).await.ok(200);
        app.subscribe_with("fcm", 0..1, json!({"topics": ["news"]})).await;
        let mut variables =
            vec![("KEY", app.key.clone()), ("WEBHOOK_SECRET", "whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQ=".to_owned())];
        for (variable, form) in [("IDENTITY_SECRET", "jwt"), ("HMAC_SECRET", "hmac")] {
            let key = json!({"name": form, "form": form});
            let created = app.call(Method::POST, "/v1/apps/shop/identity-keys", key).await.ok(201);
            variables.push((variable, created["secret"].as_str().expect("a secret").to_owned()));
        }
        let mut conn = app.pool.acquire().await.expect("a connection");
        let owner = AppId(sqlx::query_scalar("SELECT id FROM apps").fetch_one(&app.pool).await.expect("one app"));
        for minutes in [30, 20] {
            let missed = Event::sla_missed(owner, Tier::Transactional, 30, MessageId(Uuid::now_v7()), 1);
            let at = Utc::now() - TimeDelta::minutes(minutes);
            events::record(&mut conn, vec![missed], at).await.expect("an event");
        }
        let gone = SubscriptionGone { lane: LaneId(1), gateway: Gateway::Fcm, vapid_key: VapidKeyId(Uuid::now_v7()) };
        let gone = Event { app: owner, body: EventData::SubscriptionGone(gone), n: 2 };
        events::record(&mut conn, vec![gone], Utc::now() - TimeDelta::minutes(10)).await.expect("an event");
        drop(conn);
        let server = Server::with(&app, &["--roles", "api"]).await;
        let (address, requests) = lossy_proxy(server.address).await;
        variables.push(("ADDRESS", address));
        let dir = TempDir::new();
        for file in files {
            std::fs::copy(root().join("tests/clients/backend").join(file), dir.path().join(file))
                .expect("a file of ours");
        }
        std::fs::write(dir.path().join("webhooks.json"), webhook_requests(&variables[1].1).to_string())
            .expect("a file");
        Self { app, server, dir, variables, requests }
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> String {
        let variables: Vec<(&str, &str)> = self.variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        run(&self.dir, program, arguments, &variables).await
    }

    /// Checks the output of a program, the requests that it sent, and their effect.
    async fn check(self, output: &str) {
        let output: Value = serde_json::from_str(output).expect("JSON");
        assert_eq!(output["problem"], json!({"status": 422, "code": "invalid", "title": "Invalid", "pointer": "/ttl"}));
        assert_eq!(output["webhooks"], json!([["delivery.clicked"], "refused", "refused"]));
        assert_eq!((&output["targeted"], &output["busy"]), (&json!(1), &json!("503 unexpected_response")), "{output}");
        assert_eq!(output["events"], json!([["sla.missed", 1], ["sla.missed", 1], ["subscription.gone", 2]]));
        assert_eq!((&output["later_events"], &output["refused_cursor"]), (&json!([]), &json!("400 invalid_parameter")));

        let requests = std::mem::take(&mut *self.requests.lock());
        let attempts = requests.iter().filter(|(_, path, _)| path.ends_with("/apps/busy")).count();
        assert_eq!(attempts, 4, "{requests:?}");
        let topics = output["topics"].as_array().expect("names");
        let pages = requests.iter().filter(|(method, path, _)| *method == Method::GET && path.contains("/topics?"));
        assert_eq!((pages.count(), topics.len()), (3, 6), "{requests:?}");
        let keys: Vec<_> =
            requests.iter().filter(|(method, ..)| *method == Method::POST).map(|(.., key)| key).collect();
        assert!(keys[0] == keys[1] && keys[1] != keys[2] && !keys[0].is_empty(), "{keys:?}");
        let messages = self.app.get("/v1/apps/shop/messages").await;
        let ids: Vec<_> = messages["data"].as_array().expect("rows").iter().map(|message| &message["id"]).collect();
        assert_eq!((ids.len(), &output["accepted"]), (2, &json!(1)), "one alone, one in a batch");
        assert!(ids.contains(&&output["message"]), "{ids:?}");

        for (n, user) in ["ann", "bob"].into_iter().enumerate() {
            let more = json!({"user_id": user, "user_token": output["tokens"][n]});
            let body = registration(&fcm(user), more).to_string();
            let browser = Request::post("/v1/apps/shop/subscriptions").header("origin", ORIGIN);
            let browser = browser.header("content-type", "application/json").body(Body::from(body)).expect("a request");
            assert_eq!(request(self.server.address, browser).await.status(), 201, "{user}");
        }
        self.app.run_until_idle().await;
        self.app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_client_keeps_its_promises() {
    let workshop = Workshop::open(&["backend.ts", "tsconfig.json"]).await;
    std::fs::write(workshop.dir.path().join("package.json"), r#"{"type": "module"}"#).expect("a file");
    let package = format!("http://{}/clients/bellwire-server.tgz", workshop.server.address);
    run_offline("npm", &["i", &package], &workshop.dir).await;
    write_code("clients/typescript/README.md", "ts", &workshop.dir.path().join("readme.ts"));
    write_code("docs/clients.md", "ts", &workshop.dir.path().join("guide.ts"));
    let types = root().join("clients/typescript/node_modules/@types");
    std::os::unix::fs::symlink(types, workshop.dir.path().join("node_modules/@types")).expect("a link");
    let tsc = root().join("tests/clients/node_modules/.bin/tsc");
    for exact in ["true", "false"] {
        workshop.run(tsc.to_str().expect("UTF-8"), &["-p", ".", "--exactOptionalPropertyTypes", exact]).await;
    }
    let output = workshop.run("node", &["backend.js"]).await;
    workshop.check(&output).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_client_keeps_its_promises() {
    let workshop = Workshop::open(&["backend.py"]).await;
    let (server, version) = (workshop.server.address, env!("CARGO_PKG_VERSION"));
    let wheel = format!("http://{server}/clients/bellwire-{version}-py3-none-any.whl");
    let pip = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", "client", &wheel];
    workshop.run("python3", &pip).await;
    write_code("clients/python/README.md", "python", &workshop.dir.path().join("readme.py"));
    write_code("docs/clients.md", "python", &workshop.dir.path().join("guide.py"));
    let files = ["backend.py", "readme.py", "guide.py", "client/bellwire/__init__.py"];
    workshop.run("python3", &[&["-m", "mypy", "--strict"], &files[..]].concat()).await;
    let output = workshop.run("python3", &["backend.py"]).await;
    workshop.check(&output).await;
}
