//! Tells cargo what it cannot see: `sqlx::migrate!` reads a directory, and a new file there has to rebuild the crate.
#![allow(clippy::print_stdout, reason = "how build scripts talk to cargo")]

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
