//! A certificate chain with its private key.

use std::fmt;
use std::sync::Arc;

use chrono::DateTime;
use parking_lot::RwLock;
use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use x509_cert::der::Decode as _;

use bellwire_core::clock::Timestamp;

/// Error of an unusable certificate. The texts are for the operator who configured the files.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file has no certificate in PEM.
    #[error("the certificate is not one in PEM")]
    NoCertificate,
    /// The file has no private key in PEM.
    #[error("the private key is not one in PEM")]
    NoKey,
    /// Key and certificate do not match, or TLS does not support their type.
    #[error("certificate and private key do not match: {0}")]
    NoPair(rustls::Error),
    #[error("the certificate cannot be read: {0}")]
    Unreadable(x509_cert::der::Error),
}

/// A certificate chain with the private key of the first certificate. `Debug` shows no key.
#[derive(Clone)]
pub struct Certificate {
    pair: Arc<CertifiedKey>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({} to {})", self.not_before, self.not_after)
    }
}

impl Certificate {
    /// Parses chain and key, both PEM, and checks that they match. An expired certificate is accepted.
    pub fn parse(chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, CertificateError> {
        let chain = read_chain(chain_pem)?;
        let (not_before, not_after) = validity_of(&chain[0])?;
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| CertificateError::NoKey)?;
        let pair = CertifiedKey::from_der(chain, key, &default_provider()).map_err(CertificateError::NoPair)?;
        Ok(Self { pair: Arc::new(pair), not_before, not_after })
    }
}

/// Returns the validity of the first certificate of a chain (PEM).
pub fn validity(chain_pem: &[u8]) -> Result<(Timestamp, Timestamp), CertificateError> {
    validity_of(&read_chain(chain_pem)?[0])
}

fn read_chain(chain_pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain_pem).collect();
    chain.ok().filter(|chain| !chain.is_empty()).ok_or(CertificateError::NoCertificate)
}

fn validity_of(certificate: &CertificateDer<'_>) -> Result<(Timestamp, Timestamp), CertificateError> {
    let certificate = x509_cert::Certificate::from_der(certificate).map_err(CertificateError::Unreadable)?;
    let validity = certificate.tbs_certificate().validity();
    let [from, to] = [&validity.not_before, &validity.not_after].map(|time| {
        let since_1970_s = i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
        DateTime::from_timestamp(since_1970_s, 0).unwrap_or(DateTime::UNIX_EPOCH)
    });
    Ok((from, to))
}

/// The current certificate. Open connections keep the certificate of their handshake.
#[derive(Debug, Default)]
pub struct CurrentCertificate(RwLock<Option<Certificate>>);

impl CurrentCertificate {
    pub fn show(&self, certificate: Certificate) {
        *self.0.write() = Some(certificate);
    }

    /// Returns the end of validity, or `None` without a certificate.
    pub fn not_after(&self) -> Option<Timestamp> {
        self.0.read().as_ref().map(|certificate| certificate.not_after)
    }
}

impl ResolvesServerCert for CurrentCertificate {
    /// Ignores the requested name, because there is one certificate only.
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().as_ref().map(|certificate| certificate.pair.clone())
    }
}

#[cfg(test)]
#[path = "../../../../tests/crates/net/unit/http_server/certificate.rs"]
mod tests;
