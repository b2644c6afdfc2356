//! Detects running times of passes that depend on scalars, by the method of dudect: Welch's t-test between two classes of
//! scalars, whose passes are timed in random order. `cargo run --release -p bellwire-p256-lanes --example constant_time`;
//! `MEASUREMENTS` (20,000) passes for each test.
//!
//! The program fails if the absolute value of t exceeds 10, for all times or those below a percentile; chance gives less than
//! 4.5. A control runs first: a pass that is two percent longer for one class must be detected.
#![allow(clippy::print_stdout, reason = "the table is the result")]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use aws_lc_rs::rand;
use bellwire_p256_lanes::{Engine, LANES, Scalars};

/// Absolute value of t that fails.
const T_MAX: f64 = 10.0;
/// Percentiles of the times that are tested. The longest times come from interrupts.
const SHARES: [usize; 4] = [50, 80, 95, 100];

/// Function that generates the scalars of a class.
type Class = fn() -> Scalars;

fn main() -> ExitCode {
    let engine = Engine::detect().unwrap_or_else(Engine::portable);
    let n = std::env::var("MEASUREMENTS").map_or(20_000, |n| n.parse().expect("a number"));
    let peers = engine.exchange(&random(), &[[0; 65]; LANES]).public;
    let plain = |scalars: &Scalars, _: bool| drop(black_box(engine.exchange(scalars, &peers)));
    let one_pass = {
        let start = Instant::now();
        (0..10).for_each(|_| plain(&random(), false));
        start.elapsed() / 10
    };
    let leaking = |scalars: &Scalars, is_second: bool| {
        plain(scalars, is_second);
        let start = Instant::now();
        while is_second && start.elapsed() < one_pass / 50 {}
    };
    println!("{}, {n} passes for each test; t of the fastest {SHARES:?} percent\n", engine.name());
    let control = largest_t("control: 2 % longer", n, random, random, leaking);
    let tests: [(&str, Class, Class); 4] = [
        ("random, and 1", random, || all(small(1))),
        ("random, and all bits set", random, || all([0x7f; 32])),
        ("random odd, and random even", || parity(1), || parity(0)),
        ("random, and one for all lanes", random, || all(*random().expose(0))),
    ];
    let found = tests.map(|(name, first, second)| largest_t(name, n, first, second, plain));
    let is_constant = found.into_iter().all(|t| t < T_MAX);
    println!("\n{}", if is_constant { "no dependence found" } else { "TIMES DEPEND ON SECRETS" });
    if control < T_MAX {
        println!("but the control was not found either: this machine is too busy, or MEASUREMENTS too few");
    }
    ExitCode::from(u8::from(!is_constant || control < T_MAX))
}

fn random() -> Scalars {
    Scalars::generate(rand::fill).expect("randomness")
}

fn small(number: u8) -> [u8; 32] {
    let mut octets = [0; 32];
    octets[31] = number;
    octets
}

fn all(number: [u8; 32]) -> Scalars {
    Scalars::from_be_bytes(&[number; LANES]).expect("in range")
}

/// Generates random scalars below 2^255 with the given lowest bit.
fn parity(bit: u8) -> Scalars {
    let mut numbers = [[0; 32]; LANES];
    rand::fill(numbers.as_flattened_mut()).expect("randomness");
    for number in &mut numbers {
        number[0] &= 0x7f;
        number[31] = number[31] & 0xfe | bit;
    }
    numbers[0][1] |= 1; // not all zero
    Scalars::from_be_bytes(&numbers).expect("in range")
}

/// Times `n` passes, each of a random class. Prints t for each percentile and returns the largest absolute value.
fn largest_t(name: &str, n: usize, first: Class, second: Class, pass: impl Fn(&Scalars, bool)) -> f64 {
    let mut coins = vec![0; n];
    rand::fill(&mut coins).expect("randomness");
    let mut times: Vec<(f64, bool)> = Vec::with_capacity(n);
    for coin in coins {
        let is_second = coin & 1 == 1;
        // Both are made, so that what making them leaves in caches is the same.
        let both = [first(), second()];
        let start = Instant::now();
        pass(&both[usize::from(is_second)], is_second);
        times.push((start.elapsed().as_nanos() as f64, is_second));
    }
    times.drain(..n / 20); // of a cold start
    times.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let ts = SHARES.map(|share| welch(&times[..times.len() * share / 100]));
    println!("{name:<32}{}", ts.map(|t| format!("{t:>8.1}")).concat());
    ts.into_iter().map(f64::abs).fold(0.0, f64::max)
}

/// Welch's t between the times of both classes.
fn welch(times: &[(f64, bool)]) -> f64 {
    let [a, b] = [false, true].map(|class| {
        let times = || times.iter().filter(|(_, is_second)| *is_second == class).map(|(time, _)| time);
        let n = times().count() as f64;
        let mean = times().sum::<f64>() / n;
        let variance = times().map(|time| (time - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (mean, variance / n)
    });
    (a.0 - b.0) / (a.1 + b.1).sqrt()
}
