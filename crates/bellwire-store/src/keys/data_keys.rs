//! Data keys, wrapped by the master key. The master key itself is not stored in the database, and wraps nothing else.
//!
//! A wrapped key that was moved to another row cannot be opened.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection, PgExecutor, PgPool};
use zeroize::Zeroizing;

use crate::transactions::begin;
use bellwire_core::base64url;
use bellwire_core::clock::Timestamp;
use bellwire_vault::Vault;
use bellwire_vault::master_key::{self, MasterKey, MasterKeySource, random};

const SEAL: &str = "seal";
const LOOKUP: &str = "lookup";
/// Delay between the creation of a seal key and its use. Servers check for new keys every few seconds, and one without the key
/// could not decrypt values of others.
pub const TAKES_OVER_AFTER: Duration = Duration::from_secs(60);

/// Reason why the vault cannot be opened. The texts are for the operator who started Bellwire.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Error of a statement.
    #[error("the data keys cannot be read: {0}")]
    Sql(#[from] sqlx::Error),
    /// The database has data keys, but no master key exists.
    #[error(
        "this database was set up with a master key, and there is none at {}: put it back, or set BELLWIRE_MASTER_KEY; \
         without it endpoints, payloads and VAPID keys stay sealed", .0.display()
    )]
    Missing(PathBuf),
    /// The master key cannot unwrap the data keys. The text is the source of the key after a space, or empty.
    #[error(
        "the master key{0} is not the one that this database was set up with (if a change of it was interrupted, run \
         `bellwire master-key rotate` again)"
    )]
    Wrong(String),
    /// The master key is missing or invalid.
    #[error(transparent)]
    Master(#[from] master_key::Error),
    /// The database has rows that need keys, but no data keys: they were deleted.
    #[error(
        "the database holds apps or API keys but no data keys: table data_keys was emptied; restore it from a backup"
    )]
    Lost,
}

const WRONG: Error = Error::Wrong(String::new());

impl Error {
    /// Adds the source of the key to [`Error::Wrong`].
    #[must_use]
    pub fn with(self, source: &MasterKeySource) -> Self {
        if let Self::Wrong(_) = self { Self::Wrong(format!(" {source}")) } else { self }
    }
}

/// A row of `data_keys`. The wrapped key is not secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrappedKey {
    number: i16,
    purpose: String,
    #[serde(with = "as_base64url")]
    wrapped: Vec<u8>,
}

/// Serialises bytes as base64url.
mod as_base64url {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::base64url;

    pub(super) fn serialize<S: Serializer>(octets: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&base64url::encode(octets))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        base64url::decode_any(&text).ok_or_else(|| D::Error::custom("not base64url"))
    }
}

impl WrappedKey {
    fn unwrap(&self, master: &MasterKey) -> Result<Zeroizing<[u8; 32]>, Error> {
        master.unwrap(self.number, &self.purpose, &self.wrapped).ok_or(WRONG)
    }
}

/// Opens the vault. In an empty database it first creates the data keys, and the master key if there is none; several processes
/// may do so concurrently. Fails without the right master key.
pub async fn open(pool: &PgPool, source: &MasterKeySource, now: Timestamp) -> Result<Vault, Error> {
    let mut found = source.read().await?; // before anybody has to wait
    let mut tx = begin(pool).await?;
    let rows = locked_rows(&mut tx).await?;
    if !rows.is_empty() {
        let current = current(&mut *tx, now).await?;
        return unlock(&rows, &there(found, source)?, current).map_err(|error| error.with(source));
    }
    refuse_lost_keys(&mut tx).await?;
    if let (None, MasterKeySource::File(path)) = (&found, source) {
        let master = MasterKey::generate();
        master.write(path)?;
        found = Some(master);
    }
    let master = there(found, source)?;
    insert(&mut tx, &master, 0, LOOKUP, (now, None)).await?;
    insert(&mut tx, &master, 1, SEAL, (now, None)).await?;
    let vault = unlock(&locked_rows(&mut tx).await?, &master, 1)?;
    tx.commit().await?;
    Ok(vault)
}

