//! Chooses which failed sign-ins get an audit entry of their own.
//!
//! A flood of attempts must not fill the log, and must not hide an attempt at a real password. So attempts at teammates are
//! counted separately from attempts at unknown names, both by client and in total.

use std::collections::HashMap;
use std::net::IpAddr;

use governor::RateLimiter;
use governor::clock::DefaultClock;
use governor::state::{InMemoryState, NotKeyed};
use parking_lot::Mutex;

use super::{PerClient, RequestRate};
use bellwire_net::http_server::address::household;

const OF_CLIENT: RequestRate = RequestRate { burst: 20, per_minute: 2 };
const OF_ALL: RequestRate = RequestRate { burst: 60, per_minute: 6 };
/// Maximum clients with failures that are not in the log yet.
const WAITING_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RefusalScope {
    Teammate,
    UnknownName,
}

pub(super) struct Refusals {
    teammates: Entries,
    unknown_names: Entries,
    waiting: Mutex<HashMap<(RefusalScope, IpAddr), i64>>,
}

struct Entries {
    clients: PerClient,
    all: RateLimiter<NotKeyed, InMemoryState, DefaultClock>,
}

impl Entries {
    fn new() -> Self {
        Self { clients: PerClient::new("client", OF_CLIENT), all: RateLimiter::direct(OF_ALL.quota()) }
    }

    fn has_room(&self, client: IpAddr) -> bool {
        // The client's first: what it may not write must not take anybody else's room.
        self.clients.take(client).is_ok() && self.all.check().is_ok()
    }
}

impl Refusals {
    pub(super) fn new() -> Self {
        Self { teammates: Entries::new(), unknown_names: Entries::new(), waiting: Mutex::default() }
    }

    pub(super) fn clear(&self) {
        self.teammates.clients.clear();
        self.unknown_names.clients.clear();
    }

    /// Counts a failure. Returns the number of failures for an entry, this one included. `None`: a later entry includes it.
    pub(super) fn refused(&self, client: IpAddr, at: RefusalScope) -> Option<i64> {
        let entries = match at {
            RefusalScope::Teammate => &self.teammates,
            RefusalScope::UnknownName => &self.unknown_names,
        };
        let key = (at, household(client));
        let has_room = entries.has_room(client);
        let mut waiting = self.waiting.lock();
        if has_room {
            return Some(1 + waiting.remove(&key).unwrap_or(0));
        }
        if waiting.len() >= WAITING_MAX && !waiting.contains_key(&key) {
            let untold: i64 = waiting.drain().map(|(_, n)| n).sum();
            tracing::warn!(untold, "refused sign-ins were not recorded in the audit log: too many clients are trying");
        }
        *waiting.entry(key).or_default() += 1;
        None
    }
}

#[cfg(test)]
#[path = "../../../../tests/unit/api/http/limits/refusals.rs"]
mod tests;
