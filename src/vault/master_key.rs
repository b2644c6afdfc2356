//! The master key, which wraps the data keys and nothing else: where it comes from, and what it wraps.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use nix::unistd::{AccessFlags, access};
use zeroize::{Zeroize, Zeroizing};

use crate::model::base64url;

const KEY_LEN: usize = 32;
/// How long a command that prints the master key may take: a key management service answers in a second.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// Why there is no master key. The texts are written for the person who started Bellwire.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
    /// The command that is to print the master key failed.
    #[error("the command of the master key failed: {0}")]
    Command(String),
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
#[derive(Clone)]
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
        let octets = Zeroizing::new(base64url::decode_any(text.trim()).ok_or(Error::Malformed)?);
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
            let text = Zeroizing::new(base64url::encode(self.0) + "\n");
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
        };
        write().map_err(|source| Error::File { path: path.to_owned(), source })
    }

    fn cipher(&self) -> LessSafeKey {
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &self.0).expect("32 octets"))
    }

    /// Wraps a data key: `nonce (12) | ciphertext (32) | tag (16)`, AES-256-GCM, with column, number and purpose as associated
    /// data.
    pub(crate) fn wrap(&self, number: i16, purpose: &str, key: &[u8; KEY_LEN]) -> Vec<u8> {
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

    /// Opens a data key; none: it was wrapped by another master key, or for another number or purpose.
    pub(crate) fn unwrap(&self, number: i16, purpose: &str, wrapped: &[u8]) -> Option<Zeroizing<[u8; KEY_LEN]>> {
        let (nonce, rest) = wrapped.split_first_chunk::<NONCE_LEN>()?;
        let mut plain = Zeroizing::new(rest.to_vec());
        let aad = associated_data(number, purpose);
        let key = self
            .cipher()
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(aad.as_bytes()), &mut plain)
            .ok()?;
        <[u8; KEY_LEN]>::try_from(&*key).map(Zeroizing::new).ok()
    }
}

fn associated_data(number: i16, purpose: &str) -> String {
    format!("data_keys.wrapped {number} {purpose}")
}

/// Octets that nobody can guess.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut octets = [0; N];
    rand::fill(&mut octets).expect("the system's randomness");
    octets
}

/// Where the master key comes from.
#[derive(Clone)]
pub enum Source {
    /// Given as a setting.
    Given(MasterKey),
    /// In this file, which is made with the first data keys.
    File(PathBuf),
    /// Printed by this command of the shell, such as the client of a key management service.
    Command(Zeroizing<String>),
}

/// Without keys, and without commands, which may hold a token.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("Given(…)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Command(_) => f.write_str("Command(…)"),
        }
    }
}

impl Source {
    /// The key; none if its file is not there. A command runs each time.
    pub async fn read(&self) -> Result<Option<MasterKey>, Error> {
        match self {
            Self::Given(key) => Ok(Some(key.clone())),
            Self::File(path) => MasterKey::read(path),
            Self::Command(command) => printed_by(command).await.map(Some),
        }
    }

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

/// Runs a command of the shell in our environment, where clients of key management services find what they need, and reads the key
/// that it prints. What it says on standard error is shown where ours is.
async fn printed_by(command: &str) -> Result<MasterKey, Error> {
    let mut shell = tokio::process::Command::new("/bin/sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = match tokio::time::timeout(COMMAND_TIMEOUT, shell.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(Error::Command(error.to_string())),
        Err(_) => return Err(Error::Command(format!("it took longer than {} s", COMMAND_TIMEOUT.as_secs()))),
    };
    let printed = Zeroizing::new(output.stdout);
    if !output.status.success() {
        return Err(Error::Command(output.status.to_string()));
    }
    let text = std::str::from_utf8(&printed).map_err(|_| Error::Malformed)?;
    MasterKey::parse(text)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

    use super::*;

    #[test]
    fn a_wrapped_key_opens_only_as_itself_and_under_its_master() {
        let (master, other) = (MasterKey([7; 32]), MasterKey([8; 32]));
        let wrapped = master.wrap(1, "seal", &[3; 32]);
        assert_eq!(master.unwrap(1, "seal", &wrapped).map(|key| *key), Some([3; 32]));
        assert!(other.unwrap(1, "seal", &wrapped).is_none());
        assert!(master.unwrap(2, "seal", &wrapped).is_none());
        assert!(master.unwrap(1, "lookup", &wrapped).is_none());
        assert!(master.unwrap(1, "seal", &wrapped[..40]).is_none());
        assert!(master.unwrap(1, "seal", &[]).is_none());
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

    #[tokio::test]
    async fn a_command_prints_the_key_or_says_why_not() {
        let source = |command: &str| Source::Command(Zeroizing::new(command.to_owned()));
        let key = MasterKey([7; 32]);
        let printed = source(&format!("echo {}", base64url::encode(key.0))).read().await.unwrap().unwrap();
        assert_eq!(printed.0, key.0);
        assert!(matches!(source("echo short").read().await, Err(Error::Malformed)));
        let failed = source("exit 3").read().await.unwrap_err();
        assert_eq!(failed.to_string(), "the command of the master key failed: exit status: 3");
        assert_eq!(format!("{:?}", source("curl -H token")), "Command(…)");
    }
}
