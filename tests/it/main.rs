//! Integration tests: one binary, a real Postgres, real sockets. Files are named after what they promise.

mod api;
mod postgres;
mod store;
mod support;
