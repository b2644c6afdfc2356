//! Limits of the HTTP server per client, over real sockets.

mod heads;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::Method;
use axum::routing::get;
use bellwire::testkit::api::ApiConfig;
use bellwire_core::scope::Scope;
use bellwire_net::http_server::refusal::RefusalBody;
use bellwire_net::http_server::{ListenerLimits, serve};
use bellwire_store::keys::api_keys;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::api::{TestApi, high_rate_limits};
use crate::support::app::PATIENCE;
use crate::support::http::{LONG_LIMITS, SHORT_TIMEOUT, connect_from, exchange, read_to_end};
use crate::support::{Server, TestApp};

/// Server that runs until it is dropped or stopped.
struct Running {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Running {
    async fn start(router: Router, limits: ListenerLimits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        Self { address, stop, serving: tokio::spawn(serve(listener, None, router, limits, REFUSAL, stopped)) }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it listens")
    }

    async fn ask(&self, text: &str) -> (TcpStream, String) {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        let answer = until(&mut stream, "pong").await;
        (stream, answer)
    }
}

/// Writes status and reason, so that tests see both.
const REFUSAL: RefusalBody =
    RefusalBody { media_type: "text/plain", write: |status, reason| format!("{}: {reason}", status.as_u16()) };

fn pong() -> Router {
    Router::new().route("/ping", get(|| async { "pong" }))
}

const PING: &str = "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n";

/// Reads until what came ends with this.
async fn until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    let read = async {
        while !text.ends_with(end) {
            text.push(char::from(stream.read_u8().await.expect("there is more")));
        }
    };
    timeout(PATIENCE, read).await.expect("it comes");
    text
}

#[tokio::test]
async fn idle_connection_is_closed_active_one_kept() {
    let server = Running::start(pong(), ListenerLimits { idle: SHORT_TIMEOUT, ..LONG_LIMITS }).await;
    assert_eq!(read_to_end(&mut server.connect().await).await, "");
    let (mut stream, _) = server.ask(PING).await;
    for _ in 0..3 {
        stream.write_all(PING.as_bytes()).await.unwrap();
        assert!(until(&mut stream, "pong").await.starts_with("HTTP/1.1 200"));
    }
    assert_eq!(read_to_end(&mut stream).await, "");
}

#[tokio::test]
async fn trickling_head_is_aborted() {
    let server = Running::start(pong(), ListenerLimits { head: SHORT_TIMEOUT, ..LONG_LIMITS }).await;
    let (mut stream, _) = server.ask(PING).await;
    stream.write_all(b"GET /ping HTTP/1.1\r\nX: ").await.unwrap();
    // It does not win time by going on.
    let closed = async {
        let mut octet = [0];
        while timeout(SHORT_TIMEOUT / 20, stream.read(&mut octet)).await.is_err() {
            let _ = stream.write_all(b"x").await;
        }
    };
    timeout(PATIENCE, closed).await.expect("it is given up");
}

#[tokio::test]
async fn client_connections_are_limited_and_returned() {
    let server = Running::start(pong(), ListenerLimits { connections_per_client: Some(2), ..LONG_LIMITS }).await;
    let ((first, _), (_second, _)) = (server.ask(PING).await, server.ask(PING).await);
    let refused = read_to_end(&mut server.connect().await).await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after: 1\r\n"), "{refused}");
    drop(first);
    // Its end is noticed a moment later.
    let again = async {
        loop {
            let mut stream = server.connect().await;
            let _ = stream.write_all(PING.as_bytes()).await;
            let mut answer = [0; 12];
            if stream.read_exact(&mut answer).await.is_ok() && &answer == b"HTTP/1.1 200" {
                break;
            }
        }
    };
    timeout(PATIENCE, again).await.expect("there is room again");
}

