//! Receipts through the real server over HTTP, stored before they are answered: receipts per second, and CPU per receipt of
//! server and Postgres apart. `scripts/bench receipts`
//!
//! `N` receipts (100,000) of a campaign, one per request as service workers send them, over `CONNECTIONS` (2,000) connections. Then as many
//! in lists of 100, as after an offline period. The client runs on the same machine. Ends with an error if a receipt is not counted, or
//! counted twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bellwire_core::clock::Clock;
use bellwire_core::id::{AppId, MessageId, SubscriptionId};
use bellwire_vault::delivery_token::receipt_token;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::support::cpu::{Usage, per};
use crate::support::harness::{Harness, notice};
use crate::support::setting;
use crate::support::table::{Bar, figure, heading, number};

type Hyper = Client<HttpConnector, Full<Bytes>>;

pub async fn run() {
    let n = setting("N", 100_000);
    let connections = setting("CONNECTIONS", 2_000) as usize;
    let harness = Harness::open().await;
    let app = harness.app("receipts").await;
    let us = "µs";
    for (what, in_each, connections, bar) in [
        ("one in each request", 1, connections, Bar::AtLeast(5_000.0)),
        ("in lists of 100", 100, connections.div_ceil(20), Bar::None), // the server refuses what it cannot hold in memory
    ] {
        let burst = burst(&harness, app, n, in_each, connections).await;
        heading(&format!("{} receipts, {what}, durable", number(n.into())));
        figure("Receipts per second", f64::from(n) / burst.took.as_secs_f64(), "/s", bar);
        figure("Server, CPU per receipt", per(burst.usage.server, n), us, Bar::None);
        figure("Postgres, CPU per receipt", per(burst.usage.postgres, n), us, Bar::None);
        let ms = |share: f64| burst.waits[(burst.waits.len() as f64 * share) as usize].as_secs_f64() * 1e3;
        figure("From request to answer, p50", ms(0.5), "ms", Bar::None);
        figure("From request to answer, p99", ms(0.99), "ms", Bar::None);
    }
}

struct Burst {
    took: Duration,
    usage: Usage,
    /// From each request to its answer, in order.
    waits: Vec<Duration>,
}

/// Reports that `n` browsers displayed a message, as fast as the server answers.
async fn burst(harness: &Harness, app: AppId, n: u32, in_each: usize, connections: usize) -> Burst {
    let message = harness.send(app, &notice()).await;
    let bodies: Arc<Vec<Bytes>> = Arc::new(bodies(harness, message, n, in_each));
    let next = Arc::new(AtomicUsize::new(0));
    let url = format!("{}/v1/apps/{app}/receipts", harness.api.base());
    let hyper: Hyper = Client::builder(TokioExecutor::new()).build_http();
    sqlx::query("CHECKPOINT").execute(&harness.pool).await.expect("a checkpoint");
    let (before, began) = (harness.usage(), Instant::now());
    let reporters = (0..connections).map(|_| {
        let (hyper, url, bodies, next) = (hyper.clone(), url.clone(), bodies.clone(), next.clone());
        tokio::spawn(async move { report(&hyper, &url, &bodies, &next).await })
    });
    let mut waits: Vec<Duration> =
        join_all(reporters).await.into_iter().flat_map(|waits| waits.expect("every report is taken")).collect();
    let (took, usage) = (began.elapsed(), harness.usage() - before);
    waits.sort_unstable();
    let counted: (i64, i64) = sqlx::query_as("SELECT acknowledged, displayed FROM receipt_counts WHERE message = $1")
        .bind(message.0)
        .fetch_one(&harness.pool)
        .await
        .expect("counts");
    assert_eq!(counted, (n.into(), n.into()), "every receipt counts once");
    Burst { took, usage, waits }
}

fn bodies(harness: &Harness, message: MessageId, n: u32, in_each: usize) -> Vec<Bytes> {
    let clock = Clock::system();
    let reports: Vec<String> = (0..n)
        .map(|i| {
            let subscription = SubscriptionId::new(clock.uuid(), (i % 64) as u8);
            let token = receipt_token(&harness.vault, message, subscription);
            format!(r#"{{"receipt":"{}","kind":"displayed"}}"#, String::from_utf8_lossy(&token))
        })
        .collect();
    let written = |reports: &[String]| match reports {
        [report] => report.clone().into(),
        reports => format!("[{}]", reports.join(",")).into(),
    };
    reports.chunks(in_each).map(written).collect()
}

/// One connection's worth. The clients are different ones, behind a proxy.
async fn report(hyper: &Hyper, url: &str, bodies: &[Bytes], next: &AtomicUsize) -> Vec<Duration> {
    let mut waits = Vec::new();
    loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(body) = bodies.get(at) else { return waits };
        let request = Request::post(url)
            .header(header::CONTENT_TYPE, "text/plain")
            .header("x-forwarded-for", format!("10.{}.{}.{}", at >> 16 & 255, at >> 8 & 255, at & 255))
            .body(Full::new(body.clone()))
            .expect("a valid request");
        let began = Instant::now();
        let answer = hyper.request(request).await.expect("the server answers");
        assert!(answer.status().is_success(), "{}", answer.status());
        answer.into_body().collect().await.expect("the server ends what it began");
        waits.push(began.elapsed());
    }
}
