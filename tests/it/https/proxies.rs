//! The settings that the guide shows for proxies, each with the real program in front of a real server.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use axum::body::Bytes;
use axum::http::StatusCode;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::support::app::PATIENCE;
use crate::support::https::{Authority, HOST, Http2, Pair, free_port, get};
use crate::support::{Server, TempDir, TestApp};

/// Configuration of a proxy as shown in the guide.
fn shown(language: &str) -> String {
    let guide = include_str!("../../../docs/operate/https.md");
    let block = guide.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next());
    block.unwrap_or_else(|| panic!("there is no {language} in the guide")).to_owned()
}

/// Replaces what is there, and fails if it is not.
#[track_caller]
fn with(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in\n{text}");
        text.replace(from, to)
    })
}

/// A proxy that runs until it is dropped.
struct Proxy {
    http: SocketAddr,
    https: SocketAddr,
    _process: Child,
    _dir: TempDir,
}

impl Proxy {
    /// `settings`: from directory, ports and the server's address to the name and text of a file and the arguments.
    async fn start(
        program: &str, pair: &Pair, settings: impl Fn(&Path, &str, &str) -> (&'static str, String, Vec<String>),
    ) -> Self {
        let dir = TempDir::new();
        pair.write(&dir.path().join("fullchain.pem"), &dir.path().join("privkey.pem"));
        std::fs::write(dir.path().join("both.pem"), format!("{}{}", pair.chain, pair.key)).unwrap();
        let [http, https] = [free_port(), free_port()];
        let (name, text, args) = settings(dir.path(), &http.to_string(), &https.to_string());
        std::fs::write(dir.path().join(name), text).unwrap();
        let process = Command::new(program)
            .args(args)
            .env("HOME", dir.path())
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|_| panic!("the package `{program}` is installed (`make deps`)"));
        let [http, https] = [http, https].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let listens =
            async { while TcpStream::connect(https).await.is_err() || TcpStream::connect(http).await.is_err() {} };
        timeout(PATIENCE, listens).await.unwrap_or_else(|_| panic!("{program} listens"));
        Self { http, https, _process: process, _dir: dir }
    }

    async fn nginx(pair: &Pair, server: &str) -> Self {
        Self::start("nginx", pair, |dir, http, https| {
            let dir = dir.display();
            let settings = with(
                &shown("nginx"),
                &[
                    ("127.0.0.1:8787", server),
                    ("listen 80;", &format!("listen 127.0.0.1:{http};")),
                    ("listen 443 ", &format!("listen 127.0.0.1:{https} ")),
                    ("/etc/bellwire/", &format!("{dir}/")),
                ],
            );
            let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|kind| format!("{kind}_temp_path {dir}/{kind};\n"))
                .concat();
            // One process, so that none outlives the one that is killed.
            let text = format!(
                "daemon off; master_process off; pid {dir}/pid; error_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{settings}}}\n"
            );
            ("nginx.conf", text, vec!["-e".into(), "stderr".into(), "-c".into(), format!("{dir}/nginx.conf")])
        })
        .await
    }

    async fn caddy(pair: &Pair, server: &str) -> Self {
        Self::start("caddy", pair, |dir, http, https| {
            let dir = dir.display();
            let site = format!("{HOST} {{\n\ttls {dir}/fullchain.pem {dir}/privkey.pem");
            let settings = with(&shown("caddyfile"), &[("127.0.0.1:8787", server), (&format!("{HOST} {{"), &site)]);
            let text = format!(
                "{{\n\tadmin off\n\tdefault_bind 127.0.0.1\n\thttp_port {http}\n\thttps_port {https}\n\tstorage file_system {dir}/caddy\n}}\n{settings}"
            );
            let args = ["run", "--adapter", "caddyfile", "--config", "Caddyfile"];
            ("Caddyfile", text, args.map(str::to_owned).to_vec())
        })
        .await
    }

    async fn haproxy(pair: &Pair, server: &str) -> Self {
        Self::start("haproxy", pair, |dir, http, https| {
            let settings = with(
                &shown("haproxy"),
                &[
                    ("127.0.0.1:8787", server),
                    ("bind :80\n", &format!("bind 127.0.0.1:{http}\n")),
                    ("bind :443 ", &format!("bind 127.0.0.1:{https} ")),
                    ("/etc/bellwire/push.example.com.pem", &format!("{}/both.pem", dir.display())),
                ],
            );
            ("haproxy.cfg", settings, ["-db", "-f", "haproxy.cfg"].map(str::to_owned).to_vec())
        })
        .await
    }
}

