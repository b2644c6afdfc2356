//! Parses the URL of a database, which may name several hosts:
//! `postgres://user@a,b:5433/database?target_session_attrs=read-write`, as libpq does (PostgreSQL manual, "Connection URIs").

use std::fmt;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

const HOSTS_MAX: usize = 8;
/// Parameter of libpq that selects the host by its state.
const WHICH: &str = "target_session_attrs";

/// Values of `sslmode`, as libpq names them.
pub(super) const MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// Fault of a URL. The text does not quote the URL, which may contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WrongUrl {
    #[error("is not a valid Postgres URL")]
    Invalid,
    #[error("lists hosts in its query: list them before the database, as in postgres://user@a:5432,b:5432/database")]
    InQuery,
    #[error("names more than {HOSTS_MAX} hosts")]
    TooMany,
    #[error("has an unknown sslmode; supported: {}", MODES.join(", "))]
    SslMode,
    /// The value of `target_session_attrs` does not fit the use of this URL.
    #[error("asks for {WHICH} that it cannot be used with: it takes {allowed}")]
    Which { allowed: &'static str },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    Writing,
    Reading,
}

impl For {
    /// Returns the values of `target_session_attrs` that match the default behaviour.
    fn allowed(self) -> &'static str {
        match self {
            Self::Writing => "read-write, primary, any",
            Self::Reading => "prefer-standby, any",
        }
    }
}

/// Hosts of a database in the order of the URL; at least one.
#[derive(Clone)]
pub struct DatabaseHosts(Vec<PgConnectOptions>);

/// Shows the host names. The options contain a password.
impl fmt::Debug for DatabaseHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(name)).finish()
    }
}

impl DatabaseHosts {
    pub fn parse(url: &str, wanted: For) -> Result<Self, WrongUrl> {
        let (scheme, rest) = url.split_once("://").ok_or(WrongUrl::Invalid)?;
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user, hosts) = authority.rfind('@').map_or(("", authority), |at| authority.split_at(at + 1));
        let tail = without_which(tail, wanted)?;
        let hosts: Vec<_> = hosts.split(',').collect();
        if hosts.len() > HOSTS_MAX {
            return Err(WrongUrl::TooMany);
        }
        if hosts.len() > 1 && hosts.iter().any(|host| host.is_empty()) {
            return Err(WrongUrl::Invalid);
        }
        let parse = |host: &&str| {
            let url = format!("{scheme}://{user}{host}{tail}");
            url.parse().map(verify_by_root).map_err(|_| WrongUrl::Invalid)
        };
        hosts.iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// Logs statements that take longer than this as slow.
    #[must_use]
    pub fn slow_after(self, limit: Duration) -> Self {
        Self(self.0.into_iter().map(|options| super::slow_after(options, limit)).collect())
    }

    pub fn all(&self) -> &[PgConnectOptions] {
        &self.0
    }

    /// Whether the URL names several hosts.
    pub fn are_several(&self) -> bool {
        self.0.len() > 1
    }
}

/// Verifies the certificate with `sslmode=require` if there is a root certificate, as libpq does.
fn verify_by_root(options: PgConnectOptions) -> PgConnectOptions {
    let has_root = options.to_url_lossy().query_pairs().any(|(name, _)| name == "sslrootcert");
    let verifies = has_root && matches!(options.get_ssl_mode(), PgSslMode::Require);
    if verifies { options.ssl_mode(PgSslMode::VerifyCa) } else { options }
}

/// Returns the part after the hosts without `target_session_attrs`, which sqlx does not support.
fn without_which(tail: &str, wanted: For) -> Result<String, WrongUrl> {
    let Some((path, query)) = tail.split_once('?') else { return Ok(tail.to_owned()) };
    let mut kept = Vec::new();
    for parameter in query.split('&') {
        match parameter.split_once('=').unwrap_or((parameter, "")) {
            (WHICH, value) => {
                let allowed = wanted.allowed();
                if !allowed.split(", ").any(|known| known == value) {
                    return Err(WrongUrl::Which { allowed });
                }
            }
            ("sslmode" | "ssl-mode", value) if !MODES.contains(&value) => return Err(WrongUrl::SslMode),
            ("host" | "hostaddr" | "port", value) if value.contains(',') || value.contains("%2C") => {
                return Err(WrongUrl::InQuery);
            }
            _ => kept.push(parameter),
        }
    }
    Ok(if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) })
}

pub fn name(options: &PgConnectOptions) -> String {
    match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/connections/hosts.rs"]
mod tests;
