//! Types of setting values, and their parsers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use url::Url;
use zeroize::Zeroizing;

use bellwire_core::duration;
use bellwire_net::outbound::is_private;

type Parse<T> = dyn Fn(&str) -> Option<T>;

/// Parser of a value, with a description of the allowed values.
pub(super) struct ValueKind<T> {
    allowed: Cow<'static, str>,
    parse: Box<Parse<T>>,
}

impl<T: 'static> ValueKind<T> {
    fn new(allowed: impl Into<Cow<'static, str>>, parse: impl Fn(&str) -> Option<T> + 'static) -> Self {
        Self { allowed: allowed.into(), parse: Box::new(parse) }
    }

    pub(super) fn parse(&self, text: &str) -> Option<T> {
        (self.parse)(text)
    }

    pub(super) fn allowed(&self) -> &str {
        &self.allowed
    }

    /// Converts to a parser that checks the value but returns the text.
    pub(super) fn into_text(self) -> ValueKind<String> {
        ValueKind::new(self.allowed, move |text| (self.parse)(text).map(|_| text.to_owned()))
    }
}

pub(super) fn parsed<T: FromStr + 'static>(allowed: &'static str) -> ValueKind<T> {
    ValueKind::new(allowed, |text| text.parse().ok())
}

pub(super) fn number(range: RangeInclusive<u32>) -> ValueKind<u32> {
    let allowed = format!("a whole number from {} to {}", range.start(), range.end());
    ValueKind::new(allowed, move |text| text.parse().ok().filter(|number| range.contains(number)))
}

/// Parser of a listen address: an IP address and port, or `localhost` and port for this machine's IPv4 address.
pub(super) fn listener() -> ValueKind<SocketAddr> {
    ValueKind::new("an address and a port, such as 127.0.0.1:8787, localhost:8787 or 0.0.0.0:8787", |text| {
        let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
        local.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).or_else(|| text.parse().ok())
    })
}

/// Returns the address at which this machine reaches a listener: loopback for one that listens on all addresses.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Parser of a share above 0, up to 1.
pub(super) fn share() -> ValueKind<f64> {
    ValueKind::new("a number above 0, at most 1, such as 0.25", |text| {
        text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0)
    })
}

/// Parser of a share from 0 to 1.
pub(super) fn fraction() -> ValueKind<f64> {
    ValueKind::new("a number from 0 to 1, such as 0.01", |text| {
        text.parse().ok().filter(|share| (0.0..=1.0).contains(share))
    })
}

/// Parser of a display name: 1 to 255 characters without control characters.
pub(super) fn name() -> ValueKind<String> {
    ValueKind::new("1 to 255 characters", |text| {
        let fits = (1..=255).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        fits.then(|| text.to_owned())
    })
}

/// Parser of a collector's URL, without a password: the URL is shown, so credentials belong in headers.
pub(super) fn collector() -> ValueKind<Url> {
    ValueKind::new("a URL without user, query and fragment, such as http://127.0.0.1:4318", |text| {
        let is_plain = |url: &Url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
        };
        text.parse().ok().filter(is_plain)
    })
}

/// Parser of headers in OpenTelemetry's form: `name=value,name=value`, with percent-encoded values. They are not shown.
pub(super) fn headers() -> ValueKind<HeaderMap> {
    let header = |item: &str| {
        let (name, value) = item.split_once('=')?;
        let mut value = HeaderValue::from_bytes(&percent_decode_str(value.trim()).collect::<Vec<_>>()).ok()?;
        value.set_sensitive(true);
        Some((name.trim().parse::<HeaderName>().ok()?, value))
    };
    ValueKind::new("a list of headers, such as authorization=Bearer%20abc,x-team=push", move |text| {
        items(text).map(header).collect()
    })
}

/// Parser of resource attributes, in the form of [`headers`]: at most 64, each name and value at most 255 characters.
pub(super) fn attributes() -> ValueKind<BTreeMap<String, String>> {
    let attribute = |item: &str| {
        let (name, value) = item.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?.into_owned();
        let fits = |text: &str| text.chars().count() <= 255 && !text.chars().any(char::is_control);
        let is_named = !name.trim().is_empty() && fits(name.trim());
        (is_named && fits(&value)).then(|| (name.trim().to_owned(), value))
    };
    ValueKind::new("at most 64 attributes, such as deployment.environment.name=test,team=push", move |text| {
        let attributes: BTreeMap<_, _> = items(text).map(attribute).collect::<Option<_>>()?;
        (attributes.len() <= 64).then_some(attributes)
    })
}

pub(super) fn switch() -> ValueKind<bool> {
    ValueKind::new("true or false", |text| text.to_ascii_lowercase().parse().ok())
}

