//! A push-service simulator: FCM, autopush, WNS, Apple and others in one process, for tests, the demo and
//! benchmarks.
//!
//! It mints subscriptions whose private keys it can derive again ([`Minted`]), and serves their endpoints over TLS with
//! HTTP/2 or HTTP/1.1. It checks each request as a push service does and, for all or a sample of them, decrypts it as
//! the browser does. Responses have the form of each gateway. [`Rule`]s add faults, and a logbook counts and records
//! all requests ([`SimulatorReport`], [`Delivery`]).
//!
//! ```text
//! listener (TCP, TLS, outages) ─ http2 / http1 ─ host (examine → rule → answer → books)
//! socket (Mozilla's WebSocket) ────────────────────┤
//!                                                  ├ browsers real ones, and what waits for them
//!                                                  ├ mint   which subscription is it?
//!                                                  ├ check  headers, VAPID        ├ script  rules
//!                                                  ├ open   decrypt               ├ manners answers
//!                                                  └ logbook what was received
//! control (HTTP interface) ─ the same methods as [`Simulator`]
//! ```
//!
//! The host of an endpoint is a made-up name such as `fcm.bellwire.test`. [`Simulator::hosts`] returns its address on
//! 127.0.0.1, and [`Simulator::ca_pem`] the authority to trust.

mod browsers;
mod check;
mod command;
mod control;
mod decrypt;
mod host;
mod http1;
mod http2;
mod listener;
mod logbook;
mod responses;
mod rule;
mod script;
mod socket;
mod subscriptions;
mod tls;

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use browsers::BrowsersReport;
pub use check::RequestFault;
pub use command::{Args, run};
pub use logbook::SimulatorReport;
pub use logbook::{Delivery, LogbookLimits, RecordedAttempt};
pub use rule::InvalidRule;
pub use rule::{Rule, RuleAction};
pub use subscriptions::Minted;

use bellwire_core::clock::Clock;
use bellwire_core::lane::Gateway;
use browsers::Browsers;
use host::Host;
use listener::GatewayListener;
use logbook::{Counters, Logbook};
use script::Script;
use subscriptions::Minter;

/// One simulated gateway. On the command line: `GATEWAY=HOST`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSpec {
    /// Gateway that the host simulates.
    pub gateway: Gateway,
    /// Host name, unique within the simulator.
    pub host: String,
    /// The port of 127.0.0.1 to listen on; 0 for any.
    pub port: u16,
    /// Whether endpoints contain the port, for clients that cannot map a host to an address. The host is then best
    /// `localhost`.
    pub explicit_port: bool,
    /// Whether the host offers HTTP/1.1 only.
    pub http1_only: bool,
    /// Limit for bodies in octets, instead of that of the gateway.
    pub body_limit: Option<usize>,
}

impl HostSpec {
    /// Returns a host with the defaults of its gateway.
    pub fn new(gateway: Gateway, host: impl Into<String>) -> Self {
        let host = host.into();
        Self { gateway, host, port: 0, explicit_port: false, http1_only: false, body_limit: None }
    }
}

/// Requests that are decrypted with the keys of the browser and recorded. The headers of all requests are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// All requests of all endpoints.
    All,
    /// All requests of one endpoint in this many.
    Sample(u32),
}

/// Configuration of a simulator.
#[derive(Debug, Clone)]
pub struct Options {
    /// Hosts of the simulated gateways.
    pub hosts: Vec<HostSpec>,
    /// Seed of all keys and tokens. With the same seed and hosts, a restarted simulator resolves its previous
    /// endpoints.
    pub seed: u64,
    /// Requests to decrypt and record, see [`Verify`].
    pub verify: Verify,
    /// Maximum number of records.
    pub limits: LogbookLimits,
    /// SETTINGS_MAX_CONCURRENT_STREAMS of every connection. FCM announces 100.
    pub streams: u32,
    /// Address of the HTTP interface.
    pub control: SocketAddr,
    /// Clock for the check of `exp`.
    pub clock: Clock,
}

impl Default for Options {
    /// One host of each gateway, `fcm.bellwire.test` and so on, with verification of all requests.
    fn default() -> Self {
        let host = |gateway: Gateway| HostSpec::new(gateway, format!("{}.bellwire.test", gateway.name()));
        Self {
            hosts: Gateway::ALL.map(host).to_vec(),
            seed: 1,
            verify: Verify::All,
            limits: LogbookLimits { deliveries: 200_000, plaintexts: 2_000 },
            streams: 100,
            control: (Ipv4Addr::LOCALHOST, 0).into(),
            clock: Clock::system(),
        }
    }
}

