//! Bellwire, a self-hosted web-push delivery server: one binary and Postgres.
//!
//! A message follows one line through the system:
//!
//! ```text
//! api::messages ─ store (message + audience, one transaction)
//!    ├─ a list of ids, or an audience of at most 100 ─ queue rows ───┐
//!    └─ a topic, all, a segment ─ cursors ─ take a batch ────────────┤
//!                                                                    ▼
//!        claim → admit → queue (fair, by lane) → prepare → seal → post → conclude → settle
//!                                                                    │
//!         outcomes (COPY) · retries (queue) · gone (prune) · dead letters · rollups · receipts ◄─ browsers
//! ```
//!
//! Dependencies point one way: entrances ([`cli`], [`demo`], [`backup`], [`server`], [`api`]) → engines ([`live`], [`receipts`],
//! [`results`], [`hooks`], [`checks`]) → settings and output ([`config`], [`progress`]). Everything else is a crate below `crates/`: the delivery engine, all SQL, secrets at
//! rest, HTTP and telemetry, decisions without I/O, the gateway client, the embedded Postgres, and the simulator. SQL is only in
//! [`bellwire_store`], outbound sockets only in [`bellwire_gateway`] and [`bellwire_net::outbound`], inbound ones in
//! [`bellwire_net::http_server`]. The environment is read only in [`config`], and time comes only from [`bellwire_core::clock`].
//! `docs/architecture.md` draws all of it.

mod api;
mod backup;
mod checks;
mod cli;
mod config;
mod demo;
mod hooks;
mod live;
mod progress;
mod receipts;
mod results;
mod server;
#[doc(hidden)]
pub mod testkit;

pub use cli::main;
