//! The server speaks HTTPS itself, or trusts a proxy that does.

mod acme;
mod files;
mod limits;
mod proxies;
mod questions;
