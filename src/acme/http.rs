//! Requests to an authority, with a bound on everything that it could make us wait for or keep.

use std::error::Error as _;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Limited;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio::time::timeout;

use crate::gateway::client_config;

/// A request that is not answered after this has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Octets of an answer, at most: chains have a few thousand.
const ANSWER_MAX: usize = 256 * 1024;

/// Makes requests by HTTPS and HTTP/1.1. Redirections are not followed. Clones share connections.
#[derive(Clone)]
pub(super) struct Client(legacy::Client<HttpsConnector<HttpConnector>, BodyWrapper<Bytes>>);

impl Client {
    /// Fails, with a text for operators, if the extra certificates cannot be used.
    pub(super) fn new(extra_ca_pem: Option<&[u8]>) -> Result<Self, String> {
        let mut config = client_config(extra_ca_pem).map_err(|error| error.to_string())?;
        config.alpn_protocols.clear(); // the connector says it itself
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
        Ok(Self(legacy::Client::builder(TokioExecutor::new()).build(connector)))
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let answer = self.0.request(request);
        Box::pin(async move {
            match timeout(PATIENCE, answer).await {
                Ok(Ok(answer)) => Ok(answer.map(|body| Limited::new(body, ANSWER_MAX)).into()),
                Ok(Err(error)) => {
                    // The client's own words are only that it failed.
                    let source = error.source().map(ToString::to_string).unwrap_or_else(|| error.to_string());
                    Err(Error::Other(format!("{host} cannot be asked: {source}").into()))
                }
                Err(_) => Err(Error::Other(format!("{host} did not answer within {} s", PATIENCE.as_secs()).into())),
            }
        })
    }
}
