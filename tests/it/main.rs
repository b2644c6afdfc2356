//! Integration tests: one binary, a real Postgres, real sockets. Files are named after what they promise.

mod command_line;
mod crash;
mod delivery;
mod fencing;
mod postgres;
mod replicas;
mod shutdown;
mod simulator;
mod store;
mod support;
