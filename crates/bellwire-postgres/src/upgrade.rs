//! Upgrades an embedded Postgres to a newer major version: a new cluster is created next to the old one, `pg_upgrade` copies
//! all data, and the two are swapped. Until then the old cluster is unchanged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::binaries::Binaries;
use super::cluster::{Cluster, at};
use super::{Error, Options, SUPERUSER};

/// Finished upgrade of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Upgraded {
    /// Major version before it.
    pub from: u32,
    /// Major version after it.
    pub to: u32,
    /// Directory of the old cluster.
    pub old: PathBuf,
}

/// Upgrades to the newest installed version, or to that of the configured directory. The cluster must not be running.
pub fn upgrade(options: &Options) -> Result<Upgraded, Error> {
    // What runs the cluster is not what was configured for the one to come.
    let place = Cluster::prepare(&Options { binaries: None, ..options.clone() })?;
    let _keeping = place.keep()?.ok_or(Error::Running)?;
    let _lock = place.lock()?;
    if place.status()?.is_some() {
        return Err(Error::Running);
    }
    let new = Binaries::find(options.binaries.as_deref(), options.search_path.as_deref(), None)?;
    let from = place.binaries.major;
    if new.major <= from {
        return Err(Error::NothingNewer { major: from });
    }
    let (cluster, beside, old) = (place.cluster(), place.beside("postgres.upgrade"), place.beside("postgres.old"));
    if old.exists() {
        return Err(at("there is a cluster of an earlier upgrade, to be removed first:", &old)(
            std::io::ErrorKind::AlreadyExists.into(),
        ));
    }
    place.make_new(&new, &beside, has_checksums(&place, &cluster)?)?;
    place.make_socket_dir()?;
    let carried = carry_over(&place, &new, &cluster, &beside);
    place.remove_socket_dir();
    if let Err(error) = carried {
        let _ = fs::remove_dir_all(&beside); // an interrupted one is made anew in any case
        return Err(error);
    }
    fs::rename(&cluster, &old).map_err(at("cannot move", &cluster))?;
    fs::rename(&beside, &cluster).map_err(at("cannot move", &beside))?;
    Ok(Upgraded { from, to: new.major, old })
}

/// Whether the cluster's pages have checksums. Both clusters must be equal in this.
fn has_checksums(place: &Cluster, cluster: &Path) -> Result<bool, Error> {
    let mut command = Command::new(place.binaries.program("pg_controldata"));
    command.arg("-D").arg(cluster);
    let output = place.run_as(&mut command).output().map_err(Error::io("cannot run pg_controldata"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.lines().find_map(|line| line.strip_prefix("Data page checksum version:"));
    Ok(version.is_some_and(|version| version.trim() != "0"))
}

/// Runs `pg_upgrade`, which copies files. With links, the old cluster could no longer be used.
fn carry_over(place: &Cluster, new: &Binaries, from: &Path, to: &Path) -> Result<(), Error> {
    let mut command = Command::new(new.program("pg_upgrade"));
    command
        .args(["--username", SUPERUSER])
        .arg("--old-bindir")
        .arg(&place.binaries.dir)
        .arg("--new-bindir")
        .arg(&new.dir);
    command.arg("--old-datadir").arg(from).arg("--new-datadir").arg(to).arg("--socketdir").arg(&place.socket_dir);
    // It writes scripts for statistics where it stands, and what it did into the new cluster.
    let output = place.run_as(&mut command).current_dir(to).stdin(Stdio::null()).output();
    let output = output.map_err(Error::io("cannot run pg_upgrade"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<_> = said.lines().rev().take(20).collect();
    Err(Error::Upgrade(lines.into_iter().rev().collect::<Vec<_>>().join("\n")))
}
