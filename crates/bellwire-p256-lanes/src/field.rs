//! Arithmetic modulo p = 2^256 − 2^224 + 2^192 + 2^96 − 1, in eight lanes at once.
//!
//! A number is five limbs in radix 2^52. It stands for its value times R = 2^260 (Montgomery form). Since 16p < 2^260, a product of
//! numbers below αp and βp is reduced to less than (αβ/16 + 1)p. Three types keep the bounds apart:
//!
//! | type | limbs | value |
//! |---|---|---|
//! | [`Fe`], an operand of products | each in [0, 2^52) | in [0, 5p) |
//! | [`Loose`], a result | signed, below 2^60 in absolute value | given by each formula |
//! | [`Wide`], an unreduced product | ten, signed, below 2^58 in absolute value | of ab: in [0, 25p²) |
//!
//! A `Loose` becomes an `Fe` in two ways. [`Loose::carry`] only propagates carries: the value has to be in [0, 5p). [`Loose::fold`] takes
//! any value from −500p to 500p and leaves one in (0.99p, 2.01p). So a difference is folded, and a product or a sum of them is carried:
//!
//! - a product of two `Fe` is below 25/16p + p < 2.6p;
//! - `ab − cd` is above −1.6p and below 2.6p.
//!
//! In debug builds `carry` panics where a value is not in [0, 5p).

use crate::lanes::{Lanes, MASK_52};

/// Limbs of a number.
pub(crate) const LIMBS: usize = 5;

/// A number as constants are written.
pub(crate) type Number = [u64; LIMBS];

/// The prime.
pub(crate) const P: Number = [0xf_ffff_ffff_ffff, 0x0_0fff_ffff_ffff, 0, 0x0_0010_0000_0000, 0x0_ffff_ffff_0000];
/// R modulo p: one in Montgomery form.
pub(crate) const ONE: Number = [0x10, 0xf_0000_0000_0000, 0xf_ffff_ffff_ffff, 0xf_feff_ffff_ffff, 0xf_ffff];
/// R² modulo p: the factor that brings a number into Montgomery form.
const R_SQUARED: Number = [0x300, 0xf_ffff_fff0_0000, 0xf_fffe_ffff_fffb, 0xf_dfff_ffff_ffff, 0x4ff_ffff];

/// An operand: limbs in [0, 2^52), value in [0, 5p).
#[derive(Clone, Copy)]
pub(crate) struct Fe<V>(pub(crate) [V; LIMBS]);

/// A result: signed limbs below 2^60 in absolute value.
#[derive(Clone, Copy)]
pub(crate) struct Loose<V>(pub(crate) [V; LIMBS]);

/// An unreduced product: ten signed limbs below 2^58 in absolute value.
#[derive(Clone, Copy)]
struct Wide<V>([V; 2 * LIMBS]);

impl<V: Lanes> Fe<V> {
    /// Copies a constant to all lanes.
    #[inline(always)]
    pub(crate) fn splat(proof: V::Proof, limbs: Number) -> Self {
        let mut fe = [V::splat(proof, 0); LIMBS];
        for i in 0..LIMBS {
            fe[i] = V::splat(proof, limbs[i]);
        }
        Self(fe)
    }

    /// Brings a number below 2^256 into Montgomery form. Below 1.1p.
    #[inline(always)]
    pub(crate) fn to_montgomery(self) -> Self {
        (self * Self::splat(self.0[0].proof(), R_SQUARED)).carry()
    }

    /// Returns the number itself, from 0 to p − 1.
    #[inline(always)]
    pub(crate) fn to_canonical(self) -> Self {
        let proof = self.0[0].proof();
        // The product with 1 is at most (5p + (R − 1)p) / R, less than p + 1.
        let number = (self * Self::splat(proof, [1, 0, 0, 0, 0])).carry();
        let mut less = (number - Self::splat(proof, P)).0;
        for i in 0..LIMBS - 1 {
            less[i + 1] = less[i + 1].add(less[i].sar::<52>());
            less[i] = less[i].and(V::splat(proof, MASK_52));
        }
        Self::select(less[LIMBS - 1].negative(), number, Self(less))
    }

    /// Flags the lanes in which a canonical number is 0.
    #[inline(always)]
    pub(crate) fn is_zero(self) -> V::Mask {
        let [a, b, c, d, e] = self.0;
        a.or(b).or(c.or(d)).or(e).equal(V::splat(a.proof(), 0))
    }

    /// Returns `yes` in lanes where the flag is set, and `no` elsewhere.
    #[inline(always)]
    pub(crate) fn select(mask: V::Mask, yes: Self, no: Self) -> Self {
        let mut limbs = no.0;
        for (limb, yes) in limbs.iter_mut().zip(yes.0) {
            *limb = V::select(mask, yes, *limb);
        }
        Self(limbs)
    }

