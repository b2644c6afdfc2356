//! The data keys, wrapped by the master key. The master key itself is never stored here and wraps nothing else.
//!
//! A wrapped key is `nonce (12) | ciphertext (32) | tag (16)`, AES-256-GCM, with column, number and purpose as
//! associated data: a row that was swapped for another does not open.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nix::unistd::{AccessFlags, access};
use sqlx::{PgConnection, PgExecutor, PgPool};
use zeroize::{Zeroize, Zeroizing};

use crate::model::clock::Timestamp;
use crate::vault::Vault;

const KEY_LEN: usize = 32;
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
    /// Rows that need keys, but no data keys: something removed them.
    #[error(
        "the database holds apps or API keys but no data keys: table data_keys was emptied; restore it from a backup"
    )]
    Lost,
    /// The file of the master key may be read by others.
    #[error("{} may be read or written by other users (mode {mode:o}): chmod 600 it", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The text is not a key.
    #[error(
        "the master key must be 32 octets in base64url, which is 43 characters; make one with `openssl rand -base64 32`"
    )]
    Malformed,
    /// There is no master key, and none can be made.
    #[error("the master key cannot be made at {}: {source}", path.display())]
    Place {
        /// Its file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file of the master key cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// How it failed.
        source: std::io::Error,
    },
}

/// The key that wraps the data keys. `Debug` does not show it; memory forgets it.
pub struct MasterKey([u8; KEY_LEN]);

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

impl Drop for MasterKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl MasterKey {
    /// A new one.
    pub fn generate() -> Self {
        Self(random())
    }

    /// Reads 32 octets in any of the four base64 spellings.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let text: Zeroizing<String> = Zeroizing::new(
            text.trim()
                .trim_end_matches('=')
                .chars()
                .map(|c| match c {
                    '+' => '-',
                    '/' => '_',
                    other => other,
                })
                .collect(),
        );
        let octets = Zeroizing::new(URL_SAFE_NO_PAD.decode(text.as_bytes()).map_err(|_| Error::Malformed)?);
        octets.as_slice().try_into().map(Self).map_err(|_| Error::Malformed)
    }

    /// Reads it from a file that nobody else may read; none if there is no file.
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        let failed = |source| Error::File { path: path.to_owned(), source };
        let mode = match fs::metadata(path) {
            Ok(meta) => meta.mode() & 0o777,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if mode & 0o077 != 0 {
            return Err(Error::Open { path: path.to_owned(), mode });
        }
        Self::parse(&Zeroizing::new(fs::read_to_string(path).map_err(failed)?)).map(Some)
    }

    /// Writes it to a new file with mode 0600, in a directory that is made if need be, down to the disk: data sealed under a key that a power cut took back
    /// would be lost.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let write = || -> std::io::Result<()> {
            if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
                // The user that an embedded Postgres runs as may have to pass.
                DirBuilder::new().recursive(true).mode(0o711).create(above)?;
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            let text = Zeroizing::new(URL_SAFE_NO_PAD.encode(self.0) + "\n");
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
        };
        write().map_err(|source| Error::File { path: path.to_owned(), source })
    }

    fn cipher(&self) -> LessSafeKey {
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &self.0).expect("32 octets"))
    }

    fn wrap(&self, number: i16, purpose: &str, key: &[u8; KEY_LEN]) -> Vec<u8> {
        let nonce: [u8; NONCE_LEN] = random();
        let mut wrapped = nonce.to_vec();
        wrapped.extend_from_slice(key);
        let aad = associated_data(number, purpose);
        let tag = self
            .cipher()
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(aad.as_bytes()),
                &mut wrapped[NONCE_LEN..],
            )
            .expect("32 octets are far below AES-GCM's length limit");
        wrapped.extend_from_slice(tag.as_ref());
        wrapped
    }

    fn unwrap(&self, row: &Row) -> Result<Zeroizing<[u8; KEY_LEN]>, Error> {
        let (nonce, rest) = row.wrapped.split_first_chunk::<NONCE_LEN>().ok_or(Error::Wrong)?;
        let mut plain = Zeroizing::new(rest.to_vec());
        let aad = associated_data(row.number, &row.purpose);
        let key = self
            .cipher()
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(aad.as_bytes()), &mut plain)
            .map_err(|_| Error::Wrong)?;
        <[u8; KEY_LEN]>::try_from(&*key).map(Zeroizing::new).map_err(|_| Error::Wrong)
    }
}

fn associated_data(number: i16, purpose: &str) -> String {
    format!("data_keys.wrapped {number} {purpose}")
}

fn random<const N: usize>() -> [u8; N] {
    let mut octets = [0; N];
    rand::fill(&mut octets).expect("the system's randomness");
    octets
}

/// A row of `data_keys`.
struct Row {
    number: i16,
    purpose: String,
    wrapped: Vec<u8>,
}

/// Where the master key comes from.
#[derive(Debug)]
pub enum Source {
    /// Given as a setting.
    Given(MasterKey),
    /// In this file, which is made with the first data keys.
    File(PathBuf),
}

impl Source {
    /// Refuses a file that cannot be used, and a place where none could be made. Changes nothing.
    pub fn check(&self) -> Result<(), Error> {
        let Self::File(path) = self else { return Ok(()) };
        if MasterKey::read(path)?.is_some() {
            return Ok(());
        }
        let place = path.ancestors().skip(1).find(|above| above.exists()).unwrap_or(Path::new("."));
        let usable = match place.is_dir() {
            true => access(place, AccessFlags::W_OK | AccessFlags::X_OK).map_err(std::io::Error::from),
            false => Err(ErrorKind::NotADirectory.into()),
        };
        usable.map_err(|source| Error::Place { path: path.clone(), source })
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
        let wrapped = new.wrap(row.number, &row.purpose, &*old.unwrap(&row)?);
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
        let key = master.unwrap(row)?;
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

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};

    use super::*;

    #[test]
    fn a_wrapped_key_opens_only_as_itself_and_under_its_master() {
        let (master, other) = (MasterKey([7; 32]), MasterKey([8; 32]));
        let row = |number, purpose: &str, wrapped| Row { number, purpose: purpose.to_owned(), wrapped };
        let wrapped = master.wrap(1, SEAL, &[3; 32]);
        assert_eq!(master.unwrap(&row(1, SEAL, wrapped.clone())).map(|key| *key).unwrap(), [3; 32]);
        assert!(other.unwrap(&row(1, SEAL, wrapped.clone())).is_err());
        assert!(master.unwrap(&row(2, SEAL, wrapped.clone())).is_err());
        assert!(master.unwrap(&row(1, LOOKUP, wrapped.clone())).is_err());
        assert!(master.unwrap(&row(1, SEAL, wrapped[..40].to_vec())).is_err());
        assert!(master.unwrap(&row(1, SEAL, Vec::new())).is_err());
    }

    #[test]
    fn a_master_key_is_read_in_every_base64_spelling_and_never_shown() {
        let key = MasterKey([0xfb; 32]);
        for engine in [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD] {
            assert_eq!(MasterKey::parse(&(engine.encode(key.0) + "\n")).unwrap().0, key.0);
        }
        assert!(matches!(MasterKey::parse("c2hvcnQ"), Err(Error::Malformed)));
        assert_eq!(format!("{key:?}"), "MasterKey(…)");
    }
}
