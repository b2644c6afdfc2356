//! Integration tests: one binary, a real Postgres, real sockets. Files are named after what they promise.

mod delivery;
mod postgres;
mod simulator;
mod store;
mod support;