    /// Returns the negative where `sign` is −1, and the number itself where `sign` is 0. Value in (−5p, 5p).
    #[inline(always)]
    pub(crate) fn negate_by(self, sign: V) -> Loose<V> {
        let mut limbs = self.0;
        for limb in &mut limbs {
            *limb = limb.xor(sign).sub(sign);
        }
        Loose(limbs)
    }

    /// Square, below 2.6p: 30 limb products instead of 50.
    #[inline(always)]
    pub(crate) fn square(self) -> Loose<V> {
        self.wide_square().reduce()
    }

    /// `self × b − c × d`, in (−1.6p, 2.6p), by one reduction.
    #[inline(always)]
    pub(crate) fn mul_sub(self, b: Self, c: Self, d: Self) -> Loose<V> {
        c.wide(d).negate().add_product(self, b).reduce()
    }

    /// `self × b − c²`, in (−1.6p, 2.6p), by one reduction.
    #[inline(always)]
    pub(crate) fn mul_sub_square(self, b: Self, c: Self) -> Loose<V> {
        c.wide_square().negate().add_product(self, b).reduce()
    }

    /// Squares `n` times.
    #[inline(always)]
    fn square_times(self, n: u32) -> Self {
        let mut power = self;
        for _ in 0..n {
            power = power.square().carry();
        }
        power
    }

    /// Inverse, by the power p − 2 (Fermat): 255 squares and 13 products. The inverse of 0 is 0.
    #[inline(always)]
    pub(crate) fn invert(self) -> Self {
        // `ones[i]` is the power 2^2^i − 1, whose binary digits are 2^i ones.
        let mut ones = [self; 6];
        for i in 1..6 {
            ones[i] = (ones[i - 1].square_times(1 << (i - 1)) * ones[i - 1]).carry();
        }
        let [_, two, four, eight, sixteen, thirty_two] = ones;
        // p − 2 in hexadecimal: ffffffff 00000001 00000000 00000000 00000000 ffffffff ffffffff fffffffd.
        let mut power = thirty_two;
        let steps = [
            (32, self),
            (128, thirty_two),
            (32, thirty_two),
            (16, sixteen),
            (8, eight),
            (4, four),
            (2, two),
            (2, self),
        ];
        for (squares, factor) in steps {
            power = (power.square_times(squares) * factor).carry();
        }
        power
    }

    #[inline(always)]
    fn wide(self, other: Self) -> Wide<V> {
        Wide([V::splat(self.0[0].proof(), 0); 2 * LIMBS]).add_product(self, other)
    }

    #[inline(always)]
    fn wide_square(self) -> Wide<V> {
        let a = self.0;
        let mut columns = [V::splat(a[0].proof(), 0); 2 * LIMBS];
        for i in 0..LIMBS {
            for j in i + 1..LIMBS {
                columns[i + j] = columns[i + j].madd_lo(a[i], a[j]);
                columns[i + j + 1] = columns[i + j + 1].madd_hi(a[i], a[j]);
            }
        }
        for i in 0..LIMBS {
            // Columns 2i and 2i + 1 hold only products of two different limbs so far, which count twice.
            columns[2 * i] = columns[2 * i].add(columns[2 * i]).madd_lo(a[i], a[i]);
            columns[2 * i + 1] = columns[2 * i + 1].add(columns[2 * i + 1]).madd_hi(a[i], a[i]);
        }
        Wide(columns)
    }
}

/// Product, below 2.6p.
impl<V: Lanes> std::ops::Mul for Fe<V> {
    type Output = Loose<V>;

    #[inline(always)]
    fn mul(self, other: Self) -> Loose<V> {
        self.wide(other).reduce()
    }
}

/// Sum, below 10p. It can be carried only if both terms are known to be smaller.
impl<V: Lanes> std::ops::Add for Fe<V> {
    type Output = Loose<V>;

    #[inline(always)]
    fn add(self, other: Self) -> Loose<V> {
        Loose(self.0) + Loose(other.0)
    }
}

/// Difference, in (−5p, 5p).
impl<V: Lanes> std::ops::Sub for Fe<V> {
    type Output = Loose<V>;

    #[inline(always)]
    fn sub(self, other: Self) -> Loose<V> {
        Loose(self.0) - Loose(other.0)
    }
}

impl<V: Lanes> Wide<V> {
    #[inline(always)]
    fn negate(mut self) -> Self {
        for i in 0..2 * LIMBS {
            self.0[i] = V::splat(self.0[i].proof(), 0).sub(self.0[i]);
        }
        self
    }

