//! Address of the server that runs on a data directory, for commands on the same directory. The server holds a lock on the file while it
//! runs, so the address of a server that ended is never used.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// More than the longest URL.
const URL_MAX_BYTES: u64 = 4_096;

/// A server's lock on its file. Dropping it, or the end of the process, releases the lock.
#[derive(Debug)]
pub(super) struct Announced(#[expect(dead_code, reason = "holds the lock")] File);

/// Writes the URL of a server. `None`: another server of the directory is announced, or the file cannot be written; commands then use
/// the configured address.
pub(super) fn announce(dir: &Path, url: &str) -> Option<Announced> {
    let write = || {
        let mut file = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(file_in(dir))?;
        file.try_lock().map_err(io::Error::from)?;
        file.set_len(0)?;
        file.write_all(url.as_bytes())?;
        io::Result::Ok(file)
    };
    write()
        .inspect_err(|error| tracing::debug!(%error, "commands find this server by its settings only"))
        .ok()
        .map(Announced)
}

/// Returns the URL of the server that runs on the directory, if one does and this user may read it.
pub(crate) fn running(dir: &Path) -> Option<String> {
    let file = File::open(file_in(dir)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        Ok(()) | Err(TryLockError::Error(_)) => return None,
    }
    let mut url = String::new();
    file.take(URL_MAX_BYTES).read_to_string(&mut url).ok()?;
    Some(url).filter(|url| !url.is_empty())
}

fn file_in(dir: &Path) -> PathBuf {
    dir.join("server.url")
}

#[cfg(test)]
#[path = "../../tests/unit/server/announced.rs"]
mod tests;
