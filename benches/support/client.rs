//! A client for the REST API and the simulator's HTTP interface.

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Keeps connections open, as a customer's server would.
#[derive(Clone)]
pub struct Client {
    hyper: Hyper<HttpConnector, Full<Bytes>>,
    base: String,
    bearer: String,
}

impl Client {
    /// A client of the server at `base`, `http://address`.
    pub fn new(base: impl Into<String>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self { hyper: Hyper::builder(TokioExecutor::new()).build(connector), base: base.into(), bearer: String::new() }
    }

    /// The same with an API key.
    pub fn with_key(&self, secret: &str) -> Self {
        Self { bearer: format!("Bearer {secret}"), ..self.clone() }
    }

    /// Base URL of the server.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// `GET`, which must succeed.
    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call(Method::GET, path, None).await.expect("the server answers");
        assert!(status.is_success(), "GET {path}: {status} {body}");
        body
    }

    /// `GET` of what has no end, which must begin well.
    pub async fn open(&self, path: &str) -> Incoming {
        let request =
            Request::builder().uri(format!("{}{path}", self.base)).header(header::AUTHORIZATION, &self.bearer);
        let request = request.body(Full::default()).expect("a valid request");
        let response = self.hyper.request(request).await.expect("the server answers");
        assert!(response.status().is_success(), "GET {path}: {}", response.status());
        response.into_body()
    }

    /// `POST`, which must succeed.
    pub async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, body) = self.call(Method::POST, path, Some(body)).await.expect("the server answers");
        assert!(status.is_success(), "POST {path}: {status} {body}");
        body
    }

    /// `POST` under an idempotency key, which must succeed.
    pub async fn post_once(&self, path: &str, body: &Value, key: &str) -> Value {
        let (status, body) =
            self.call_with(Method::POST, path, Some(body), Some(key)).await.expect("the server answers");
        assert!(status.is_success(), "POST {path}: {status} {body}");
        body
    }

    /// `POST` of a file, which must succeed.
    pub async fn upload(&self, path: &str, file: Bytes) -> Value {
        let request = Request::post(format!("{}{path}", self.base)).header(header::AUTHORIZATION, &self.bearer);
        let response = self.hyper.request(request.body(Full::new(file)).expect("a valid request")).await;
        let response = response.expect("the server answers");
        let status = response.status();
        let body = response.into_body().collect().await.expect("the server ends what it began").to_bytes();
        assert!(status.is_success(), "POST {path}: {status}");
        serde_json::from_slice(&body).expect("JSON")
    }

    /// `PUT`, which must succeed.
    pub async fn put(&self, path: &str, body: &Value) -> Value {
        let (status, body) = self.call(Method::PUT, path, Some(body)).await.expect("the server answers");
        assert!(status.is_success(), "PUT {path}: {status} {body}");
        body
    }

    /// `DELETE`, which must succeed.
    pub async fn delete(&self, path: &str) {
        let (status, body) = self.call(Method::DELETE, path, None).await.expect("the server answers");
        assert!(status.is_success(), "DELETE {path}: {status} {body}");
    }

    /// Whether a `GET` succeeds.
    pub async fn is_well(&self, path: &str) -> bool {
        self.call(Method::GET, path, None).await.is_ok_and(|(status, _)| status.is_success())
    }

    async fn call(
        &self, method: Method, path: &str, body: Option<&Value>,
    ) -> Result<(StatusCode, Value), hyper_util::client::legacy::Error> {
        self.call_with(method, path, body, None).await
    }

    async fn call_with(
        &self, method: Method, path: &str, body: Option<&Value>, idempotency_key: Option<&str>,
    ) -> Result<(StatusCode, Value), hyper_util::client::legacy::Error> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if !self.bearer.is_empty() {
            request = request.header(header::AUTHORIZATION, &self.bearer);
        }
        if let Some(key) = idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let response = self.hyper.request(request.body(Full::new(body)).expect("a valid request")).await?;
        let status = response.status();
        let body = response.into_body().collect().await.expect("the server ends what it began").to_bytes();
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }
}
