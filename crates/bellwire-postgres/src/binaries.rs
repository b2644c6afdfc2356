//! Finds the installed Postgres whose binaries can run a cluster.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::geteuid;
use tracing::warn;

use super::Error;
use super::trust::{self, Untrusted};

/// Oldest major version that schema and SQL are tested with.
pub const OLDEST_MAJOR: u32 = 15;

/// Directories in which packages install Postgres, each version in its own directory with programs in `bin`: Debian, Red Hat, a
/// build from source, Homebrew on Intel and ARM, and derivatives of these.
const PARENTS: [&str; 5] = ["/usr/lib/postgresql", "/usr", "/usr/local", "/opt/homebrew/opt", "/usr/local/opt"];

/// Programs that write and read archives.
const TOOLS: [&str; 2] = ["pg_dump", "pg_restore"];

/// Installed Postgres.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// Directory of its programs.
    pub dir: PathBuf,
    /// Number of the major version.
    pub major: u32,
}

impl Binaries {
    /// Returns the installation that can open a cluster: the one with major version `existing`, or, for a new cluster, the
    /// newest one.
    ///
    /// `dir` is the only directory to search, if given. Otherwise the usual directories and then `search_path` (in the form of
    /// `PATH`) are searched. Root searches only directories that no other user can change, because the programs found are run.
    pub fn find(dir: Option<&Path>, search_path: Option<&OsStr>, existing: Option<u32>) -> Result<Self, Error> {
        let candidates = match dir {
            Some(dir) => {
                check(dir).map_err(|why| Error::Untrusted { dir: dir.to_owned(), why })?;
                vec![dir.to_owned()]
            }
            None => candidates(search_path),
        };
        candidates
            .into_iter()
            .filter(|dir| {
                let trusted = check(dir);
                if let Err(why) = &trusted {
                    warn!(target: "bellwire::postgres::binaries", "the Postgres in {} is passed over: {why}", dir.display());
                }
                trusted.is_ok()
            })
            .filter_map(Self::inspect)
            .filter(|found| existing.map_or(found.major >= OLDEST_MAJOR, |major| found.major == major))
            .min_by_key(|found| Reverse(found.major)) // the first of the newest
            .ok_or_else(|| match (dir, existing) {
                (Some(dir), _) => Error::NotThere { dir: dir.to_owned(), wanted: wanted(existing) },
                (None, Some(major)) => Error::OtherVersion { major },
                (None, None) => Error::NotInstalled,
            })
    }

    /// Returns the installation whose `pg_dump` and `pg_restore` work with a server of this major version: the nearest version
    /// that is not older. It need not contain a server.
    pub fn find_tools(dir: Option<&Path>, search_path: Option<&OsStr>, major: u32) -> Result<Self, Error> {
        let candidates = dir.map_or_else(|| candidates(search_path), |dir| vec![dir.to_owned()]);
        candidates
            .into_iter()
            .filter(|dir| TOOLS.iter().all(|name| is_trusted(&dir.join(name))))
            .filter_map(|dir| Some(Self { major: version_of(&dir.join(TOOLS[0]))?, dir }))
            .filter(|found| found.major >= major)
            .min_by_key(|found| found.major)
            .ok_or(Error::NoTools { major })
    }

    /// Returns the path of a program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the installation in a directory, if both programs exist there and run.
    fn inspect(dir: PathBuf) -> Option<Self> {
        let postgres = dir.join("postgres");
        if !postgres.is_file() || !dir.join("initdb").is_file() {
            return None;
        }
        let major = version_of(&postgres)?;
        Some(Self { dir, major })
    }
}

/// Returns the major version that a program reports.
fn version_of(program: &Path) -> Option<u32> {
    let output = Command::new(program).arg("--version").env_clear().output().ok()?;
    major_of(std::str::from_utf8(&output.stdout).ok()?)
}

/// Whether a program exists and may be run.
fn is_trusted(program: &Path) -> bool {
    program.is_file() && (!geteuid().is_root() || trust::check(program).is_ok())
}

/// Whether the programs in a directory may be run. Users other than root risk only their own data.
fn check(dir: &Path) -> Result<(), Untrusted> {
    let programs = ["postgres", "initdb"].map(|name| dir.join(name));
    match geteuid().is_root() {
        true => programs.iter().filter(|program| program.exists()).try_for_each(|program| trust::check(program)),
        false => Ok(()),
    }
}

fn wanted(existing: Option<u32>) -> String {
    existing.map_or(format!("{OLDEST_MAJOR} or newer"), |major| format!("{major}, which made the data directory"))
}

/// Parses the major version in the output of `postgres --version` and similar: `postgres (PostgreSQL) 15.18 (Debian …)`, `…
/// 17beta1`.
fn major_of(version: &str) -> Option<u32> {
    let number = version.split_once("(PostgreSQL) ")?.1;
    let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number[..digits].parse().ok()
}

fn candidates(search_path: Option<&OsStr>) -> Vec<PathBuf> {
    let installed = PARENTS.iter().flat_map(|parent| {
        let children = fs::read_dir(parent).into_iter().flatten().flatten();
        children.filter(|child| looks_like_postgres(parent, &child.file_name())).map(|child| child.path().join("bin"))
    });
    installed.chain(search_path.map(std::env::split_paths).into_iter().flatten()).collect()
}

/// Whether a directory below `parent` may be an installation. Debian's parent directory contains nothing else.
fn looks_like_postgres(parent: &str, name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    parent == PARENTS[0] || name.starts_with("pgsql") || name.starts_with("postgresql")
}

#[cfg(test)]
#[path = "../../../tests/crates/postgres/unit/binaries.rs"]
mod tests;
