//! Integration tests: one binary, a real Postgres, real sockets. Files are named after what they promise.

mod api;
mod calendar;
mod command_line;
mod crash;
mod delivery;
mod demo;
mod fencing;
mod figures;
mod gateways;
mod identity;
mod outcomes;
mod policies;
mod postgres;
mod receipts;
mod refusals;
mod replicas;
mod shutdown;
mod simulator;
mod site;
mod stops;
mod store;
mod support;
mod throttles;
mod tiers;
mod tokens;
mod wire;
