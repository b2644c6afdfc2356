//! Unit tests of `src/server/service_manager.rs`, which includes them.

use axum::Router;
use bellwire_net::http_server::refusal::RefusalBody;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::*;

const PATIENCE: Duration = Duration::from_millis(60);

/// Counts the feeds in ten times the patience.
async fn fed(address: SocketAddr) -> usize {
    let mut fed = 0;
    let _ = timeout(PATIENCE * 10, feed(address, PATIENCE, || fed += 1)).await;
    fed
}

#[tokio::test(flavor = "multi_thread")]
async fn watchdog_is_fed_while_the_server_responds() {
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap(); // the system accepts connections, no process responds
    assert_eq!(fed(hanging.local_addr().unwrap()).await, 0);
    for connections in [10, 0] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = http_server::ListenerLimits { connections, ..http_server::ListenerLimits::default() };
        let (_running, stop) = watch::channel(false);
        tokio::spawn(http_server::serve(listener, None, Router::new(), limits, RefusalBody::PLAIN, stop));
        assert!(fed(address).await > 1, "with room for {connections}");
    }
}
