//! A pass leaves no secret on the stack. Linux only: the test reads the thread's memory.
#![cfg(target_os = "linux")]

use std::array::from_fn;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use bellwire_p256_lanes::{Engine, LANES, Scalars};
use num_bigint::BigUint;

/// Octets below the test's frame that are searched.
const DEPTH: usize = 256 * 1024;

/// Words and limbs of secret numbers, highest octet first. Inverted, so that the test itself holds none of them.
fn inverted_words(secrets: impl Iterator<Item = [u8; 32]>) -> Vec<u64> {
    let words = |secret: [u8; 32]| {
        let number = BigUint::from_bytes_be(&secret);
        let part = move |shift: u32, bits: u32| {
            (&number >> shift).iter_u64_digits().next().unwrap_or(0) & (u64::MAX >> (64 - bits))
        };
        let words: Vec<u64> = (0..4).map(|i| part(64 * i, 64)).chain((0..5).map(|i| part(52 * i, 52))).collect();
        words.into_iter().flat_map(|word| [!word, !word.swap_bytes()])
    };
    secrets.flat_map(words).collect()
}

/// Counts the words that are in memory below the caller's frame.
#[inline(never)]
fn traces(inverted: &[u64]) -> usize {
    let marker = 0_u64; // aligned as words are
    let top = std::ptr::from_ref(&marker).addr() as u64;
    let mut memory = vec![0; DEPTH];
    File::open("/proc/self/mem").unwrap().read_exact_at(&mut memory, top - DEPTH as u64).unwrap();
    let mut found: Vec<u64> = memory.as_chunks().0.iter().map(|octets| u64::from_ne_bytes(*octets)).collect();
    found.sort_unstable();
    inverted.iter().filter(|word| found.binary_search(&!**word).is_ok()).count()
}

#[test]
fn a_pass_leaves_no_secret_on_the_stack() {
    for engine in [Some(Engine::portable()), Engine::detect()].into_iter().flatten() {
        let scalars = Scalars::from_be_bytes(&from_fn(|lane| from_fn(|at| (37 * at + 91 * lane + 5) as u8 ^ 0x5a)));
        let scalars = scalars.unwrap();
        let peers = engine.exchange(&Scalars::from_be_bytes(&[[7; 32]; LANES]).unwrap(), &[[0; 65]; LANES]).public;
        let shared = engine.exchange(&scalars, &peers).shared;
        let secrets = (0..LANES).flat_map(|lane| [*scalars.expose(lane), **shared[lane].as_ref().unwrap()]);
        let inverted = inverted_words(secrets);
        // The same once more, on a stack that has held nothing else.
        let pass = std::thread::spawn(move || {
            let found = engine.exchange(&scalars, &peers);
            assert!(found.shared.iter().all(Option::is_some));
            traces(&inverted)
        });
        assert_eq!(pass.join().unwrap(), 0, "{}", engine.name());
    }
}
