//! Delays after wrong passwords: longer after each failure, by three counts.
//!
//! - One name from one client: five free, then 1 s, 2 s, 4 s … up to 15 minutes.
//! - One client with any names: 20 free, then the same delays, so that many known names give no advantage.
//! - One name from any clients: 50 free, then at most 30 seconds.
//!
//! Otherwise a stranger with many addresses could lock out the owner of a name, and one colleague all others at the same
//! address. So only the first count applies to clients from which the owner has signed in before. One-time links and operators'
//! keys have no delays.
//!
//! An attempt counts as failed from its start until it succeeds, so parallel attempts give no advantage.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use axum::http::{HeaderValue, header};
use parking_lot::Mutex;

use crate::api::http::problem::{Problem, ProblemCode};
use bellwire_core::clock::Timestamp;
use bellwire_net::http_server::address::{household, site};

/// Time after the last failure when the count starts at 0 again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// Maximum counts in memory. Beyond it, counts without a delay are dropped, and then all.
const COUNTS_MAX: usize = 100_000;

/// Keyed hash of the name used at a sign-in, also of an unknown one.
pub(crate) type HashedName = [u8; 32];

/// Key of a failure count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FailureKey {
    NameAndClient(HashedName, IpAddr),
    Client(IpAddr),
    /// Client network; for IPv6 a /48.
    Network(IpAddr),
    Name(HashedName),
}

impl FailureKey {
    /// Returns the number of failures without a delay, and the longest delay.
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
    /// Too many failures of this client with other names, or of other clients with this name. Known clients are exempt.
    Strangers(Problem),
}

impl Wait {
    /// Returns the 429 problem.
    pub(crate) fn into_problem(self) -> Problem {
        match self {
            Self::Anybody(problem) | Self::Strangers(problem) => problem,
        }
    }
}

impl SignIns {
    /// Begins an attempt. `is_known`: the owner of the name has signed in from this client before.
    pub(crate) fn attempt(
        &self, name: HashedName, client: IpAddr, is_known: bool, now: Timestamp,
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
    /// Counts increased by the attempt, each with the time of its previous failure.
    counted: Vec<(FailureKey, Timestamp)>,
    at: Timestamp,
}

impl SignInAttempt<'_> {
    /// Ends a successful attempt: it is not counted, and the client is remembered for this name.
    pub(crate) fn succeeded(self) {
        let mut counts = self.all.0.lock();
        for (by, before) in self.counted {
            match by {
                FailureKey::NameAndClient(..) => drop(counts.remove(&by)),
                _ => take_back(&mut counts, by, before, self.at),
            }
        }
    }

    /// Ends an attempt that failed for a reason outside the client, without counting it.
    pub(crate) fn undone(self) {
        let mut counts = self.all.0.lock();
        self.counted.into_iter().for_each(|(by, before)| take_back(&mut counts, by, before, self.at));
    }
}

/// Decreases the count of an attempt, and restores the earlier delay.
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

/// Returns a 429 problem that ends at this time.
fn too_many(until: Timestamp, now: Timestamp) -> Problem {
    let wait_s = (until - now).to_std().unwrap_or_default().as_secs() + 1;
    let detail = format!("Too many sign-ins have failed. Try again in {wait_s} s.");
    Problem::new(ProblemCode::RateLimited, detail).with_header(header::RETRY_AFTER, HeaderValue::from(wait_s))
}

#[cfg(test)]
#[path = "../../../../tests/unit/api/http/limits/sign_ins.rs"]
mod tests;
