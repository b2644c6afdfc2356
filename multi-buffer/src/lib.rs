//! P-256 eight at a time: key pairs and agreements (ECDH) in one pass of AVX-512 IFMA, by `crypto_mb` of Intel's Cryptography
//! Primitives Library, whose time does not depend on secrets.
//!
//! What a caller passes is checked here: scalars are in their range, coordinates too, and the library says of each point whether
//! it is on the curve. The cofactor of P-256 is one, so that nothing else is left to check (SP 800-56A section 5.6.2.3).

#[cfg(target_arch = "x86_64")]
mod ffi;

use std::array::from_fn;
use std::fmt;
use std::sync::OnceLock;

use zeroize::Zeroizing;

/// How many are computed in one pass.
pub const LANES: usize = 8;

/// A number of 256 bits, the lowest word first.
type Words = [u64; 4];

/// The prime of the field.
const P: Words = [0xffff_ffff_ffff_ffff, 0x0000_0000_ffff_ffff, 0, 0xffff_ffff_0000_0001];
/// The order of the curve, less two. A private number is less than that: the order less two itself is the one number for which
/// the library's last addition is a doubling, which crypto_mb 2.3.0 does not see with some points (it compares with zero what may
/// be the prime). The order less one is not missed either: whoever draws 2^256 numbers misses two.
const TOP: Words = [0xf3b9_cac2_fc63_254f, 0xbce6_faad_a717_9e84, 0xffff_ffff_ffff_ffff, 0xffff_ffff_0000_0000];
/// The generator stands in where a point cannot be used.
const G: [Words; 2] = [
    [0xf4a1_3945_d898_c296, 0x7703_7d81_2deb_33a0, 0xf8bc_e6e5_63a4_40f2, 0x6b17_d1f2_e12c_4247],
    [0xcbb6_4068_37bf_51f5, 0x2bce_3357_6b31_5ece, 0x8ee7_eb4a_7c0f_9e16, 0x4fe3_42e2_fe1a_7f9b],
];

/// Eight private numbers, each from 1 to the order of the curve less three. Wiped when dropped; moving them leaves no copy.
pub struct Scalars(Box<Zeroizing<[Words; LANES]>>);

impl Scalars {
    /// Draws them from `fill`, which has to fill a buffer from a cryptographic generator. What is out of range, one in 2^32, is
    /// drawn again.
    pub fn generate<E>(mut fill: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        let mut octets = Zeroizing::new([0; 32 * LANES]);
        fill(&mut *octets)?;
        let mut scalars = Self(Box::default());
        for (words, octets) in scalars.0.iter_mut().zip(octets.as_chunks_mut().0) {
            read(octets, words);
            while !in_range(words) {
                fill(octets)?;
                read(octets, words);
            }
        }
        Ok(scalars)
    }

    /// Takes given ones, the highest octet first. None: one of them is out of range.
    pub fn from_be_bytes(numbers: &[[u8; 32]; LANES]) -> Option<Self> {
        let mut scalars = Self(Box::default());
        for (words, number) in scalars.0.iter_mut().zip(numbers) {
            read(number, words);
        }
        scalars.0.iter().all(in_range).then_some(scalars)
    }

    /// One of them, the highest octet first. A secret.
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn expose(&self, lane: usize) -> Zeroizing<[u8; 32]> {
        let mut octets = Zeroizing::new([0; 32]);
        write(&self.0[lane], &mut octets);
        octets
    }
}

impl fmt::Debug for Scalars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scalars(…)")
    }
}

/// A processor that can. There is one, or none.
#[derive(Debug)]
pub struct Accelerator(());

