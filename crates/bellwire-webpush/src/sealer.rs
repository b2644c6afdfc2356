//! Sealing of many payloads in a process: one by one with AWS-LC, or eight in one pass of an accelerator.
//!
//! An accelerator is not trusted, but checked. Before its first use it computes known answers, and AWS-LC recomputes all its
//! lanes. Later, AWS-LC recomputes one lane of each 4,096th pass. A difference switches the accelerator off for the life of the
//! process, and discards the results of that pass. Sealing takes no lock, because the scheduler may suspend sealing threads for
//! long.

mod lanes;
#[cfg(test)]
#[path = "../../../tests/crates/webpush/unit/sealer.rs"]
mod tests;

use std::array::from_fn;
use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::rand;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::seal::{SealError, seal, seal_agreed};
use super::{OVERHEAD, SALT_LEN};
use bellwire_core::message::PLAINTEXT_MAX;
use bellwire_core::subscription::BrowserKeys;

/// Agreements in one pass of an accelerator.
pub const LANES: usize = 8;
/// Number of payloads from which a pass is faster than AWS-LC one at a time (docs/scale.md). Unused lanes repeat the first
/// payload's agreement.
const FEWEST: usize = 2;
/// Number of passes between two checks.
const CHECK_EVERY: u32 = 4_096;

/// Implementation that computes eight key pairs and agreements at a time, in a time that depends on no secret.
pub trait Accelerator: fmt::Debug + Send + Sync {
    /// Returns the name for logs.
    fn name(&self) -> String;

    /// Tests known answers, before the first use.
    fn knows_answers(&self) -> bool {
        true
    }

    /// Generates eight key pairs with AWS-LC's random numbers, and agrees with eight browsers. `shown` is the lane whose
    /// private key is returned. `None`: the pass failed.
    fn exchange(&self, browsers: &[[u8; 65]; LANES], shown: usize) -> Option<ExchangeRecord>;
}

/// Eight key pairs, and the secrets that they share with eight browsers.
pub struct ExchangeRecord {
    /// Public keys of the server, uncompressed.
    pub public: [[u8; 65]; LANES],
    /// The secrets, boxed so that a move leaves no copy. `None` where the browser's key is not a point on the curve.
    pub shared: Box<[Option<Zeroizing<[u8; 32]>>; LANES]>,
    /// Private key of the requested lane, highest byte first.
    pub private: Zeroizing<[u8; 32]>,
}

/// A payload to encrypt.
#[derive(Debug, Clone, Copy)]
pub struct Plain<'a> {
    /// Keys of the recipient.
    pub keys: &'a BrowserKeys,
    /// Plaintext to encrypt, without padding.
    pub plaintext: &'a [u8],
    /// Bytes to pad to, as in [`seal`].
    pub pad_to: usize,
}

impl Plain<'_> {
    fn body(&self) -> Vec<u8> {
        Vec::with_capacity(self.plaintext.len().max(self.pad_to.min(PLAINTEXT_MAX)) + OVERHEAD)
    }

    fn seal_alone(&self) -> Result<Vec<u8>, SealError> {
        let mut body = self.body();
        seal(self.keys, self.plaintext, self.pad_to, &mut body).map(|()| body)
    }

    fn seal_agreed(&self, public: &[u8; 65], shared: &[u8; 32], salt: &[u8; SALT_LEN]) -> Result<Vec<u8>, SealError> {
        let mut body = self.body();
        seal_agreed(self.keys, self.plaintext, self.pad_to, (public, shared), salt, &mut body).map(|()| body)
    }
}

/// Sealer of a process, and its state. `Display` describes it in words.
#[derive(Debug)]
pub struct Sealer {
    accelerator: Option<Box<dyn Accelerator>>,
    passes: AtomicU32,
    check_every: u32,
    is_faulty: AtomicBool,
    is_told: AtomicBool,
}

