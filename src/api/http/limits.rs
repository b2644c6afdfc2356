//! Rate limits by client, app and API key, kept in this process's memory.

mod keys;
mod refusals;
mod sign_ins;
mod tokens;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, header};
use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{NotUntil, Quota, RateLimiter};

use super::hsts::came_by_https;
use super::problem::{Problem, ProblemCode};
use crate::api::state::config::{ApiConfig, RequestRate};
use bellwire_core::id::AppId;
use bellwire_net::http_server::address::{household, site};
pub(crate) use keys::{KeyLimits, KeyUsage};
pub(crate) use refusals::RefusalScope;
use refusals::Refusals;
pub(crate) use sign_ins::{HashedName, SignInAttempt, SignIns, Wait};
use tokens::TokenLimits;

impl RequestRate {
    fn quota(self) -> Quota {
        let burst = NonZeroU32::new(self.burst).unwrap_or(NonZeroU32::MIN);
        let each = Duration::from_mins(1) / self.per_minute.max(1);
        Quota::with_period(each.max(Duration::from_nanos(1))).expect("the period is not zero").allow_burst(burst)
    }

    fn times(self, factor: u32) -> Self {
        Self { burst: self.burst.saturating_mul(factor), per_minute: self.per_minute.saturating_mul(factor) }
    }
}

type Limiter<K> = RateLimiter<K, DashMapStateStore<K>, DefaultClock, StateInformationMiddleware>;

fn limiter<K: std::hash::Hash + Eq + Clone>(rate: RequestRate) -> Limiter<K> {
    RateLimiter::dashmap(rate.quota()).with_middleware()
}

/// Rate at which a visitor of the example page can send messages.
const TRIES: RequestRate = RequestRate { burst: 6, per_minute: 6 };
/// Rate at which the example page stores new origins.
const EXAMPLE_CHANGES: RequestRate = RequestRate { burst: 10, per_minute: 6 };

/// Limit of an IPv6 /48 in multiples of the limit of a /64. Enough for an office, too little for a client that alternates among
/// its 65,536 networks.
const SITE_FACTOR: u32 = 16;

/// Number of requests between two cleanups, which drop clients with a full budget.
const CLEARED_EVERY: u32 = 20_000;

pub(crate) struct RequestLimits {
    pub keys: KeyLimits,
    clients: PerClient,
    /// Limit of CORS preflights, which browsers send before requests with a token.
    preflights: PerClient,
    /// Limits by subscription token.
    pub tokens: TokenLimits,
    apps: Limiter<AppId>,
    /// Limit of receipts. It is separate, because a burst of receipts must not prevent subscribing.
    reporters: PerClient,
    reports: Limiter<AppId>,
    /// Limit of messages by visitors of the example page.
    tries: PerClient,
    example_changes: PerClient,
    pub sign_ins: SignIns,
    refusals: Refusals,
    requests: AtomicU32,
    trusted_proxies: usize,
}

impl RequestLimits {
    pub(crate) fn new(settings: &ApiConfig) -> Self {
        Self {
            keys: KeyLimits::new(settings),
            clients: PerClient::new("client", settings.per_client),
            preflights: PerClient::new("client", settings.per_client.times(SITE_FACTOR)),
            tokens: TokenLimits::new(),
            apps: limiter(settings.per_app),
            reporters: PerClient::new("receipts", settings.receipts_per_client),
            reports: limiter(settings.receipts_per_app),
            tries: PerClient::new("client", TRIES),
            example_changes: PerClient::new("client", EXAMPLE_CHANGES),
            sign_ins: SignIns::default(),
            refusals: Refusals::new(),
            requests: AtomicU32::new(0),
            trusted_proxies: settings.trusted_proxies,
        }
    }

