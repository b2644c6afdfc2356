//! Digits of scalars, and the proof that additions never meet equal or opposite points.

use num_bigint::BigInt;

use super::{Inputs, hex, modulo, on_each_engine, order};
use crate::LANES;
use crate::lanes::Lanes;
use crate::scalar::{GENERATOR_DIGITS, Numbers, OddScalar, PEER_DIGITS, read};

/// Scalars around each digit boundary, at both ends of the range, and those next to which an addition might fail.
fn edges() -> Vec<BigInt> {
    let n = order();
    let mut edges: Vec<BigInt> = (1..=300).map(BigInt::from).collect();
    for bit in (5..256).filter(|bit| bit % 5 == 0 || bit % 7 == 0) {
        edges.extend((-3..=3).map(|near| (BigInt::from(1) << bit) + near));
    }
    edges.extend(edges.clone().iter().map(|edge| &n - edge));
    edges.extend((-1..=1).map(|near| (&n - 1) / 2 + near));
    edges.extend([hex("aaaaaaaa").pow(8), hex("55555555").pow(8)].map(|edge| edge % &n));
    edges
}

/// Signed odd digits of an odd number in the way of Joye and Tunstall, lowest first: by remainders, where the crate reads bits.
fn digits(k: &BigInt, width: usize) -> Vec<i64> {
    let modulus = BigInt::from(2) << width;
    let mut rest = k.clone();
    let digit = |_| {
        let digit = i64::try_from(modulo(&rest, &modulus)).unwrap() - (1 << width);
        rest = (&rest - digit) >> width;
        digit
    };
    let mut digits: Vec<i64> = (0..257_usize.div_ceil(width) - 1).map(digit).collect();
    digits.push(i64::try_from(rest).unwrap());
    digits
}

/// Whether an addition, highest digit first, meets a point that is equal, opposite or infinite.
fn fails(k: &BigInt, width: usize) -> bool {
    let n = order();
    let mut digits = digits(k, width).into_iter().rev();
    let mut sum = BigInt::from(digits.next().unwrap());
    digits.any(|digit| {
        sum = modulo(&(&sum << width), &n);
        let meets = [BigInt::ZERO, modulo(&digit.into(), &n), modulo(&(-digit).into(), &n)].contains(&sum);
        sum = modulo(&(&sum + digit), &n);
        meets
    })
}

/// The one candidate for each negative digit d: n + 2d.
fn candidates(width: usize) -> impl Iterator<Item = BigInt> {
    (1..1_i64 << width).step_by(2).map(|digit| order() - 2 * digit)
}

#[test]
fn additions_never_meet_equal_or_opposite_points() {
    for width in [5, 7] {
        let odd = edges().into_iter().map(|k| if k.bit(0) { k } else { order() - k });
        assert_eq!(odd.chain(candidates(width)).find(|k| fails(k, width)), None, "width {width}");
    }
}

#[test]
fn other_widths_have_one_bad_scalar() {
    for width in [4, 6, 8] {
        let bad: Vec<_> = candidates(width).filter(|k| fails(k, width)).collect();
        assert_eq!(bad.len(), 1, "width {width}");
        assert_eq!(modulo(&bad[0], &(BigInt::from(2) << width)), modulo(&-order(), &(BigInt::from(2) << width)));
    }
}

#[test]
fn digits_make_up_the_scalar() {
    on_each_engine!(digits_of_scalars);
}

fn digits_of_scalars<V: Lanes>(proof: V::Proof) {
    let mut inputs = Inputs(8);
    let mut scalars = edges();
    scalars.extend((0..64).map(|_| (0..4).fold(BigInt::ZERO, |k, _| (k << 64) + inputs.word()) % order()));
    for eight in scalars.chunks(LANES) {
        let k: [&BigInt; LANES] = std::array::from_fn(|lane| eight.get(lane).unwrap_or(&eight[0]));
        let mut words = Numbers::default();
        for (lane, k) in k.iter().enumerate() {
            let (_, bytes) = k.to_bytes_be();
            let mut octets = [0; 32];
            octets[32 - bytes.len()..].copy_from_slice(&bytes);
            read(&octets, &mut words, lane);
        }
        let scalar = OddScalar::<V>::new(proof, &words);
        let (mut peer, mut generator) = (scalar.peer_digits(), scalar.generator_digits());
        let by_5 = signed((0..PEER_DIGITS).map(|_| peer.next::<5, 47>()));
        let by_7 = signed((0..GENERATOR_DIGITS).map(|_| generator.next::<7, 45>()));
        for (lane, k) in k.iter().enumerate() {
            let odd = if k.bit(0) { (*k).clone() } else { order() - *k };
            assert_eq!((by_5[lane][0], by_7[lane][0] > 0), (1, true), "the highest digits of {k:x}");
            let reversed = |digits: &[i64]| digits.iter().rev().copied().collect::<Vec<_>>();
            assert_eq!(reversed(&by_5[lane]), digits(&odd, 5), "{k:x}");
            assert_eq!(reversed(&by_7[lane]), digits(&odd, 7), "{k:x}");
        }
    }
}

/// The digits of each lane, from which odd multiple and which sign they are.
fn signed<V: Lanes>(digits: impl Iterator<Item = (V, V)>) -> [Vec<i64>; LANES] {
    let mut lanes = [const { Vec::new() }; LANES];
    for (number, sign) in digits {
        let mut words = [[0; LANES]; 2];
        number.store(&mut words[0]);
        sign.store(&mut words[1]);
        for (lane, digits) in lanes.iter_mut().enumerate() {
            let odd = 2 * words[0][lane].cast_signed() + 1;
            digits.push(if words[1][lane] == 0 { odd } else { -odd });
        }
    }
    lanes
}
