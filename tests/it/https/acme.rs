//! Certificate by ACME, from Pebble, the test authority of Let's Encrypt: two servers share it; one orders it, and the other answers the
//! challenge.

use std::net::SocketAddr;
use std::process::Stdio;

use bellwire_simulator::gateways::RequestFault;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::support::app::PATIENCE;
use crate::support::https::{Authority, HOST, Http2, connect, free_port};
use crate::support::server::any_says;
use crate::support::{Server, TempDir, TestApp};

/// DNS server that resolves every host to 127.0.0.1 (RFC 1035).
async fn tell_addresses(socket: UdpSocket) {
    const HEADER: usize = 12;
    let mut octets = [0; 1_500];
    loop {
        let (length, client) = socket.recv_from(&mut octets).await.expect("a question");
        let name = octets[HEADER..length].iter().position(|octet| *octet == 0).expect("the end of a name");
        let question = &octets[HEADER..HEADER + name + 5];
        let is_ipv4 = question[name + 1..name + 3] == [0, 1];
        let mut answer = [&octets[..2], &[0x81, 0x80, 0, 1, 0, u8::from(is_ipv4), 0, 0, 0, 0], question].concat();
        if is_ipv4 {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
        }
        socket.send_to(&answer, client).await.expect("it is sent");
    }
}

/// Relay from the authority's validation port to the current target.
struct Relay(watch::Sender<Option<SocketAddr>>);

impl Relay {
    async fn start(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a free port");
        let (sender, target) = watch::channel(None::<SocketAddr>);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut target = target.clone();
                tokio::spawn(async move {
                    let Ok(Some(target)) = target.wait_for(Option::is_some).await.map(|target| *target) else { return };
                    let mut server = TcpStream::connect(target).await.expect("it listens");
                    let _ = copy_bidirectional(&mut stream, &mut server).await;
                });
            }
        });
        Self(sender)
    }
}

/// An authority that runs until it is dropped.
struct Pebble {
    directory: String,
    management: SocketAddr,
    /// Port at which the authority validates hosts.
    asks_at: u16,
    own: Authority,
    _process: Child,
    dir: TempDir,
}

impl Pebble {
    async fn start() -> Self {
        let (dir, own) = (TempDir::new(), Authority::new());
        let at = |name: &str| dir.path().join(name);
        own.pair().write(&at("chain.pem"), &at("key.pem"));
        std::fs::write(at("ca.pem"), &own.pem).unwrap();
        let [listen, management, asks_at, nobody] = [(); 4].map(|()| free_port());
        let settings = json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{listen}"), "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": at("chain.pem"), "privateKey": at("key.pem"), "httpPort": nobody, "tlsPort": asks_at,
            "ocspResponderURL": "", "externalAccountBindingRequired": false,
        }});
        std::fs::write(at("pebble.json"), settings.to_string()).unwrap();
        let names = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let dns = names.local_addr().unwrap().to_string();
        tokio::spawn(tell_addresses(names));
        // It refuses one nonce in twenty, as it comes: to be asked again is part of the protocol.
        let process = Command::new("pebble")
            .args(["-strict", "-dnsserver", &dns, "-config"])
            .arg(at("pebble.json"))
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_AUTHZREUSE", "0")
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the package `pebble` is installed (`make deps`)");
        let [listen, management] = [listen, management].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let listens = async {
            while TcpStream::connect(listen).await.is_err() || TcpStream::connect(management).await.is_err() {}
        };
        timeout(PATIENCE, listens).await.expect("Pebble listens");
        Self { directory: format!("https://{listen}/dir"), management, asks_at, own, _process: process, dir }
    }

    /// Root certificate of the authority.
    async fn root(&self) -> String {
        let mut stream = connect(self.management, &self.own.pem, &[]).await.unwrap();
        let request = format!("GET /roots/0 HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("it answers");
        answer[answer.find("-----BEGIN").expect("a certificate")..].to_owned()
    }

    async fn server(&self, app: &TestApp) -> Server {
        let ca = self.dir.path().join("ca.pem");
        let args = ["--acme-domain", HOST, "--acme-directory", &self.directory, "--acme-email", "ops@example.com"];
        Server::with(app, &[&args[..], &["--acme-ca-file", ca.to_str().unwrap(), "--roles", "api"]].concat()).await
    }
}