    #[inline(always)]
    fn add_product(mut self, a: Fe<V>, b: Fe<V>) -> Self {
        for i in 0..LIMBS {
            for j in 0..LIMBS {
                self.0[i + j] = self.0[i + j].madd_lo(a.0[i], b.0[j]);
                self.0[i + j + 1] = self.0[i + j + 1].madd_hi(a.0[i], b.0[j]);
            }
        }
        self
    }

    /// Montgomery reduction: adds multiples of p until the value is one of R, and divides by R.
    ///
    /// In each of five steps the lowest column, modulo 2^52, is q; p ≡ −1 modulo 2^96, so that adding q·p makes the column a multiple of
    /// 2^52. With X = 2^52, q·p = −q + q·2^44·X + q·2^36·X³ + q·(2^48 − 2^16)·X⁴: the first term leaves the column's carry.
    #[inline(always)]
    fn reduce(self) -> Loose<V> {
        let mut t = self.0;
        let proof = t[0].proof();
        let [mask, shift_44, p3, p4] =
            [V::splat(proof, MASK_52), V::splat(proof, 1 << 44), V::splat(proof, P[3]), V::splat(proof, P[4])];
        for i in 0..LIMBS {
            let q = t[i].and(mask);
            t[i + 1] = t[i + 1].add(t[i].sar::<52>()).madd_lo(q, shift_44);
            t[i + 2] = t[i + 2].add(q.shr::<8>());
            t[i + 3] = t[i + 3].madd_lo(q, p3);
            t[i + 4] = t[i + 4].madd_hi(q, p3).madd_lo(q, p4);
            t[i + 5] = t[i + 5].madd_hi(q, p4);
        }
        Loose([t[5], t[6], t[7], t[8], t[9]])
    }
}

impl<V: Lanes> Loose<V> {
    /// Propagates carries. The value has to be in [0, 5p).
    #[inline(always)]
    pub(crate) fn carry(self) -> Fe<V> {
        let mut limbs = self.0;
        let mask = V::splat(limbs[0].proof(), MASK_52);
        for i in 0..LIMBS - 1 {
            limbs[i + 1] = limbs[i + 1].add(limbs[i].sar::<52>());
            limbs[i] = limbs[i].and(mask);
        }
        debug_assert!(
            {
                let mut top = [0; crate::LANES];
                limbs[LIMBS - 1].store(&mut top);
                top.iter().all(|limb| *limb < 5 << 48)
            },
            "a value is not in [0, 5p)"
        );
        Fe(limbs)
    }

    /// Subtracts a multiple of p. The value has to be in (−500p, 500p); the result is in (0.99p, 2.01p).
    ///
    /// The limbs below the highest are worth less than 2^-40 p. So q = ⌊highest / 2^48⌋ leaves the value minus 2^256·q in
    /// (−0.001p, 1.001p). Since p is 2^256 less about 2^224, p·q instead of 2^256·q adds 2^-23 p at most. One p is kept.
    #[inline(always)]
    pub(crate) fn fold(self) -> Fe<V> {
        let [a, b, c, d, e] = self.0;
        let q = e.sar::<48>().sub(V::splat(a.proof(), 1));
        let top = e.sub(q.shl::<48>()).add(q.shl::<16>());
        Self([a.add(q), b.sub(q.shl::<44>()), c, d.sub(q.shl::<36>()), top]).carry()
    }

    /// Twice the value.
    #[inline(always)]
    pub(crate) fn double(self) -> Self {
        self + self
    }

    /// Half the value modulo p: p is added where it is odd. A value in [0, v·p) becomes one in [0, (v + 1)/2·p).
    #[inline(always)]
    pub(crate) fn halve(self) -> Self {
        let [a, b, c, d, e] = self.0;
        let one = V::splat(a.proof(), 1);
        let odd = a.and(one);
        let [a, b, d] = [a.sub(odd), b.add(odd.shl::<44>()), d.add(odd.shl::<36>())];
        let e = e.add(odd.shl::<48>()).sub(odd.shl::<16>());
        let mut limbs = [a, b, c, d, e];
        for i in 0..LIMBS - 1 {
            let low = limbs[i + 1].and(one).shl::<51>();
            limbs[i] = limbs[i].sar::<1>().add(low);
        }
        limbs[LIMBS - 1] = limbs[LIMBS - 1].sar::<1>();
        Self(limbs)
    }
}

impl<V: Lanes> std::ops::Add for Loose<V> {
    type Output = Self;

    #[inline(always)]
    fn add(mut self, other: Self) -> Self {
        for i in 0..LIMBS {
            self.0[i] = self.0[i].add(other.0[i]);
        }
        self
    }
}

impl<V: Lanes> std::ops::Sub for Loose<V> {
    type Output = Self;

    #[inline(always)]
    fn sub(mut self, other: Self) -> Self {
        for i in 0..LIMBS {
            self.0[i] = self.0[i].sub(other.0[i]);
        }
        self
    }
}
