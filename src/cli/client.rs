//! Requests to the API: within this process for callers with access to the database, or over HTTPS to a server elsewhere.

mod local;
mod remote;

use std::io;

use anyhow::{Context as _, anyhow, bail};
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, header};
use futures_util::TryStreamExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

use super::refusal::{ArgumentNames, CommandError};
use crate::config::{BACKEND_KEY_VARIABLE, Config};
use crate::server::announced;
use crate::server::context::Context;
use bellwire_core::id::MessageId;
use bellwire_store::{operations::workers, queue::opening};
use local::Local;
use remote::Remote;

const ANSWER_MAX_OCTETS: usize = 64 << 20;

/// Whether a verb may create the data in an empty data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataDirState {
    Here,
    /// Data must exist already. An empty directory is probably the wrong one.
    Before,
}

/// Client of the API, in this process or over HTTPS.
#[derive(Debug)]
pub(super) struct Client {
    /// Public URL of the server, without a trailing slash.
    pub server: String,
    transport: Transport,
}

#[derive(Debug)]
enum Transport {
    Local(Local),
    Remote(Remote),
}

/// API request, with the arguments that its parts came from, for errors.
#[derive(Debug)]
pub(super) struct ApiRequest {
    pub method: Method,
    pub path: String,
    /// JSON body. Null: no body.
    pub body: Value,
    pub headers: Vec<(&'static str, String)>,
    pub names: Vec<(&'static str, &'static str)>,
}

impl ApiRequest {
    /// Creates a request without a body.
    pub(super) fn new(method: Method, path: String) -> Self {
        Self { method, path, body: Value::Null, headers: Vec::new(), names: Vec::new() }
    }

    pub(super) fn get(path: String) -> Self {
        Self::new(Method::GET, path)
    }

    pub(super) fn body(self, body: Value) -> Self {
        Self { body, ..self }
    }

    pub(super) fn names(self, names: &ArgumentNames) -> Self {
        Self { names: names.to_vec(), ..self }
    }
}

impl Client {
    /// Opens the database on this machine.
    pub(super) async fn open(mut config: Config, beginning: DataDirState) -> anyhow::Result<Self> {
        let local = Local::open(&mut config, beginning).await?;
        let configured = || config.base_url().as_str().trim_end_matches('/').to_owned();
        Ok(Self {
            server: announced::running(&config.data_dir).unwrap_or_else(configured),
            transport: Transport::Local(local),
        })
    }

    /// Creates a client of the server at this URL, with the key in [`BACKEND_KEY_VARIABLE`].
    pub(super) fn remote(server: &str) -> anyhow::Result<Self> {
        let remote = Remote::new(server, std::env::var(BACKEND_KEY_VARIABLE).ok())?;
        Ok(Self { server: remote.server.clone(), transport: Transport::Remote(remote) })
    }

    pub(super) async fn close(self) {
        if let Transport::Local(local) = self.transport {
            local.context.close().await;
        }
    }

    /// Returns the database, for reads outside the API. `None`: a remote server.
    pub(super) fn context(&self) -> Option<&Context> {
        match &self.transport {
            Transport::Local(local) => Some(&local.context),
            Transport::Remote(_) => None,
        }
    }

