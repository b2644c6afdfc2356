//! Integration tests: one binary, a real Postgres, real sockets. Files are named after what they promise.

mod api;
mod command_line;
mod delivery;
mod gateways;
mod outcomes;
mod postgres;
mod simulator;
mod stops;
mod store;
mod support;
mod tiers;
mod wire;