/// Index of the first server that logs this text.
async fn who_says(servers: &mut [Server; 2], what: &str) -> usize {
    let [first, second] = servers;
    tokio::select! {
        _ = first.until_said(what) => 0,
        _ = second.until_said(what) => 1,
    }
}

/// The certificate (DER) that a server shows, and that it is one of the authority's.
async fn shown(server: &Server, root: &str) -> Vec<u8> {
    let stream = connect(server.address, root, &["h2"]).await.expect("a certificate that is trusted");
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

/// Waits until one orders, has the other answer, and until both show what was issued.
async fn issue(servers: &mut [Server; 2], relay: &Relay) {
    let orders = who_says(servers, "a certificate is ordered").await;
    relay.0.send_replace(Some(servers[1 - orders].address));
    servers[orders].until_said("a certificate was issued").await;
    servers[orders].until_said("a certificate is shown").await;
    servers[1 - orders].until_said("a certificate is shown").await;
    relay.0.send_replace(None);
}

async fn update(app: &TestApp, set: &str) {
    let statement = format!("UPDATE acme_certificates SET {set}");
    assert_eq!(sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&app.pool).await.unwrap().rows_affected(), 1);
}

async fn check(app: &TestApp, server: &Server, root: &str) -> Value {
    let mut client = Http2::connect(server.address, root).await.unwrap();
    let mut request = crate::support::https::get("/v1/checks");
    request.headers_mut().insert("authorization", format!("Bearer {}", app.operator).parse().unwrap());
    let answer: Value = serde_json::from_slice(client.ask(request).await.body()).unwrap();
    answer["data"].as_array().unwrap().iter().find(|finding| finding["check"] == "certificate").unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_one_renewed_certificate() {
    let app = TestApp::start().await;
    let pebble = Pebble::start().await;
    let mut servers = [pebble.server(&app).await, pebble.server(&app).await];

    // No server listens when the authority validates.
    let failed = any_says(&mut servers, "no certificate was issued").await;
    assert!(
        failed.contains("could not see that push.example.com is this server") && failed.contains("next_try"),
        "{failed}"
    );
    assert!(connect(servers[0].address, &pebble.own.pem, &["h2"]).await.is_err(), "there is nothing to show yet");

    let relay = Relay::start(pebble.asks_at).await;
    update(&app, "retry_at = now()").await;
    issue(&mut servers, &relay).await;
    let root = pebble.root().await;
    let before = [shown(&servers[0], &root).await, shown(&servers[1], &root).await];
    assert_eq!(before[0], before[1]);
    let finding = check(&app, &servers[1], &root).await;
    assert!(finding["health"] == "ok" && finding["detail"].as_str().unwrap().contains("push.example.com"), "{finding}");

    let sealed: (Vec<u8>, Vec<u8>) =
        sqlx::query_as("SELECT private_key, credentials FROM acme_certificates, acme_accounts")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    for secret in [sealed.0, sealed.1] {
        let text = String::from_utf8_lossy(&secret).into_owned();
        assert!(!text.contains("PRIVATE") && !text.contains("key_pkcs8"), "it is sealed");
    }

    // A third of its time is left.
    let mut standing = Http2::connect(servers[0].address, &root).await.unwrap();
    update(&app, "renew_at = now()").await;
    issue(&mut servers, &relay).await;
    let after = [shown(&servers[0], &root).await, shown(&servers[1], &root).await];
    assert!(after[0] == after[1] && after[0] != before[0], "both show the new one");
    assert_eq!(standing.get("/healthz").await.status(), 200, "what stood goes on");
    let accounts: i64 = sqlx::query_scalar("SELECT count(*) FROM acme_accounts").fetch_one(&app.pool).await.unwrap();
    assert_eq!(accounts, 1, "one account for all");

    // Who starts later has it at once.
    let late = pebble.server(&app).await;
    assert_eq!(shown(&late, &root).await, after[0]);
    for server in servers.into_iter().chain([late]) {
        server.terminate();
        assert!(server.end(PATIENCE).await.success());
    }
    // Push services were greeted where no push resource is.
    app.finish_after(&[RequestFault::UnknownEndpoint]).await;
}
