//! The data keys, wrapped by the master key. The master key itself is never stored here and wraps nothing else.
//!
//! A row that was swapped for another does not open.

use std::path::PathBuf;

use sqlx::{PgConnection, PgExecutor, PgPool};
use zeroize::{Zeroize, Zeroizing};

use crate::model::clock::Timestamp;
use crate::vault::Vault;
use crate::vault::master_key::{self, MasterKey, Source, random};

const SEAL: &str = "seal";
const LOOKUP: &str = "lookup";

/// Why the vault stays closed. The texts are written for the person who started Bellwire.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A statement failed.
    #[error("the data keys cannot be read: {0}")]
    Sql(#[from] sqlx::Error),
    /// The database has data keys, and there is no master key.
    #[error(
        "this database was set up with a master key, and there is none at {}: put it back, or set BELLWIRE_MASTER_KEY; \
         without it endpoints, payloads and VAPID keys stay sealed", .0.display()
    )]
    Missing(PathBuf),
    /// The master key does not open what the database holds.
    #[error(
        "the master key is not the one that this database was set up with (if a change of it was interrupted, run \
         `bellwire master-key rotate` again)"
    )]
    Wrong,
    /// There is no usable master key.
    #[error(transparent)]
    Master(#[from] master_key::Error),
    /// Rows that need keys, but no data keys: something removed them.
    #[error(
        "the database holds apps or API keys but no data keys: table data_keys was emptied; restore it from a backup"
    )]
    Lost,
}

/// A row of `data_keys`.
struct Row {
    number: i16,
    purpose: String,
    wrapped: Vec<u8>,
}

impl Row {
    fn unwrap(&self, master: &MasterKey) -> Result<Zeroizing<[u8; 32]>, Error> {
        master.unwrap(self.number, &self.purpose, &self.wrapped).ok_or(Error::Wrong)
    }
}

/// Opens the vault. For an empty database it makes the data keys first, and the master key if there is none; several
/// processes may do so at once. Without the right master key it fails.
pub async fn open(pool: &PgPool, source: &Source, now: Timestamp) -> Result<Vault, Error> {
    let mut tx = pool.begin().await?;
    let rows = locked_rows(&mut tx).await?;
    let found;
    let master = match source {
        Source::Given(master) => master,
        Source::File(path) => match MasterKey::read(path)? {
            Some(master) => {
                found = master;
                &found
            }
            None if !rows.is_empty() => return Err(Error::Missing(path.clone())),
            None => {
                found = MasterKey::generate();
                refuse_lost_keys(&mut tx).await?;
                found.write(path)?;
                &found
            }
        },
    };
    if !rows.is_empty() {
        return unlock(&rows, master);
    }
    refuse_lost_keys(&mut tx).await?;
    insert(&mut tx, master, 0, LOOKUP, now).await?;
    insert(&mut tx, master, 1, SEAL, now).await?;
    let vault = unlock(&locked_rows(&mut tx).await?, master)?;
    tx.commit().await?;
    Ok(vault)
}

/// Whether the master key opens the data keys, without changing anything. Returns how many there are: none in an empty
/// database.
pub async fn check(executor: impl PgExecutor<'_>, source: &Source) -> Result<usize, Error> {
    let rows = sqlx::query_as!(Row, "SELECT number, purpose, wrapped FROM data_keys").fetch_all(executor).await?;
    if rows.is_empty() {
        return Ok(0);
    }
    let found;
    let master = match source {
        Source::Given(master) => master,
        Source::File(path) => {
            found = MasterKey::read(path)?.ok_or_else(|| Error::Missing(path.clone()))?;
            &found
        }
    };
    unlock(&rows, master).map(|_| rows.len())
}

/// Wraps all data keys anew. Once it is committed the old master key opens nothing; processes that run keep their
/// unlocked keys.
pub async fn rotate_master(pool: &PgPool, old: &MasterKey, new: &MasterKey) -> Result<(), Error> {
    let mut tx = pool.begin().await?;
    for row in locked_rows(&mut tx).await? {
        let wrapped = new.wrap(row.number, &row.purpose, &*row.unwrap(old)?);
        sqlx::query!("UPDATE data_keys SET wrapped = $2 WHERE number = $1", row.number, wrapped)
            .execute(&mut *tx)
            .await?;
    }
    Ok(tx.commit().await?)
}

/// All rows, with everybody else who wants to write them waiting until the transaction ends.
async fn locked_rows(tx: &mut PgConnection) -> Result<Vec<Row>, sqlx::Error> {
    sqlx::query!("LOCK TABLE data_keys IN EXCLUSIVE MODE").execute(&mut *tx).await?;
    sqlx::query_as!(Row, "SELECT number, purpose, wrapped FROM data_keys ORDER BY number").fetch_all(tx).await
}

async fn insert(
    tx: &mut PgConnection,
    master: &MasterKey,
    number: i16,
    purpose: &str,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let wrapped = master.wrap(number, purpose, &Zeroizing::new(random()));
    sqlx::query!(
        "INSERT INTO data_keys (number, purpose, wrapped, created_at) VALUES ($1, $2, $3, $4)",
        number,
        purpose,
        wrapped,
        now
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// New keys would make sealed rows look merely damaged, so they are made only where nothing can be sealed yet.
async fn refuse_lost_keys(tx: &mut PgConnection) -> Result<(), Error> {
    let used = sqlx::query_scalar!(r#"SELECT EXISTS (SELECT FROM apps) OR EXISTS (SELECT FROM api_keys) AS "used!""#)
        .fetch_one(tx)
        .await?;
    if used { Err(Error::Lost) } else { Ok(()) }
}

fn unlock(rows: &[Row], master: &MasterKey) -> Result<Vault, Error> {
    let mut seal = Vec::new();
    let mut lookup = None;
    for row in rows {
        let key = row.unwrap(master)?;
        match row.purpose.as_str() {
            LOOKUP => lookup = Some(key),
            _ => seal.push((u16::try_from(row.number).map_err(|_| Error::Wrong)?, *key)),
        }
    }
    let lookup = lookup.ok_or(Error::Lost)?;
    if seal.is_empty() {
        return Err(Error::Lost);
    }
    let vault = Vault::new(seal.iter().copied(), &lookup);
    seal.iter_mut().for_each(|(_, key)| key.zeroize());
    Ok(vault)
}
