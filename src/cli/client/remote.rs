//! API of another server, over HTTPS.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt as _;
use tokio::time::timeout;
use url::Url;

use crate::config::BACKEND_KEY_VARIABLE as KEY_VARIABLE;
use bellwire_net::outbound::{OutboundClient, OutboundLimits, PlainHttp};

/// Limits that do not apply here, because bodies are streamed.
const LIMITS: OutboundLimits =
    OutboundLimits { timeout: Duration::from_secs(30), body_max_bytes: 0, idle_connections: 1 };
/// Timeout of the beginning of a response, except to an upload of unknown length.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Environment variable with a file of additional certificate authorities, as in OpenSSL.
const CA_VARIABLE: &str = "SSL_CERT_FILE";

/// Another server. `Debug` does not show the key.
#[derive(Debug)]
pub(super) struct Remote {
    /// URL without a trailing slash.
    pub(super) server: String,
    http: OutboundClient,
    authorization: HeaderValue,
}

impl Remote {
    pub(super) fn new(server: &str, key: Option<String>) -> anyhow::Result<Self> {
        let Some(url) = Url::parse(server).ok().filter(Url::has_host) else {
            // What may contain a password is not printed.
            let named = if server.contains('@') { String::new() } else { format!(" {server:?}") };
            bail!(
                "--server{named} is not a URL such as https://push.example.com; \
                 a server on this machine may have http://, such as http://127.0.0.1:8787"
            );
        };
        let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        ensure!(is_plain && url.fragment().is_none(), "--server: must be an address such as https://push.example.com");
        let extra_ca = match std::env::var_os(CA_VARIABLE) {
            Some(file) => {
                let pem = std::fs::read(&file);
                Some(pem.with_context(|| format!("cannot read {CA_VARIABLE} {}", file.display()))?)
            }
            None => None,
        };
        let http = OutboundClient::new(extra_ca.as_deref(), None, PlainHttp::ThisMachine, LIMITS)?;
        ensure!(http.admits(&url), "--server: must begin with https://, because others could read the key on the way");
        let Some(key) = key.filter(|key| !key.is_empty()) else {
            bail!(
                "{KEY_VARIABLE} is not set: it holds the API key for --server, which `key create` on the server prints"
            );
        };
        let authorization = HeaderValue::try_from(format!("Bearer {key}"));
        let mut authorization = authorization.ok().with_context(|| format!("{KEY_VARIABLE} is not an API key"))?;
        authorization.set_sensitive(true);
        Ok(Self { server: url.as_str().trim_end_matches('/').to_owned(), http, authorization })
    }

    /// Sends a request whose URI is a path. Redirects are not followed, because they could send the key to another host.
    pub(super) async fn send(&self, request: Request<Body>) -> anyhow::Result<Response<Body>> {
        let (mut head, body) = request.into_parts();
        head.uri = format!("{}{}", self.server, head.uri).parse().context("this cannot be written as a request")?;
        head.headers.insert(header::AUTHORIZATION, self.authorization.clone());
        let patience = if body.size_hint().exact().is_some() { ANSWER_TIMEOUT } else { Duration::MAX };
        let request = Request::from_parts(head, body.map_err(Into::into).boxed_unsync());
        let answer = timeout(patience, self.http.open(request)).await;
        let answer = answer.with_context(|| format!("{} did not answer for {} s", self.server, patience.as_secs()))?;
        let response = answer.map_err(|error| {
            let error = anyhow::Error::new(error);
            let hint = match format!("{error:#}").contains("InvalidContentType") {
                true => " by TLS; a server without TLS has http://, which is allowed for a server on this machine",
                false => "",
            };
            error.context(format!("cannot reach {}{hint}", self.server))
        })?;
        if response.status().is_redirection() {
            let place = response.headers().get(header::LOCATION).and_then(|place| place.to_str().ok()).unwrap_or("?");
            bail!("{} redirects to {place}, which is not followed with the key: give the final address", self.server);
        }
        Ok(response.map(Body::new))
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/cli/remote.rs"]
mod tests;
