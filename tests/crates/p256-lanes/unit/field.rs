//! The arithmetic modulo p against big integers, with limbs at the bounds of what is allowed.

use num_bigint::BigInt;

use super::{Inputs, hex, is_between, limbs, modulo, numbers, on_each_engine, prime, values};
use crate::LANES;
use crate::field::{Fe, LIMBS, Loose, ONE, P};
use crate::lanes::{Lanes, MASK_52};

const CASES: usize = 2_000;

/// R, the factor of Montgomery forms.
fn r() -> BigInt {
    BigInt::from(1) << 260
}

/// Expects `found` times R to be `wanted` modulo p in each lane, and `found` within hundredths of p.
fn expect<V: Lanes>(found: Loose<V>, wanted: impl Fn(usize) -> BigInt, bounds: (i32, i32)) {
    let p = prime();
    for (lane, found) in values(found).iter().enumerate() {
        assert_eq!(modulo(&(found * r()), &p), modulo(&wanted(lane), &p));
        assert!(is_between(found, bounds), "{found:x}");
    }
}

#[test]
fn products_are_right_at_the_bounds() {
    on_each_engine!(products);
}

fn products<V: Lanes>(proof: V::Proof) {
    let mut inputs = Inputs(2);
    for _ in 0..CASES / LANES {
        let [a, b, c, d]: [Fe<V>; 4] = std::array::from_fn(|_| inputs.fe(proof));
        let [va, vb, vc, vd] = [a, b, c, d].map(|fe| values(Loose(fe.0)));
        expect(a * b, |i| &va[i] * &vb[i], (-1, 260));
        expect(a.square(), |i| &va[i] * &va[i], (-1, 260));
        expect(a.mul_sub(b, c, d), |i| &va[i] * &vb[i] - &vc[i] * &vd[i], (-160, 260));
        expect(a.mul_sub_square(b, c), |i| &va[i] * &vb[i] - &vc[i] * &vc[i], (-160, 260));
    }
    // All limbs at their highest: no column is greater. 25/16 p come from the product, the rest is what reduction adds.
    let top = [MASK_52, MASK_52, MASK_52, MASK_52, (5 << 48) - (5 << 16) - 1];
    let (highest, zero) = (Fe::<V>::splat(proof, top), Fe::<V>::splat(proof, [0; LIMBS]));
    let [value, ..] = values(Loose(highest.0));
    expect(highest * highest, |_| &value * &value, (150, 260));
    expect(highest.square(), |_| &value * &value, (150, 260));
    expect(zero.mul_sub(zero, highest, highest), |_| -&value * &value, (-160, 0));
    expect(zero.mul_sub_square(highest, highest), |_| -&value * &value, (-160, 0));
}

#[test]
fn folding_keeps_the_residue() {
    on_each_engine!(folding);
}

fn folding<V: Lanes>(proof: V::Proof) {
    let mut inputs = Inputs(3);
    let p = prime();
    let signed = |words: [u64; LANES], sign: u64| words.map(|word| if sign == 0 { word } else { word.wrapping_neg() });
    for _ in 0..CASES {
        // Up to 2^60 in absolute value below, and up to 490p on top.
        let low = [0, 1, MASK_52, (1 << 60) - 1];
        let top = [0, 1, 1 << 48, 490 << 48];
        let loose = Loose::<V>(std::array::from_fn(|i| {
            let words = inputs.lanes(if i < LIMBS - 1 { &low } else { &top });
            V::load(proof, &signed(words, inputs.word() & 1))
        }));
        let before = values(loose);
        for (before, after) in before.iter().zip(values(Loose(loose.fold().0))) {
            assert_eq!(modulo(before, &p), modulo(&after, &p));
            assert!(is_between(&after, (99, 201)), "{before:x} becomes {after:x}");
        }
    }
}

#[test]
fn halving_and_carrying_keep_the_residue() {
    on_each_engine!(halving);
}

fn halving<V: Lanes>(proof: V::Proof) {
    let mut inputs = Inputs(4);
    let p = prime();
    for _ in 0..CASES / LANES {
        let (a, b) = (inputs.fe::<V>(proof), inputs.fe::<V>(proof));
        let half = values(Loose((a * b).halve().carry().0));
        for (product, half) in values(a * b).iter().zip(&half) {
            assert_eq!(modulo(&(half * 2), &p), modulo(product, &p));
            assert!(is_between(half, (-1, 180)));
        }
        let (difference, va, vb) = (values(a - b), values(Loose(a.0)), values(Loose(b.0)));
        assert!((0..LANES).all(|i| difference[i] == &va[i] - &vb[i]));
        let sign = V::load(proof, &[0, u64::MAX, 0, u64::MAX, 0, u64::MAX, 0, u64::MAX]);
        let negated = values(a.negate_by(sign));
        assert!((0..LANES).all(|i| negated[i] == if i % 2 == 0 { va[i].clone() } else { -&va[i] }));
    }
}

#[test]
fn forms_convert_and_invert() {
    on_each_engine!(conversions);
}

fn conversions<V: Lanes>(proof: V::Proof) {
    let p = prime();
    let edges: [BigInt; LANES] = [
        BigInt::ZERO,
        BigInt::from(1),
        &p - 1,
        p.clone(),
        &p + 1,
        (&p - 1) / 2,
        (BigInt::from(1) << 256) - 1,
        hex("123456789abcdef 0fedcba987654321"),
    ];
    let fe = limbs::<V>(proof, &edges).to_montgomery();
    let (found, inverses) = (numbers(fe), numbers(fe.invert()));
    for (lane, edge) in edges.iter().enumerate() {
        assert_eq!(found[lane], modulo(edge, &p));
        assert_eq!(inverses[lane], edge.modpow(&(&p - 2), &p));
    }
    assert_eq!(V::bits(fe.to_canonical().is_zero()), 0b1001);
    // Multiples of p are 0, and the number next to the bound is what it is.
    let multiples: [BigInt; LANES] = std::array::from_fn(|i| &p * i.min(4) + usize::from(i > 4));
    let wanted = multiples.each_ref().map(|number| modulo(&(number * r().modinv(&p).unwrap()), &p));
    assert_eq!(numbers(limbs::<V>(proof, &multiples)), wanted);
    assert_eq!(values(Loose(Fe::<V>::splat(proof, P).0))[0], p);
    assert_eq!(values(Loose(Fe::<V>::splat(proof, ONE).0))[0], r() % p);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a value is not in [0, 5p)")]
fn a_negative_value_is_not_carried() {
    let one = Fe::<crate::lanes::Portable>::splat((), ONE);
    let _ = (Loose(Fe::splat((), [0; LIMBS]).0) - Loose(one.0)).carry();
}
