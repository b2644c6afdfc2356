//! The outbound edge: the only place with outbound sockets. It carries one POST to a push resource (RFC 8030
//! section 5) and tells what came back; it never retries, follows no redirect, and asks no proxy but the one that is set.
//!
//! ```text
//! recognise (hosts) ── Gateway ──► post ─► origin: a free stream ─► h2 or http1 ─► Reply | Failure
//!                                            └─ connect: resolve ─ guard ─ TCP or egress (the proxy) ─ tls
//! ```
//!
//! Each origin has its own few connections, its own wait for a free stream and its own pause after a failed connect,
//! so that one that is slow or hostile holds up nobody else.

mod connect;
mod connection;
mod driver;
mod egress;
mod guard;
mod hosts;
mod http1;
mod http2;
mod missing;
mod origin;
mod prefix;
mod request;
mod resolve;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::classify::Failure;
use crate::model::delivery::Urgency;
use crate::model::lane::Gateway;
use crate::model::subscription::Endpoint;

pub(crate) use connect::client_config;
pub(crate) use egress::Trouble;
pub use egress::{Egress, Exempt, Proxy, Resolve};
pub use hosts::HostMapping;
pub(crate) use hosts::HostRefused;
pub use prefix::Nat64;

use connect::Connector;
use egress::Troubles;
use guard::Guard;
use hosts::{Hosts, split};
use origin::{Bounds, Origin};
use resolve::{GuardedDns, Resolver};

/// Octets of an answer's body that are kept; the stream is reset once more come.
pub(crate) const BODY_MAX: usize = 4096;

/// What the edge may talk to, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Hosts beside the known ones, or in their place: a later mapping of the same host wins.
    pub hosts: Vec<HostMapping>,
    /// PEM certificates trusted beside Mozilla's roots: the simulator's authority.
    pub extra_ca_pem: Option<Vec<u8>>,
    /// Lets `localhost`, 127.0.0.0/8 and `::1` pass the guard, and nothing else: for tests and demos.
    pub allow_loopback: bool,
    /// The proxy that connections leave the network by; none: they leave directly.
    pub egress: Option<Egress>,
    /// A push service that the proxy has let nothing through to for so long is worth an alert.
    pub told_after: Duration,
    /// Prefixes by which the network translates IPv6 to IPv4: the guard judges what such an address stands for.
    pub nat64: Vec<Nat64>,
    /// Connections to one origin at most, 1 or more. They are opened as the load asks for them.
    pub connections_per_origin: usize,
    /// Requests in flight on one HTTP/2 connection at most, where the peer's SETTINGS allow more.
    pub streams_per_connection: usize,
    /// TCP, TLS and the peer's first SETTINGS must be done within this.
    pub connect_timeout: Duration,
    /// Rest after a failed connect; doubles with each further failure, up to 32 times as long. Requests that come
    /// meanwhile fail at once for the same reason, so that thousands of them do not each knock.
    pub connect_pause: Duration,
    /// A connection without a request for this long is closed, an origin without a connection forgotten.
    pub idle_after: Duration,
    /// A host that DNS has not known for this long, while it knew others of the same push service, is gone for good.
    pub gone_after: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            extra_ca_pem: None,
            allow_loopback: false,
            egress: None,
            told_after: Duration::from_secs(60),
            nat64: Vec::new(),
            connections_per_origin: 4,
            streams_per_connection: 256,
            connect_timeout: Duration::from_secs(5),
            connect_pause: Duration::from_millis(250),
            idle_after: Duration::from_secs(60),
            gone_after: Duration::from_secs(6 * 3600),
        }
    }
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// `extra_ca_pem` holds no certificate, or one that cannot be read.
    #[error("the extra CA is not a PEM certificate: {0}")]
    ExtraCa(String),
    /// A limit or duration is zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// The TLS library refused its own defaults.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] tokio_rustls::rustls::Error),
}

