//! The scheme that a proxy names.

use crate::support::app::PATIENCE;
use crate::support::http::exchange;
use crate::support::{Server, TestApp};

#[tokio::test(flavor = "multi_thread")]
async fn last_forwarded_proto_decides_on_strict_transport_security() {
    let app = TestApp::start().await;
    for (proxies, cases) in [
        ("0", vec![("X-Forwarded-Proto: https", false)]),
        (
            "1",
            vec![
                ("X-Forwarded-Proto: https", true),
                ("X-Forwarded-Proto: http, \tHTTPS ", true),
                ("X-Forwarded-Proto: \u{ff}\u{e4}, https", true),
                ("X-Forwarded-Proto: http\r\nX-Forwarded-Proto: https", true),
                ("X-Forwarded-Proto: https, http", false),
                ("X-Forwarded-Proto: https, \u{ff}", false),
                ("X-Forwarded-Proto: https,", false),
                ("X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http", false),
                ("X-Forwarded-Proto: https://x", false),
                ("Forwarded: proto=https", false),
                ("Accept: */*", false),
            ],
        ),
    ] {
        let args = ["--trusted-proxies", proxies, "--public-url", "https://push.example.com"];
        let server = Server::with(&app, &args).await;
        for (header, is_https) in cases {
            let request = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n\r\n");
            let answer = exchange(server.address, &request).await.to_lowercase();
            assert_eq!(
                answer.contains("strict-transport-security: max-age="),
                is_https,
                "{proxies} {header}: {answer}"
            );
        }
        server.terminate();
        assert!(server.end(PATIENCE).await.success());
    }
    app.finish().await;
}
