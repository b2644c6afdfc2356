//! Certificates from ACME: one row for each host. All processes read it, and one process at a time orders a certificate.

use sqlx::PgPool;
use uuid::Uuid;

use bellwire_core::clock::{Timestamp, uuid_of};

/// Maximum stored bytes of a failure's reason.
const FAILURE_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeScope {
    /// URL of the authority's directory.
    pub directory: String,
    pub domain: String,
}

/// A row of `acme_certificates` that has a certificate.
#[derive(Debug)]
pub struct CertificateRow {
    /// Id of the row, which a renewal keeps.
    pub id: Uuid,
    /// Chain of certificates in PEM.
    pub chain: String,
    /// Private key, encrypted with [`bellwire_vault::ACME_PRIVATE`] and the row's id.
    pub private_key: Vec<u8>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateStatus {
    /// End of validity. `None`: no certificate.
    pub not_after: Option<Timestamp>,
    /// Reason why the last order failed. `None`: it succeeded.
    pub failure: Option<String>,
}

/// Right to order a certificate, until it expires.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    pub id: Uuid,
    /// End of the lease, which fences writes.
    pub until: Timestamp,
    /// Number of failed orders in a row.
    pub failures: i32,
}

#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    /// Chain of certificates in PEM.
    pub chain: &'a str,
    /// Private key, encrypted with [`bellwire_vault::ACME_PRIVATE`] and the row's id.
    pub private_key: &'a [u8],
    pub not_after: Timestamp,
    /// Time of the next order.
    pub renew_at: Timestamp,
}

/// Returns the certificate of a scope. `None`: there is none, or it ends at `known`, which the caller has already.
pub async fn read(pool: &PgPool, place: &AcmeScope, known: Option<Timestamp>) -> sqlx::Result<Option<CertificateRow>> {
    fetch_optional!(
        pool,
        CertificateRow,
        r#"SELECT id, chain AS "chain!", private_key AS "private_key!" FROM acme_certificates
         WHERE directory = $1 AND domain = $2 AND chain IS NOT NULL AND not_after IS DISTINCT FROM $3"#,
        (place.directory, place.domain, known)
    )
}

pub async fn standing(pool: &PgPool, place: &AcmeScope) -> sqlx::Result<CertificateStatus> {
    let found = fetch_optional!(
        pool,
        CertificateStatus,
        "SELECT not_after, failure FROM acme_certificates WHERE directory = $1 AND domain = $2",
        (place.directory, place.domain)
    )?;
    Ok(found.unwrap_or_default())
}

/// Takes the lease to order a certificate. `None`: no order is due, or another process has the lease.
pub async fn lease(pool: &PgPool, place: &AcmeScope, now: Timestamp, until: Timestamp) -> sqlx::Result<Option<Lease>> {
    let taken = fetch_optional!(
        pool,
        "INSERT INTO acme_certificates AS c (id, directory, domain, leased_until) VALUES ($1, $2, $3, $5)
         ON CONFLICT (directory, domain) DO UPDATE SET leased_until = excluded.leased_until
         WHERE (c.renew_at IS NULL OR c.renew_at <= $4) AND (c.retry_at IS NULL OR c.retry_at <= $4)
           AND (c.leased_until IS NULL OR c.leased_until <= $4)
         RETURNING id, failures",
        (uuid_of(now), place.directory, place.domain, now, until)
    )?;
    Ok(taken.map(|row| Lease { id: row.id, until, failures: row.failures }))
}

/// Stores the response to the TLS-ALPN-01 challenge.
pub async fn present(pool: &PgPool, lease: Lease, digest: &[u8; 32]) -> sqlx::Result<()> {
    execute!(
        pool,
        "UPDATE acme_certificates SET challenge = $3 WHERE id = $1 AND leased_until = $2",
        (lease.id, lease.until, digest)
    )
}

/// Returns the response to the TLS-ALPN-01 challenge of a scope. `None`: no order is running.
pub async fn challenge(pool: &PgPool, place: &AcmeScope) -> sqlx::Result<Option<[u8; 32]>> {
    let found = fetch_optional!(
        pool,
        scalar,
        "SELECT challenge FROM acme_certificates WHERE directory = $1 AND domain = $2",
        (place.directory, place.domain)
    )?;
    let found = found.flatten();
    Ok(found.and_then(|digest| digest.try_into().ok()))
}

/// Stores the ordered certificate, and ends the lease. If the lease has expired, a result of another process stays.
pub async fn store(pool: &PgPool, lease: Lease, new: New<'_>) -> sqlx::Result<()> {
    execute!(
        pool,
        "UPDATE acme_certificates SET chain = $3, private_key = $4, not_after = $5, renew_at = $6, challenge = NULL,
           leased_until = NULL, failures = 0, failure = NULL, retry_at = NULL WHERE id = $1 AND leased_until = $2",
        (lease.id, lease.until, new.chain, new.private_key, new.not_after, new.renew_at)
    )
}

/// Stores that an order failed, and ends the lease.
pub async fn fail(pool: &PgPool, lease: Lease, why: &str, retry_at: Timestamp) -> sqlx::Result<()> {
    execute!(
        pool,
        "UPDATE acme_certificates SET challenge = NULL, leased_until = NULL, failures = failures + 1, failure = $3,
           retry_at = $4 WHERE id = $1 AND leased_until = $2",
        (lease.id, lease.until, &why[..why.floor_char_boundary(FAILURE_MAX)], retry_at)
    )
}

#[derive(Debug)]
pub struct AcmeAccount {
    pub id: Uuid,
    /// Credentials, encrypted with [`bellwire_vault::ACME_ACCOUNT`] and the row's id.
    pub credentials: Vec<u8>,
}

/// Returns the account at an authority. `None`: no account yet.
pub async fn account(pool: &PgPool, directory: &str) -> sqlx::Result<Option<AcmeAccount>> {
    fetch_optional!(pool, AcmeAccount, "SELECT id, credentials FROM acme_accounts WHERE directory = $1", (directory))
}

/// Stores an account, replacing an earlier one.
pub async fn store_account(pool: &PgPool, directory: &str, account: &AcmeAccount, now: Timestamp) -> sqlx::Result<()> {
    execute!(
        pool,
        "INSERT INTO acme_accounts (directory, id, credentials, created_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (directory) DO UPDATE SET id = excluded.id, credentials = excluded.credentials, created_at = excluded.created_at",
        (directory, account.id, &account.credentials, now)
    )
}

/// Deletes an account that the authority no longer has.
pub async fn forget_account(pool: &PgPool, directory: &str) -> sqlx::Result<()> {
    execute!(pool, "DELETE FROM acme_accounts WHERE directory = $1", (directory))
}
