//! Address of the server that runs on a data directory, for commands on the same directory. The server holds a lock on the file
//! while it runs, so the address of a server that ended is never used.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::warn;

/// More than the longest URL with an address.
const MAX_BYTES: u64 = 4_096;
/// Interval of attempts to lock the file while a command reads it, or another server of the directory stops.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// A server's lock on its file. Dropping it, or the end of the process, releases the lock.
#[derive(Debug)]
struct Announced(File);

impl Drop for Announced {
    fn drop(&mut self) {
        let _ = self.0.set_len(0); // the next server's lock must not show this address for a moment
    }
}

/// Keeps the URL and the address of a server in its directory until this future is dropped. If the file cannot be written, commands use the
/// configured address.
pub(super) async fn keep(dir: PathBuf, url: &str, address: SocketAddr) {
    let text = format!("{url}\n{address}");
    loop {
        match announce(&dir, &text) {
            Ok(_announced) => return std::future::pending().await,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(TRY_EVERY).await,
            Err(error) => {
                // A server with another database may have no directory, or one that it cannot write.
                if error.kind() == io::ErrorKind::PermissionDenied {
                    warn!(%error, file = %file_in(&dir).display(), "commands find this server by its settings only");
                }
                return std::future::pending().await;
            }
        }
    }
}

/// Locks the file and writes URL and address into it.
fn announce(dir: &Path, text: &str) -> io::Result<Announced> {
    let file = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(file_in(dir))?;
    file.try_lock().map_err(io::Error::from)?;
    let mut announced = Announced(file);
    announced.0.set_len(0)?;
    announced.0.write_all(text.as_bytes())?;
    Ok(announced)
}

/// Returns the URL of the server that runs on the directory, if one does and this user may read it.
pub(crate) fn running(dir: &Path) -> Option<String> {
    read(dir)?.lines().next().map(str::to_owned)
}

/// Returns the address of that server's listener.
pub(crate) fn address(dir: &Path) -> Option<SocketAddr> {
    read(dir)?.lines().nth(1)?.parse().ok()
}

fn read(dir: &Path) -> Option<String> {
    let file = File::open(file_in(dir)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        Ok(()) | Err(TryLockError::Error(_)) => return None,
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

fn file_in(dir: &Path) -> PathBuf {
    dir.join("server.url")
}

#[cfg(test)]
#[path = "../../tests/unit/server/announced.rs"]
mod tests;
