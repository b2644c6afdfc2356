//! Each operation as an instruction does what it does in plain Rust.

use super::Inputs;
use crate::LANES;
use crate::avx512::{Avx512, Proof};
use crate::lanes::{Lanes, Portable};

const EDGES: [u64; 9] = [0, 1, (1 << 51) - 1, 1 << 51, (1 << 52) - 1, 1 << 52, u64::MAX >> 1, 1 << 63, u64::MAX];

/// The results of every operation on three vectors.
fn results<V: Lanes>(proof: V::Proof, words: &[[u64; LANES]; 3]) -> (Vec<[u64; LANES]>, Vec<u8>) {
    let [a, b, c] = words.each_ref().map(|words| V::load(proof, words));
    let vectors = [
        a.add(b),
        a.sub(b),
        a.and(b),
        a.or(b),
        a.xor(b),
        a.shl::<1>(),
        a.shl::<52>(),
        a.shr::<1>(),
        a.shr::<52>(),
        a.sar::<1>(),
        a.sar::<52>(),
        a.sar::<63>(),
        a.madd_lo(b, c),
        a.madd_hi(b, c),
        a.pick(b, c),
        V::select(a.equal(b), b, c),
        V::select(a.negative(), b, c),
        V::splat(a.proof(), words[0][3]),
    ];
    let stored = vectors.map(|vector| {
        let mut words = [0; LANES];
        vector.store(&mut words);
        words
    });
    (stored.to_vec(), vec![V::bits(a.equal(b)), V::bits(a.negative()), V::bits(b.equal(b))])
}

#[test]
fn instructions_do_what_plain_rust_does() {
    let Some(proof) = Proof::detect() else { return eprintln!("NOT TESTED: this processor has no AVX-512 IFMA") };
    let mut inputs = Inputs(1);
    for _ in 0..20_000 {
        let words = std::array::from_fn(|_| inputs.lanes(&EDGES));
        assert_eq!(results::<Avx512>(proof, &words), results::<Portable>((), &words), "{words:x?}");
    }
}

#[test]
fn plain_rust_multiplies_52_bits() {
    let load = |word| Portable::load((), &[word; LANES]);
    let word = |vector: Portable| {
        let mut words = [0; LANES];
        vector.store(&mut words);
        words[0]
    };
    let (a, b) = (0xf_edcb_a987_6543_u64, 0x8_1234_5678_9abc_u64);
    let product = u128::from(a) * u128::from(b);
    // Bits above the 52nd do not take part.
    let (high_a, high_b) = (load(a | 0xabc << 52), load(b | 1 << 63));
    assert_eq!(word(load(7).madd_lo(high_a, high_b)), 7 + (product as u64 & 0xf_ffff_ffff_ffff));
    assert_eq!(word(load(7).madd_hi(high_a, high_b)), 7 + (product >> 52) as u64);
    assert_eq!(word(load(u64::MAX).sar::<5>()), u64::MAX);
    assert_eq!(Portable::bits(Portable::load((), &[0, 1 << 63, 1, 0, 0, 0, 0, u64::MAX]).negative()), 0b1000_0010);
}
