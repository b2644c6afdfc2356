//! Location of an embedded Postgres: directories, their owners, and the content of its lock file.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use aws_lc_rs::digest;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, Uid, User, chown, geteuid};

use super::binaries::Binaries;
use super::settings::Durability;
use super::{Error, Options, SUPERUSER};

/// System user that runs Postgres when root starts it. Every package of Postgres creates it.
const SYSTEM_USER: &str = "postgres";
/// Database created with the cluster.
pub const DATABASE: &str = "bellwire";
/// First major version with page checksums by default.
const CHECKSUMS_BY_DEFAULT: u32 = 18;
/// Name of the socket, which is derived from the port.
const SOCKET: &str = ".s.PGSQL.5432";
/// Maximum length of a socket's path in Linux (unix(7)), without the final zero.
const SOCKET_PATH_MAX_OCTETS: usize = 107;
/// Size of a log above which it is renamed at the next start.
const LOG_LIMIT_BYTES: u64 = 10 << 20;
/// Bytes of the log that an error quotes.
const QUOTE_BYTES: u64 = 2000;

/// Content of the lock file of a running Postgres.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ready,
    Changing,
}

/// A prepared cluster: binaries found, directories created, data initialised.
#[derive(Debug)]
pub(super) struct Cluster {
    data_dir: PathBuf,
    pub binaries: Binaries,
    pub socket_dir: PathBuf,
    pub durability: Durability,
    pub memory_mib: u32,
    pub is_paced: bool,
    ephemeral: bool,
    user: Option<User>,
}

impl Cluster {
    /// Creates missing directories and files.
    pub(super) fn prepare(options: &Options) -> Result<Self, Error> {
        let user = run_user()?;
        make_dir(&options.data_dir)?;
        let data_dir = fs::canonicalize(&options.data_dir).map_err(at("cannot resolve", &options.data_dir))?;
        if let Some(user) = &user {
            refuse_anothers(&data_dir.join("postgres"), user)?;
            refuse_closed_path(&data_dir, user)?;
        }
        let existing = existing_major(&data_dir.join("postgres"))?;
        let binaries = Binaries::find(options.binaries.as_deref(), options.search_path.as_deref(), existing)?;
        let socket_dir = socket_dir(&data_dir);
        let (durability, ephemeral) = (options.durability, options.ephemeral);
        let memory_mib = options.memory_mib();
        let is_paced = options.is_paced;
        let place = Self { data_dir, binaries, socket_dir, durability, memory_mib, is_paced, ephemeral, user };
        let _lock = place.lock()?;
        if ephemeral {
            place.give_away(&place.data_dir)?; // the guard, which erases it, runs as that user
        }
        if existing_major(&place.cluster())?.is_none() {
            place.initdb()?;
        }
        Ok(place)
    }

    pub(super) fn cluster(&self) -> PathBuf {
        self.data_dir.join("postgres")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.socket_dir.join(SOCKET)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.data_dir.join("postgres.log")
    }

    /// Prevents other processes from creating or starting the same cluster, until the file is dropped.
    pub(super) fn lock(&self) -> Result<File, Error> {
        let path = self.data_dir.join("postgres.lock");
        let lock = OpenOptions::new().create(true).append(true).open(&path).map_err(at("cannot open", &path))?;
        lock.lock().map_err(at("cannot lock", &path))?;
        Ok(lock)
    }

