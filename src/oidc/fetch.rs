//! Requests to the provider. The operator names it, so it may be at a private address, but it is no more trusted than that: each
//! request has HTTPS (or goes to this machine), a time within which it is answered, and a bound on the answer. A redirect is
//! an answer like any other, and no proxy is asked but the one that is set.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::{Response, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use openidconnect::{AsyncHttpClient, HttpRequest, HttpResponse};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use url::{Host, Url};

use crate::gateway::{self, Egress, client_config};

/// Octets of an answer's body, at most. A provider's keys take some thousands.
const BODY_MAX: usize = 1 << 20;
/// Octets of an answer's head, at most.
const HEAD_MAX: usize = 16 << 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("{0} is neither https nor on this machine")]
    Forbidden(String),
    #[error("no connection: {0}")]
    Connect(#[from] std::io::Error),
    #[error("the connection broke off: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the answer has more than {BODY_MAX} octets")]
    TooLarge,
    #[error("no answer within {} s", .0.as_secs_f64())]
    TooSlow(Duration),
}

/// Whether what is sent there stays between the two ends: over TLS, or within this machine.
pub(crate) fn is_private(url: &Url) -> bool {
    url.scheme() == "https" || is_local(url)
}

/// Plain HTTP to this machine.
fn is_local(url: &Url) -> bool {
    let is_here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "http" && is_here
}

/// The client, also for other addresses that the operator names.
pub(crate) struct Http {
    tls: TlsConnector,
    /// Whether plain HTTP to this machine will do, which it does for a provider that is here itself.
    may_be_local: bool,
    egress: Option<Egress>,
    timeout: Duration,
}

impl Http {
    pub(crate) fn new(
        issuer: &Url,
        extra_ca_pem: Option<&[u8]>,
        egress: Option<Egress>,
        timeout: Duration,
    ) -> Result<Self, gateway::SettingsError> {
        let mut tls = client_config(extra_ca_pem)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { tls: Arc::new(tls).into(), may_be_local: is_local(issuer), egress, timeout })
    }

    /// Whether this provider may send us, or anybody, there.
    pub(crate) fn admits(&self, url: &Url) -> bool {
        url.scheme() == "https" || (self.may_be_local && is_local(url))
    }

    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, NoAnswer> {
        let forbidden = || NoAnswer::Forbidden(request.uri().to_string());
        let url = Url::parse(&request.uri().to_string()).map_err(|_| forbidden())?;
        let (Some(host), true) = (url.host(), self.admits(&url)) else { return Err(forbidden()) };
        let port = url.port_or_known_default().unwrap_or(443);
        let name = match &host {
            Host::Domain(name) => ServerName::try_from((*name).to_owned()),
            Host::Ipv4(ip) => Ok((*ip).into()),
            Host::Ipv6(ip) => Ok((*ip).into()),
        };
        let tcp = match (&self.egress, host) {
            (Some(egress), host) => egress.reach(&host.to_string(), port, self.timeout).await?,
            (None, Host::Domain(name)) => TcpStream::connect((name, port)).await?,
            (None, Host::Ipv4(ip)) => TcpStream::connect((ip, port)).await?,
            (None, Host::Ipv6(ip)) => TcpStream::connect((ip, port)).await?,
        };
        if url.scheme() == "http" {
            return ask(tcp, request).await;
        }
        let name = name.map_err(|_| forbidden())?;
        ask(self.tls.connect(name, tcp).await?, request).await
    }
}

impl<'c> AsyncHttpClient<'c> for Http {
    type Error = NoAnswer;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, NoAnswer>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(async move {
            let answer = tokio::time::timeout(self.timeout, self.exchange(request)).await;
            answer.unwrap_or(Err(NoAnswer::TooSlow(self.timeout)))
        })
    }
}

/// One request on a connection of its own: there are few, and none is worth keeping a connection for.
async fn ask(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: HttpRequest,
) -> Result<HttpResponse, NoAnswer> {
    let (mut sender, connection) = http1::Builder::new().max_buf_size(HEAD_MAX).handshake(TokioIo::new(stream)).await?;
    // Ends with this function, however that ends.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let (head, body) = sender.send_request(in_origin_form(request)).await?.into_parts();
    let body = Limited::new(body, BODY_MAX).collect().await.map_err(|error| match error.downcast() {
        Ok(broken) => NoAnswer::Broken(*broken),
        Err(error) => {
            debug_assert!(error.is::<LengthLimitError>());
            NoAnswer::TooLarge
        }
    })?;
    Ok(Response::from_parts(head, body.to_bytes().to_vec()))
}