/// Address of a simulated gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMapping {
    /// Host name in endpoints.
    pub host: String,
    /// Gateway that the host simulates.
    pub gateway: Gateway,
    /// Address of the listener.
    pub addr: SocketAddr,
    /// Address for the WebSocket of real browsers, without TLS: `dom.push.serverURL` of Firefox. Mozilla's hosts only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub browsers: Option<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port could not be opened, or the file of the authority not be written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A certificate could not be created, usually because of an invalid host name.
    #[error(transparent)]
    Certificate(#[from] rcgen::Error),
    #[error(transparent)]
    Tls(#[from] tokio_rustls::rustls::Error),
    #[error("host {0} is named twice")]
    HostTwice(String),
}

/// The host or endpoint does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such host or endpoint here")]
pub struct UnknownHost;

struct Site {
    host: Arc<Host>,
    addr: SocketAddr,
    browsers: Option<SocketAddr>,
}

struct SimulatorShared {
    hosts: Vec<Site>,
    logbook: Arc<Logbook>,
    script: Arc<Script>,
    ca_pem: String,
}

/// A running simulator. Dropping it ends all of its tasks.
pub struct Simulator {
    shared: Arc<SimulatorShared>,
    control: SocketAddr,
    tasks: JoinSet<()>,
}

impl Simulator {
    /// Opens the ports and serves them on the current runtime.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let authority = tls::Authority::new()?;
        let logbook = Arc::new(Logbook::new(options.limits));
        let script = Arc::new(Script::new());
        let mut tasks = JoinSet::new();
        let mut hosts: Vec<Site> = Vec::new();
        for (id, spec) in (0..).zip(&options.hosts) {
            if hosts.iter().any(|site| site.host.name == spec.host) {
                return Err(StartError::HostTwice(spec.host.clone()));
            }
            let tls = authority.server_config(&spec.host, spec.http1_only)?;
            let listener = GatewayListener::open(spec.port)?;
            let addr = listener.addr();
            let host = Arc::new(host(id, spec, addr, &options, &logbook, &script));
            tasks.spawn(listener::serve(Arc::clone(&host), tls, listener, options.streams));
            let browsers = match host.browsers {
                None => None,
                Some(_) => {
                    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
                    let addr = listener.local_addr()?;
                    tasks.spawn(socket::serve(Arc::clone(&host), listener));
                    Some(addr)
                }
            };
            hosts.push(Site { host, addr, browsers });
        }
        let shared = Arc::new(SimulatorShared { hosts, logbook, script, ca_pem: authority.pem().to_owned() });
        let listener = tokio::net::TcpListener::bind(options.control).await?;
        let control = listener.local_addr()?;
        let router = control::router(Arc::clone(&shared));
        tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(target: "bellwire::simulate::gateways", %error, "the simulator's HTTP interface ended");
            }
        });
        Ok(Self { shared, control, tasks })
    }

    /// Returns the certificate authority to trust, as PEM. Every start creates a new one.
    pub fn ca_pem(&self) -> &str {
        &self.shared.ca_pem
    }

    /// Returns the addresses of the gateways.
    pub fn hosts(&self) -> Vec<HostMapping> {
        self.shared.mappings()
    }

    /// Returns the address of the HTTP interface.
    pub fn control(&self) -> SocketAddr {
        self.control
    }

    /// Mints a subscription. `host` is a host name or a gateway, which stands for its first host. `vapid` is the public
    /// key (65 octets) of the subscription. The same arguments give the same subscription. At Mozilla's hosts the upper
    /// half of the indices belongs to real browsers.
    pub fn mint(&self, host: &str, index: u32, vapid: Option<&[u8]>) -> Result<Minted, UnknownHost> {
        self.shared.mint(host, index, vapid)
    }

    /// Returns the position of an endpoint in [0, 1) for [`Rule::share`].
    pub fn fraction(&self, host: &str, index: u32) -> Result<f64, UnknownHost> {
        Ok(self.shared.host(host)?.minter.fraction(index))
    }

    /// Whether the requests of an endpoint are decrypted and recorded.
    pub fn sampled(&self, host: &str, index: u32) -> Result<bool, UnknownHost> {
        let host = self.shared.host(host)?;
        Ok(host.minter.sampled(index, host.sample))
    }

    /// Adds a rule after the existing ones and returns its id.
    pub fn add_rule(&self, rule: Rule) -> Result<u64, InvalidRule> {
        self.shared.add_rule(rule)
    }

    /// Removes a rule and releases the requests that it holds. Returns `false` for an unknown id.
    pub fn remove_rule(&self, id: u64) -> bool {
        self.shared.script.remove(id)
    }

    /// Releases `n` requests that an [`RuleAction::Hold`] rule holds, or will hold. Returns `false` for an unknown id.
    pub fn release(&self, id: u64, n: usize) -> bool {
        self.shared.script.release(id, n)
    }

    /// Returns the counters and records so far.
    pub fn report(&self) -> SimulatorReport {
        self.shared.report()
    }

    /// Returns the recorded deliveries of one endpoint, in the order of their first request.
    pub fn received(&self, endpoint: &str) -> Result<Vec<Delivery>, UnknownHost> {
        self.shared.received(endpoint)
    }

    /// Returns the delivery with this id, if it was recorded.
    pub fn delivery(&self, id: &str) -> Option<Delivery> {
        self.shared.logbook.delivery(id)
    }

    /// Sends the last message of this endpoint to a real browser again, like a gateway that missed the acknowledgement.
    /// Returns `false` if there was none.
    pub fn push_again(&self, endpoint: &str) -> Result<bool, UnknownHost> {
        self.shared.push_again(endpoint)
    }

    /// Forgets all real browsers of a host, like a push service that lost its database. They are disconnected, their
    /// endpoints are gone, and they receive a new id when they reconnect.
    pub fn forget_browsers(&self, host: &str) -> Result<(), UnknownHost> {
        self.shared.forget_browsers(host)
    }

    /// Deletes all records and counters. Rules and their counters stay.
    pub fn reset(&self) {
        self.shared.reset();
    }

    /// Waits until the report satisfies `wanted`. It is evaluated after each event, without a timeout.
    pub async fn wait_until(&self, wanted: impl Fn(&SimulatorReport) -> bool) -> SimulatorReport {
        loop {
            let mut touched = std::pin::pin!(self.shared.logbook.touched.notified());
            touched.as_mut().enable(); // before looking, so that nothing is missed in between
            let report = self.report();
            if wanted(&report) {
                return report;
            }
            touched.await;
        }
    }

    /// Ends all listeners and connections.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

