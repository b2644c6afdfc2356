//! Secrets at rest. Endpoints, payloads and private keys are sealed before they reach Postgres, and looked up by HMAC.
//!
//! A sealed value is `key number (u16 BE) | nonce (12) | ciphertext | tag (16)`, AES-256-GCM, with table, column and
//! row id as associated data: a value moved to another row, or another column, does not open.

pub(crate) mod master_key;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hmac, rand};
use parking_lot::RwLock;
use subtle::ConstantTimeEq;
use uuid::Uuid;

const NUMBER_LEN: usize = 2;
const TAG_LEN: usize = 16;

/// Octets that sealing adds to a value.
pub(crate) const OVERHEAD: usize = NUMBER_LEN + NONCE_LEN + TAG_LEN;

/// A sealed value did not open: written under another key, for another row, or tampered with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a sealed value of {place} does not open with this server's keys")]
pub struct Unopenable {
    place: &'static str,
}

impl Unopenable {
    /// A value of that place that opened, and is not what belongs there.
    pub(crate) fn of(place: Column) -> Self {
        Self { place }
    }
}

/// Where a sealed value lives: `table.column`. Part of what the seal authenticates.
pub(crate) type Column = &'static str;

/// The subscriptions' endpoint, p256dh and auth, as one value.
pub const ADDRESS: Column = "subscriptions.address";
/// A message's plaintext.
pub const CONTENT: Column = "messages.content";
/// A stored template.
pub(crate) const TEMPLATE: Column = "templates.content";
/// What a campaign says, and how it is planned.
pub(crate) const PLAN: Column = "campaigns.plan";
/// What a request was answered that may be made again.
pub(crate) const FIRST_ANSWER: Column = "first_answers.answer";
/// A VAPID private key.
pub(crate) const VAPID_PRIVATE: Column = "vapid_keys.private_key";

/// A secret that user tokens are signed with.
pub(crate) const IDENTITY_SECRET: Column = "identity_keys.secret";

/// Where a webhook's receiver is.
pub(crate) const WEBHOOK_URL: Column = "webhooks.url";
/// What requests to a webhook's receiver are signed with, the former secret included.
pub(crate) const WEBHOOK_SECRET: Column = "webhooks.secret";
/// What a webhook's receiver is still to be told.
pub(crate) const WEBHOOK_BODY: Column = "webhook_deliveries.body";

/// The private key of a certificate that was ordered by ACME.
pub(crate) const ACME_PRIVATE: Column = "acme_certificates.private_key";
/// The account by which it was.
pub(crate) const ACME_ACCOUNT: Column = "acme_accounts.credentials";

/// What a browser keeps while its user is at the OpenID provider: in no table, but in a cookie.
pub(crate) const OIDC_ATTEMPT: Column = "cookie.oidc";

/// What an HMAC made with the look-up key is for. Each purpose has a key of its own, derived from that one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Finds a subscription by (app, endpoint).
    Endpoint = 0,
    /// The browser's right to change or delete its subscription.
    BrowserToken = 1,
    /// The id in every plaintext by which the service worker drops repeats.
    DeliveryId = 2,
    /// The token by which a service worker reports what became of a delivery.
    Receipt = 3,
    /// An API key, hashed at rest.
    ApiKey = 4,
    /// What a log line shows instead of a subscription's id.
    LogLabel = 5,
    /// A one-time link by which a teammate comes in, hashed at rest.
    Link = 6,
    /// Counts failed sign-ins by the name that was given, which may be a password by mistake.
    SignIn = 7,
    /// Finds what an authenticator was asked to sign, which is not kept.
    PasskeyChallenge = 8,
    /// Proves that a backup is as it was written.
    Backup = 9,
    /// Knows again whoever was removed from the team, without naming them.
    RemovedTeammate = 10,
}

const PURPOSES: usize = 11;
/// Octets of a signature: `key number (u16 BE) | HMAC-SHA-256, its first 16 octets`.
pub(crate) const SIGNATURE_LEN: usize = NUMBER_LEN + SIGNATURE_MAC_LEN;
const SIGNATURE_MAC_LEN: usize = 16;

struct Keys {
    /// Replaced as a whole when a key is added, or takes over.
    seal: RwLock<Arc<SealKeys>>,
    lookup: [hmac::Key; PURPOSES],
}

/// The seal keys by number: all of them open and check.
struct SealKeys {
    keys: BTreeMap<u16, SealKey>,
    /// The number of the one that seals and signs.
    current: u16,
}

