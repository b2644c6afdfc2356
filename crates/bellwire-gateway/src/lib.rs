//! The client of push services: connections over HTTP/2 and HTTP/1.1, TLS, egress proxies, name resolution, and the guard against
//! private addresses. The main types are `Gateways` (the connections to all origins), `Post` and `Reply` (one delivery), `Egress` and
//! `HostMapping`. This crate never decides what a response means or when to retry: it reports facts as `bellwire_rules::classify::Failure`.
//!
//! ```text
//! recognise (hosts) ── Gateway ──► post ─► origin: a free stream ─► h2 or http1 ─► Reply | Failure
//!                                            └─ connect: resolve ─ guard ─ TCP or egress (the proxy) ─ tls
//! ```
//!
//! Each origin has its own connections, its own queue for free streams and its own pause after a failed connect. A slow
//! or hostile origin therefore delays no other.

mod connect;
mod connection;
mod dial;
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
mod streams;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use parking_lot::RwLock;
use tokio::time::Instant;

use bellwire_core::delivery::Urgency;
use bellwire_core::lane::Gateway;
use bellwire_core::subscription::Endpoint;
use bellwire_rules::classify::Failure;

pub use connect::client_config;
pub use dial::first_of;
pub use egress::Trouble;
pub use egress::{Egress, Exempt, Proxy, Resolve};
pub use hosts::{HostMapping, HostRefused};
pub use prefix::Nat64;
pub use resolve::NoAddress;
pub use streams::Streams;

use connect::Connector;
use egress::Troubles;
use guard::Guard;
use hosts::{HostTable, split};
use origin::{Bounds, Origin};
use resolve::{GuardedDns, Resolver};
use streams::Listeners;

/// Maximum octets of a response body. The stream is reset if there are more.
pub const BODY_MAX: usize = 4096;

/// Configuration of the client.
#[derive(Debug, Clone)]
pub struct GatewayConfig {
    /// Additional hosts, and replacements of known ones. The last mapping of a host counts.
    pub hosts: Vec<HostMapping>,
    /// PEM certificates that are trusted in addition to Mozilla's roots, such as the authority of the simulator.
    pub extra_ca_pem: Option<Vec<u8>>,
    /// Whether `localhost`, 127.0.0.0/8 and `::1` pass the guard: for tests and demos.
    pub allow_loopback: bool,
    /// Proxy for outbound connections; `None` for direct connections.
    pub egress: Option<Egress>,
    /// Duration of an outage behind the proxy after which an alert is raised.
    pub told_after: Duration,
    /// Prefixes with which the network translates IPv6 to IPv4. The guard checks the embedded address.
    pub nat64: Vec<Nat64>,
    /// Maximum connections to one origin, 1 or more. They are opened on demand.
    pub connections_per_origin: usize,
    /// The same maximum for an origin with HTTP/1.1, where a connection carries one request at a time.
    pub http1_connections_per_origin: usize,
    /// Maximum requests in flight on one HTTP/2 connection. The SETTINGS of the peer may allow fewer.
    pub streams_per_connection: usize,
    /// Timeout of TCP, TLS and the first SETTINGS of the peer.
    pub connect_timeout: Duration,
    /// Pause after a failed connect, doubled with each further failure up to 32 times. During a pause requests fail at
    /// once with the same reason, so that thousands of them do not each try to connect.
    pub connect_pause: Duration,
    /// Time without a request after which a connection is closed, and an origin without a connection removed.
    pub idle_after: Duration,
    /// Time after which a host without an address counts as gone, if other hosts of the same push service have one.
    pub gone_after: Duration,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            extra_ca_pem: None,
            allow_loopback: false,
            egress: None,
            told_after: Duration::from_secs(60),
            nat64: Vec::new(),
            connections_per_origin: 4,
            http1_connections_per_origin: 32,
            streams_per_connection: 256,
            connect_timeout: Duration::from_secs(5),
            connect_pause: Duration::from_millis(250),
            idle_after: Duration::from_secs(60),
            gone_after: Duration::from_secs(6 * 3600),
        }
    }
}

/// Error of unusable settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// `extra_ca_pem` contains no certificate, or an unreadable one.
    #[error("the extra CA is not a PEM certificate: {0}")]
    ExtraCa(String),
    /// A limit or duration is zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// The TLS library refused its own defaults.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] tokio_rustls::rustls::Error),
}

