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
//!         outcomes (COPY) · retries (queue) · gone (prune) · dead letters · rollups
//! ```
//!
//! Dependencies point one way: doors ([`api`], `admin`, `simulator`) → engines ([`dispatch`], `maintenance`) →
//! edges ([`store`], [`gateway`], `postgres`) → rules ([`webpush`], [`classify`], [`policy`]) → nouns ([`id`],
//! [`subscription`], [`message`], [`delivery`]). SQL stands only in [`store`], outbound sockets only in
//! [`gateway`], the environment is read only in `config`, and time comes only from [`clock`].

pub mod api;
pub mod classify;
pub mod clock;
pub mod config;
pub mod delivery;
pub mod dispatch;
pub mod gateway;
pub mod id;
pub mod lane;
pub mod maintenance;
pub mod message;
pub mod metrics;
pub mod policy;
pub mod postgres;
pub mod server;
pub mod simulator;
pub mod store;
pub mod subscription;
pub mod telemetry;
pub mod vault;
pub mod webpush;
