//! Secrets at rest. Endpoints, payloads and private keys are sealed before they reach Postgres, and looked up by HMAC.
//!
//! A sealed value is `key number (u16 BE) | nonce (12) | ciphertext | tag (16)`, AES-256-GCM, with table, column and
//! row id as associated data. A value that was moved to another row or column cannot be opened.

#![allow(missing_docs, reason = "internal to the server: names and types document most items")]

pub mod delivery_token;
pub mod master_key;
pub mod retry_token;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hmac, rand};
use parking_lot::RwLock;
use subtle::ConstantTimeEq;
use uuid::Uuid;

const NUMBER_LEN: usize = 2;
const TAG_LEN: usize = 16;

/// Octets that sealing adds to a value.
pub const OVERHEAD: usize = NUMBER_LEN + NONCE_LEN + TAG_LEN;

/// Error of a sealed value that cannot be opened: sealed under another key, for another row, or tampered with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an encrypted value of {place} cannot be decrypted with this server's keys")]
pub struct Unopenable {
    place: &'static str,
}

impl Unopenable {
    /// Error for a value that was opened and has the wrong content for its column.
    pub fn of(place: Column) -> Self {
        Self { place }
    }
}

/// Column of a sealed value as `table.column`. Part of the associated data.
pub type Column = &'static str;

/// Endpoint, p256dh and auth of a subscription, as one value.
pub const ADDRESS: Column = "subscriptions.address";
/// Plaintext of a message.
pub const CONTENT: Column = "messages.content";
pub const TEMPLATE: Column = "templates.content";
/// Content and schedule of a campaign.
pub const PLAN: Column = "campaigns.plan";
/// Properties of an event that a site reported about a user.
pub const PROPERTIES: Column = "user_events.properties";
/// Body of the response to a request with an `Idempotency-Key`.
pub const IDEMPOTENT_RESPONSE: Column = "idempotency_keys.response";
/// Hash of the password of a teammate.
pub const PASSWORD: Column = "teammates.password_sealed";
/// Hash of a password that a one-time link sets after a passkey has signed.
pub const LINK_PASSWORD: Column = "passkey_challenges.password_sealed";
pub const VAPID_PRIVATE: Column = "vapid_keys.private_key";

pub const IDENTITY_SECRET: Column = "identity_keys.secret";

pub const WEBHOOK_URL: Column = "webhooks.url";
/// Secrets that sign the requests of a webhook, including the previous one.
pub const WEBHOOK_SECRET: Column = "webhooks.secret";
/// Body of a pending request of a webhook.
pub const WEBHOOK_BODY: Column = "webhook_deliveries.body";

/// Private key of a certificate from ACME.
pub const ACME_PRIVATE: Column = "acme_certificates.private_key";
pub const ACME_ACCOUNT: Column = "acme_accounts.credentials";

/// State of a sign-in at the OpenID provider. Stored in a cookie, not in a table.
pub const OIDC_ATTEMPT: Column = "cookie.oidc";
/// Link to the preferences of a user. Stored in the link, not in a table.
pub const PREFERENCES_LINK: Column = "link.preferences";

/// Purpose of an HMAC. Each purpose has its own key, derived from the lookup key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Lookup of a subscription by app and endpoint.
    Endpoint = 0,
    /// Token with which a browser changes or deletes its subscription.
    BrowserToken = 1,
    /// Delivery id in each plaintext, by which the service worker drops duplicates.
    DeliveryId = 2,
    /// Token with which a service worker sends receipts of a delivery.
    Receipt = 3,
    /// Hash of an API key at rest.
    ApiKey = 4,
    /// Label that replaces the id of a subscription in the log.
    LogLabel = 5,
    /// Hash of a one-time sign-in link at rest.
    Link = 6,
    /// Counter key of failed sign-ins. The name is hashed, because it may be a password by mistake.
    SignIn = 7,
    /// Lookup of a passkey challenge, which is not stored itself.
    PasskeyChallenge = 8,
    /// Authentication of a backup.
    Backup = 9,
    /// Hash of a removed teammate's address or provider account, to recognize it without storing it.
    RemovedTeammate = 10,
    /// Identifies and compares requests with an `Idempotency-Key`.
    IdempotencyKey = 11,
}

const PURPOSES: usize = 12;
/// Octets of a signature: `key number (u16 BE) | first 16 octets of HMAC-SHA-256`.
pub const SIGNATURE_LEN: usize = NUMBER_LEN + SIGNATURE_MAC_LEN;
const SIGNATURE_MAC_LEN: usize = 16;

