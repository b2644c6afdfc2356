//! Integration tests: one binary, a real Postgres, real sockets. Files are named after what they promise.

mod api;
mod command_line;
mod crash;
mod delivery;
mod demo;
mod fencing;
mod flows;
mod gateways;
mod lanes;
mod outcomes;
mod postgres;
mod replicas;
mod shutdown;
mod simulator;
mod stops;
mod store;
mod support;
mod tiers;
mod wire;
