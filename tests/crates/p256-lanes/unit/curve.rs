//! Points against affine arithmetic on big integers.

use num_bigint::BigInt;

use super::{Inputs, hex, limbs, modulo, numbers, on_each_engine, prime};
use crate::LANES;
use crate::comb::Comb;
use crate::curve::{Affine, Point, scale};
use crate::field::{Fe, ONE};
use crate::lanes::Lanes;

type Pair = (BigInt, BigInt);

fn generator() -> Pair {
    (
        hex("6b17d1f2 e12c4247 f8bce6e5 63a440f2 77037d81 2deb33a0 f4a13945 d898c296"),
        hex("4fe342e2 fe1a7f9b 8ee7eb4a 7c0f9e16 2bce3357 6b315ece cbb64068 37bf51f5"),
    )
}

/// The sum of two points, neither opposite nor infinite.
fn sum((x1, y1): &Pair, (x2, y2): &Pair) -> Pair {
    let p = prime();
    let over = |a: BigInt, b: BigInt| a * modulo(&b, &p).modinv(&p).unwrap();
    let slope = if x1 == x2 { over(x1 * x1 * 3 - 3, y1 * 2) } else { over(y2 - y1, x2 - x1) };
    let x = modulo(&(&slope * &slope - x1 - x2), &p);
    let y = modulo(&(slope * (x1 - &x) - y1), &p);
    (x, y)
}

fn multiple(mut n: u64, point: &Pair) -> Pair {
    let (mut power, mut found) = (point.clone(), None);
    while n > 0 {
        if n & 1 == 1 {
            found = Some(found.map_or_else(|| power.clone(), |found| sum(&found, &power)));
        }
        power = sum(&power, &power);
        n >>= 1;
    }
    found.unwrap()
}

/// Random multiples of the generator.
fn points(inputs: &mut Inputs) -> [Pair; LANES] {
    std::array::from_fn(|_| multiple(inputs.word() >> 48 | 1 << 16, &generator()))
}

fn load<V: Lanes>(proof: V::Proof, points: &[Pair; LANES]) -> Affine<V> {
    let x = limbs(proof, &points.each_ref().map(|(x, _)| x.clone())).to_montgomery();
    Affine { x, y: limbs(proof, &points.each_ref().map(|(_, y)| y.clone())).to_montgomery() }
}

fn pairs<V: Lanes>(x: Fe<V>, y: Fe<V>, z: Fe<V>) -> [Pair; LANES] {
    let Affine { x, y } = scale(x, y, z.invert());
    let (x, y) = (numbers(x), numbers(y));
    std::array::from_fn(|i| (x[i].clone(), y[i].clone()))
}

#[test]
fn doubling_and_addition_agree_with_affine_ones() {
    on_each_engine!(doubling_and_addition);
}

fn doubling_and_addition<V: Lanes>(proof: V::Proof) {
    let mut inputs = Inputs(5);
    for _ in 0..3 {
        let (p, q) = (points(&mut inputs), points(&mut inputs));
        let one = Fe::<V>::splat(proof, ONE);
        let found = Point::new(load(proof, &p), one).double().double().add(load(proof, &q)).double();
        let wanted = |i: usize| multiple(2, &sum(&multiple(4, &p[i]), &q[i]));
        assert_eq!(pairs(found.x, found.y, found.z), std::array::from_fn(wanted));
        assert_eq!(numbers(found.z.square().carry()), numbers(found.zz));
    }
}

#[test]
fn odd_multiples_share_one_curve() {
    on_each_engine!(odd_multiples);
}

fn odd_multiples<V: Lanes>(proof: V::Proof) {
    let p = points(&mut Inputs(6));
    let (multiples, z) = load::<V>(proof, &p).odd_multiples::<64>();
    for (at, Affine { x, y }) in multiples.into_iter().enumerate().filter(|(at, _)| at % 9 < 2) {
        assert_eq!(pairs(x, y, z), p.each_ref().map(|p| multiple(2 * at as u64 + 1, p)), "{at}");
    }
    // On that curve, with a coefficient of its own, doubling goes on right.
    let found = Point::new(multiples[1], z).double().double().add(multiples[3]);
    assert_eq!(pairs(found.x, found.y, (found.z * z).carry()), p.each_ref().map(|p| multiple(19, p)));
    assert_eq!(numbers((found.z * z).carry().square().carry()), numbers(found.zz));
}

#[test]
fn points_off_the_curve_are_found() {
    on_each_engine!(off_the_curve);
}

fn off_the_curve<V: Lanes>(proof: V::Proof) {
    let mut p = points(&mut Inputs(7));
    assert_eq!(V::bits(load::<V>(proof, &p).is_on_curve()), 0xff);
    p[1].0 += 1;
    p[4].1 = &p[4].1 - 1;
    p[7] = (BigInt::ZERO, BigInt::ZERO);
    p[2].1 = prime() - &p[2].1; // the opposite point
    assert_eq!(V::bits(load::<V>(proof, &p).is_on_curve()), 0b0110_1101);
}

#[test]
fn the_table_holds_multiples_of_the_generator() {
    on_each_engine!(table);
}

fn table<V: Lanes>(proof: V::Proof) {
    let comb = Comb::compute::<V>(proof);
    let mut power = generator();
    let one = Fe::splat(proof, ONE);
    for digit in 0..37 {
        if digit % 9 == 0 {
            // 0 and 63 are the ends, and the others lie around the vectors that they are read by.
            let at = [0, 7, 8, 15, 16, 31, 48, 63];
            let Affine { x, y } = comb.look_up(digit, V::load(proof, &at));
            assert_eq!(pairs(x, y, one), at.map(|at| multiple(2 * at + 1, &power)), "digit {digit}");
        }
        power = multiple(128, &power);
    }
}