struct VaultKeys {
    /// Replaced as a whole when a key is added or becomes current.
    seal: RwLock<Arc<SealKeys>>,
    lookup: [hmac::Key; PURPOSES],
}

/// Seal keys by number. All of them can open and verify; `current` seals and signs.
struct SealKeys {
    keys: BTreeMap<u16, SealKey>,
    current: u16,
}

impl SealKeys {
    /// # Panics
    /// If `current` is not one of the keys.
    fn new(seal: impl IntoIterator<Item = (u16, [u8; 32])>, current: u16) -> Arc<Self> {
        let keys: BTreeMap<_, _> = seal.into_iter().map(|(number, key)| (number, SealKey::new(&key))).collect();
        assert!(keys.contains_key(&current), "a vault needs a seal key");
        Arc::new(Self { keys, current })
    }

    fn current(&self) -> (u16, &SealKey) {
        (self.current, &self.keys[&self.current])
    }
}

struct SealKey {
    aead: LessSafeKey,
    /// Number of values that this process encrypted and has not added to `data_keys.sealed_values` yet.
    uncounted: AtomicU64,
    /// Key for signatures, derived from the same octets.
    signing: hmac::Key,
    session: [u8; 32],
}

impl SealKey {
    fn new(octets: &[u8; 32]) -> Self {
        let aead = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, octets).expect("32 octets"));
        let root = hmac::Key::new(hmac::HMAC_SHA256, octets);
        let signing = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, b"signatures").as_ref());
        let session = hmac::sign(&root, b"sessions").as_ref().try_into().expect("SHA-256 has 32 octets");
        Self { aead, uncounted: AtomicU64::new(0), signing, session }
    }

    fn sign(&self, state: &[u8]) -> [u8; SIGNATURE_MAC_LEN] {
        let tag = hmac::sign(&self.signing, state);
        *tag.as_ref().first_chunk().expect("SHA-256 has 32 octets")
    }
}

/// The unwrapped data keys. Cheap to clone; `Debug` shows no key.
#[derive(Clone)]
pub struct Vault(Arc<VaultKeys>);

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vault({} seal keys)", self.0.seal.read().keys.len())
    }
}

impl Vault {
    /// Creates a vault from the lookup key and the numbered seal keys, of which the highest number seals.
    ///
    /// # Panics Without a seal key: the caller creates one first.
    pub fn new(seal: impl IntoIterator<Item = (u16, [u8; 32])>, lookup: &[u8; 32]) -> Self {
        let seal: Vec<_> = seal.into_iter().collect();
        let newest = seal.iter().map(|(number, _)| *number).max().unwrap_or_default();
        Self::sealing_by(seal, newest, lookup)
    }