fn host(
    id: u16, spec: &HostSpec, addr: SocketAddr, options: &Options, logbook: &Arc<Logbook>, script: &Arc<Script>,
) -> Host {
    let origin = match spec.explicit_port {
        true => format!("https://{}:{}", spec.host, addr.port()),
        false => format!("https://{}", spec.host),
    };
    Host {
        id,
        name: spec.host.clone(),
        gateway: spec.gateway,
        minter: Minter::new(options.seed, spec.gateway, &spec.host, origin),
        body_limit: spec.body_limit.unwrap_or_else(|| responses::body_limit(spec.gateway)),
        sample: match options.verify {
            Verify::All => 1,
            Verify::Sample(n) => n,
        },
        counters: Counters::new(),
        browsers: (spec.gateway == Gateway::Mozilla).then(Browsers::default),
        logbook: Arc::clone(logbook),
        script: Arc::clone(script),
        clock: options.clock.clone(),
        tokens: Mutex::new(HashMap::new()),
        serial: AtomicU64::new(1),
    }
}

impl SimulatorShared {
    fn host(&self, name: &str) -> Result<&Arc<Host>, UnknownHost> {
        let hosts = || self.hosts.iter().map(|site| &site.host);
        let by_gateway = || hosts().find(|host| host.gateway.name() == name);
        hosts().find(|host| host.name == name).or_else(by_gateway).ok_or(UnknownHost)
    }

    fn mappings(&self) -> Vec<HostMapping> {
        let mapping = |site: &Site| HostMapping {
            host: site.host.name.clone(),
            gateway: site.host.gateway,
            addr: site.addr,
            browsers: site.browsers,
        };
        self.hosts.iter().map(mapping).collect()
    }

    fn mint(&self, host: &str, index: u32, vapid: Option<&[u8]>) -> Result<Minted, UnknownHost> {
        Ok(self.host(host)?.minter.mint(index, vapid))
    }

    fn add_rule(&self, rule: Rule) -> Result<u64, InvalidRule> {
        rule.validate()?;
        if rule.host.as_deref().is_some_and(|name| !self.hosts.iter().any(|site| site.host.name == name)) {
            return Err(InvalidRule::Host);
        }
        Ok(self.script.add(rule, Instant::now()))
    }

    /// Returns the host of an endpoint, and the index of the endpoint.
    fn resolve(&self, endpoint: &str) -> Result<(&Host, u32), UnknownHost> {
        let resolve = |host: &Arc<Host>| {
            let path = endpoint.strip_prefix(host.minter.origin())?;
            match host.minter.resolve(path) {
                subscriptions::MintResolution::Known(target) => Some(target.index),
                _ => None,
            }
        };
        let mut found = self.hosts.iter().filter_map(|site| Some((site.host.as_ref(), resolve(&site.host)?)));
        found.next().ok_or(UnknownHost)
    }

    fn push_again(&self, endpoint: &str) -> Result<bool, UnknownHost> {
        let (host, index) = self.resolve(endpoint)?;
        let browsers = host.browsers.as_ref().ok_or(UnknownHost)?;
        Ok(browsers.push_again(index, host.now_ms()))
    }

    fn forget_browsers(&self, host: &str) -> Result<(), UnknownHost> {
        self.host(host)?.browsers.as_ref().ok_or(UnknownHost)?.forget();
        self.logbook.touched.notify_waiters();
        Ok(())
    }

    fn received(&self, endpoint: &str) -> Result<Vec<Delivery>, UnknownHost> {
        let (host, index) = self.resolve(endpoint)?;
        Ok(self.logbook.received((host.id, index)))
    }

    fn report(&self) -> SimulatorReport {
        let report = |Site { host, .. }: &Site| {
            let browsers = host.browsers.as_ref().map(Browsers::report);
            (host.name.clone(), host.counters.report(host.gateway, browsers))
        };
        self.logbook.report(self.hosts.iter().map(report).collect::<BTreeMap<_, _>>(), self.script.report())
    }

    fn reset(&self) {
        for Site { host, .. } in &self.hosts {
            host.counters.reset();
            host.browsers.iter().for_each(Browsers::reset);
        }
        self.logbook.reset();
    }
}
