//! Vectors of eight 64-bit words, one word for each lane, and the operations on them that the arithmetic needs.
//!
//! All formulas of the crate are generic over [`Lanes`]. [`Portable`] states in plain Rust what each operation means and runs on every
//! processor; `Avx512` is one instruction for each operation. Tests compare the two word by word.

/// Number of lanes: computations in one pass.
pub const LANES: usize = 8;

/// Low 52 bits of a word.
pub(crate) const MASK_52: u64 = (1 << 52) - 1;

/// Eight words. Every operation acts on each lane separately, in a time that does not depend on the words.
///
/// Implementations and all generic functions over this trait are `#[inline(always)]`: the compiler then merges them into the
/// one function that enables the instructions.
pub(crate) trait Lanes: Copy {
    /// Evidence that the processor has the instructions. Vectors are created from it, and are evidence themselves.
    type Proof: Copy;
    /// One flag for each lane.
    type Mask: Copy;

    /// Returns the evidence.
    fn proof(self) -> Self::Proof;
    /// Reads one word for each lane.
    fn load(proof: Self::Proof, words: &[u64; LANES]) -> Self;
    /// Writes one word for each lane.
    fn store(self, words: &mut [u64; LANES]);
    /// Copies one word to all lanes.
    fn splat(proof: Self::Proof, word: u64) -> Self;

    /// `self + other` modulo 2^64.
    fn add(self, other: Self) -> Self;
    /// `self − other` modulo 2^64.
    fn sub(self, other: Self) -> Self;
    /// Bitwise and.
    fn and(self, other: Self) -> Self;
    /// Bitwise or.
    fn or(self, other: Self) -> Self;
    /// Bitwise exclusive or.
    fn xor(self, other: Self) -> Self;
    /// Shifts left by `N` < 64 bits.
    fn shl<const N: u32>(self) -> Self;
    /// Shifts right by `N` < 64 bits and fills with zeros.
    fn shr<const N: u32>(self) -> Self;
    /// Shifts right by `N` < 64 bits and fills with the sign.
    fn sar<const N: u32>(self) -> Self;
    /// Adds bits 0 to 51 of the product of the low 52 bits of `a` and of `b`.
    fn madd_lo(self, a: Self, b: Self) -> Self;
    /// Adds bits 52 to 103 of the product of the low 52 bits of `a` and of `b`.
    fn madd_hi(self, a: Self, b: Self) -> Self;

    /// Flags the lanes whose words are equal.
    fn equal(self, other: Self) -> Self::Mask;
    /// Flags the lanes whose words are negative as signed numbers.
    fn negative(self) -> Self::Mask;
    /// Returns `yes` in lanes where the flag is set, and `no` elsewhere.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
    /// Returns the flags, that of lane 0 in bit 0.
    fn bits(mask: Self::Mask) -> u8;
    /// Returns, in each lane, one of the sixteen words of `low` and `high`, selected by the low four bits of `self`.
    fn pick(self, low: Self, high: Self) -> Self;
}

/// The operations in plain Rust, as function calls: inlined into one function, eight lanes of plain Rust take minutes to
/// compile.
#[derive(Clone, Copy)]
pub(crate) struct Portable([u64; LANES]);

impl Portable {
    #[inline(always)]
    fn map(self, f: impl Fn(u64) -> u64) -> Self {
        Self(self.0.map(f))
    }

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|lane| f(self.0[lane], other.0[lane])))
    }

    /// Product of the low 52 bits.
    #[inline(always)]
    fn product(a: u64, b: u64) -> u128 {
        u128::from(a & MASK_52) * u128::from(b & MASK_52)
    }
}

impl Lanes for Portable {
    type Proof = ();
    /// All bits of a word set, or none.
    type Mask = [u64; LANES];

    #[inline(never)]
    fn proof(self) -> Self::Proof {}

    #[inline(never)]
    fn load((): (), words: &[u64; LANES]) -> Self {
        Self(*words)
    }

    #[inline(never)]
    fn store(self, words: &mut [u64; LANES]) {
        *words = self.0;
    }

    #[inline(never)]
    fn splat((): (), word: u64) -> Self {
        Self([word; LANES])
    }

    #[inline(never)]
    fn add(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_add)
    }

    #[inline(never)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_sub)
    }

    #[inline(never)]
    fn and(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    #[inline(never)]
    fn or(self, other: Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    #[inline(never)]
    fn xor(self, other: Self) -> Self {
        self.zip(other, |a, b| a ^ b)
    }

    #[inline(never)]
    fn shl<const N: u32>(self) -> Self {
        self.map(|a| a << N)
    }

    #[inline(never)]
    fn shr<const N: u32>(self) -> Self {
        self.map(|a| a >> N)
    }

    #[inline(never)]
    fn sar<const N: u32>(self) -> Self {
        self.map(|a| (a.cast_signed() >> N).cast_unsigned())
    }

    #[inline(never)]
    fn madd_lo(self, a: Self, b: Self) -> Self {
        self.add(a.zip(b, |a, b| Self::product(a, b) as u64 & MASK_52))
    }

    #[inline(never)]
    fn madd_hi(self, a: Self, b: Self) -> Self {
        self.add(a.zip(b, |a, b| (Self::product(a, b) >> 52) as u64))
    }

    #[inline(never)]
    fn equal(self, other: Self) -> Self::Mask {
        self.zip(other, |a, b| u64::from(a == b).wrapping_neg()).0
    }

    #[inline(never)]
    fn negative(self) -> Self::Mask {
        self.sar::<63>().0
    }

    #[inline(never)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        Self(std::array::from_fn(|lane| yes.0[lane] & mask[lane] | no.0[lane] & !mask[lane]))
    }

    #[inline(never)]
    fn bits(mask: Self::Mask) -> u8 {
        mask.iter().rev().fold(0, |bits, flag| bits << 1 | (flag & 1) as u8)
    }

    #[inline(never)]
    fn pick(self, low: Self, high: Self) -> Self {
        let words = || low.0.into_iter().chain(high.0).zip(0..);
        self.map(|index| words().fold(0, |found, (word, at)| found | word & u64::from(index & 15 == at).wrapping_neg()))
    }
}
