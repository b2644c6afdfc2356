//! What a key pair and an agreement cost, eight at a time and one by one: `cargo run --release --example timing`. Both take
//! turns in rounds, so that a busy neighbour slows both; the median round counts.
#![allow(clippy::print_stdout, reason = "the table is the result")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::rand;
use bellwire_multi_buffer::{Accelerator, LANES, Scalars};

const ROUNDS: usize = 21;
const ROUND: Duration = Duration::from_millis(50);

/// A contender: computes eight.
type Eight<'a> = Box<dyn FnMut() + 'a>;

fn main() {
    let Some(accelerator) = Accelerator::detect() else { return println!("this processor cannot") };
    println!("crypto_mb {}, µs for each of eight, median of {ROUNDS} rounds\n", accelerator.version());
    let scalars = Scalars::generate(rand::fill).expect("randomness");
    let peers = accelerator.public_keys(&scalars).expect("public keys");
    let single = PrivateKey::generate(&ECDH_P256).expect("a key");
    let peer = UnparsedPublicKey::new(&ECDH_P256, peers[0]);
    let mut contenders: [(&str, Eight); 5] = [
        (
            "key pair, eight at a time",
            Box::new(|| {
                let scalars = Scalars::generate(rand::fill).expect("randomness");
                black_box(accelerator.public_keys(&scalars));
            }),
        ),
        ("agreement, eight at a time", Box::new(|| drop(black_box(accelerator.agree(&scalars, &peers))))),
        (
            "key pair by AWS-LC",
            Box::new(|| {
                for _ in 0..LANES {
                    let key = PrivateKey::generate(&ECDH_P256).expect("a key");
                    black_box(key.compute_public_key().expect("a public key"));
                }
            }),
        ),
        (
            "agreement by AWS-LC",
            Box::new(|| {
                for _ in 0..LANES {
                    black_box(agree(&single, peer, (), |shared| Ok(shared[0])).expect("a secret"));
                }
            }),
        ),
        (
            "48 random octets by AWS-LC",
            Box::new(|| {
                for _ in 0..LANES {
                    let mut octets = [0; 48];
                    rand::fill(&mut octets).expect("randomness");
                    black_box(octets);
                }
            }),
        ),
    ];
    let mut rounds = vec![Vec::with_capacity(ROUNDS); contenders.len()];
    for _ in 0..ROUNDS {
        for ((_, eight), micros) in contenders.iter_mut().zip(&mut rounds) {
            let (began, mut n) = (Instant::now(), 0);
            while began.elapsed() < ROUND {
                eight();
                n += LANES as u32;
            }
            micros.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(n));
        }
    }
    for ((name, _), micros) in contenders.iter().zip(&mut rounds) {
        micros.sort_by(f64::total_cmp);
        println!("{name:<28} {:>8.2}   best {:>8.2}", micros[ROUNDS / 2], micros[0]);
    }
}