pub(super) fn path() -> ValueKind<PathBuf> {
    ValueKind::new("a path", |text| (!text.is_empty()).then(|| PathBuf::from(text)))
}

/// Parser of a URL that cannot be eavesdropped: https, or this machine. Returns the unchanged text.
pub(super) fn private_url() -> ValueKind<String> {
    ValueKind::new(
        "a URL that begins with https://, or with http:// on this machine, without query and fragment",
        |text| {
            let url = Url::parse(text).ok()?;
            let is_fine = is_private(&url) && url.query().is_none() && url.fragment().is_none();
            (is_fine && text.len() <= 2_048).then(|| text.to_owned())
        },
    )
}

/// Parser of a host name that a public authority can certify: no address, no wildcard.
pub(super) fn domain() -> ValueKind<String> {
    ValueKind::new("a host's name, such as push.example.com", |text| {
        let label = |label: &str| {
            let fits = (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-');
            fits && label.bytes().all(|octet| octet.is_ascii_lowercase() || octet.is_ascii_digit() || octet == b'-')
        };
        let (name, is_address) = (text.to_ascii_lowercase(), text.parse::<IpAddr>().is_ok());
        (name.len() <= 253 && name.contains('.') && !is_address && name.split('.').all(label)).then_some(name)
    })
}

pub(super) fn https_url() -> ValueKind<Url> {
    ValueKind::new("a URL that begins with https://", |text| {
        text.parse().ok().filter(|url: &Url| url.scheme() == "https")
    })
}

/// Parser of an e-mail address, with a plausibility check.
pub(super) fn mailbox() -> ValueKind<String> {
    ValueKind::new("an email address", |text| {
        let is_plain = |part: &str| !part.is_empty() && part.bytes().all(|octet| octet.is_ascii_graphic());
        let (local, host) = text.rsplit_once('@')?;
        (text.len() <= 254 && is_plain(local) && is_plain(host) && !text.contains([',', '?'])).then(|| text.to_owned())
    })
}

/// Parser of a text of at most `max` characters.
pub(super) fn text(max_chars: usize) -> ValueKind<String> {
    ValueKind::new(format!("1 to {max_chars} characters"), move |text| {
        let is_plain = !text.is_empty() && text.chars().count() <= max_chars && !text.chars().any(char::is_control);
        is_plain.then(|| text.to_owned())
    })
}

pub(super) fn duration(range: RangeInclusive<Duration>) -> ValueKind<Duration> {
    let (from, to) = (range.start().as_secs(), range.end().as_secs());
    let allowed = format!("a duration from {from}s to {to}s, such as 30s, 5m, 2h or 7d");
    ValueKind::new(allowed, move |text| duration::parse(text).filter(|duration| range.contains(duration)))
}

pub(super) fn keyword<T: Copy + 'static>(words: &'static [(&'static str, T)]) -> ValueKind<T> {
    let allowed = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or ");
    ValueKind::new(allowed, |text| words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value))
}

/// Parser of a comma-separated list of strings.
pub(super) fn list() -> ValueKind<Vec<String>> {
    ValueKind::new("a comma-separated list", |text| Some(items(text).map(str::to_owned).collect()))
}

/// Parser of a comma-separated list of values.
pub(super) fn each<T: FromStr + 'static>(allowed: &'static str) -> ValueKind<Vec<T>> {
    ValueKind::new(allowed, |text| items(text).map(|item| item.parse().ok()).collect())
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

pub(super) fn secret(allowed: &'static str, right: fn(&str) -> bool) -> ValueKind<Secret> {
    ValueKind::new(allowed, move |text| right(text).then(|| Secret(Zeroizing::new(text.to_owned()))))
}

/// Makes a value optional: an empty text means none.
pub(super) fn optional<T: 'static>(kind: ValueKind<T>) -> ValueKind<Option<T>> {
    ValueKind::new(kind.allowed, move |text| if text.is_empty() { Some(None) } else { (kind.parse)(text).map(Some) })
}

pub(super) fn roles() -> ValueKind<Roles> {
    ValueKind::new("some of api, worker, maintenance, separated by commas", |text| {
        let mut roles = Roles { api: false, worker: false, maintenance: false };
        for item in items(text) {
            match item {
                "api" => roles.api = true,
                "worker" => roles.worker = true,
                "maintenance" => roles.maintenance = true,
                _ => return None,
            }
        }
        (roles.api || roles.worker || roles.maintenance).then_some(roles)
    })
}

/// Roles of a process. Any number of processes may share a database. Each role must run in at least one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Roles {
    /// Answers API requests.
    pub api: bool,
    /// Delivers messages.
    pub worker: bool,
    /// Runs maintenance: expiry, retention, partitions.
    pub maintenance: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Value of a secret setting, which is never shown. Its memory is zeroed on drop.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(Zeroizing<String>);

impl Secret {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