impl Sealer {
    /// Returns a sealer that uses AWS-LC alone.
    pub fn single() -> &'static Self {
        static SINGLE: LazyLock<Sealer> = LazyLock::new(|| Sealer::new(None, CHECK_EVERY));
        &SINGLE
    }

    /// Returns the fastest sealer for this processor, shared by the process.
    pub fn fastest() -> &'static Self {
        static FASTEST: LazyLock<Option<Sealer>> =
            LazyLock::new(|| Some(Sealer::watching(lanes::detect()?, CHECK_EVERY)));
        FASTEST.as_ref().unwrap_or_else(|| Self::single())
    }

    /// Creates a sealer with an accelerator. It is checked now, and then once in `check_every` passes.
    pub fn watching(accelerator: Box<dyn Accelerator>, check_every: u32) -> Self {
        let sealer = Self::new(Some(accelerator), check_every.max(1));
        let is_right = |accelerator: &dyn Accelerator| {
            let browsers = public_keys()?;
            let mut lanes = (0..LANES).map(|lane| Some((lane, accelerator.exchange(&browsers, lane)?)));
            lanes.all(|pass| pass.is_some_and(|(lane, pass)| is_right(&pass, lane, &browsers[lane]))).then_some(())
        };
        if sealer.accelerator.as_deref().filter(|found| found.knows_answers()).and_then(is_right).is_none() {
            sealer.is_faulty.store(true, Ordering::Relaxed);
        }
        sealer
    }

    fn new(accelerator: Option<Box<dyn Accelerator>>, check_every: u32) -> Self {
        let [is_faulty, is_told] = [false; 2].map(AtomicBool::new);
        Self { accelerator, passes: AtomicU32::new(0), check_every, is_faulty, is_told }
    }

    /// Whether it currently encrypts eight at a time.
    pub fn is_accelerated(&self) -> bool {
        self.accelerator.is_some() && !self.is_faulty()
    }

    /// Whether its accelerator computed a wrong result and was disabled.
    pub fn is_faulty(&self) -> bool {
        self.is_faulty.load(Ordering::Relaxed)
    }

    /// Whether its accelerator was disabled and the fault was not reported yet.
    pub fn has_untold_fault(&self) -> bool {
        self.is_faulty() && !self.is_told.load(Ordering::Relaxed)
    }

    /// Records that the fault was reported.
    pub fn told(&self) {
        self.is_told.store(true, Ordering::Relaxed);
    }

    /// Encrypts each payload as [`seal`] does. Returns the bodies in order.
    pub fn seal_all(&self, payloads: &[Plain<'_>]) -> Vec<Result<Vec<u8>, SealError>> {
        let mut bodies = Vec::with_capacity(payloads.len());
        for few in payloads.chunks(LANES) {
            match self.pass(few) {
                Some((exchange, salts)) => {
                    let lanes = few.iter().zip(&exchange.public).zip(exchange.shared.iter()).zip(&salts);
                    bodies.extend(lanes.map(|(((plain, public), shared), salt)| match shared {
                        Some(shared) => plain.seal_agreed(public, shared, salt),
                        None => self.seal_refused(plain),
                    }));
                }
                None => bodies.extend(few.iter().map(Plain::seal_alone)),
            }
        }
        bodies
    }

    /// Computes key pairs, agreements and salts for at most eight payloads. `None`: encrypt them one by one.
    fn pass(&self, few: &[Plain<'_>]) -> Option<(ExchangeRecord, Salts)> {
        let accelerator = self.accelerator.as_ref().filter(|_| few.len() >= FEWEST && !self.is_faulty())?;
        let browsers = from_fn(|lane| few.get(lane).unwrap_or(&few[0]).keys.p256dh);
        let mut salts = [[0; SALT_LEN]; LANES];
        rand::fill(salts.as_flattened_mut()).ok()?;
        let pass = self.passes.fetch_add(1, Ordering::Relaxed);
        let lane = (pass / self.check_every) as usize % LANES;
        let is_unchecked = !pass.is_multiple_of(self.check_every);
        let right = |exchange: &ExchangeRecord| is_unchecked || is_right(exchange, lane, &browsers[lane]);
        let exchange = accelerator.exchange(&browsers, lane).filter(right);
        if exchange.is_none() {
            self.is_faulty.store(true, Ordering::Relaxed);
        }
        exchange.map(|exchange| (exchange, salts))
    }

    /// Encrypts a payload whose key the accelerator rejected. If that succeeds, the accelerator is faulty.
    fn seal_refused(&self, plain: &Plain<'_>) -> Result<Vec<u8>, SealError> {
        let sealed = plain.seal_alone();
        if sealed.is_ok() {
            self.is_faulty.store(true, Ordering::Relaxed);
        }
        sealed
    }
}

type Salts = [[u8; SALT_LEN]; LANES];

impl fmt::Display for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.accelerator {
            Some(accelerator) if !self.is_faulty() => write!(f, "eight at a time, by {}", accelerator.name()),
            Some(accelerator) => {
                write!(f, "one at a time, by AWS-LC, since {} computed something wrong", accelerator.name())
            }
            None => f.write_str("one at a time, by AWS-LC"),
        }
    }
}

/// Whether AWS-LC computes the same as a lane of a pass, from the same private key.
fn is_right(exchange: &ExchangeRecord, lane: usize, browser: &[u8; 65]) -> bool {
    let Ok(private) = PrivateKey::from_private_key(&ECDH_P256, &*exchange.private) else { return false };
    let public = private.compute_public_key();
    let found = exchange.shared[lane].as_deref();
    let is_shared = agree(&private, UnparsedPublicKey::new(&ECDH_P256, browser), (), |shared| {
        Ok(found.is_some_and(|found| bool::from(found.ct_eq(shared))))
    });
    public.is_ok_and(|public| public.as_ref() == exchange.public[lane]) && is_shared.unwrap_or(found.is_none())
}

fn public_keys() -> Option<[[u8; 65]; LANES]> {
    let mut keys = [[0; 65]; LANES];
    for key in &mut keys {
        let private = PrivateKey::generate(&ECDH_P256).ok()?;
        key.copy_from_slice(private.compute_public_key().ok()?.as_ref());
    }
    Some(keys)
}
