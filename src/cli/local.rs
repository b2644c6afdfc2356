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
use crate::api::http::problem::Problem;
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
pub(super) struct Local {
    /// Public URL of the server, without a trailing slash.
    pub server: String,
    context: Context,
    router: Router,
}

/// A request, and how its author knows its parts.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub method: Method,
    pub path: String,
    /// JSON; null for none.
    pub body: Value,
    pub idempotency_key: Option<&'a str>,
    pub last_event_id: Option<&'a str>,
    /// Whether the request is refused if the resource exists.
    pub only_creates: bool,
    pub names: &'a ArgumentNames,
}

impl Ask<'static> {
    /// A request without a body.
    pub(super) fn new(method: Method, path: String) -> Self {
        Self {
            method,
            path,
            body: Value::Null,
            idempotency_key: None,
            last_event_id: None,
            only_creates: false,
            names: &[],
        }
    }
}

impl Local {
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
    pub(super) async fn ask(&self, ask: Ask<'_>) -> anyhow::Result<Value> {
        let octets = axum::body::to_bytes(self.answer(ask).await?, ANSWER_MAX_OCTETS).await?;
        if octets.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_slice(&octets)?) }
    }

    /// Makes a request whose answer may be of any length, and hands it on as it comes.
    pub(super) async fn stream(
        &self,
        ask: Ask<'_>,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let mut answer = self.answer(ask).await?.into_data_stream();
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
    async fn answer(&self, ask: Ask<'_>) -> anyhow::Result<Body> {
        let mut request = Request::builder().method(ask.method).uri(ask.path);
        if let Some(key) = ask.idempotency_key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(id) = ask.last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        if ask.only_creates {
            request = request.header(header::IF_NONE_MATCH, "*");
        }
        let body = if ask.body.is_null() {
            Body::empty()
        } else {
            request = request.header(header::CONTENT_TYPE, "application/json");
            Body::from(ask.body.to_string())
        };
        let request = request.body(body).context("this cannot be written as a request")?;
        self.answered(request, &ask.body, ask.names).await
    }

    /// Has the API answer a request with that JSON as its body.
    async fn answered(&self, request: Request<Body>, body: &Value, names: &ArgumentNames) -> anyhow::Result<Body> {
        let Ok(response) = self.router.clone().oneshot(request).await;
        let status = response.status();
        if !status.is_success() {
            let problem = response.extensions().get::<Problem>();
            let problem = problem.with_context(|| format!("the response {status} is not a problem"))?;
            return Err(CommandError::new(problem, body, names).into());
        }
        Ok(response.into_body())
    }

    pub(super) async fn get(&self, path: String) -> anyhow::Result<Value> {
        self.ask(Ask::new(Method::GET, path)).await
    }

    /// Reads a list to its end: one page that holds everything.
    pub(super) async fn list(&self, path: &str) -> anyhow::Result<Value> {
        let mut page = self.get(format!("{path}?limit=250")).await?;
        let mut rows = Vec::new();
        loop {
            rows.append(page["data"].as_array_mut().context("a page without rows")?);
            let Some(iterator) = page["iterator"].as_str() else { break };
            page = self.get(format!("{path}?limit=250&iterator={iterator}")).await?;
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

pub(super) fn rows(page: &Value) -> impl Iterator<Item = &Value> {
    page["data"].as_array().into_iter().flatten()
}

/// Builds a path from segments. Each segment is percent-encoded, so that input cannot add segments.
pub(super) fn path<const N: usize>(segments: [&str; N]) -> String {
    let mut path = String::from("/v1");
    for segment in segments {
        path.push('/');
        for octet in segment.bytes() {
            match octet {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => path.push(char::from(octet)),
                _ => path.push_str(&format!("%{octet:02X}")),
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_typed_leaves_its_segment() {
        assert_eq!(path(["apps", "a/b?c", "..", "é"]), "/v1/apps/a%2Fb%3Fc/%2E%2E/%C3%A9");
    }
}
