//! Declares the migrations directory, so that Cargo rebuilds when a file is added. `sqlx::migrate!` embeds the files.
#![allow(clippy::print_stdout, reason = "how build scripts talk to cargo")]

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
