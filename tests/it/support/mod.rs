//! Shared parts of the tests.

mod accounts;
pub mod app;
pub mod authenticator;
pub mod citus;
pub mod cluster;
pub mod collector;
pub mod database;
pub mod fault_proxy;
pub mod https;
pub mod provider;
pub mod push_service;
pub mod seed;
pub mod server;
pub mod socket;

pub use app::{Setup, TestApp};
pub use cluster::Cluster;
pub use database::{START, TempDir, TestDatabase};
pub use fault_proxy::{FaultProxy, Moment};
pub use seed::{note, seed, seed_together};
pub use server::Server;
