//! Rate limits of the public routes, by client and by app, kept in this process's memory.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use governor::clock::{Clock as _, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use uuid::Uuid;

use super::Settings;
use super::problem::Problem;

/// How many requests are let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// At once; at least 1.
    pub burst: u32,
    /// In the long run; at least 1.
    pub per_minute: u32,
}

impl Rate {
    fn quota(self) -> Quota {
        let burst = NonZeroU32::new(self.burst).unwrap_or(NonZeroU32::MIN);
        let each = Duration::from_mins(1) / self.per_minute.max(1);
        Quota::with_period(each.max(Duration::from_nanos(1))).expect("the period is not zero").allow_burst(burst)
    }
}

type Limiter<K> = RateLimiter<K, DashMapStateStore<K>, DefaultClock, StateInformationMiddleware>;

/// What a visitor of the example page may send.
const TRIES: Rate = Rate { burst: 6, per_minute: 6 };

/// Requests between two clearings, in which limiters forget whoever has been quiet long enough to be as good as new.
const CLEARED_EVERY: u32 = 20_000;

/// All limiters.
pub struct Limits {
    clients: Limiter<IpAddr>,
    apps: Limiter<Uuid>,
    /// Receipts apart: those of a campaign come in a burst, and must not keep anybody from subscribing.
    reporters: Limiter<IpAddr>,
    reports: Limiter<Uuid>,
    /// Messages that visitors of the example page send to themselves.
    tries: Limiter<IpAddr>,
    requests: AtomicU32,
    trusted_proxies: usize,
}

impl Limits {
    /// Begins fresh.
    pub fn new(settings: &Settings) -> Self {
        Self {
            clients: RateLimiter::dashmap(settings.per_client.quota()).with_middleware(),
            apps: RateLimiter::dashmap(settings.per_app.quota()).with_middleware(),
            reporters: RateLimiter::dashmap(settings.receipts_per_client.quota()).with_middleware(),
            reports: RateLimiter::dashmap(settings.receipts_per_app.quota()).with_middleware(),
            tries: RateLimiter::dashmap(TRIES.quota()).with_middleware(),
            requests: AtomicU32::new(0),
            trusted_proxies: settings.trusted_proxies,
        }
    }

    /// Counts a public request against its client. Answers the budget left, as headers.
    pub fn client(&self, headers: &HeaderMap, extensions: &Extensions) -> Result<Budget, Problem> {
        self.clear_now_and_then();
        take(&self.clients, "client", network(self.address(headers, extensions)))
    }

    fn clear_now_and_then(&self) {
        if self.requests.fetch_add(1, Ordering::Relaxed) % CLEARED_EVERY == CLEARED_EVERY - 1 {
            self.clients.retain_recent();
            self.apps.retain_recent();
            self.reporters.retain_recent();
            self.reports.retain_recent();
            self.tries.retain_recent();
        }
    }

    /// Counts a request with receipts against its client. Answers the budget left, as headers.
    pub fn reporter(&self, headers: &HeaderMap, extensions: &Extensions) -> Result<Budget, Problem> {
        self.clear_now_and_then();
        take(&self.reporters, "receipts", network(self.address(headers, extensions)))
    }

    /// Counts a request with receipts against its app.
    pub fn reports_of(&self, app: Uuid) -> Result<(), Problem> {
        take(&self.reports, "app", app).map(drop)
    }

    /// Counts a message that a visitor of the example page sends to itself.
    pub fn tried(&self, headers: &HeaderMap, extensions: &Extensions) -> Result<(), Problem> {
        self.clear_now_and_then();
        take(&self.tries, "client", network(self.address(headers, extensions))).map(drop)
    }

    /// Counts a public request against its app.
    pub fn app(&self, app: Uuid) -> Result<(), Problem> {
        take(&self.apps, "app", app).map(drop)
    }

    /// The nearest address that is not one of our own proxies: they are the last ones to have written into
    /// `X-Forwarded-For`, and whatever stands further left may be made up. None: the request came off no socket.
    pub fn known_address(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<IpAddr> {
        let peer = extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
        let forwarded = self.trusted_proxies.checked_sub(1).and_then(|skipped| {
            let values = headers.get_all("x-forwarded-for");
            let hops: Vec<&str> =
                values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).collect();
            read_address(hops.into_iter().rev().nth(skipped)?.trim())
        });
        forwarded.or(peer)
    }

