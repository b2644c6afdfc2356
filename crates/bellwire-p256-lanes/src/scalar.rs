//! Private scalars, and their digits.

use std::fmt;

use zeroize::Zeroizing;

use crate::field::{LIMBS, Loose, Number};
use crate::lanes::{LANES, Lanes, MASK_52};

/// The order of the curve, in limbs.
const ORDER: Number = [0x9_cac2_fc63_2551, 0xa_da71_79e8_4f3b, 0xf_ffff_ffbc_e6fa, 0xf_ffff_ffff, 0xffff_ffff_0000];
/// The order of the curve, lowest word first.
const ORDER_WORDS: [u64; 4] =
    [0xf3b9_cac2_fc63_2551, 0xbce6_faad_a717_9e84, 0xffff_ffff_ffff_ffff, 0xffff_ffff_0000_0000];

/// Digits of 5 bits, which multiply a peer's point.
pub(crate) const PEER_DIGITS: usize = 52;
/// Digits of 7 bits, which multiply the generator.
pub(crate) const GENERATOR_DIGITS: usize = 37;

/// Eight numbers of 256 bits: for each of four words, lowest first, the words of all lanes.
pub(crate) type Numbers = [[u64; LANES]; 4];

/// Eight private scalars, each from 1 to the order of the curve less 1. Wiped when dropped; a move leaves no copy.
pub struct Scalars(Box<Zeroizing<Numbers>>);

impl Scalars {
    /// Draws scalars from `fill`, which fills a buffer from a cryptographic generator. A number out of range, one in 2^32, is drawn
    /// again.
    pub fn generate<E>(mut fill: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        let mut octets = Zeroizing::new([[0; 32]; LANES]);
        fill(octets.as_flattened_mut())?;
        let mut scalars = Self(Box::default());
        for (lane, number) in octets.iter_mut().enumerate() {
            while !is_scalar(number) {
                fill(number)?;
            }
            read(number, &mut scalars.0, lane);
        }
        Ok(scalars)
    }

    /// Reads scalars, highest octet first. `None` if a number is out of range.
    pub fn from_be_bytes(numbers: &[[u8; 32]; LANES]) -> Option<Self> {
        let mut scalars = Self(Box::default());
        for (lane, number) in numbers.iter().enumerate() {
            read(number, &mut scalars.0, lane);
        }
        numbers.iter().all(is_scalar).then_some(scalars)
    }

    /// Returns the secret scalar of one lane, highest octet first.
    ///
    /// # Panics
    /// If `lane` is not below [`LANES`].
    pub fn expose(&self, lane: usize) -> Zeroizing<[u8; 32]> {
        let mut octets = Zeroizing::new([0; 32]);
        write(&self.0, lane, &mut octets);
        octets
    }

    /// The words of all scalars.
    pub(crate) fn words(&self) -> &Numbers {
        &self.0
    }
}

impl fmt::Debug for Scalars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scalars(…)")
    }
}

/// Reads a number, highest octet first, into one lane.
pub(crate) fn read(octets: &[u8; 32], numbers: &mut Numbers, lane: usize) {
    for (words, octets) in numbers.iter_mut().zip(octets.as_chunks().0.iter().rev()) {
        words[lane] = u64::from_be_bytes(*octets);
    }
}

/// Writes the number of one lane, highest octet first.
pub(crate) fn write(numbers: &Numbers, lane: usize, octets: &mut [u8; 32]) {
    for (words, octets) in numbers.iter().zip(octets.as_chunks_mut().0.iter_mut().rev()) {
        *octets = words[lane].to_be_bytes();
    }
}

/// Tests in constant time whether a number, highest octet first, is less than another, given as words, lowest first.
pub(crate) fn is_below(number: &[u8; 32], bound: &[u64; 4]) -> bool {
    let words = number.as_chunks().0.iter().rev();
    words.zip(bound).fold(false, |borrow, (octets, bound)| u64::from_be_bytes(*octets).borrowing_sub(*bound, borrow).1)
}

/// Tests whether a number is from 1 to the order minus 1, in constant time except for the result.
fn is_scalar(number: &[u8; 32]) -> bool {
    number.iter().fold(0, |all, octet| all | octet) != 0 && is_below(number, &ORDER_WORDS)
}

