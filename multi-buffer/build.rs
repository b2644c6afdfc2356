//! Finds crypto_mb: in the directory that `CRYPTO_MB_DIR` names, by pkg-config, or where `scripts/install-deps --multi-buffer`
//! put it. What is named wins, so that nobody links another library than they meant to.

use std::env;
use std::path::{Path, PathBuf};
use std::process::exit;

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
    directory.join("libcrypto_mb.a").is_file()
}

fn link(directory: &Path) {
    println!("cargo:rustc-link-search=native={}", directory.display());
    println!("cargo:rustc-link-lib=static=crypto_mb");
}

fn fail(why: &str) -> ! {
    println!("cargo:warning={why}");
    exit(1)
}
