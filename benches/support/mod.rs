//! What benchmarks share: a stage with Postgres, simulated gateways and the real server, each a process of its own.

#![allow(dead_code, reason = "every benchmark takes what it needs")]

pub mod bare;
pub mod client;
pub mod codes;
pub mod cpu;
pub mod process;
pub mod sealing;
pub mod seed;
pub mod stage;
pub mod table;

/// Runs a benchmark.
pub fn run(benchmark: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().expect("threads start").block_on(benchmark);
}

/// A number from the environment, for shorter or longer runs than usual.
pub fn setting(name: &str, default: u32) -> u32 {
    let given = std::env::var(name).ok();
    given.map_or(default, |given| given.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}