#[tokio::test]
async fn full_server_closes_longest_idle_connection() {
    let server = Running::start(pong(), ListenerLimits { connections: 3, ..LONG_LIMITS }).await;
    let (mut first, _) = server.ask(PING).await;
    let mut half = server.connect().await;
    half.write_all(b"GET /ping HTTP/1.1\r\nX: ").await.unwrap();
    let (mut second, _) = server.ask(PING).await;
    first.write_all(PING.as_bytes()).await.unwrap();
    until(&mut first, "pong").await;
    // The half-sent head waits longest, then `second`.
    let (mut third, _) = server.ask(PING).await;
    assert_eq!(timeout(PATIENCE, half.read(&mut [0; 1])).await.expect("it is closed").unwrap_or(0), 0);
    let (_fourth, _) = server.ask(PING).await;
    assert_eq!(read_to_end(&mut second).await, "");
    for stream in [&mut first, &mut third] {
        stream.write_all(PING.as_bytes()).await.unwrap();
        assert!(until(stream, "pong").await.starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test]
async fn full_server_keeps_connections_with_requests() {
    let (asked, mut is_asked) = watch::channel(false);
    let never = get(move || async move {
        asked.send_replace(true);
        std::future::pending::<()>().await
    });
    let server =
        Running::start(Router::new().route("/never", never), ListenerLimits { connections: 1, ..LONG_LIMITS }).await;
    let mut busy = server.connect().await;
    busy.write_all(b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    timeout(PATIENCE, is_asked.wait_for(|asked| *asked)).await.expect("the request is read").unwrap();
    let mut answer = String::new();
    let refused = async { server.connect().await.read_to_string(&mut answer).await };
    timeout(PATIENCE, refused).await.expect("a newcomer is refused").unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
}

#[tokio::test]
async fn silent_connections_of_few_addresses_lock_out_nobody() {
    let server =
        Running::start(pong(), ListenerLimits { connections: 40, connections_per_client: Some(8), ..LONG_LIMITS })
            .await;
    let mut silent = Vec::new();
    for client in 2..12 {
        for n in 0..8 {
            let mut stream = connect_from([127, 0, 0, client], server.address).await;
            let _ = stream.write_all(if n % 2 == 0 { b"" } else { b"GET /ping HTTP/1.1\r\nX: " }).await;
            silent.push(stream);
        }
    }
    for _ in 0..8 {
        let (_, answer) = server.ask(PING).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_given_up() {
    let large = Router::new().route("/large", get(|| async { vec![b'x'; 64 << 20] }));
    let server = Running::start(large, ListenerLimits { stalled: SHORT_TIMEOUT, ..LONG_LIMITS }).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    stream.read_exact(&mut [0; 12]).await.unwrap();
    server.stop.send(true).unwrap();
    timeout(PATIENCE, server.serving).await.expect("nobody waits for it any longer").unwrap();
}

fn post(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n")
}

#[tokio::test]
async fn body_limits_of_time_and_size_respond() {
    let api = TestApi::with(ApiConfig { body_timeout: SHORT_TIMEOUT, ..high_rate_limits() }, None).await;
    let server = Running::start(api.router.clone(), LONG_LIMITS).await;
    for path in ["/v1/apps/shop/subscriptions", "/v1/apps/shop/receipts"] {
        let mut slow = server.connect().await;
        slow.write_all((post(path, 1_000) + "{").as_bytes()).await.unwrap();
        let answer = read_to_end(&mut slow).await;
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_too_slow"), "{path}: {answer}");

        let mut large = server.connect().await;
        let (mut reading, mut writing) = large.split();
        let body = vec![b' '; 4 << 20];
        let head = post(path, body.len());
        let write = async {
            writing.write_all(head.as_bytes()).await.unwrap();
            // It may end before all of it is sent.
            let _ = writing.write_all(&body).await;
        };
        let mut answer = Vec::new();
        let read = async { timeout(PATIENCE, reading.read_to_end(&mut answer)).await.expect("it is answered") };
        let _ = tokio::join!(write, read);
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{path}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytewise_bodies_take_no_extra_memory() {
    let app = TestApp::start().await;
    let server = Server::with(&app, &[]).await;
    let before = server.memory();
    let mut open = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(post("/v1/apps/shop/receipts", 90_000).as_bytes()).await.unwrap();
        open.push(stream);
    }
    for _ in 0..1_000 {
        for stream in &mut open {
            stream.write_all(b" ").await.unwrap();
        }
    }
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 32 << 20, "{} MiB for 40,000 octets", grown >> 20);
    drop(open);
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_recovers_from_lack_of_descriptors() {
    let app = TestApp::start().await;
    let mut server = Server::with_descriptors(&app, &[], 160).await;
    let mut open = Vec::new();
    for _ in 0..200 {
        open.push(TcpStream::connect(server.address).await.expect("the system queues it"));
    }
    server.until_said("connections cannot be accepted").await;
    drop(open);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    assert!(read_to_end(&mut stream).await.starts_with("HTTP/1.1 200"));
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}

async fn scrape(address: SocketAddr, key: Option<&str>) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let bearer = key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{bearer}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    (answer[9..12].parse().unwrap(), answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_need_own_keys_or_listener() {
    let app = TestApp::start().await;
    let scraper =
        api_keys::create(&app.pool, &app.vault, None, "s", &[Scope::Metrics], None, &app.clock).await.unwrap().1;
    let mut server = Server::with(&app, &["--metrics-listen", "127.0.0.1:0"]).await;
    let said: Value = serde_json::from_str(&server.until_said("metrics without authentication").await).unwrap();
    let (main, metrics) = (server.address, said["address"].as_str().unwrap().parse().unwrap());
    assert_eq!(scrape(main, None).await.0, 401);
    assert_eq!(scrape(main, Some(&app.key)).await.0, 403);
    let keys = [(main, Some(&*scraper)), (main, Some(&*app.operator)), (metrics, None)];
    for (address, key) in keys {
        let (status, text) = scrape(address, key).await;
        assert!(
            status == 200 && text.contains("bellwire_batches_open") && text.trim_end().ends_with("# EOF"),
            "{text}"
        );
    }
    let mut elsewhere = TcpStream::connect(metrics).await.unwrap();
    elsewhere.write_all(b"GET /v1/apps HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    assert!(read_to_end(&mut elsewhere).await.starts_with("HTTP/1.1 404"), "nothing else is there");
    assert_eq!(app.operate(Method::GET, "/v1/metrics/reliability", Value::Null).await.status, 200);
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_and_logged() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"topics": ["news"]})).await;
    app.dispatcher.stop(Duration::ZERO).await;
    // Nothing is sent: the push services use the test's clock, by which the server's tokens are invalid.
    let mut server = Server::with(&app, &["--log", "info,bellwire::api=debug", "--roles", "api"]).await;
    let send = json!({"to": {"topic": "news"}, "payload": "x"}).to_string();
    let post = format!(
        "POST /v1/apps/shop/messages HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{send}",
        app.key,
        send.len()
    );
    assert!(exchange(server.address, &post).await.starts_with("HTTP/1.1 202"));
    let begins: Value = serde_json::from_str(&server.until_said("a campaign begins").await).unwrap();
    assert_eq!((&begins["app"], &begins["estimate"]), (&json!("shop"), &json!(1)));
    // Twice the same member would be read as the last of them, or not at all.
    assert_eq!(begins["message"], "a campaign begins");
    assert!(begins["message_id"].as_str().is_some_and(|id| id.starts_with("msg_")), "{begins}");
    let access: Value = serde_json::from_str(&server.until_said("answered").await).unwrap();
    assert_eq!(
        (&access["status"], &access["app"], &access["client"]),
        (&json!(202), &json!("shop"), &json!("127.0.0.1"))
    );
    assert!(access["took_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{access}");
    let webhook = json!({"name": "n", "url": "https://hooks.example.com/", "events": ["delivery.gone"]});
    let webhook = app.call(Method::POST, "/v1/apps/shop/webhooks", webhook).await.ok(201)["id"].clone();
    let test = format!("/v1/apps/shop/webhooks/{}/test", webhook.as_str().unwrap());
    app.call(Method::POST, &test, Value::Null).await.ok(202);
    let figures = scrape(server.address, Some(&app.operator)).await.1;
    for line in [
        "bellwire_messages_accepted_total 1",
        r#"http_server_request_duration_seconds_count{http_request_method="POST",http_response_status_code="202",url_scheme="http",http_route="/v1/apps/{app}/messages"} 1"#,
        "bellwire_oldest_due_seconds ",
        "bellwire_webhooks_pending 1",
        "process_resident_memory_bytes ",
    ] {
        assert!(figures.lines().any(|written| written.starts_with(line)), "{line} in\n{figures}");
    }
    let front = exchange(server.address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(front.starts_with("HTTP/1.1 200") && front.contains("/docs/"), "{front}");
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}