    /// Sends a request. A refusal is an error that names the faulty arguments. A response without content is null.
    pub(super) async fn ask(&self, request: &ApiRequest) -> anyhow::Result<Value> {
        let octets = to_bytes(self.answer(request).await?, ANSWER_MAX_OCTETS).await?;
        if octets.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_slice(&octets)?) }
    }

    /// Sends a request whose response may be of any length, and passes it on as it arrives.
    pub(super) async fn stream(
        &self, request: &ApiRequest, mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let mut answer = self.answer(request).await?.into_data_stream();
        while let Some(octets) = answer.try_next().await? {
            take(&octets)?;
        }
        Ok(())
    }

    /// Sends a request with a streamed body of any length.
    pub(super) async fn upload(&self, path: String, names: &ArgumentNames, body: Body) -> anyhow::Result<Value> {
        let request = Request::builder().method(Method::POST).uri(path).body(body);
        let answer =
            self.answered(request.context("this cannot be written as a request")?, &Value::Null, names).await?;
        Ok(serde_json::from_slice(&to_bytes(answer, ANSWER_MAX_OCTETS).await?)?)
    }

    /// Sends a request and returns the body of the response. A problem is an error.
    async fn answer(&self, ApiRequest { method, path, body, headers, names }: &ApiRequest) -> anyhow::Result<Body> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let octets = if body.is_null() {
            Body::empty()
        } else {
            request = request.header(header::CONTENT_TYPE, "application/json");
            Body::from(body.to_string())
        };
        let request = request.body(octets).context("this cannot be written as a request")?;
        self.answered(request, body, names).await
    }

    /// Sends a request with this JSON body through the API in this process or elsewhere.
    async fn answered(&self, request: Request<Body>, body: &Value, names: &ArgumentNames) -> anyhow::Result<Body> {
        let response = match &self.transport {
            Transport::Local(local) => {
                let Ok(response) = local.router.clone().oneshot(request).await;
                response
            }
            Transport::Remote(remote) => remote.send(request).await?,
        };
        let (head, answer) = response.into_parts();
        let problem = match head.status.is_success() {
            true if !is_page(&head.headers) => return Ok(answer),
            true => Value::Null,
            false => serde_json::from_slice(&to_bytes(answer, ANSWER_MAX_OCTETS).await?).unwrap_or_default(),
        };
        if !problem["code"].is_string() {
            bail!("{} answered {}, but not as Bellwire's API does: check the address", self.server, head.status);
        }
        let error = CommandError::new(&problem, body, names);
        Err(match &self.transport {
            Transport::Local(_) => error,
            Transport::Remote(remote) => error.from(&remote.server, head.status),
        }
        .into())
    }

    pub(super) async fn get(&self, path: String) -> anyhow::Result<Value> {
        self.ask(&ApiRequest::get(path)).await
    }

    /// Reads all pages of a list and returns them as one. The request must have no query.
    pub(super) async fn list(&self, mut request: ApiRequest) -> anyhow::Result<Value> {
        let path = format!("{}?limit=250", request.path);
        request.path.clone_from(&path);
        let mut page = self.ask(&request).await?;
        let mut rows = Vec::new();
        loop {
            rows.append(page["data"].as_array_mut().context("a page without rows")?);
            let Some(iterator) = page["iterator"].as_str() else { break };
            request.path = format!("{path}&iterator={iterator}");
            page = self.ask(&request).await?;
        }
        page["data"] = rows.into();
        Ok(page)
    }

    /// Returns the app of a message, from the database.
    pub(super) async fn app_of(&self, message: &str) -> anyhow::Result<String> {
        let id = message.parse::<MessageId>().map_err(|error| anyhow!("MESSAGE {message:?}: {error}"))?;
        let context = self.context().context("--app: with --server, give the app that the message is of")?;
        let found = opening::load_messages(&context.pool, &[id]).await?.pop();
        let found =
            found.with_context(|| format!("there is no message {id}; `bellwire message list` shows an app's"))?;
        Ok(found.app.to_string())
    }

    /// Whether a server is running that delivers. Local data: read from the database. A remote server always delivers.
    pub(super) async fn delivers(&self) -> anyhow::Result<bool> {
        match self.context() {
            Some(context) => Ok(workers::any(&context.pool, context.clock.now()).await?),
            None => Ok(true),
        }
    }
}

/// Whether a response is an HTML page, which the API never returns.
fn is_page(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"))
}

/// Builds a path from segments. Each segment is percent-encoded, so that input cannot add segments.
pub(super) fn path<const N: usize>(segments: [&str; N]) -> String {
    segments.iter().fold("/v1".to_owned(), |path, segment| path + "/" + &encoded(segment))
}

/// Percent-encodes a segment of a path.
pub(super) fn encoded(segment: &str) -> String {
    let mut encoded = String::new();
    for octet in segment.bytes() {
        match octet {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => encoded.push(char::from(octet)),
            _ => encoded.push_str(&format!("%{octet:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
#[path = "../../tests/unit/cli/client.rs"]
mod tests;