    /// Creates a vault in which `current` seals, which may be older than the newest key.
    ///
    /// # Panics If `current` is not one of the keys.
    pub fn sealing_by(seal: impl IntoIterator<Item = (u16, [u8; 32])>, current: u16, lookup: &[u8; 32]) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, lookup);
        let lookup = std::array::from_fn(|purpose| {
            hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, &[purpose as u8]).as_ref())
        });
        Self(Arc::new(VaultKeys { seal: RwLock::new(SealKeys::new(seal, current)), lookup }))
    }

    /// Replaces the seal keys for all clones of this vault.
    ///
    /// # Panics If `current` is not one of the keys.
    pub fn adopt(&self, seal: impl IntoIterator<Item = (u16, [u8; 32])>, current: u16) {
        let adopted = SealKeys::new(seal, current);
        let before = std::mem::replace(&mut *self.0.seal.write(), adopted);
        // Values that another thread seals with the previous keys from here on are not counted; they are few.
        before.keys.iter().for_each(|(number, key)| self.count(*number, key.uncounted.load(Ordering::Relaxed)));
    }

    /// Returns and resets the numbers of values that this process has sealed under each key. A caller that cannot store
    /// them restores them by [`count`](Self::count).
    pub fn take_uncounted(&self) -> Vec<(u16, u64)> {
        let seal = self.seal_keys_now();
        let taken = seal.keys.iter().map(|(number, key)| (*number, key.uncounted.swap(0, Ordering::Relaxed)));
        taken.filter(|(_, values)| *values > 0).collect()
    }

    /// Adds to the number of values that were sealed under a key.
    pub fn count(&self, number: u16, values: u64) {
        if let Some(key) = self.seal_keys_now().keys.get(&number) {
            key.uncounted.fetch_add(values, Ordering::Relaxed);
        }
    }

    /// Returns the numbers of the newest seal key and of the current one.
    pub fn seal_keys(&self) -> (u16, u16) {
        let seal = self.seal_keys_now();
        (seal.keys.last_key_value().map_or(0, |(number, _)| *number), seal.current)
    }

    fn seal_keys_now(&self) -> Arc<SealKeys> {
        self.0.seal.read().clone()
    }

    /// Seals a value for a column and row under the current key.
    pub fn seal(&self, place: Column, row: impl Into<Uuid>, plain: &[u8]) -> Vec<u8> {
        let seal = self.seal_keys_now();
        let (number, key) = seal.current();
        key.uncounted.fetch_add(1, Ordering::Relaxed);
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).expect("the system's randomness");
        let mut sealed = Vec::with_capacity(plain.len() + OVERHEAD);
        sealed.extend_from_slice(&number.to_be_bytes());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let tag = key
            .aead
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(associated_data(place, row.into()).as_slice()),
                &mut sealed[NUMBER_LEN + NONCE_LEN..],
            )
            .expect("values are far below AES-GCM's length limit");
        sealed.extend_from_slice(tag.as_ref());
        sealed
    }

    /// Opens a value that was sealed for this column and row.
    pub fn open(&self, place: Column, row: impl Into<Uuid>, sealed: &[u8]) -> Result<Vec<u8>, Unopenable> {
        let unopenable = Unopenable { place };
        let (number, rest) = sealed.split_first_chunk::<NUMBER_LEN>().ok_or(unopenable.clone())?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>().ok_or(unopenable.clone())?;
        let seal = self.seal_keys_now();
        let key = seal.keys.get(&u16::from_be_bytes(*number)).ok_or(unopenable.clone())?;
        let mut plain = rest.to_vec();
        let length = key
            .aead
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(associated_data(place, row.into()).as_slice()),
                &mut plain,
            )
            .map_err(|_| unopenable)?
            .len();
        plain.truncate(length);
        Ok(plain)
    }

    /// Signs a state that is stored in the database, under the current key. The state itself must contain its kind.
    pub fn sign(&self, state: &[u8]) -> [u8; SIGNATURE_LEN] {
        let seal = self.seal_keys_now();
        let (number, key) = seal.current();
        let mut signature = [0; SIGNATURE_LEN];
        let (stated, mac) = signature.split_at_mut(NUMBER_LEN);
        stated.copy_from_slice(&number.to_be_bytes());
        mac.copy_from_slice(&key.sign(state));
        signature
    }

    /// Whether one of the seal keys signed exactly this state. The comparison takes constant time.
    pub fn has_signed(&self, state: &[u8], signature: &[u8]) -> bool {
        let Some((number, mac)) = signature.split_first_chunk::<NUMBER_LEN>() else { return false };
        let seal = self.seal_keys_now();
        let Some(key) = seal.keys.get(&u16::from_be_bytes(*number)) else { return false };
        key.sign(state).ct_eq(mac).into()
    }

    /// Returns the number of the current key, and the key for tokens of sessions derived from it.
    pub fn session_key(&self) -> (u16, [u8; 32]) {
        let seal = self.seal_keys_now();
        let (number, key) = seal.current();
        (number, key.session)
    }

    /// Returns the key for tokens of sessions of an older seal key. Returns `None` for an unknown number.
    pub fn session_key_of(&self, number: u16) -> Option<[u8; 32]> {
        self.seal_keys_now().keys.get(&number).map(|key| key.session)
    }

    /// Starts the HMAC that authenticates a backup.
    pub fn backup_mac(&self) -> hmac::Context {
        hmac::Context::with_key(&self.0.lookup[Purpose::Backup as usize])
    }

    /// Returns the HMAC-SHA-256 of the parts. The length of each part is included, so that no two lists of parts collide.
    pub fn mac(&self, purpose: Purpose, parts: &[&[u8]]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.0.lookup[purpose as usize]);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.sign().as_ref().try_into().expect("SHA-256 has 32 octets")
    }
}

/// Returns `place | row`. The row has a fixed length and is last, so that no two pairs share an encoding.
fn associated_data(place: Column, row: Uuid) -> Vec<u8> {
    [place.as_bytes(), row.as_bytes()].concat()
}

#[cfg(test)]
#[path = "../../../tests/crates/vault/unit/lib.rs"]
mod tests;
