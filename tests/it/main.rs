//! Integration tests: real sockets, and a real Postgres where one is needed.

mod simulator;
