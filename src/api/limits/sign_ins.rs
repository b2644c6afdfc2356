//! Waits after wrong passwords: longer after each failure, by three counts.
//!
//! - One name from one client: five free, then 1 s, 2 s, 4 s … up to a quarter of an hour.
//! - One client with any names: 20 free, then likewise, so that the number of known names does not matter.
//! - One name from any clients: 50 free, then at most half a minute.
//!
//! A stranger with many addresses could lock a name's owner out permanently, and one colleague all others at the same address.
//! Therefore only the first count applies to clients from which the owner has signed in before, and none of the three to one-time
//! links and operators' keys.
//!
//! An attempt counts as failed from its beginning until it succeeds: a thousand at once are no way around.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use axum::http::{HeaderValue, header};
use parking_lot::Mutex;

use crate::api::problem::{Problem, ProblemCode};
use bellwire_core::clock::Timestamp;
use bellwire_net::http_server::address::{household, site};

/// A failure is forgotten when none has followed for so long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// Maximum counts in memory: beyond it those without a wait are dropped, and if that is not enough, all.
const COUNTS_MAX: usize = 100_000;

/// Name of a sign-in as a keyed hash, also of unknown names.
pub(crate) type HashedName = [u8; 32];

/// Key of a count of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FailureKey {
    NameAndClient(HashedName, IpAddr),
    Client(IpAddr),
    /// Network: an IPv6 /48.
    Network(IpAddr),
    Name(HashedName),
}

impl FailureKey {
    /// Number of free failures, and the longest wait after one.
    fn patience(self) -> (u32, Duration) {
        const QUARTER: Duration = Duration::from_secs(900);
        match self {
            Self::NameAndClient(..) => (5, QUARTER),
            Self::Client(_) => (20, QUARTER),
            Self::Network(_) => (20 * super::SITE_FACTOR, QUARTER),
            Self::Name(_) => (50, Duration::from_secs(30)),
        }
    }

    fn wait(self, failures: u32) -> Duration {
        let (free, longest) = self.patience();
        match failures.checked_sub(free) {
            None => Duration::ZERO,
            Some(beyond) => Duration::from_secs(1 << beyond.min(30)).min(longest),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct FailureCount {
    failures: u32,
    last_at: Timestamp,
}

impl FailureCount {
    fn until(self, by: FailureKey) -> Timestamp {
        self.last_at + by.wait(self.failures)
    }
}

#[derive(Default)]
pub(crate) struct SignIns(Mutex<HashMap<FailureKey, FailureCount>>);

#[derive(Debug)]
pub(crate) enum Wait {
    Anybody(Problem),
    /// It has failed with other names, or others have failed with this one. Known clients are exempt.
    Strangers(Problem),
}

impl Wait {
    /// Converts to a 429 for any of the failures.
    pub(crate) fn into_problem(self) -> Problem {
        match self {
            Self::Anybody(problem) | Self::Strangers(problem) => problem,
        }
    }
}

impl SignIns {
    /// Begins an attempt. `is_known`: the name's owner has signed in from that client before.
    pub(crate) fn attempt(
        &self,
        name: HashedName,
        client: IpAddr,
        is_known: bool,
        now: Timestamp,
    ) -> Result<SignInAttempt<'_>, Wait> {
        let here = household(client);
        let own = FailureKey::NameAndClient(name, here);
        let strangers =
            [Some(FailureKey::Client(here)), site(client).map(FailureKey::Network), Some(FailureKey::Name(name))];
        // Mistyped passwords at one address delay no sign-in elsewhere.
        let strangers: Vec<FailureKey> = strangers.into_iter().flatten().filter(|_| !is_known).collect();
        let mut counts = self.0.lock();
        let until = |by: &FailureKey| counts.get(by).map_or(now, |count| count.until(*by));
        if until(&own) > now {
            return Err(Wait::Anybody(too_many(until(&own), now)));
        }
        if let Some(until) = strangers.iter().map(until).max().filter(|until| *until > now) {
            return Err(Wait::Strangers(too_many(until, now)));
        }
        make_room(&mut counts, now);
        let mut count = |by: FailureKey| {
            let count = counts.entry(by).or_insert(FailureCount { failures: 0, last_at: now });
            if count.last_at + FORGOTTEN_AFTER <= now {
                count.failures = 0;
            }
            let before = count.last_at;
            *count = FailureCount { failures: count.failures.saturating_add(1), last_at: now };
            (by, before)
        };
        let counted = std::iter::once(own).chain(strangers).map(&mut count).collect();
        Ok(SignInAttempt { all: self, counted, at: now })
    }
}

#[must_use = "it counts as failed unless it is marked as successful"]
pub(crate) struct SignInAttempt<'a> {
    all: &'a SignIns,
    /// Counts of it, each with the time of the previous failure.
    counted: Vec<(FailureKey, Timestamp)>,
    at: Timestamp,
}

impl SignInAttempt<'_> {
    /// It succeeded: the client is trusted with that name, and the attempt counts nowhere.
    pub(crate) fn succeeded(self) {
        let mut counts = self.all.0.lock();
        for (by, before) in self.counted {
            match by {
                FailureKey::NameAndClient(..) => drop(counts.remove(&by)),
                _ => take_back(&mut counts, by, before, self.at),
            }
        }
    }