impl SealKeys {
    /// # Panics
    /// Without the current one.
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
    /// Derived from the same octets, for signatures.
    signing: hmac::Key,
    /// Derived likewise, for the tokens of sessions.
    session: [u8; 32],
}

impl SealKey {
    fn new(octets: &[u8; 32]) -> Self {
        let aead = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, octets).expect("32 octets"));
        let root = hmac::Key::new(hmac::HMAC_SHA256, octets);
        let signing = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, b"signatures").as_ref());
        let session = hmac::sign(&root, b"sessions").as_ref().try_into().expect("SHA-256 has 32 octets");
        Self { aead, signing, session }
    }

    fn sign(&self, state: &[u8]) -> [u8; SIGNATURE_MAC_LEN] {
        let tag = hmac::sign(&self.signing, state);
        *tag.as_ref().first_chunk().expect("SHA-256 has 32 octets")
    }
}

/// The unlocked data keys. Cheap to clone; `Debug` shows no key.
#[derive(Clone)]
pub struct Vault(Arc<Keys>);

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vault({} seal keys)", self.0.seal.read().keys.len())
    }
}

impl Vault {
    /// Takes the unwrapped data keys: the numbered seal keys, of which the highest number seals, and the look-up key.
    ///
    /// # Panics
    /// Without a seal key: the caller creates one before it gets here.
    pub fn new(seal: impl IntoIterator<Item = (u16, [u8; 32])>, lookup: &[u8; 32]) -> Self {
        let seal: Vec<_> = seal.into_iter().collect();
        let newest = seal.iter().map(|(number, _)| *number).max().unwrap_or_default();
        Self::sealing_by(seal, newest, lookup)
    }

    /// The same, but another one than the newest may be what seals yet.
    ///
    /// # Panics
    /// Without that key.
    pub(crate) fn sealing_by(seal: impl IntoIterator<Item = (u16, [u8; 32])>, current: u16, lookup: &[u8; 32]) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, lookup);
        let lookup = std::array::from_fn(|purpose| {
            hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, &[purpose as u8]).as_ref())
        });
        Self(Arc::new(Keys { seal: RwLock::new(SealKeys::new(seal, current)), lookup }))
    }

    /// Takes other seal keys in place of those that it has, for all who share this vault.
    ///
    /// # Panics
    /// Without the one that is to seal from now on.
    pub(crate) fn adopt(&self, seal: impl IntoIterator<Item = (u16, [u8; 32])>, current: u16) {
        *self.0.seal.write() = SealKeys::new(seal, current);
    }

    /// The number of the newest seal key that it has, and of the one that seals.
    pub(crate) fn seal_keys(&self) -> (u16, u16) {
        let seal = self.seal_keys_now();
        (seal.keys.last_key_value().map_or(0, |(number, _)| *number), seal.current)
    }

    fn seal_keys_now(&self) -> Arc<SealKeys> {
        self.0.seal.read().clone()
    }

    /// Seals a value for one place and row.
    pub fn seal(&self, place: Column, row: impl Into<Uuid>, plain: &[u8]) -> Vec<u8> {
        let seal = self.seal_keys_now();
        let (number, key) = seal.current();
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

    /// Opens a value sealed for this place and row.
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

    /// Signs a state that waits in the database, under the key that seals. Whoever signs says what kind of state it is within it.
    pub fn sign(&self, state: &[u8]) -> [u8; SIGNATURE_LEN] {
        let seal = self.seal_keys_now();
        let (number, key) = seal.current();
        let mut signature = [0; SIGNATURE_LEN];
        let (stated, mac) = signature.split_at_mut(NUMBER_LEN);
        stated.copy_from_slice(&number.to_be_bytes());
        mac.copy_from_slice(&key.sign(state));
        signature
    }

    /// Whether one of the keys signed exactly this state. Takes as long for a signature that is nearly right.
    pub fn has_signed(&self, state: &[u8], signature: &[u8]) -> bool {
        let Some((number, mac)) = signature.split_first_chunk::<NUMBER_LEN>() else { return false };
        let seal = self.seal_keys_now();
        let Some(key) = seal.keys.get(&u16::from_be_bytes(*number)) else { return false };
        key.sign(state).ct_eq(mac).into()
    }

    /// The key that tokens of sessions are signed with, and its number.
    pub(crate) fn session_key(&self) -> (u16, [u8; 32]) {
        let seal = self.seal_keys_now();
        let (number, key) = seal.current();
        (number, key.session)
    }

    /// The key of that number, with which tokens of sessions may have been signed.
    pub(crate) fn session_key_of(&self, number: u16) -> Option<[u8; 32]> {
        self.seal_keys_now().keys.get(&number).map(|key| key.session)
    }

    /// Begins the HMAC that proves that a backup is as it was written.
    pub(crate) fn backup_mac(&self) -> hmac::Context {
        hmac::Context::with_key(&self.0.lookup[Purpose::Backup as usize])
    }

    /// HMAC-SHA-256 over the parts, each behind its length, so that no two lists of parts collide.
    pub fn mac(&self, purpose: Purpose, parts: &[&[u8]]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.0.lookup[purpose as usize]);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.sign().as_ref().try_into().expect("SHA-256 has 32 octets")
    }
}

