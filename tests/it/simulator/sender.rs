//! An application server independent of Bellwire: seals with `ece`, signs with `p256`, talks through `h2` or `hyper`.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bellwire_simulator::gateways::{HostMapping, Minted, Simulator};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A VAPID key pair, always the same for the same `seed`.
pub struct Vapid {
    key: SigningKey,
    pub public: [u8; 65],
}

impl Vapid {
    pub fn new(seed: u8) -> Self {
        let key = SigningKey::from_slice(&[seed; 32]).unwrap();
        let public = key.verifying_key().to_sec1_point(false).as_bytes().try_into().unwrap();
        Self { key, public }
    }

    pub fn authorization(&self, claims: &serde_json::Value) -> String {
        let encode = |json: &serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let head = serde_json::json!({"typ": "JWT", "alg": "ES256"});
        let signed = format!("{}.{}", encode(&head), encode(claims));
        let signature: Signature = self.key.sign(signed.as_bytes());
        let (signature, key) = (URL_SAFE_NO_PAD.encode(signature.to_bytes()), URL_SAFE_NO_PAD.encode(self.public));
        format!("vapid t={signed}.{signature}, k={key}")
    }

    /// A header as it should be for this subscription, valid for 12 hours.
    pub fn good(&self, minted: &Minted) -> String {
        let exp = chrono::Utc::now().timestamp() + 43_200;
        let claims = serde_json::json!({"aud": origin(&minted.endpoint), "exp": exp, "sub": "mailto:push@example.com"});
        self.authorization(&claims)
    }
}

pub fn origin(endpoint: &str) -> String {
    url::Url::parse(endpoint).unwrap().origin().ascii_serialization()
}

/// A push with that delivery id.
pub fn seal(minted: &Minted, id: &str) -> Vec<u8> {
    let text = serde_json::json!({"bellwire": {"id": id}, "payload": "hello"}).to_string();
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    ece::encrypt(&decode(&minted.p256dh), &decode(&minted.auth), text.as_bytes()).unwrap()
}

/// A well-made push; tests spoil what they want spoilt.
pub fn push(minted: &Minted, vapid: &Vapid, id: &str) -> Request<Bytes> {
    Request::post(&minted.endpoint)
        .header("authorization", vapid.good(minted))
        .header("ttl", "60")
        .header("urgency", "normal")
        .header("content-encoding", "aes128gcm")
        .body(seal(minted, id).into())
        .unwrap()
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// An HTTP/2 connection to one of the simulator's hosts.
pub struct Http2 {
    pub send: h2::client::SendRequest<Bytes>,
    /// Ends when the connection has.
    pub ended: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

impl Http2 {
    pub async fn connect(simulator: &Simulator, host: &str) -> Self {
        Self::over(tls(simulator, host, b"h2").await.unwrap()).await
    }

    pub async fn over(stream: TlsStream<TcpStream>) -> Self {
        let (send, connection) = h2::client::handshake(stream).await.unwrap();
        Self { send, ended: tokio::spawn(connection) }
    }

    /// Begins a request; the future is its answer.
    pub async fn begin(&mut self, request: Request<Bytes>) -> Result<h2::client::ResponseFuture, h2::Error> {
        let (head, body) = request.into_parts();
        let mut ready = self.send.clone().ready().await?;
        let (response, mut stream) = ready.send_request(Request::from_parts(head, ()), false)?;
        stream.send_data(body, true)?;
        Ok(response)
    }

    pub async fn post(&mut self, request: Request<Bytes>) -> Result<Answer, h2::Error> {
        read(self.begin(request).await?.await?).await
    }
}

pub async fn read(response: Response<h2::RecvStream>) -> Result<Answer, h2::Error> {
    let (head, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(chunk) = stream.data().await {
        let chunk = chunk?;
        stream.flow_control().release_capacity(chunk.len())?;
        body.extend_from_slice(&chunk);
    }
    let body = String::from_utf8(body).unwrap();
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
}

pub fn mapping(simulator: &Simulator, host: &str) -> HostMapping {
    simulator.hosts().into_iter().find(|mapping| mapping.host == host).unwrap()
}

pub async fn tls(simulator: &Simulator, host: &str, alpn: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(simulator.ca_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    let tcp = TcpStream::connect(mapping(simulator, host).addr).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(host.to_owned()).unwrap(), tcp).await
}

/// One request over a new HTTP/1.1 connection.
pub async fn post_http1(simulator: &Simulator, host: &str, request: Request<Bytes>) -> Result<Answer, hyper::Error> {
    let stream = tls(simulator, host, b"http/1.1").await.unwrap();
    let (mut send, connection) = hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let (mut head, body) = request.into_parts();
    head.headers.insert("host", host.parse().unwrap());
    head.uri = head.uri.path_and_query().unwrap().as_str().parse().unwrap();
    let response = send.send_request(Request::from_parts(head, Full::new(body))).await?;
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
}

/// Keeps a broken simulator from hanging the tests; never reached otherwise.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("this takes milliseconds")
}