    /// Ends the attempt without counting it: it failed for a reason outside the client.
    pub(crate) fn undone(self) {
        let mut counts = self.all.0.lock();
        self.counted.into_iter().for_each(|(by, before)| take_back(&mut counts, by, before, self.at));
    }
}

/// Takes back what an attempt counted, and the wait that it would have begun anew.
fn take_back(counts: &mut HashMap<FailureKey, FailureCount>, by: FailureKey, before: Timestamp, at: Timestamp) {
    if let Some(count) = counts.get_mut(&by) {
        count.failures = count.failures.saturating_sub(1);
        if count.last_at == at {
            count.last_at = before;
        }
    }
}

fn make_room(counts: &mut HashMap<FailureKey, FailureCount>, now: Timestamp) {
    if counts.len() < COUNTS_MAX {
        return;
    }
    counts.retain(|_, count| count.last_at + FORGOTTEN_AFTER > now);
    if counts.len() >= COUNTS_MAX {
        counts.retain(|by, count| count.until(*by) > now);
    }
    if counts.len() >= COUNTS_MAX {
        counts.clear();
    }
}

/// 429 until this time.
fn too_many(until: Timestamp, now: Timestamp) -> Problem {
    let wait_s = (until - now).to_std().unwrap_or_default().as_secs() + 1;
    let detail = format!("Too many sign-ins have failed. Try again in {wait_s} s.");
    Problem::new(ProblemCode::RateLimited, detail).with_header(header::RETRY_AFTER, HeaderValue::from(wait_s))
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta};

    use super::*;

    const AT: Timestamp = DateTime::UNIX_EPOCH;
    const ANN: HashedName = [1; 32];

    fn client(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    fn fail(sign_ins: &SignIns, name: HashedName, client: IpAddr, now: Timestamp) -> bool {
        sign_ins.attempt(name, client, false, now).map(drop).is_ok()
    }

    #[test]
    fn wait_doubles_after_each_failure_per_client() {
        let sign_ins = SignIns::default();
        assert!((0..5).all(|_| fail(&sign_ins, ANN, client(1), AT)), "five are free");
        let mut now = AT;
        for wait_s in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900] {
            let early = now + TimeDelta::seconds(wait_s) - TimeDelta::milliseconds(1);
            assert!(matches!(sign_ins.attempt(ANN, client(1), true, early), Err(Wait::Anybody(_))), "{wait_s}");
            now += TimeDelta::seconds(wait_s);
            assert!(fail(&sign_ins, ANN, client(1), now), "{wait_s}");
        }
        assert!(fail(&sign_ins, ANN, client(2), now), "somebody elsewhere");
        assert!(fail(&sign_ins, [2; 32], client(1), now), "another name");
        now += FORGOTTEN_AFTER;
        assert!((0..5).all(|_| fail(&sign_ins, ANN, client(1), now)), "after an hour it begins anew");
    }

    #[test]
    fn wait_applies_to_a_client_for_all_names() {
        let sign_ins = SignIns::default();
        let tried = (0..100).filter(|n| fail(&sign_ins, [*n; 32], client(1), AT)).count();
        assert_eq!(tried, 20);
        let office = |n: u16| IpAddr::from([0x2001, 0xdb8, 1, n, 0, 0, 0, 1]);
        let tried = (0..1_000).filter(|n| fail(&sign_ins, [7; 32].map(|b: u8| b ^ *n as u8), office(*n), AT)).count();
        assert_eq!(tried, 320, "a network of many households");
    }

    #[test]
    fn mistyped_colleague_name_delays_nobody_else() {
        let sign_ins = SignIns::default();
        let office = client(1);
        let mut now = AT;
        for n in 0..30 {
            while !fail(&sign_ins, [n; 32], office, now) {
                now += TimeDelta::seconds(1);
            }
        }
        let until = now + TimeDelta::seconds(900);
        assert!(matches!(sign_ins.attempt(ANN, office, false, now), Err(Wait::Strangers(_))), "a stranger there");
        for _ in 0..10 {
            sign_ins.attempt(ANN, office, true, now).unwrap().succeeded();
        }
        sign_ins.attempt(ANN, office, false, until).unwrap().succeeded();
        assert!(sign_ins.attempt(ANN, office, false, until).is_ok(), "it was no failure");
    }

    #[test]
    fn strangers_cannot_lock_out_known_clients() {
        let sign_ins = SignIns::default();
        assert_eq!((0..100).filter(|n| fail(&sign_ins, ANN, client(*n), AT)).count(), 50);
        let home = client(200);
        assert!(matches!(sign_ins.attempt(ANN, home, false, AT), Err(Wait::Strangers(_))));
        sign_ins.attempt(ANN, home, true, AT).unwrap().succeeded();
        let mut now = AT;
        for n in 100..130 {
            now += TimeDelta::seconds(30);
            assert!(fail(&sign_ins, ANN, client(n), now), "half a minute is the longest");
        }
    }

    #[test]
    fn success_forgives_its_client_and_name_only() {
        let sign_ins = SignIns::default();
        for _ in 0..1_000 {
            let attempts: Vec<_> = (0..4).map(|_| sign_ins.attempt(ANN, client(1), false, AT).unwrap()).collect();
            attempts.into_iter().for_each(SignInAttempt::succeeded);
        }
        assert!((0..4).all(|_| fail(&sign_ins, ANN, client(1), AT)));
        sign_ins.attempt(ANN, client(1), false, AT).unwrap().succeeded();
        assert!((0..5).all(|_| fail(&sign_ins, ANN, client(1), AT)));
        assert!(!fail(&sign_ins, ANN, client(1), AT));
        sign_ins.attempt([2; 32], client(2), false, AT).unwrap().undone();
        let more = (0..100).filter(|n| fail(&sign_ins, [10 + n; 32], client(2), AT)).count();
        assert_eq!(more, 20);
    }

    #[test]
    fn memory_is_bounded() {
        let sign_ins = SignIns::default();
        for n in 0..COUNTS_MAX as u32 {
            let client = IpAddr::from((0x0a00_0000 + n).to_be_bytes());
            fail(&sign_ins, [(n % 251) as u8; 32], client, AT);
        }
        let counts = sign_ins.0.lock().len();
        assert!(counts <= COUNTS_MAX + 3, "{counts}");
    }
}
