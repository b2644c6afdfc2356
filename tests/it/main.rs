//! Integration tests: one binary, a real Postgres, real sockets. Files are named after what they promise.

mod api;
mod command_line;
mod delivery;
mod demo;
mod postgres;
mod simulator;
mod store;
mod support;
