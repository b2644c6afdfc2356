//! Behaviour of a sealer with any accelerator. None of these tests needs a real one.

use aws_lc_rs::encoding::{AsBigEndian as _, EcPrivateKeyBin};

use super::*;
use crate::keys::SigningKey;

/// An accelerator for tests: AWS-LC eight times, with wrong results from a given pass on. Passes are counted after the eight of
/// the initial check.
#[derive(Debug)]
struct Imitation {
    passes: AtomicU32,
    errs_at: u32,
    error: Error,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Error {
    None,
    Shared,
    Public,
    Refuses,
    Fails,
    Forgets,
}

impl Accelerator for Imitation {
    fn name(&self) -> String {
        "an imitation".into()
    }

    fn knows_answers(&self) -> bool {
        self.error != Error::Forgets
    }

    fn exchange(&self, browsers: &[[u8; 65]; LANES], shown: usize) -> Option<ExchangeRecord> {
        let errs = self.passes.fetch_add(1, Ordering::Relaxed) >= self.errs_at;
        let error = if errs { self.error } else { Error::None };
        let keys: [_; LANES] = from_fn(|_| PrivateKey::generate(&ECDH_P256).unwrap());
        let mut public = from_fn(|lane| keys[lane].compute_public_key().unwrap().as_ref().try_into().unwrap());
        let mut shared: Box<[_; LANES]> = Box::new(from_fn(|lane| {
            let browser = UnparsedPublicKey::new(&ECDH_P256, &browsers[lane]);
            agree(&keys[lane], browser, (), |shared| Ok(Zeroizing::new(shared.try_into().unwrap()))).ok()
        }));
        match error {
            Error::None | Error::Forgets => {}
            Error::Shared => shared.iter_mut().flatten().for_each(|shared: &mut Zeroizing<[u8; 32]>| shared[31] ^= 1),
            Error::Public => public.iter_mut().for_each(|public: &mut [u8; 65]| public[64] ^= 1),
            Error::Refuses => shared = Box::default(),
            Error::Fails => return None,
        }
        let private: EcPrivateKeyBin = keys[shown].as_be_bytes().unwrap();
        Some(ExchangeRecord { public, shared, private: Zeroizing::new(private.as_ref().try_into().unwrap()) })
    }
}

fn imitation(errs_at: u32, error: Error, check_every: u32) -> Sealer {
    Sealer::watching(Box::new(Imitation { passes: AtomicU32::new(0), errs_at, error }), check_every)
}

fn browsers(n: usize) -> Vec<(ece::EcKeyComponents, BrowserKeys)> {
    let browser = || {
        let (pair, auth) = ece::generate_keypair_and_auth_secret().unwrap();
        let p256dh = pair.pub_as_raw().unwrap().try_into().unwrap();
        (pair.raw_components().unwrap(), BrowserKeys { p256dh, auth })
    };
    (0..n).map(|_| browser()).collect()
}

/// Seals one payload for each browser and has it opened by an independent implementation.
fn seal_and_open(sealer: &Sealer, browsers: &[(ece::EcKeyComponents, BrowserKeys)]) {
    let texts: Vec<String> = (0..browsers.len()).map(|at| format!("payload {at}")).collect();
    let plain = |((_, keys), text): (&(_, BrowserKeys), &String)| (keys.clone(), text.clone());
    let owned: Vec<_> = browsers.iter().zip(&texts).map(plain).collect();
    let payloads: Vec<_> =
        owned.iter().map(|(keys, text)| Plain { keys, plaintext: text.as_bytes(), pad_to: 128 }).collect();
    let bodies: Vec<_> = sealer.seal_all(&payloads).into_iter().map(Result::unwrap).collect();
    assert_eq!(bodies.len(), browsers.len());
    for (body, ((private, keys), text)) in bodies.iter().zip(browsers.iter().zip(&texts)) {
        assert_eq!(body.len(), 128 + OVERHEAD);
        assert_eq!(ece::decrypt(private, &keys.auth, body).unwrap(), text.as_bytes());
    }
    let differ = |part: std::ops::Range<usize>| {
        let mut parts: Vec<_> = bodies.iter().map(|body| &body[part.clone()]).collect();
        parts.sort_unstable();
        parts.dedup();
        parts.len() == bodies.len()
    };
    assert!(differ(0..16) && differ(21..86), "each has a salt and a key of its own");
}

fn passes(sealer: &Sealer) -> u32 {
    sealer.passes.load(Ordering::Relaxed)
}

#[test]
fn bursts_of_all_lengths_are_sealed() {
    let (sealer, browsers) = (imitation(u32::MAX, Error::None, 1), browsers(17));
    for (n, wanted) in [(0, 0), (1, 0), (2, 1), (3, 1), (7, 1), (8, 1), (9, 1), (10, 2), (16, 2), (17, 2)] {
        let before = passes(&sealer);
        seal_and_open(&sealer, &browsers[..n]);
        assert_eq!(passes(&sealer) - before, wanted, "{n}");
    }
    assert!(sealer.is_accelerated() && !sealer.has_untold_fault());
    assert_eq!(sealer.to_string(), "eight at a time, by an imitation");
}

#[test]
fn unsealable_payload_fails_alone_with_its_reason() {
    let sealer = imitation(u32::MAX, Error::None, 1);
    let mut keys: Vec<BrowserKeys> =
        (0..8).map(|_| BrowserKeys { p256dh: *SigningKey::generate().public(), auth: [7; 16] }).collect();
    (keys[0].p256dh[64], keys[5].p256dh) = (keys[0].p256dh[64] ^ 1, [0; 65]);
    let long = vec![0; PLAINTEXT_MAX + 1];
    let plain = |(at, keys)| Plain { keys, plaintext: if at == 3 { &long } else { b"x" }, pad_to: 0 };
    let payloads: Vec<_> = keys.iter().enumerate().map(plain).collect();
    let sealed = sealer.seal_all(&payloads);
    assert_eq!(sealed, {
        let alone: Vec<_> =
            payloads.iter().zip(&sealed).map(|(plain, sealed)| plain.seal_alone().and(sealed.clone())).collect();
        alone
    });
    let failed: Vec<_> =
        sealed.iter().enumerate().filter_map(|(at, sealed)| Some((at, sealed.clone().err()?))).collect();
    let too_long = SealError::TooLong { octets: PLAINTEXT_MAX + 1 };
    assert_eq!(failed, [(0, SealError::BadKey), (3, too_long), (5, SealError::BadKey)]);
    assert!(sealer.is_accelerated(), "invalid keys do not disable the accelerator");
}

#[test]
fn faulty_accelerator_is_never_used() {
    for error in [Error::Shared, Error::Public, Error::Refuses, Error::Fails, Error::Forgets] {
        let sealer = imitation(7, error, 4_096); // the last of the eight passes before its use
        assert!(!sealer.is_accelerated() && sealer.has_untold_fault(), "{error:?}");
        seal_and_open(&sealer, &browsers(8));
        assert_eq!(passes(&sealer), 0);
        assert!(sealer.to_string().starts_with("one at a time, by AWS-LC, since an imitation"));
        sealer.told();
        assert!(!sealer.has_untold_fault() && sealer.is_faulty());
    }
}

#[test]
fn later_faults_are_found_at_the_next_check() {
    for error in [Error::Shared, Error::Public, Error::Refuses, Error::Fails] {
        let (sealer, browsers) = (imitation(LANES as u32 + 3, error, 3), browsers(16));
        for _ in 0..3 {
            assert!(sealer.is_accelerated());
            seal_and_open(&sealer, &browsers[..8]);
        }
        seal_and_open(&sealer, &browsers); // its first pass is a checked one, and errs
        assert!(!sealer.is_accelerated() && sealer.has_untold_fault(), "{error:?}");
        assert_eq!(passes(&sealer), 4, "it was not tried again: {error:?}");
        seal_and_open(&sealer, &browsers);
    }
}

#[test]
fn each_lane_is_checked_in_its_turn() {
    #[derive(Debug)]
    struct CountingAccelerator(parking_lot::Mutex<Vec<usize>>, Imitation);
    impl Accelerator for std::sync::Arc<CountingAccelerator> {
        fn name(&self) -> String {
            self.1.name()
        }
        fn exchange(&self, browsers: &[[u8; 65]; LANES], shown: usize) -> Option<ExchangeRecord> {
            self.0.lock().push(shown);
            self.1.exchange(browsers, shown)
        }
    }
    let imitation = Imitation { passes: AtomicU32::new(0), errs_at: u32::MAX, error: Error::None };
    let shown = std::sync::Arc::new(CountingAccelerator(parking_lot::Mutex::default(), imitation));
    let (sealer, browsers) = (Sealer::watching(Box::new(shown.clone()), 2), browsers(8));
    assert_eq!(std::mem::take(&mut *shown.0.lock()), [0, 1, 2, 3, 4, 5, 6, 7]);
    for _ in 0..18 {
        seal_and_open(&sealer, &browsers);
    }
    assert_eq!(*shown.0.lock(), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 0, 0]);
}

#[test]
fn without_an_accelerator_each_is_sealed_alone() {
    seal_and_open(Sealer::single(), &browsers(9));
    assert!(!Sealer::single().is_accelerated());
    assert_eq!(Sealer::single().to_string(), "one at a time, by AWS-LC");
}

/// The crate's arithmetic in plain Rust, which runs on every processor.
#[test]
fn lanes_in_plain_rust_seal_for_browsers() {
    let sealer = Sealer::watching(Box::new(bellwire_p256_lanes::Engine::portable()), 1);
    seal_and_open(&sealer, &browsers(11));
    assert!(sealer.is_accelerated());
    assert_eq!((passes(&sealer), sealer.to_string()), (2, "eight at a time, by plain Rust".into()));
}

#[test]
fn fastest_sealer_is_readable_by_browsers() {
    let sealer = Sealer::fastest();
    assert!(!sealer.is_faulty());
    if !sealer.is_accelerated() {
        eprintln!("NOT TESTED: this processor has no AVX-512 IFMA");
    }
    let browsers = browsers(24);
    for n in 0..browsers.len() {
        seal_and_open(sealer, &browsers[..n]);
    }
    assert_eq!(passes(sealer) > 0, sealer.is_accelerated());
}
