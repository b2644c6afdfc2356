//! Finds crypto_mb: in the directory that `CRYPTO_MB_DIR` names, by pkg-config, or where `scripts/install-deps --multi-buffer`
//! put it. What is named wins, so that nobody links another library than they meant to.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::exit;

const ARCHIVE: &str = "libcrypto_mb.a";

fn main() {
    println!("cargo:rerun-if-env-changed=CRYPTO_MB_DIR");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return; // the crate is empty there, and says that the processor cannot
    }
    let fetched = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../.deps/crypto_mb/lib");
    println!("cargo:rerun-if-changed={}", fetched.display());
    match env::var_os("CRYPTO_MB_DIR").map(PathBuf::from) {
        Some(named) if archive(&named) => link(&named),
        Some(named) => fail(&format!("CRYPTO_MB_DIR is {}, which holds no libcrypto_mb.a", named.display())),
        None if pkg_config::Config::new().statik(true).probe("crypto_mb").is_ok() => {}
        None if archive(&fetched) => link(&fetched),
        None => fail(
            "crypto_mb is not there: `scripts/install-deps --multi-buffer` fetches it, or name its directory by CRYPTO_MB_DIR",
        ),
    }
}

fn archive(directory: &Path) -> bool {
    directory.join(ARCHIVE).is_file()
}

/// Links a copy of the archive that asks for no OpenSSL: functions that nobody calls name three of its functions, which get other
/// names of the same length (src/ffi.rs).
fn link(directory: &Path) {
    let mut archive = fs::read(directory.join(ARCHIVE)).expect("the archive can be read");
    for name in ["num_bits", "bn2lebinpad", "bin2bn"] {
        let theirs = format!("\0BN_{name}\0");
        let mut from = 0;
        while let Some(at) = find(&archive[from..], theirs.as_bytes()) {
            archive[from + at + 1..][..2].copy_from_slice(b"NO");
            from += at + 1;
        }
    }
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join(ARCHIVE), archive).expect("the copy can be written");
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rustc-link-lib=static=crypto_mb");
}

fn find(octets: &[u8], wanted: &[u8]) -> Option<usize> {
    octets.windows(wanted.len()).position(|window| window == wanted)
}

fn fail(why: &str) -> ! {
    println!("cargo:warning={why}");
    exit(1)
}
