//! One pass: eight key pairs and agreements.

use zeroize::Zeroize;

use crate::comb::Comb;
use crate::curve::{Affine, Point, scale};
use crate::field::{Fe, ONE};
use crate::lanes::Lanes;
use crate::scalar::{GENERATOR_DIGITS, Numbers, OddScalar, PEER_DIGITS, from_limbs, to_limbs};

/// Input of a pass.
pub(crate) struct Input<'a> {
    /// Private scalars, from 1 to the order less 1.
    pub(crate) scalars: &'a Numbers,
    /// Coordinates x and y of the peers' points, each below p.
    pub(crate) peers: [Numbers; 2],
}

/// Output of a pass.
#[derive(Default)]
pub(crate) struct PassOutput {
    /// Coordinates x and y of the public keys.
    pub(crate) public: [Numbers; 2],
    /// The secrets. Not to be used where the peer's point is not on the curve.
    pub(crate) shared: Numbers,
    /// Bit i is set if the peer's point of lane i is on the curve.
    pub(crate) on_curve: u8,
}

impl Zeroize for PassOutput {
    fn zeroize(&mut self) {
        self.shared.zeroize();
    }
}

/// Computes the public keys of eight scalars and the secrets they share with eight peers. A point that is not on the curve is
/// replaced by the generator.
#[inline(always)]
pub(crate) fn run<V: Lanes>(proof: V::Proof, comb: &Comb, input: &Input<'_>, output: &mut PassOutput) {
    let scalar = OddScalar::<V>::new(proof, input.scalars);
    let [x, y] = [&input.peers[0], &input.peers[1]].map(|numbers| Fe(to_limbs::<V>(proof, numbers)).to_montgomery());
    let peer = Affine { x, y };
    let on_curve = peer.is_on_curve();
    output.on_curve = V::bits(on_curve);
    let peer = Affine::select(on_curve, peer, Affine::generator(proof));

    let public = multiply_generator(comb, &scalar);
    let shared = multiply_peer(peer, &scalar);
    // 1/Z of the public key and 1/Z² of the secret from the inverse of their product. Neither is 0: neither point is infinite.
    let inverse = (public.z * shared.zz).carry().invert();
    let affine = scale(public.x, public.y, (inverse * shared.zz).carry());
    // The secret is the same for k and n − k, whose products differ in the sign of y.
    let secret = (shared.x * (inverse * public.z).carry()).carry();
    let y = affine.y.negate_by(scalar.sign).fold();
    from_limbs(affine.x.to_canonical().0, &mut output.public[0]);
    from_limbs(y.to_canonical().0, &mut output.public[1]);
    from_limbs(secret.to_canonical().0, &mut output.shared);
}

/// Multiplies the generator: a sum of one table entry for each digit, without doublings. The highest digit comes first, as the
/// proof for the additions requires.
#[inline(always)]
fn multiply_generator<V: Lanes>(comb: &Comb, scalar: &OddScalar<V>) -> Point<V> {
    let mut digits = scalar.generator_digits();
    let (number, _) = digits.next::<7, 45>(); // the highest is positive
    let one = Fe::splat(number.proof(), ONE);
    let mut sum = Point::new(comb.look_up(GENERATOR_DIGITS - 1, number), one);
    for at in (0..GENERATOR_DIGITS - 1).rev() {
        let (number, sign) = digits.next::<7, 45>();
        let Affine { x, y } = comb.look_up(at, number);
        sum = sum.add(Affine { x, y: y.negate_by(sign).fold() });
    }
    sum
}

/// Multiplies the peers' points: five doublings and an addition for each digit.
#[inline(always)]
fn multiply_peer<V: Lanes>(peer: Affine<V>, scalar: &OddScalar<V>) -> Point<V> {
    let (multiples, z) = peer.odd_multiples::<16>();
    let mut digits = scalar.peer_digits();
    digits.next::<5, 47>(); // the highest is 1
    let mut product = Point::new(multiples[0], z);
    for _ in 1..PEER_DIGITS {
        for _ in 0..5 {
            product = product.double();
        }
        let (number, sign) = digits.next::<5, 47>();
        let Affine { x, y } = look_up(&multiples, number);
        product = product.add(Affine { x, y: y.negate_by(sign).fold() });
    }
    product
}

/// Returns in each lane the multiple with this number. It always reads all multiples, so that no address depends on a number.
#[inline(always)]
fn look_up<V: Lanes>(multiples: &[Affine<V>; 16], number: V) -> Affine<V> {
    let mut found = multiples[0];
    for (at, multiple) in multiples.iter().enumerate().skip(1) {
        let is_it = number.equal(V::splat(number.proof(), at as u64));
        found = Affine::select(is_it, *multiple, found);
    }
    found
}

/// Overwrites `WORDS` words of the stack below the caller's frame: more than the frame of a pass, which left secrets there.
///
/// No language construct guarantees that the frames of two calls overlap. They do in practice, and a test checks it.
#[inline(never)]
pub(crate) fn wipe_stack<const WORDS: usize>() {
    std::hint::black_box(&mut [0_u64; WORDS]);
}
