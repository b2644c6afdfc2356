//! Networks that let nothing out but by their proxy: what it refuses is never held against a subscription, and what it lets through
//! arrives. By a proxy of the tests', and by two that networks have.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::Method;
use bellwire_gateway::{Egress, Proxy, Resolve};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::support::app::{PATIENCE, Setup, TestApp, scalar};
use crate::support::{TempDir, counts};

fn by(proxy: &str) -> Setup {
    let proxy = Proxy::parse(proxy).expect("a proxy's URL");
    Setup { egress: Some(Egress::new(proxy, Resolve::Here, Vec::new())), ..Setup::default() }
}

/// Proxy that sends this response to all clients until a test lets them through.
struct Gate {
    address: SocketAddr,
    is_open: Arc<AtomicBool>,
}

impl Gate {
    async fn start(refusal: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let gate = Self { address: listener.local_addr().expect("an address"), is_open: Arc::default() };
        let is_open = gate.is_open.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let let_through = is_open.load(Ordering::SeqCst);
                tokio::spawn(async move { drop(serve(tcp, let_through, refusal).await) });
            }
        });
        gate
    }
}

async fn serve(mut tcp: TcpStream, let_through: bool, refusal: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await?);
    }
    if !let_through {
        return tcp.write_all(refusal.as_bytes()).await;
    }
    let head = String::from_utf8(head).expect("ASCII");
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).expect("a CONNECT");
    let mut server = TcpStream::connect(target).await?;
    tcp.write_all(b"HTTP/1.1 200 Go on\r\n\r\n").await?;
    copy_bidirectional(&mut tcp, &mut server).await.map(drop)
}

async fn alerts(app: &TestApp) -> Vec<Value> {
    app.operate(Method::GET, "/v1/alerts", Value::Null).await.ok(200)["data"].as_array().expect("a list").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_refusal_prunes_nobody_and_alerts() {
    for refusal in ["HTTP/1.1 410 Gone\r\n\r\n", "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"] {
        let gate = Gate::start(refusal).await;
        let app = TestApp::with(by(&format!("http://{}", gate.address))).await;
        app.subscribe("fcm", 0..30).await;
        let message = app.send(json!({"all": true}), json!({})).await;
        app.run_until_idle().await;
        // Longer than the retries of any policy would last.
        for _ in 0..30 {
            app.advance(Duration::from_secs(61)).await;
        }
        assert_eq!(app.counts(&message).await, counts(&[("targeted", 30), ("queued", 30)]), "{refusal}");
        assert_eq!(scalar(&app.pool, "SELECT count(*) FROM attempts").await, 0);
        assert_eq!(scalar(&app.pool, "SELECT count(*) FROM dead_letters").await, 0);
        assert_eq!(app.dispatcher.load().broken, 1, "the lane waits");
        let alerts = alerts(&app).await;
        assert_eq!(alerts.len(), 1, "{alerts:?}");
        assert_eq!((&alerts[0]["kind"], &alerts[0]["n"]), (&json!("egress"), &json!(1)), "{alerts:?}");
        let detail = alerts[0]["detail"].as_str().expect("a text");
        let why = if refusal.contains("410") { "it answered 410" } else { "it refused the credentials" };
        assert!(detail.contains(why) && detail.contains("fcm"), "{detail}");

        gate.is_open.store(true, Ordering::SeqCst);
        for _ in 0..30 {
            app.advance(Duration::from_secs(61)).await;
        }
        let end = counts(&[("targeted", 30), ("accepted", 30), ("awaiting_ack", 30)]);
        assert_eq!(app.counts(&message).await, end, "{refusal}");
        assert_eq!(app.simulator.report().deliveries, 30);
        app.finish().await;
    }
}

/// A proxy in a process of its own, which ends with its value.
struct RealProxy {
    address: SocketAddr,
    _process: Child,
    _dir: TempDir,
}

impl RealProxy {
    /// Starts one by `command`, which is given the port, and waits until it listens.
    async fn start(package: &str, command: impl FnOnce(u16, &TempDir) -> Command) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").await.and_then(|listener| listener.local_addr()).expect("a port");
        let dir = TempDir::new();
        let mut command = command(free.port(), &dir);
        let process =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn();
        let process = process.unwrap_or_else(|_| panic!("the package `{package}` is installed (`make deps`)"));
        let ready = async { while TcpStream::connect(free).await.is_err() {} };
        timeout(PATIENCE, ready).await.unwrap_or_else(|_| panic!("{package} does not listen"));
        Self { address: free, _process: process, _dir: dir }
    }

    /// One that speaks HTTP and wants a password.
    async fn tinyproxy() -> Self {
        Self::start("tinyproxy-bin", |port, dir| {
            let config = dir.path().join("tinyproxy.conf");
            let text = format!("Port {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 100\nBasicAuth user pa55word\n");
            std::fs::write(&config, text).expect("a file");
            let mut command = Command::new("tinyproxy");
            command.arg("-d").arg("-c").arg(config);
            command
        })
        .await
    }

    /// One that speaks SOCKS 5 and wants a password.
    async fn microsocks() -> Self {
        Self::start("microsocks", |port, _| {
            let mut command = Command::new("microsocks");
            command.args(["-i", "127.0.0.1", "-p", &port.to_string(), "-u", "user", "-P", "pa55word"]);
            command
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_by_tinyproxy_or_microsocks_arrives_once() {
    for (proxy, scheme) in [(RealProxy::tinyproxy().await, "http"), (RealProxy::microsocks().await, "socks5")] {
        let url = |password: &str| format!("{scheme}://user:{password}@{}", proxy.address);
        let app = TestApp::with(by(&url("pa55word"))).await;
        app.subscribe("fcm", 0..60).await;
        app.subscribe("mozilla", 0..40).await;
        let message = app.send(json!({"all": true}), json!({})).await;
        app.run_until_idle().await;
        let end = counts(&[("targeted", 100), ("accepted", 100), ("awaiting_ack", 100)]);
        assert_eq!(app.counts(&message).await, end, "{scheme}");
        assert_eq!((app.simulator.report().deliveries, app.simulator.report().duplicates), (100, 0));
        assert!(alerts(&app).await.is_empty());
        app.finish().await;

        let app = TestApp::with(by(&url("wrong"))).await;
        app.subscribe("fcm", 0..1).await;
        let message = app.send(json!({"all": true}), json!({})).await;
        app.run_until_idle().await;
        app.run_until_idle().await; // it tells what it has found
        assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("queued", 1)]), "{scheme}");
        let alerts = alerts(&app).await;
        assert!(alerts[0]["detail"].as_str().expect("a text").contains("refused the credentials"), "{alerts:?}");
        app.finish().await;
    }
}