    /// Marks, until the file is dropped, that this process keeps Postgres running. `None`: another process does.
    pub(super) fn keep(&self) -> Result<Option<File>, Error> {
        let path = self.data_dir.join("postgres.keeper");
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(at("cannot open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(at("cannot lock", &path)(error)),
        }
    }

    /// Renames a lock file that Postgres cannot parse, because a disk was full or another program wrote to it. Returns `false`
    /// if a process runs in the cluster's directory, as all processes of a Postgres do, because the file may then be in use.
    pub(super) fn discard_lock_file(&self) -> Result<bool, Error> {
        let (cluster, processes) = (self.cluster(), Path::new("/proc"));
        for process in fs::read_dir(processes).map_err(at("cannot read", processes))?.flatten() {
            if fs::read_link(process.path().join("cwd")).is_ok_and(|dir| dir == cluster) {
                return Ok(false);
            }
        }
        let (file, aside) = (cluster.join("postmaster.pid"), cluster.join("postmaster.pid.broken"));
        tracing::warn!(target: "bellwire::postgres::cluster", moved_to = %aside.display(), "Postgres left a lock file that cannot be read, and does not run");
        fs::rename(&file, aside).map_err(at("cannot move", &file))?;
        Ok(true)
    }

    /// Opens the log for appending. Also returns its current length.
    pub(super) fn open_log(&self) -> Result<(File, u64), Error> {
        let path = self.log();
        if fs::metadata(&path).is_ok_and(|log| log.len() > LOG_LIMIT_BYTES) {
            fs::rename(&path, self.data_dir.join("postgres.log.1")).map_err(at("cannot move", &path))?;
        }
        let log = OpenOptions::new().create(true).append(true).open(&path).map_err(at("cannot open", &path))?;
        let length = log.metadata().map_err(at("cannot read", &path))?.len();
        Ok((log, length))
    }

    /// Returns the last lines of the log after this length.
    pub(super) fn said_since(&self, start: u64) -> String {
        let read = || -> std::io::Result<String> {
            let mut log = File::open(self.log())?;
            let end = log.metadata()?.len();
            log.seek(SeekFrom::Start(start.max(end.saturating_sub(QUOTE_BYTES))))?;
            let mut octets = Vec::new();
            log.read_to_end(&mut octets)?;
            Ok(String::from_utf8_lossy(&octets).trim().to_owned())
        };
        match read() {
            Ok(said) if !said.is_empty() => said,
            _ => format!("it logged nothing; see {}", self.log().display()),
        }
    }

    /// Returns the directories that the guard removes at the end, one per line.
    pub(super) fn erase_at_end(&self) -> OsString {
        if !self.ephemeral {
            return OsString::new();
        }
        let mut list = self.data_dir.clone().into_os_string();
        list.push("\n");
        list.push(&self.socket_dir);
        list
    }

    /// Returns the Postgres that runs on this cluster and responds at its socket, if any.
    ///
    /// The lock file alone proves nothing: after a crash of the machine its process id may belong to another program. A
    /// response proves nothing where other users can listen.
    pub(super) fn status(&self) -> Result<Option<(Pid, Status)>, Error> {
        if !self.has_socket_dir()? {
            return Ok(None);
        }
        let lock_file = fs::read_to_string(self.cluster().join("postmaster.pid")).unwrap_or_default();
        let alive = parse_lock_file(&lock_file).filter(|(pid, _)| kill(*pid, None) != Err(Errno::ESRCH));
        Ok(alive.filter(|_| UnixStream::connect(self.socket()).is_ok()))
    }

    /// Sets the user, directory and environment of a child process. The environment is emptied, because it may contain the
    /// master key, and `PG…` variables would change Postgres's behaviour. A separate process group prevents that Ctrl-C ends
    /// Postgres before settlements are written.
    pub(super) fn run_as<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if let Some(user) = &self.user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").current_dir("/").process_group(0)
    }

    /// Creates the cluster next to its final path and renames it when it is complete, so that an interrupted attempt is simply
    /// repeated.
    fn initdb(&self) -> Result<(), Error> {
        let new = self.beside("postgres.new");
        self.make_new(&self.binaries, &new, self.durability == Durability::Full)?;
        let mut single = Command::new(self.binaries.program("postgres"));
        single.arg("--single").arg("-D").arg(&new).arg("postgres");
        self.run_to_end(&mut single, &format!("CREATE DATABASE {DATABASE}\n"))?;
        fs::rename(&new, self.cluster()).map_err(at("cannot move", &new))
    }

    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.data_dir.join(name)
    }

    /// Creates a cluster at `new`, replacing the remains of an interrupted attempt.
    pub(super) fn make_new(&self, binaries: &Binaries, new: &Path, checksums: bool) -> Result<(), Error> {
        if new.exists() {
            fs::remove_dir_all(new).map_err(at("cannot remove", new))?;
        }
        DirBuilder::new().mode(0o700).create(new).map_err(at("cannot make", new))?;
        self.give_away(new)?;
        let mut initdb = Command::new(binaries.program("initdb"));
        // "trust" is right because only the owner (and root) can enter the socket's directory. With the C locale text
        // sorts by its octets, the same on every machine.
        initdb.args(["--username", SUPERUSER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C"]);
        initdb.arg("--pgdata").arg(new);
        if checksums {
            initdb.arg("--data-checksums");
        } else if binaries.major >= CHECKSUMS_BY_DEFAULT {
            initdb.arg("--no-data-checksums");
        }
        if self.durability == Durability::Fast {
            initdb.arg("--no-sync");
        }
        self.run_to_end(&mut initdb, "")
    }

    /// Runs a program of Postgres with this input. A failure contains its output.
    fn run_to_end(&self, command: &mut Command, input: &str) -> Result<(), Error> {
        let mut child = self
            .run_as(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Error::io(format!("cannot run {}", command.get_program().to_string_lossy())))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ended early says why on its standard error.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output().map_err(Error::io("cannot wait for initdb"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::InitDb(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// Checks that the socket's directory exists and is safe. All users can write to `/tmp`: a directory that another user
    /// created there first could belong to a foreign Postgres.
    fn has_socket_dir(&self) -> Result<bool, Error> {
        let dir = &self.socket_dir;
        let found = match fs::symlink_metadata(dir) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(at("cannot read", dir)(error)),
        };
        let user = self.user.as_ref().map_or(geteuid(), |user| user.uid);
        match found.is_dir() && is_open_to_alone(user, Uid::from_raw(found.uid()), found.mode()) {
            true => Ok(true),
            false => Err(Error::SocketDir(dir.clone())),
        }
    }

    /// Creates the socket's directory. Call it under the lock, like [`remove_socket_dir`](Self::remove_socket_dir).
    pub(super) fn make_socket_dir(&self) -> Result<(), Error> {
        let dir = &self.socket_dir;
        match DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => self.give_away(dir)?,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(at("cannot make", dir)(error)),
        }
        self.has_socket_dir().map(drop)
    }

    /// Removes the socket's directory, unless another process has started Postgres meanwhile.
    pub(super) fn remove_socket_dir(&self) {
        if let Ok(None) = self.status() {
            // It is not empty if that other process is about to start; and nothing depends on its removal.
            let _ = fs::remove_dir(&self.socket_dir);
        }
    }

    /// Makes the user that runs Postgres the owner.
    fn give_away(&self, path: &Path) -> Result<(), Error> {
        let Some(user) = &self.user else { return Ok(()) };
        chown(path, Some(user.uid), Some(user.gid)).map_err(|errno| at("cannot give away", path)(errno.into()))
    }
}

pub(super) fn at(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
    Error::io(format!("{what} {}", path.display()))
}

fn run_user() -> Result<Option<User>, Error> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    match User::from_name(SYSTEM_USER) {
        Ok(Some(user)) => Ok(Some(user)),
        _ => Err(Error::NoUser(SYSTEM_USER)),
    }
}

/// Creates the data directory. Other users may pass through it (Postgres runs as another user when root starts Bellwire) but
/// not list it.
fn make_dir(dir: &Path) -> Result<(), Error> {
    if dir.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(at("cannot make", dir))?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o711)).map_err(at("cannot open", dir))
}