impl Accelerator {
    /// Whether this processor can, and the library for it.
    pub fn detect() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Accelerator>> = OnceLock::new();
        FOUND.get_or_init(Self::find).as_ref()
    }

    #[cfg(target_arch = "x86_64")]
    fn find() -> Option<Self> {
        // All that the library's AVX-512 code is compiled for. On AVX-IFMA without AVX-512 it has other code, which was not tried.
        let can = is_x86_feature_detected!("avx512ifma")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512cd")
            && is_x86_feature_detected!("bmi2");
        if !can || ffi::widths() & LANES as u64 == 0 {
            return None;
        }
        // The library looks for its code at each function's first call, and writes down where without a lock: so that call is
        // made here, before anybody else's.
        let (found, ones) = (Self(()), Scalars(Box::new(Zeroizing::new([[1, 0, 0, 0]; LANES]))));
        let points = found.public_keys(&ones)?;
        found.agree(&ones, &points).iter().all(Option::is_some).then_some(found)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn find() -> Option<Self> {
        None
    }

    /// The library's version: `2.3.0`.
    pub fn version(&self) -> String {
        #[cfg(target_arch = "x86_64")]
        {
            let ffi::Version { major, minor, patch } = ffi::version();
            format!("{major}.{minor}.{patch}")
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("it was not detected")
    }

    /// The public keys of eight private ones, as uncompressed points (SEC 1 section 2.3.3). None: the library failed.
    pub fn public_keys(&self, scalars: &Scalars) -> Option<[[u8; 65]; LANES]> {
        let (mut x, mut y) = ([[0; 4]; LANES], [[0; 4]; LANES]);
        let status = self.multiply_generator(scalars, &mut x, &mut y);
        (status == 0).then(|| {
            from_fn(|lane| {
                let mut point = [4; 65];
                let (_, coordinates) = point.split_first_chunk_mut::<1>().expect("65 octets");
                let [first, second] = coordinates.as_chunks_mut().0 else { unreachable!("64 octets") };
                write(&x[lane], first);
                write(&y[lane], second);
                point
            })
        })
    }

    /// The secrets that eight private keys share with eight public ones: the first coordinate of their product (SEC 1 section
    /// 3.3.1). None where a public key is not the uncompressed form of a point on the curve; the others are none the worse.
    pub fn agree(&self, scalars: &Scalars, peers: &[[u8; 65]; LANES]) -> [Option<Zeroizing<[u8; 32]>>; LANES] {
        let (mut x, mut y) = ([G[0]; LANES], [G[1]; LANES]);
        let are_numbers: [bool; LANES] = from_fn(|lane| match coordinates(&peers[lane]) {
            Some([first, second]) => {
                (x[lane], y[lane]) = (first, second);
                true
            }
            None => false,
        });
        let mut shared = Zeroizing::new([[0; 32]; LANES]);
        let status = self.multiply(scalars, &x, &y, &mut shared);
        from_fn(|lane| {
            let is_point = are_numbers[lane] && (status >> (4 * lane)) & 0xf == 0;
            is_point.then(|| Zeroizing::new(shared[lane]))
        })
    }

    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "see below")]
    fn multiply_generator(&self, scalars: &Scalars, x: &mut [Words; LANES], y: &mut [Words; LANES]) -> u32 {
        // SAFETY: `self` is only made where the processor can.
        unsafe { ffi::public_keys(&scalars.0, x, y) }
    }

    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "see below")]
    fn multiply(
        &self,
        scalars: &Scalars,
        x: &[Words; LANES],
        y: &[Words; LANES],
        shared: &mut [[u8; 32]; LANES],
    ) -> u32 {
        // SAFETY: `self` is only made where the processor can.
        unsafe { ffi::agree(&scalars.0, x, y, shared) }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn multiply_generator(&self, _: &Scalars, _: &mut [Words; LANES], _: &mut [Words; LANES]) -> u32 {
        unreachable!("it was not detected")
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn multiply(&self, _: &Scalars, _: &[Words; LANES], _: &[Words; LANES], _: &mut [[u8; 32]; LANES]) -> u32 {
        unreachable!("it was not detected")
    }
}

/// The coordinates of an uncompressed point, if both are numbers of the field. Whether it is on the curve is not looked at.
fn coordinates(point: &[u8; 65]) -> Option<[Words; 2]> {
    let (4, coordinates) = point.split_first()? else { return None };
    let [first, second] = coordinates.as_chunks().0 else { return None };
    let (mut x, mut y) = ([0; 4], [0; 4]);
    read(first, &mut x);
    read(second, &mut y);
    (is_below(&x, &P) && is_below(&y, &P)).then_some([x, y])
}

/// Whether a number is neither zero nor too great.
fn in_range(number: &Words) -> bool {
    number.iter().fold(0, |all, word| all | word) != 0 && is_below(number, &TOP)
}

/// Whether one number is less than another, in a time that depends on neither.
fn is_below(number: &Words, other: &Words) -> bool {
    number.iter().zip(other).fold(false, |borrow, (a, b)| {
        let (difference, first) = a.overflowing_sub(*b);
        let (_, second) = difference.overflowing_sub(u64::from(borrow));
        first | second
    })
}

/// Reads a number whose highest octet comes first.
fn read(octets: &[u8; 32], words: &mut Words) {
    for (word, octets) in words.iter_mut().zip(octets.as_chunks().0.iter().rev()) {
        *word = u64::from_be_bytes(*octets);
    }
}

/// Writes a number, the highest octet first.
fn write(words: &Words, octets: &mut [u8; 32]) {
    for (word, octets) in words.iter().zip(octets.as_chunks_mut().0.iter_mut().rev()) {
        *octets = word.to_be_bytes();
    }
}
