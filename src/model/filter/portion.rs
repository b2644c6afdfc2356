//! Shares of the people that do not change from one message to the next: a test group, its rest, a holdout.

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

/// Parts that all people are divided into.
pub(crate) const PARTS: u16 = 10_000;

/// Those people whose part, by a hash of salt and person, lies in `from..to`. Two portions of the same salt that do not overlap
/// share nobody; those of different salts are independent of each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Portion {
    /// What decides who is where.
    pub salt: String,
    /// The first part, of ten thousand.
    pub from: u16,
    /// The part after the last.
    pub to: u16,
}

impl Portion {
    /// Whether a person lies in it. The person is a user's id, else the octets of a browser's first id.
    pub(crate) fn holds(&self, person: &[u8]) -> bool {
        (self.from..self.to).contains(&part_of(&self.salt, person))
    }

    /// Whether nobody lies in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.from >= self.to.min(PARTS)
    }
}

/// The part that a person lies in: the first eight octets of SHA-256(salt ‖ person), modulo ten thousand.
fn part_of(salt: &str, person: &[u8]) -> u16 {
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(salt.as_bytes());
    hash.update(person);
    let hash = hash.finish();
    let first = hash.as_ref()[..8].try_into().expect("SHA-256 has 32 octets");
    (u64::from_be_bytes(first) % u64::from(PARTS)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn portion(from: u16, to: u16) -> Portion {
        Portion { salt: "spring".into(), from, to }
    }

    #[test]
    fn portions_that_adjoin_divide_the_people_and_each_gets_its_share() {
        let (test, rest) = (portion(0, 2_000), portion(2_000, PARTS));
        let people: Vec<String> = (0..20_000).map(|n| format!("user {n}")).collect();
        assert!(people.iter().all(|person| test.holds(person.as_bytes()) != rest.holds(person.as_bytes())));
        let taken = people.iter().filter(|person| test.holds(person.as_bytes())).count();
        assert!((3_800..4_200).contains(&taken), "a fifth of 20,000, give or take what chance does: {taken}");
    }

    #[test]
    fn a_part_is_what_the_hash_says_and_another_salt_deals_anew() {
        let first = u64::from_be_bytes(sha256(b"spring42")[..8].try_into().unwrap());
        assert_eq!(u64::from(part_of("spring", b"42")), first % 10_000);
        let both = (0..10_000).map(|n| n.to_string());
        let both = both.filter(|who| part_of("a", who.as_bytes()) < 5_000 && part_of("b", who.as_bytes()) < 5_000);
        let both = both.count();
        assert!((2_300..2_700).contains(&both), "a quarter: {both}");
    }

    #[test]
    fn a_portion_from_a_part_to_itself_holds_nobody() {
        assert!(portion(5, 5).is_empty() && portion(PARTS, PARTS).is_empty() && portion(7, 3).is_empty());
        assert!(!portion(0, 1).is_empty());
    }

    fn sha256(octets: &[u8]) -> Vec<u8> {
        use sha2::Digest as _;
        sha2::Sha256::digest(octets).to_vec()
    }
}
