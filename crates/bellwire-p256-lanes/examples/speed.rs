//! Measures the CPU time of a key pair with an agreement, in eight lanes and one at a time by AWS-LC, and that of computing the
//! generator's table. `cargo run --release -p bellwire-p256-lanes --example speed`
//!
//! The implementations alternate in rounds, so that other load slows both; the median round counts. Without AVX-512 IFMA, plain
//! Rust is measured instead, which is slower than AWS-LC.
#![allow(clippy::print_stdout, reason = "the table is the result")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::rand;
use bellwire_p256_lanes::{Engine, LANES, Scalars};

const ROUNDS: usize = 21;
const ROUND: Duration = Duration::from_millis(50);

/// An implementation: computes eight key pairs and agreements.
type Eight<'a> = Box<dyn FnMut() + 'a>;

fn main() {
    let start = Instant::now();
    let engine = Engine::detect().unwrap_or_else(Engine::portable);
    let scalars = Scalars::generate(rand::fill).expect("randomness");
    let peers = engine.exchange(&scalars, &[[0; 65]; LANES]).public;
    println!("{}: table, known answers and first pass in {:?}", engine.name(), start.elapsed());
    let mut contenders: [(&str, Eight); 2] = [
        (
            "eight lanes",
            Box::new(|| {
                let scalars = Scalars::generate(rand::fill).expect("randomness");
                black_box(engine.exchange(&scalars, &peers));
            }),
        ),
        (
            "AWS-LC, one at a time",
            Box::new(|| {
                for peer in &peers {
                    let key = PrivateKey::generate(&ECDH_P256).expect("a key");
                    black_box(key.compute_public_key().expect("a public key"));
                    let peer = UnparsedPublicKey::new(&ECDH_P256, peer);
                    black_box(agree(&key, peer, (), |shared| Ok(shared[0])).expect("a secret"));
                }
            }),
        ),
    ];
    let mut rounds = vec![Vec::with_capacity(ROUNDS); contenders.len()];
    for _ in 0..ROUNDS {
        for ((_, eight), micros) in contenders.iter_mut().zip(&mut rounds) {
            let (start, mut n) = (Instant::now(), 0);
            while start.elapsed() < ROUND {
                eight();
                n += LANES as u32;
            }
            micros.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(n));
        }
    }
    println!("\nµs for one key pair and agreement, median of {ROUNDS} rounds\n");
    for ((name, _), micros) in contenders.iter().zip(&mut rounds) {
        micros.sort_by(f64::total_cmp);
        println!("{name:<28} {:>8.2}   best {:>8.2}", micros[ROUNDS / 2], micros[0]);
    }
}
