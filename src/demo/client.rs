//! REST client of the demo. It uses the public API only.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

#[derive(Debug, Clone, Copy)]
pub(super) enum Caller<'a> {
    Key(&'a str),
    Page(&'a str),
}

/// A client of one server. Clones share its connections.
#[derive(Debug, Clone)]
pub(super) struct Client {
    http: Http<HttpConnector, Full<Bytes>>,
    base: String,
}

impl Client {
    /// Creates a client of the server at `base`, such as `http://127.0.0.1:8787`.
    pub(super) fn new(base: String) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self { http: Http::builder(TokioExecutor::new()).build(connector), base }
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    pub(super) async fn get(&self, caller: Caller<'_>, path: &str) -> anyhow::Result<Value> {
        self.call(caller, Method::GET, path, Bytes::new()).await
    }

    /// Sends a POST and returns the response, which must be a success.
    pub(super) async fn post(&self, caller: Caller<'_>, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.call(caller, Method::POST, path, body.to_string().into()).await
    }

    /// Sends a request and returns the response, which must be a success.
    pub(super) async fn call(
        &self, caller: Caller<'_>, method: Method, path: &str, body: Bytes,
    ) -> anyhow::Result<Value> {
        let what = format!("{method} {path}");
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        request = match caller {
            Caller::Key(key) => request.header(header::AUTHORIZATION, format!("Bearer {key}")),
            Caller::Page(origin) => request.header(header::ORIGIN, origin),
        };
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let exchange = async {
            let response = self.http.request(request.body(Full::new(body))?).await?;
            let status = response.status();
            anyhow::Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        let (status, body) = exchange.await.with_context(|| what.clone())?;
        read(status, &body).context(what)
    }
}

fn read(status: StatusCode, body: &[u8]) -> anyhow::Result<Value> {
    if !status.is_success() {
        bail!("{status}: {}", String::from_utf8_lossy(body));
    }
    if body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(body).context("the answer is not JSON")
}
