//! TCP connections to a host of several addresses.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

/// Head start of an address before the next one is tried beside it (RFC 8305 section 5).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

const ADDRESSES_MAX: usize = 6;

/// Returns the first established connection to these addresses. Each attempt begins when the previous one has failed, or has had
/// its head start (RFC 8305 section 5), so that an unreachable family of addresses costs no time.
pub async fn first_of(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    first_of_with(NEXT_ADDRESS_AFTER, addresses).await
}

async fn first_of_with(head_start: Duration, addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut left = in_turns(addresses).into_iter().take(ADDRESSES_MAX);
    let (mut attempts, mut next_at) = (FuturesUnordered::new(), Instant::now());
    let mut failure = io::ErrorKind::AddrNotAvailable.into();
    let mut next = left.next();
    while next.is_some() || !attempts.is_empty() {
        tokio::select! {
            biased;
            () = sleep_until(next_at), if next.is_some() => {
                attempts.extend(next.take().map(TcpStream::connect));
                (next, next_at) = (left.next(), Instant::now() + head_start);
            }
            Some(attempt) = attempts.next() => match attempt {
                Ok(tcp) => return Ok(tcp),
                Err(why) => (failure, next_at) = (why, Instant::now()),
            },
        }
    }
    Err(failure)
}

/// Orders addresses for attempts: alternately of the first one's family and of the other one (RFC 8305 section 4).
fn in_turns(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (one, other): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let pairs = std::iter::from_fn(|| Some([one.next(), other.next()]).filter(|pair| pair.iter().any(Option::is_some)));
    pairs.flatten().flatten().collect()
}

#[cfg(test)]
#[path = "../../../tests/crates/gateway/unit/dial.rs"]
mod tests;
