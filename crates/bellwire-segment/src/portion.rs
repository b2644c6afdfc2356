//! Shares of the people that are stable between messages: a test group, its rest, a holdout.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

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