fn refuse_closed_path(dir: &Path, user: &User) -> Result<(), Error> {
    for dir in dir.ancestors() {
        let meta = fs::metadata(dir).map_err(at("cannot read", dir))?;
        let may_enter = if meta.uid() == user.uid.as_raw() {
            0o100
        } else if meta.gid() == user.gid.as_raw() {
            0o010
        } else {
            0o001
        };
        if meta.mode() & may_enter == 0 {
            return Err(Error::Unreachable { dir: dir.to_owned(), user: SYSTEM_USER });
        }
    }
    Ok(())
}

/// Refuses a cluster of another user, because Postgres serves only its owner's clusters. Root may not use the cluster of a
/// service's user either.
fn refuse_anothers(cluster: &Path, user: &User) -> Result<(), Error> {
    let owner = match fs::metadata(cluster) {
        Ok(found) => Uid::from_raw(found.uid()),
        Err(_) => return Ok(()), // there is none yet, or it is about to be told why it cannot be read
    };
    // Root's own is on its way to that user, or was put there by hand.
    if owner == user.uid || owner.is_root() {
        return Ok(());
    }
    let named = User::from_uid(owner).ok().flatten();
    let owner = named.map_or_else(|| owner.to_string(), |user| user.name);
    Err(Error::Anothers { dir: cluster.to_owned(), owner })
}

pub(super) fn cluster_exists(data_dir: &Path) -> bool {
    data_dir.join("postgres").join("PG_VERSION").exists()
}

/// Returns the major version that created the cluster. `None`: no cluster.
fn existing_major(cluster: &Path) -> Result<Option<u32>, Error> {
    let path = cluster.join("PG_VERSION");
    match fs::read_to_string(&path) {
        Ok(text) => text
            .trim()
            .parse()
            .map(Some)
            .map_err(|_| at("cannot understand", &path)(std::io::Error::other("not a version number"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at("cannot read", &path)(error)),
    }
}

/// Whether a path with this owner and mode is accessible to one user only.
fn is_open_to_alone(user: Uid, owner: Uid, mode: u32) -> bool {
    owner == user && mode & 0o077 == 0
}

/// Returns the directory of the socket, the same for the same data directory. It is next to the data, where all processes find
/// it, also those with a private `/tmp`. If that path is longer than the 107 bytes of a socket's path, or has special
/// characters of Postgres's directory list, it is a short path in `/tmp`.
fn socket_dir(data_dir: &Path) -> PathBuf {
    let beside = data_dir.join("postgres.socket");
    let path = beside.join(SOCKET);
    let path = path.as_os_str().as_encoded_bytes();
    let is_plain = |octet: &u8| octet.is_ascii_alphanumeric() || b"/._-".contains(octet);
    if path.len() <= SOCKET_PATH_MAX_OCTETS && path.iter().all(is_plain) {
        return beside;
    }
    let hash = digest::digest(&digest::SHA256, data_dir.as_os_str().as_encoded_bytes());
    let hex: String = hash.as_ref()[..8].iter().map(|octet| format!("{octet:02x}")).collect();
    PathBuf::from(format!("/tmp/bellwire-{hex}"))
}

/// Process id and state in `postmaster.pid`: its first and eighth line (Postgres, src/include/utils/pidfile.h).
fn parse_lock_file(text: &str) -> Option<(Pid, Status)> {
    let mut lines = text.lines();
    let pid: i32 = lines.next()?.trim().parse().ok()?;
    let ready = lines.nth(6).is_some_and(|status| status.trim() == "ready");
    (pid > 0).then(|| (Pid::from_raw(pid), if ready { Status::Ready } else { Status::Changing }))
}

#[cfg(test)]
#[path = "../../../tests/crates/postgres/unit/cluster.rs"]
mod tests;
