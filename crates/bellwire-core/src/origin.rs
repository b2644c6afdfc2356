//! Origins that browsers treat as secure without TLS, and the clients that a page is served to.

use url::{Host, Url};

/// Maximum octets of an origin: scheme, the longest DNS name, port.
const ORIGIN_MAX_OCTETS: usize = "https://".len() + 253 + ":65535".len();

/// Whether a URL's host is the machine that reads it. A name below `localhost` is never another machine (RFC 6761).
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

/// Whether a text is an origin as browsers send it: scheme, host and a port only if it is not the default one. Plain
/// http is for development on the same machine, where browsers allow web push without TLS.
pub fn is_origin(text: &str) -> bool {
    text.len() <= ORIGIN_MAX_OCTETS
        && Url::parse(text).is_ok_and(|url| {
            let is_secure = url.scheme() == "https" || url.scheme() == "http" && is_this_machine(&url);
            is_secure && url.origin().ascii_serialization() == text
        })
}

/// Clients that a page of this server is served to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PageAudience {
    /// Clients on this machine.
    #[default]
    ThisMachine,
    /// All clients of the app.
    Everybody,
}
