//! A push service and browsers that share no code with Bellwire: HTTP/2 by `h2`, keys and decryption by `ece`. It keeps
//! every request as it came.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bellwire_core::lane::Gateway;
use bellwire_gateway::HostMapping;
use bytes::Bytes;
use ece::EcKeyComponents;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, Request, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::app::PATIENCE;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Pushed {
    pub authority: String,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Pushed {
    /// A header that has to be there once.
    pub fn header(&self, name: &str) -> &str {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().unwrap_or_else(|| panic!("no {name} in {:?}", self.headers));
        assert!(values.next().is_none(), "{name} comes twice");
        value.to_str().unwrap()
    }

    /// The claims of its VAPID token and the key that it names, once the signature is found to be by that key.
    pub fn vapid(&self) -> (Value, Vec<u8>) {
        use p256::ecdsa::signature::Verifier as _;
        let parameters = self.header("authorization").strip_prefix("vapid ").expect("the scheme");
        let parameter = |name| parameters.split(", ").find_map(|pair| pair.strip_prefix(name)).expect(name);
        let (token, key) = (parameter("t="), URL_SAFE_NO_PAD.decode(parameter("k=")).unwrap());
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let signature = p256::ecdsa::Signature::from_slice(&URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
        let verifying = p256::ecdsa::VerifyingKey::from_sec1_bytes(&key).unwrap();
        verifying.verify(signed.as_bytes(), &signature).expect("signed by the key that it names");
        let (_, claims) = signed.split_once('.').unwrap();
        (serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap(), key)
    }
}

/// A browser's subscription with the keys that open what is pushed to it.
pub struct Browser {
    pub endpoint: String,
    path: String,
    keys: EcKeyComponents,
    auth: [u8; 16],
}

impl Browser {
    /// One of that host.
    pub fn new(host: &str, name: &str) -> Self {
        let (keys, auth) = ece::generate_keypair_and_auth_secret().unwrap();
        let path = format!("/push/{name}?token=a%2fb%2B{name}");
        Self { endpoint: format!("https://{host}{path}"), path, keys: keys.raw_components().unwrap(), auth }
    }

    /// As `PushSubscription.toJSON()` gives it.
    pub fn to_json(&self) -> Value {
        let keys = json!({
            "p256dh": URL_SAFE_NO_PAD.encode(self.keys.public_key()),
            "auth": URL_SAFE_NO_PAD.encode(self.auth),
        });
        json!({"endpoint": self.endpoint, "expirationTime": null, "keys": keys})
    }

    /// Decrypts a push that was sealed for this browser.
    pub fn open(&self, push: &Pushed) -> Result<Vec<u8>, ece::Error> {
        ece::decrypt(&self.keys, &self.auth, &push.body)
    }
}

/// Serves these hosts on one port.
pub struct PushService {
    pub hosts: Vec<HostMapping>,
    pub ca_pem: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    pushed: Mutex<Vec<Pushed>>,
    /// Statuses of the next responses; 201 when empty.
    statuses: Mutex<Vec<u16>>,
    /// Requests so far.
    n: watch::Sender<usize>,
    /// Whether answers are held back.
    held: watch::Sender<bool>,
}

impl PushService {
    pub async fn start(hosts: &[(&str, Gateway)]) -> Self {
        let names: Vec<_> = hosts.iter().map(|(host, _)| (*host).to_owned()).collect();
        let certified = rcgen::generate_simple_self_signed(names).unwrap();
        let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
        let mut tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key.into())
            .unwrap();
        tls.alpn_protocols = vec!["h2".into()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        tokio::spawn(accept(listener, Arc::new(tls).into(), state.clone()));
        let mapping = |(host, gateway): &(&str, Gateway)| HostMapping {
            host: (*host).to_owned(),
            gateway: *gateway,
            address: Some(address),
        };
        Self { hosts: hosts.iter().map(mapping).collect(), ca_pem: certified.cert.pem(), state }
    }

    /// Answers the next requests so, in this order.
    pub fn answer_next(&self, statuses: &[u16]) {
        self.state.statuses.lock().extend(statuses.iter().rev());
    }

    /// Resets the responses to the default.
    pub fn forget_answers(&self) {
        self.state.statuses.lock().clear();
    }

    /// Holds responses until it is released.
    pub fn hold(&self, held: bool) {
        self.state.held.send_replace(held);
    }

    /// Waits for so many requests.
    pub async fn until_pushed(&self, n: usize) {
        let mut pushed = self.state.n.subscribe();
        tokio::time::timeout(PATIENCE, pushed.wait_for(|now| *now >= n)).await.expect("requests").expect("ours");
    }

    /// Every request so far.
    pub fn pushed(&self) -> Vec<Pushed> {
        self.state.pushed.lock().clone()
    }

    /// Every request to that browser.
    pub fn pushed_to(&self, browser: &Browser) -> Vec<Pushed> {
        let to = |push: &Pushed| push.path == browser.path && browser.endpoint.contains(&push.authority);
        self.pushed().into_iter().filter(to).collect()
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    while let Ok((tcp, _)) = listener.accept().await {
        let (acceptor, state) = (acceptor.clone(), state.clone());
        tokio::spawn(async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let Ok(mut connection) = h2::server::handshake(tls).await else { return };
            while let Some(Ok((request, respond))) = connection.accept().await {
                tokio::spawn(take(request, respond, state.clone()));
            }
        });
    }
}

async fn take(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, state: Arc<State>) {
    let (head, mut stream) = request.into_parts();
    let mut body = Vec::new();
    while let Some(Ok(chunk)) = stream.data().await {
        stream.flow_control().release_capacity(chunk.len()).unwrap();
        body.extend_from_slice(&chunk);
    }
    let authority = head.uri.authority().unwrap().to_string();
    let path = head.uri.path_and_query().unwrap().to_string();
    state.pushed.lock().push(Pushed { authority, path, headers: head.headers, body });
    state.n.send_modify(|n| *n += 1);
    let _ = state.held.subscribe().wait_for(|held| !held).await; // the sender is this service's
    let status = state.statuses.lock().pop().unwrap_or(201);
    // A sender that has given up is not the service's failure.
    let _ = respond.send_response(Response::builder().status(status).body(()).unwrap(), true);
}
