//! CPU time of one POST on the client's side (headers, HTTP/2, TLS, reply), against a TLS and HTTP/2 server in
//! threads of its own. `scripts/bench post`
//!
//! `OCTETS` of body (500).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwire_core::delivery::Urgency;
use bellwire_core::lane::Gateway;
use bellwire_core::subscription::Endpoint;
use bellwire_gateway::{GatewayConfig, Gateways, HostMapping, Post};
use bytes::Bytes;
use http::{HeaderValue, Response};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use crate::support::{cpu, setting};

const HOST: &str = "fcm.googleapis.com";

pub fn run() {
    let body_len = setting("OCTETS", 500) as usize;
    let (_server, address, ca) = serve();
    println!("body of {body_len} octets; µs of client CPU per POST, POSTs per second");
    for in_flight in [1, 8, 32, 128, 512] {
        for workers in [1, 2] {
            let (cpu_us, per_second) = measure(address, &ca, body_len, in_flight, workers);
            println!("{in_flight:>4} in flight, {workers} client threads: {cpu_us:6.2} µs {per_second:>8.0}/s");
        }
    }
}

fn measure(address: SocketAddr, ca: &str, body_len: usize, in_flight: usize, workers: usize) -> (f64, f64) {
    let runtime = runtime("client", workers);
    let gateways = runtime.block_on(async {
        let hosts = vec![HostMapping { host: HOST.into(), gateway: Gateway::Fcm, address: Some(address) }];
        let settings = GatewayConfig { hosts, extra_ca_pem: Some(ca.as_bytes().to_vec()), ..GatewayConfig::default() };
        Gateways::new(settings).expect("settings hold")
    });
    let endpoints: Arc<[Endpoint]> = (0..1000)
        .map(|n| Endpoint::parse(&format!("https://{HOST}/fcm/send/{n:022}:{}", "APA91b-_".repeat(17))).expect("valid"))
        .collect();
    let body = Bytes::from(vec![7; body_len]);
    let run = |posts: usize| {
        let tasks: Vec<_> = (0..in_flight)
            .map(|task| {
                let (gateways, endpoints, body) = (gateways.clone(), endpoints.clone(), body.clone());
                let token = HeaderValue::from_str(&format!("vapid t={}, k={}", "a".repeat(190), "b".repeat(87)));
                let authorization = token.expect("visible ASCII");
                runtime.spawn(async move {
                    for n in (task..posts).step_by(in_flight) {
                        let post = Post {
                            endpoint: endpoints[n % endpoints.len()].clone(),
                            gateway: Gateway::Fcm,
                            authorization: authorization.clone(),
                            ttl_s: 3600,
                            urgency: Urgency::Normal,
                            topic: None,
                            body: body.clone(),
                            patience: Duration::from_secs(10),
                        };
                        assert_eq!(gateways.post(post).await.map(|reply| reply.status), Ok(201));
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                task.await.expect("no POST fails");
            }
        });
    };
    run(5_000);
    let (posts, cpu, start) = (if in_flight < 8 { 20_000 } else { 100_000 }, client_cpu(), Instant::now());
    run(posts);
    let per_second = posts as f64 / start.elapsed().as_secs_f64();
    ((client_cpu() - cpu).as_secs_f64() * 1e6 / posts as f64, per_second)
}

fn runtime(name: &str, workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).thread_name(name).enable_all().build().expect("threads start")
}

/// CPU time that the kernel counts for the client's threads.
fn client_cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this benchmark needs Linux");
    let times = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        name.starts_with("client").then(|| cpu::of_thread(&task))
    });
    times.sum()
}

/// A push service that answers 201 to everything, until its runtime is dropped. Returns its address and its authority's
/// certificate, too.
fn serve() -> (Runtime, SocketAddr, String) {
    let certified = rcgen::generate_simple_self_signed([HOST.to_owned()]).expect("a certificate");
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder.with_no_client_auth().with_single_cert(vec![certified.cert.der().clone()], key.into())
        })
        .expect("a server configuration");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let runtime = runtime("server", 1);
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("bound");
    runtime.spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(answer(acceptor.clone(), tcp));
        }
    });
    (runtime, address, certified.cert.pem())
}

async fn answer(acceptor: TlsAcceptor, tcp: tokio::net::TcpStream) -> Option<()> {
    tcp.set_nodelay(true).ok()?;
    let tls = acceptor.accept(tcp).await.ok()?;
    let mut connection = h2::server::Builder::new()
        .max_concurrent_streams(256)
        .initial_window_size(1 << 20)
        .initial_connection_window_size(16 << 20)
        .handshake::<_, Bytes>(tls)
        .await
        .ok()?;
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        tokio::spawn(async move {
            let mut body = request.into_body();
            while let Some(Ok(chunk)) = body.data().await {
                body.flow_control().release_capacity(chunk.len()).ok()?;
            }
            let response = Response::builder().status(201).header("location", "/m/1").header("ttl", "3600");
            respond.send_response(response.body(()).ok()?, true).ok()
        });
    }
    None
}
