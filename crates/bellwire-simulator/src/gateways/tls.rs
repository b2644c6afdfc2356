//! Certificate authority of the simulator, and a certificate for each of its hosts.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::StartError;

/// Signs the certificates of one simulator. Created at every start and kept in memory only.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(super) fn new() -> Result<Self, StartError> {
        let mut params = CertificateParams::new([])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.distinguished_name.push(DnType::CommonName, "Bellwire gateway simulator");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// Returns the certificate of the authority, which clients must trust.
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the TLS configuration of a host, whose certificate is valid for its name, `localhost` and 127.0.0.1.
    pub(super) fn server_config(&self, host: &str, http1_only: bool) -> Result<Arc<ServerConfig>, StartError> {
        let mut params = CertificateParams::new([host.to_owned(), "localhost".to_owned()])?;
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        params.distinguished_name.push(DnType::CommonName, host);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let leaf = params.signed_by(&key, &self.issuer)?.der().clone();
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![leaf], PrivatePkcs8KeyDer::from(key.serialize_der()).into())?;
        let http1 = b"http/1.1".to_vec();
        config.alpn_protocols = if http1_only { vec![http1] } else { vec![b"h2".to_vec(), http1] };
        Ok(Arc::new(config))
    }
}
