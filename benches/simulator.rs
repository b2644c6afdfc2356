//! Cost of the simulator: CPU time of the server thread per POST, including TLS and HTTP/2, and per minted subscription.
//!
//! The sender runs on a thread of its own and posts bodies that were sealed beforehand. `paced` makes it work 65 µs
//! for each POST, about what sealing takes: arrivals are then as spread out as a real campaign's. The figures come
//! from the kernel's account of the server's thread (`/proc/…/schedstat`), so the sender's share is not in them.
//! `scripts/bench simulator`

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{HostSpec, Minted, Options, Simulator, Verify};
use bytes::Bytes;
use http::{HeaderValue, Request};
use p256::ecdsa::signature::Signer as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};

use crate::support::cpu;

const HOST: &str = "push.bellwire.test";
const CONNECTIONS: usize = 4;
const POSTS: usize = 100_000;
/// Different bodies; they take turns.
const BODIES: usize = 2_000;
const STREAMS: usize = 100;

pub fn run() {
    mint();
    for gateway in [Gateway::Fcm, Gateway::Mozilla, Gateway::Wns] {
        for (name, verify) in [("sample of 1 in 100", Verify::Sample(100)), ("all verified", Verify::All)] {
            for paced in [false, true] {
                let (cpu, rate) = post(gateway, verify, paced);
                let pace = if paced { "paced" } else { "flat out" };
                println!("{:8} {name:18} {pace:8} {cpu:6.1} µs CPU per POST at {rate:6.0}/s", gateway.name());
            }
        }
    }
}

fn mint() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let simulator = runtime.block_on(Simulator::start(options(Gateway::Fcm, Verify::All))).expect("a simulator");
    let key = [4; 65];
    let begun = Instant::now();
    let octets: usize =
        (0..100_000).map(|index| simulator.mint(HOST, index, Some(&key)).expect("the host").endpoint.len()).sum();
    println!("minting {:.1} µs each ({} octets of endpoint)", begun.elapsed().as_secs_f64() * 10.0, octets / 100_000);
}

fn options(gateway: Gateway, verify: Verify) -> Options {
    Options { hosts: vec![HostSpec::new(gateway, HOST)], verify, ..Options::default() }
}

/// CPU-µs per POST of the server's thread, and POSTs per second.
fn post(gateway: Gateway, verify: Verify, paced: bool) -> (f64, f64) {
    let (started, simulator) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let simulator = Arc::new(Simulator::start(options(gateway, verify)).await.expect("a simulator"));
            let thread = Path::new("/proc").join(std::fs::read_link("/proc/thread-self").expect("procfs"));
            started.send((Arc::clone(&simulator), thread)).expect("the sender waits");
            while Arc::strong_count(&simulator) > 1 {
                simulator.wait_until(|report| report.hosts[HOST].open_connections == 0).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    });
    let (simulator, thread) = simulator.recv().expect("the server starts");
    let key = p256::ecdsa::SigningKey::from_slice(&[7; 32]).expect("a scalar");
    let public = key.verifying_key().to_sec1_point(false).as_bytes().to_vec();
    let authorization = authorization(&key, &public);
    let bodies: Vec<(Minted, Bytes)> = (0..BODIES as u32).map(|index| sealed(&simulator, index, &public)).collect();

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let figures = runtime.block_on(async {
        let requests: Vec<_> = bodies.iter().map(|(minted, body)| request(minted, body, &authorization)).collect();
        let mut senders = VecDeque::new();
        for _ in 0..CONNECTIONS {
            senders.push_back(connect(&simulator).await);
        }
        send(&mut senders, &requests, POSTS / 10, paced).await; // warm
        let (cpu, begun) = (cpu::of_thread(&thread), Instant::now());
        send(&mut senders, &requests, POSTS, paced).await;
        let (cpu, elapsed) = (cpu::of_thread(&thread) - cpu, begun.elapsed());
        (cpu.as_secs_f64() * 1e6 / POSTS as f64, POSTS as f64 / elapsed.as_secs_f64())
    });
    assert_eq!(simulator.report().accepted, (POSTS + POSTS / 10) as u64);
    drop((runtime, simulator));
    server.join().expect("the server ends in peace");
    figures
}

/// Posts with up to [`STREAMS`] requests in flight on each connection.
async fn send(
    senders: &mut VecDeque<h2::client::SendRequest<Bytes>>, requests: &[(Request<()>, Bytes)], posts: usize,
    paced: bool,
) {
    let mut in_flight = VecDeque::new();
    for number in 0..posts {
        if in_flight.len() == CONNECTIONS * STREAMS {
            answered(in_flight.pop_front()).await;
        }
        if paced {
            let until = Instant::now() + Duration::from_micros(65);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            tokio::task::yield_now().await;
        }
        let sender = senders.pop_front().expect("there are connections");
        let mut sender = sender.ready().await.expect("the connection stands");
        let (head, body) = requests[number % requests.len()].clone();
        let (response, mut stream) = sender.send_request(head, false).expect("the stream opens");
        stream.send_data(body, true).expect("the stream is open");
        in_flight.push_back(response);
        senders.push_back(sender);
    }
    while let Some(response) = in_flight.pop_front() {
        answered(Some(response)).await;
    }
}

async fn answered(response: Option<h2::client::ResponseFuture>) {
    let response = response.expect("something is in flight").await.expect("it is answered");
    assert_eq!(response.status(), 201);
}

fn request(minted: &Minted, body: &Bytes, authorization: &HeaderValue) -> (Request<()>, Bytes) {
    let request = Request::post(&minted.endpoint)
        .header("authorization", authorization)
        .header("ttl", "3600")
        .header("urgency", "normal")
        .header("content-encoding", "aes128gcm");
    (request.body(()).expect("a request"), body.clone())
}

fn sealed(simulator: &Simulator, index: u32, public: &[u8]) -> (Minted, Bytes) {
    let minted = simulator.mint(HOST, index, Some(public)).expect("the host");
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).expect("base64url");
    let text = format!(r#"{{"bellwire":{{"id":"{index}"}},"payload":"{}"}}"#, "x".repeat(260));
    let body = ece::encrypt(&decode(&minted.p256dh), &decode(&minted.auth), text.as_bytes()).expect("sealed");
    (minted, body.into())
}

fn authorization(key: &p256::ecdsa::SigningKey, public: &[u8]) -> HeaderValue {
    let claims = serde_json::json!({
        "aud": format!("https://{HOST}"),
        "exp": chrono::Utc::now().timestamp() + 43_200,
        "sub": "mailto:push@example.com",
    });
    let signed = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"ES256"}"#),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let signature: p256::ecdsa::Signature = key.sign(signed.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(signature.to_bytes());
    let value = format!("vapid t={signed}.{signature}, k={}", URL_SAFE_NO_PAD.encode(public));
    HeaderValue::from_str(&value).expect("ASCII")
}

async fn connect(simulator: &Simulator) -> h2::client::SendRequest<Bytes> {
    let mut roots = tokio_rustls::rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(simulator.ca_pem().as_bytes()).expect("PEM")).expect("a certificate");
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let mut config = tokio_rustls::rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = tokio::net::TcpStream::connect(simulator.hosts()[0].addr).await.expect("the door is open");
    tcp.set_nodelay(true).expect("an option");
    let name = ServerName::try_from(HOST).expect("a name");
    let tls = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await.expect("TLS");
    let (send, connection) = h2::client::handshake(tls).await.expect("HTTP/2");
    tokio::spawn(connection);
    send
}
