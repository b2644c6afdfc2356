//! The API within this process, for callers with access to the database and the master key.

use std::io;

use anyhow::{Context as _, anyhow, bail};
use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, header};
use futures_util::TryStreamExt as _;
use serde_json::Value;
use sqlx::PgPool;
use tower::ServiceExt as _;

use super::refusal::{ArgumentNames, CommandError};
use crate::config::Config;
use crate::server;
use crate::server::context::{Context, Migrations};
use bellwire_core::id::MessageId;
use bellwire_postgres::Embedded;
use bellwire_store::{operations::workers, queue::opening};

const ANSWER_MAX_OCTETS: usize = 64 << 20;
/// Connections of a verb: half of them for dispatch, which is not there.
const CONNECTIONS: u32 = 6;

/// Whether a verb may be the first thing that happens in a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataDirState {
    Here,
    /// There must be something already; where there is nothing, the directory is probably the wrong one.
    Before,
}

/// An open database and the API on it.
#[derive(Debug)]
pub(super) struct Client {
    /// Public URL of the server, without a trailing slash.
    pub server: String,
    context: Context,
    router: Router,
}

/// Request to the API, and the names of the arguments that its parts come from.
#[derive(Debug)]
pub(super) struct ApiRequest {
    pub method: Method,
    pub path: String,
    /// JSON; null for none.
    pub body: Value,
    pub headers: Vec<(&'static str, String)>,
    pub names: Vec<(&'static str, &'static str)>,
}

impl ApiRequest {
    /// A request without a body.
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
    /// Opens the database as a server does: the embedded Postgres of a running one is shared.
    pub(super) async fn open(mut config: Config, beginning: DataDirState) -> anyhow::Result<Self> {
        config.database_connections = CONNECTIONS;
        let data = config.data_dir.display();
        let embedded = config.database_url.is_none();
        let is_new = embedded && !Embedded::exists(&config.postgres_options());
        if is_new && beginning == DataDirState::Before {
            bail!(
                "there is no data in {data}. Start `bellwire serve` first, or give its data directory or database: --data-dir, or \
                 BELLWIRE_DATABASE_URL as the server has it"
            );
        }
        let context = Context::open(&config, Migrations::Begin).await?;
        let elsewhere = "use --data-dir, or the BELLWIRE_DATABASE_URL of the server";
        if is_new {
            eprintln!(
                "Warning: there was no data in {data}, and no server uses it: a new database was made there. If your server \
                 has its data elsewhere, it does not see changes made here; {elsewhere}."
            );
        } else if context.holds_postgres() {
            eprintln!(
                "Warning: no server is running on {data}: working on its data directly. If your server has its data \
                 elsewhere, it does not see this one; {elsewhere}."
            );
        }
        let router = server::local_router(&context, &config)?;
        let server = config.base_url().as_str().trim_end_matches('/').to_owned();
        Ok(Self { server, context, router })
    }

    pub(super) async fn close(self) {
        self.context.close().await;
    }

    /// Connections to the database, for reads outside the API.
    pub(super) fn pool(&self) -> &PgPool {
        &self.context.pool
    }

    /// Makes a request. A refused one is an error that names the arguments which are wrong; no content is null.
    pub(super) async fn ask(&self, request: &ApiRequest) -> anyhow::Result<Value> {
        let octets = axum::body::to_bytes(self.answer(request).await?, ANSWER_MAX_OCTETS).await?;
        if octets.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_slice(&octets)?) }
    }

    /// Makes a request whose answer may be of any length, and hands it on as it comes.
    pub(super) async fn stream(
        &self,
        request: &ApiRequest,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let mut answer = self.answer(request).await?.into_data_stream();
        while let Some(octets) = answer.try_next().await? {
            take(&octets)?;
        }
        Ok(())
    }

    /// Makes a request whose body may be of any length.
    pub(super) async fn upload(&self, path: String, names: &ArgumentNames, body: Body) -> anyhow::Result<Value> {
        let request = Request::builder().method(Method::POST).uri(path).body(body);
        let answer =
            self.answered(request.context("this cannot be written as a request")?, &Value::Null, names).await?;
        Ok(serde_json::from_slice(&axum::body::to_bytes(answer, ANSWER_MAX_OCTETS).await?)?)
    }

    /// Makes a request; the body of its answer, unless that is a problem.
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

    /// Has the API answer a request with that JSON as its body.
    async fn answered(&self, request: Request<Body>, body: &Value, names: &ArgumentNames) -> anyhow::Result<Body> {
        let Ok(response) = self.router.clone().oneshot(request).await;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let octets = axum::body::to_bytes(response.into_body(), ANSWER_MAX_OCTETS).await?;
        let problem = serde_json::from_slice(&octets);
        let problem = problem.with_context(|| format!("the response {status} is not a problem"))?;
        Err(CommandError::new(&problem, body, names).into())
    }

    pub(super) async fn get(&self, path: String) -> anyhow::Result<Value> {
        self.ask(&ApiRequest::get(path)).await
    }

    /// Reads a list to its end: one page that holds everything. The request has no query.
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

    pub(super) async fn app_of(&self, message: &str) -> anyhow::Result<String> {
        let id = message.parse::<MessageId>().map_err(|error| anyhow!("MESSAGE: {error}"))?;
        let found = opening::load_messages(&self.context.pool, &[id]).await?.pop();
        let found =
            found.with_context(|| format!("there is no message {id}; `bellwire message list` shows an app's"))?;
        Ok(found.app.to_string())
    }

    pub(super) async fn delivers(&self) -> anyhow::Result<bool> {
        Ok(workers::any(&self.context.pool, self.context.clock.now()).await?)
    }
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
mod tests {
    use super::*;

    #[test]
    fn nothing_typed_leaves_its_segment() {
        assert_eq!(path(["apps", "a/b?c", "..", "é"]), "/v1/apps/a%2Fb%3Fc/%2E%2E/%C3%A9");
    }
}