async fn is_what_the_guide_says(app: &TestApp, server: &mut Server, proxy: &Proxy, authority: &Authority) {
    let mut client = Http2::connect(proxy.https, &authority.pem).await.expect("HTTPS with HTTP/2");
    // A client with a forged address header.
    let mut claim = get("/v1/apps");
    let bearer = format!("Bearer {}", app.operator);
    for (name, value) in [
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-proto", "http"),
        ("forwarded", "for=203.0.113.9"),
        ("authorization", &bearer),
    ] {
        claim.headers_mut().insert(name, value.parse().unwrap());
    }
    let answer = client.ask(claim).await;
    assert_eq!(answer.status(), StatusCode::OK, "{:?}", answer.body());
    let told: Vec<_> = answer.headers().get_all("strict-transport-security").iter().collect();
    assert_eq!(told, ["max-age=31536000"], "once");
    let access: Value = serde_json::from_str(&server.until_said("answered").await).unwrap();
    assert_eq!((&access["client"], &access["status"]), (&json!("127.0.0.1"), &json!(200)), "{access}");

    // Too large for Bellwire, which says so itself.
    let body = Full::new(Bytes::from(vec![b' '; 3 << 20]));
    let large = Request::put(format!("https://{HOST}/v1/apps/shop/topics/news")).header("authorization", &bearer);
    let refused = client.ask(large.header("content-type", "application/json").body(body).unwrap()).await;
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let problem: Value = serde_json::from_slice(refused.body()).expect("a problem of Bellwire's");
    assert_eq!(problem["code"], "body_too_large", "{problem}");

    // Events as they happen.
    let mut listen = get("/v1/events/stream");
    listen.headers_mut().insert("authorization", bearer.parse().unwrap());
    let mut events = client.begin(listen).await.into_body();
    let first = timeout(PATIENCE, events.frame()).await.expect("at once").unwrap().unwrap().into_data().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("listening"), "{first:?}");

    let mut plain = TcpStream::connect(proxy.http).await.unwrap();
    let request = format!("GET /admin/?a=b HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    plain.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, plain.read_to_string(&mut answer)).await.unwrap().unwrap();
    let answer = answer.to_lowercase();
    assert!(answer.starts_with("http/1.1 308") && answer.contains(&format!("location: https://{HOST}")), "{answer}");
    assert!(answer.contains("/admin/?a=b"), "{answer}");
}

async fn holds_behind(start: impl AsyncFnOnce(&Pair, &str) -> Proxy) {
    let (app, authority) = (TestApp::start().await, Authority::new());
    let args = ["--trusted-proxies", "1", "--public-url", "https://push.example.com", "--roles", "api"];
    let mut server = Server::with(&app, &[&args[..], &["--log", "info,bellwire::api=debug"]].concat()).await;
    let proxy = start(&authority.pair(), &server.address.to_string()).await;
    is_what_the_guide_says(&app, &mut server, &proxy, &authority).await;
    drop(proxy);
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_is_set_up_as_the_guide_says() {
    holds_behind(async |pair, server| Proxy::nginx(pair, server).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn caddy_is_set_up_as_the_guide_says() {
    holds_behind(async |pair, server| Proxy::caddy(pair, server).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn haproxy_is_set_up_as_the_guide_says() {
    holds_behind(async |pair, server| Proxy::haproxy(pair, server).await).await;
}
