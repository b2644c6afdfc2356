//! `sqlx::migrate!` embeds the migrations. Cargo detects an added file only if the directory is watched.
#![allow(clippy::print_stdout, reason = "how build scripts talk to cargo")]

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
