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
//! Dependencies point one way: entrances ([`cli`], [`demo`], [`backup`], [`server`], [`api`]) → engines ([`dispatch`], [`live`], [`receipts`], [`hooks`], [`checks`]) →
//! edges ([`store`], [`outbound`], [`oidc`], [`acme`], [`http_server`], [`config`], [`metrics`], [`panics`], [`otlp`]) → secrets at rest ([`vault`]). Decisions without I/O, the wire rules of web
//! push, the gateway client, the embedded Postgres, the simulator and the nouns are crates of their own, below `crates/`. SQL stands only in [`store`], outbound sockets only in [`bellwire_gateway`] and [`outbound`], inbound ones in [`http_server`], the
//! environment is read only in [`config`], and time comes only from [`bellwire_core::clock`]. `docs/architecture.md` draws all of it.

mod acme;
mod api;
mod backup;
mod checks;
mod cli;
mod config;
mod demo;
mod dispatch;
mod hooks;
mod http_server;
mod live;
mod metrics;
mod oidc;
mod otlp;
mod outbound;
mod panics;
mod receipts;
mod server;
mod store;
#[doc(hidden)]
pub mod testkit;
mod vault;

pub use cli::main;
