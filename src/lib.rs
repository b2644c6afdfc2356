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
//! Dependencies point one way: entrances ([`cli`], [`backup`], [`server`], [`api`], [`simulate`]) → engines ([`dispatch`], [`live`], [`receipts`], [`hooks`], [`checks`]) →
//! edges ([`store`], [`gateway`], [`oidc`], [`acme`], [`http_server`], [`postgres`], [`config`], [`metrics`], [`panics`], [`otlp`]) → rules ([`webpush`], [`template`], [`classify`],
//! [`policy`], [`campaign`], [`explain`], [`vault`]) → nouns ([`model`]). SQL stands only in [`store`], outbound sockets only in [`gateway`], [`oidc`], [`acme`] and [`otlp`], inbound ones in [`http_server`], the
//! environment is read only in [`config`], and time comes only from [`model::clock`]. `docs/architecture.md` draws all of it.

mod acme;
mod api;
mod backup;
mod campaign;
mod checks;
mod classify;
mod cli;
mod config;
mod dispatch;
mod explain;
mod gateway;
mod hooks;
mod http_server;
mod live;
mod metrics;
mod model;
mod oidc;
mod otlp;
mod panics;
mod policy;
mod postgres;
mod receipts;
mod server;
mod simulate;
mod store;
mod template;
#[doc(hidden)]
pub mod testkit;
mod vault;
mod webpush;

pub use cli::main;
