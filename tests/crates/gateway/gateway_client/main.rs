//! The client of push services, against small servers on loopback.

#![cfg(debug_assertions)] // a release build resolves names by the system alone

mod addresses;
mod egress;
mod guarding;
mod hosts;
mod http1;
mod http2;
mod raw;
mod server;

use std::net::SocketAddr;
use std::time::Duration;

use bellwire_core::delivery::Urgency;
use bellwire_core::lane::Gateway;
use bellwire_core::subscription::Endpoint;
use bellwire_gateway::{GatewayConfig, Gateways, Post, Reply};
use bellwire_rules::classify::Failure;
use bytes::Bytes;
use http::HeaderValue;

const HOST: &str = "push.example.net";

fn settings(address: SocketAddr, ca_pem: &str) -> GatewayConfig {
    let hosts = vec![format!("{HOST}=other@{address}").parse().unwrap()];
    GatewayConfig { hosts, extra_ca_pem: Some(ca_pem.into()), ..GatewayConfig::default() }
}

fn post_to(url: &str) -> Post {
    Post {
        endpoint: Endpoint::parse(url).unwrap(),
        gateway: Gateway::Other,
        authorization: HeaderValue::from_static("vapid t=a.b.c, k=BA1"),
        ttl_s: 60,
        urgency: Urgency::Normal,
        topic: None,
        body: Bytes::from_static(b"sealed"),
        patience: Duration::from_secs(10),
    }
}

fn post(path: &str) -> Post {
    post_to(&format!("https://{HOST}{path}"))
}

/// Starts `n` POSTs at once, to `/0`, `/1`, …
async fn burst(gateways: &Gateways, n: usize) -> Vec<Result<Reply, Failure>> {
    futures_util::future::join_all((0..n).map(|i| gateways.post(post(&format!("/{i}"))))).await
}

fn statuses(replies: Vec<Result<Reply, Failure>>) -> Vec<Result<u16, Failure>> {
    replies.into_iter().map(|reply| reply.map(|reply| reply.status)).collect()
}
