//! Proxy for outbound connections: its address, its exemptions, and name resolution.
//!
//! The proxy opens a tunnel, and TLS runs end to end through it, so the proxy cannot read or forge responses. A response of the
//! proxy itself never says anything about a subscription. It is a [`ProxyError`] here, and
//! [`Failure::Proxy`](bellwire_rules::classify::Failure::Proxy) outside.

mod exempt;
mod http;
mod socks;
mod trouble;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::{Host, Url};
use zeroize::Zeroizing;

pub use exempt::Exempt;
pub use trouble::Trouble;
pub(super) use trouble::Troubles;

use super::dial::first_of;

/// Maximum octets of a user name or password (RFC 1929 section 2).
const CREDENTIAL_MAX: usize = 255;
/// Maximum addresses of one host that are tried, one after the other.
const TRIES: usize = 3;

/// Protocol of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// CONNECT requests (RFC 9110 section 9.3.6).
    Http,
    /// SOCKS 5 handshake (RFC 1928).
    Socks5,
}

/// Place of name resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolve {
    /// This host resolves names, and the tunnel leads to the checked address.
    Here,
    /// The proxy resolves known and mapped hosts. Other hosts are resolved and checked here.
    Proxy,
}

/// Error of a text that is not a proxy. `Display` lists the allowed forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", Proxy::ALLOWED)]
pub struct NoProxy;

/// Address and credentials of a proxy. `Debug` and `Display` show no credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    protocol: Protocol,
    /// Whether the scheme is `socks5h://`: the proxy then resolves names, as in curl.
    looks_up: bool,
    host: Host,
    port: u16,
    credentials: Option<Credentials>,
}

#[derive(Clone, PartialEq, Eq)]
struct Credentials {
    user: Zeroizing<String>,
    password: Zeroizing<String>,
}

impl Proxy {
    /// Forms of a proxy's URL, for error messages.
    pub const ALLOWED: &str = "http://proxy:3128, socks5://proxy:1080 or socks5h://proxy:1080, with user:password@ before the \
                                      host where the proxy wants it; proxies that are spoken to by TLS (https://) are not supported";

    /// Parses a URL: `http`, `socks5` or `socks5h`, a host, a port (default 80 or 1080), and percent-encoded
    /// credentials.
    pub fn parse(text: &str) -> Result<Self, NoProxy> {
        let url = Url::parse(text).map_err(|_| NoProxy)?;
        let (protocol, looks_up, usual_port) = match url.scheme() {
            "http" => (Protocol::Http, false, 80),
            "socks5" => (Protocol::Socks5, false, 1_080),
            "socks5h" => (Protocol::Socks5, true, 1_080),
            _ => return Err(NoProxy),
        };
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(NoProxy);
        }
        // The URL parser does not check hosts of these schemes.
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(NoProxy)?;
        let host = Host::parse(host).map_err(|_| NoProxy)?;
        let port = url.port().unwrap_or(usual_port);
        let credentials = credentials(&url)?;
        if port == 0 || protocol == Protocol::Http && credentials.as_ref().is_some_and(|it| it.user.contains(':')) {
            return Err(NoProxy);
        }
        Ok(Self { protocol, looks_up, host, port, credentials })
    }

    /// Returns the `Proxy-Authorization` with the scheme Basic (RFC 7617).
    fn basic(&self) -> Option<Zeroizing<String>> {
        let Credentials { user, password } = self.credentials.as_ref()?;
        let pair = Zeroizing::new(format!("{}:{}", **user, **password));
        Some(Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes()))))
    }
}

