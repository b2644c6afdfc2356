//! Points of P-256, y² = x³ − 3x + b, in eight lanes at once.
//!
//! The formulas are incomplete: [`Point::add`] is wrong for two equal or opposite points, and no formula handles infinity. The crate's
//! documentation proves that these cases do not occur. Bounds are those of [`field`](crate::field): a folded value is below 2.01p, a
//! carried product below 2.6p.

use crate::field::{Fe, Loose, Number, ONE};
use crate::lanes::Lanes;

/// The coefficient b, in Montgomery form.
const B: Number = [0xd_f622_9c4b_ddfd, 0xc_a884_3090_d89c, 0x2_12ed_6acf_005c, 0x8_3415_a220_abf7, 0xc300_61dd_4874];
/// Coordinates of the generator, in Montgomery form.
pub(crate) const GENERATOR: [Number; 2] = [
    [0x3_0d41_8a91_43c1, 0xc_4fed_b601_79e7, 0x6_2251_075b_a95f, 0x5_c669_fb73_2b77, 0x8905_f76b_5375],
    [0x5_357c_e955_60a8, 0x4_3a19_e45c_ddf2, 0x2_1f32_58b4_ab8e, 0xd_8552_e886_88dd, 0x571f_f18a_5885],
];

/// A point in affine coordinates.
#[derive(Clone, Copy)]
pub(crate) struct Affine<V> {
    pub(crate) x: Fe<V>,
    pub(crate) y: Fe<V>,
}

impl<V: Lanes> Affine<V> {
    /// The generator in all lanes.
    #[inline(always)]
    pub(crate) fn generator(proof: V::Proof) -> Self {
        let [x, y] = GENERATOR;
        Self { x: Fe::splat(proof, x), y: Fe::splat(proof, y) }
    }

    /// Flags the lanes whose coordinates satisfy the equation of the curve.
    #[inline(always)]
    pub(crate) fn is_on_curve(self) -> V::Mask {
        let proof = self.x.0[0].proof();
        let one = Fe::splat(proof, ONE);
        let three = Loose(one.0).double() + Loose(one.0);
        let right = self.x * (Loose(self.x.square().carry().0) - three).fold() + Loose(Fe::splat(proof, B).0);
        (right - self.y.square()).fold().to_canonical().is_zero()
    }

    /// Returns `yes` in lanes where the flag is set, and `no` elsewhere.
    #[inline(always)]
    pub(crate) fn select(mask: V::Mask, yes: Self, no: Self) -> Self {
        Self { x: Fe::select(mask, yes.x, no.x), y: Fe::select(mask, yes.y, no.y) }
    }

    /// Returns `N` odd multiples P, 3P, 5P … of this point P, and z. The multiples are affine points of another curve, isomorphic to
    /// P-256: (x, y) there is (x/z², y/z³) on P-256. So no inversion is needed.
    ///
    /// Co-Z arithmetic (Meloni): P and 2P share their Z; an addition of two points that share Z costs 5 products and 2 squares, and
    /// rescales 2P to the Z of the sum. Each sum's Z is the one before times a difference. The products of the later differences
    /// bring all sums to the last Z. Both coordinates have to be below 2.4p.
    #[inline(always)]
    pub(crate) fn odd_multiples<const N: usize>(self) -> ([Self; N], Fe<V>) {
        let mut multiples = [self; N];
        let mut differences = [self.x; N];
        let (mut twice, mut z);
        (multiples[0], twice, z) = self.double_co_z();
        for i in 1..N {
            let last = multiples[i - 1];
            let dx = (twice.x - last.x).fold();
            let dy = (twice.y - last.y).fold();
            let square = dx.square().carry();
            let (w1, w2) = ((twice.x * square).carry(), last.x * square);
            let a1 = (twice.y * (Loose(w1.0) - w2).fold()).carry();
            let x = (dy.square() - Loose(w1.0) - w2).fold();
            let y = (dy * (w1 - x).fold() - Loose(a1.0)).fold();
            multiples[i] = Self { x, y };
            twice = Self { x: w1, y: a1 };
            differences[i] = dx;
            z = (z * dx).carry();
        }
        let mut factor = differences[N - 1];
        for i in (0..N - 1).rev() {
            let square = factor.square().carry();
            let cube = (square * factor).carry();
            let Self { x, y } = multiples[i];
            multiples[i] = Self { x: (x * square).carry(), y: (y * cube).carry() };
            factor = (factor * differences[i]).carry(); // of no use after the last pass
        }
        (multiples, z)
    }

