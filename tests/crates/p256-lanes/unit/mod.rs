//! Tests of private parts: on plain Rust everywhere, and on AVX-512 IFMA where the processor has it.

mod curve;
mod field;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod scalar;

use num_bigint::{BigInt, Sign};

use crate::LANES;
use crate::field::{Fe, LIMBS, Loose};
use crate::lanes::{Lanes, MASK_52};

/// Calls a generic test for each implementation of vectors.
macro_rules! on_each_engine {
    ($test:ident) => {{
        $test::<crate::lanes::Portable>(());
        #[cfg(target_arch = "x86_64")]
        match crate::avx512::Proof::detect() {
            Some(proof) => $test::<crate::avx512::Avx512>(proof),
            None => eprintln!("NOT TESTED: this processor has no AVX-512 IFMA"),
        }
    }};
}
use on_each_engine;

/// A generator of test inputs, the same in each run (SplitMix64).
struct Inputs(u64);

impl Inputs {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// One of the edges, or a random word up to the highest edge.
    fn edge(&mut self, edges: &[u64]) -> u64 {
        let above = edges.iter().max().unwrap().checked_add(1);
        match self.word() as usize % (edges.len() + 2) {
            at if at < edges.len() => edges[at],
            _ => above.map_or(self.word(), |above| self.word() % above),
        }
    }

    /// Words for eight lanes.
    fn lanes(&mut self, edges: &[u64]) -> [u64; LANES] {
        std::array::from_fn(|_| self.edge(edges))
    }

    /// An operand whose limbs are at the bounds of what is allowed.
    fn fe<V: Lanes>(&mut self, proof: V::Proof) -> Fe<V> {
        let low = [0, 1, 1 << 51, MASK_52 - 1, MASK_52];
        let top = [0, 1, 1 << 48, (5 << 48) - (5 << 16) - 1];
        Fe(std::array::from_fn(|i| V::load(proof, &self.lanes(if i < LIMBS - 1 { &low } else { &top }))))
    }
}

fn hex(digits: &str) -> BigInt {
    BigInt::parse_bytes(digits.replace(' ', "").as_bytes(), 16).unwrap()
}

fn prime() -> BigInt {
    hex("ffffffff 00000001 00000000 00000000 00000000 ffffffff ffffffff ffffffff")
}

fn order() -> BigInt {
    hex("ffffffff 00000000 ffffffff ffffffff bce6faad a7179e84 f3b9cac2 fc632551")
}

/// The remainder from 0 to `modulus` − 1.
fn modulo(number: &BigInt, modulus: &BigInt) -> BigInt {
    ((number % modulus) + modulus) % modulus
}

/// The values of eight numbers of signed limbs.
fn values<V: Lanes>(Loose(limbs): Loose<V>) -> [BigInt; LANES] {
    let mut words = [[0; LANES]; LIMBS];
    limbs.iter().zip(&mut words).for_each(|(limb, words)| limb.store(words));
    std::array::from_fn(|lane| {
        words.iter().rev().fold(BigInt::ZERO, |sum, limb| (sum << 52) + BigInt::from(limb[lane].cast_signed()))
    })
}

/// The numbers that eight Montgomery forms stand for.
fn numbers<V: Lanes>(fe: Fe<V>) -> [BigInt; LANES] {
    values(Loose(fe.to_canonical().0))
}

/// Eight numbers below 2^260 as limbs.
fn limbs<V: Lanes>(proof: V::Proof, numbers: &[BigInt; LANES]) -> Fe<V> {
    Fe(std::array::from_fn(|i| {
        let word = |number: &BigInt| {
            let limb: BigInt = (number >> (52 * i)) & BigInt::from(MASK_52);
            limb.to_u64_digits().1.first().copied().unwrap_or(0)
        };
        V::load(proof, &numbers.each_ref().map(word))
    }))
}

fn is_between(value: &BigInt, (low, high): (i32, i32)) -> bool {
    let p = prime();
    assert!(p.sign() == Sign::Plus);
    &p * low < value * 100 && value * 100 < p * high
}
