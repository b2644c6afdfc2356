//! Shares of the people that are stable between messages: a test group, its rest, a holdout.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use bellwire_core::assignment::Assigned;
use bellwire_core::id::SubscriptionId;

/// Number of positions that people are divided into.
pub const PARTS: u16 = 10_000;

/// People with a position, by a hash of salt and person, in `from..to`. Portions of the same salt that do not overlap share no
/// person. Portions of different salts are independent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Portion {
    /// Salt of the hash.
    pub salt: String,
    /// First position, below ten thousand.
    pub from: u16,
    /// End of the positions, excluded.
    pub to: u16,
}

impl Portion {
    /// Whether it contains a [position](part_of).
    pub fn holds(&self, part: u16) -> bool {
        (self.from..self.to).contains(&part)
    }

    /// Whether it contains no person.
    pub fn is_empty(&self) -> bool {
        self.from >= self.to.min(PARTS)
    }
}

/// Returns the position of a browser's person at a time, with the values that were assigned then.
pub fn position_of(salt: &str, user_id: Option<&str>, origin: Option<SubscriptionId>, assigned: Assigned<'_>) -> u16 {
    let browser = origin.as_ref().map(|id| id.0.as_bytes().as_slice()).unwrap_or_default();
    match assigned.user {
        None => part_of(salt, user_id.map_or(browser, str::as_bytes)),
        Some(None) => part_of(salt, browser),
        Some(Some(user)) => user.parts.get(salt).copied().unwrap_or_else(|| part_of(salt, user.person.as_bytes())),
    }
}

/// Returns the position of a person: the first eight bytes of SHA-256(salt
/// person), modulo ten thousand. The person is a user id, or else the bytes of a browser's first id.
pub fn part_of(salt: &str, person: &[u8]) -> u16 {
    let mut hash = Sha256::new();
    hash.update(salt.as_bytes());
    hash.update(person);
    let hash = hash.finalize();
    let first = hash[..8].try_into().expect("SHA-256 has 32 octets");
    (u64::from_be_bytes(first) % u64::from(PARTS)) as u16
}
