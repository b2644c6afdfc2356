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
    #[error("certificate and private key do not fit together: {0}")]
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
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn pair() -> (String, String) {
        let mut params = CertificateParams::new(["push.example.com".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2030, 1, 1), date_time_ymd(2030, 4, 1));
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn pair_is_read_without_showing_its_key() {
        let (chain, key) = pair();
        let certificate = Certificate::parse(chain.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(certificate.not_before.to_rfc3339(), "2030-01-01T00:00:00+00:00");
        assert_eq!(validity(chain.as_bytes()).unwrap(), (certificate.not_before, certificate.not_after));
        let shown = format!("{certificate:?}");
        assert!(shown.contains("2030-04-01") && shown.len() < 80, "{shown}");
    }

    #[test]
    fn wrong_pair_is_refused_with_a_reason() {
        let ((chain, key), (_, anothers)) = (pair(), pair());
        let refused = |chain: &str, key: &str| {
            Certificate::parse(chain.as_bytes(), key.as_bytes()).expect_err("it is no pair").to_string()
        };
        assert!(refused("", &key).contains("the certificate is not one in PEM"));
        assert!(refused(&key, &key).contains("the certificate is not one in PEM"));
        assert!(refused(&chain, &chain).contains("the private key is not one in PEM"));
        assert!(refused(&chain, &anothers).contains("do not fit together"));
        let cut = &chain[..chain.len() / 2];
        assert!(refused(cut, &key).contains("not one in PEM"));
        let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(refused(junk, &key).contains("cannot be read"));
    }
}