/// One request to a push resource. Nothing in it is logged.
pub struct Post {
    /// Where to; its path and query go out octet for octet.
    pub endpoint: Endpoint,
    /// The gateway whose manners to follow, as [recognised](Gateways::recognise).
    pub gateway: Gateway,
    /// `vapid t=…, k=…` (RFC 8292 section 3).
    pub authorization: HeaderValue,
    /// Seconds that the gateway may keep the message (RFC 8030 section 5.2).
    pub ttl_s: u32,
    /// The `Urgency` header.
    pub urgency: Urgency,
    /// The `Topic` header: the hash of the collapse key.
    pub topic: Option<HeaderValue>,
    /// The sealed payload: one aes128gcm record (RFC 8291 section 4).
    pub body: Bytes,
    /// Waiting for a connection or a free stream counts against it.
    pub deadline: Instant,
}

/// One request to somebody else than a push service, such as a webhook's receiver. Nothing in it is logged.
pub(crate) struct Call {
    /// Where to.
    pub endpoint: Endpoint,
    /// All headers but `Host`.
    pub headers: HeaderMap,
    /// What is said.
    pub body: Bytes,
    /// Waiting for a connection or a free stream counts against it.
    pub deadline: Instant,
}

/// What a gateway answered. `Debug` leaves out headers and body: `Location` can cancel the message.
#[derive(Clone)]
pub struct Reply {
    /// The status; a redirect is an answer like any other.
    pub status: u16,
    /// As received.
    pub headers: HeaderMap,
    /// At most [`BODY_MAX`] octets; shorter than the gateway meant it if the body broke off or the deadline came
    /// after the status: the status decides, so that an accepted message is not sent twice.
    pub body: Bytes,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({}, {} octets)", self.status, self.body.len())
    }
}

/// All origins and their connections. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Gateways {
    inner: Arc<Inner>,
}

struct Inner {
    connector: Arc<Connector>,
    bounds: Bounds,
    idle_after: Duration,
    /// By `host[:port]`.
    origins: RwLock<HashMap<Box<str>, Arc<Origin>>>,
}

