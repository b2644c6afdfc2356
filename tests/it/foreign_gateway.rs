//! HTTP/2 of Node (nghttp2): a push service on another protocol stack than Bellwire's, with few concurrent streams and connections that end
//! from time to time.

use std::process::Stdio;
use std::time::Duration;

use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bellwire_core::lane::Gateway;
use bellwire_gateway::HostMapping;
use http::{HeaderMap, HeaderName};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::support::app::{PATIENCE, Setup, TestApp};
use crate::support::push_service::{Browser, Pushed};

const HOST: &str = "fcm.node.test";
const BROWSERS: usize = 100;

/// Prints its port, then each request. Who has left is gone; every twentieth request ends its connection.
const SERVER: &str = r#"
    const http2 = require("node:http2");
    const [cert, key] = process.argv.slice(1);
    const server = http2.createSecureServer({ cert, key, settings: { maxConcurrentStreams: 8 } });
    let taken = 0;
    server.on("stream", (stream, headers) => {
      const chunks = [];
      stream.on("data", (chunk) => chunks.push(chunk));
      stream.on("end", () => {
        console.log(JSON.stringify({ headers, body: Buffer.concat(chunks).toString("base64url") }));
        stream.respond({ ":status": headers[":path"].includes("left") ? 410 : 201 });
        stream.end();
        if (++taken % 20 === 0) stream.session.close();
      });
    });
    server.listen(0, "127.0.0.1", () => console.log(server.address().port));
"#;

/// The running server. Dropping it ends it.
struct Node {
    lines: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Node {
    /// Starts it. Returns it with its port.
    async fn start(cert: &str, key: &str) -> (Self, u16) {
        let mut command = Command::new("node");
        command.args(["-e", SERVER, "--", cert, key]).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("node, which builds what browsers load");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut node = Self { lines, _process: process };
        let port = node.line().await.parse().expect("a port");
        (node, port)
    }

    async fn line(&mut self) -> String {
        timeout(PATIENCE, self.lines.next_line()).await.expect("it says something").unwrap().expect("it runs")
    }

    /// The next request.
    async fn pushed(&mut self) -> Pushed {
        let told: Value = serde_json::from_str(&self.line().await).unwrap();
        let header = |name: &str| told["headers"][name].as_str().unwrap_or_else(|| panic!("{name}: {told}")).to_owned();
        let (authority, path) = (header(":authority"), header(":path"));
        let mut headers = HeaderMap::new();
        for (name, value) in told["headers"].as_object().unwrap() {
            if let (false, Some(value)) = (name.starts_with(':'), value.as_str()) {
                headers.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
            }
        }
        let body = URL_SAFE_NO_PAD.decode(told["body"].as_str().unwrap()).unwrap();
        Pushed { authority, path, headers, body }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_http2_gateway_gets_each_push_once() {
    let certified = rcgen::generate_simple_self_signed([HOST.to_owned()]).unwrap();
    let (mut node, port) = Node::start(&certified.cert.pem(), &certified.signing_key.serialize_pem()).await;
    let address = Some(([127, 0, 0, 1], port).into());
    let host = HostMapping { host: HOST.to_owned(), gateway: Gateway::Fcm, address };
    let app = TestApp::with(Setup { others: (vec![host], certified.cert.pem()), ..Setup::default() }).await;
    let names = (0..BROWSERS).map(|n| if n == 7 { "left".to_owned() } else { format!("browser-{n}") });
    let browsers: Vec<_> = names.map(|name| Browser::new(HOST, &name)).collect();
    for browser in &browsers {
        let body = json!({"subscription": browser.to_json()});
        app.call(Method::POST, "/v1/apps/shop/subscriptions", body).await.ok(201);
    }
    let message = app.send(json!({"all": true}), json!({"ttl": 3600})).await;
    app.run_until_idle().await;
    for _ in 0..10 {
        app.advance(Duration::from_secs(1)).await; // what a connection that ended had not taken is made again
    }
    let counts = app.counts(&message).await;
    assert_eq!((counts["accepted"], counts["gone"]), (BROWSERS as i64 - 1, 1), "{counts:?}");

    let mut reached = vec![0; BROWSERS];
    for _ in 0..BROWSERS {
        let push = node.pushed().await;
        assert_eq!(push.authority, HOST);
        assert!((3_590..=3_600).contains(&push.header("ttl").parse().unwrap()), "{:?}", push.headers);
        assert_eq!(push.vapid().1, app.application_server_key);
        let to =
            browsers.iter().position(|browser| browser.endpoint == format!("https://{HOST}{}", push.path)).unwrap();
        let plaintext: Value = serde_json::from_slice(&browsers[to].open(&push).expect("sealed for it")).unwrap();
        assert_eq!(plaintext["notification"]["title"], "Hello");
        reached[to] += 1;
    }
    assert_eq!(reached, [1; BROWSERS]);
    app.finish().await;
}
