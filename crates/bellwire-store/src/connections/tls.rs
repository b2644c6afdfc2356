//! TLS to Postgres, with the modes of libpq ("SSL Support" in the PostgreSQL manual). With `prefer` and `allow`, a connection
//! refused by Postgres or rustls is retried without or with TLS.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use tokio_rustls::rustls::{self, AlertDescription, CertificateError};

use super::hosts::{self, MODES};
use super::plain;

/// Parameters of the URL that name files.
const FILES: [&str; 3] = ["sslrootcert", "sslcert", "sslkey"];
/// SQLSTATE of a connection that `pg_hba.conf` refuses (invalid_authorization_specification).
const REFUSED: &str = "28000";

/// Modes that succeeded in place of the configured one, by host: `disable` for `prefer`, `require` for `allow`.
static REPLACED: Mutex<BTreeMap<String, PgSslMode>> = Mutex::new(BTreeMap::new());

/// Value of `sslmode`, as libpq names it.
pub fn mode_name(mode: PgSslMode) -> &'static str {
    let index = match mode {
        PgSslMode::Disable => 0,
        PgSslMode::Allow => 1,
        PgSslMode::Prefer => 2,
        PgSslMode::Require => 3,
        PgSslMode::VerifyCa => 4,
        PgSslMode::VerifyFull => 5,
    };
    MODES[index]
}

/// Applies the mode with which an earlier connection to the host succeeded.
pub(super) fn fall_back(options: PgConnectOptions) -> PgConnectOptions {
    if !matches!(options.get_ssl_mode(), PgSslMode::Prefer | PgSslMode::Allow) {
        return options;
    }
    let replaced = REPLACED.lock().get(&hosts::name(&options)).copied();
    if let Some(mode) = replaced { options.ssl_mode(mode) } else { options }
}

/// Opens a [plain] connection. `prefer` continues without TLS if the handshake can never succeed. `allow` continues with TLS if
/// Postgres refuses connections without it. Other modes fail with advice.
pub async fn connect(options: &PgConnectOptions) -> sqlx::Result<PgConnection> {
    let configured = mode_name(options.get_ssl_mode());
    let options = plain(options.clone());
    let error = match PgConnection::connect_with(&options).await {
        Err(error) => error,
        connected => return connected,
    };
    if configured != mode_name(options.get_ssl_mode()) {
        // Postgres may have been configured differently since.
        REPLACED.lock().remove(&hosts::name(&options));
        return Err(error);
    }
    let refused = error.as_database_error().is_some_and(|error| error.code().as_deref() == Some(REFUSED));
    let (hopeless, mode) = (never_succeeds(&error), options.get_ssl_mode());
    let other = match mode {
        PgSslMode::Prefer if hopeless || refused => PgSslMode::Disable,
        PgSslMode::Allow if refused => PgSslMode::Require,
        _ if hopeless => return Err(sqlx::Error::Configuration(advice(&options, &error).into())),
        _ => return Err(unreadable_file(&options).unwrap_or(error)),
    };
    let host = hosts::name(&options);
    let connection = match PgConnection::connect_with(&options.ssl_mode(other)).await {
        // Both ways are closed: the first one is the configured one.
        Err(second) if second.as_database_error().is_some() && refused => return Err(error),
        connected => connected?,
    };
    if REPLACED.lock().insert(host.clone(), other).is_none() {
        let with = if matches!(other, PgSslMode::Disable) { "without" } else { "with" };
        tracing::warn!(host, %error, "connecting to Postgres {with} TLS, as sslmode={} allows", mode_name(mode));
    }
    Ok(connection)
}

/// Returns an error that names the first file in the URL that cannot be read.
fn unreadable_file(options: &PgConnectOptions) -> Option<sqlx::Error> {
    options.to_url_lossy().query_pairs().filter(|(name, _)| FILES.contains(&name.as_ref())).find_map(|(name, path)| {
        let path = path.strip_prefix("file: ")?; // as sqlx writes a file, unlike PEM itself
        let error = std::fs::File::open(path).err()?;
        Some(sqlx::Error::Configuration(format!("{name}={path} in the URL of Postgres: {error}").into()))
    })
}

/// Describes a handshake that always fails, with the remedy.
fn advice(options: &PgConnectOptions, error: &sqlx::Error) -> String {
    use CertificateError as Fault;
    let remedy = match handshake_error(error) {
        Some(rustls::Error::InvalidCertificate(fault)) => match fault {
            Fault::UnknownIssuer | Fault::BadSignature => "Name the file of the issuer's certificate by sslrootcert",
            Fault::NotValidForName | Fault::NotValidForNameContext { .. } => {
                "Use a host name that the certificate contains, or sslmode=verify-ca"
            }
            Fault::Expired | Fault::ExpiredContext { .. } => "Renew the certificate of Postgres (ssl_cert_file)",
            _ => "Give Postgres an X.509 version 3 certificate (ssl_cert_file)",
        },
        Some(rustls::Error::AlertReceived(AlertDescription::CertificateRequired | AlertDescription::UnknownCA)) => {
            "Name a client certificate that Postgres accepts, and its key, by sslcert and sslkey"
        }
        None => "Enable TLS in Postgres (ssl = on)",
        Some(_) => "Enable TLS 1.2 or 1.3 in Postgres",
    };
    format!(
        "the TLS handshake with Postgres at {} cannot succeed under sslmode={}: {error}. {remedy}, or set sslmode=disable in the \
         URL if you trust the network",
        hosts::name(options),
        mode_name(options.get_ssl_mode())
    )
}

fn handshake_error(error: &sqlx::Error) -> Option<&rustls::Error> {
    let sqlx::Error::Io(io) = error else { return None };
    io.get_ref()?.downcast_ref()
}

/// Whether a handshake failed with an error that is the same each time, not because the connection was interrupted.
fn never_succeeds(error: &sqlx::Error) -> bool {
    use AlertDescription::{CertificateRequired, HandshakeFailure, InsufficientSecurity, ProtocolVersion, UnknownCA};
    // Of sqlx itself: Postgres refuses TLS, or files and names of the URL are wrong.
    matches!(error, sqlx::Error::Tls(_))
        || matches!(
            handshake_error(error),
            Some(
                rustls::Error::InvalidCertificate(_)
                    | rustls::Error::NoCertificatesPresented
                    | rustls::Error::PeerIncompatible(_)
                    | rustls::Error::AlertReceived(
                        CertificateRequired | HandshakeFailure | InsufficientSecurity | ProtocolVersion | UnknownCA
                    )
            )
        )
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/connections/tls.rs"]
mod tests;
