//! A whole server that browsers can reach.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request};
use bellwire::testkit::api::RelyingParty;
use bellwire_core::clock::Clock;
use bellwire_gateway::HostMapping;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tower::ServiceExt as _;

use super::until;
use crate::support::push_service::PushService;
use crate::support::{Setup, TestApp};

/// Scheme of pages and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// On localhost, which browsers take for secure.
    Http,
    /// With a certificate that the browsers trust.
    Https,
}

impl Scheme {
    /// The origin of what listens there. Browsers in tests find names under `.test` on this machine.
    pub fn origin(self, name: &str, addr: SocketAddr) -> String {
        match self {
            Self::Http => format!("http://localhost:{}", addr.port()),
            Self::Https => format!("https://{name}.test:{}", addr.port()),
        }
    }
}

/// The server as browsers reach it, and the app that their pages are of.
pub struct Site {
    pub app: TestApp,
    pub origin: String,
    slug: &'static str,
    /// The secret of a key of that app.
    pub key: String,
    scheme: Scheme,
    addr: SocketAddr,
    serving: Option<JoinHandle<()>>,
}

impl Site {
    /// With the app of its own example page, which the first visitor makes.
    pub async fn start() -> Self {
        let mut site = Self::open(Scheme::Http, "example").await;
        let host = format!("localhost:{}", site.addr.port());
        let visit = Request::get("/example/").header("host", host).extension(ConnectInfo(site.addr));
        let visited = site.app.router.clone().oneshot(visit.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(visited.status(), 200);
        let key = json!({"name": "browser", "scopes": bellwire_core::scope::Scope::OF_APPS});
        let made = site.app.operate(Method::POST, "/v1/apps/example/api-keys", key).await.ok(201);
        site.key = made["secret"].as_str().unwrap().to_owned();
        site
    }

    /// For pages of `shop` that are served from another origin.
    pub async fn of_shop(scheme: Scheme) -> Self {
        let mut site = Self::open(scheme, "shop").await;
        site.key = site.app.key.clone();
        site.call(Method::PUT, "/topics/news", json!({})).await;
        site
    }

    /// For the admin page, which goes by the browser's clock where the server's is right.
    pub async fn for_admins() -> Self {
        Self::for_admins_beside((Vec::new(), String::new())).await
    }

    /// The same beside others whom the server reaches: their hosts, and whom to trust for them.
    pub async fn for_admins_beside(others: (Vec<HostMapping>, String)) -> Self {
        let setup = Setup { clock: Some(Clock::system()), others, ..Setup::default() };
        let mut site = Self::with(setup, Scheme::Http, "shop").await;
        site.key = site.app.key.clone();
        site
    }

    /// Site for pages of `shop`, whose backend receives events through that receiver. Libraries that verify webhooks use the real clock.
    pub async fn with_hooks(receiver: &PushService) -> Self {
        let others = (receiver.hosts.clone(), receiver.ca_pem.clone());
        let setup = Setup { clock: Some(Clock::system()), others, ..Setup::default() };
        let mut site = Self::with(setup, Scheme::Http, "shop").await;
        site.key = site.app.key.clone();
        site
    }

    async fn open(scheme: Scheme, slug: &'static str) -> Self {
        Self::with(Setup::default(), scheme, slug).await
    }

    async fn with(setup: Setup, scheme: Scheme, slug: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let origin = scheme.origin("push", addr);
        let relying_party = RelyingParty::of(&origin.parse().unwrap());
        let app = TestApp::with(Setup { relying_party, ..setup }).await;
        let mut site = Self { app, origin, slug, key: String::new(), scheme, addr, serving: None };
        site.serve(listener);
        site
    }

    fn serve(&mut self, listener: TcpListener) {
        self.serving = Some(tokio::spawn(serve(listener, self.scheme, self.app.router.clone())));
    }

    /// From now on the server cannot be reached, and nothing that browsers hold open leads there.
    pub async fn shut(&mut self) {
        let serving = self.serving.take().expect("it was open");
        serving.abort();
        serving.await.expect_err("aborted");
    }

    /// And is back where it was.
    pub async fn reopen(&mut self) {
        let listener = TcpListener::bind(self.addr).await.expect("the port is still ours");
        self.serve(listener);
    }

    /// The example page.
    pub fn page(&self) -> String {
        format!("{}/example/", self.origin)
    }

    /// A request about the app.
    pub async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let path = format!("/v1/apps/{}{path}", self.slug);
        let reply = self.app.call_as(method, &path, &self.key, body).await;
        assert!((200..300).contains(&reply.status), "{path}: {} {}", reply.status, reply.json);
        reply.json
    }

    pub async fn get(&self, path: &str) -> Value {
        self.call(Method::GET, path, Value::Null).await
    }

    /// Sends to everybody who is subscribed and returns the message's id.
    pub async fn send(&self, content: Value) -> String {
        self.send_message(json!({"content": content})).await
    }

    /// The same with members of the message other than content.
    pub async fn send_message(&self, message: Value) -> String {
        let mut body = json!({"to": {"all": true}, "ttl": 3600});
        body.as_object_mut().unwrap().extend(message.as_object().unwrap().clone());
        let sent = self.call(Method::POST, "/messages", body).await;
        self.app.run_until_idle().await;
        sent["id"].as_str().unwrap().to_owned()
    }

    /// The message that was sent last.
    pub async fn last_message(&self) -> String {
        self.get("/messages").await["data"][0]["id"].as_str().unwrap().to_owned()
    }

    /// A subscription, once it is in that state.
    pub async fn until_state(&self, id: &str, state: &str) -> Value {
        let path = format!("/subscriptions/{id}");
        until(async || self.get(&path).await, |subscription| subscription["state"] == state).await
    }

    /// A message's counts, once they are as wanted.
    pub async fn until_counts(&self, message: &str, wanted: Value) -> Value {
        let path = format!("/messages/{message}");
        let wanted = wanted.as_object().unwrap();
        let look = async || {
            self.app.run_until_idle().await;
            self.get(&path).await["counts"].clone()
        };
        until(look, |counts| wanted.iter().all(|(name, n)| counts[name] == *n)).await
    }
}

/// Serves until it is aborted; its connections end with it, unlike those of `axum::serve`.
pub async fn serve(listener: TcpListener, scheme: Scheme, router: Router) {
    let tls = (scheme == Scheme::Https).then(tls);
    let mut connections = JoinSet::new();
    loop {
        let (stream, peer) = listener.accept().await.expect("a listener of ours");
        let (tls, router) = (tls.clone(), router.clone());
        let service = service_fn(move |mut request: Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            router.clone().oneshot(request.map(Body::new))
        });
        connections.spawn(async move {
            let http = http1::Builder::new();
            // Browsers give connections up whenever they like.
            match tls {
                None => drop(http.serve_connection(TokioIo::new(stream), service).await),
                Some(tls) => {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    drop(http.serve_connection(TokioIo::new(stream), service).await);
                }
            }
        });
    }
}

fn tls() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["push", "shop"].map(|name| format!("{name}.test"))).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into());
    Arc::new(config.unwrap()).into()
}
