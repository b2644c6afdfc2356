//! A certificate by ACME. All processes read it from the database. The first process that finds it due orders a new
//! one, and each process answers the validation.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chrono::TimeDelta;
use sqlx::PgPool;
use tokio::time::sleep;
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::Show;
use crate::config::Config;
use crate::server::context::Context;
use bellwire_core::clock::{Clock, uuid_of};
use bellwire_net::acme::{self, Authority, Issued, schedule};
use bellwire_net::http_server::certificate::Certificate;
use bellwire_net::http_server::tls::Challenges;
use bellwire_store::keys::certificates::{self, AcmeAccount, AcmeScope, Lease, New};
use bellwire_vault::{ACME_ACCOUNT, ACME_PRIVATE, Vault};

/// Interval of the query for a newer certificate, and of the check whether an order is due.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Lease of an order. Longer than an order takes.
const LEASE: TimeDelta = TimeDelta::minutes(10);

/// Orders and publishes the certificate of one host.
pub(super) struct Orders {
    pool: PgPool,
    vault: Vault,
    clock: Clock,
    authority: Authority,
    place: AcmeScope,
    show: Show,
}

impl Orders {
    pub(super) fn new(context: &Context, config: &Config, domain: &str, show: Show) -> anyhow::Result<Self> {
        let Context { pool, vault, clock, .. } = context;
        let directory = config.acme_directory.clone();
        let place = AcmeScope { directory: directory.as_str().to_owned(), domain: domain.to_owned() };
        let authority = Authority::new(acme::AcmeConfig {
            directory,
            domain: domain.to_owned(),
            email: config.acme_email.clone(),
            extra_ca_pem: config.acme_ca_file.as_deref().map(crate::server::read).transpose()?,
        });
        let authority = authority.context("BELLWIRE_ACME_CA_FILE cannot be used")?;
        Ok(Self { pool: pool.clone(), vault: vault.clone(), clock: clock.clone(), authority, place, show })
    }

    /// Returns the challenge lookup for this host. It returns `None` for other domains without a query.
    pub(super) fn challenges(self: Arc<Self>) -> Challenges {
        Arc::new(move |domain| {
            let orders = self.clone();
            Box::pin(async move {
                if !domain.eq_ignore_ascii_case(&orders.place.domain) {
                    return None;
                }
                let found = certificates::challenge(&orders.pool, &orders.place).await;
                found.unwrap_or_else(|error| {
                    warn!(%error, "what the authority is to find could not be read");
                    None
                })
            })
        })
    }

    /// Publishes the newest certificate, and orders one when it is due, in an endless loop.
    pub(super) async fn keep(self: Arc<Self>) {
        loop {
            self.order_if_due().await;
            sleep(LOOK_EVERY).await;
            self.show_stored().await;
        }
    }

    /// Publishes the stored certificate if it differs from the current one.
    pub(super) async fn show_stored(&self) {
        let known = self.show.shown.not_after();
        match certificates::read(&self.pool, &self.place, known).await {
            Ok(None) => {}
            Ok(Some(stored)) => match self.unseal(&stored) {
                Ok(certificate) => self.show.show(certificate),
                Err(error) => warn!("the certificate of {} cannot be shown: {error:#}", self.place.domain),
            },
            Err(error) => warn!(%error, "the certificate could not be read; the one before is shown"),
        }
    }

    fn unseal(&self, stored: &certificates::CertificateRow) -> anyhow::Result<Certificate> {
        let key = Zeroizing::new(self.vault.open(ACME_PRIVATE, stored.id, &stored.private_key)?);
        Ok(Certificate::parse(stored.chain.as_bytes(), &key)?)
    }

    async fn order_if_due(&self) {
        let now = self.clock.now();
        let lease = match certificates::lease(&self.pool, &self.place, now, now + LEASE).await {
            Ok(Some(lease)) => lease,
            Ok(None) => return,
            Err(error) => return warn!(%error, "it could not be seen whether a certificate is due"),
        };
        let domain = &self.place.domain;
        info!(domain, directory = self.place.directory, "a certificate is ordered");
        match self.order(lease).await {
            Ok(certificate) => {
                info!(domain, until = %certificate.not_after, "a certificate was issued");
                self.show.show(certificate);
            }
            Err(error) => self.note_failure(lease, &format!("{error:#}")).await,
        }
    }

    async fn note_failure(&self, lease: Lease, why: &str) {
        let wait = schedule::wait_after(lease.failures + 1);
        let retry_at = self.clock.now() + wait;
        warn!(
            domain = self.place.domain,
            next_try = %retry_at,
            in_a_row = lease.failures + 1,
            "no certificate was issued: {why}"
        );
        if let Err(error) = certificates::fail(&self.pool, lease, why, retry_at).await {
            warn!(%error, "that could not be written down");
        }
    }

    async fn order(&self, lease: Lease) -> anyhow::Result<Certificate> {
        let credentials = self.credentials().await?;
        let present = async |digest: [u8; 32]| {
            let written = certificates::present(&self.pool, lease, &digest).await;
            written.map_err(|error| acme::Error::Own(error.to_string()))
        };
        let issued = self.authority.order(&credentials, present).await;
        if issued.as_ref().is_err_and(acme::Error::is_unknown_account) {
            certificates::forget_account(&self.pool, &self.place.directory).await?;
        }
        let Issued { chain_pem, key_pem } = issued?;
        let certificate = Certificate::parse(chain_pem.as_bytes(), key_pem.as_bytes())?;
        let new = New {
            chain: &chain_pem,
            private_key: &self.vault.seal(ACME_PRIVATE, lease.id, key_pem.as_bytes()),
            not_after: certificate.not_after,
            renew_at: schedule::renew_at(certificate.not_before, certificate.not_after),
        };
        certificates::store(&self.pool, lease, new).await.context("the certificate could not be stored")?;
        Ok(certificate)
    }

    /// Returns the credentials of the account at the authority. The first order creates the account.
    async fn credentials(&self) -> anyhow::Result<Zeroizing<Vec<u8>>> {
        let directory = &self.place.directory;
        if let Some(account) = certificates::account(&self.pool, directory).await? {
            return Ok(Zeroizing::new(self.vault.open(ACME_ACCOUNT, account.id, &account.credentials)?));
        }
        let credentials = self.authority.register().await?;
        let now = self.clock.now();
        let id = uuid_of(now);
        let account = AcmeAccount { id, credentials: self.vault.seal(ACME_ACCOUNT, id, &credentials) };
        certificates::store_account(&self.pool, directory, &account, now).await?;
        info!(directory, "an account was made at the authority of ACME");
        Ok(credentials)
    }
}
