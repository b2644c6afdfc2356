//! P-256 in eight lanes: eight key pairs and agreements (ECDH) in one pass of AVX-512 IFMA, in a time that depends on no secret.
//!
//! # How to review
//!
//! | module | what it computes | depends on |
//! |---|---|---|
//! | `lanes` | operations on eight words, in plain Rust | |
//! | `avx512` | the same operations as instructions; all `unsafe` code | `lanes` |
//! | `field` | arithmetic modulo p in radix 2^52, Montgomery form, with bounds | `lanes` |
//! | `curve` | doubling, addition, odd multiples | `field` |
//! | `comb` | the generator's table | `curve` |
//! | `scalar` | private scalars and their signed odd digits | `lanes` |
//! | `exchange` | one pass | all of these |
//!
//! # Method
//!
//! A scalar k is written in signed odd digits. For an odd k < 2^L, every bit of (k + 2^L − 1)/2 gives a digit ±1, and the L of them make
//! up k: Σ ±2^i. w of them in a row make one odd digit from −(2^w − 1) to 2^w − 1. So no digit is zero, every scalar has the same number of
//! digits, and recoding is a shift. An even k is replaced by n − k, which is odd since n is, and the result is negated.
//!
//! - The peer's point P is multiplied by 52 digits of w = 5 bits (L = 260), highest first: five doublings, then the addition of one of
//!   16 odd multiples ±P, ±3P … ±31P.
//! - The generator G is multiplied by 37 digits of w = 7 bits (L = 259), highest first, without doublings: for each digit i the table
//!   has the 64 odd multiples of 2^7i·G.
//!
//! Both products are divided by their Z with one shared inversion.
//!
//! # Additions never meet equal or opposite points
//!
//! The formula for additions is wrong for the sum of two equal or opposite points, and for infinity. Let n be the order of the
//! curve, a prime, and k the odd scalar, 0 < k < n < 2^256. Write d_i for its digits and A_i = Σ_{j>i} d_j·2^(w(j−i−1)) for the part
//! above digit i. An addition at digit i adds d_i·2^(wi) to 2^w·A_i·2^(wi), times G; or the same without the factors 2^(wi), times P. As
//! 2^(wi) is invertible modulo n and the order of G and P is n, it fails if and only if
//!
//! > 2^w·A_i ≡ 0, or 2^w·A_i ≡ ±d_i (mod n).
//!
//! 1. The digits above i are those of an odd number: A_i = ⌊k / 2^(w(i+1))⌋, with the lowest bit set. So 1 ≤ A_i, and as integers
//!    |d_i| < 2^w ≤ 2^w·A_i. Neither 2^w·A_i nor 2^w·A_i ± d_i is 0.
//! 2. For i ≥ 1, 2^w·A_i + |d_i| < 2^w·(A_i + 1) ≤ 2^(256−w) + 2^w < 2^252 < n. No multiple of n is met.
//! 3. For i = 0, 2^w·A_0 + d_0 = k, which is not a multiple of n. 2^w·A_0 = k − d_0 is below 2n, and is not n, as n is odd.
//! 4. There remains 2^w·A_0 − d_0 = k − 2d_0, which is less than 2n and thus a multiple of n only if k = n + 2d_0, with d_0 < 0. Digits
//!    have d_0 ≡ k + 2^w (mod 2^(w+1)). Both together give k ≡ n + 2k, so k ≡ −n and d_0 ≡ 2^w − n (mod 2^(w+1)). A negative d_0 is
//!    (−n mod 2^(w+1)) − 2^w, so bit w of −n has to be 0. **Bits 5 and 7 of −n are 1**: no scalar fails with w = 5 or w = 7. Bits 4, 6 and
//!    8 are 0: with those widths one scalar fails.
//!
//! Multiples A·P with 0 < A < n are finite, and no point has order 2: doublings never fail. The odd multiples are sums 2P + jP with odd j
//! from 1 to 29 or 125, and neither j − 2 nor j + 2 is a multiple of n. The sum k·P is finite, because n does not divide k.
//!
//! # Secrets
//!
//! No branch and no address depends on a scalar or an intermediate value. Tables are read as a whole, and masks select the entry. Scalars,
//! results and the stack of a pass are wiped. A peer's point that is invalid is replaced by the generator and reported; a peer's key is no
//! secret.
//!
//! # Trust
//!
//! `tests/` compares both engines with AWS-LC at random and at the edges, with Project Wycheproof's vectors and with RFC 8291, the
//! arithmetic with big integers at its bounds, and the additions' partial sums with the proof. `examples/constant_time.rs`
//! looks for times that depend on secrets. A caller asks [`Engine::knows_answers`] before the first use, and recomputes one lane of some
//! thousand passes by another library.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod comb;
mod curve;
mod exchange;
mod field;
mod lanes;
mod scalar;
mod self_check;
#[cfg(test)]
#[path = "../../../tests/crates/p256-lanes/unit/mod.rs"]
mod tests;

