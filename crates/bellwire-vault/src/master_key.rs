//! The master key, which wraps the data keys and has no other use, and its sources.

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

use bellwire_core::base64url;

const KEY_LEN: usize = 32;
/// Maximum run time of a command that prints the master key. A key management service responds within a second.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// Error of a missing or unusable master key. The texts are for the operator who started Bellwire.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Other users can read or write the file of the master key.
    #[error("{} may be read or written by other users (mode {mode:o}): chmod 600 it", path.display())]
    Open {
        /// File of the master key.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The text is not 32 octets in base64.
    #[error(
        "the master key must be 32 octets in base64url, which is 43 characters; make one with `openssl rand -base64 32`"
    )]
    Malformed,
    /// The file does not exist and cannot be created.
    #[error("the master key cannot be made at {}: {source}", path.display())]
    Place {
        /// File to be created.
        path: PathBuf,
        /// Reason of the system.
        source: std::io::Error,
    },
    /// The command that prints the master key failed.
    #[error("the command of the master key failed: {0}")]
    Command(String),
    /// The file of the master key cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// File of the master key.
        path: PathBuf,
        /// Reason of the system.
        source: std::io::Error,
    },
}

/// The key that wraps the data keys. `Debug` does not show the key, and `Drop` zeroes it.
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
    /// Returns a new random key.
    pub fn generate() -> Self {
        Self(random())
    }

    /// Parses 32 octets in any of the four base64 alphabets.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let octets = Zeroizing::new(base64url::decode_any(text.trim()).ok_or(Error::Malformed)?);
        octets.as_slice().try_into().map(Self).map_err(|_| Error::Malformed)
    }

    /// Reads the key from a file. Returns `None` if the file does not exist, and an error if other users can access it.
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

    /// Writes the key to a new file with mode 0600, and creates its directory. Syncs both: without the key, data that
    /// was sealed before a power failure would be lost.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let write = || -> std::io::Result<()> {
            let above = path.parent().filter(|above| !above.as_os_str().is_empty());
            if let Some(above) = above {
                // The user that runs an embedded Postgres may need to traverse it.
                DirBuilder::new().recursive(true).mode(0o711).create(above)?;
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            let text = Zeroizing::new(base64url::encode(self.0) + "\n");
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            File::open(above.unwrap_or(Path::new(".")))?.sync_all()
        };
        write().map_err(|source| Error::File { path: path.to_owned(), source })
    }

    fn cipher(&self) -> LessSafeKey {
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &self.0).expect("32 octets"))
    }

    /// Wraps a data key: `nonce (12) | ciphertext (32) | tag (16)`, AES-256-GCM, with column, number and purpose as associated
    /// data.
    pub fn wrap(&self, number: i16, purpose: &str, key: &[u8; KEY_LEN]) -> Vec<u8> {
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

    /// Unwraps a data key. Returns `None` if another master key wrapped it, or if number or purpose differ.
    pub fn unwrap(&self, number: i16, purpose: &str, wrapped: &[u8]) -> Option<Zeroizing<[u8; KEY_LEN]>> {
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

/// Returns octets of the cryptographic random generator.
pub fn random<const N: usize>() -> [u8; N] {
    let mut octets = [0; N];
    rand::fill(&mut octets).expect("the system's randomness");
    octets
}

/// Source of the master key.
#[derive(Clone)]
pub enum MasterKeySource {
    /// Key from a setting.
    Given(MasterKey),
    /// File that is created with the first data keys.
    File(PathBuf),
    /// Shell command that prints the key, such as the client of a key management service.
    Command(Zeroizing<String>),
}

/// Omits keys, and commands, which may contain a token.
impl fmt::Debug for MasterKeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("Given(…)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Command(_) => f.write_str("Command(…)"),
        }
    }
}

/// Names the source after a preposition, without secrets.
impl fmt::Display for MasterKeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("in the setting master_key (BELLWIRE_MASTER_KEY)"),
            Self::File(path) => write!(f, "in {}", path.display()),
            Self::Command(_) => f.write_str("printed by master_key_command (BELLWIRE_MASTER_KEY_COMMAND)"),
        }
    }
}

impl MasterKeySource {
    /// Returns the key, or `None` if its file does not exist. Runs a command at each call.
    pub async fn read(&self) -> Result<Option<MasterKey>, Error> {
        match self {
            Self::Given(key) => Ok(Some(key.clone())),
            Self::File(path) => MasterKey::read(path),
            Self::Command(command) => printed_by(command).await.map(Some),
        }
    }

    /// Returns an error for an unusable file, and for a directory in which no file can be created. Changes nothing.
    pub fn check(&self) -> Result<(), Error> {
        let Self::File(path) = self else { return Ok(()) };
        if MasterKey::read(path)?.is_some() {
            return Ok(());
        }
        can_create(path).map_err(|source| Error::Place { path: path.clone(), source })
    }
}

/// Whether this user may create the file, and its missing directories. Changes nothing.
pub fn can_create(path: &Path) -> std::io::Result<()> {
    let place = path.ancestors().skip(1).find(|above| above.exists()).unwrap_or(Path::new("."));
    match place.is_dir() {
        true => Ok(access(place, AccessFlags::W_OK | AccessFlags::X_OK)?),
        false => Err(ErrorKind::NotADirectory.into()),
    }
}

/// Runs a shell command and parses the key that it prints. The command inherits the environment, for clients of key
/// management services, and standard error.
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
#[path = "../../../tests/crates/vault/unit/master_key.rs"]
mod tests;