/// Reads eight numbers into limbs.
#[inline(always)]
pub(crate) fn to_limbs<V: Lanes>(proof: V::Proof, numbers: &Numbers) -> [V; LIMBS] {
    let mask = V::splat(proof, MASK_52);
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| V::load(proof, &numbers[i]));
    [
        a.and(mask),
        a.shr::<52>().or(b.shl::<12>()).and(mask),
        b.shr::<40>().or(c.shl::<24>()).and(mask),
        c.shr::<28>().or(d.shl::<36>()).and(mask),
        d.shr::<16>(),
    ]
}

/// Writes limbs of eight numbers below 2^256.
#[inline(always)]
pub(crate) fn from_limbs<V: Lanes>([a, b, c, d, e]: [V; LIMBS], numbers: &mut Numbers) {
    a.or(b.shl::<52>()).store(&mut numbers[0]);
    b.shr::<12>().or(c.shl::<40>()).store(&mut numbers[1]);
    c.shr::<24>().or(d.shl::<28>()).store(&mut numbers[2]);
    d.shr::<36>().or(e.shl::<16>()).store(&mut numbers[3]);
}

/// An odd scalar, equal to the given one up to its sign.
pub(crate) struct OddScalar<V> {
    limbs: [V; LIMBS],
    /// −1 where the given scalar k was even and was replaced by n − k; 0 elsewhere.
    pub(crate) sign: V,
}

impl<V: Lanes> OddScalar<V> {
    /// Returns k where it is odd, and n − k elsewhere.
    #[inline(always)]
    pub(crate) fn new(proof: V::Proof, scalars: &Numbers) -> Self {
        let k = to_limbs::<V>(proof, scalars);
        let sign = k[0].and(V::splat(proof, 1)).sub(V::splat(proof, 1));
        let mut order = k;
        for i in 0..LIMBS {
            order[i] = V::splat(proof, ORDER[i]);
        }
        let negative = (Loose(order) - Loose(k)).carry().0;
        let mut limbs = k;
        for i in 0..LIMBS {
            limbs[i] = k[i].xor(k[i].xor(negative[i]).and(sign));
        }
        Self { limbs, sign }
    }

    /// The digits by which a peer's point is multiplied: 52 of 5 bits.
    #[inline(always)]
    pub(crate) fn peer_digits(&self) -> Digits<V> {
        let [a, b, c, d, e] = self.limbs;
        let mask = V::splat(a.proof(), MASK_52);
        let halve = |low: V, high: V| low.shr::<1>().or(high.shl::<51>()).and(mask);
        let top = V::splat(a.proof(), 1 << 51);
        Digits([halve(a, b), halve(b, c), halve(c, d), halve(d, e), e.shr::<1>().or(top)])
    }

    /// The digits by which the generator is multiplied: 37 of 7 bits, one bit less than there is room for.
    #[inline(always)]
    pub(crate) fn generator_digits(&self) -> Digits<V> {
        let [a, b, c, d, e] = self.limbs;
        let one = V::splat(a.proof(), 1);
        Digits([a.xor(one), b, c, d, e.or(V::splat(a.proof(), 1 << 51))])
    }
}

/// The signed odd digits of a scalar, highest first: the 260 bits c of (k + 2^L − 1)/2, where L is the number of digits times their
/// width w. The digit of w bits c is 2c − (2^w − 1).
pub(crate) struct Digits<V>([V; LIMBS]);

impl<V: Lanes> Digits<V> {
    /// Takes the highest digit of `WIDTH` bits; `REST` is 52 less the width. Returns which odd multiple it is, from 0 for 1 to
    /// 2^(`WIDTH` − 1) − 1, and its sign: −1 where it is negative, else 0.
    #[inline(always)]
    pub(crate) fn next<const WIDTH: u32, const REST: u32>(&mut self) -> (V, V) {
        const { assert!(WIDTH + REST == 52) };
        let proof = self.0[0].proof();
        let mask = V::splat(proof, MASK_52);
        let digit = self.0[LIMBS - 1].shr::<REST>();
        for i in (1..LIMBS).rev() {
            self.0[i] = self.0[i].shl::<WIDTH>().or(self.0[i - 1].shr::<REST>()).and(mask);
        }
        self.0[0] = self.0[0].shl::<WIDTH>().and(mask);
        // A set top bit makes the digit positive: 2(c − 2^(w−1)) + 1. Without it, it is −(2(2^(w−1) − 1 − c) + 1).
        let sign = digit.shl::<REST>().shr::<51>().sub(V::splat(proof, 1));
        (digit.xor(sign).and(V::splat(proof, (1 << (WIDTH - 1)) - 1)), sign)
    }
}
