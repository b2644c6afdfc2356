//! Format of a backup: a manifest, the archive of `pg_dump`, and a MAC over both.
//!
//! ```text
//! bellwire-backup/1
//! {"id": …, "began_at": …, "data_keys": […], …}      the manifest, one line
//! <archive of pg_dump, custom format, compressed>
//! <32 octets: HMAC-SHA-256 over everything before>   under a key that is wrapped by the master key
//! ```
//!
//! An encrypted backup is the same content in a file of [age](super::age).
//! Restore by hand: `tail -n +3 FILE | pg_restore …`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use super::age::{self, Identity, Recipient};
use bellwire_core::clock::Timestamp;
use bellwire_store::keys::data_keys::WrappedKey;

const MAGIC: &[u8] = b"bellwire-backup/1\n";
/// Maximum octets of a manifest. Each data key needs about 150.
const MANIFEST_MAX: u64 = 1 << 20;
const MAC_LEN: usize = 32;
const BUFFER: usize = 256 << 10;

/// Manifest of a backup, readable before the rest of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Id in the table of backups.
    pub id: Uuid,
    /// Time before the snapshot of `pg_dump`.
    pub began_at: Timestamp,
    pub program: String,
    pub migration: i64,
    /// Version of the server, such as 150018.
    pub postgres: i32,
    /// Major version of `pg_dump`, which wrote the archive.
    pub pg_dump: u32,
    /// Data keys, wrapped by the master key. A missing master key is found before the restore.
    pub data_keys: Vec<WrappedKey>,
}

/// Error of an unusable file. The texts are for operators.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupFileError {
    #[error("the backup cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("this is not a backup made by this or an earlier version of Bellwire")]
    Other,
    #[error("the backup is encrypted: give the identity that it is encrypted to by --identity FILE")]
    Encrypted,
    /// The file is truncated or was changed.
    #[error("the backup is damaged, was cut off or tampered with: its proof does not hold")]
    Tampered,
}

/// Writes a backup of all that `archive` returns. `is_whole` is called at the end of the archive; if it fails, the MAC
/// is not written, and the file is not a valid backup.
pub(super) fn write(
    to: impl Write, recipients: &[Recipient], manifest: &Manifest, mac: hmac::Context, archive: impl Read,
    is_whole: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    if recipients.is_empty() {
        return write_plain(to, manifest, mac, archive, is_whole)?.flush();
    }
    let encrypted = age::Writer::new(to, recipients)?;
    write_plain(encrypted, manifest, mac, archive, is_whole)?.finish()?.flush()
}

fn write_plain<W: Write>(
    mut to: W, manifest: &Manifest, mut mac: hmac::Context, mut archive: impl Read,
    is_whole: impl FnOnce() -> io::Result<()>,
) -> io::Result<W> {
    let mut head = MAGIC.to_vec();
    serde_json::to_writer(&mut head, manifest)?;
    head.push(b'\n');
    mac.update(&head);
    to.write_all(&head)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        match archive.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                mac.update(&buffer[..n]);
                to.write_all(&buffer[..n])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    is_whole()?;
    to.write_all(mac.sign().as_ref())?;
    Ok(to)
}

/// An opened backup whose manifest has been read.
pub(super) struct Backup {
    /// Not authenticated before [`copy`](Self::copy) succeeds.
    pub manifest: Manifest,
    head: Vec<u8>,
    rest: Box<dyn Read>,
}

impl Backup {
    pub(super) fn open(path: &Path, identities: &[Identity]) -> Result<Self, BackupFileError> {
        let mut file = BufReader::with_capacity(BUFFER, File::open(path)?);
        if !file.fill_buf()?.starts_with(age::MAGIC) {
            return Self::read(file);
        }
        if identities.is_empty() {
            return Err(BackupFileError::Encrypted);
        }
        Self::read(BufReader::with_capacity(BUFFER, age::AgeReader::new(file, identities)?))
    }

    fn read(mut from: impl BufRead + 'static) -> Result<Self, BackupFileError> {
        let mut head = Vec::new();
        (&mut from).take(MAGIC.len() as u64).read_to_end(&mut head)?;
        if head != MAGIC {
            return Err(BackupFileError::Other);
        }
        (&mut from).take(MANIFEST_MAX).read_until(b'\n', &mut head)?;
        let manifest = serde_json::from_slice(&head[MAGIC.len()..]).map_err(|_| BackupFileError::Other)?;
        Ok(Self { manifest, head, rest: Box::new(from) })
    }

    /// Copies the archive to `to` and verifies the MAC at its end. The copy must not be used unless this succeeds.
    /// Returns the octets of the archive.
    pub(super) fn copy(mut self, mut mac: hmac::Context, to: &mut impl Write) -> Result<u64, BackupFileError> {
        mac.update(&self.head);
        // The last octets may be the MAC and are not written.
        let (mut held, mut buffer, mut octets) = (Vec::new(), vec![0; BUFFER], 0);
        loop {
            let n = match self.rest.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            held.extend_from_slice(&buffer[..n]);
            let ready = held.len().saturating_sub(MAC_LEN);
            mac.update(&held[..ready]);
            to.write_all(&held[..ready])?;
            octets += ready as u64;
            held.drain(..ready);
        }
        let is_proven: bool = mac.sign().as_ref().ct_eq(&held).into();
        if is_proven { Ok(octets) } else { Err(BackupFileError::Tampered) }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/backup/file.rs"]
mod tests;
