//! Origins that browsers treat as secure without TLS, and clients that may see a page.

use url::{Host, Url};

/// Maximum bytes of an origin: scheme, the longest DNS name, port.
const ORIGIN_MAX_OCTETS: usize = "https://".len() + 253 + ":65535".len();

/// Whether a URL's host is the machine of the client. A name below `localhost` is never another machine (RFC 6761).
pub fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            name == "localhost" || name.strip_suffix(".localhost").is_some_and(|label| !label.is_empty())
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Whether a text is an origin as browsers send it: scheme, host, and a port unless it is the default one. http is only for
/// development on the same machine, where browsers allow web push without TLS.
pub fn is_origin(text: &str) -> bool {
    text.len() <= ORIGIN_MAX_OCTETS
        && Url::parse(text).is_ok_and(|url| {
            let is_secure = url.scheme() == "https" || url.scheme() == "http" && is_this_machine(&url);
            is_secure && url.origin().ascii_serialization() == text
        })
}

/// Clients that may see a page of this server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PageAudience {
    /// Clients on this machine.
    #[default]
    ThisMachine,
    /// All clients.
    Everybody,
}