/// As a server takes it that is no proxy (RFC 9112 section 3.2.1).
fn in_origin_form(request: HttpRequest) -> http::Request<Full<Bytes>> {
    let (mut head, body) = request.into_parts();
    if let Some(host) = head.uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok()) {
        head.headers.insert(HOST, host);
    }
    head.uri = head.uri.path_and_query().cloned().map_or_else(|| Uri::from_static("/"), Uri::from);
    http::Request::from_parts(head, Full::from(body))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::aws_lc_rs;
    use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Answers each connection with these octets, over TLS as `localhost`. Returns its URL and its certificate.
    async fn provider(answer: Vec<u8>) -> (Url, String) {
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
        let at = url(&format!("https://localhost:{}/keys", listener.local_addr().unwrap().port()));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let Ok(mut tls) = acceptor.accept(tcp).await else { continue };
                let _ = tls.read(&mut [0; 4_096]).await;
                // The client may have had enough of it.
                let _ = tls.write_all(&answer).await;
                let _ = tls.shutdown().await;
            }
        });
        (at, certified.cert.pem())
    }

    async fn ask(at: &Url, ca_pem: Option<&str>) -> Result<HttpResponse, NoAnswer> {
        let http = Http::new(at, ca_pem.map(str::as_bytes), None, PATIENCE).unwrap();
        http.call(http::Request::get(at.as_str()).body(Vec::new()).unwrap()).await
    }

    #[tokio::test]
    async fn a_provider_is_believed_by_its_certificate() {
        let (at, ca_pem) = provider(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec()).await;
        assert_eq!(ask(&at, Some(&ca_pem)).await.unwrap().body(), b"{}");
        let unknown = ask(&at, None).await.unwrap_err();
        assert!(matches!(unknown, NoAnswer::Connect(_)) && unknown.to_string().contains("certificate"), "{unknown}");
        let mut by_number = at;
        by_number.set_host(Some("127.0.0.1")).unwrap();
        let misnamed = ask(&by_number, Some(&ca_pem)).await.unwrap_err();
        assert!(matches!(misnamed, NoAnswer::Connect(_)), "{misnamed}");
    }

    #[tokio::test]
    async fn an_answer_is_read_no_further_than_its_bounds() {
        let chunked = |size: usize| {
            let mut answer = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{size:x}\r\n").into_bytes();
            answer.resize(answer.len() + size, b' ');
            answer.extend(b"\r\n0\r\n\r\n");
            answer
        };
        let (at, ca_pem) = provider(chunked(BODY_MAX)).await;
        assert_eq!(ask(&at, Some(&ca_pem)).await.unwrap().body().len(), BODY_MAX);
        let (at, ca_pem) = provider(chunked(BODY_MAX + 1)).await;
        assert!(matches!(ask(&at, Some(&ca_pem)).await, Err(NoAnswer::TooLarge)));
        let head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(HEAD_MAX)).into_bytes();
        let (at, ca_pem) = provider(head).await;
        assert!(matches!(ask(&at, Some(&ca_pem)).await, Err(NoAnswer::Broken(_))));
        let (at, ca_pem) = provider(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}".to_vec()).await;
        assert!(matches!(ask(&at, Some(&ca_pem)).await, Err(NoAnswer::Broken(_))), "it breaks off");
    }

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn plain_http_is_for_this_machine_and_then_only_for_a_provider_that_is_here_too() {
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
        let admits = |issuer: &str, there: &str| {
            Http::new(&url(issuer), None, None, Duration::from_secs(1)).unwrap().admits(&url(there))
        };
        assert!(admits("http://localhost:8080", "http://127.0.0.1:9090"));
        assert!(admits("http://localhost:8080", "https://id.example.com"));
        assert!(!admits("https://id.example.com", "http://127.0.0.1:9090"), "it would reach what only we can");
        assert!(!admits("http://localhost:8080", "http://id.example.com"));
    }

    #[test]
    fn a_request_names_its_host_once_and_its_path_alone() {
        let request = http::Request::get("https://id.example.com:8443/token?a=b").body(Vec::new()).unwrap();
        let request = in_origin_form(request);
        assert_eq!(
            (request.uri().to_string(), &request.headers()[HOST]),
            ("/token?a=b".to_owned(), &HeaderValue::from_static("id.example.com:8443"))
        );
    }
}
