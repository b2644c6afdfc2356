//! The foreign functions, and nothing else that is unsafe. Their contract is that of `crypto_mb/ec_nistp256.h`: arrays of eight
//! pointers, numbers as four words of 64 bits, the lowest first; coordinates are affine where no `z` is given; no scratch
//! space is used. The status has four bits for each lane, all of them zero for one that went well.
#![allow(unsafe_code, reason = "this is what the crate is for")]

use std::array::from_fn;
use std::ffi::c_int;
use std::ptr::null;

use crate::{LANES, Words};

/// `MBX_ALGO_EC_NIST_P256` of `crypto_mb/cpu_features.h`.
const P256: c_int = 5;

/// The beginning of `mbxVersion`.
#[repr(C)]
pub(crate) struct Version {
    pub(crate) major: c_int,
    pub(crate) minor: c_int,
    pub(crate) patch: c_int,
}

unsafe extern "C" {
    safe fn mbx_getversion() -> &'static Version;
    safe fn mbx_get_algo_info(algorithm: c_int) -> u64;
    fn mbx_nistp256_ecpublic_key_mb8(
        x: *const *mut u64,
        y: *const *mut u64,
        z: *const *mut u64,
        scalar: *const *const u64,
        scratch: *const u8,
    ) -> u32;
    fn mbx_nistp256_ecdh_mb8(
        shared: *const *mut u8,
        scalar: *const *const u64,
        x: *const *const u64,
        y: *const *const u64,
        z: *const *const u64,
        scratch: *const u8,
    ) -> u32;
}

// The library's objects hold a second form of each function, over OpenSSL's numbers, and so name functions of OpenSSL. Nobody
// calls those forms: instead of linking OpenSSL, what they name is given a place that traps. In an archive that we link, build.rs
// has changed the names to these, so that calls of the real ones, which a program may hold, too, never come here.
std::arch::global_asm!(
    ".pushsection .text.bellwire_no_openssl,\"ax\",@progbits",
    ".weak NO_num_bits, NO_bn2lebinpad, NO_bin2bn",
    ".hidden NO_num_bits, NO_bn2lebinpad, NO_bin2bn",
    ".type NO_num_bits, @function",
    ".type NO_bn2lebinpad, @function",
    ".type NO_bin2bn, @function",
    "NO_num_bits:",
    "NO_bn2lebinpad:",
    "NO_bin2bn:",
    "ud2",
    ".popsection",
);

pub(crate) fn version() -> &'static Version {
    mbx_getversion()
}

/// How many lanes the library has for P-256 on this processor, as bits: 8 stands for eight.
pub(crate) fn widths() -> u64 {
    mbx_get_algo_info(P256)
}

/// The points that scalars stand for, by their coordinates, and the status.
///
/// # Safety
/// The processor must have what [`crate::Accelerator::detect`] asks it for.
pub(crate) unsafe fn public_keys(scalars: &[Words; LANES], x: &mut [Words; LANES], y: &mut [Words; LANES]) -> u32 {
    let scalars = each(scalars);
    let (x, y) = (x.each_mut().map(|words| words.as_mut_ptr()), y.each_mut().map(|words| words.as_mut_ptr()));
    // SAFETY: each of the eight pointers leads to four words, which live as long as the call; the arrays are ours to write.
    unsafe { mbx_nistp256_ecpublic_key_mb8(x.as_ptr(), y.as_ptr(), null(), scalars.as_ptr(), null()) }
}

/// The first coordinates of `scalar · (x, y)`, the highest octet first, and the status.
///
/// # Safety
/// The processor must have what [`crate::Accelerator::detect`] asks it for.
pub(crate) unsafe fn agree(
    scalars: &[Words; LANES],
    x: &[Words; LANES],
    y: &[Words; LANES],
    shared: &mut [[u8; 32]; LANES],
) -> u32 {
    let (scalars, x, y) = (each(scalars), each(x), each(y));
    let shared = shared.each_mut().map(|octets| octets.as_mut_ptr());
    // SAFETY: each of the eight pointers leads to four words, or 32 octets, which live as long as the call; the latter are ours
    // to write.
    unsafe { mbx_nistp256_ecdh_mb8(shared.as_ptr(), scalars.as_ptr(), x.as_ptr(), y.as_ptr(), null(), null()) }
}

fn each(numbers: &[Words; LANES]) -> [*const u64; LANES] {
    from_fn(|lane| numbers[lane].as_ptr())
}
