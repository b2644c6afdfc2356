//! Unit tests of `crates/bellwire-store/src/connections/tls.rs`, which includes them.

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
