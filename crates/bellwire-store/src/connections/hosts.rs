//! Reads the URL of a database, which may name several hosts: `postgres://user@a,b:5433/database?target_session_attrs=read-write`, as
//! libpq writes it (PostgreSQL manual, "Connection URIs").

use std::fmt;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

const HOSTS_MAX: usize = 8;
/// Parameter of libpq that selects the host by its state.
const WHICH: &str = "target_session_attrs";

/// Values of `sslmode`, as libpq names them.
pub(super) const MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// Why a URL cannot be used. It is not quoted, since it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WrongUrl {
    #[error("is not a valid Postgres URL")]
    Invalid,
    #[error("lists hosts in its query: list them before the database, as in postgres://user@a:5432,b:5432/database")]
    InQuery,
    #[error("names more than {HOSTS_MAX} hosts")]
    TooMany,
    #[error("has an unknown sslmode: it takes {}", MODES.join(", "))]
    SslMode,
    /// The requested kind of host does not fit this URL.
    #[error("asks for {WHICH} that it cannot be used with: it takes {allowed}")]
    Which { allowed: &'static str },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    Writing,
    Reading,
}

impl For {
    /// Returns the values of `target_session_attrs` that do not change the default behaviour.
    fn allowed(self) -> &'static str {
        match self {
            Self::Writing => "read-write, primary, any",
            Self::Reading => "prefer-standby, any",
        }
    }
}

/// The hosts of a database, in the order in which they were named; at least one.
#[derive(Clone)]
pub struct DatabaseHosts(Vec<PgConnectOptions>);

/// By their names: their options hold a password.
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

    /// With statements logged as slow that take longer than this.
    #[must_use]
    pub fn slow_after(self, limit: Duration) -> Self {
        Self(self.0.into_iter().map(|options| super::slow_after(options, limit)).collect())
    }

    pub fn all(&self) -> &[PgConnectOptions] {
        &self.0
    }

    /// Whether there is a choice.
    pub fn are_several(&self) -> bool {
        self.0.len() > 1
    }
}

/// Verifies the certificate under `require` if there is a root certificate, as libpq does.
fn verify_by_root(options: PgConnectOptions) -> PgConnectOptions {
    let has_root = options.to_url_lossy().query_pairs().any(|(name, _)| name == "sslrootcert");
    let verifies = has_root && matches!(options.get_ssl_mode(), PgSslMode::Require);
    if verifies { options.ssl_mode(PgSslMode::VerifyCa) } else { options }
}

/// Returns the part after the hosts, without the parameter that sqlx does not support.
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
mod tests {
    use super::*;

    #[track_caller]
    fn names(url: &str) -> Vec<String> {
        DatabaseHosts::parse(url, For::Writing).unwrap().all().iter().map(name).collect()
    }

    #[test]
    fn every_host_of_a_url_is_found() {
        assert_eq!(names("postgres://u:p@a/db"), ["a:5432"]);
        assert_eq!(names("postgres://u:p,w@a:5433,b,[::1]:5434/db"), ["a:5433", "b:5432", "[::1]:5434"]);
        assert_eq!(names("postgresql://a,b?target_session_attrs=read-write"), ["a:5432", "b:5432"]);
        assert_eq!(names("postgres://u@%2Frun%2Fa,%2Frun%2Fb/db?sslmode=disable"), ["/run/a", "/run/b"]);
        let hosts = DatabaseHosts::parse(
            "postgres://u:secret@a,b/db?target_session_attrs=primary&sslmode=require",
            For::Writing,
        );
        let hosts = hosts.unwrap();
        for host in hosts.all() {
            assert_eq!((host.get_username(), host.get_database()), ("u", Some("db")));
            assert!(matches!(host.get_ssl_mode(), sqlx::postgres::PgSslMode::Require));
        }
        assert_eq!(format!("{hosts:?}"), r#"["a:5432", "b:5432"]"#, "without the password");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let refused = |url, wanted| DatabaseHosts::parse(url, wanted).unwrap_err();
        assert_eq!(refused("postgres://a,,b/db", For::Writing), WrongUrl::Invalid);
        assert_eq!(refused("postgres", For::Writing), WrongUrl::Invalid);
        assert_eq!(refused("postgres://u@/db?host=/run/a,/run/b", For::Writing), WrongUrl::InQuery);
        assert_eq!(refused("postgres://a,b,c,d,e,f,g,h,i/db", For::Writing), WrongUrl::TooMany);
        let standby = "postgres://a,b/db?target_session_attrs=standby";
        assert!(refused(standby, For::Writing).to_string().ends_with("it takes read-write, primary, any"));
        assert!(DatabaseHosts::parse("postgres://a/db?target_session_attrs=prefer-standby", For::Reading).is_ok());
    }
}