    /// Returns `https` or `http`, as the client used it.
    pub(crate) fn scheme_of(&self, headers: &HeaderMap, extensions: &Extensions) -> &'static str {
        if came_by_https(headers, extensions, self.trusted_proxies) { "https" } else { "http" }
    }

    /// Returns the client of a request. Also removes idle clients from the limiters now and then.
    pub(crate) fn client_of(&self, headers: &HeaderMap, extensions: &Extensions) -> IpAddr {
        self.clear_now_and_then();
        self.known_address(headers, extensions).unwrap_or(IpAddr::from([0, 0, 0, 0]))
    }

    fn clear_now_and_then(&self) {
        if self.requests.fetch_add(1, Ordering::Relaxed) % CLEARED_EVERY == CLEARED_EVERY - 1 {
            self.keys.clear();
            self.tokens.clear();
            [&self.clients, &self.preflights, &self.reporters, &self.tries, &self.example_changes]
                .into_iter()
                .for_each(PerClient::clear);
            self.refusals.clear();
            self.apps.retain_recent();
            self.reports.retain_recent();
        }
    }

    /// Counts a public request against its client. Returns the remaining budget.
    pub(crate) fn client(&self, client: IpAddr) -> Result<Budget, Problem> {
        self.clients.take(client)
    }

    /// Counts a preflight against its client. Returns the remaining budget.
    pub(crate) fn preflight(&self, client: IpAddr) -> Result<Budget, Problem> {
        self.preflights.take(client)
    }

    pub(crate) fn app(&self, app: AppId) -> Result<(), Problem> {
        take(&self.apps, "app", &app).map(drop)
    }

    /// Counts a request with receipts against its client. Returns the remaining budget.
    pub(crate) fn reporter(&self, client: IpAddr) -> Result<Budget, Problem> {
        self.reporters.take(client)
    }

    pub(crate) fn reports_of(&self, app: AppId) -> Result<(), Problem> {
        take(&self.reports, "app", &app).map(drop)
    }

    /// Counts a message that a visitor of the example page sends to their own browser.
    pub(crate) fn tried(&self, client: IpAddr) -> Result<(), Problem> {
        self.tries.take(client).map(drop)
    }

    /// Counts a change that the example page stores.
    pub(crate) fn example_change(&self, client: IpAddr) -> Result<(), Problem> {
        self.example_changes.take(client).map(drop)
    }

    /// Counts a failed sign-in of a client. Returns the number of failures to write in an audit entry, including this one.
    /// `None`: a later entry includes it.
    pub(crate) fn refused(&self, client: IpAddr, at: RefusalScope) -> Option<i64> {
        self.refusals.refused(client, at)
    }

    /// Returns the address of the client: the peer, or with trusted proxies the entry of `X-Forwarded-For` that the outermost
    /// trusted proxy wrote. Entries further left may be forged and are ignored. `None`: no socket, or the proxies wrote no
    /// address.
    pub(crate) fn known_address(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<IpAddr> {
        let Some(skipped) = self.trusted_proxies.checked_sub(1) else { return peer(extensions) };
        let values: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
        let mut hops = values.into_iter().rev().flat_map(|value| value.as_bytes().rsplit(|octet| *octet == b','));
        read_address(std::str::from_utf8(hops.nth(skipped)?).ok()?.trim())
    }
}

/// Returns the peer address of the request's connection.
pub(crate) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip())
}

/// Parses an address in `X-Forwarded-For`, with or without a port.
fn read_address(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

/// Limit by client, and [`SITE_FACTOR`] times that by IPv6 /48.
struct PerClient {
    name: &'static str,
    households: Limiter<IpAddr>,
    sites: Limiter<IpAddr>,
}

impl PerClient {
    fn new(name: &'static str, rate: RequestRate) -> Self {
        Self { name, households: limiter(rate), sites: limiter(rate.times(SITE_FACTOR)) }
    }

    /// Counts one request. Returns the smaller remaining budget of the two limits.
    fn take(&self, client: IpAddr) -> Result<Budget, Problem> {
        let own = take(&self.households, self.name, &household(client))?;
        let Some(site) = site(client) else { return Ok(own) };
        let shared = take(&self.sites, "network", &site)?;
        Ok(if shared.remaining < own.remaining { shared } else { own })
    }

    fn clear(&self) {
        self.households.retain_recent();
        self.sites.retain_recent();
    }
}

/// Remaining budget of a limit, for `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    name: &'static str,
    quota: Quota,
    remaining: u32,
    reset_s: u64,
}

impl Budget {
    fn headers(&self) -> [(HeaderName, HeaderValue); 2] {
        let Self { name, quota, remaining, reset_s } = self;
        let window_s = quota.burst_size_replenished_in().as_secs().max(1);
        let value = |text: String| HeaderValue::try_from(text).expect("plain ASCII");
        [
            (POLICY, value(format!("\"{name}\";q={};w={window_s}", quota.burst_size()))),
            (LIMIT, value(format!("\"{name}\";r={remaining};t={reset_s}"))),
        ]
    }

    /// Writes the headers, unless the response has them already.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        if !headers.contains_key(LIMIT) {
            headers.extend(self.headers());
        }
    }
}

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

fn take<K: std::hash::Hash + Eq + Clone>(limiter: &Limiter<K>, name: &'static str, key: &K) -> Result<Budget, Problem> {
    match limiter.check_key(key) {
        Ok(state) => {
            let (quota, remaining) = (state.quota(), state.remaining_burst_capacity());
            Ok(Budget { name, quota, remaining, reset_s: quota.replenish_interval().as_secs() + 1 })
        }
        Err(until) => Err(exceeded(name, &until)),
    }
}

/// Counts `n` requests at once, or none if fewer are left.
fn take_several<K: std::hash::Hash + Eq + Clone>(
    limiter: &Limiter<K>, name: &'static str, key: &K, n: NonZeroU32,
) -> Result<(), Problem> {
    // More than the whole burst are never there at once, which callers look at first.
    let taken = limiter.check_key_n(key, n).map_err(|_| Problem::internal())?;
    taken.map(drop).map_err(|until| exceeded(name, &until))
}

/// Returns a 429 problem that ends at this time.
fn exceeded(name: &'static str, until: &NotUntil<<DefaultClock as Clock>::Instant>) -> Problem {
    let wait_s = until.wait_time_from(DefaultClock::default().now()).as_secs() + 1;
    let detail = format!("Too many requests of this {name}. Try again in {wait_s} s.");
    let mut problem =
        Problem::new(ProblemCode::RateLimited, detail).with_header(header::RETRY_AFTER, HeaderValue::from(wait_s));
    for (name, value) in (Budget { name, quota: until.quota(), remaining: 0, reset_s: wait_s }).headers() {
        problem = problem.with_header(name, value);
    }
    problem
}

#[cfg(test)]
#[path = "../../../tests/unit/api/http/limits.rs"]
mod tests;
