//! What tests stand on.

pub mod app;
pub mod database;
pub mod fault_proxy;
pub mod push_service;

pub use app::TestApp;
pub use database::{START, TempDir, TestDatabase};
pub use fault_proxy::{FaultProxy, Moment};
