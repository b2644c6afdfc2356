//! The generator's table: of 37 digits of 7 bits, the 64 odd multiples 1·2^7i·G, 3·2^7i·G … 127·2^7i·G. 185 KiB.
//!
//! It is computed at first use, by the code that it serves.

use crate::curve::{Affine, Point, scale};
use crate::field::{Fe, LIMBS, ONE};
use crate::lanes::{LANES, Lanes};
use crate::scalar::GENERATOR_DIGITS;

/// Multiples for one digit.
const MULTIPLES: usize = 64;
/// Passes that compute the multiples for eight digits each.
const GROUPS: usize = GENERATOR_DIGITS.div_ceil(LANES);

/// Limbs of x and of y of one digit's multiples: each a list of 64 words in the order of the multiples.
type Digit = [[u64; MULTIPLES]; 2 * LIMBS];

/// The table.
pub(crate) struct Comb {
    digits: Box<[Digit]>,
    /// Whether each entry is a point on the curve. A wrong computation of an entry almost certainly gives a point off the
    /// curve.
    pub(crate) is_on_curve: bool,
}

impl Comb {
    /// Computes the table.
    #[inline(always)]
    pub(crate) fn compute<V: Lanes>(proof: V::Proof) -> Self {
        let mut table = vec![[[0; MULTIPLES]; 2 * LIMBS]; GENERATOR_DIGITS].into_boxed_slice();
        let mut is_on_curve = true;
        let mut power = Point::<V>::new(Affine::generator(proof), Fe::splat(proof, ONE));
        for group in 0..GROUPS {
            // Lane i gets 2^7(8·group + i)·G. The last group has more lanes than digits are left.
            let mut powers = [[[0; LANES]; LIMBS]; 3];
            for lane in 0..LANES {
                for (limbs, coordinate) in powers.iter_mut().zip([power.x, power.y, power.z]) {
                    put(limbs, lane, coordinate);
                }
                for _ in 0..7 {
                    power = power.double();
                }
            }
            let [x, y, z] = powers.each_ref().map(|limbs| get::<V>(proof, limbs));
            let (multiples, z) = to_affine(x, y, z).odd_multiples::<MULTIPLES>();
            let inverse = z.invert();
            for (at, multiple) in multiples.into_iter().enumerate() {
                let multiple @ Affine { x, y } = scale(multiple.x, multiple.y, inverse);
                is_on_curve &= V::bits(multiple.is_on_curve()) == u8::MAX;
                for (limb, vector) in x.0.into_iter().chain(y.0).enumerate() {
                    let mut words = [0; LANES];
                    vector.store(&mut words);
                    let digits = table[LANES * group..].iter_mut().zip(words);
                    digits.for_each(|(digit, word)| digit[limb][at] = word);
                }
            }
        }
        Self { digits: table, is_on_curve }
    }

    /// Returns in each lane the multiple with this number, from 0 to 63. It always reads all 5 KiB of the digit, so that no
    /// address depends on a number.
    #[inline(always)]
    pub(crate) fn look_up<V: Lanes>(&self, digit: usize, number: V) -> Affine<V> {
        let proof = number.proof();
        let quarter = number.shr::<4>();
        let mut limbs = [number; 2 * LIMBS];
        for (limb, words) in self.digits[digit].iter().enumerate() {
            let (vectors, _) = words.as_chunks::<LANES>();
            let mut found = number.pick(V::load(proof, &vectors[0]), V::load(proof, &vectors[1]));
            for i in 1..4 {
                let picked = number.pick(V::load(proof, &vectors[2 * i]), V::load(proof, &vectors[2 * i + 1]));
                found = V::select(quarter.equal(V::splat(proof, i as u64)), picked, found);
            }
            limbs[limb] = found;
        }
        let [a, b, c, d, e, f, g, h, i, j] = limbs;
        Affine { x: Fe([a, b, c, d, e]), y: Fe([f, g, h, i, j]) }
    }
}

/// The affine point (x/z², y/z³).
#[inline(always)]
fn to_affine<V: Lanes>(x: Fe<V>, y: Fe<V>, z: Fe<V>) -> Affine<V> {
    scale(x, y, z.invert())
}

/// Copies the first lane of a number to another lane of an array.
fn put<V: Lanes>(limbs: &mut [[u64; LANES]; LIMBS], lane: usize, number: Fe<V>) {
    for (limb, vector) in limbs.iter_mut().zip(number.0) {
        let mut words = [0; LANES];
        vector.store(&mut words);
        limb[lane] = words[0];
    }
}

/// Reads a number from an array.
fn get<V: Lanes>(proof: V::Proof, limbs: &[[u64; LANES]; LIMBS]) -> Fe<V> {
    let mut number = Fe::splat(proof, [0; LIMBS]);
    for (vector, words) in number.0.iter_mut().zip(limbs) {
        *vector = V::load(proof, words);
    }
    number
}
