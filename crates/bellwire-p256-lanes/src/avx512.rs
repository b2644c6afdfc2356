//! The operations as instructions of AVX-512 F and IFMA.
//!
//! All `unsafe` code of the crate is here and has one justification: an instruction is used only with evidence that the processor has
//! it. [`Proof`] is that evidence. It is made by [`Proof::detect`] alone, and every vector is made from a `Proof` or another vector.

#![allow(unsafe_code, reason = "see above")]

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m512i, __mmask8, _mm512_add_epi64, _mm512_and_si512, _mm512_cmpeq_epi64_mask, _mm512_cmplt_epi64_mask,
    _mm512_loadu_epi64, _mm512_madd52hi_epu64, _mm512_madd52lo_epu64, _mm512_mask_blend_epi64, _mm512_or_si512,
    _mm512_permutex2var_epi64, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_slli_epi64, _mm512_srai_epi64,
    _mm512_srli_epi64, _mm512_storeu_epi64, _mm512_sub_epi64, _mm512_xor_si512,
};

use crate::COMB;
use crate::comb::Comb;
use crate::exchange::{self, Input, PassOutput, wipe_stack};
use crate::lanes::{LANES, Lanes};

/// Evidence that the processor and the operating system support AVX-512 F and IFMA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof(());

impl Proof {
    /// Detects the instructions.
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512ifma")).then_some(Self(()))
    }
}

/// Runs a pass.
///
/// # Panics
/// Without AVX-512 F and IFMA.
pub(crate) fn run(input: &Input<'_>, output: &mut PassOutput) {
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn comb(proof: Proof) -> Comb {
        Comb::compute::<Avx512>(proof)
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)] // its frame of 31 KiB is below, where it is wiped
    fn pass(proof: Proof, comb: &Comb, input: &Input<'_>, output: &mut PassOutput) {
        exchange::run::<Avx512>(proof, comb, input, output);
    }

    let proof = Proof::detect().expect("the engine was detected");
    // SAFETY: the proof is evidence of the features.
    let comb = COMB.get_or_init(|| unsafe { comb(proof) });
    // SAFETY: the proof is evidence of the features.
    unsafe { pass(proof, comb, input, output) }
    wipe_stack::<5_120>();
}

/// One register.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512i);

/// Defines operations of two vectors, each of which is one instruction.
macro_rules! instructions {
    ($($operation:ident = $instruction:ident),*) => {$(
        #[inline(always)]
        fn $operation(self, other: Self) -> Self {
            // SAFETY: a vector is evidence of the features.
            Self(unsafe { $instruction(self.0, other.0) })
        }
    )*};
}

/// Defines shifts by a constant.
macro_rules! shifts {
    ($($operation:ident = $instruction:ident),*) => {$(
        #[inline(always)]
        fn $operation<const N: u32>(self) -> Self {
            // SAFETY: a vector is evidence of the features.
            Self(unsafe { $instruction::<N>(self.0) })
        }
    )*};
}

impl Lanes for Avx512 {
    type Proof = Proof;
    type Mask = __mmask8;

    instructions! {
        add = _mm512_add_epi64, sub = _mm512_sub_epi64,
        and = _mm512_and_si512, or = _mm512_or_si512, xor = _mm512_xor_si512
    }

    shifts! { shl = _mm512_slli_epi64, shr = _mm512_srli_epi64, sar = _mm512_srai_epi64 }

    #[inline(always)]
    fn proof(self) -> Proof {
        Proof(())
    }

    #[inline(always)]
    fn load(_: Proof, words: &[u64; LANES]) -> Self {
        // SAFETY: the proof is evidence of the features; the reference is valid for 64 octets, and the load may be unaligned.
        Self(unsafe { _mm512_loadu_epi64(words.as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, words: &mut [u64; LANES]) {
        // SAFETY: a vector is evidence of the features; the reference is valid for 64 octets, and the store may be unaligned.
        unsafe { _mm512_storeu_epi64(words.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn splat(_: Proof, word: u64) -> Self {
        // SAFETY: the proof is evidence of the features.
        Self(unsafe { _mm512_set1_epi64(word.cast_signed()) })
    }

    #[inline(always)]
    fn madd_lo(self, a: Self, b: Self) -> Self {
        // SAFETY: a vector is evidence of the features.
        Self(unsafe { _mm512_madd52lo_epu64(self.0, a.0, b.0) })
    }

    #[inline(always)]
    fn madd_hi(self, a: Self, b: Self) -> Self {
        // SAFETY: a vector is evidence of the features.
        Self(unsafe { _mm512_madd52hi_epu64(self.0, a.0, b.0) })
    }

    #[inline(always)]
    fn equal(self, other: Self) -> __mmask8 {
        // SAFETY: a vector is evidence of the features.
        unsafe { _mm512_cmpeq_epi64_mask(self.0, other.0) }
    }

    #[inline(always)]
    fn negative(self) -> __mmask8 {
        // SAFETY: a vector is evidence of the features.
        unsafe { _mm512_cmplt_epi64_mask(self.0, _mm512_setzero_si512()) }
    }

    #[inline(always)]
    fn select(mask: __mmask8, yes: Self, no: Self) -> Self {
        // SAFETY: a vector is evidence of the features.
        Self(unsafe { _mm512_mask_blend_epi64(mask, no.0, yes.0) })
    }

    #[inline(always)]
    fn bits(mask: __mmask8) -> u8 {
        mask
    }

    #[inline(always)]
    fn pick(self, low: Self, high: Self) -> Self {
        // SAFETY: a vector is evidence of the features.
        Self(unsafe { _mm512_permutex2var_epi64(low.0, self.0, high.0) })
    }
}