    /// Returns this point P and 2P, both with Z = z = 2y: P is (4xy², 8y⁴).
    #[inline(always)]
    fn double_co_z(self) -> (Self, Self, Fe<V>) {
        let proof = self.x.0[0].proof();
        let (xx, yy) = (self.x.square(), self.y.square().carry());
        let x = (self.x * yy).double().double().fold();
        let y = yy.square().double().double().double().fold();
        let m = xx - Loose(Fe::splat(proof, ONE).0);
        let m = (m.double() + m).fold();
        let x_twice = (m.square() - Loose(x.0).double()).fold();
        let y_twice = (m * (x - x_twice).fold() - Loose(y.0)).fold();
        (Self { x, y }, Self { x: x_twice, y: y_twice }, Loose(self.y.0).double().carry())
    }
}

/// The affine point (x·f², y·f³). Both coordinates are below 1.3p.
#[inline(always)]
pub(crate) fn scale<V: Lanes>(x: Fe<V>, y: Fe<V>, factor: Fe<V>) -> Affine<V> {
    let square = factor.square().carry();
    let cube = (square * factor).carry();
    Affine { x: (x * square).carry(), y: (y * cube).carry() }
}

/// A point (X/Z², Y/Z³) of a curve isomorphic to P-256.
///
/// The isomorphism is a factor z: on P-256 the point has the same X and Y, and Z·z as its Z. Doubling needs the square of that Z, for the
/// coefficient a = −3 is that of P-256. It is carried along as `zz`; on P-256 itself z is 1.
#[derive(Clone, Copy)]
pub(crate) struct Point<V> {
    pub(crate) x: Fe<V>,
    pub(crate) y: Fe<V>,
    pub(crate) z: Fe<V>,
    /// Square of the Z that the point has on P-256.
    pub(crate) zz: Fe<V>,
}

impl<V: Lanes> Point<V> {
    /// A point of the curve whose isomorphism has the factor `z`.
    #[inline(always)]
    pub(crate) fn new(Affine { x, y }: Affine<V>, z: Fe<V>) -> Self {
        Self { x, y, z: Fe::splat(z.0[0].proof(), ONE), zz: z.square().carry() }
    }

    /// Twice this point, which is not infinity: 5 products and 3 squares. dbl-2001-b of the Explicit-Formulas Database, divided by
    /// two: with λ = 3/2·(X − ZZ)(X + ZZ) and γ = Y², the result is (λ² − 2Xγ, λ(Xγ − X') − γ²) with Z' = YZ.
    ///
    /// X and Y are below 2.6p and ZZ is below 1.7p before and after: X + ZZ < 4.3p.
    #[inline(always)]
    pub(crate) fn double(self) -> Self {
        let Self { x, y, z, zz } = self;
        let gamma = y.square().carry();
        let beta = x * gamma;
        // (2.01p · 4.3p) / 16p + p < 1.6p; three times as much < 4.8p; (4.8p + p) / 2 < 2.9p.
        let lambda = (x - zz).fold() * (x + zz).carry();
        let lambda = (lambda.double() + lambda).halve().carry();
        let x = (lambda.square() - beta.double()).fold();
        let y_next = lambda.mul_sub_square((beta - Loose(x.0)).fold(), gamma).fold();
        // γ < 1.5p and ZZ < 1.7p: ZZ' < 1.2p.
        Self { x, y: y_next, z: (y * z).carry(), zz: (gamma * zz).carry() }
    }

    /// Sum of this point and an affine one of the same curve, which is neither equal nor opposite: 9 products and 3 squares.
    ///
    /// With H = xZ² − X and r = yZ³ − Y, the result is (r² − H³ − 2XH², r(XH² − X') − YH³) with Z' = ZH (madd-2004-hmv of the
    /// Explicit-Formulas Database).
    #[inline(always)]
    pub(crate) fn add(self, other: Affine<V>) -> Self {
        let Self { x, y, z, zz } = self;
        let z_square = z.square().carry();
        let z_cube = (z_square * z).carry();
        let h = (other.x * z_square - Loose(x.0)).fold();
        let r = (other.y * z_cube - Loose(y.0)).fold();
        let h_square = h.square().carry(); // (2.01p)² / 16p + p < 1.3p
        let h_cube = (h_square * h).carry();
        let v = x * h_square;
        let x_next = (r.square() - Loose(h_cube.0) - v.double()).fold();
        let y_next = r.mul_sub((v - Loose(x_next.0)).fold(), y, h_cube).fold();
        Self { x: x_next, y: y_next, z: (z * h).carry(), zz: (zz * h_square).carry() }
    }
}
