//! Bellwire, a self-hosted web-push delivery server: one binary and Postgres.
//!
//! A message follows one line through the system:
//!
//! ```text
//! api::messages ─ store (message + audience, one transaction)
//!    ├─ a list of ids, or an audience of at most 100 ─ queue rows ───┐
//!    └─ a topic, all ─ cursors ─ cut a page ─────────────────────────┤
//!                                                                    ▼
//!        lane (gateway, VAPID key): permit → seal → post → classify → decide → settle
//!                                                                    │
//!         outcomes (COPY) · retries (queue) · gone (prune) · dead letters · rollups · receipts ◄─ browsers
//! ```
//!
//! Dependencies point one way: doors ([`api`], `cli`, `admin`, `simulator`, [`simulation`]) → engines ([`dispatch`],
//! [`receipts`], `maintenance`) →
//! edges ([`store`], [`gateway`], [`http_server`], `postgres`) → rules ([`webpush`], [`classify`], [`policy`]) → nouns ([`id`],
//! [`subscription`], [`message`], [`delivery`]). SQL stands only in [`store`], outbound sockets only in
//! [`gateway`], inbound ones in [`http_server`], the environment is read only in `config`, and time comes only from [`clock`].

pub mod address;
pub mod admin;
pub mod api;
pub mod chart;
pub mod classify;
pub mod cli;
pub mod clock;
pub mod config;
pub mod delivery;
pub mod demo;
pub mod dispatch;
pub mod figures;
pub mod foundation;
pub mod gateway;
pub mod http_server;
pub mod id;
pub mod identity;
pub mod lane;
pub mod maintenance;
pub mod message;
pub mod metrics;
pub mod permission;
pub mod policy;
pub mod postgres;
mod process;
pub mod receipts;
pub mod server;
pub mod simulation;
pub mod simulator;
pub mod store;
pub mod subscription;
pub mod telemetry;
mod trust;
pub mod vault;
pub mod webpush;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;

use anyhow::Context;
use tokio::net::TcpListener;

/// Runs a server on an open listener until `shutdown` is ready: waits for the database, opens what it stands on, runs
/// the engines of its roles, and closes in reverse order. `started` is told the address as soon as it serves. An error
/// means that something ended that should not have.
pub async fn run(
    config: config::Config,
    migrations: foundation::Migrations,
    listener: TcpListener,
    started: impl FnOnce(SocketAddr),
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let mut shutdown = pin!(shutdown);
    tokio::select! {
        answers = foundation::wait_for_database(&config) => answers?,
        () = &mut shutdown => return Ok(()),
    }
    let foundation = foundation::Foundation::open(&config, migrations).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    tracing::info!(%address, data = %foundation.data(&config), "started");
    started(address);
    let ended = server::run(&foundation, &config, listener, shutdown).await;
    foundation.close().await;
    ended
}