/// One request to a push resource. No part of it is logged.
pub struct Post {
    /// Push resource. Its path and query are sent unchanged.
    pub endpoint: Endpoint,
    /// Gateway whose rules apply, as [recognised](Gateways::recognise).
    pub gateway: Gateway,
    /// `vapid t=…, k=…` (RFC 8292 section 3).
    pub authorization: HeaderValue,
    /// Seconds that the gateway may keep the message (RFC 8030 section 5.2).
    pub ttl_s: u32,
    /// Value of the `Urgency` header.
    pub urgency: Urgency,
    /// Value of the `Topic` header: the hash of the collapse key.
    pub topic: Option<HeaderValue>,
    /// The sealed payload: one aes128gcm record (RFC 8291 section 4).
    pub body: Bytes,
    /// Timeout of the response after the request got a stream. The wait for a stream has the same timeout.
    pub patience: Duration,
}

/// One request to another server, such as the receiver of a webhook. No part of it is logged.
pub struct Call {
    /// Method of the request.
    pub method: Method,
    /// URL of the request. Path and query are sent octet for octet.
    pub endpoint: Endpoint,
    /// All headers except `Host`.
    pub headers: HeaderMap,
    /// Body of the request.
    pub body: Bytes,
    /// Timeouts as in [`Post::patience`].
    pub patience: Duration,
}

/// Response of a gateway. `Debug` omits headers and body, because `Location` can cancel the message.
#[derive(Clone)]
pub struct Reply {
    /// Status code, also of a redirect.
    pub status: u16,
    /// Headers as received from the gateway.
    pub headers: HeaderMap,
    /// At most [`BODY_MAX`] octets. The body may be incomplete, because the status alone decides: an accepted message
    /// must not be sent twice.
    pub body: Bytes,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({}, {} octets)", self.status, self.body.len())
    }
}

/// All origins and their connections. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct Gateways {
    inner: Arc<ClientInner>,
}

struct ClientInner {
    connector: Arc<Connector>,
    bounds: Bounds,
    idle_after: Duration,
    listeners: Arc<Listeners>,
    origins: RwLock<HashMap<Box<str>, Arc<Origin>>>,
}

impl Gateways {
    /// Creates the client. The first POST opens the first connection, and needs a runtime.
    pub fn new(settings: GatewayConfig) -> Result<Self, SettingsError> {
        Self::with_resolver(settings, Resolver::System)
    }

