//! Decides whether a file may be read or run: only root and the user that runs Bellwire may be able to change it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

/// Reason for which a file is not trusted. The texts are for the operator who started Bellwire.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// Another user owns it, or a directory above it.
    #[error("{} belongs to {owner}, who could change it: it must be root's or that of the user who runs Bellwire", path.display())]
    Owner {
        /// The file or directory.
        path: PathBuf,
        /// Name of the owner.
        owner: String,
    },
    /// The group or all users may write to it, or to a directory above it.
    #[error("{} may be written by others: `chmod go-w` it", path.display())]
    Writable {
        /// The file or directory.
        path: PathBuf,
    },
    /// It cannot be examined.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Cause of the error.
        source: std::io::Error,
    },
}

/// Checks a file and every directory above it, both by its name and by the target of links.
pub fn check(path: &Path) -> Result<(), Untrusted> {
    let io = |source| Untrusted::Io { path: path.to_owned(), source };
    let (named, real) = (std::path::absolute(path).map_err(io)?, fs::canonicalize(path).map_err(io)?);
    let us = Uid::effective();
    named.ancestors().chain(real.ancestors()).try_for_each(|path| check_one(path, us))
}

fn check_one(path: &Path, us: Uid) -> Result<(), Untrusted> {
    let path = path.to_owned();
    let found = match fs::metadata(&path) {
        Ok(found) => found,
        Err(source) => return Err(Untrusted::Io { path, source }),
    };
    match judge(found.uid(), found.mode(), found.is_dir(), us.as_raw()) {
        None => Ok(()),
        Some(FileFault::Writable) => Err(Untrusted::Writable { path }),
        Some(FileFault::Owner) => {
            let user = User::from_uid(Uid::from_raw(found.uid())).ok().flatten();
            let owner = user.map_or_else(|| format!("user {}", found.uid()), |user| format!("user `{}`", user.name));
            Err(Untrusted::Owner { path, owner })
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileFault {
    Owner,
    Writable,
}

/// Returns the fault of an owner and mode. In a directory with the sticky bit, such as `/tmp`, other users can create files,
/// but not replace existing ones.
fn judge(owner: u32, mode: u32, is_dir: bool, us: u32) -> Option<FileFault> {
    let sticky = is_dir && mode & 0o1000 != 0;
    match () {
        () if owner != 0 && owner != us => Some(FileFault::Owner),
        () if mode & 0o022 != 0 && !sticky => Some(FileFault::Writable),
        () => None,
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/postgres/unit/trust.rs"]
mod tests;