    fn address(&self, headers: &HeaderMap, extensions: &Extensions) -> IpAddr {
        self.known_address(headers, extensions).unwrap_or(IpAddr::from([0, 0, 0, 0]))
    }
}

/// Reads an address as proxies write it: some add the port.
fn read_address(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

/// What one household or server is: an IPv4 address, or the /64 of an IPv6 one.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::from((u128::from(v6) >> 64 << 64).to_be_bytes()),
        v4 => v4,
    }
}

/// `RateLimit` and `RateLimit-Policy` of an answer (draft-ietf-httpapi-ratelimit-headers).
#[derive(Debug)]
pub struct Budget([(HeaderName, HeaderValue); 2]);

impl Budget {
    fn new(name: &str, quota: Quota, remaining: u32, reset_s: u64) -> Self {
        let window_s = quota.burst_size_replenished_in().as_secs().max(1);
        let policy = format!("\"{name}\";q={};w={window_s}", quota.burst_size());
        let state = format!("\"{name}\";r={remaining};t={reset_s}");
        let value = |text: String| HeaderValue::try_from(text).expect("plain ASCII");
        Self([
            (HeaderName::from_static("ratelimit-policy"), value(policy)),
            (HeaderName::from_static("ratelimit"), value(state)),
        ])
    }

    /// Writes them.
    pub fn write(self, headers: &mut HeaderMap) {
        headers.extend(self.0);
    }
}

fn take<K: std::hash::Hash + Eq + Clone>(limiter: &Limiter<K>, name: &str, key: K) -> Result<Budget, Problem> {
    match limiter.check_key(&key) {
        Ok(state) => {
            let quota = state.quota();
            Ok(Budget::new(name, quota, state.remaining_burst_capacity(), quota.replenish_interval().as_secs() + 1))
        }
        Err(until) => {
            let wait_s = until.wait_time_from(DefaultClock::default().now()).as_secs() + 1;
            let detail = format!("Too many requests of this {name}. Try again in {wait_s} s.");
            let mut problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail)
                .with_header(header::RETRY_AFTER, HeaderValue::from(wait_s));
            for (name, value) in Budget::new(name, until.quota(), 0, wait_s).0 {
                problem = problem.with_header(name, value);
            }
            Err(problem)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(trusted_proxies: usize) -> Limits {
        let per_client = Rate { burst: 2, per_minute: 1 };
        Limits::new(&Settings { per_client, trusted_proxies, ..Settings::default() })
    }

    fn from(peer: &str, forwarded: &str) -> (HeaderMap, Extensions) {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", forwarded.parse().unwrap());
        let mut extensions = Extensions::new();
        extensions.insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 1)));
        (headers, extensions)
    }

    #[test]
    fn a_client_is_let_in_as_often_as_its_burst_and_told_when_to_come_back() {
        let limits = limits(0);
        let (headers, extensions) = from("192.0.2.1", "203.0.113.1");
        assert!(limits.client(&headers, &extensions).is_ok());
        assert!(limits.client(&headers, &extensions).is_ok());
        let refused = limits.client(&headers, &extensions).unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        let (headers, extensions) = from("192.0.2.2", "203.0.113.1");
        assert!(limits.client(&headers, &extensions).is_ok(), "a header that nobody vouches for changes nothing");
    }

    #[test]
    fn only_what_our_own_proxies_wrote_counts() {
        let address = |proxies, forwarded| {
            let (headers, extensions) = from("192.0.2.1", forwarded);
            limits(proxies).address(&headers, &extensions).to_string()
        };
        assert_eq!(address(0, "198.51.100.7"), "192.0.2.1");
        assert_eq!(address(1, "made-up, 198.51.100.7"), "198.51.100.7");
        assert_eq!(address(2, "198.51.100.7, 10.0.0.1"), "198.51.100.7");
        assert_eq!(address(1, "[2001:db8::1]:443"), "2001:db8::1");
        assert_eq!(address(2, "10.0.0.1"), "192.0.2.1");
    }

    #[test]
    fn neighbours_in_an_ipv6_network_are_one_client() {
        let net = |text: &str| network(text.parse().unwrap());
        assert_eq!(net("2001:db8::1"), net("2001:db8::ffff:0:0:2"));
        assert_ne!(net("2001:db8::1"), net("2001:db8:0:1::1"));
        assert_eq!(net("::ffff:192.0.2.1"), net("192.0.2.1"));
    }
}
