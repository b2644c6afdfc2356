//! Contract with a service manager such as systemd: connections during a restart are served, and the server reports its readiness, liveness
//! and stop.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, header};
use futures_util::future::join_all;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::{TcpStream, UnixDatagram};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::support::app::{PATIENCE, scalar};
use crate::support::engine::without_engine;
use crate::support::{Server, TempDir, TestApp};

const BELLWIRE: &str = env!("CARGO_BIN_EXE_bellwire");

/// Runs the program as a service manager does: the socket, which is the shell's standard input, is its descriptor 3, and variables name
/// its process. Of the shell's arguments the first two are its own.
const AS_A_SERVICE: &str = "export NOTIFY_SOCKET=\"$1\" WATCHDOG_USEC=\"$2\" LISTEN_FDS=1 LISTEN_PID=$$; shift 2
    exec 3<&0 </dev/null; exec \"$0\" \"$@\"";

/// The little of a service manager that tests need.
struct ServiceManager {
    listener: TcpListener,
    address: SocketAddr,
    notifications: UnixDatagram,
    watchdog: Duration,
    dir: TempDir,
}

impl ServiceManager {
    fn new(watchdog: Duration) -> Self {
        let dir = TempDir::new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let address = listener.local_addr().expect("its address");
        let notifications = UnixDatagram::bind(dir.path().join("notify")).expect("a socket");
        Self { listener, address, notifications, watchdog, dir }
    }

    /// Starts the server on the socket that it holds.
    async fn start(&self, app: &TestApp, args: &[&str]) -> Server {
        let socket = OwnedFd::from(self.listener.try_clone().expect("a descriptor"));
        let server = Server::by(app, args, self.command(socket)).await;
        assert_eq!(server.address, self.address, "it serves where it is told to, whatever the settings say");
        server
    }

    fn command(&self, socket: OwnedFd) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", AS_A_SERVICE, BELLWIRE]).arg(self.dir.path().join("notify"));
        command.arg(self.watchdog.as_micros().to_string()).stdin(Stdio::from(socket));
        command
    }

    /// Next notification.
    async fn told(&self) -> String {
        let mut octets = [0; 1_024];
        let told =
            timeout(PATIENCE, self.notifications.recv(&mut octets)).await.expect("something").expect("a datagram");
        String::from_utf8(octets[..told].to_vec()).expect("UTF-8")
    }
}

/// A client that sends one message after the other and is disappointed by any that is not answered.
struct Client<'a> {
    address: SocketAddr,
    key: &'a str,
    body: String,
    /// Whether its connection is used again, for as long as the server does not end it.
    keeps: bool,
    connection: Option<SendRequest<Body>>,
}

impl Client<'_> {
    async fn connect(&self) -> SendRequest<Body> {
        let stream = TcpStream::connect(self.address).await.expect("there is always somebody to connect to");
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::spawn(connection);
        sender
    }

    async fn send(&mut self) {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await,
        };
        connection.ready().await.expect("what was not said to end is open");
        let request = Request::post("/v1/apps/shop/messages")
            .header(header::HOST, self.address.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {}", self.key))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(self.body.clone()))
            .expect("a request");
        let answer = connection.send_request(request).await.expect("every request is answered");
        assert_eq!(answer.status(), 202);
        let ends = answer.headers().get(header::CONNECTION).is_some_and(|value| value == "close");
        let read = axum::body::to_bytes(Body::new(answer.into_body()), 1 << 20).await;
        read.expect("to its end");
        self.connection = Some(connection).filter(|_| self.keeps && !ends);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_on_a_kept_socket_loses_nothing() {
    const CLIENTS: usize = 8;
    const EACH_TIME: i64 = 100;
    let app = without_engine().await;
    let to = app.subscribe("wns", 0..1).await;
    let manager = ServiceManager::new(PATIENCE);
    let api = ["--roles", "api"];
    let mut server = manager.start(&app, &api).await;
    let (sent, mut seen) = watch::channel(0_i64);
    let (stop, stopped) = watch::channel(false);
    let clients = join_all((0..CLIENTS).map(|number| {
        let body = json!({"to": {"subscriptions": [to[0].id]}, "content": {"title": "Hello"}}).to_string();
        let keeps = number % 2 == 0;
        let mut client = Client { address: manager.address, key: &app.key, body, keeps, connection: None };
        let (sent, stopped) = (&sent, &stopped);
        async move {
            while !*stopped.borrow() {
                client.send().await;
                sent.send_modify(|sent| *sent += 1);
            }
        }
    }));
    let restarts = async {
        for _ in 0..2 {
            let until = *seen.borrow_and_update() + EACH_TIME;
            seen.wait_for(|sent| *sent >= until).await.expect("they send");
            server.terminate();
            assert!(server.end(PATIENCE).await.success());
            server = manager.start(&app, &api).await;
        }
        let until = *seen.borrow_and_update() + EACH_TIME;
        seen.wait_for(|sent| *sent >= until).await.expect("they send");
        stop.send_replace(true);
        server
    };
    let (_, server) = timeout(PATIENCE, async { tokio::join!(clients, restarts) }).await.expect("it ends in time");
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM messages").await, *sent.borrow());
    app.worker(app.clock.clone()).await.run_until_idle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_manager_gets_readiness_watchdog_and_timeout() {
    let app = without_engine().await;
    let manager = ServiceManager::new(Duration::from_millis(300));
    let server = manager.start(&app, &["--roles", "api", "--shutdown-deadline", "7s"]).await;
    assert_eq!(manager.told().await, "READY=1\n");
    for _ in 0..3 {
        assert_eq!(manager.told().await, "WATCHDOG=1\n");
    }
    server.terminate();
    let mut told = manager.told().await;
    while told == "WATCHDOG=1\n" {
        told = manager.told().await;
    }
    assert_eq!(told, "STOPPING=1\nEXTEND_TIMEOUT_USEC=127000000\n");
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_socket_is_refused_with_reason() {
    let (manager, dir) = (ServiceManager::new(PATIENCE), TempDir::new());
    let socket = UnixListener::bind(dir.path().join("socket")).expect("a socket");
    let mut command = manager.command(OwnedFd::from(socket));
    let output = command.args(["serve", "--data-dir"]).arg(dir.path()).output().await.expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("the socket of the service manager cannot be used: fd 3 is not a valid tcp socket"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn health_says_whether_a_server_can_serve() {
    let app = without_engine().await;
    let server = Server::with(&app, &["--roles", "worker"]).await;
    let address = server.address.to_string();
    let health = async |address: &str| {
        let mut command = Command::new(BELLWIRE);
        command.env_clear().args(["health", "--listen", address]).output().await.expect("it runs")
    };
    let output = health(&address).await;
    assert!(output.status.success(), "{output:?}");
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    let output = health(&address).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains(&format!("there is no server at {address}")), "{told}");
    app.finish().await;
}
