//! One bounded HTTP client for the hosts that the operator names: the OpenID provider, the OpenTelemetry collector, the ACME
//! authority, and the server's own public address. Such a host may have a private address, but is trusted no further. Push
//! services and receivers of webhooks are reached through [`gateway`] only.
//!
//! Each exchange has a time limit, each response a size limit. Redirects are not followed, and no request is repeated once
//! a server may have read it.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
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

/// Returns whether third parties cannot read requests to `url`: they go over TLS or stay on this machine.
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

/// Failed exchange. `Display` shows neither path, query nor headers, which may be secret.
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
    #[error("the response ({status}) broke off: {cause}")]
    Incomplete { status: StatusCode, cause: String },
    #[error("the response ({status}) has more than {max} bytes")]
    TooLarge { status: StatusCode, max: usize },
    #[error("no response within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
}

/// HTTP/1.1 client. Clones share connections.
#[derive(Debug, Clone)]
pub struct OutboundClient {
    http: Client<HttpsConnector<Dialer>, Full<Bytes>>,
    plain_http: PlainHttp,
    limits: OutboundLimits,
}

impl OutboundClient {
    /// Trusts `extra_ca_pem` in addition to Mozilla's roots, and connects through `egress` if there is one. Fails if
    /// the certificates cannot be used.
    pub fn new(
        extra_ca_pem: Option<&[u8]>,
        egress: Option<Egress>,
        plain_http: PlainHttp,
        limits: OutboundLimits,
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

    /// Returns whether requests to `url` are allowed.
    pub fn admits(&self, url: &Url) -> bool {
        self.plain_http.admits(url)
    }

    /// Sends a request and reads the whole response.
    pub async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, ExchangeError> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let exchanged = timeout(self.limits.timeout, self.send(request)).await;
        let exchanged = exchanged.unwrap_or(Err(ExchangeFailure::TimedOut(self.limits.timeout)));
        exchanged.map_err(|reason| ExchangeError { host, reason })
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, ExchangeFailure> {
        if !Url::parse(&request.uri().to_string()).is_ok_and(|url| self.admits(&url)) {
            return Err(ExchangeFailure::Insecure);
        }
        let response = self.http.request(request).await.map_err(|error| match error.is_connect() {
            true => ExchangeFailure::Connect(causes(error.source())),
            false => ExchangeFailure::Broken(causes(error.source())),
        })?;
        let ((head, body), max) = (response.into_parts(), self.limits.body_max_bytes);
        let body = Limited::new(body, max).collect().await.map_err(|error| match error.is::<LengthLimitError>() {
            true => ExchangeFailure::TooLarge { max, status: head.status },
            false => ExchangeFailure::Incomplete { status: head.status, cause: causes(Some(&*error)) },
        })?;
        Ok(Response::from_parts(head, body.to_bytes()))
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
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::aws_lc_rs;
    use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;

    const BODY_MAX_BYTES: usize = 64 << 10;
    const PATIENCE: Duration = Duration::from_secs(60);

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    /// Starts a TLS server named `localhost` that sends `response` on each connection. Returns its URL and certificate.
    async fn server(response: Vec<u8>) -> (Url, String) {
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
        let tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key.into())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = url(&format!("https://localhost:{}/keys?key=s3cr3t", listener.local_addr().unwrap().port()));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let Ok(mut tls) = acceptor.accept(tcp).await else { continue };
                let _ = tls.read(&mut [0; 4_096]).await;
                // The client may close first.
                let _ = tls.write_all(&response).await;
                let _ = tls.shutdown().await;
            }
        });
        (at, certified.cert.pem())
    }

    fn client(ca_pem: Option<&str>, timeout: Duration) -> OutboundClient {
        let limits = OutboundLimits { timeout, body_max_bytes: BODY_MAX_BYTES, idle_connections: 0 };
        OutboundClient::new(ca_pem.map(str::as_bytes), None, PlainHttp::ThisMachine, limits).unwrap()
    }

    fn get(at: &Url) -> Request<Full<Bytes>> {
        Request::get(at.as_str()).body(Full::default()).unwrap()
    }

    async fn exchange(at: &Url, ca_pem: Option<&str>) -> Result<Response<Bytes>, ExchangeError> {
        client(ca_pem, PATIENCE).exchange(get(at)).await
    }

    #[tokio::test]
    async fn server_must_prove_its_name() {
        let (at, ca_pem) = server(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec()).await;
        assert_eq!(exchange(&at, Some(&ca_pem)).await.unwrap().body(), "{}");
        let unknown = exchange(&at, None).await.unwrap_err().to_string();
        assert!(unknown.starts_with("localhost: no connection: invalid peer certificate"), "{unknown}");
        let mut by_address = at;
        by_address.set_host(Some("127.0.0.1")).unwrap();
        let misnamed = exchange(&by_address, Some(&ca_pem)).await.unwrap_err();
        assert!(matches!(misnamed.reason, ExchangeFailure::Connect(_)), "{misnamed}");
    }

    #[tokio::test]
    async fn oversized_or_broken_response_fails() {
        let chunked = |size: usize| {
            let mut response =
                format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{size:x}\r\n").into_bytes();
            response.resize(response.len() + size, b' ');
            response.extend(b"\r\n0\r\n\r\n");
            response
        };
        let (at, ca_pem) = server(chunked(BODY_MAX_BYTES)).await;
        assert_eq!(exchange(&at, Some(&ca_pem)).await.unwrap().body().len(), BODY_MAX_BYTES);
        let (at, ca_pem) = server(chunked(BODY_MAX_BYTES + 1)).await;
        let reason = exchange(&at, Some(&ca_pem)).await.unwrap_err().reason;
        assert!(
            matches!(reason, ExchangeFailure::TooLarge { status: StatusCode::OK, max: BODY_MAX_BYTES }),
            "{reason}"
        );
        let head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(HEAD_MAX_BYTES)).into_bytes();
        let (at, ca_pem) = server(head).await;
        let reason = exchange(&at, Some(&ca_pem)).await.unwrap_err().reason;
        assert!(matches!(reason, ExchangeFailure::Broken(_)), "{reason}");
        let (at, ca_pem) = server(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}".to_vec()).await;
        let error = exchange(&at, Some(&ca_pem)).await.unwrap_err();
        assert!(matches!(error.reason, ExchangeFailure::Incomplete { status: StatusCode::OK, .. }), "{error}");
        assert!(!error.to_string().contains("s3cr3t"), "{error}");
    }

    #[tokio::test]
    async fn silent_server_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = url(&format!("http://{}/", listener.local_addr().unwrap()));
        let exchanged = client(None, Duration::from_millis(20)).exchange(get(&at)).await;
        assert_eq!(exchanged.unwrap_err().to_string(), "127.0.0.1: no response within 0.02 s");
    }

    #[tokio::test]
    async fn plain_http_is_refused_where_forbidden() {
        let error = exchange(&url("http://id.example.com/"), None).await.unwrap_err();
        assert!(matches!(error.reason, ExchangeFailure::Insecure), "{error}");
        let admits = |issuer: &str, to: &str| PlainHttp::like(&url(issuer)).admits(&url(to));
        assert!(admits("http://localhost:8080", "http://127.0.0.1:9090"));
        assert!(!admits("http://localhost:8080", "http://id.example.com"));
        assert!(!admits("https://id.example.com", "http://127.0.0.1:9090"), "only this server can reach it");
        assert!(PlainHttp::Anywhere.admits(&url("http://10.0.0.7:4318")));
    }

    #[test]
    fn private_urls_are_https_or_loopback() {
        for (text, private) in [
            ("https://id.example.com", true),
            ("https://10.0.0.7:8443/realms/a", true),
            ("http://localhost:8080", true),
            ("http://127.0.0.7", true),
            ("http://[::1]:8080", true),
            ("http://id.example.com", false),
            ("http://10.0.0.7", false),
            ("http://localhost.example.com", false),
            ("ftp://localhost", false),
        ] {
            assert_eq!(is_private(&url(text)), private, "{text}");
        }
    }
}