fn credentials(url: &Url) -> Result<Option<Credentials>, NoProxy> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let decoded = |text: &str| {
        let text = percent_decode_str(text).decode_utf8().map_err(|_| NoProxy)?;
        let fits = (1..=CREDENTIAL_MAX).contains(&text.len()) && !text.contains(char::is_control);
        if fits { Ok(Zeroizing::new(text.into_owned())) } else { Err(NoProxy) }
    };
    Ok(Some(Credentials { user: decoded(url.username())?, password: decoded(url.password().unwrap_or_default())? }))
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.protocol, self.looks_up) {
            (Protocol::Http, _) => "http",
            (Protocol::Socks5, false) => "socks5",
            (Protocol::Socks5, true) => "socks5h",
        };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// Reason for which a proxy opened no tunnel. `Display` is for operators and contains no credentials.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The proxy is unreachable, or the connection broke.
    #[error("it cannot be reached: {0}")]
    Unreachable(#[from] std::io::Error),
    /// The proxy requires credentials, or refused the given ones.
    #[error("it refused the credentials of BELLWIRE_EGRESS_PROXY")]
    Credentials,
    /// The proxy responded with another status than 2xx.
    #[error("it answered {0}")]
    Status(u16),
    #[error("it answered: {0}")]
    Socks(&'static str),
    /// The response is invalid in this protocol.
    #[error("it does not speak as a proxy of this kind does")]
    Protocol,
    #[error("it did not answer in time")]
    Silent,
}

/// Target of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelTarget<'a> {
    Name(&'a str, u16),
    Address(SocketAddr),
}

/// Rules for connections that leave the network through a proxy.
#[derive(Debug, Clone)]
pub struct Egress {
    proxy: Proxy,
    resolve: Resolve,
    exempt: Vec<Exempt>,
}

impl Egress {
    /// Creates the rules. A proxy with `socks5h://` always resolves names itself.
    pub fn new(proxy: Proxy, resolve: Resolve, exempt: Vec<Exempt>) -> Self {
        let resolve = if proxy.looks_up { Resolve::Proxy } else { resolve };
        Self { proxy, resolve, exempt }
    }

    /// The proxy that connections go through.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Whether the proxy resolves known and mapped hosts.
    pub fn looks_up(&self) -> bool {
        self.resolve == Resolve::Proxy
    }

    /// Whether connections to this host bypass the proxy. `host` is a name or an address, with or without brackets.
    pub fn exempts(&self, host: &str) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || self.exempt.iter().any(|exempt| exempt.has_address(address)),
            Err(_) => host == "localhost" || self.exempt.iter().any(|exempt| exempt.has_name(host)),
        }
    }

    /// Opens a tunnel to the first target that the proxy reaches, in this order. `within` limits the total time.
    pub async fn tunnel(&self, targets: &[TunnelTarget<'_>], within: Duration) -> Result<TcpStream, ProxyError> {
        let targets = &targets[..targets.len().min(TRIES)];
        let mut refused = ProxyError::Protocol;
        for target in targets {
            let each = within / u32::try_from(targets.len()).unwrap_or(1);
            match timeout(each, self.open(*target)).await.unwrap_or(Err(ProxyError::Silent)) {
                Ok(tcp) => return Ok(tcp),
                Err(ProxyError::Credentials) => return Err(ProxyError::Credentials),
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }

    /// Connects to a host that the operator configured, at any address: through the proxy, or directly if it is exempt.
    pub async fn reach(&self, host: &str, port: u16, within: Duration) -> std::io::Result<TcpStream> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if self.exempts(host) {
            return TcpStream::connect((bare, port)).await;
        }
        let tunnelled = if self.looks_up() {
            self.tunnel(&[TunnelTarget::Name(host, port)], within).await
        } else {
            let addresses: Vec<_> = tokio::net::lookup_host((bare, port)).await?.map(TunnelTarget::Address).collect();
            self.tunnel(&addresses, within).await
        };
        tunnelled.map_err(|why| std::io::Error::other(format!("the proxy {}: {why}", self.proxy)))
    }

    async fn open(&self, target: TunnelTarget<'_>) -> Result<TcpStream, ProxyError> {
        let Proxy { protocol, host, port, .. } = &self.proxy;
        let addresses: Vec<SocketAddr> = match host {
            Host::Domain(name) => tokio::net::lookup_host((name.as_str(), *port)).await?.collect(),
            Host::Ipv4(address) => vec![SocketAddr::new((*address).into(), *port)],
            Host::Ipv6(address) => vec![SocketAddr::new((*address).into(), *port)],
        };
        let tcp = first_of(addresses).await?;
        tcp.set_nodelay(true)?;
        match protocol {
            Protocol::Http => http::connect(tcp, target, self.proxy.basic()).await,
            Protocol::Socks5 => socks::connect(tcp, target, self.proxy.credentials.as_ref()).await,
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/gateway/unit/egress.rs"]
mod tests;