    fn with_resolver(settings: GatewayConfig, resolver: Resolver) -> Result<Self, SettingsError> {
        for (zero, name) in [
            (settings.connections_per_origin == 0, "connections_per_origin"),
            (settings.http1_connections_per_origin == 0, "http1_connections_per_origin"),
            (settings.streams_per_connection == 0, "streams_per_connection"),
            (settings.connect_timeout.is_zero(), "connect_timeout"),
            (settings.connect_pause.is_zero(), "connect_pause"),
            (settings.idle_after.is_zero(), "idle_after"),
        ] {
            if zero {
                return Err(SettingsError::Zero(name));
            }
        }
        let hosts = HostTable::new(settings.hosts, Guard::new(settings.allow_loopback, settings.nat64));
        let dns = GuardedDns::new(hosts, resolver, settings.gone_after);
        let (ca_pem, connect_timeout) = (settings.extra_ca_pem.as_deref(), settings.connect_timeout);
        let troubles = Troubles::new(settings.told_after);
        let inner = ClientInner {
            connector: Arc::new(Connector::new(dns, settings.egress, troubles, connect_timeout, ca_pem)?),
            bounds: Bounds {
                connections: settings.connections_per_origin,
                http1_connections: settings.http1_connections_per_origin,
                streams_per_connection: settings.streams_per_connection,
                connect_timeout: settings.connect_timeout,
                connect_pause: settings.connect_pause,
            },
            idle_after: settings.idle_after,
            listeners: Arc::default(),
            origins: RwLock::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the gateway of an endpoint without network access. A host that is neither known nor mapped is
    /// [`Gateway::Other`] if it could be public.
    pub fn recognise(&self, endpoint: &Endpoint) -> Result<Gateway, HostRefused> {
        self.inner.connector.dns.hosts.recognise(endpoint)
    }

    /// Whether the operator has assigned the endpoint's host to a gateway, possibly with a private address.
    pub fn is_mapped(&self, endpoint: &Endpoint) -> bool {
        self.inner.connector.dns.hosts.is_mapped(endpoint)
    }

    /// [Recognises](Self::recognise) an endpoint for registration, then resolves its host and checks that every address
    /// is public. Each connect repeats the check. Takes at most the connect timeout. Skips hosts that the proxy
    /// resolves.
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

    /// Sends one POST and waits for its response. Dropping the future resets the stream.
    pub async fn post(&self, post: Post) -> Result<Reply, Failure> {
        self.post_if(post, || true).await
    }

    /// Like [`post`](Self::post), but calls `may_start` right before the request is sent. The message may have been
    /// stopped while the request waited for a stream.
    ///
    /// # Errors
    /// [`Failure::Withdrawn`] if `may_start` returned `false`; no octet was sent then.
    pub async fn post_if(&self, post: Post, may_start: impl Fn() -> bool) -> Result<Reply, Failure> {
        self.origin(post.endpoint.authority())?.exchange(&post, &may_start).await
    }

    /// Like [`post_if`](Self::post_if) for another request than a push.
    pub async fn call_if(&self, call: Call, may_start: impl Fn() -> bool) -> Result<Reply, Failure> {
        self.origin(call.endpoint.authority())?.exchange(&call, &may_start).await
    }

    /// Returns the number of requests that the origin accepts at a time.
    pub fn streams(&self, authority: &str) -> Streams {
        self.inner.origins.read().get(authority).map_or(Streams::NONE, |origin| origin.streams())
    }

    /// Calls `listener` with the authority of each origin whose [streams](Self::streams) change. It must not block.
    pub fn on_streams(&self, listener: impl Fn(&Arc<str>) + Send + Sync + 'static) {
        self.inner.listeners.add(listener);
    }

    /// Sends an empty POST to `/` of a host of the push service, which every push service refuses. Returns the host and
    /// the result. `None`: the full name of no host is known.
    pub async fn greet(&self, gateway: Gateway, patience: Duration) -> Option<(String, Result<Reply, Failure>)> {
        let host = self.inner.connector.dns.hosts.one_of(gateway)?;
        let endpoint = Endpoint::parse(&format!("https://{host}/")).ok()?;
        let call = Call { method: Method::POST, endpoint, headers: HeaderMap::new(), body: Bytes::new(), patience };
        Some((host, self.call_if(call, || true).await))
    }

    /// Returns push services without a tunnel for a while whose alert was not [raised](Self::told_of_trouble) yet.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.inner.connector.troubles.untold(Instant::now())
    }

    /// Records that an alert was raised for a push service.
    pub fn told_of_trouble(&self, gateway: Gateway) {
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
        let origin = origins.entry(authority.into()).or_insert_with(|| {
            let (connector, listeners) = (self.inner.connector.clone(), self.inner.listeners.clone());
            Arc::new(Origin::new(parsed, connector, self.inner.bounds, listeners))
        });
        Ok(origin.clone())
    }
}

/// Functions for integration tests. A release build has none of them, so that it always uses the resolver of the
/// system.
#[cfg(debug_assertions)]
impl Gateways {
    /// Creates a client that resolves names with `dns`.
    pub fn with_dns(settings: GatewayConfig, dns: resolve::FakeDns) -> Result<Self, SettingsError> {
        Self::with_resolver(settings, Resolver::Fake(dns))
    }

    /// Returns the addresses of `host[:port]`, all of them public.
    pub async fn resolve(&self, authority: &str) -> Result<Vec<std::net::SocketAddr>, Failure> {
        self.inner.connector.dns.addresses(authority).await
    }

    /// Sweeps now instead of after [`GatewayConfig::idle_after`]. Returns the number of origins left.
    pub fn sweep(&self) -> usize {
        self.inner.sweep()
    }
}

impl ClientInner {
    /// Closes connections that were idle since the last sweep, and removes unused origins. Returns the number of
    /// origins left.
    fn sweep(&self) -> usize {
        let mut origins = self.origins.write();
        origins.retain(|_, origin| !(origin.sweep() && Arc::strong_count(origin) == 1));
        origins.len()
    }
}

/// Runs from the first origin to the last; [`Gateways::origin`] starts the next task. Sweeps under the lock with which
/// origins are added, so that it misses none.
async fn sweep_while_used(inner: Weak<ClientInner>) {
    while let Some(idle_after) = inner.upgrade().map(|inner| inner.idle_after) {
        tokio::time::sleep(idle_after).await;
        if inner.upgrade().is_none_or(|inner| inner.sweep() == 0) {
            return;
        }
    }
}
