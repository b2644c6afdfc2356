//! What benchmarks share: a stage with Postgres, simulated gateways and the real server, each a process of its own.

#![allow(dead_code, reason = "every benchmark takes what it needs")]

pub mod client;
pub mod cpu;
pub mod process;
pub mod seed;
pub mod stage;
pub mod table;

/// Runs a benchmark. With `--simulator` as the first argument, this process is the simulator instead.
pub fn run<F: Future<Output = ()>>(benchmark: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Runtime::new().expect("threads start");
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(process::SIMULATOR) => runtime.block_on(process::simulate(&arguments[1..])),
        _ => runtime.block_on(benchmark()),
    }
}

/// A number from the environment, for shorter or longer runs than usual.
pub fn setting(name: &str, default: u32) -> u32 {
    let given = std::env::var(name).ok();
    given.map_or(default, |given| given.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}
