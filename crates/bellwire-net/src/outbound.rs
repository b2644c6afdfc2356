//! HTTP client with limits for hosts that the operator configures: the OpenID provider, the OpenTelemetry collector, the ACME
//! authority, and the server's own public URL. Such a host may have a private address, but its responses are not trusted. Push
//! services and receivers of webhooks are reached only through [`gateway`].
//!
//! Each exchange has a time limit, and each response a size limit, except for streamed bodies. Redirects are not followed, and
//! no request is repeated that a server may have read.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tower::service_fn;
use tower::util::BoxCloneSyncService;
use url::{Host, Url};

use bellwire_gateway::{self as gateway, Egress, client_config, first_of};

/// Maximum size of a response's head.
const HEAD_MAX_BYTES: usize = 16 << 10;
/// Time after which an unused connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

type Dialer = BoxCloneSyncService<Uri, TokioIo<TcpStream>, io::Error>;

/// Whether third parties cannot read requests to `url`: they use TLS or stay on this machine.
pub fn is_private(url: &Url) -> bool {
    PlainHttp::ThisMachine.admits(url)
}

/// Hosts that a client may call without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainHttp {
    Nowhere,
    ThisMachine,
    Anywhere,
}

impl PlainHttp {
    /// Allows plain HTTP on this machine if `url` itself uses it.
    pub fn like(url: &Url) -> Self {
        if url.scheme() == "http" && is_private(url) { Self::ThisMachine } else { Self::Nowhere }
    }

    fn admits(self, url: &Url) -> bool {
        let is_loopback = || match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        match (url.scheme(), self) {
            ("https", _) | ("http", Self::Anywhere) => true,
            ("http", Self::ThisMachine) => is_loopback(),
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct OutboundLimits {
    /// Time limit from the start of the connection to the last byte of the response.
    pub timeout: Duration,
    pub body_max_bytes: usize,
    /// Number of unused connections kept per host for later requests.
    pub idle_connections: usize,
}

/// A failed exchange. `Display` shows neither path, query nor headers, which may be secret.
#[derive(Debug, thiserror::Error)]
#[error("{host}: {reason}")]
pub struct ExchangeError {
    host: String,
    pub reason: ExchangeFailure,
}

#[derive(Debug, thiserror::Error)]
pub enum ExchangeFailure {
    #[error("the URL is not HTTPS")]
    Insecure,
    #[error("no connection: {0}")]
    Connect(String),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("the response ({status}) was incomplete: {cause}")]
    Incomplete { status: StatusCode, cause: String },
    #[error("the response ({status}) has more than {max} bytes")]
    TooLarge { status: StatusCode, max: usize },
    #[error("no response within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
}

/// Body of a request that is sent piece by piece.
pub type StreamedBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// HTTP/1.1 client. Clones share connections.
#[derive(Debug, Clone)]
pub struct OutboundClient {
    http: Client<HttpsConnector<Dialer>, StreamedBody>,
    plain_http: PlainHttp,
    limits: OutboundLimits,
}

impl OutboundClient {
    /// Trusts `extra_ca_pem` in addition to Mozilla's roots, and connects through `egress` if there is one. Fails if
    /// the certificates cannot be used.
    pub fn new(
        extra_ca_pem: Option<&[u8]>, egress: Option<Egress>, plain_http: PlainHttp, limits: OutboundLimits,
    ) -> Result<Self, gateway::SettingsError> {
        let mut tls = client_config(extra_ca_pem)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let dialer = Dialer::new(service_fn(move |to| dial(to, egress.clone(), limits.timeout)));
        let http = Client::builder(TokioExecutor::new())
            .http1_max_buf_size(HEAD_MAX_BYTES)
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(limits.idle_connections)
            .build(HttpsConnector::from((dialer, tls)));
        Ok(Self { http, plain_http, limits })
    }

    /// Whether requests to `url` are allowed.
    pub fn admits(&self, url: &Url) -> bool {
        self.plain_http.admits(url)
    }

    /// Sends a request and reads the whole response.
    pub async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, ExchangeError> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let request = request.map(|body| body.map_err(|never| match never {}).boxed_unsync());
        let exchanged = timeout(self.limits.timeout, self.read(request)).await;
        let exchanged = exchanged.unwrap_or(Err(ExchangeFailure::TimedOut(self.limits.timeout)));
        exchanged.map_err(|reason| ExchangeError { host, reason })
    }

    /// Sends a request and returns the response once its head has arrived. The limits do not apply to the bodies, nor to the wait.
    pub async fn open(&self, request: Request<StreamedBody>) -> Result<Response<Incoming>, ExchangeError> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        self.send(request).await.map_err(|reason| ExchangeError { host, reason })
    }

    async fn read(&self, request: Request<StreamedBody>) -> Result<Response<Bytes>, ExchangeFailure> {
        let ((head, body), max) = (self.send(request).await?.into_parts(), self.limits.body_max_bytes);
        let body = Limited::new(body, max).collect().await.map_err(|error| match error.is::<LengthLimitError>() {
            true => ExchangeFailure::TooLarge { max, status: head.status },
            false => ExchangeFailure::Incomplete { status: head.status, cause: causes(Some(&*error)) },
        })?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }

    async fn send(&self, request: Request<StreamedBody>) -> Result<Response<Incoming>, ExchangeFailure> {
        if !Url::parse(&request.uri().to_string()).is_ok_and(|url| self.admits(&url)) {
            return Err(ExchangeFailure::Insecure);
        }
        self.http.request(request).await.map_err(|error| match error.is_connect() {
            true => ExchangeFailure::Connect(causes(error.source())),
            false => ExchangeFailure::Broken(causes(error.source())),
        })
    }
}

/// Joins an error and its causes.
pub fn causes(error: Option<&(dyn Error + 'static)>) -> String {
    let texts = std::iter::successors(error, |error| (*error).source()).map(ToString::to_string);
    texts.collect::<Vec<_>>().join(": ")
}

async fn dial(to: Uri, egress: Option<Egress>, timeout: Duration) -> io::Result<TokioIo<TcpStream>> {
    let host = to.host().unwrap_or_default();
    let port = to.port_u16().unwrap_or(if to.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 });
    let tcp = match egress {
        Some(egress) => egress.reach(host, port, timeout).await?,
        None => first_of(lookup_host((host.trim_matches(['[', ']']), port)).await?.collect()).await?,
    };
    Ok(TokioIo::new(tcp))
}

#[cfg(test)]
#[path = "../../../tests/crates/net/unit/outbound.rs"]
mod tests;
