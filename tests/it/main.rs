//! Integration tests: one binary, a real Postgres, real sockets. Files are named after what they promise.

mod command_line;
mod postgres;
mod store;
mod support;
