//! Password rules, and hashing with a limit on CPU and memory for anonymous callers.

use std::sync::{Arc, LazyLock};

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::rand;
use axum::http::{HeaderValue, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use crate::api::http::problem::{Problem, ProblemCode};

/// Parameters of argon2id (memory in KiB, passes, threads), as OWASP's Password Storage Cheat Sheet recommends.
const COST: (u32, u32, u32) = (19 * 1024, 2, 1);
/// Minimum characters of a password.
const CHARS_MIN: usize = 12;
/// Maximum bytes of a password.
const OCTETS_MAX: usize = 512;
/// Hashes computed at a time. Each takes some tens of milliseconds of CPU and 19 MiB.
const AT_ONCE: usize = 2;
/// Maximum waiting hashes: about a second of work. Further callers get 503.
const WAITING_MAX: usize = 32;
/// Slots among these that only known callers can use.
const KEPT_FREE: usize = 12;

/// A password as typed. `Debug` hides it, and its memory is zeroed on drop.
#[derive(Clone, serde::Deserialize)]
#[serde(from = "String")]
pub(crate) struct Password(Zeroizing<String>);

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(…)")
    }
}

impl Password {
    /// Returns the rule that a new password violates, for the owner of this e-mail address.
    pub(in crate::api) fn fault(&self, email: &str) -> Option<&'static str> {
        let text = self.0.as_str();
        let own_name = email.split('@').next().unwrap_or_default();
        if text.chars().count() < CHARS_MIN || text.len() > OCTETS_MAX {
            return Some("must have at least 12 characters, and at most 512 octets");
        }
        // The first guess of an attacker.
        let rest = text.to_lowercase().replace(email, "").replace(own_name, "");
        (rest.chars().count() < CHARS_MIN / 2).then_some("must not be the address that you sign in with")
    }

    /// Whether the password is within the size limit. Longer ones are not hashed.
    fn is_bounded(&self) -> bool {
        self.0.len() <= OCTETS_MAX
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::api) enum Requester {
    ByAnybody,
    /// A person who has signed in from this client before, is signed in, or uses a one-time link.
    ByKnown,
}

pub(in crate::api) struct PasswordPermit {
    _place: OwnedSemaphorePermit,
    _as_stranger: Option<OwnedSemaphorePermit>,
}

#[derive(Clone)]
pub(crate) struct Passwords {
    /// One slot for each hash that runs or waits.
    places: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

impl Passwords {
    /// Creates the hasher.
    pub(in crate::api) fn new() -> Self {
        let [places, strangers, turns] =
            [AT_ONCE + WAITING_MAX, AT_ONCE + WAITING_MAX - KEPT_FREE, AT_ONCE].map(|n| Arc::new(Semaphore::new(n)));
        Self { places, strangers, turns }
    }

    /// Takes a slot. 503: too many hashes wait.
    pub(in crate::api) fn place(&self, wanted: Requester) -> Result<PasswordPermit, Problem> {
        let take = |places: &Arc<Semaphore>| places.clone().try_acquire_owned().map_err(|_| busy());
        let as_stranger = match wanted {
            Requester::ByAnybody => Some(take(&self.strangers)?),
            Requester::ByKnown => None,
        };
        Ok(PasswordPermit { _place: take(&self.places)?, _as_stranger: as_stranger })
    }

    /// Hashes the new password of a known person to a PHC string. 503: too many hashes wait.
    pub(in crate::api) async fn hash(&self, password: Password) -> Result<String, Problem> {
        let place = self.place(Requester::ByKnown)?;
        self.compute(place, move || {
            let mut salt = [0; 16];
            rand::fill(&mut salt).expect("the system's randomness");
            let hash = argon2id().hash_password_with_salt(password.0.as_bytes(), &salt);
            hash.expect("password and salt are within argon2's bounds").to_string()
        })
        .await
    }

    /// Verifies a password. Without a stored hash it takes the same time.
    pub(in crate::api) async fn verify(
        &self, place: PasswordPermit, password: Password, hash: Option<String>,
    ) -> Result<bool, Problem> {
        if !password.is_bounded() {
            return Ok(false);
        }
        self.compute(place, move || {
            let known = hash.as_deref().and_then(|hash| PasswordHash::new(hash).ok());
            let hash = known.as_ref().unwrap_or(&NOBODYS);
            argon2id().verify_password(password.0.as_bytes(), hash).is_ok() && known.is_some()
        })
        .await
    }

    async fn compute<T: Send + 'static>(
        &self, place: PasswordPermit, compute: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = self.turns.clone().acquire_owned().await.expect("it is never closed");
        let permits = (place, turn);
        // The permits go along: a client that goes away does not make room while its hash is still being computed.
        let computed = spawn_blocking(move || {
            let computed = compute();
            drop(permits);
            computed
        });
        computed.await.map_err(|_| Problem::internal())
    }
}

/// Hash to compare with if there is no password, so that the time is the same.
static NOBODYS: LazyLock<PasswordHash> = LazyLock::new(|| {
    let mut secret = [0; 48];
    rand::fill(&mut secret).expect("the system's randomness");
    let (password, salt) = secret.split_at(32);
    argon2id().hash_password_with_salt(password, salt).expect("both are within argon2's bounds")
});

fn argon2id() -> Argon2<'static> {
    let (memory_kib, passes, threads) = COST;
    let params = Params::new(memory_kib, passes, threads, None).expect("they are within argon2's bounds");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// Returns a 503 problem: too many sign-ins at a time.
fn busy() -> Problem {
    let detail = "Too many people are signing in at this moment. Try again shortly.";
    Problem::new(ProblemCode::SignInBusy, detail).with_header(header::RETRY_AFTER, HeaderValue::from_static("2"))
}

#[cfg(test)]
#[path = "../../../tests/unit/api/session/passwords.rs"]
mod tests;