use std::array::from_fn;
use std::sync::OnceLock;

use zeroize::Zeroizing;

use comb::Comb;
use exchange::{Input, PassOutput, wipe_stack};
pub use lanes::LANES;
use lanes::Portable;
pub use scalar::Scalars;
use scalar::{Numbers, is_below, read, write};

/// The prime of the field, lowest word first.
const P: [u64; 4] = [0xffff_ffff_ffff_ffff, 0x0000_0000_ffff_ffff, 0, 0xffff_ffff_0000_0001];

/// The generator's table, the same for both engines.
static COMB: OnceLock<Comb> = OnceLock::new();

/// Eight public keys, and the secrets that their scalars share with eight peers.
pub struct Exchange {
    /// Public keys, as uncompressed points (SEC 1 section 2.3.3).
    pub public: [[u8; 65]; LANES],
    /// Shared secrets (SEC 1 section 3.3.1). `None` where the peer's key is not the uncompressed form of a point on the curve.
    pub shared: Box<[Option<Zeroizing<[u8; 32]>>; LANES]>,
}

/// An implementation of passes.
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    name: &'static str,
    run: fn(&Input<'_>, &mut PassOutput),
}

impl Engine {
    /// Returns the engine for this processor. `None` without AVX-512 IFMA.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Option<Self> {
        avx512::Proof::detect().map(|_| Self { name: "AVX-512 IFMA", run: avx512::run })
    }

    /// Returns `None`: only x86-64 has AVX-512 IFMA.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> Option<Self> {
        None
    }

    /// Returns the engine in plain Rust, which runs on every processor. It is slower than AWS-LC one at a time, and serves tests.
    pub fn portable() -> Self {
        Self { name: "plain Rust", run: portable }
    }

    /// Tests whether every lane computes known agreements, and whether all entries of the generator's table are points on the
    /// curve. Call it before the first use.
    pub fn knows_answers(self) -> bool {
        self_check::passes(self) && COMB.get().is_some_and(|comb| comb.is_on_curve)
    }

    /// Returns the name for logs.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Computes the public keys of eight private scalars, and the secrets that they share with eight peers' public keys.
    ///
    /// The first call computes the generator's table.
    pub fn exchange(self, scalars: &Scalars, peers: &[[u8; 65]; LANES]) -> Exchange {
        let mut input = Input { scalars: scalars.words(), peers: [Numbers::default(); 2] };
        let mut in_range = [false; LANES];
        for (lane, peer) in peers.iter().enumerate() {
            let (form, coordinates) = (peer[0], peer[1..].as_chunks().0);
            in_range[lane] = form == 4 && coordinates.iter().all(|number| is_below(number, &P));
            if in_range[lane] {
                let numbers = input.peers.iter_mut().zip(coordinates);
                numbers.for_each(|(numbers, number)| read(number, numbers, lane));
            }
        }
        let mut output = Box::<Zeroizing<PassOutput>>::default();
        (self.run)(&input, &mut output);
        Exchange { public: from_fn(|lane| point(&output.public, lane)), shared: secrets(&output, in_range) }
    }
}

/// Runs a pass in plain Rust.
fn portable(input: &Input<'_>, output: &mut PassOutput) {
    #[inline(never)] // its frame is below, where it is wiped
    fn pass(comb: &Comb, input: &Input<'_>, output: &mut PassOutput) {
        exchange::run::<Portable>((), comb, input, output);
    }
    pass(COMB.get_or_init(|| Comb::compute::<Portable>(())), input, output);
    wipe_stack::<24_576>();
}

/// The uncompressed form of one lane's point.
fn point(coordinates: &[Numbers; 2], lane: usize) -> [u8; 65] {
    let mut point = [4; 65];
    let octets = point[1..].as_chunks_mut().0;
    coordinates.iter().zip(octets).for_each(|(numbers, octets)| write(numbers, lane, octets));
    point
}

/// The secrets of the lanes whose peers are points on the curve. They are written in place, so that no copy is left.
fn secrets(output: &PassOutput, in_range: [bool; LANES]) -> Box<[Option<Zeroizing<[u8; 32]>>; LANES]> {
    let mut secrets: Box<[Option<Zeroizing<[u8; 32]>>; LANES]> = Box::default();
    for (lane, secret) in secrets.iter_mut().enumerate() {
        if in_range[lane] && output.on_curve >> lane & 1 == 1 {
            write(&output.shared, lane, secret.insert(Zeroizing::new([0; 32])));
        }
    }
    secrets
}