impl Gateways {
    /// Sets up TLS and the table of hosts. Nothing is connected, and no runtime is needed, before the first POST.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        Self::with_resolver(settings, Resolver::System)
    }

    fn with_resolver(settings: Settings, resolver: Resolver) -> Result<Self, SettingsError> {
        for (zero, name) in [
            (settings.connections_per_origin == 0, "connections_per_origin"),
            (settings.streams_per_connection == 0, "streams_per_connection"),
            (settings.connect_timeout.is_zero(), "connect_timeout"),
            (settings.connect_pause.is_zero(), "connect_pause"),
            (settings.idle_after.is_zero(), "idle_after"),
        ] {
            if zero {
                return Err(SettingsError::Zero(name));
            }
        }
        let hosts = Hosts::new(settings.hosts, Guard::new(settings.allow_loopback, settings.nat64));
        let dns = GuardedDns::new(hosts, resolver, settings.gone_after);
        let (ca_pem, connect_timeout) = (settings.extra_ca_pem.as_deref(), settings.connect_timeout);
        let troubles = Troubles::new(settings.told_after);
        let inner = Inner {
            connector: Arc::new(Connector::new(dns, settings.egress, troubles, connect_timeout, ca_pem)?),
            bounds: Bounds {
                connections: settings.connections_per_origin,
                streams_per_connection: settings.streams_per_connection,
                connect_timeout: settings.connect_timeout,
                connect_pause: settings.connect_pause,
            },
            idle_after: settings.idle_after,
            origins: RwLock::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Names the gateway of an endpoint without touching the network: the known hosts and the mapped ones, and
    /// [`Gateway::Other`] for any other host that could be public.
    pub fn recognise(&self, endpoint: &Endpoint) -> Result<Gateway, HostRefused> {
        self.inner.connector.dns.hosts.recognise(endpoint)
    }

    /// [Recognises](Self::recognise) an endpoint, then resolves its host and checks that every address is public.
    /// For registration; every connect asks and checks again. Takes at most the connect timeout. What the proxy looks up is not
    /// resolved here: a push service's host that is known, or that the settings name.
    pub async fn check_public(&self, endpoint: &Endpoint) -> Result<(), HostRefused> {
        self.recognise(endpoint)?;
        if self.inner.connector.is_looked_up_by_proxy(split(endpoint.authority()).0) {
            return Ok(());
        }
        let addresses = self.inner.connector.dns.addresses(endpoint.authority());
        match tokio::time::timeout(self.inner.bounds.connect_timeout, addresses).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(Failure::Forbidden)) => Err(HostRefused::NotPublic),
            Ok(Err(_)) | Err(_) => Err(HostRefused::Unresolved),
        }
    }

    /// Sends one POST and waits for its answer, at most until its deadline. Dropping the future resets the stream.
    pub async fn post(&self, post: Post) -> Result<Reply, Failure> {
        self.post_if(post, || true).await
    }

    /// [`post`](Self::post), but asks `may_start` when the request is about to leave: it may have waited for a connection
    /// or a free stream for as long as its deadline allows, and something may have been stopped meanwhile.
    ///
    /// # Errors
    /// [`Failure::Withdrawn`] if the answer was no; nothing was sent then.
    pub async fn post_if(&self, post: Post, may_start: impl Fn() -> bool) -> Result<Reply, Failure> {
        self.origin(post.endpoint.authority())?.exchange(&post, &may_start).await
    }

    /// Makes another POST than a push, in the same way.
    pub(crate) async fn call(&self, call: Call) -> Result<Reply, Failure> {
        self.origin(call.endpoint.authority())?.exchange(&call, &|| true).await
    }

    /// Says something to one of a push service's hosts, as a push would go there: an empty POST to where no push resource is, which each
    /// refuses. Returns the host and what came back. None: none of its hosts is known by its whole name.
    pub(crate) async fn greet(&self, gateway: Gateway, deadline: Instant) -> Option<(String, Result<Reply, Failure>)> {
        let host = self.inner.connector.dns.hosts.one_of(gateway)?;
        let endpoint = Endpoint::parse(&format!("https://{host}/")).ok()?;
        let call = Call { endpoint, headers: HeaderMap::new(), body: Bytes::new(), deadline };
        Some((host, self.call(call).await))
    }

    /// Push services that the proxy has let nothing through to for a while, and that nobody was [told](Self::told_of_trouble) of.
    pub(crate) fn troubles(&self) -> Vec<Trouble> {
        self.inner.connector.troubles.untold(Instant::now())
    }

    /// Somebody was told of the proxy's trouble with a push service.
    pub(crate) fn told_of_trouble(&self, gateway: Gateway) {
        self.inner.connector.troubles.told(gateway);
    }

    fn origin(&self, authority: &str) -> Result<Arc<Origin>, Failure> {
        if let Some(origin) = self.inner.origins.read().get(authority) {
            return Ok(origin.clone());
        }
        let parsed = authority.parse().map_err(|_| Failure::Forbidden)?;
        let mut origins = self.inner.origins.write();
        if origins.is_empty() {
            tokio::spawn(sweep_while_used(Arc::downgrade(&self.inner)));
        }
        let origin = origins
            .entry(authority.into())
            .or_insert_with(|| Arc::new(Origin::new(parsed, self.inner.connector.clone(), self.inner.bounds)));
        Ok(origin.clone())
    }
}

impl Inner {
    /// Closes what has been idle since the last sweep and forgets origins that nobody needs. Returns how many are
    /// left.
    fn sweep(&self) -> usize {
        let mut origins = self.origins.write();
        origins.retain(|_, origin| !(origin.sweep() && Arc::strong_count(origin) == 1));
        origins.len()
    }
}

/// Runs from the first origin to the last; [`Gateways::origin`] starts the next. It sweeps under the lock that origins
/// are added under, so that none is added unseen.
async fn sweep_while_used(inner: Weak<Inner>) {
    while let Some(idle_after) = inner.upgrade().map(|inner| inner.idle_after) {
        tokio::time::sleep(idle_after).await;
        if inner.upgrade().is_none_or(|inner| inner.sweep() == 0) {
            return;
        }
    }
}
