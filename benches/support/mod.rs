//! Shared parts of benchmarks: a harness with Postgres, simulated gateways and the real server, each in its own process.

pub mod bare;
pub mod citus;
pub mod client;
pub mod codes;
pub mod cpu;
pub mod harness;
pub mod process;
pub mod receiver;
pub mod seed;
pub mod table;

/// A number from the environment, for shorter or longer runs than usual.
pub fn setting(name: &str, default: u32) -> u32 {
    let given = std::env::var(name).ok();
    given.map_or(default, |given| given.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

/// The middle one of what these come to.
pub fn median<T>(all: &[T], value: impl Fn(&T) -> f64) -> f64 {
    let mut values: Vec<f64> = all.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
