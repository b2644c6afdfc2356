//! TLS handshakes with Postgres that cannot succeed: a certificate that rustls does not support, such as the X.509 version 1 of
//! Citus, or no TLS at all.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{Connection as _, PgConnection};
use tokio_rustls::rustls::{self, AlertDescription};

use super::{hosts, plain};

/// Hosts that connections with `sslmode=prefer` reach without TLS only.
static WITHOUT_TLS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Value of `sslmode`, as libpq names it.
pub fn mode_name(mode: PgSslMode) -> &'static str {
    match mode {
        PgSslMode::Disable => "disable",
        PgSslMode::Allow => "allow",
        PgSslMode::Prefer => "prefer",
        PgSslMode::Require => "require",
        PgSslMode::VerifyCa => "verify-ca",
        PgSslMode::VerifyFull => "verify-full",
    }
}

/// Switches TLS off where `prefer` allows that and an earlier handshake could not succeed.
pub(super) fn fall_back(options: PgConnectOptions) -> PgConnectOptions {
    let falls_back =
        matches!(options.get_ssl_mode(), PgSslMode::Prefer) && WITHOUT_TLS.lock().contains(&hosts::name(&options));
    if falls_back { options.ssl_mode(PgSslMode::Disable) } else { options }
}

/// Opens a [plain] connection. Where the handshake can never succeed, `prefer` continues without TLS, as with libpq; any other mode
/// fails with advice.
pub async fn connect(options: &PgConnectOptions) -> sqlx::Result<PgConnection> {
    let options = plain(options.clone());
    let error = match PgConnection::connect_with(&options).await {
        Err(error) if never_succeeds(&error) => error,
        connected => return connected,
    };
    let (host, mode) = (hosts::name(&options), options.get_ssl_mode());
    if !matches!(mode, PgSslMode::Prefer) {
        let mode = mode_name(mode);
        let advice = format!(
            "the TLS handshake with Postgres at {host} cannot succeed under sslmode={mode}: {error}. Give Postgres an X.509 \
             version 3 certificate (ssl_cert_file), or set sslmode=disable in the URL if you trust the network"
        );
        return Err(sqlx::Error::Configuration(advice.into()));
    }
    if WITHOUT_TLS.lock().insert(host.clone()) {
        tracing::warn!(host, %error, "connecting to Postgres without TLS, as sslmode=prefer allows");
    }
    PgConnection::connect_with(&plain(options)).await
}

/// Whether an error is of a handshake that fails every time, not of a connection that was cut in the middle of one.
fn never_succeeds(error: &sqlx::Error) -> bool {
    use AlertDescription::{CertificateRequired, HandshakeFailure, InsufficientSecurity, ProtocolVersion, UnknownCA};
    let io = match error {
        // Of sqlx itself: Postgres refuses TLS, or files and names of the URL are wrong.
        sqlx::Error::Tls(_) => return true,
        sqlx::Error::Io(io) => io,
        _ => return false,
    };
    matches!(
        io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()),
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
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn cut_handshakes_may_succeed_later() {
        use rustls::{CertificateError, Error};
        let handshake = |error| sqlx::Error::Io(io::Error::new(io::ErrorKind::InvalidData, error));
        for (error, expected) in [
            (handshake(Error::InvalidCertificate(CertificateError::BadEncoding)), true),
            (handshake(Error::NoCertificatesPresented), true),
            (handshake(Error::AlertReceived(AlertDescription::ProtocolVersion)), true),
            (handshake(Error::AlertReceived(AlertDescription::InternalError)), false),
            (sqlx::Error::Tls("server does not support TLS".into()), true),
            (io::Error::from(io::ErrorKind::UnexpectedEof).into(), false),
            (sqlx::Error::PoolTimedOut, false),
        ] {
            assert_eq!(never_succeeds(&error), expected, "{error}");
        }
    }
}