fn there(found: Option<MasterKey>, source: &MasterKeySource) -> Result<MasterKey, Error> {
    match (found, source) {
        (Some(master), _) => Ok(master),
        // Another process may have made it since it was looked for.
        (None, MasterKeySource::File(path)) => MasterKey::read(path)?.ok_or_else(|| Error::Missing(path.clone())),
        (None, _) => Err(WRONG.with(source)),
    }
}

/// Checks that the master key unwraps the data keys, without changing anything. Returns the number of data keys: 0 in an empty
/// database.
pub async fn check(executor: impl PgExecutor<'_>, source: &MasterKeySource) -> Result<usize, Error> {
    let rows = wrapped(executor).await?;
    if rows.is_empty() {
        return Ok(0);
    }
    open_wrapped(&rows, source).await.map(|_| rows.len())
}

/// Returns the stored data keys of a database of any version.
pub async fn wrapped(executor: impl PgExecutor<'_>) -> sqlx::Result<Vec<WrappedKey>> {
    fetch_all!(executor, WrappedKey, "SELECT number, purpose, wrapped FROM data_keys ORDER BY number")
}

/// Unwraps data keys from any storage, such as a backup. The newest one encrypts.
pub async fn open_wrapped(rows: &[WrappedKey], source: &MasterKeySource) -> Result<Vault, Error> {
    let newest = rows.iter().filter(|row| row.purpose == SEAL).map(|row| row.number).max();
    unlock(rows, &there(source.read().await?, source)?, newest.ok_or(Error::Lost)?).map_err(|error| error.with(source))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NewDataKey {
    pub number: i16,
    pub seals_from: Timestamp,
}

/// Adds a seal key within the caller's transaction. It takes effect later, when all servers have read it.
pub async fn add_seal_key(tx: &mut PgConnection, master: &MasterKey, now: Timestamp) -> Result<NewDataKey, Error> {
    let rows = locked_rows(tx).await?;
    rows.iter().try_for_each(|row| row.unwrap(master).map(drop))?;
    let newest = rows.iter().map(|row| row.number).max().ok_or(Error::Lost)?;
    let added = NewDataKey { number: newest.checked_add(1).ok_or(Error::Lost)?, seals_from: now + TAKES_OVER_AFTER };
    insert(tx, master, added.number, SEAL, (now, Some(added.seals_from))).await?;
    Ok(added)
}

/// Reads added seal keys and activates the one that is due. Reads the master key only for a key that the vault lacks. Returns
/// whether anything changed.
pub async fn refresh(pool: &PgPool, source: &MasterKeySource, vault: &Vault, now: Timestamp) -> Result<bool, Error> {
    let newest = fetch_one!(pool, scalar, r#"SELECT max(number) AS "newest!" FROM data_keys"#)?;
    let current = current(pool, now).await?;
    let known = vault.seal_keys();
    if (u16::try_from(newest), u16::try_from(current)) == (Ok(known.0), Ok(known.1)) {
        return Ok(false);
    }
    let rows = wrapped(pool).await?;
    let master = there(source.read().await?, source)?;
    let (seal, _) = unwrap_all(&rows, &master).map_err(|error| error.with(source))?;
    vault.adopt(seal.iter().map(|(number, key)| (*number, **key)), u16::try_from(current).map_err(|_| WRONG)?);
    Ok(true)
}

/// Number of values encrypted with one key from which operators are warned to add a seal key. AES-GCM with random nonces allows
/// 2^32 (NIST SP 800-38D, section 8.3). The other half is a reserve for the time until then, and for processes that crashed
/// before counting.
pub const VALUES_TO_WARN: i64 = 1 << 31;

/// Adds the number of values encrypted by this process to the counts of their keys. Returns the count of the newest key.
/// `None`: none since the last call.
pub async fn count_sealed(pool: &PgPool, vault: &Vault) -> sqlx::Result<Option<i64>> {
    let taken = vault.take_uncounted();
    if taken.is_empty() {
        return Ok(None);
    }
    for (number, values) in taken {
        let add = query!(
            "UPDATE data_keys SET sealed_values = sealed_values + $2 WHERE number = $1",
            (number as i16, values as i64)
        );
        if let Err(error) = add.execute(pool).await {
            vault.count(number, values);
            return Err(error);
        }
    }
    sealed_values(pool).await.map(Some)
}

/// Returns the number of values encrypted with the newest seal key.
pub async fn sealed_values(executor: impl PgExecutor<'_>) -> sqlx::Result<i64> {
    let newest = fetch_optional!(
        executor,
        scalar,
        "SELECT sealed_values FROM data_keys WHERE purpose = $1 ORDER BY number DESC LIMIT 1",
        (SEAL)
    )?;
    Ok(newest.unwrap_or(0))
}

/// Returns the number of the seal key that encrypts now.
async fn current(executor: impl PgExecutor<'_>, now: Timestamp) -> Result<i16, Error> {
    let number = fetch_one!(
        executor,
        scalar,
        "SELECT max(number) FROM data_keys WHERE purpose = $1 AND (seals_from IS NULL OR seals_from <= $2)",
        (SEAL, now)
    )?;
    number.ok_or(Error::Lost)
}

/// Wraps all data keys with a new master key. After the commit, the old master key unwraps nothing. Running processes keep
/// their unwrapped keys.
pub async fn rotate_master(conn: &mut PgConnection, old: &MasterKey, new: &MasterKey) -> Result<(), Error> {
    let mut tx = conn.begin().await?;
    for row in locked_rows(&mut tx).await? {
        let wrapped = new.wrap(row.number, &row.purpose, &*row.unwrap(old)?);
        execute!(&mut *tx, "UPDATE data_keys SET wrapped = $2 WHERE number = $1", (row.number, wrapped))?;
    }
    Ok(tx.commit().await?)
}

/// Returns all rows. Other writers wait until the transaction ends.
async fn locked_rows(tx: &mut PgConnection) -> Result<Vec<WrappedKey>, sqlx::Error> {
    execute!(&mut *tx, "LOCK TABLE data_keys IN EXCLUSIVE MODE")?;
    wrapped(tx).await
}

async fn insert(
    tx: &mut PgConnection, master: &MasterKey, number: i16, purpose: &str,
    (created_at, seals_from): (Timestamp, Option<Timestamp>),
) -> Result<(), sqlx::Error> {
    let wrapped = master.wrap(number, purpose, &Zeroizing::new(random()));
    execute!(
        tx,
        "INSERT INTO data_keys (number, purpose, wrapped, created_at, seals_from) VALUES ($1, $2, $3, $4, $5)",
        (number, purpose, wrapped, created_at, seals_from)
    )?;
    Ok(())
}

/// Fails if the database has encrypted values. New data keys would make them look damaged, so keys are created only in an empty
/// database.
async fn refuse_lost_keys(tx: &mut PgConnection) -> Result<(), Error> {
    let used =
        fetch_one!(tx, scalar, r#"SELECT EXISTS (SELECT FROM apps) OR EXISTS (SELECT FROM api_keys) AS "used!""#)?;
    if used { Err(Error::Lost) } else { Ok(()) }
}

fn unlock(rows: &[WrappedKey], master: &MasterKey, current: i16) -> Result<Vault, Error> {
    let (seal, lookup) = unwrap_all(rows, master)?;
    let current = u16::try_from(current).map_err(|_| WRONG)?;
    if !seal.iter().any(|(number, _)| *number == current) {
        return Err(Error::Lost);
    }
    Ok(Vault::sealing_by(seal.iter().map(|(number, key)| (*number, **key)), current, &lookup))
}

type Unwrapped = (Vec<(u16, Zeroizing<[u8; 32]>)>, Zeroizing<[u8; 32]>);

/// Unwraps the seal keys by number, and the lookup key.
fn unwrap_all(rows: &[WrappedKey], master: &MasterKey) -> Result<Unwrapped, Error> {
    let mut seal = Vec::new();
    let mut lookup = None;
    for row in rows {
        let key = row.unwrap(master)?;
        match row.purpose.as_str() {
            LOOKUP => lookup = Some(key),
            _ => seal.push((u16::try_from(row.number).map_err(|_| WRONG)?, key)),
        }
    }
    Ok((seal, lookup.ok_or(Error::Lost)?))
}
