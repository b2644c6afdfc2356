//! Certificates that are ordered by ACME: one row a host, which all processes read and one at a time orders for.

use sqlx::PgPool;
use uuid::Uuid;

use bellwire_core::clock::{Timestamp, uuid_of};

/// Octets of the reason of a failure that are kept.
const FAILURE_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeScope {
    /// URL of the authority's directory.
    pub directory: String,
    pub domain: String,
}

/// A row of `acme_certificates` that holds a certificate.
#[derive(Debug)]
pub struct CertificateRow {
    /// Id of the row, the same before and after a renewal.
    pub id: Uuid,
    /// Chain of certificates in PEM.
    pub chain: String,
    /// Sealed under [`bellwire_vault::ACME_PRIVATE`] and the row's id.
    pub private_key: Vec<u8>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateStatus {
    /// End of validity. `None`: no certificate.
    pub not_after: Option<Timestamp>,
    /// Why the last order failed, for people; none: it did not.
    pub failure: Option<String>,
}

/// The right to order, until it runs out.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    pub id: Uuid,
    /// End of the order, which fences writes.
    pub until: Timestamp,
    /// Orders in a row that failed before.
    pub failures: i32,
}

#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    /// Chain of certificates in PEM.
    pub chain: &'a str,
    /// Sealed under [`bellwire_vault::ACME_PRIVATE`] and the row's id.
    pub private_key: &'a [u8],
    pub not_after: Timestamp,
    /// Time of the next order.
    pub renew_at: Timestamp,
}

/// The certificate of a place, if there is one, unless it is valid until then, which is the one that the caller has.
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

/// Takes the right to order for a place. None: it is not due, or another process orders.
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

/// Writes down what the authority is to find at the domain by TLS-ALPN-01.
pub async fn present(pool: &PgPool, lease: Lease, digest: &[u8; 32]) -> sqlx::Result<()> {
    execute!(
        pool,
        "UPDATE acme_certificates SET challenge = $3 WHERE id = $1 AND leased_until = $2",
        (lease.id, lease.until, digest)
    )
}

/// Returns the response for the authority at a place, if an order exists.
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

/// Stores the result of an order, and ends the lease. A result that another process stored after the end of the lease stays.
pub async fn store(pool: &PgPool, lease: Lease, new: New<'_>) -> sqlx::Result<()> {
    execute!(
        pool,
        "UPDATE acme_certificates SET chain = $3, private_key = $4, not_after = $5, renew_at = $6, challenge = NULL,
           leased_until = NULL, failures = 0, failure = NULL, retry_at = NULL WHERE id = $1 AND leased_until = $2",
        (lease.id, lease.until, new.chain, new.private_key, new.not_after, new.renew_at)
    )
}

/// Writes down that an order failed, and ends the lease.
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
    /// Sealed under [`bellwire_vault::ACME_ACCOUNT`] and the row's id.
    pub credentials: Vec<u8>,
}

/// The account at an authority, if there is one.
pub async fn account(pool: &PgPool, directory: &str) -> sqlx::Result<Option<AcmeAccount>> {
    fetch_optional!(pool, AcmeAccount, "SELECT id, credentials FROM acme_accounts WHERE directory = $1", (directory))
}

/// Stores an account, instead of the one before if there is one.
pub async fn store_account(pool: &PgPool, directory: &str, account: &AcmeAccount, now: Timestamp) -> sqlx::Result<()> {
    execute!(
        pool,
        "INSERT INTO acme_accounts (directory, id, credentials, created_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (directory) DO UPDATE SET id = excluded.id, credentials = excluded.credentials, created_at = excluded.created_at",
        (directory, account.id, &account.credentials, now)
    )
}

/// Deletes an account that does not exist at the authority.
pub async fn forget_account(pool: &PgPool, directory: &str) -> sqlx::Result<()> {
    execute!(pool, "DELETE FROM acme_accounts WHERE directory = $1", (directory))
}
