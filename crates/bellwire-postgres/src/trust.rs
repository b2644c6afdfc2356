//! Whether a file is to be believed, or run: only root and the user that runs Bellwire may be able to change it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

/// Why it isn't. The texts are written for the person who started Bellwire.
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

/// Checks a file and every directory above it, both as it is named and where links lead to.
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

/// Returns the fault of an owner and mode. In a directory with the sticky bit, such as `/tmp`, others can create files, but not
/// replace existing ones.
fn judge(owner: u32, mode: u32, is_dir: bool, us: u32) -> Option<FileFault> {
    let sticky = is_dir && mode & 0o1000 != 0;
    match () {
        () if owner != 0 && owner != us => Some(FileFault::Owner),
        () if mode & 0o022 != 0 && !sticky => Some(FileFault::Writable),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_owner_may_change_paths() {
        let (file, dir) = (false, true);
        for (owner, mode, is_dir, fault) in [
            (1000, 0o600, file, None),
            (1000, 0o644, file, None),
            (0, 0o644, file, None),
            (1001, 0o644, file, Some(FileFault::Owner)),
            (1000, 0o664, file, Some(FileFault::Writable)),
            (0, 0o646, file, Some(FileFault::Writable)),
            (1000, 0o1666, file, Some(FileFault::Writable)),
            (1000, 0o755, dir, None),
            (0, 0o1777, dir, None),
            (1001, 0o1777, dir, Some(FileFault::Owner)),
            (0, 0o777, dir, Some(FileFault::Writable)),
            (1000, 0o775, dir, Some(FileFault::Writable)),
        ] {
            assert_eq!(judge(owner, mode, is_dir, 1000), fault, "{owner} {mode:o} {is_dir}");
        }
        assert_eq!(judge(1000, 0o644, file, 0), Some(FileFault::Owner), "root believes root alone");
    }

    #[test]
    fn trusted_paths_pass_missing_ones_are_named() {
        check(Path::new("/etc/passwd")).unwrap();
        let error = check(Path::new("/etc/no-such-file")).unwrap_err();
        assert!(error.to_string().starts_with("/etc/no-such-file: No such file"), "{error}");
    }
}
