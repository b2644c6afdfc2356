//! A whole server that browsers can reach, and the app of its example page.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tower::ServiceExt as _;

use super::until;
use crate::support::{Setup, TestApp};

/// The server under `http://localhost:{port}`, which browsers take for secure.
pub struct Site {
    pub app: TestApp,
    pub origin: String,
    addr: SocketAddr,
    /// The secret of a key of the example's app.
    key: String,
    serving: Option<JoinHandle<()>>,
}

impl Site {
    pub async fn start() -> Self {
        let app = TestApp::with(Setup::default()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let origin = format!("http://localhost:{}", addr.port());
        let mut site = Self { app, origin, addr, key: String::new(), serving: None };
        site.serve(listener);
        // The first visitor makes the app.
        let host = format!("localhost:{}", addr.port());
        let visit =
            Request::get("/example/").header("host", host).extension(ConnectInfo(addr)).body(Body::empty()).unwrap();
        assert_eq!(site.app.router.clone().oneshot(visit).await.unwrap().status(), 200);
        let key = json!({"name": "browser", "scopes": bellwire::store::api_keys::Scope::OF_APPS});
        let made = site.app.operate(Method::POST, "/v1/apps/example/api-keys", key).await.ok(201);
        site.key = made["secret"].as_str().unwrap().to_owned();
        site
    }

    fn serve(&mut self, listener: TcpListener) {
        self.serving = Some(tokio::spawn(serve(listener, self.app.router.clone())));
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

    /// The page.
    pub fn page(&self) -> String {
        format!("{}/example/", self.origin)
    }

    /// A request about the example's app.
    pub async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let reply = self.app.call_as(method, &format!("/v1/apps/example{path}"), &self.key, body).await;
        assert!((200..300).contains(&reply.status), "{path}: {} {}", reply.status, reply.json);
        reply.json
    }

    pub async fn get(&self, path: &str) -> Value {
        self.call(Method::GET, path, Value::Null).await
    }

    /// Sends to everybody who is subscribed and answers the message's id.
    pub async fn send(&self, content: Value) -> String {
        let body = json!({"to": {"all": true}, "ttl": 3600, "content": content});
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
async fn serve(listener: TcpListener, router: Router) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, peer) = listener.accept().await.expect("a listener of ours");
        let router = router.clone();
        let service = service_fn(move |mut request: Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            router.clone().oneshot(request.map(Body::new))
        });
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
