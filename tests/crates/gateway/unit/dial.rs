//! Unit tests of `crates/bellwire-gateway/src/dial.rs`, which includes them.

use tokio::net::TcpListener;

use super::*;

fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn both_families_are_tried_in_turns() {
    let given = addresses(&["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1", "192.0.2.1:1", "192.0.2.2:1"]);
    let turns = addresses(&["[2001:db8::1]:1", "192.0.2.1:1", "[2001:db8::2]:1", "192.0.2.2:1", "[2001:db8::3]:1"]);
    assert_eq!(in_turns(given), turns);
    assert_eq!(in_turns(Vec::new()), []);
}

#[tokio::test]
async fn unreachable_address_does_not_delay_the_next() {
    let there = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (there_at, closed_at) = (there.local_addr().unwrap(), closed.local_addr().unwrap());
    drop(closed);
    let for_ever = Duration::from_secs(86_400);
    let tcp = first_of_with(for_ever, vec![closed_at, closed_at, there_at]).await.unwrap();
    assert_eq!(tcp.peer_addr().unwrap(), there_at);
    let refused = first_of(vec![closed_at]).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(first_of(Vec::new()).await.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
}