/// `place | row`: fixed-length row last, so that no two pairs share an encoding.
fn associated_data(place: Column, row: Uuid) -> Vec<u8> {
    [place.as_bytes(), row.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vault() -> Vault {
        Vault::new([(1, [1; 32])], &[9; 32])
    }

    #[test]
    fn a_value_opens_only_in_its_own_place_and_row() {
        let (vault, row) = (vault(), Uuid::now_v7());
        let sealed = vault.seal(CONTENT, row, b"secret");
        assert_eq!(sealed.len(), 6 + OVERHEAD);
        assert_eq!(vault.open(CONTENT, row, &sealed).as_deref(), Ok(b"secret".as_slice()));
        assert!(vault.open(ADDRESS, row, &sealed).is_err());
        assert!(vault.open(CONTENT, Uuid::now_v7(), &sealed).is_err());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(vault.open(CONTENT, row, &changed).is_err(), "octet {at}");
            assert!(vault.open(CONTENT, row, &sealed[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn an_old_key_still_opens_after_a_new_one_took_over() {
        let row = Uuid::now_v7();
        let sealed = vault().seal(CONTENT, row, b"secret");
        let rotated = Vault::new([(1, [1; 32]), (2, [2; 32])], &[9; 32]);
        assert_eq!(rotated.open(CONTENT, row, &sealed).as_deref(), Ok(b"secret".as_slice()));
        assert!(vault().open(CONTENT, row, &rotated.seal(CONTENT, row, b"secret")).is_err());
    }

    #[test]
    fn a_key_that_is_there_already_opens_before_it_takes_over_and_does_for_all_who_share_the_vault() {
        let (row, keys) = (Uuid::now_v7(), [(1, [1; 32]), (2, [2; 32])]);
        let (before, shared) = (vault(), vault().clone());
        let heard = Vault::sealing_by(keys, 1, &[9; 32]);
        assert_eq!(heard.seal_keys(), (2, 1));
        assert_eq!(heard.seal(CONTENT, row, b"secret")[..NUMBER_LEN], [0, 1]);
        shared.adopt(keys, 2);
        let sealed = shared.clone().seal(CONTENT, row, b"secret");
        assert_eq!(sealed[..NUMBER_LEN], [0, 2]);
        assert_eq!(heard.open(CONTENT, row, &sealed).as_deref(), Ok(b"secret".as_slice()));
        assert!(before.open(CONTENT, row, &sealed).is_err());
        assert_eq!(shared.session_key().0, 2);
    }

    #[test]
    fn a_signature_holds_for_its_state_alone_and_outlives_a_rotation() {
        let signature = vault().sign(b"state");
        let rotated = Vault::new([(1, [1; 32]), (2, [2; 32])], &[9; 32]);
        assert!(vault().has_signed(b"state", &signature) && rotated.has_signed(b"state", &signature));
        assert!(!vault().has_signed(b"stats", &signature) && !vault().has_signed(b"state", &[]));
        assert!(!vault().has_signed(b"state", &rotated.sign(b"state")), "a key that this server does not have");
        for at in 0..SIGNATURE_LEN {
            let mut changed = signature;
            changed[at] ^= 1;
            assert!(!rotated.has_signed(b"state", &changed), "octet {at}");
            assert!(!rotated.has_signed(b"state", &signature[..at]), "cut at {at}");
        }
    }

    #[test]
    fn macs_differ_by_purpose_and_by_where_parts_end() {
        let vault = vault();
        let one = vault.mac(Purpose::Endpoint, &[b"ab", b"c"]);
        assert_ne!(one, vault.mac(Purpose::Endpoint, &[b"a", b"bc"]));
        assert_ne!(one, vault.mac(Purpose::Receipt, &[b"ab", b"c"]));
    }
}
