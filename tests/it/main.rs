//! Integration tests: one binary, a real Postgres, real sockets. Files are named after what they promise.

mod api;
mod command_line;
mod crash;
mod dead_letters;
mod delivery;
mod demo;
mod fencing;
mod gateways;
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
