//! A backup's file: what it is, the archive that `pg_dump` wrote, and a proof that all of it is as it was written.
//!
//! ```text
//! bellwire-backup/1
//! {"id": …, "began_at": …, "data_keys": […], …}      the manifest, one line
//! <archive of pg_dump, custom format, compressed>
//! <32 octets: HMAC-SHA-256 over everything before>   under a key that only the master key opens
//! ```
//!
//! Encrypted to recipients, all of this is within a file of [age](super::age). By hand: `tail -n +3 FILE | pg_restore …`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use super::age::{self, Identity, Recipient};
use crate::model::clock::Timestamp;
use crate::store::keys::data_keys::WrappedKey;

const MAGIC: &[u8] = b"bellwire-backup/1\n";
/// More than any manifest has: each data key takes some 150 octets.
const MANIFEST_MAX: u64 = 1 << 20;
const MAC_LEN: usize = 32;
const BUFFER: usize = 256 << 10;

/// What a backup is of, readable before anything else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Its id, as in the table of backups.
    pub id: Uuid,
    /// Before the snapshot was taken that it shows.
    pub began_at: Timestamp,
    /// The version of the program that made it.
    pub program: String,
    /// The newest migration of its schema.
    pub migration: i64,
    /// The version of its Postgres: 150018.
    pub postgres: i32,
    /// The major version of the `pg_dump` that wrote the archive.
    pub pg_dump: u32,
    /// Its data keys, wrapped by the master key: whether that is at hand is known before anything is restored.
    pub data_keys: Vec<WrappedKey>,
}

/// Why a file is no backup that can be used. The texts are written for operators.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// It cannot be read, decrypted, or is cut off.
    #[error("the backup cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("this is no backup that `bellwire backup` of this or an earlier version made")]
    Other,
    /// It is encrypted, and no identity was given.
    #[error("the backup is encrypted: give the identity that it is encrypted to by --identity FILE")]
    Encrypted,
    /// It ends too early, or something in it was changed.
    #[error("the backup is damaged, was cut off or tampered with: its proof does not hold")]
    Tampered,
}

/// Writes a backup: what `archive` reads, from its first to its last octet. Unless `is_whole` says at its end that all was read, it
/// stays without its proof, and nobody takes it for a backup.
pub(super) fn write(
    to: impl Write,
    recipients: &[Recipient],
    manifest: &Manifest,
    mac: hmac::Context,
    archive: impl Read,
    is_whole: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    if recipients.is_empty() {
        return write_plain(to, manifest, mac, archive, is_whole)?.flush();
    }
    let encrypted = age::Writer::new(to, recipients)?;
    write_plain(encrypted, manifest, mac, archive, is_whole)?.finish()?.flush()
}

fn write_plain<W: Write>(
    mut to: W,
    manifest: &Manifest,
    mut mac: hmac::Context,
    mut archive: impl Read,
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

/// An opened backup, of which the manifest was read.
pub(super) struct Backup {
    /// What it says of itself, which is proven by [`copy`](Self::copy) alone.
    pub manifest: Manifest,
    head: Vec<u8>,
    rest: Box<dyn Read>,
}

impl Backup {
    /// Opens a file.
    pub(super) fn open(path: &Path, identities: &[Identity]) -> Result<Self, Unusable> {
        let mut file = BufReader::with_capacity(BUFFER, File::open(path)?);
        if !file.fill_buf()?.starts_with(age::MAGIC) {
            return Self::read(file);
        }
        if identities.is_empty() {
            return Err(Unusable::Encrypted);
        }
        Self::read(BufReader::with_capacity(BUFFER, age::Reader::new(file, identities)?))
    }

    fn read(mut from: impl BufRead + 'static) -> Result<Self, Unusable> {
        let mut head = Vec::new();
        (&mut from).take(MAGIC.len() as u64).read_to_end(&mut head)?;
        if head != MAGIC {
            return Err(Unusable::Other);
        }
        (&mut from).take(MANIFEST_MAX).read_until(b'\n', &mut head)?;
        let manifest = serde_json::from_slice(&head[MAGIC.len()..]).map_err(|_| Unusable::Other)?;
        Ok(Self { manifest, head, rest: Box::new(from) })
    }

    /// Hands on the archive, and checks the proof behind it, which is only known at its end: what was handed on is not to be used
    /// unless this succeeds. Returns how many octets the archive has.
    pub(super) fn copy(mut self, mut mac: hmac::Context, to: &mut impl Write) -> Result<u64, Unusable> {
        mac.update(&self.head);
        // What may be the proof is kept back.
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
        if is_proven { Ok(octets) } else { Err(Unusable::Tampered) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> hmac::Context {
        hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &[n; 32]))
    }

    fn manifest() -> Manifest {
        Manifest {
            id: Uuid::nil(),
            began_at: Timestamp::from_timestamp(1_800_000_000, 0).unwrap(),
            program: "0.1.0".to_owned(),
            migration: 61,
            postgres: 150_018,
            pg_dump: 15,
            data_keys: Vec::new(),
        }
    }

    fn backup(archive: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        write(&mut file, &[], &manifest(), key(1), archive, || Ok(())).unwrap();
        file
    }

    fn read(file: Vec<u8>, mac: hmac::Context) -> Result<Vec<u8>, Unusable> {
        let mut archive = Vec::new();
        let backup = Backup::read(io::Cursor::new(file))?;
        assert_eq!(backup.manifest.pg_dump, 15);
        backup.copy(mac, &mut archive).map(|_| archive)
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let archive: Vec<u8> = (0..BUFFER * 2 + 5).map(|n| n as u8).collect();
        assert_eq!(read(backup(&archive), key(1)).unwrap(), archive);
        assert_eq!(read(backup(b""), key(1)).unwrap(), b"");
        assert!(matches!(read(backup(b"x"), key(2)), Err(Unusable::Tampered)), "another master key");
        assert!(matches!(Backup::read(&b"PGDMP"[..]), Err(Unusable::Other)));
    }

    #[test]
    fn a_file_that_was_cut_off_or_changed_is_refused() {
        let file = backup(&[5; 1_000]);
        for cut in 0..file.len() {
            let cut_off =
                Backup::read(io::Cursor::new(file[..cut].to_vec())).and_then(|it| it.copy(key(1), &mut io::sink()));
            assert!(cut_off.is_err(), "cut at {cut}");
        }
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 1;
            let changed = Backup::read(io::Cursor::new(changed)).and_then(|it| it.copy(key(1), &mut io::sink()));
            assert!(changed.is_err(), "octet {at}");
        }
    }

    #[test]
    fn what_broke_off_while_it_was_made_is_no_backup() {
        let mut file = Vec::new();
        let failed =
            write(&mut file, &[], &manifest(), key(1), &b"half"[..], || Err(io::Error::other("pg_dump failed")));
        assert_eq!(failed.unwrap_err().to_string(), "pg_dump failed");
        assert!(matches!(read(file, key(1)), Err(Unusable::Tampered)));
    }
}
